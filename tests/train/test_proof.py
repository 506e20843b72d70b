"""The proof that admits a model: what is exact passes, what is planted wrong does not."""

from dataclasses import replace

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaModel

from tests.train import cluster, families
from tests.train.proven_families import (
    LIMITS,
    PACKED,
    PAGE,
    QUICK,
    REFUSED,
    UNPACKED,
    config_of,
    page_with_table,
)
from train.data.rows import open_rows
from train.errors import BadInput
from train.plan.machines.nodes import Device
from train.plan.model.verdict import Verdict
from train.plan.placement.first_way_that_fits import choose_on_devices
from train.plan.settings.read_settings import load_config
from train.proof import admit_model, exact, reasons
from train.proof.reasons import FAILS

SEES = "samples that share a row see each other"


def seldom(name):
    return pytest.param(name, marks=() if name in QUICK else pytest.mark.long)


def proven(name):
    return exact.prove(config_of(name))


def limits(found):
    """Without the error or the figure behind a reason."""
    reasons = {"streaming": found.held, "pipes": found.whole, "method=full": found.full}
    reasons |= {"bf16": found.bf16, "fp16": found.fp16}
    return {what: why.partition(" (")[0] for what, why in reasons.items() if why}


@pytest.mark.parametrize("name", [*map(seldom, PACKED)])
def test_a_clean_family_is_not_refused(name):
    found = proven(name)
    assert not (found.refused or found.unpacked), found.line
    assert limits(found) == LIMITS.get(name, {})


@pytest.mark.parametrize("name", [*map(seldom, UNPACKED)])
def test_a_family_whose_samples_see_each_other_is_trained_unpacked(name):
    found = proven(name)
    assert not found.refused and found.unpacked.startswith(SEES), found.line
    assert limits(found) == LIMITS.get(name, {})


@pytest.mark.parametrize("name", [*map(seldom, REFUSED)])
def test_what_cannot_be_trained_is_refused_with_the_reason(name):
    assert REFUSED[name] in proven(name).refused


def test_the_page_has_this_table():
    assert PAGE.read_text() == page_with_table(PAGE.read_text()), "python -m tests.train.proven_families"
    assert len(PACKED) + len(UNPACKED) + len(REFUSED) >= 30


# -- planted ----------------------------------------------------------------------------------------------------


def whole_batch(states, _):
    return states - states.mean((0, 1))


def state(states, model):
    model.calls = getattr(model, "calls", 0) + 1
    return states * (1 + model.calls / 100)


def chance(states, _):
    return torch.nn.functional.dropout(states, 0.1, training=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [(whole_batch, "depends on which rows are computed together"), (state, "second time"), (chance, "second time")],
)
def test_what_is_planted_wrong_is_refused(change, said, monkeypatch):
    """As a BatchNorm does, a buffer that moves, or a dropout that no setting switches off."""
    forward = LlamaModel.forward

    def changed(self, *given, **more):
        out = forward(self, *given, **more)
        out.last_hidden_state = change(out.last_hidden_state, self)
        return out

    monkeypatch.setattr(LlamaModel, "forward", changed)
    assert said in proven("llama").refused


def test_a_family_that_ignores_position_ids_is_trained_unpacked(monkeypatch):
    forward = LlamaModel.forward

    def without(self, *given, position_ids=None, **more):
        return forward(self, *given, **more)

    monkeypatch.setattr(LlamaModel, "forward", without)
    found = proven("llama")
    assert not found.refused and found.unpacked.startswith(SEES)


# -- the gate ----------------------------------------------------------------------------------------------------


def test_a_run_on_packed_rows_of_a_family_that_leaks_is_refused_before_it_begins(tmp_path, monkeypatch):
    base = families.make("llama", tmp_path / "base")
    rows = open_rows(cluster.make_rows(tmp_path / "data", 12, 0))
    config = load_config({"model": str(base), "dataset": "x"})
    decisions = choose_on_devices(config, [Device("a", "cpu", 1 << 34)], None).decisions
    monkeypatch.setattr(admit_model, "verdict_of", lambda _: Verdict(family="llama", unpacked=SEES))
    with pytest.raises(BadInput, match="the rows hold several samples each"):
        admit_model.require_exact(config, decisions, base, [rows])
    monkeypatch.setattr(admit_model, "verdict_of", lambda _: Verdict(family="llama", refused="its loss moves"))
    with pytest.raises(BadInput, match="a llama model is not trained: its loss moves"):
        admit_model.require_exact(config, decisions, base, [rows])
    monkeypatch.setattr(admit_model, "verdict_of", lambda _: Verdict(family="llama", held="another loss"))
    with pytest.raises(BadInput, match="weights: stream does not go with this model: another loss"):
        admit_model.require_exact(config.held(weights="stream"), decisions, base, [rows])
    assert admit_model.require_exact(replace(config, model="tiny"), decisions, base, [rows]) == []


# -- reasons -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "of tomorrow"}, "as this version of transformers does not know the family (ValueError: The"),
        ({"model_type": "mine", "auto_map": {"AutoConfig": "mine.C"}}, "as it brings code of its own, which is never"),
        ({"model_type": "t5"}, "t5: refused, transformers has no t5 model that continues a text; choose another model"),
        ({"model_type": "mamba"}, "as PEFT has no adapter for such a recurrence (ValueError: "),
        ({"model_type": "llama", "hidden_size": "x"}, "cannot read its config.json (StrictDataclassFieldValidationErr"),
        ({"model_type": "llama", "num_hidden_layers": 0}, "no small copy of it can be made from its config.json (Zero"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_a_sentence_with_the_error_behind_it(config, said):
    found = admit_model.prove(config).line
    assert said in found and found.endswith("; choose another model")


def test_a_model_whose_weights_cannot_be_counted_is_refused(monkeypatch):
    monkeypatch.setattr(exact, "count", lambda _: 1 / 0)
    assert proven("llama").refused == "its weights cannot be counted (ZeroDivisionError: division by zero)"


@pytest.mark.parametrize("check", FAILS)
def test_an_error_in_a_check_is_a_sentence_about_what_cannot_be_done(check):
    said = reasons.of(check, KeyError("experts"))
    assert said == f"{FAILS[check]} (KeyError: 'experts')"
    assert reasons.of(check, reasons.NotExactError("it is off")) == "it is off"
