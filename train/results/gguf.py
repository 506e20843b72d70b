"""A merged model (export.py) as one file for llama.cpp and Ollama, and the Modelfile beside it. llama.cpp's converter
writes it; it is fetched once, into a folder of its own, as it brings another version of a package that transformers
uses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from train.cache import build_once, cache_dir
from train.data.to_tokens import Chat, end_ids, without_system
from train.errors import BadInput, CheckFailed, last_line
from train.files import file_hash
from train.hub import pip
from train.plan.settings.gguf_quants import QUANTS
from train.results.modelfile import form_of, modelfile

LOCK = Path(__file__).with_name("gguf.txt")
WRITER = Path(__file__).with_name("patched_converter.py")
QUANTISER = "llama-quantize"
"""The program of llama.cpp: no package that pip installs without a compiler has it."""
BUILT = ("~/.local/bin", "~/llama.cpp/build/bin")
"""Where it lies on a machine whose owner has built it, beside PATH."""
OPENS = """{% if messages[0]['role'] != 'system' %}\
{% set messages = [{'role': 'system', 'content': SYSTEM}] + messages %}{% endif %}"""


def require_quant(quant: str) -> None:
    if quant not in QUANTS:
        raise BadInput(f"quant: '{quant}' is not one of {' '.join(QUANTS)}")
    if quant == "q4_k_m" and not quantiser():
        raise BadInput(
            f"q4_k_m: only llama.cpp's {QUANTISER} makes it, and this machine has none",
            fix="--quant q4_0 needs none; or --quant f16, and Ollama makes it: ollama create NAME --quantize q4_K_M",
        )


def require_known_vocabulary(chat: Chat) -> None:
    """BadInput for a tokenizer that was made here and has no form in a gguf."""
    if not cuts_as_gpt2(chat):
        raise BadInput(
            "a tokenizer of single characters cannot be written as gguf: llama.cpp knows none",
            fix="export it as merged, or train with tokenizer=bytes",
        )


def quantiser() -> str | None:
    places = [os.environ.get("PATH", os.defpath), *(str(Path(place).expanduser()) for place in BUILT)]
    return shutil.which(QUANTISER, path=os.pathsep.join(places))


def write(source: Path, file: Path, chat: Chat, quant: str) -> None:
    """`source`: a merged model with its tokenizer."""
    if quant != "q4_k_m":
        convert(source, file, chat, quant)
    else:
        with tempfile.TemporaryDirectory(dir=source.parent) as scratch:
            in_16_bit = Path(scratch) / file.name
            convert(source, in_16_bit, chat, "f16")
            quantise(in_16_bit, file, quant)
    (file.parent / "Modelfile").write_text(modelfile(file.name, chat))


def convert(source: Path, file: Path, chat: Chat, quant: str) -> None:
    converter = gguf_converter()
    orders = {"pre": "gpt-2" if cuts_as_gpt2(chat) else "", "end_of_turn": end_of_turn(chat), "quant": quant}
    kind = "f16" if quant == "q4_0" else quant
    words = [str(source), "--model-name", file.stem, "--outtype", kind, "--outfile", str(file)]
    done = subprocess.run(
        [sys.executable, "-P", str(WRITER), json.dumps(orders), *words],
        env=environment_of(converter),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CheckFailed(
            f"the converter cannot write {file.stem} as gguf: {last_line(done.stderr)}",
            "converter: convert-hf-to-gguf",
            "export it as merged instead; transformers and vLLM load that",
        )


def quantise(in_16_bit: Path, file: Path, quant: str) -> None:
    words = [str(quantiser()), str(in_16_bit), str(file), quant.upper()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode or not file.is_file():
        raise CheckFailed(
            f"{QUANTISER} did not make {quant}: {last_line(done.stderr or done.stdout)}",
            f"program: {words[0]}",
            "--quant q4_0 needs no such program",
        )


def cuts_as_gpt2(chat: Chat) -> bool:
    """Whether its rule for words is GPT-2's, as that of each byte-level tokenizer that is made here."""
    rules = json.loads(chat.tokenizer.backend_tokenizer.to_str())
    cuts = rules["pre_tokenizer"] or {}
    is_rule = cuts.get("type") == "ByteLevel" and cuts.get("use_regex", True) and not cuts.get("add_prefix_space")
    return is_rule and rules["model"]["type"] == "BPE" and not (rules["normalizer"] or {}).get("normalizers", ())


def with_known_template(chat: Chat) -> Chat:
    """The chat as the gguf has it: its system message in words that any reader of templates knows; but where Ollama is
    to know the template by its text, as that was published (the Modelfile has the message)."""
    plain, own = without_system(chat)
    if not own or not form_of(plain):
        return plain
    return replace(plain, template=OPENS.replace("SYSTEM", json.dumps(own, ensure_ascii=False)) + plain.template)


def end_of_turn(chat: Chat) -> int | None:
    """The mark that a template writes behind an answer, where that is not the tokenizer's own end."""
    return next((token for token in end_ids(chat) if token != chat.tokenizer.eos_token_id), None)


def environment_of(converter: Path) -> dict[str, str]:
    """Without MOTLEY_HOME, by which the processes of a run are known: a stop would end it."""
    known = {name: value for name, value in os.environ.items() if name != "MOTLEY_HOME"}
    return known | {"PYTHONPATH": str(converter)}


def gguf_converter() -> Path:
    def install(folder: Path) -> None:
        print("fetching the gguf converter, once", file=sys.stderr)
        if reason := pip("install", "--requirement", str(LOCK), "--target", str(folder)):
            raise BadInput("the gguf converter could not be fetched", f"pip: {reason}", "check the connection")

    lock = file_hash(LOCK)[:12]
    return build_once(cache_dir() / "tools" / f"gguf-{lock}-{sys.implementation.cache_tag}", install)
