"""LoRA's relatives: exact whatever the cluster, compared with plain PyTorch and PEFT where these have them; and what
they make is what plain PEFT loads."""

import functools
import json
import math
from dataclasses import replace

import peft
import pytest
import torch
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.train import cluster, reference
from train.data.rows import open_rows
from train.errors import BadInput
from train.models import hf, row_noise
from train.models import lora_init as first_weights
from train.models.backends import ModelSpec, to_tensors
from train.models.model_files import model_folder
from train.models.weights import trained_weights
from train.plan.model.catalogue import resolve_model
from train.plan.model.memory import Setup, memory, trained_parameters
from train.plan.settings.read_settings import load_config
from train.recipes.sft import recipe as sft

STEPS = 6
TOLERANCE = 1e-5
OPTIONS = reference.OPTIONS | {"max_steps": STEPS, "save_every": 2}
RELATIVES = {
    "dora": {"dora": "true"},
    "dora in 4 bit": {"dora": "true", "load_in": "4bit"},
    "pissa": {"lora_init": "pissa"},
    "olora, rslora": {"lora_init": "olora", "rslora": "true"},
    "lora+": {"loraplus_lr_ratio": "16"},
    "dropout": {"lora_dropout": "0.2", "gradient_checkpointing": "true"},
    "all that go together": {"lora_dropout": "0.2", "dora": "true", "neftune_alpha": "5", "loraplus_lr_ratio": "16"},
}


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    """The run of one process, of each."""

    def run(name):
        home = tmp_path_factory.mktemp("alone")
        return cluster.train(home, {**OPTIONS, "dataset": data, **RELATIVES.get(name, {})}, 1)

    return functools.cache(run)


@pytest.mark.parametrize("name", ["pissa", "olora, rslora", "dropout", "all that go together"])
def test_three_processes_are_one(name, alone, data, tmp_path):
    how = {"shares": "5,2,1", "micro_batch": 2}
    run = cluster.train(tmp_path, {**OPTIONS, "dataset": data, **RELATIVES[name], **how}, 3)
    truth = alone(name).losses()
    for rank in range(3):
        assert reference.largest_error(run.losses(rank), truth) < TOLERANCE
    plain = alone("none").losses()
    assert reference.largest_error(truth, plain) > 10 * TOLERANCE, "it changes nothing"


@pytest.mark.parametrize("name", ["pissa", "dropout"])
def test_a_stopped_run_continues_exactly(name, alone, data, tmp_path):
    options = {**OPTIONS, "dataset": data, **RELATIVES[name]}
    run = cluster.Cluster(tmp_path, options)
    run.reaches(3)
    run.stop()
    run = cluster.train(tmp_path, options, 2)
    assert run.events(kind="start")[-1]["step"] in (2, 4)
    assert reference.largest_error(run.losses(), alone(name).losses()) < TOLERANCE


def losses_of_built(model, data, **how):
    return reference.losses(model_folder("tiny"), data, built=model, steps=STEPS, rows_per_step=8, **how)


@pytest.mark.parametrize(
    ("name", "ratio", "how"),
    [
        ("dora", 1.0, {"use_dora": True}),
        ("dora in 4 bit", 1.0, {"use_dora": True, "nf4": True}),
        ("lora+", 16.0, {}),
    ],
)
def test_what_is_in_peft_has_the_losses_of_pefts(name, ratio, how, alone, data):
    theirs = reference.build(model_folder("tiny"), 3407, **how)
    assert reference.largest_error(alone(name).losses(), losses_of_built(theirs, data, ratio=ratio)) < TOLERANCE


def test_the_faster_ones_are_pefts_own_choice():
    model = hf.build(ModelSpec(folder=model_folder("tiny"), lora_r=4, dora=True))
    how = {"lr": 1e-3, "loraplus_lr_ratio": 16}
    theirs = create_loraplus_optimizer(model, torch.optim.AdamW, **how)
    fast = {id(p) for group in theirs.param_groups for p in group["params"] if group["lr"] > 1e-3}
    config = load_config({"model": "tiny", "loraplus_lr_ratio": 16, "dora": True})
    slow, faster = sft.optimized(config, trained_weights(model))
    assert {id(p) for p in faster["params"]} == fast and not {id(p) for p in slow["params"]} & fast


