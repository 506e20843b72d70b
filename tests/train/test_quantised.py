"""A base in 4 or 8 bit: that it is one, that it is computed with as written, and where it is said."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train import cluster, reference
from tests.train.bases import LINEARS, quantised_layers, save_in_4bit
from tests.train.test_decide import LLAMA, TINY, card
from train.data.rows import open_rows
from train.errors import BadInput
from train.models.backends import ModelSpec, get, to_tensors
from train.models.model_files import model_folder
from train.plan.placement import choose_4_8_or_16_bit
from train.plan.placement.first_way_that_fits import choose_on_devices
from train.plan.settings.read_settings import SftConfig

IDS = torch.arange(3, 40)[None]


def build(form="4bit", folder=None, **more):
    return get("hf").build(ModelSpec(folder=str(folder or model_folder("tiny")), load_in=form, lora_r=8, **more))


def gradient(model, rows):
    """Of everything trained, in one long row."""
    model.zero_grad()
    get("hf").loss_sum(model, to_tensors(rows.batch([0, 1, 2]), "cpu")).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


@pytest.fixture(scope="module")
def rows(data):
    return open_rows(data)


@pytest.mark.parametrize(("form", "kind"), [("16bit", None), ("4bit", "Linear4bit"), ("8bit", "Linear8bitLt")])
def test_every_layer_of_the_base_is_held_as_it_says(form, kind):
    """Else every other test on a quantised base could pass on a plain one."""
    assert quantised_layers(build(form)) == ([kind] * LINEARS if kind else [])


def test_four_bit_is_nf4_with_its_scales_quantised_once_more():
    """The reference rounds the weights and is an ordinary model from there on."""
    with torch.no_grad():
        found = build()(IDS).logits
        wanted, plain = (reference.build(model_folder("tiny"), 3407, nf4=nf4)(IDS).logits for nf4 in (True, False))
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)
    assert (found - plain).abs().max() > 100 * (found - wanted).abs().max()


def test_an_evaluation_leaves_the_base_and_its_gradients_as_they_are(rows, monkeypatch):
    """On AVX512-BF16 bitsandbytes has a form for answers: rounded again, without gradients, and for good."""
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    model = build()
    before = gradient(model, rows)
    with torch.no_grad():
        trained = model(IDS).logits
        evaluated = model.eval()(IDS).logits
    assert torch.equal(trained, evaluated)
    assert torch.equal(gradient(model.train(), rows), before)


# -- a model whose files are quantised already -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    return save_in_4bit(tmp_path_factory.mktemp("base") / "tiny-4bit")


def test_a_model_quantised_on_disk_computes_as_precisely_as_one_quantised_here(on_disk, rows):
    """Its files say bf16, for the cards of others; a CPU has fp32."""
    stored, fresh = build(folder=on_disk), build()
    assert len(quantised_layers(stored)) == LINEARS
    torch.testing.assert_close(gradient(stored, rows), gradient(fresh, rows), rtol=1e-4, atol=1e-5)


def test_a_model_quantised_on_disk_is_called_so(on_disk, data, tmp_path):
    run = cluster.train(tmp_path, {"model": on_disk, "dataset": data, "max_steps": 1, "rows_per_step": 4})
    assert run.events()[0]["decisions"]["load_in"] == "4bit"
    assert "base in 4bit: so are the model's files" in run.said()


def test_how_the_files_are_quantised_stands_above_the_choice():
    four = replace(LLAMA, on_disk="4bit")
    for device in (card(gib=80), card(device="cpu")):
        made = choose_on_devices(SftConfig(), [device], four).decisions
        assert made.load_in == "4bit" and any("so are the model's files" in reason for reason in made.reasons)
    with pytest.raises(BadInput, match=r"load_in: 8bit, but the model's files are in 4bit.*\n.*load_in: 4bit"):
        choose_on_devices(SftConfig(load_in="8bit"), [card()], four)
    with pytest.raises(BadInput, match=r"cannot be trained in full\n.*before it was quantised"):
        choose_on_devices(SftConfig(method="full"), [card()], four)
    with pytest.raises(BadInput, match=r"needs bitsandbytes, which b has not\n.*before it was quantised, or only"):
        choose_on_devices(SftConfig(), [card(), card("b", device="cpu", bitsandbytes=False)], four)


# -- what is said ------------------------------------------------------------------------------------------------------


def test_eight_bit_runs_and_says_once_what_it_costs(data, tmp_path):
    options = {"model": "tiny", "dataset": data, "max_steps": 2, "rows_per_step": 4, "load_in": "8bit", "eval_every": 1}
    run = cluster.train(tmp_path, options)
    assert run.said().count(choose_4_8_or_16_bit.EIGHT_BIT) == 1
    assert run.losses()[0] == pytest.approx(6.97, abs=0.1) and len(run.losses()) == 2


@given(st.lists(st.sampled_from([0.5, 8, 24]), min_size=1, max_size=3), st.booleans(), st.sampled_from([LLAMA, TINY]))
def test_a_cpu_is_never_given_4_bit_unasked(gibs, has, shape):
    """Whether bitsandbytes is there, and however small its memory."""
    nodes = [card(f"n{number}", gib=gib) for number, gib in enumerate(gibs[1:])]
    nodes.append(card("cpu", device="cpu", gib=gibs[0], bitsandbytes=has))
    assert choose_on_devices(SftConfig(), nodes, shape).decisions.load_in == "16bit"


@pytest.mark.parametrize("form", ["4bit", "8bit"])
def test_where_bitsandbytes_is_missing_that_is_said(form, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(BadInput, match=f"load_in: {form} needs bitsandbytes, which is not installed here"):
        build(form)


def test_a_model_quantised_on_disk_needs_it_too(on_disk, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert json.loads((on_disk / "config.json").read_text())["quantization_config"]
    with pytest.raises(BadInput, match="load_in: 4bit needs bitsandbytes"):
        build(folder=on_disk)
