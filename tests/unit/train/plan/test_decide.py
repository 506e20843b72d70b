"""What a launch decides, and what a person sees of it: requests and facts in, the plan or the refusal out."""

import json
from pathlib import Path
from typing import Any

import pytest

from console import plan_view
from console.electricity import of_plan
from tests.support.plans import GB, ON_GPUS, VERSIONS, gpu, launch_facts, look
from train.errors import BadInput
from train.plan.launch.decide import decide
from train.plan.launch.plan_for_playbook import launch_plan
from train.plan.settings import request
from train.plan.settings.read_settings import load_config

PLANS = json.loads(Path(__file__).with_name("plans.json").read_text())
OLD_PLAN = {"backend": "hf", "precision": "fp32", "load_in": "16bit", "gradient_checkpointing": "false"}
SHAPE = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32}
SHAPE |= {"num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000, "max_position_embeddings": 2048}
LARGE = SHAPE | {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13824}
IN_4BIT = SHAPE | {"quantization_config": {"load_in_4bit": True}}
CPU, HAS = look(), VERSIONS | {"model tiny": "h"}
WIFI = look(route={"why": "", "nic": "wlp2s0", "mbit": None, "wireless": True})
GPU = ON_GPUS


def ran(**settings: Any) -> dict[str, Any]:
    everything = load_config({"model": "tiny", **settings}).scoped("math", "agree", "node") | OLD_PLAN
    return {"launched": {"given": {"model": "tiny", **settings}, "all": everything}, "step": 12, "done": False}


def calibrated(*rates: float) -> dict[str, Any]:
    return {name: {"rows_per_s": rate, "fixed_s": 0.1} for name, rate in zip("abc", rates, strict=False)}


CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "CPUs": ({"model": "tiny", "max_steps": 40}, [CPU, look(memory_bytes=8 * GB)], {}),
    "a GPU and a CPU": ({"model": "tiny"}, [gpu("RTX 4070", 12), CPU], {"versions": GPU}),
    "the copy in 4 bit": (
        {"model": "qwen2.5-7b"},
        [gpu("RTX 4090", 24), gpu("RTX 3060", 12)],
        {"versions": GPU, "files": (IN_4BIT, 5_500_000_000)},
    ),
    "an old GPU, a hub id": (
        {"model": "me/small", "dataset": "you/data"},
        [gpu("RTX 4090", 24), gpu("GTX 1660", 12, "7.5")],
        {"versions": GPU, "files": (SHAPE, 2_200_000_000)},
    ),
    "the hub is away, and none has it": ({"model": "tinyllama"}, [CPU], {}),
    "the hub is away, and all have it": (
        {"model": "tinyllama"},
        [CPU],
        {"versions": VERSIONS | {"model tinyllama": "h"}},
    ),
    "too little memory": (
        {"model": "llama2-13b", "load_in": "16bit", "weights": "gpu"},
        [gpu("RTX 4090", 48), gpu("RTX 3060", 12)],
        {"versions": GPU | {"model llama2-13b": "h"}},
    ),
    "one streams": (
        {"model": "llama2-13b"},
        [gpu("RTX 4090", 24), gpu("RTX 3070", 8)],
        {"versions": GPU | {"model llama2-13b-4bit": "h"}},
    ),
    "all stream": (
        {"model": "qwen2.5-32b"},
        [gpu("RTX 5070 Ti", 16), gpu("RTX 3070", 8), gpu("RTX 4070", 8)],
        {"versions": GPU | {"model qwen2.5-32b-4bit": "h"}},
    ),
    "one streams from its files": (
        {"model": "qwen2.5-32b"},
        [gpu("RTX 4090", 24), gpu("RTX 3070", 8) | {"memory_bytes": 16 * GB}],
        {"versions": GPU | {"model qwen2.5-32b-4bit": "h"}},
    ),
    "too little main memory": (
        {"model": "me/large", "load_in": "4bit"},
        [gpu("RTX 4090", 24), gpu("RTX 3070", 8) | {"memory_bytes": 6 * GB}],
        {"versions": GPU, "files": (LARGE, 26_000_000_000)},
    ),
    "too little room": ({"model": "me/small"}, [CPU, look(free_bytes=4 * 10**9)], {"files": (SHAPE, 2_200_000_000)}),
    "no bitsandbytes": ({"model": "tiny", "load_in": "4bit"}, [CPU], {}),
    "no such layer": ({"model": "tiny", "lora_targets": "q_prj"}, [CPU], {}),
    "speeds are known": ({"model": "tiny", "max_steps": 400}, [CPU, CPU], {"calibrated": calibrated(30, 0.2)}),
    "even": ({"model": "tiny", "balance": "even"}, [CPU, CPU], {"calibrated": calibrated(30, 10)}),
    "Wi-Fi": ({"model": "smollm2-135m"}, [CPU, CPU, WIFI], {"calibrated": calibrated(10, 9, 9), "proof_mbit": 60}),
    "Wi-Fi, local steps": (
        {"model": "smollm2-135m", "sync": "local"},
        [CPU, WIFI],
        {"calibrated": calibrated(10, 9), "proof_mbit": 60},
    ),
    "one is off": ({"model": "tiny"}, [CPU], {"off": {"c": "c is off: nobody answers at 10.0.0.3"}}),
    "a run is running": ({"model": "tiny"}, [look(run_on="qa"), look(run_on="qa")], {}),
    "continues": ({"model": "tiny"}, [look(runs={"tiny-stdlib-qa": ran()}), CPU], {}),
    "resumes on other nodes": (
        {"resume": "qa"},
        [look(runs={"qa": ran(lora_r=8)}), gpu("RTX 3060", 12)],
        {"versions": GPU},
    ),
    "branches": ({"resume": "qa", "run": "other"}, [look(runs={"qa": ran(max_steps=40)})], {}),
    "changes a run": ({"model": "tiny", "run": "qa", "lora_r": 8}, [look(runs={"qa": ran()})], {}),
}


