"""Families of language models, and what the proof says of each: the table of docs/inside/models.md.

python -m tests.train.proven_families writes it; tests/train/test_proof.py proves it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig

PAGE = Path(__file__).parents[2] / "docs/inside/models.md"
BEGIN, END = "<!-- families: made by python -m tests.train.proven_families -->\n\n", "\n<!-- end of families -->"
PACKED = """
llama mistral qwen2 qwen3 gemma2 gemma gemma3_text gemma4_text phi phi3 smollm3 granite olmo olmo2 olmo3 glm glm4 cohere
cohere2 starcoder2 gpt2 gpt_neox gptj stablelm nemotron ernie4_5 exaone4 hunyuan_v1_dense ministral ministral3 seed_oss
arcee apertus nanochat
qwen3_moe mixtral deepseek_v3 olmoe qwen2_moe glm4_moe gemma4_text/experts
gemma3 gemma4 mistral3 qwen3_vl smolvlm
""".split()
UNPACKED = "lfm2 qwen3_5_text granitemoehybrid falcon bloom opt gpt_oss qwen3_next qwen3_5".split()
REFUSED = {"phimoe": "its router would get an adapter, and then it chooses no experts"}
READ, SHARED = "its layers cannot be read one by one", "its layers cannot be shared out between machines"
OTHER_NAME = "as its class keeps them under another name than most"
TEXT_ALONE = {"method=full": "it would be saved without its part for pictures or sounds"}
NAMED_OTHERWISE = {"streaming": f"{READ}, {OTHER_NAME}", "pipes": f"{SHARED}, {OTHER_NAME}"}
PER_LAYER = {
    "streaming": f"{READ}, as they compute with what other layers have computed",
    "pipes": f"{SHARED}, as later ones need the table of tokens, which is with the first alone",
}
LIMITS = {
    **dict.fromkeys(("gpt2", "gptj", "falcon", "bloom"), NAMED_OTHERWISE),
    **dict.fromkeys(("gemma3", "mistral3", "qwen3_vl", "smolvlm", "qwen3_5"), TEXT_ALONE),
    "gemma4_text": PER_LAYER,
    "gemma4": PER_LAYER | TEXT_ALONE,
}
"""What a family cannot do, and why."""
WRAPPERS = ("gemma3", "gemma4", "mistral3", "qwen3_vl", "smolvlm", "qwen3_5")
MIXTURES = (
    *("qwen3_moe", "mixtral", "deepseek_v3", "olmoe", "qwen2_moe", "glm4_moe", "gemma4_text/experts"),
    *("gpt_oss", "qwen3_next", "phimoe"),
)
SETTINGS = {
    "lfm2": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2},
    "granitemoehybrid": {"num_local_experts": 0},
    "ministral": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
    "gemma4_text/experts": {
        **{"enable_moe_block": True, "num_experts": 8, "top_k_experts": 4, "moe_intermediate_size": 128},
        **{"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
    },
    "smolvlm": {"pad_token_id": 2},
}
"""Of those whose usual sizes are of another model. A name has what distinguishes it behind a slash."""
QUICK = ("llama", "gemma2", "lfm2", "gpt2", "gpt_oss", "qwen3_moe", "gemma3", "phimoe")
"""Those of `make test`; the others take minutes."""


def config_of(name: str) -> Any:
    return AutoConfig.for_model(name.partition("/")[0], **SETTINGS.get(name, {}))


def table() -> str:
    rows = [(name, "packed, in any shares") for name in sorted(PACKED)]
    rows += [(name, "in any shares, unpacked: samples that share a row would see each other") for name in UNPACKED]
    rows += [(name, f"refused: {why}") for name, why in REFUSED.items()]
    lines = ["| family (`model_type`) | kind | verdict | never with it |", "|---|---|---|---|"]
    lines += [f"| {name} | {kind(name)} | {verdict} | {', '.join(LIMITS.get(name, {}))} |" for name, verdict in rows]
    return "\n".join([*lines, "", "Never with these, and why:", "", *reasons()]) + "\n"


def reasons() -> list[str]:
    found: dict[str, list[str]] = {}
    for name, limits in LIMITS.items():
        for what, why in limits.items():
            found.setdefault(f"{what}: {why}", []).append(name)
    return [f"- {why} ({', '.join(names)})." for why, names in found.items()]


def kind(name: str) -> str:
    return "mixture of experts" if name in MIXTURES else "text part of a wrapper" if name in WRAPPERS else "dense"


def page_with_table(text: str) -> str:
    return text.partition(BEGIN)[0] + BEGIN + table() + END + text.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