@pytest.mark.parametrize("kind", ["pissa", "olora"])
def test_an_adapter_that_begins_as_parts_of_the_base_is_the_papers(kind, alone, data):
    """There the base loses what the adapter begins with. Ours keeps it, and takes it off what the layer gives."""
    rslora = kind == "olora"
    how = {"lora_r": 8, "lora_alpha": 16, "rslora": rslora, "lora_init": kind}
    begun = trained_weights(hf.build(ModelSpec(folder=model_folder("tiny"), **how)))
    theirs = reference.build(model_folder("tiny"), 3407, use_rslora=rslora)
    for name, module in theirs.named_modules():
        if isinstance(module, peft.tuners.lora.Linear):
            down, up = (begun[f"{name}.lora_{part}.weight"].data.clone() for part in "AB")
            module.lora_A["default"].weight.data, module.lora_B["default"].weight.data = down, up
            module.get_base_layer().weight.data -= module.scaling["default"] * up @ down
    name = "olora, rslora" if rslora else "pissa"
    assert reference.largest_error(alone(name).losses(), losses_of_built(theirs, data)) < TOLERANCE


def test_the_strongest_part_is_that_of_an_svd_and_of_pefts_pissa():
    torch.manual_seed(1)
    matrix = torch.randn(96, 64, dtype=torch.float64) @ torch.diag(0.8 ** torch.arange(64.0, dtype=torch.float64))
    down, up = first_weights.pissa(matrix, 8, 2.0, 7)
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    torch.testing.assert_close(2.0 * up @ down, u[:, :8] @ torch.diag(s[:8]) @ v[:8], rtol=1e-9, atol=1e-9)
    layer = torch.nn.Linear(64, 96, bias=False)
    layer.weight.data = matrix.float()
    model = torch.nn.Sequential(layer)
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["0"], init_lora_weights="pissa")
    theirs = peft.get_peft_model(model, config).base_model.model[0]
    product = theirs.lora_B["default"].weight @ theirs.lora_A["default"].weight
    torch.testing.assert_close(product.double(), up @ down, rtol=1e-4, atol=1e-4)
    down, up = first_weights.olora(matrix, 8, 1.0, 0)
    q, r = torch.linalg.qr(matrix)
    torch.testing.assert_close(up @ down, q[:, :8] @ r[:8], rtol=1e-9, atol=1e-9)


def test_the_first_weights_have_the_same_bits_however_they_are_summed_up():
    """Another kind of processor adds in another order: here the matrix is turned, which changes every sum."""
    torch.manual_seed(2)
    for kind in first_weights.KINDS.values():
        matrix = torch.randn(128, 80, dtype=torch.float32).double()
        once = kind(matrix, 8, 1.0, 3)
        again = kind(matrix + 1e-15 * torch.randn(128, 80, dtype=torch.float64), 8, 1.0, 3)
        assert all(torch.equal(a.bfloat16(), b.bfloat16()) for a, b in zip(once, again, strict=True))


def test_at_the_first_step_the_model_is_its_base():
    folder = model_folder("tiny")
    ids = torch.arange(40)[None] + 5
    with torch.no_grad():
        base = hf.build(ModelSpec(folder=folder, method="base"))(input_ids=ids).logits
        for kind in first_weights.KINDS:
            model = hf.build(ModelSpec(folder=folder, lora_r=8, lora_init=kind))
            torch.testing.assert_close(model(input_ids=ids).logits, base, rtol=1e-4, atol=1e-4)
            with model.disable_adapter():
                assert torch.equal(model(input_ids=ids).logits, base)


def test_an_adapter_is_of_linear_layers_by_name_or_by_the_end_of_a_path():
    for other in ("embed_tokens", "lm_head", "self_attn", "norm"):
        with pytest.raises(BadInput, match=f"lora_targets: the model has no linear layer '{other}'"):
            hf.build(ModelSpec(folder=model_folder("tiny"), lora_targets=f"q_proj,{other}"))
    found = trained_weights(hf.build(ModelSpec(folder=model_folder("tiny"), lora_targets="self_attn.q_proj,v_proj")))
    assert {name.split(".")[-3] for name in found} == {"q_proj", "v_proj"}


@pytest.mark.parametrize("name", ["dora", "pissa", "olora, rslora", "lora+", "dropout"])
def test_what_comes_out_loads_in_plain_peft(name, alone):
    """The same logits as the run's own model, from the result's folder alone."""
    folder = alone(name).result()
    base = AutoModelForCausalLM.from_pretrained(model_folder("tiny"), dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, str(folder)).eval()
    config = load_config({**{k: v for k, v in OPTIONS.items() if k != "save_every"}, **RELATIVES[name]})
    how = {kind: getattr(config, kind) for kind in sft.OF_MODEL if kind != "weights"}
    own = hf.build(ModelSpec(folder=model_folder("tiny"), **how)).eval()
    saved = load_file(folder / "adapter_model.safetensors")
    with torch.no_grad():
        for weight_name, weight in trained_weights(own).items():
            weight.copy_(first_weights.without(saved[weight_name], weight))
        ids = torch.arange(40)[None] + 5
        ours, plain = own(input_ids=ids).logits, theirs(input_ids=ids).logits
        with theirs.disable_adapter():
            assert (plain - theirs(input_ids=ids).logits).abs().max() > 0.01, "it has learned nothing"
    torch.testing.assert_close(plain, ours, rtol=1e-5, atol=1e-5)
    if "pissa" in name or "olora" in name:
        facts = json.loads((folder / "adapter_config.json").read_text())
        assert facts["r"] == 16 and facts["init_lora_weights"] is True