def decided(name: str) -> dict[str, Any]:
    values, looks, more = CASES[name]

    def files(_: Any) -> tuple[dict[str, Any], int]:
        if "files" not in more:
            raise BadInput("the hub cannot be reached")
        return more["files"]

    known = {name: more[name] for name in ("off", "proof_mbit", "calibrated") if name in more}
    facts = launch_facts(looks, more.get("versions", HAS) | {"model tiny": "h"}, files=files, **known)
    try:
        found = decide(request.read(values, Path("/nowhere")), facts)
    except BadInput as refused:
        return {"refused": str(refused).splitlines()}
    data = launch_plan(found, of_plan(found, {})).to_json()
    kept = ("run", "step", "given", "predicted", "lack_model", "old_code", "raw", "prepare", "speeds")
    chosen = {name: data["settings"][name] for name in ("resume", "wire", "sync", *OLD_PLAN)}
    return {"lines": plan_view.lines(found), "chosen": chosen} | {name: data[name] for name in kept}


def test_rows_longer_than_the_model_was_made_for_are_refused(monkeypatch):
    """unsloth would stretch its positions by itself, and hf, ask and the exported adapter would not."""
    monkeypatch.setitem(CASES, "long", ({"model": "tiny", "max_seq_length": 1024}, [CPU], {}))
    assert decided("long") == {
        "refused": [
            "rows have up to 1024 tokens, tiny was made for 512",
            "fix: --set max_seq_length=512, or a model that was made for longer texts",
        ]
    }


@pytest.mark.parametrize("name", CASES)
def test_a_launch_decides_as_it_did(name):
    assert json.loads(json.dumps(decided(name))) == PLANS[name]


def test_a_folder_may_have_changed_so_every_node_is_looked_at(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    (tmp_path / "model.safetensors").write_bytes(b"")
    values = {"model": str(tmp_path)}
    name = request.read(values, Path("/nowhere")).model.local_name
    there = {"versions": VERSIONS | {f"model {name}": "h"}, "files": (SHAPE, 2_200_000_000)}
    monkeypatch.setitem(CASES, "folder", (values, [CPU, CPU], there))
    assert decided("folder")["lack_model"] == ["a", "b"]
