"""One rule for a run's automatic choices, and that a run keeps to them, whoever comes and goes."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train import cluster
from train.engine import kept_decisions
from train.errors import BadInput
from train.plan.launch.plan_cards import what_if
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import model_facts, resolve_model
from train.plan.model.memory import GIB
from train.plan.placement.first_way_that_fits import choose_on_devices
from train.plan.settings.read_settings import SftConfig

LLAMA = model_facts(resolve_model("llama2-7b"))
TINY = model_facts(resolve_model("tiny"))


def card(node="a", *, device="cuda:0", gib=24.0, **has):
    return Device(node, device, int(gib * GIB), **has)


CPU = card("b", device="cpu", gib=32)


@pytest.mark.parametrize(
    ("shape", "devices", "expected"),
    [
        (TINY, [card()], ("unsloth", "bf16", "16bit", "unsloth")),
        (LLAMA, [card(), card("b", gib=8)], ("unsloth", "bf16", "4bit", "unsloth")),
        (LLAMA, [card(gib=16), card("b", gib=12)], ("unsloth", "bf16", "4bit", "unsloth")),
        (LLAMA, [card(gib=24)], ("unsloth", "bf16", "16bit", "unsloth")),
        (TINY, [card(), card("b", bf16=False)], ("unsloth", "fp16", "16bit", "unsloth")),
        (TINY, [card(), card("b", unsloth=False)], ("hf", "bf16", "16bit", "true")),
        (LLAMA, [card(), CPU], ("hf", "fp32", "16bit", "false")),
        (None, [card(base_bytes=2 * GIB)], ("hf", "bf16", "16bit", "true")),
        (None, [card(), card("b", gib=8, base_bytes=5 * GIB)], ("hf", "bf16", "4bit", "true")),
    ],
)
def test_one_choice_for_all_nodes(shape, devices, expected):
    made = choose_on_devices(SftConfig(), devices, shape).decisions
    assert (made.backend, made.precision, made.load_in, made.gradient_checkpointing) == expected
    assert len(made.reasons) == 4


def test_a_choice_names_the_node_that_decides_it():
    made = choose_on_devices(SftConfig(), [card("master"), card("old-laptop", bf16=False, gib=8)], LLAMA).decisions
    assert "precision fp16: no bf16 on old-laptop" in made.reasons
    assert "base in 4bit: in 16 bit it does not fit old-laptop's 8 GB" in made.reasons


@given(st.lists(st.sampled_from([6, 8, 10, 12, 16, 24, 32, 48]), min_size=1, max_size=4))
def test_eight_bit_is_on_request_only(gibs):
    """LLM.int8 looks at the whole batch: the curve would depend on shares."""
    devices = [card(f"n{number}", gib=gib) for number, gib in enumerate(gibs)]
    assert choose_on_devices(SftConfig(), devices, LLAMA).decisions.load_in in ("16bit", "4bit")
    asked = choose_on_devices(SftConfig(load_in="8bit"), devices, LLAMA).decisions
    assert asked.load_in == "8bit" and any("depends a little on how rows are shared" in r for r in asked.reasons)


@pytest.mark.parametrize("sizes", ["a=24", "a=16,b=12", "a=8", "a=24,b=cpu:32", "a=12,b=12,c=10"])
@pytest.mark.parametrize("model", ["llama2-7b", "smollm2-135m", "qwen2.5-7b"])
@pytest.mark.parametrize("backend", ["auto", "hf"])
def test_the_plan_and_the_run_decide_alike(model, sizes, backend):
    planned = what_if(sizes, {"model": model, "backend": backend}).data["decisions"]
    nodes = (part.split("=") for part in sizes.split(","))
    devices = [
        Device(
            name, "cpu" if "cpu" in size else "cuda:0", int(float(size.removeprefix("cpu:")) * GIB), main_bytes=1 << 50
        )
        for name, size in nodes
    ]
    shape = model_facts(resolve_model(model))
    assert choose_on_devices(SftConfig(backend=backend), devices, shape).decisions.as_dict() == planned


def test_unsloth_is_not_chosen_where_it_mixes_samples():
    """Rows of one sample each are joined to one row, too."""
    gemma = model_facts(resolve_model("gemma2-2b"))
    made = choose_on_devices(SftConfig(), [card()], gemma).decisions
    assert made.backend == "hf" and "see each other" in made.reasons[0]
    for pack in (True, False):
        with pytest.raises(BadInput, match="see each other"):
            choose_on_devices(SftConfig(backend="unsloth", pack=pack), [card()], gemma)


def test_unsloth_has_no_family_whose_weights_nothing_compares_with_their_files():
    """It draws by lot what they lack, and says nothing; transformers says what it drew."""
    made = choose_on_devices(SftConfig(), [card()], None).decisions
    assert made.backend == "hf" and "compared" in made.reasons[0]
    with pytest.raises(BadInput, match=r"compared with the files.*\n.*backend: hf"):
        choose_on_devices(SftConfig(backend="unsloth"), [card()], None)


def test_what_is_set_and_cannot_be_names_the_node_and_the_fix():
    with pytest.raises(BadInput, match=r"needs bitsandbytes, which b has not.*\n.*load_in: 16bit"):
        choose_on_devices(SftConfig(load_in="4bit"), [card(), card("b", device="cpu", bitsandbytes=False)], TINY)
    on_a_cpu = choose_on_devices(SftConfig(load_in="4bit"), [CPU], TINY).decisions
    assert on_a_cpu.load_in == "4bit" and any("slow" in reason for reason in on_a_cpu.reasons)
    with pytest.raises(BadInput, match=r"unsloth, which b has not.*\n.*backend: hf"):
        choose_on_devices(SftConfig(backend="unsloth"), [card(), card("b", unsloth=False)], TINY)


def test_all_weights_cannot_be_trained_quantised():
    with pytest.raises(BadInput, match="cannot be trained in full"):
        choose_on_devices(SftConfig(load_in="4bit", method="full"), [card()], TINY)


# -- kept with the run ---------------------------------------------------------------------------------------------


def test_what_any_node_knows_is_obeyed_and_what_was_set_stays(tmp_path):
    config = SftConfig(home=str(tmp_path), run="r", wire="bf16")
    assert kept_decisions.read(config) == {}
    kept_decisions.keep(config, precision="fp32", wire="fp32")
    kept_decisions.keep(config, sync="flat")
    known = kept_decisions.read(config)
    assert known == {"precision": "fp32", "wire": "fp32", "sync": "flat"}
    obeyed, why, _ = kept_decisions.obey(config, [{}, known])
    assert (obeyed.precision, obeyed.sync, obeyed.wire) == ("fp32", "flat", "bf16")
    assert why == ["precision fp32, sync flat: decided when the run began"]
    assert kept_decisions.obey(config, [{}, {}]) == (config, [], {})
    assert kept_decisions.read(SftConfig(home=str(tmp_path), run="r", resume="never")) == {}
    assert kept_decisions.read(SftConfig(home=str(tmp_path), run="branch", resume="r")) == known


def test_a_run_keeps_its_precision_when_other_processors_take_it_over(data, tmp_path):
    """As where the only CPU, or the only old GPU, of a cluster dies: what is left would choose another by itself."""
    options = {"model": "tiny", "dataset": data, "rows_per_step": 4, "lora_r": 4, "save_every": 2, "max_steps": 12}
    first = cluster.Cluster(tmp_path, options | {"precision": "bf16"}, 2)
    first.reaches(3)
    first.stop(signal.SIGTERM)
    second = cluster.train(tmp_path, options, 2)
    start = second.events(kind="start")[-1]
    assert start["decisions"]["precision"] == "bf16" and start["step"] > 0
    assert any("precision bf16" in reason and "decided when the run began" in reason for reason in start["reasons"])
    assert len(second.losses()) == 12
