"""`python -m train export`: what was trained, in the form that others load.

    python -m train export gguf --run qa [--quant q8_0]
    python -m train export merged --model smollm2-135m --adapter results/qa/adapter --out out/merged

adapter: PEFT's format with the tokenizer. merged: a model of its own, for transformers or vLLM, never quantised. gguf:
one file and a Modelfile: `ollama create NAME -f Modelfile` (gguf.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.cache import build_once, home_dir
from train.data.to_tokens import Chat, load_chat
from train.errors import BadInput
from train.files import file_hash
from train.models.model_files import model_folder
from train.plan.model import adapters
from train.plan.model.catalogue import Model, resolve_model
from train.plan.settings.gguf_quants import DEFAULT_QUANT, QUANTS
from train.recipes import model_card
from train.results import finished_run, gguf

OF_PICTURES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
"""How a wrapper reads what is no text."""
MERGED = "use merged: transformers and vLLM load that"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=sorted(EXPORTS), help="the form")
    finished_run.add_arguments(parser, required=False)
    parser.add_argument("--model", help="the base model")
    parser.add_argument("--adapter", type=Path, help="folder of the trained adapter")
    parser.add_argument("--out", type=Path, help="folder to write; must not exist yet (of a run: exports/RUN/FORM)")
    quants = f"of a gguf: {', '.join(QUANTS)} (default {DEFAULT_QUANT})"
    parser.add_argument("--quant", default=DEFAULT_QUANT, help=quants)


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
        finished_run.fill(args, model=base, adapter=run.folder)
        if is_made(run, args):
            return report(args, step, run.run)
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
        hashes = {name: file_hash(args.out / name) for name in files if args.what == "gguf"}
        made = {"what": args.what, "folder": str(args.out), "step": step, "files": files, "sha256": hashes}
        print(json.dumps({"ok": True, **made}))
        return 0
    for file, size in files.items():
        print(f"{size / 1e6:10.1f} MB  {args.out / file}")
    if args.what == "gguf":
        print(f"next: ollama create {name} -f {args.out / 'Modelfile'}")
    return 0


def require_place(args: argparse.Namespace) -> None:
    if args.out.exists():
        raise BadInput("the folder to write is already there", f"folder: {args.out}", "remove it or name another")
    if args.what == "gguf":
        gguf.require_quant(args.quant)


def is_made(run: finished_run.FinishedRun, args: argparse.Namespace) -> bool:
    """Whether this gguf is there, made of what the run is now; an older one goes. Names the folder where no other is
    named."""
    is_named = args.out is not None
    form = f"gguf-{args.quant}" if args.what == "gguf" else args.what
    form = form if run.step is None else f"{form}-step-{run.step}"
    finished_run.fill(args, out=home_dir() / "exports" / run.run / form)
    if is_named or args.what != "gguf" or not args.out.is_dir():
        return False
    if args.out.stat().st_mtime > max(path.stat().st_mtime for path in run.folder.iterdir()):
        return True
    shutil.rmtree(args.out)
    return False


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
    is_made(run, args)
    require_place(args)
    from train.recipes.images import pretrained as picture_bases
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
    if is_made(run, args):
        return report(args, run.step, run.run)
    require_place(args)
    from train.results.before_and_after import chat_of

    chat = chat_of(run)

    def copied(folder: Path) -> None:
        copy_model(run, folder)
        save_tokenizer(chat, folder)

    def converted(folder: Path) -> None:
        gguf.require_known_vocabulary(chat)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            copied(Path(scratch))
            gguf.write(Path(scratch), folder / f"{run.run}.gguf", chat, args.quant)

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
    """The chat by the template that was trained with, where that is none of the model's."""
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
    chat = chat_with(model, args.adapter)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        export_merged(Path(scratch), model, args)
        save_tokenizer(gguf.with_known_template(chat), Path(scratch))
        gguf.write(Path(scratch), folder / f"{model.name}.gguf", chat, args.quant)


def save_tokenizer(chat: Chat, folder: Path) -> None:
    """Saves the tokenizer with the template that was trained with, also where the model had none."""
    chat.tokenizer.chat_template = chat.template
    chat.tokenizer.save_pretrained(folder)


EXPORTS: dict[str, Callable[[Path, Model, argparse.Namespace], None]] = {
    "adapter": export_adapter,
    "merged": export_merged,
    "gguf": export_gguf,
}
