"""Families of language models, and what the proof says of each: the table of docs/inside/models.md.

python -m tests.train.proven_families writes it; tests/train/test_proof.py proves it.
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/inside/models.md"
BEGIN, END = "<!-- families: made by python -m tests.train.proven_families -->\n\n", "\n<!-- end of families -->"
PACKED = """
llama mistral qwen2 qwen3 gemma2 gemma gemma3_text gemma4_text phi phi3 smollm3 granite olmo olmo2 olmo3 glm glm4 cohere
cohere2 starcoder2 gpt2 gpt_neox gptj stablelm nemotron ernie4_5 exaone4 hunyuan_v1_dense ministral ministral3 seed_oss
arcee apertus nanochat
qwen3_moe mixtral deepseek_v3 olmoe qwen2_moe glm4_moe
gemma3 gemma4 mistral3 qwen3_vl smolvlm
""".split()
UNPACKED = "lfm2 qwen3_5_text granitemoehybrid falcon bloom opt gpt_oss qwen3_next qwen3_5".split()
REFUSED = {"phimoe": "its router would get an adapter"}
STREAMED = ("llama", "gemma2", "gemma3", "gemma3_text", "olmo3", "apertus", "qwen3_moe", "qwen2_moe", "deepseek_v3")
"""Some whose layers are read one by one, though they differ in kind, have more than weights, or experts kept apart."""
WRAPPERS = ("gemma3", "gemma4", "mistral3", "qwen3_vl", "smolvlm", "qwen3_5")
MIXTURES = ("qwen3_moe", "mixtral", "deepseek_v3", "olmoe", "qwen2_moe", "glm4_moe", "gpt_oss", "qwen3_next", "phimoe")
SETTINGS = {
    "lfm2": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2},
    "granitemoehybrid": {"num_local_experts": 0},
    "ministral": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
    "smolvlm": {"pad_token_id": 2},
}
"""Of those whose usual sizes are of another model."""
QUICK = ("llama", "gemma2", "lfm2", "gpt2", "gpt_oss", "qwen3_moe", "gemma3", "phimoe")
"""Those of `make test`; the others take minutes."""


def table() -> str:
    lines = ["| family (`model_type`) | kind | verdict |", "|---|---|---|"]
    lines += [f"| {name} | {kind(name)} | packed, in any shares |" for name in sorted(PACKED)]
    unpacked = "in any shares, unpacked: samples that share a row would see each other"
    lines += [f"| {name} | {kind(name)} | {unpacked} |" for name in UNPACKED]
    lines += [f"| {name} | {kind(name)} | refused: {why} |" for name, why in REFUSED.items()]
    return "\n".join(lines) + "\n"


def kind(name: str) -> str:
    return "mixture of experts" if name in MIXTURES else "text part of a wrapper" if name in WRAPPERS else "dense"


def page_with_table(text: str) -> str:
    return text.partition(BEGIN)[0] + BEGIN + table() + END + text.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
