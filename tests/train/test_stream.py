"""weights: stream. The same numbers as of a base that is held, in a fraction of its memory."""

import functools
import json
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support import ROOT, pace
from tests.train import cluster, families, reference, streaming
from tests.train.bases import LINEARS, quantised_layers, save_in_4bit
from tests.train.cluster import environment
from tests.train.live_bytes import LiveBytes
from train.errors import BadInput
from train.models import device, hf
from train.models.model_files import model_folder
from train.models.stream import LayerWeights, Stream, stream_of
from train.plan.model.catalogue import resolve_model
from train.plan.model.memory import Setup, memory
from train.plan.model.weight_files import FAMILIES
from train.plan.settings.read_settings import load_config
from train.recipes.sft import recipe as sft


def assert_alike(folder, **spec):
    held = streaming.train(streaming.build(folder, **spec))
    streamed = streaming.train(streaming.build(folder, weights="stream", **spec))
    assert streamed == held
    return held


@pytest.mark.parametrize("checkpointing", ["false", "true"])
@pytest.mark.parametrize("form", ["16bit", "4bit"])
def test_a_streamed_base_trains_bit_for_bit_like_one_that_is_held(form, checkpointing):
    losses, _ = assert_alike(model_folder("tiny"), load_in=form, gradient_checkpointing=checkpointing)
    assert losses[-1] < losses[0]


@pytest.fixture(params=["16bit", "4bit", "4bit files"])
def form(request, in_4_bit):
    folder = in_4_bit if request.param == "4bit files" else model_folder("tiny")
    return folder, "auto" if request.param == "4bit files" else request.param


@pytest.mark.parametrize("layers", [1, 3, 99])
def test_layers_that_stay_change_no_bit_and_are_not_read(form, layers):
    folder, load_in = form
    all_read = streaming.build(folder, weights="stream", load_in=load_in)
    some_stay = streaming.build(folder, weights="stream", load_in=load_in)
    stream = stream_of(some_stay)
    largest = max(layer.bytes for layer in stream.layers)
    assert stream.hold(largest * layers + 1) == min(layers, 4) == len(stream.held)
    read, bring = [], stream._bring
    stream._bring = lambda index, *words: read.append(index) or bring(index, *words)
    assert streaming.train(some_stay, 2) == streaming.train(all_read, 2)
    assert set(read) == set(range(4)) - set(stream.held)
    assert stream.let_go() and not stream.let_go()
    assert streaming.train(some_stay, 1) == streaming.train(all_read, 1)


def test_layers_that_stay_are_spread_between_those_that_come(stream):
    stream.source.may_read.release(99)
    stream.hold(stream.layers[0].bytes)
    assert list(stream.held) == [1]
    up = [stream.needed(i, learns=True, backward=False)["w"][0, 0].item() for i in range(3)]
    down = [stream.needed(i, learns=True, backward=True)["w"][0, 0].item() for i in (2, 1, 0)]
    assert (up, down) == ([0, 1, 2], [2, 1, 0])
    assert stream.source.numbers == [1, 0, 2, 0]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_the_catalogue_streams(family, tmp_path):
    assert_alike(families.make(family, tmp_path, num_hidden_layers=3))


@pytest.fixture(scope="module")
def in_4_bit(tmp_path_factory):
    return save_in_4bit(tmp_path_factory.mktemp("base") / "tiny-4bit")


def test_a_base_in_4_bit_streams_from_its_files_as_it_is(in_4_bit):
    assert_alike(in_4_bit)
    model = streaming.build(in_4_bit, weights="stream")
    stream = model.get_base_model().stream
    assert not stream.kept and len(quantised_layers(model)) == LINEARS
    linears = sum(m.in_features * m.out_features for m in model.modules() if hasattr(m, "compute_type_is_set"))
    assert stream.bytes < 0.7 * linears  # small layers carry a table each


def test_what_is_quantised_here_stays_in_main_memory_in_4_bit():
    stream = streaming.build(model_folder("tiny"), weights="stream", load_in="4bit").get_base_model().stream
    assert len(stream.kept) == 4
    assert sum(memory.numel() for memory in stream.kept) == stream.bytes


def test_a_base_in_16_bit_streams_where_bitsandbytes_is_missing(monkeypatch):
    """As on every node without a GPU."""
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes.nn", None)
    losses, _ = streaming.train(streaming.build(model_folder("tiny"), weights="stream"), 1)
    assert len(losses) == 3


