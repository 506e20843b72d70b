"""Whether a model's folder holds what its class wants, by config.json and the headers of its safetensors files.

transformers draws by lot what the files lack, and leaves out what it does not know: such a run would train a model that
nobody has. Without torch: the controller asks before it sends anything, and each node before it loads the base.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from train.errors import BadInput
from train.plan.model.catalogue import Facts, HubConfig, facts_of, form_on_disk, read_config, text_config
from train.plan.model.counts import linear_shapes

ONE_FILE, INDEX, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
TYPES = ("F64", "F32", "F16", "BF16")
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2")
"""The families whose every weight is known here; for others transformers reports what is missing when it loads them."""
OF_MLP = ("gate_proj", "up_proj", "down_proj")
QUANTISED = ("U8", "I8")
"""How bitsandbytes keeps weights."""
ANOTHER = "choose the model as it was released, whole and not quantised, or a copy of it in 4 bit by bitsandbytes"


class Tensor(TypedDict):
    """A tensor, as the head of a .safetensors says it."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


Header = dict[str, Tensor]


def require(folder: Path) -> None:
    """BadInput names the first tensor that is missing, left over or of another shape or type."""
    config = read_config(folder)
    form_on_disk(config.get("quantization_config"), str(folder))
    held = headers(folder)
    if not held and any(folder.glob("*.bin")):
        raise BadInput(
            "the model has no weights as .safetensors, and what a .bin lacks shows in its training alone",
            f"folder: {folder}",
            "load it with transformers and save it again: AutoModelForCausalLM.from_pretrained(…).save_pretrained(…)",
        )
    if config.get("model_type") in FAMILIES and held:
        facts = facts_of(config, str(folder))
        compare(wanted(facts, config), held, facts, folder)


def compare(wanted: dict[str, list[int]], held: Header, facts: Facts, folder: Path) -> None:
    if not any(name.startswith("model.") for name in held):  # saved without its head; transformers knows it, too
        held = {f"model.{name}": about for name, about in held.items()}
    both = held.keys() & wanted.keys()
    problems = {"lack": sorted(wanted.keys() - held.keys())}
    problems["hold what no such model has:"] = sorted(name for name in held.keys() - wanted.keys() if odd(name, facts))
    numbers = {name: (held[name]["dtype"], held[name]["shape"]) for name in both}
    for name, (kind, _) in numbers.items():
        if kind in QUANTISED and facts.on_disk:
            numbers[name] = TYPES[0], wanted[name]  # packed, in a shape of its own
    problems["hold as numbers that are not loaded:"] = sorted(
        f"{name} ({kind})" for name, (kind, _) in numbers.items() if kind not in TYPES
    )
    problems["hold in another shape than config.json says:"] = sorted(
        f"{name} ({shape}, not {wanted[name]})" for name, (_, shape) in numbers.items() if shape != wanted[name]
    )
    for what, names in problems.items():
        if names:
            raise not_whole(what, names, str(folder))


def not_whole(what: str, names: list[str], folder: str) -> BadInput:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return BadInput(f"the model's files {what} {names[0]}{more}", f"folder: {folder}", ANOTHER)


def odd(name: str, facts: Facts) -> bool:
    if name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and facts.tied):
        return False
    return not (facts.on_disk and "_proj." in name)  # how bitsandbytes has quantised it


def wanted(facts: Facts, config: HubConfig) -> dict[str, list[int]]:
    """Every weight of a model of FAMILIES, and its shape."""
    hidden = facts.hidden
    linear = {
        f"{'mlp' if name in OF_MLP else 'self_attn'}.{name}": [outward, inward]
        for name, (inward, outward) in linear_shapes(facts).items()
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if facts.family == "gemma2":
        norms |= {"pre_feedforward_layernorm": hidden, "post_feedforward_layernorm": hidden}
    if facts.family == "qwen3":
        norms |= {"self_attn.q_norm": facts.head_dim, "self_attn.k_norm": facts.head_dim}
    layer = {f"{name}.weight": shape for name, shape in linear.items()}
    layer |= {f"{name}.weight": [size] for name, size in norms.items()}
    layer |= {f"{name}.bias": shape[:1] for name, shape in linear.items() if has_bias(name, facts.family, config)}
    shapes = {f"model.layers.{n}.{name}": shape for n in range(facts.layers) for name, shape in layer.items()}
    shapes |= {"model.embed_tokens.weight": [facts.vocab, hidden], "model.norm.weight": [hidden]}
    return shapes if facts.tied else shapes | {"lm_head.weight": [facts.vocab, hidden]}


def has_bias(name: str, family: str, config: HubConfig) -> bool:
    if family == "qwen2":
        return name.startswith("self_attn.") and not name.endswith("o_proj")
    if name.startswith("mlp."):
        return family == "llama" and bool(config.get("mlp_bias"))
    return family != "mistral" and bool(config.get("attention_bias"))


def headers(folder: Path) -> Header:
    """What the files say of all tensors, by name; empty where there is no such file."""
    tensors: Header = {}
    for file in files(folder):
        tensors |= header(file)
    return tensors


def files(folder: Path) -> list[Path]:
    """The model's weight files, as transformers chooses them."""
    if (folder / ONE_FILE).is_file() or not (folder / INDEX).is_file():
        return sorted(folder.glob(ONE_FILE))
    with damage(folder / INDEX):
        names = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise BadInput(f"the model's file {missing[0]} is missing", f"folder: {folder}", "copy the whole model again")
    return [folder / name for name in names]


def header(file: Path) -> Header:
    size = file.stat().st_size
    with file.open("rb") as stream, damage(file):
        length = int.from_bytes(stream.read(8), "little")
        tensors: Header = json.loads(stream.read(length)) if length <= size else {}
        tensors.pop("__metadata__", None)
        ends = [about["data_offsets"][1] for about in tensors.values() if about["dtype"] and about["shape"] is not None]
        if size < 8 + length + max(ends, default=math.inf):
            raise ValueError
    return tensors


@contextmanager
def damage(file: Path) -> Iterator[None]:
    """Turns what goes wrong while the file is read into a BadInput: it does not hold what such a file holds."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        what = f"the model's file {file.name} is cut off or damaged"
        raise BadInput(what, f"file: {file}", "copy or fetch it again") from None


def require_tokens(folder: Path) -> None:
    """A token beyond the model's vocabulary has no weights."""
    config, file = text_config(read_config(folder)), folder / TOKENIZER
    if not (file.is_file() and isinstance(config.get("vocab_size"), int)):
        return
    with damage(file):
        tokenizer = json.loads(file.read_text(encoding="utf-8"))
        vocabulary = tokenizer["model"].get("vocab", {})
        ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else list(range(len(vocabulary)))
        last = max([*ids, *(token["id"] for token in tokenizer.get("added_tokens", ()))], default=0)
    if last >= config["vocab_size"]:
        raise BadInput(
            f"the tokenizer has {last + 1} tokens, the model's vocabulary {config['vocab_size']}",
            f"folder: {folder}",
            "put the tokenizer there that the model was made with",
        )
