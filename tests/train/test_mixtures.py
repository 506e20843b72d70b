"""Mixtures of experts: each expert has its adapter, whoever computes which rows; and what no rank can have alone. One
as a launch has it, behind a power cut and asked: test_launched_models.py."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter, load_balancing_loss_func

from tests.train import cluster, families, reference
from train.__main__ import main
from train.models import experts, hf
from train.models.backends import ModelSpec, autocast
from train.proof.exact import LENGTHS, SHARES, batch_of

OPTIONS = {
    **{"max_steps": 6, "rows_per_step": 8, "lora_r": 4, "learning_rate": 2e-3, "save_every": 2, "wire": "fp32"},
    **{"device": "cpu", "max_seq_length": cluster.ROW_LENGTH},
}
SIZES = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
TOKENS = torch.arange(3, 40)[None]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return families.make("qwen3_moe", tmp_path_factory.mktemp("base") / "moe", **SIZES)


@pytest.fixture(scope="module")
def options(base, tmp_path_factory) -> dict:
    return {**OPTIONS, "model": base, "dataset": cluster.make_rows(tmp_path_factory.mktemp("data"), 40, 4)}


@pytest.fixture(scope="module")
def trained(options, tmp_path_factory) -> cluster.Cluster:
    return cluster.train(tmp_path_factory.mktemp("shares"), options | {"shares": "5,2,1"}, 3)


def scores(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=TOKENS).logits


def test_shares_of_a_mixture_are_one_process(trained, options, tmp_path):
    alone = cluster.train(tmp_path, options)
    assert reference.largest_error(trained.losses(), alone.losses()) < 5e-6


def test_its_experts_are_trained_and_others_load_them(trained, base, tmp_path, monkeypatch):
    adapter = trained.result()
    held = load_file(adapter / "adapter_model.safetensors")
    of_experts = [name for name in held if ".experts." in name and "lora_B" in name]
    assert len(of_experts) == 4, "two weights in each of two layers"
    assert all(held[name].any() for name in of_experts)
    own = scores(hf.build(ModelSpec(folder=str(base), adapter=adapter)))
    plain = scores(AutoModelForCausalLM.from_pretrained(base))
    other = scores(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(adapter)))
    assert (other - own).norm() <= 1e-5 * own.norm() < 1e-2 * (plain - own).norm()
    monkeypatch.setattr("train.results.export.load_chat", lambda *_, **__: None)  # this base has no tokenizer
    monkeypatch.setattr("train.results.export.save_tokenizer", lambda *_: None)
    words = ["--model", str(base), "--adapter", str(adapter), "--out", str(tmp_path / "m")]
    assert main(["export", "merged", *words]) == 0
    merged = scores(AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32))
    assert (merged - own).norm() <= 1e-2 * (plain - own).norm()


def test_a_setting_may_leave_the_experts_out(base):
    model = hf.build(ModelSpec(folder=str(base), lora_targets="q_proj,v_proj"))
    trained = [name.split(".lora_")[0] for name, p in model.named_parameters() if p.requires_grad]
    assert {name.rpartition(".")[2] for name in trained} == {"q_proj", "v_proj"}
    some = hf.build(ModelSpec(folder=str(base), lora_targets="q_proj,down_proj"))
    assert [name for name in experts.uncovered(some) if "down_proj" in name] == []
    assert len(experts.uncovered(some)) == 2


def test_a_dense_layer_beside_experts_has_an_adapter_too(tmp_path):
    """PEFT takes its name for that of experts, and would leave it out."""
    base = families.make("qwen3_moe", tmp_path / "moe", **SIZES, mlp_only_layers=[0])
    model = hf.build(ModelSpec(folder=str(base)))
    assert [*hf.without_adapter(model), *experts.uncovered(model)] == []


def test_a_router_chooses_in_fp32_where_all_else_is_bf16(base):
    """Scores that bf16 cannot tell apart choose as fp32 does."""
    config = AutoConfig.from_pretrained(base)
    router = Qwen3MoeTopKRouter(config).bfloat16()
    with torch.no_grad():
        nn.init.normal_(router.weight)
        router.weight[1] = router.weight[0]
        router.weight[1, 0] += 2**-6 * router.weight[1, 0].abs()
    hidden = torch.randn(64, config.hidden_size, generator=torch.Generator().manual_seed(1)).bfloat16()
    wanted = torch.topk(nn.functional.linear(hidden.float(), router.weight.float()), 2).indices.sort(-1).values
    before = router(hidden)[2].sort(-1).values
    around = nn.Sequential(router)
    experts.in_fp32(around)
    with autocast("bf16", "cpu"):
        logits, _, chosen = router(hidden)
    assert logits.dtype == torch.bfloat16
    assert torch.equal(chosen.sort(-1).values, wanted) and not torch.equal(before, wanted)


def test_a_balance_of_a_ranks_rows_is_not_the_steps(base):
    """Why the loss has none: transformers' own is of all rows that are computed together."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def balance(lengths):
        batch = batch_of(lengths)
        mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        out = model(input_ids=batch["input_ids"], attention_mask=mask, output_router_logits=True)
        return float(load_balancing_loss_func(out.router_logits, 4, 2, mask)), int(mask.sum())

    whole, _ = balance(LENGTHS)
    ends = [sum(SHARES[: at + 1]) for at in range(len(SHARES))]
    parts = [balance(LENGTHS[end - count : end]) for end, count in zip(ends, SHARES, strict=True)]
    mean = sum(value * tokens for value, tokens in parts) / sum(LENGTHS)
    print(f"balance {whole:.4f} of the step, {mean:.4f} of its shares")
    assert abs(mean / whole - 1) > 1e-3
