"""Silent non-synchronisation must be impossible: broken on purpose, it is caught, named, and costs nothing."""

import json
import os
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.train import cluster
from train.engine import checkpoint
from train.engine.consistency import Disagreement, disagreement, require_agreement
from train.errors import CheckFailed
from train.failures import classify_failure
from train.parallel.process_group import FAILED, World, in_parts, over_nccl
from train.runlog.paths import DECIDED

OPTIONS = {"model": "tiny", "max_steps": 12, "rows_per_step": 6, "lora_r": 8, "save_every": 5, "proof_every": 5}
OPTIONS |= {"sync": "flat", "balance": "even"}  # each rank has rows that can be broken
BROKEN = str(Path(__file__).with_name("broken.py"))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return cluster.make_rows(tmp_path_factory.mktemp("data"), 20, 2)


def failed_run(tmp_path, options, size, what) -> cluster.Cluster:
    run = cluster.Cluster(tmp_path, options, size, [BROKEN, what])
    assert run.wait() == [1] * size, run.said()
    return run


@pytest.mark.parametrize(("first_step", "caught_at", "kept"), [(1, 1, []), (7, 10, [5])])
def test_a_rank_that_trains_its_own_model_is_caught_and_named(first_step, caught_at, kept, data, tmp_path):
    run = failed_run(tmp_path, {**OPTIONS, "dataset": data}, 3, f"own_gradient={first_step}")
    for rank in range(3):
        assert "do not train the same thing: adapter differs: node-1" in run.said(rank)
        assert f"at step {caught_at}" in run.said(rank)
        assert run.events(rank)[-1]["event"] == "failed"
        root = run.node_home(rank) / "models/checkpoints/run"
        assert checkpoint.steps(root) == kept, "only proven checkpoints are kept"


def test_a_rank_with_shares_of_its_own_is_caught_in_the_same_step(data, tmp_path):
    """Rows would be skipped, or trained twice."""
    run = failed_run(tmp_path, {**OPTIONS, "dataset": data, "balance": "even"}, 3, "own_shares=6")
    for rank in range(3):
        assert "do not train the same thing: the rows of node-1 begin with number" in run.said(rank)
        assert "at step 6" in run.said(rank) and len(run.steps(rank)) == 5


def test_other_settings_on_one_node_stop_before_the_first_step(data, tmp_path):
    run = start_with_one_odd(tmp_path, {**OPTIONS, "dataset": data}, {"learning_rate": 0.1})
    assert run.wait() == [1, 1, 1]
    assert "learning_rate differs: node-2 (0.1); the others have 0.0002" in run.said()
    assert run.steps() == []


def test_other_data_on_one_node_stops_before_the_first_step(data, tmp_path):
    other = cluster.make_rows(tmp_path / "other", 20, 2, seed=1)
    run = start_with_one_odd(tmp_path, {**OPTIONS, "dataset": data}, {"dataset": other})
    assert run.wait() == [1, 1, 1]
    assert "rows differs: node-2" in run.said()


def test_rows_that_were_damaged_on_disk_are_not_trained(data, tmp_path):
    """As after a power cut: the size is right, a page is not."""
    torn = shutil.copytree(data, tmp_path / "torn")
    with (torn / "train/tokens.bin").open("r+b") as file:
        file.write(bytes(16))
    run = start_with_one_odd(tmp_path, {**OPTIONS, "dataset": data}, {"dataset": torn})
    assert run.wait(30) == [1, 1, 2]
    assert "node-2 cannot start: the prepared dataset is damaged" in run.said(0)


def test_a_node_that_cannot_start_is_named_by_the_others_at_once(data, tmp_path):
    run = start_with_one_odd(tmp_path, {**OPTIONS, "dataset": data}, {"device": "cuda"})
    assert run.wait(30) == [1, 1, 2]
    assert "node-2 cannot start: device: cuda, and node-2 has no usable GPU" in run.said(0)


def start_with_one_odd(home, options, odd) -> cluster.Cluster:
    """Three nodes, the last of them with other options."""
    return cluster.Cluster(home, options, 3, odd_rank_options={2: odd})


def test_a_nan_loss_stops_and_the_last_good_checkpoint_stays(data, tmp_path):
    run = failed_run(tmp_path, {**OPTIONS, "dataset": data}, 2, "nan_loss=8")
    assert "the loss is nan (from node-1)" in run.said()
    assert checkpoint.steps(run.node_home(0) / "models/checkpoints/run") == [5]


def test_an_infinite_gradient_stops_before_it_is_in_the_weights(data, tmp_path):
    run = failed_run(tmp_path, {**OPTIONS, "dataset": data}, 2, "endless_gradient=8")
    assert "the gradient is not finite (on node-0, node-1)" in run.said()
    assert checkpoint.steps(run.node_home(0) / "models/checkpoints/run") == [5]


