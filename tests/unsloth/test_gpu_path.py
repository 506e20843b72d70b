"""unsloth's path for GPUs, its kernels interpreted on a CPU, gives what transformers + peft give (pretend_gpu.py)."""

import os
import subprocess
import sys

import pytest
import torch

from tests.support import ROOT
from tests.unsloth import cases

# As far from the same weights in fp32 as transformers' own bf16 is, with a little room.
LOSS_WITHIN = {"fp32": 1e-6, "bf16": 3e-4, "nf4": 3e-4}
GRADIENT_WITHIN = {"fp32": 1e-5, "bf16": 3e-2, "nf4": 3e-2}
LAYERS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

FP32 = {"_rms_layernorm_forward", "_rms_layernorm_backward", "_rope_embedding_QK"}
FUSED = FP32 | {"_fg_kernel", "_DWf_DW_dfg_kernel"}  # swiglu, there and back
KERNELS = {"fp32": FP32, "bf16": FUSED, "nf4": FUSED | {"_nf4_dequant_kernel"}}


def seldom(case):
    return () if case in cases.ALWAYS else pytest.mark.long


EACH_CASE = [pytest.param(*case, marks=seldom(case)) for case in cases.CASES]
EACH_FAMILY = [pytest.param(family, marks=seldom((family, "fp32"))) for family in cases.FAMILIES]


@pytest.fixture(scope="module")
def measured(request, tmp_path_factory):
    """What is asked for here, by each backend, in a process of its own; hf first, which makes the models."""
    folder = tmp_path_factory.mktemp("measured")
    asked = {asks_for(item) for item in request.session.items if item.path == request.path}
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    for name in ("hf", "unsloth"):
        command = [sys.executable, "-m", "tests.unsloth.measured", name, str(folder), *sorted(asked)]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1800, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
    return {name: torch.load(folder / f"{name}.pt") for name in ("hf", "unsloth")}


def asks_for(item) -> str:
    """As measured.py takes it; a test without a case of its own is about llama, which is measured in fp32 for it."""
    case = item.callspec.params if hasattr(item, "callspec") else {"family": "llama"}
    return f"{case['family']}-{case.get('precision', 'fp32')}"


@pytest.fixture
def of(measured):
    def of(name: str, case):
        found = measured[name][case]
        assert "error" not in found, found["error"]
        return found

    return of


def flat(gradient) -> torch.Tensor:
    return torch.cat([gradient[name].flatten() for name in sorted(gradient)])


@pytest.mark.parametrize(("family", "precision"), EACH_CASE)
def test_loss_and_gradient_are_those_of_the_weights_in_fp32(of, family, precision):
    found, exact = of("unsloth", (family, precision)), of("hf", (family, cases.EXACT[precision]))
    assert found["loss"] == pytest.approx(exact["loss"], rel=LOSS_WITHIN[precision])
    away = (flat(found["gradient"]) - flat(exact["gradient"])).norm() / flat(exact["gradient"]).norm()
    assert away < GRADIENT_WITHIN[precision]


@pytest.mark.parametrize(("family", "precision"), EACH_CASE)
def test_the_same_layers_are_trained(of, family, precision):
    names = of("unsloth", (family, precision))["gradient"].keys()
    assert names == of("hf", (family, precision))["gradient"].keys()
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in names} == LAYERS


@pytest.mark.parametrize(("family", "precision"), EACH_CASE)
def test_packed_and_joined_rows_give_what_each_sample_gives_alone(of, family, precision):
    found = of("unsloth", (family, precision))
    assert found["loss"] == pytest.approx(found["alone"], rel=1e-6)


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_that_would_be_seen_without_their_own_positions(of, family):
    found = of("unsloth", (family, "fp32"))
    assert found["mixed"] != pytest.approx(found["alone"], rel=3e-4)


def test_that_would_be_seen_if_rows_were_not_joined(of):
    assert of("unsloth", "llama")["not joined"] != pytest.approx(of("unsloth", ("llama", "fp32"))["alone"], rel=1e-3)


@pytest.mark.parametrize(("family", "precision"), EACH_CASE)
def test_it_is_unsloths_kernels_that_computed(of, family, precision):
    """A name that is gone is a path that is no longer tested."""
    assert of("unsloth", (family, precision))["kernels"].keys() == KERNELS[precision]


def test_its_loss_is_the_sum_by_num_items_in_batch(of):
    whole, eighth = of("unsloth", "llama")["items"]
    assert whole == pytest.approx(8 * eighth, rel=1e-6)


def test_checkpointing_is_on_and_changes_no_number(of):
    plain, checkpointed = of("unsloth", ("llama", "fp32")), of("unsloth", "llama")["checkpointed"]
    assert checkpointed["loss"] == plain["loss"]
    torch.testing.assert_close(flat(checkpointed["gradient"]), flat(plain["gradient"]), rtol=0, atol=1e-6)
    assert checkpointed["kernels"]["_rms_layernorm_forward"] > plain["kernels"]["_rms_layernorm_forward"]


def test_what_is_held_out_is_measured_alike(of):
    assert of("unsloth", "llama")["held out"] == pytest.approx(of("unsloth", ("llama", "fp32"))["loss"], rel=1e-6)


def test_a_row_that_is_longer_than_max_seq_length_is_refused(of):
    """unsloth would cut its tokens, and not its labels."""
    assert of("unsloth", "llama")["too long"].startswith("a row has 14 tokens, and unsloth was loaded for 10")


def test_gemma2_still_mixes_samples_and_is_refused(of):
    """Where this fails, they are kept apart: placement/precision_and_backend.py need not keep gemma2 from unsloth."""
    found = of("unsloth", "gemma2")
    assert found["packed"] != pytest.approx(found["alone"], rel=1e-3)
    assert found["refused"].startswith("unsloth lets samples of this gemma2 model see each other")
