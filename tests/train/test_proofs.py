"""Silent non-synchronisation must be impossible: broken on purpose, it is caught, named, and costs nothing."""

import json
import os
import re
import shutil
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.train import cluster, reference
from train.engine import checkpoint
from train.engine.consistency import Disagreement, require_agreement
from train.errors import CheckFailed
from train.failures import classify_failure
from train.models.model_files import model_folder
from train.parallel.process_group import FAILED, World, in_parts, over_nccl
from train.runlog.paths import DECIDED

OPTIONS = reference.OPTIONS | {"max_steps": 12, "rows_per_step": 6, "save_every": 5, "proof_every": 5}
OPTIONS |= {"sync": "flat", "balance": "even"}  # each rank has rows that can be broken


@pytest.fixture
def options(data):
    return OPTIONS | {"dataset": data}


def truth(data, steps=OPTIONS["max_steps"]):
    return reference.losses(model_folder("tiny"), data, steps=steps, rows_per_step=6, of_steps=steps)


def failed_run(tmp_path, options, size, what) -> cluster.Cluster:
    run = cluster.Cluster(tmp_path, options, size, changed=what)
    assert run.wait() == [1] * size, run.said()
    return run


def kept(run, rank=0) -> list[int]:
    return checkpoint.steps(run.checkpoints(rank))


@pytest.mark.parametrize(("first_step", "caught_at", "proven"), [(1, 1, []), (7, 10, [5])])
def test_a_rank_that_trains_its_own_model_is_caught_and_named(first_step, caught_at, proven, options, tmp_path):
    run = failed_run(tmp_path, options, 3, f"own_gradient={first_step}")
    for rank in range(3):
        assert "do not train the same thing: adapter differs: node-1" in run.said(rank)
        assert f"at step {caught_at}" in run.said(rank)
        assert run.events(rank)[-1]["event"] == "failed"
        assert kept(run, rank) == proven, "only proven checkpoints are kept"


def test_a_rank_with_shares_of_its_own_is_caught_in_the_same_step(options, tmp_path):
    """Rows would be skipped, or trained twice."""
    run = failed_run(tmp_path, options, 3, "own_shares=6")
    for rank in range(3):
        assert "do not train the same thing: the rows of node-1 begin with number" in run.said(rank)
        assert "at step 6" in run.said(rank) and len(run.steps(rank)) == 5


def started_with_one_odd(home, options, **odd) -> cluster.Cluster:
    """Three nodes, the last of them with other options."""
    return cluster.Cluster(home, options, 3, odd_rank_options={2: odd})


def test_other_settings_on_one_node_stop_before_the_first_step(options, tmp_path):
    run = started_with_one_odd(tmp_path, options, learning_rate=0.1)
    assert run.wait() == [1, 1, 1]
    assert "learning_rate differs: node-2 (0.1); the others have 0.002" in run.said()
    assert run.steps() == []


def test_other_data_on_one_node_stops_before_the_first_step(options, tmp_path):
    run = started_with_one_odd(tmp_path, options, dataset=cluster.make_rows(tmp_path / "other", seed=1))
    assert run.wait() == [1, 1, 1]
    assert "rows differs: node-2" in run.said()


def test_rows_that_were_damaged_on_disk_are_not_trained_and_the_others_name_their_node_at_once(options, tmp_path):
    """As after a power cut: the size is right, a page is not."""
    torn = shutil.copytree(options["dataset"], tmp_path / "torn")
    with (torn / "train/tokens.bin").open("r+b") as file:
        file.write(bytes(16))
    run = started_with_one_odd(tmp_path, options, dataset=torn)
    assert run.wait(30) == [1, 1, 2]
    assert "node-2 cannot start: the prepared dataset is damaged" in run.said(0)


@pytest.mark.parametrize(
    ("what", "said", "saved"),
    [
        ("nan_loss=8", "the loss is nan (from node-1)", [[5], [5]]),
        ("endless_gradient=8", "the gradient is not finite (on node-0, node-1)", [[5], [5]]),
        ("fails=8", "node-1, step 8: RuntimeError: the cat pulled the plug", [[5, 7], [5, 7]]),
        ("fails_in_update=8", "node-1, step 8: RuntimeError: half an update", [[5, 8], [5]]),
    ],
)
def test_what_goes_wrong_in_a_step_is_named_and_what_is_finished_and_sound_is_saved(
    what, said, saved, options, tmp_path
):
    run = failed_run(tmp_path, options, 2, what)
    assert said in run.said(1) and re.search("node-0, step [89]: ", run.said(0))
    assert [kept(run, rank) for rank in range(2)] == saved
    last = run.events(1)[-1]
    assert last["node"] == "node-1" and "Traceback" in last["trace"]