# -- chance ------------------------------------------------------------------------------------------------------------


def built(**how):
    return hf.build(ModelSpec(folder=model_folder("tiny"), lora_r=4, seed=5, **how))


def losses_of(model, batch, rows):
    """Of each row, computed with those beside it."""
    numbered = batch | {row_noise.ROWS: torch.tensor(rows)}
    return hf.loss_sum(model, row_noise.of_rows(model, numbered)).item()


@pytest.mark.parametrize("how", [{"neftune_alpha": 5.0}, {"lora_dropout": 0.3}])
def test_chance_follows_from_the_rows_number_and_place_alone(how, data):
    rows = open_rows(data)
    model = built(**how)
    with torch.no_grad():
        for name, weight in trained_weights(model).items():
            weight.normal_(0, 0.1, generator=torch.Generator().manual_seed(len(name)))
    batches = [to_tensors(rows.batch([at]), "cpu") for at in (3, 4)]
    both = to_tensors(rows.batch([3, 4]), "cpu")
    alone = [losses_of(model, batch, [place]) for batch, place in zip(batches, (70, 71), strict=True)]
    assert math.isclose(sum(alone), losses_of(model, both, [70, 71]), rel_tol=1e-6), "padding and company do not count"
    assert abs(alone[0] - losses_of(model, batches[0], [130])) > 1e-4, "a later epoch has another"
    assert losses_of(model, batches[0], [70]) == alone[0]
    model.eval()
    quiet = losses_of(model, batches[0], [70])
    assert quiet == losses_of(model, batches[0], [130]) and abs(quiet - alone[0]) > 1e-4


def test_the_noise_has_neftunes_size(data):
    rows = open_rows(data)
    batch = to_tensors(rows.batch([0, 1]), "cpu")
    quiet, noisy = built(), built(neftune_alpha=5.0)
    row_noise.of_rows(noisy, batch | {row_noise.ROWS: torch.tensor([0, 1])})
    found = [hf.whole_of(model).get_input_embeddings()(batch["input_ids"]) for model in (quiet, noisy)]
    drawn = (found[1] - found[0]).detach()
    lengths = row_noise.sample_lengths(batch["position_ids"])
    most = 5.0 / (lengths * drawn.shape[-1]).double().sqrt()[..., None]
    share = (drawn / most).flatten()
    assert share.abs().max() <= 1.001 and abs(share.mean()) < 0.02 and abs(share.std() - 3**-0.5) < 0.01
    assert lengths[0].tolist()[: int(lengths[0, 0])] == [int(lengths[0, 0])] * int(lengths[0, 0])


def test_a_mask_leaves_out_its_share_and_is_every_layers_own(data):
    model = built(lora_dropout=0.25)
    row_noise.of_rows(model, to_tensors(open_rows(data).batch([0, 1]), "cpu") | {row_noise.ROWS: torch.tensor([8, 9])})
    masks = [module for module in model.modules() if isinstance(module, row_noise.Dropout)]
    ones = torch.ones(2, 30, 64)
    first, second = (mask(ones) for mask in masks[:2])
    assert len(masks) == 28 and not torch.equal(first, second) and not torch.equal(first[0], first[1])
    assert abs((first == 0).float().mean() - 0.25) < 0.02
    assert first.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]


def test_an_uncounted_row_is_an_error():
    numbered = row_noise.Numbered(1)
    with pytest.raises(RuntimeError, match="2 rows are computed, and 0 have a number"):
        numbered.keys("x", torch.zeros(2, 3))


# -- memory ------------------------------------------------------------------------------------------------------------


def test_a_quantised_base_is_not_taken_apart():
    with pytest.raises(BadInput, match="lora_init: pissa needs a base that is not quantised"):
        hf.build(ModelSpec(folder=model_folder("tiny"), lora_init="pissa", load_in="4bit"))


@pytest.mark.parametrize("how", [{}, {"dora": True}, {"lora_init": "pissa"}])
def test_a_plan_counts_the_weights_that_are_there(how):
    facts = resolve_model("tiny").facts
    setup = Setup(lora_r=4, dora=bool(how.get("dora")), first="lora_init" in how, device="cpu", load_in="32bit")
    model = hf.build(ModelSpec(folder=model_folder("tiny"), lora_r=4, **how))
    assert trained_parameters(facts, setup) == sum(p.numel() for p in trained_weights(model).values())
    first = sum(t.numel() * 4 for t in first_weights.named(model).values())
    assert memory(facts, setup).base - memory(facts, replace(setup, first=False)).base == first