def test_ranks_that_sum_up_their_norm_in_another_order_still_hold_the_same(data, tmp_path):
    """As different GPUs do: the last bit of a sum depends on how it is cut into parts."""
    run = cluster.train(tmp_path, {**OPTIONS, "dataset": data, "grad_clip": 0.01}, 2, program=[BROKEN, "own_norm"])
    assert len(run.losses()) == 12


def test_an_exception_names_node_and_step_and_saves_what_is_finished(data, tmp_path):
    run = failed_run(tmp_path, {**OPTIONS, "dataset": data}, 2, "fails=8")
    assert "node-1, step 8: RuntimeError: the cat pulled the plug" in run.said(1)
    assert run.events(1)[-1]["node"] == "node-1" and "Traceback" in run.events(1)[-1]["trace"]
    assert "node-0, step 8" in run.said(0)
    assert checkpoint.steps(run.node_home(1) / "models/checkpoints/run") == [5, 7]


def test_half_an_exchange_is_never_applied_saved_or_resumed_from(data, tmp_path):
    options = {**OPTIONS, "dataset": data}
    run = failed_run(tmp_path, options, 2, "half_an_exchange=8")
    for rank in range(2):
        assert "step 8: the exchange failed on rank 1, and nobody is gone" in run.said(rank)
        assert checkpoint.steps(run.node_home(rank) / "models/checkpoints/run") == [5, 7]
    resumed = cluster.train(tmp_path, options, 2)
    whole = cluster.train(tmp_path / "whole", options, 2)
    assert resumed.losses() == pytest.approx(whole.losses(), rel=1e-6)


@pytest.mark.parametrize(
    ("wanted", "places", "found"),
    [
        ("auto", [("a", True), ("a", True)], (True, "exchange nccl: the cards are in one machine")),
        ("auto", [("a", True), ("b", True)], (False, "exchange gloo: the cards are in several machines")),
        ("nccl", [("a", True), ("b", True)], (True, "exchange nccl: as set")),
        ("gloo", [("a", True), ("a", True)], (False, "exchange gloo: as set")),
        ("nccl", [("a", True), ("b", False)], (False, "")),
        ("auto", [("a", True)], (False, "")),
    ],
)
def test_cards_exchange_by_themselves_only_within_one_machine_or_as_set(wanted, places, found):
    nccl, why = over_nccl(wanted, places)
    assert nccl == found[0] and why.startswith(found[1]) and bool(why) == bool(found[1])


@pytest.mark.parametrize(
    ("sums", "said", "kind"),
    [
        ([6.0], "", ""),
        ([5.0], "the cards of a:0 and a:1 and b:0 do not sum up rightly", "check"),
        ([], "the cards of a:0 and a:1 and b:0 have exchanged nothing within 0 s", "check"),
    ],
)
def test_a_first_exchange_of_cards_that_fails_names_them_and_the_switch(sums, said, kind, monkeypatch):
    """Two cards in one box behind an IOMMU hang, or sum up wrongly. All of the group are there and say so: the run ends
    with what to set, and is not tried eight times."""

    def all_reduce(tensor):
        threading.Event().wait(0 if sums else 5)
        tensor.fill_(sums[0] if sums else 0)

    class Three(World):
        def gather(self, value):
            return [[*value[:1], 0, value[2]], ["a", 1, value[2]], ["b", 0, value[2]]]

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr("train.parallel.process_group.FIRST_EXCHANGE_S", 0.3)
    world = Three(rank=0, size=3, node="a")
    if not said:
        world.first_exchange("cpu")
        return
    with pytest.raises(CheckFailed) as failed:
        world.first_exchange("cpu")
    what, fix = str(failed.value).splitlines()
    assert what == said and "motley_render_environment: {NCCL_P2P_DISABLE: 1} for a" in fix
    assert classify_failure(failed.value) == kind


def test_a_lost_peer_or_a_broken_card_never_aborts_a_process_of_cards(monkeypatch):
    """torch reads these as the group begins: its own threads are to end the exchange, not the process."""
    names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_RETHROW_CUDA_ERRORS", "TORCH_NCCL_DUMP_ON_TIMEOUT")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    seen = []

    def init(*_, **__):
        seen.extend(os.environ.get(name) for name in names)

    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(dist.distributed_c10d, "_set_pg_timeout", lambda _: None)
    monkeypatch.setattr(World, "gather", lambda *_: [])
    World(rank=0, size=2, node="a", store=dist.HashStore()).start_group(nccl=False)
    assert seen == ["2", "0", "0"]


def test_nothing_that_ranks_send_each_other_is_unpickled(data, tmp_path):
    options = {**OPTIONS, "dataset": data, "max_steps": 6, "sync": "auto"}
    cluster.train(tmp_path, options, 2, program=[BROKEN, "no_pickle"])
    again = cluster.train(tmp_path, {**options, "resume": "auto"}, 2, program=[BROKEN, "no_pickle"])
    assert "resumed at step 6" in again.said()