def test_ranks_that_sum_up_their_norm_in_another_order_still_hold_the_same(options, tmp_path):
    """As different GPUs do: the last bit of a sum depends on how it is cut into parts."""
    run = cluster.train(tmp_path, {**options, "grad_clip": 0.01}, 2, changed="own_norm")
    assert len(run.losses()) == 12


def test_half_an_exchange_is_never_applied_saved_or_resumed_from(options, data, tmp_path):
    run = failed_run(tmp_path, options, 2, "half_an_exchange=8")
    for rank in range(2):
        assert "step 8: the exchange failed on rank 1, and nobody is gone" in run.said(rank)
        assert kept(run, rank) == [5, 7]
    resumed = cluster.train(tmp_path, options, 2)
    assert resumed.losses() == pytest.approx(truth(data), rel=1e-5)


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


def test_nothing_that_ranks_send_each_other_is_unpickled(options, tmp_path):
    options |= {"max_steps": 6, "sync": "auto"}
    cluster.train(tmp_path, options, 2, changed="no_pickle")
    again = cluster.train(tmp_path, options, 2, changed="no_pickle")
    assert "resumed at step 6" in again.said()


@pytest.mark.parametrize("sync", ["flat", "ddp"])
def test_out_of_memory_lowers_the_micro_batch_and_continues(sync, options, data, tmp_path):
    options |= {"shares": "5,1", "micro_batch": 5, "sync": sync, "max_steps": 3}
    run = cluster.train(tmp_path, options, 2, changed="out_of_memory=2")
    assert run.losses() == pytest.approx(truth(data, 3), rel=1e-5)
    assert run.steps()[0]["nodes"]["node-0"]["micro_batch"] == 2
    assert "out of memory, continuing with 2 rows" in run.said()
    (warned,) = [event["message"] for event in run.events(1, "warning")]
    assert warned == "node-1: out of memory, continuing with 2 rows at a time", "it looks at more than it trains on"
    facts = json.loads((run.checkpoints() / DECIDED).read_text())
    assert [value for name, value in facts.items() if name.startswith("micro_batch node-0:0 ")] == ["2"]
    again = cluster.train(tmp_path, options, 2)
    assert "micro-batch 2: as it was found or fell to in this run" in again.said()


def test_a_full_disk_costs_the_checkpoint_not_the_run(options, tmp_path):
    run = cluster.train(tmp_path, options, changed="full_disk")
    assert len(run.losses()) == 12
    assert any("No space left" in event["message"] for event in run.events(kind="warning"))


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


def test_without_agents_the_limit_of_an_exchange_is_named(options, tmp_path):
    run = failed_run(tmp_path, {**options, "timeout_s": 6}, 2, "slow_to_begin=13")
    assert "no answer for 6 s (timeout_s); fix: " in run.said()


def test_the_majority_is_right_and_the_odd_one_is_named():
    claims = [("a", {"rows": "1"}), ("b", {"rows": "2"}), ("c", {"rows": "1"})]
    require_agreement(claims[::2], "now", "fix it")
    with pytest.raises(Disagreement, match=r"rows differs: b \(2\); the others have 1") as raised:
        require_agreement(claims, "now", "fix it")
    assert raised.value.odd == {"b"}


def test_what_is_sent_at_once_is_of_one_type_and_no_more_than_some_megabytes(monkeypatch):
    monkeypatch.setattr("train.parallel.process_group.PART_BYTES", 40)
    tensors = [*(torch.zeros(size) for size in (3, 5, 4, 30, 2)), torch.zeros(2, dtype=torch.bfloat16)]
    assert [[one.numel() for one in part] for part in in_parts(tensors)] == [[3, 5], [4], [30], [2], [2]]
    assert list(in_parts([])) == []


def test_what_is_forgotten_is_out_of_the_store():
    alone = World()
    alone.write("answer", "all of it")
    assert alone.read("answer") == "all of it"
    alone.forget("answer")
    assert alone.read("answer") is None
