"""`python -m train export`: what was trained, in the form that others load.

    python -m train export gguf --run qa [--outtype q8_0]
    python -m train export merged --model smollm2-135m --adapter results/qa/adapter --out out/merged

adapter: PEFT's format with the tokenizer. merged: a model of its own, for transformers or vLLM, never quantised. gguf:
one file and a Modelfile: `ollama create NAME -f Modelfile`. Its converter is fetched once, into a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.cache import build_once, cache_dir, home_dir
from train.data.chat import CONTINUED, PLAIN_TEMPLATE, Chat, load_chat, without_system
from train.errors import BadInput, CheckFailed
from train.files import file_hash
from train.hub import pip
from train.models.model_files import model_folder
from train.plan.model import adapters
from train.plan.model.catalogue import Model, resolve_model
from train.recipes import model_card
from train.results import finished_run

LOCK = Path(__file__).with_name("gguf.txt")
OF_PICTURES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
"""How a wrapper reads what is no text."""
MERGED = "use merged: transformers and vLLM load that"
OUTTYPES = ("q8_0", "f16", "bf16", "f32")

PLAIN_MODELFILE = '''TEMPLATE """{{ if .System }}{{ .System }}

{{ end }}### Instruction:
{{ .Prompt }}

### Response:
"""
PARAMETER stop "### Instruction:"
'''
CONTINUED_MODELFILE = 'TEMPLATE """{{ .Prompt }}"""\n'
NAMED_PRE = """
import sys
import convert_hf_to_gguf
from conversion.base import TextModel
script, pre = sys.argv[1:3]
sys.argv = [script, *sys.argv[3:]]
TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
convert_hf_to_gguf.main()
"""
"""Converts a model whose tokenizer llama.cpp does not know: its rule for words is GPT-2's, as llama.cpp names it."""
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
    step = None
    if args.run:
        run = finished_run.find(args)
        if run.is_own:
            raise BadInput(
                f"run '{run.run}' is of a recipe of your own: no other program knows its form",
                f"folder: {run.folder}",
                "take that folder as it is: model.safetensors, recipe.py, and README.md, which says how to load it",
            )
        if run.recipe == "images":
            return main_of_pictures(run, args)
        if not run.base:
            return main_of_new(run, args)
        base = run.original if args.what == "adapter" else run.original_or_base
        step = run.step
        form = args.what if step is None else f"{args.what}-step-{step}"
        finished_run.fill(args, model=base, adapter=run.folder, out=home_dir() / "exports" / run.run / form)
    finished_run.require(args, "model", "adapter", "out")
    if args.what == "gguf" and scores(args.adapter):
        raise BadInput("a reward model cannot be written as gguf: it gives a text a score and writes none", fix=MERGED)
    require_place(args)
    model = resolve_model(args.model)
    build_once(args.out, lambda folder: EXPORTS[args.what](folder, model, args))
    return report(args, step, f"{model.name}-tuned")


def report(args: argparse.Namespace, step: int | None, name: str) -> int:
    """`name`: for Ollama."""
    files = {path.name: path.stat().st_size for path in sorted(args.out.iterdir())}
    if args.json:
        print(json.dumps({"ok": True, "what": args.what, "folder": str(args.out), "step": step, "files": files}))
        return 0
    for file, size in files.items():
        print(f"{size / 1e6:10.1f} MB  {args.out / file}")
    if args.what == "gguf":
        print(f"next: ollama create {name} -f {args.out / 'Modelfile'}")
    return 0


def require_place(args: argparse.Namespace) -> None:
    if args.out.exists():
        raise BadInput("the folder to write is already there", f"folder: {args.out}", "remove it or name another")
    if args.outtype not in OUTTYPES:
        raise BadInput(f"outtype: '{args.outtype}' is not one of {' '.join(OUTTYPES)}")


def place_of(run: finished_run.FinishedRun, args: argparse.Namespace) -> None:
    form = args.what if run.step is None else f"{args.what}-step-{run.step}"
    finished_run.fill(args, out=home_dir() / "exports" / run.run / form)
    require_place(args)


def copy_model(run: finished_run.FinishedRun, folder: Path) -> None:
    for name in ("model.safetensors", "config.json", model_card.CARD):
        if (run.folder / name).is_file():
            shutil.copy(run.folder / name, folder)


def main_of_pictures(run: finished_run.FinishedRun, args: argparse.Namespace) -> int:
    if args.what != "merged":
        raise BadInput(
            f"run '{run.run}': a model of pictures cannot be written as {args.what}",
            fix="use merged: weights as safetensors, with labels.json",
        )
    place_of(run, args)
    from train.recipes.images import bases as picture_bases
    from train.recipes.images.rows import write_labels
    from train.results.pictures import classes_of_run

    def copied(folder: Path) -> None:
        copy_model(run, folder)
        if run.base:
            picture_bases.complete(folder, run.base)
        write_labels(folder, classes_of_run(run))

    build_once(args.out, copied)
    return report(args, run.step, run.run)


def main_of_new(run: finished_run.FinishedRun, args: argparse.Namespace) -> int:
    """Exports a model from nothing, which is whole as it is."""
    if args.what == "adapter":
        raise BadInput(f"run '{run.run}' made a model, not an adapter", fix="export it as merged, or as gguf")
    place_of(run, args)
    from train.results.answers import chat_of

    chat = chat_of(run)

    def copied(folder: Path) -> None:
        copy_model(run, folder)
        save_tokenizer(chat, folder)

    def converted(folder: Path) -> None:
        require_known_vocabulary(chat)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            copied(Path(scratch))
            convert(Path(scratch), folder / f"{run.run}.gguf", args.outtype, pre="gpt-2")
        (folder / "Modelfile").write_text(modelfile(f"{run.run}.gguf", chat))

    build_once(args.out, copied if args.what == "merged" else converted)
    return report(args, run.step, run.run)