def test_names_in_the_adapter_are_those_of_a_base_that_is_held():
    held, streamed = (streaming.build(model_folder("tiny"), weights=weights) for weights in ("gpu", "stream"))
    assert [name for name, _ in streamed.named_parameters()] == [name for name, _ in held.named_parameters()]
    frozen = [p for name, p in streamed.named_parameters() if ".layers." in name and "lora" not in name]
    assert all(p.untyped_storage().nbytes() <= 8 for p in frozen)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """160 MB, twelve layers; its embeddings are tied and small."""
    wide = {"hidden_size": 512, "intermediate_size": 1536, "head_dim": 128, "num_hidden_layers": 12}
    folder = families.make("llama", tmp_path_factory.mktemp("large"), **wide)
    families.make("llama", folder / "warm")
    return folder


def test_what_is_quantised_here_leaves_nothing_where_it_is_computed():
    """bitsandbytes keeps the scales of a weight beside it: of all layers that is a tenth of a gigabyte for a 7B."""
    model = streaming.build(model_folder("tiny"), weights="stream", load_in="4bit")
    assert not [name for name, module in model.named_modules() if getattr(module, "quant_state", None) is not None]


def test_what_a_streamed_step_takes_beyond_one_with_a_held_base_is_planned():
    """A held layer's checkpoint is computed again as far as the backward pass needs, a streamed one's to its end."""
    rows, length = 2, 128
    peaks, planned = {}, {}
    facts = resolve_model("tiny").facts
    for weights in ("gpu", "stream"):
        model = streaming.build(model_folder("tiny"), weights=weights, gradient_checkpointing="true")
        for _ in range(2):  # the first step makes what stays
            with LiveBytes() as live:
                hf.loss_sum(model, sft.full_rows(rows, length, 1000, "cpu")).backward()
        setup = Setup(device="cpu", load_in="32bit", row_length=length, micro_batch=rows, weights=weights)
        peaks[weights], planned[weights] = live.peak, memory(facts, setup).activations
    one = 4 * rows * length * facts.hidden
    assert planned["stream"] - planned["gpu"] == one
    assert peaks["stream"] - peaks["gpu"] == pytest.approx(one, abs=0.2 * one)


@functools.cache
def measured(folder, weights, form="16bit"):
    program = str(ROOT / "tests/train/streaming.py")
    done = pace.does(sys.executable, program, str(folder), weights, form, cwd=ROOT, env=environment())
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long  # a part of it: test_a_part_of_a_model_needs_memory_for_its_layers_only
def test_it_needs_less_memory_by_most_of_the_base(large):
    base_mb = sum(file.stat().st_size for file in large.glob("*.safetensors")) / 1e6
    held, streamed = (measured(large, weights) for weights in ("gpu", "stream"))
    assert streamed["adapter"] == held["adapter"] and streamed["losses"] == held["losses"]
    assert held["peak_mb"] - streamed["peak_mb"] > 0.6 * base_mb, (held, streamed, base_mb)


def test_a_part_of_a_model_needs_memory_for_its_layers_only(large):
    """A third of the layers: two thirds of the base are elsewhere."""
    base_mb = sum(file.stat().st_size for file in large.glob("*.safetensors")) / 1e6
    whole, part = (measured(large, what)["peak_mb"] for what in ("gpu", "4-8"))
    assert whole - part > 0.6 * base_mb * 2 / 3, (whole, part, base_mb)
    assert part < 0.6 * whole


# -- the reader --------------------------------------------------------------------------------------------------------


class Source:
    """Layers that are told apart by their number; `read` shows what was read and by whom."""

    def __init__(self):
        self.events, self.may_read = [], threading.Semaphore(0)

    def read(self, index):
        assert self.may_read.acquire(timeout=pace.HANG_S)
        self.events.append((index, threading.current_thread() is threading.main_thread()))
        return {"w": torch.full((3, 5), float(index))}

    def drop(self, index):
        self.events.append(("dropped", index))

    @property
    def numbers(self):
        return [index for index, _ in self.events if index != "dropped"]


@pytest.fixture
def stream():
    source = Source()
    found = Stream(source, "cpu")
    for _ in range(3):
        found.add(LayerWeights({"w": torch.zeros(3, 5)}, {"w": torch.float32}), None)
    return found


def test_a_reader_brings_the_next_layer_while_one_is_computed(stream):
    source = stream.source
    source.may_read.release(2)
    first = stream.layer(0, follows=1)["w"]
    pace.until(lambda: source.numbers == [0, 1], pace.HANG_S, every_s=0.01)
    assert (first == 0).all()
    assert ("dropped", 0) in source.events
    assert not any(in_main for index, in_main in source.events if index != "dropped")


