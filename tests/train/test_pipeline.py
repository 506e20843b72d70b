"""pipes: a model cut over machines trains as in one piece: the same losses, gradients and adapter."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from tests.train import cluster, families, reference, streaming
from tests.train.bases import save_in_4bit
from train.__main__ import main
from train.engine import kept_decisions, loop, pipe_members
from train.engine.step_event import Fed
from train.errors import BadInput
from train.models import hf
from train.models.model_files import model_folder
from train.models.part import Part
from train.models.weights import trained_weights
from train.parallel.process_group import World
from train.parallel.row_takers import RowTakers
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import resolve_model
from train.plan.model.memory import Setup
from train.plan.settings.read_settings import load_config
from train.proof import model_in_parts

FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma", "granite", "olmo2", "stablelm", "starcoder2", "cohere",
    "phi3",
)  # fmt: skip


def parts_of(folder, cuts, **spec):
    return [streaming.build(folder, layers=own, **spec) for own in itertools.pairwise(cuts)]


def assert_alike(folder, cuts, **spec):
    """Bit for bit, on one kind of processor."""
    whole, parts = streaming.build(folder, **spec), parts_of(folder, cuts, **spec)
    first = trained_weights(whole)
    for part in parts:  # each has the whole adapter, and begins with the same weights
        own = trained_weights(part)
        assert own.keys() == first.keys()
        assert all(torch.equal(own[name], weight) for name, weight in first.items())
    batch = streaming.batch(1)
    loss = hf.loss_sum(whole, batch)
    loss.backward()
    assert model_in_parts.step(parts, batch) == loss.item()
    wanted, found = model_in_parts.gradients(whole), [model_in_parts.gradients(part) for part in parts]
    assert sum(map(len, found)) == len(wanted)
    for name, gradient in (pair for own in found for pair in own.items()):
        assert torch.equal(gradient, wanted[name]), name


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_the_same_in_parts(family, tmp_path):
    assert_alike(families.make(family, tmp_path, num_hidden_layers=4), (0, 1, 3, 4))


def test_files_that_lack_a_weight_of_a_part_are_refused_there(tmp_path):
    """transformers would draw it by lot."""
    folder = families.make("llama", tmp_path, num_hidden_layers=4)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    streaming.build(folder, layers=(2, 4))
    with pytest.raises(BadInput, match=r"files lack model\.layers\.1\.mlp\.up_proj\.weight"):
        streaming.build(folder, layers=(0, 2))


@pytest.mark.parametrize("cuts", [(0, 1, 5), (0, 3, 4, 5), (0, 1, 2, 4, 5), (0, 1, 2, 3, 4, 5)], ids=str)
def test_two_to_five_parts_cut_anywhere(cuts, tmp_path):
    assert_alike(families.make("llama", tmp_path, num_hidden_layers=5), cuts)


@pytest.mark.parametrize("more", [{"gradient_checkpointing": "true"}, {"load_in": "4bit"}, {"lora_targets": "q_proj"}])
def test_with_checkpoints_in_4_bit_and_with_fewer_targets(more):
    assert_alike(model_folder("tiny"), (0, 2, 4), **more)


def test_a_base_whose_files_are_in_4_bit(tmp_path):
    assert_alike(save_in_4bit(tmp_path / "base"), (0, 1, 4))


def test_a_part_holds_its_layers_only():
    held = [
        sum(p.numel() for p in part.parameters() if not p.requires_grad and p.untyped_storage().nbytes() > 8)
        for part in [streaming.build(model_folder("tiny")), *parts_of(model_folder("tiny"), (0, 1, 3, 4))]
    ]
    whole, *parts = held
    table = 1024 * streaming.build(model_folder("tiny")).config.hidden_size
    layer = parts[1] // 2
    assert parts[0] <= layer + table + 1000 and parts[2] <= layer + table + 1000
    assert sum(parts) < whole + table + 1000  # its table is tied: both ends have it


# -- a family that cuts wrongly ----------------------------------------------------------------------------------------


def test_the_miniature_proof_passes_real_models():
    for name in ("tiny", "smollm2-135m"):
        model_in_parts.prove(AutoConfig.from_pretrained(model_folder(name)))


def test_a_family_whose_parts_compute_something_else_is_refused(monkeypatch, tmp_path):
    """As granite did where its scale of embeddings met every hidden state that came in."""
    enter = Part.enter
    monkeypatch.setattr(Part, "enter", lambda *given, **more: enter(*given, **more) * 1.0007)
    with pytest.raises(BadInput, match=r"a llama model cannot be cut: in parts .* off by \d"):
        model_in_parts.prove(AutoConfig.from_pretrained(families.make("llama", tmp_path)))


def test_a_family_of_another_build_is_refused_by_name():
    with pytest.raises(BadInput, match=r"pipes: a gpt2 model cannot be cut: .*\n.*pipes: off"):
        model_in_parts.prove(AutoConfig.for_model("gpt2", n_layer=4, n_embd=64, n_head=4))


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [("method", "full", "lora"), ("sync", "local", "auto"), ("weights", "stream", "gpu"), ("load_in", "8bit", "4bit")],
)
def test_what_does_not_go_with_it_is_refused_before_anything_starts(name, value, instead):
    with pytest.raises(BadInput, match=rf"pipes: a\+b and {name}: {value} do not go together\nuse {name}: {instead}"):
        load_config({"model": "tiny", "pipes": "a+b", name: value})


def test_fewer_layers_than_machines_are_refused():
    names = ("a", "b", "c", "d", "e")
    settings = {"model": "tiny", "pipes": "+".join(names), "speeds": ",".join(f"{name}=1" for name in names)}
    world = World(node="a")
    world.gather = lambda own: [own] * len(names)
    here = pipe_members.Cluster(
        names=names, devices=[Device(name, "cpu", 1 << 34) for name in names], facts=resolve_model("tiny").facts,
        setup=Setup(device="cpu", load_in="32bit", row_length=48, micro_batch=1), decided_before={"cut_proven": "yes"},
    )  # fmt: skip
    with pytest.raises(BadInput, match=r"pipes: a\+b\+c\+d\+e cannot hold 4 layers: .*\nadd a node"):
        pipe_members.arrange(load_config(settings), None, world, model_folder("tiny"), here)


# -- in a run ----------------------------------------------------------------------------------------------------------

OPTIONS = reference.OPTIONS | {"max_steps": 12, "proof_every": 1, "micro_batch": 2, "save_every": 3, "eval_every": 5}


@pytest.fixture(scope="module")
def options(data) -> dict:
    return {**OPTIONS, "dataset": data}


@pytest.fixture(scope="module")
def one(options, tmp_path_factory):
    return cluster.train(tmp_path_factory.mktemp("one"), options)


def adapters(run) -> set[bytes]:
    return {made.read_bytes() for made in run.home.rglob("results/run/adapter/adapter_*")}


def evaluations(run) -> list[float]:
    return [event["loss"] for event in run.events(kind="eval")]


def assert_rows_once(run):
    position = 0
    for event in run.steps():
        for node in event["nodes"].values():
            assert node["first"] == position
            position += node["rows"]
        assert position == event["step"] * OPTIONS["rows_per_step"]


def test_three_stages_have_the_losses_and_the_adapter_of_one_process(options, one, tmp_path):
    """Packed, weighted rows in micro-batches of two; speeds that are set make the cut."""
    pipe = {"pipes": "node-0+node-1+node-2", "speeds": "node-0=1,node-1=1,node-2=30"}
    run = cluster.train(tmp_path, {**options, **pipe}, 3)
    assert run.losses() == one.losses() and evaluations(run) == evaluations(one)
    assert len(evaluations(run)) == 3 and adapters(run) == adapters(one)
    assert_rows_once(run)
    start = run.events()[0]
    assert "sync pipe: layers node-0 1-1 + node-1 2-2 + node-2 3-4" in start["reasons"]
    last = run.steps()[-1]["nodes"]
    assert [last[f"node-{i}"]["layers"] for i in range(3)] == [[0, 1], [1, 2], [2, 4]]
    assert all(node["pipe_s"] >= node["compute_s"] for node in last.values())
    assert "stages compute node-0" in run.said()


def test_the_cards_of_one_machine_are_stages_too(options, one, tmp_path):
    """Two processes of one machine, and one of another."""
    pipe = {"pipes": "node-0+node-1", "speeds": "node-0:0=1,node-0:1=1,node-1=30"}
    run = cluster.train(tmp_path, {**options, **pipe}, 3, machines=(0, 0, 1))
    assert run.losses() == one.losses() and adapters(run) == adapters(one)
    assert "sync pipe: layers node-0:0 1-1 + node-0:1 2-2 + node-1 3-4" in run.events()[0]["reasons"]


def test_a_pipe_of_two_beside_a_whole_one(options, one, tmp_path):
    """And in an order that is not that of the ranks; both take rows by their speed."""
    run = cluster.train(tmp_path, {**options, "pipes": "node-2+node-0"}, 3)
    assert run.losses() == pytest.approx(one.losses(), rel=1e-6)
    assert evaluations(run) == pytest.approx(evaluations(one), rel=1e-6)
    assert_rows_once(run)
    assert all(node["rows"] for node in (run.steps()[0]["nodes"][name] for name in ("node-1", "node-2")))
    assert len({made.read_bytes() for made in run.home.rglob("results/run/adapter/adapter_model.safetensors")}) == 1


def test_killed_and_cut_otherwise_it_goes_on_bit_for_bit(options, one, tmp_path):
    """Each stage has the whole adapter, its moments too: what three have saved, two others continue, without two of
    them."""
    cluster.killed(tmp_path, {**options, "pipes": "node-0+node-1+node-2"}, 7)
    run = cluster.train(tmp_path, {**options, "pipes": "node-1+node-0"}, 2)
    start = run.events(kind="start")[-1]
    assert start["step"] >= 6 and any("resumed at step" in reason for reason in start["reasons"])
    assert run.losses() == one.losses() and adapters(run) == adapters(one)


@pytest.mark.long
@pytest.mark.parametrize("more", [{"load_in": "4bit"}, {"gradient_checkpointing": "true"}, {"wire": "bf16"}])
def test_a_run_in_4_bit_with_checkpoints_and_rounded_gradients(more, options, tmp_path):
    truth = cluster.train(tmp_path / "one", {**options, **more})
    run = cluster.train(tmp_path / "two", {**options, **more, "pipes": "node-1+node-0"}, 2)
    assert run.losses() == pytest.approx(truth.losses(), rel=1e-6 if more.get("wire") != "bf16" else 1e-3)


@pytest.mark.long
def test_smollm2_is_trained_to_its_end_by_three_machines_that_hold_it_together(tmp_path):
    """A real base and real text."""
    words = "prepare --dataset stdlib-qa --model smollm2-135m --max-seq-length 128 --out"
    assert main([*words.split(), str(tmp_path / "data")]) == 0
    real = {**OPTIONS, "model": "smollm2-135m", "dataset": tmp_path / "data", "learning_rate": 1e-3, "eval_rows": 8}
    truth = cluster.train(tmp_path / "one", real)
    run = cluster.train(tmp_path / "three", {**real, "pipes": "node-2+node-0+node-1"}, 3)
    assert run.losses() == truth.losses() and evaluations(run) == evaluations(truth)
    assert adapters(run) == adapters(truth) and run.events()[-1]["event"] == "done"
    assert evaluations(run)[-1] < evaluations(run)[0], "it learns"
    assert sum(node["layers"][1] - node["layers"][0] for node in run.steps()[-1]["nodes"].values()) == 30


def test_out_of_memory_in_a_stage_halves_what_goes_through_at_a_time_in_the_next_generation(tmp_path, monkeypatch):
    """The others wait for it in the middle of an exchange: it cannot be tried again here."""
    config = load_config({"model": "tiny", "pipes": "a+b", "home": str(tmp_path)})
    workers = RowTakers(("a", "b"), ((0, 1),), ((0, 2), (2, 4)))
    run = SimpleNamespace(config=config, workers=workers, micro_batch=4, trained=SimpleNamespace(scale=1.0))
    run.module = SimpleNamespace(model=None, take_seen=list)
    monkeypatch.setattr(loop, "take", lambda *_: ([], Fed(micro_batch=4)))
    run.micro_batch_name = "pipe_micro_batch"
    run.strategy = SimpleNamespace(gradients=Mock(side_effect=torch.OutOfMemoryError), interrupted_exchange=True)
    with pytest.raises(torch.OutOfMemoryError):
        loop.compute(run, [], 1.0)
    known = kept_decisions.read(config)
    world = World(node="a")
    world.gather = lambda own: [own, own]  # as the other stage
    assert pipe_members.micro_batch(replace(config, micro_batch=4), world, workers, 48, known)[0] == 2