def export_adapter(folder: Path, model: Model, args: argparse.Namespace) -> None:
    """Copies the adapter as it was trained, but naming the base model by the name under which others find it."""
    shutil.copy(args.adapter / "adapter_model.safetensors", folder)
    shutil.copy(args.adapter / "adapter_config.json", folder)
    model_card.name_base(folder, model_card.Origin(base=str(args.model), hub=model.hub, dataset=""))
    for name in (model_card.CARD, adapters.DESCENT):
        if (args.adapter / name).is_file():
            shutil.copy(args.adapter / name, folder)
    save_tokenizer(chat_with(model, args.adapter), folder)


def chat_with(model: Model, adapter: Path) -> Chat:
    """By the template that was trained with, where that is none of the model's."""
    own = adapter / adapters.TEMPLATE
    return load_chat(model, template=own.read_text(encoding="utf-8") if own.is_file() else "")


def scores(adapter: Path) -> bool:
    return adapters.scores(adapters.read_json(adapter / adapters.CONFIG))


def export_merged(folder: Path, model: Model, args: argparse.Namespace) -> None:
    from peft import PeftModel
    from transformers.utils.logging import disable_progress_bar

    from train.models import hf, wrapper
    from train.models.load_streamed import quietly
    from train.recipes.preference import reward_head

    disable_progress_bar()
    source = model_folder(args.model)
    config = hf.config_of(source)
    whole = wrapper.whole_class_of(config)
    if scores(args.adapter):
        config, whole = reward_head.class_that_scores(config)
    load = whole.from_pretrained
    base: Any = quietly(load, source, config=config, dtype="auto", local_files_only=True, trust_remote_code=False)
    packed = getattr(base, "is_quantized", False)  # no other copy is known
    if packed:
        base = base.dequantize()
    merged: Any = PeftModel.from_pretrained(base, str(args.adapter)).merge_and_unload()
    merged.save_pretrained(folder, save_original_format=not packed)
    save_tokenizer(chat_with(model, args.adapter), folder)
    for name in OF_PICTURES:
        if (Path(source) / name).is_file():
            shutil.copy(Path(source) / name, folder)


def export_gguf(folder: Path, model: Model, args: argparse.Namespace) -> None:
    file = folder / f"{model.name}.gguf"
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        export_merged(Path(scratch), model, args)
        save_tokenizer(without_system(chat_with(model, args.adapter))[0], Path(scratch))  # Ollama knows it as published
        convert(Path(scratch), file, args.outtype)
    (folder / "Modelfile").write_text(modelfile(file.name, chat_with(model, args.adapter)))


def convert(source: Path, file: Path, outtype: str, *, pre: str = "") -> None:
    """`pre`: how the tokenizer cuts words, where the converter cannot know it: it knows the vocabularies that others
    have published, by a hash, and one that was just made is not among them."""
    converter = gguf_converter()
    script = str(converter / "convert_hf_to_gguf.py")
    words = [str(source), "--model-name", file.stem, "--outtype", outtype, "--outfile", str(file)]
    command = [sys.executable, *(["-c", NAMED_PRE, script, pre] if pre else [script]), *words]
    done = subprocess.run(command, env=environment_of(converter), capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise CheckFailed(
            f"the converter cannot write {file.stem} as gguf: {reason[:200]}",
            "converter: convert-hf-to-gguf",
            "export it as merged instead; transformers and vLLM load that",
        )


def require_known_vocabulary(chat: Chat) -> None:
    if '"ByteLevel"' not in chat.tokenizer.backend_tokenizer.to_str():
        raise BadInput(
            "a tokenizer of single characters cannot be written as gguf: llama.cpp knows none",
            fix="export it as merged, or train with tokenizer=bytes",
        )


def environment_of(converter: Path) -> dict[str, str]:
    """Without MOTLEY_HOME, by which the processes of a run are known: a stop would end it."""
    known = {name: value for name, value in os.environ.items() if name != "MOTLEY_HOME"}
    return known | {"PYTHONPATH": str(converter)}


def save_tokenizer(chat: Chat, folder: Path) -> None:
    """Saves the tokenizer with the template that was trained with, also where the model had none."""
    chat.tokenizer.chat_template = chat.template
    chat.tokenizer.save_pretrained(folder)


def modelfile(gguf: str, chat: Chat) -> str:
    """Ollama knows the common templates by the one in the gguf; two are written out, and a template's own message."""
    plain, own = without_system(chat)
    template, system = plain.template, (own or plain.default_system()).replace('"""', "'''")  # more quotes would end it
    written_out = {PLAIN_TEMPLATE: PLAIN_MODELFILE, CONTINUED: CONTINUED_MODELFILE}
    known = written_out.get(template) or (CHATML_MODELFILE if "<|im_start|>" in template else "")
    return f"FROM ./{gguf}\n{known}" + (f'SYSTEM """{system}"""\n' if system else "")


def gguf_converter() -> Path:
    """In a folder of its own: it brings another version of a package that transformers uses."""

    def install(folder: Path) -> None:
        print("fetching the gguf converter, once", file=sys.stderr)
        if reason := pip("install", "--requirement", str(LOCK), "--target", str(folder)):
            raise BadInput("the gguf converter could not be fetched", f"pip: {reason}", "check the connection")

    lock = file_hash(LOCK)[:12]
    return build_once(cache_dir() / "tools" / f"gguf-{lock}-{sys.implementation.cache_tag}", install)


EXPORTS: dict[str, Callable[[Path, Model, argparse.Namespace], None]] = {
    "adapter": export_adapter,
    "merged": export_merged,
    "gguf": export_gguf,
}