def test_up_down_and_up_again_reads_no_layer_twice_in_a_row(stream):
    source = stream.source
    source.may_read.release(99)
    walk = [(0, 1), (1, 2), (2, 2), (2, 1), (1, 0), (0, 0), (0, 1), (1, 2)]
    for index, follows in walk:
        assert (stream.layer(index, follows)["w"] == index).all()
    pace.until(lambda: len(source.numbers) == 7, pace.HANG_S, every_s=0.01)
    assert source.numbers == [0, 1, 2, 1, 0, 1, 2]


def test_after_an_interrupted_step_it_starts_at_any_layer(stream):
    """An out-of-memory in the middle of one."""
    stream.source.may_read.release(99)
    for index, follows in [(0, 1), (1, 2), (0, 1), (1, 2), (2, 2)]:
        assert (stream.layer(index, follows)["w"] == index).all()


def test_a_file_that_cannot_be_read_stops_the_step(stream):
    stream.source.read = lambda index: Path(f"/nonexistent/{index}").read_bytes()
    with pytest.raises(FileNotFoundError):
        stream.layer(0, follows=1)


# -- what cannot be streamed -------------------------------------------------------------------------------------------


def test_8_bit_is_refused():
    with pytest.raises(BadInput, match=r"weights: stream does not know 8 bit\n.*4bit or 16bit"):
        streaming.build(model_folder("tiny"), weights="stream", load_in="8bit")


def test_files_that_name_their_layers_otherwise_are_refused(tmp_path):
    folder = families.make("llama", tmp_path)
    held = load_file(folder / "model.safetensors")
    weights = {name.replace("self_attn", "attention"): tensor for name, tensor in held.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match="weights: stream cannot read this llama model layer by layer"):
        streaming.build(folder, weights="stream")


# -- in a run ----------------------------------------------------------------------------------------------------------


def test_a_second_copy_of_the_weights_beside_those_that_transformers_loads_is_not_read(tmp_path):
    """As mistral's consolidated.safetensors in a folder that was cloned."""
    folder = families.make("llama", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, folder / "model_other.safetensors")
    assert_alike(folder)
    size = (folder / "model.safetensors").stat().st_size
    assert device.look(load_config({"model": str(folder)}), "here", 0, folder).base_bytes == size


def test_a_node_that_streams_trains_with_nodes_that_do_not(data, tmp_path):
    options = reference.OPTIONS | {"dataset": data, "max_steps": 8, "shares": "5,2,1", "proof_every": 1}
    run = cluster.train(tmp_path, options, 3, odd_rank_options={1: {"weights": "stream"}})
    truth = reference.losses(model_folder("tiny"), data, steps=8, rows_per_step=8)
    assert run.losses() == pytest.approx(truth, rel=1e-4)
    starts = [run.events(rank, "start")[0] for rank in range(3)]
    assert ["weights stream: as set" in str(start["reasons"]) for start in starts] == [False, True, False]
    held = cluster.train(tmp_path / "held", options, 3)
    assert run.losses() == held.losses()
    assert len({made.read_bytes() for made in tmp_path.rglob("results/run/adapter/adapter_model.safetensors")}) == 1


def test_a_card_with_room_for_some_layers_keeps_them_until_memory_runs_out(data, tmp_path):
    options = reference.OPTIONS | {"dataset": data, "max_steps": 5, "micro_batch": 2, "weights": "stream"}
    run = cluster.train(tmp_path / "some", options, changed="room_for_layers=2")
    assert run.losses() == cluster.train(tmp_path / "none", options).losses()
    assert "2 of 4 layers stay on the card: they fit beside 2 rows at a time" in run.said()
    assert "out of memory, continuing with all layers streamed" in run.said()
    again = cluster.train(tmp_path / "some", options, changed="room_for_layers=2")
    assert "2 rows at a time" not in again.said() and "stay on the card" not in again.said()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"method": "full"}, "weights: stream is for a frozen base, and method=full trains it"),
        ({"backend": "unsloth"}, "weights: stream and backend: unsloth do not go together"),
        ({"load_in": "8bit"}, "weights: stream does not know 8 bit"),
    ],
)
def test_what_does_not_go_with_it_is_refused_before_anything_starts(other, said):
    with pytest.raises(BadInput, match=said):
        load_config({"model": "tiny", "weights": "stream", **other})