def test_half_an_update_is_never_saved(data, tmp_path):
    run = failed_run(tmp_path, {**OPTIONS, "dataset": data}, 2, "fails_in_update=8")
    assert "node-1, step 8: RuntimeError: half an update" in run.said(1)
    assert checkpoint.steps(run.node_home(1) / "models/checkpoints/run") == [5]
    assert checkpoint.steps(run.node_home(0) / "models/checkpoints/run") == [5, 8]


@pytest.mark.parametrize("sync", ["flat", "ddp"])
def test_out_of_memory_lowers_the_micro_batch_and_continues(sync, data, tmp_path):
    options = {**OPTIONS, "dataset": data, "shares": "5,1", "micro_batch": 5, "sync": sync, "max_steps": 3}
    small = cluster.train(tmp_path / "small", options, 2, program=[BROKEN, "out_of_memory=2"])
    plenty = cluster.train(tmp_path / "plenty", options, 2)
    assert small.losses() == pytest.approx(plenty.losses(), rel=1e-5)
    assert small.steps()[0]["nodes"]["node-0"]["micro_batch"] == 2
    assert "out of memory, continuing with 2 rows" in small.said()
    facts = json.loads((small.node_home(0) / "models/checkpoints/run" / DECIDED).read_text())
    assert [value for name, value in facts.items() if name.startswith("micro_batch node-0:0 ")] == ["2"]
    again = cluster.train(tmp_path / "small", {**options, "max_steps": 3, "resume": "auto"}, 2)
    assert "micro-batch 2: as it was found or fell to in this run" in again.said()


def test_a_full_disk_costs_the_checkpoint_not_the_run(data, tmp_path):
    run = cluster.train(tmp_path, {**OPTIONS, "dataset": data}, 1, program=[BROKEN, "full_disk"])
    assert len(run.losses()) == 12
    assert any(e["event"] == "warning" and "No space left" in e["message"] for e in run.events())


def test_the_host_of_the_store_stays_until_everyone_has_read():
    """Rank 0 may leave right behind a gather, and the store with it."""
    host, other = two()
    other.write("motley/1/1", '"from the other"')
    answer = []
    thread = threading.Thread(target=lambda: answer.extend(host.gather("from the host")), daemon=True)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive(), "the other has spoken, and not yet read"
    other.write("motley/1/1/read", "")
    thread.join(5)
    assert answer == ["from the host", "from the other"]


def two(of_the_other: bytes = b"key") -> tuple[World, World]:
    store = dist.HashStore()
    return World(0, 2, store=store, key=b"key"), World(1, 2, store=store, key=of_the_other)


def test_what_is_written_without_the_key_counts_as_not_written():
    host, stranger = two(of_the_other=b"")
    stranger.write("motley/1/0", '"forged"')
    stranger.write(FAILED, "forged")
    assert host.read("motley/1/0") is host.read(FAILED) is None
    host.report_failure(OSError("its own"))
    assert host.read(FAILED) == " cannot start: its own"
    stranger.write("motley/1/1", '"forged"')
    stranger.store.delete_key(FAILED)
    host.timeout = timedelta(seconds=0.2)
    with pytest.raises(CheckFailed, match="rank 1 did not answer"):
        host.gather("ours")


def test_a_value_belongs_to_its_name():
    host, other = two()
    host.write("motley/1/0", '"first"')
    other.store.set("motley/2/0", other.store.get("motley/1/0"))
    assert (other.read("motley/1/0"), other.read("motley/2/0")) == ('"first"', None)


def test_a_rank_that_never_answers_is_named():
    world = World(rank=0, size=2, node="a", store=dist.HashStore(), timeout=timedelta(seconds=0.2))
    with pytest.raises(CheckFailed, match="rank 1 did not answer"):
        world.gather("hello")


def test_without_agents_the_limit_of_an_exchange_is_named(data, tmp_path):
    options = {**OPTIONS, "dataset": data, "timeout_s": 6}
    run = cluster.Cluster(tmp_path, options, 2, program=[BROKEN, "slow_to_begin=13"])
    assert run.wait() == [1, 1]
    assert "no answer for 6 s (timeout_s); fix: " in run.said()


def test_the_majority_is_right_and_the_odd_one_is_named():
    claims = [("a", {"rows": "1"}), ("b", {"rows": "2"}), ("c", {"rows": "1"})]
    assert disagreement(claims) == "rows differs: b (2); the others have 1"
    assert disagreement(claims[::2]) == ""
    with pytest.raises(Disagreement):
        require_agreement(claims, "now", "fix it")


def test_what_is_sent_at_once_is_of_one_type_and_no_more_than_some_megabytes(monkeypatch):
    monkeypatch.setattr("train.parallel.process_group.PART_BYTES", 40)
    sizes = [
        (3, torch.float32),
        (5, torch.float32),
        (4, torch.float32),
        (30, torch.float32),
        (2, torch.float32),
        (2, torch.bfloat16),
    ]
    tensors = [torch.zeros(size, dtype=kind) for size, kind in sizes]
    assert [[one.numel() for one in part] for part in in_parts(tensors)] == [[3, 5], [4], [30], [2], [2]]
    assert list(in_parts([])) == []
