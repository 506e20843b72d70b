"""An unsloth in which what Motley relies on is not so is refused; where its version says so, before it is loaded."""

import sys
from types import SimpleNamespace

import peft
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from tests.support import ROOT, pace
from tests.train.cluster import environment
from train.errors import BadInput
from train.models import unsloth_facts as facts
from train.models.backends import ModelSpec
from train.models.model_files import model_folder


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    monkeypatch.setattr(facts, "version", lambda _: "2026.10.9")


def test_an_old_version_ends_a_run_before_it_is_loaded(data, tmp_path):
    package, known = tmp_path / "old/unsloth", tmp_path / "old/unsloth-2026.8.4.dist-info"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('it was loaded')")
    known.mkdir()
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: unsloth\nVersion: 2026.8.4\n")
    flags = ["--model=tiny", f"--dataset={data}", "--backend=unsloth", f"--home={tmp_path}/home", "--max-steps=1"]
    env = environment() | {"PYTHONPATH": f"{ROOT}:{tmp_path}/old"}
    done = pace.run(sys.executable, "-m", "train", "run", *flags, cwd=ROOT, env=env)
    assert done.returncode == 2, done.stderr
    said = done.stderr.strip().splitlines()[-3:]
    assert said[0] == "unsloth 2026.8.4 is too old: it may let packed samples see each other"
    assert said[1].startswith("package: unsloth 2026.8.4, in ") and "--phase python_env" in said[2]


@pytest.mark.parametrize("found", ["2026.10.9", "2026.10.10", "2026.11", "2027.1.1.post2"])
def test_the_locked_version_and_newer_ones_are_taken(found):
    facts.require_version(found)


@pytest.mark.parametrize("found", ["2026.8", "2026.9.12", "2026.10.8"])
def test_older_ones_are_not(found):
    with pytest.raises(BadInput, match=f"unsloth {found} is too old"):
        facts.require_version(found)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(model_folder("tiny"))


class Mixing(nn.Module):
    """As 2026.8 was: positions start again, and attention continues from one sample to the next."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def forward(self, input_ids, position_ids, use_cache):
        everything = torch.ones_like(input_ids)
        return self.backbone(input_ids, everything, position_ids=position_ids, use_cache=use_cache)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("row_length", [8, 512])
def test_attention_from_one_sample_to_the_next_is_seen_before_the_first_step(model, precision, row_length):
    spec = ModelSpec(folder="", precision=precision, max_seq_length=row_length)
    facts.require_apart(model, spec)
    mixing = SimpleNamespace(base_model=Mixing(model.base_model), config=model.config)
    with pytest.raises(BadInput, match="samples of this llama model see each other"):
        facts.require_apart(mixing, spec)


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"]])
def test_layers_without_an_adapter_are_seen_where_all_were_asked_for(targets):
    base = AutoModelForCausalLM.from_pretrained(model_folder("tiny"))
    adapted = peft.get_peft_model(base, peft.LoraConfig(target_modules=targets, task_type="CAUSAL_LM"))
    spec = ModelSpec(folder="", lora_targets="all-linear" if targets == "all-linear" else ",".join(targets))
    facts.require(adapted, spec)
    if targets != "all-linear":
        with pytest.raises(BadInput, match=r"gives 20 linear layers no adapter: .*k_proj"):
            facts.require_all_linear(adapted)
