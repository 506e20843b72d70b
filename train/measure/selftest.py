"""`python -m train selftest`: can this machine train? A ✓ a line, or why not; the first failure ends it with exit 1.

python -m train selftest                   the tiny model, offline, seconds
python -m train selftest --model NAME      the model that is to be trained
python -m train selftest --device cuda     fails where there is no usable GPU; each one builds and runs a kernel
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

from train.errors import BadInput
from train.plan.settings.read_settings import add_settings, config_of
from train.runlog.events import person


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, ("model", "backend", "device", "load_in"))


def main(args: argparse.Namespace) -> int:
    out = person(args.json)
    done: list[dict[str, object]] = []
    failure = ""
    for name, check in checks(args):
        started = time.perf_counter()
        try:
            found = check()
        except Exception as error:
            failure = f"{name}: {error if isinstance(error, BadInput) else f'{type(error).__name__}: {error}'}"
            print(f"✗ {failure}", file=out)
            break
        seconds = round(time.perf_counter() - started, 2)
        done.append({"check": name, "found": found, "seconds": seconds})
        print(f"✓ {name:17} {found}  ({seconds} s)", file=out, flush=True)
    if args.json:
        print(json.dumps({"ok": not failure, "checks": done, "failures": [failure] if failure else []}))
    return 1 if failure else 0


def checks(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], str]]]:
    bench = SimpleNamespace()  # what one check leaves for the next
    yield "versions", versions
    yield "device and memory", lambda: device(bench, args)
    if bench.facts.device != "cpu":
        yield "GPU kernel", kernel
    yield "model load", lambda: load(bench)
    yield "forward", lambda: forward(bench)
    yield "backward", lambda: backward(bench)
    yield "optimizer step", lambda: optimizer_step(bench)
    yield "save and reload", lambda: save_and_reload(bench)


def versions() -> str:
    names = ("torch", "transformers", "peft", "safetensors")
    return ", ".join([f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in names)])


def device(bench: SimpleNamespace, args: argparse.Namespace) -> str:
    from train.models.device import look
    from train.models.model_files import model_folder, shape_of
    from train.plan.placement.first_way_that_fits import choose_on_devices

    bench.config = config_of(args)
    bench.base = Path(model_folder(bench.config.model))
    bench.facts = look(bench.config, platform.node(), 0, bench.base)
    bench.decisions = choose_on_devices(bench.config, [bench.facts], shape_of(bench.base)).decisions
    return (
        f"{bench.facts.device}, {bench.facts.memory_bytes / 1e9:.1f} GB, backend {bench.decisions.backend}, "
        f"{bench.decisions.precision}"
    )


def kernel() -> str:
    """Runs a kernel. Triton builds a library in C when the first one starts: on a stock system just that fails."""
    import torch

    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_paths(scheme="posix_prefix")["include"], "Python.h")
    by_hand = f"sudo apt install gcc libc6-dev libpython{sysconfig.get_python_version()}-dev"
    fix = f"fix: ./motley bootstrap --phase gpu_driver; or on {platform.node()}: {by_hand}"
    lacking = [] if compiler else ["no C compiler (gcc or clang)"]
    lacking += [] if header.is_file() else [f"no {header}"]
    if lacking:
        raise BadInput(f"there is {' and '.join(lacking)}, which Triton builds kernels with", fix=fix)
    from train.measure import gpu_kernel

    gpus = range(torch.cuda.device_count())
    try:
        with gpu_kernel.nothing_built():
            for gpu in gpus:
                gpu_kernel.prove(f"cuda:{gpu}")
    except subprocess.CalledProcessError as failed:
        raise BadInput(f"{compiler} does not build what Triton needs: {failed}", fix=fix) from None
    return f"built by {compiler}, runs on {', '.join(torch.cuda.get_device_name(gpu) for gpu in gpus)}"


def load(bench: SimpleNamespace) -> str:
    from train.engine.make_optimizer import make_optimizer
    from train.recipes.sft import recipe as sft

    bench.module = sft.build(bench.config, bench.decisions, bench.base, bench.facts.device, 64)
    model = bench.module.model
    trained = [p for p in model.parameters() if p.requires_grad]
    bench.optimizer = make_optimizer(bench.config, trained)
    adapter, everything = model.get_nb_trainable_parameters()  # those of two in a byte, too
    return f"{bench.config.model}, {everything / 1e6:.1f} M weights, {adapter / 1e6:.2f} M trained"


def forward(bench: SimpleNamespace) -> str:
    import torch

    ids = torch.arange(3, 67, device=bench.facts.device)[None]
    bench.batch = {"input_ids": ids, "labels": ids, "position_ids": torch.arange(64, device=ids.device)[None]}
    bench.loss = bench.module(bench.batch)
    if not torch.isfinite(bench.loss):
        raise ValueError(f"the loss is {bench.loss.item()}")
    return f"loss {bench.loss.item() / 63:.3f}"


def backward(bench: SimpleNamespace) -> str:
    import torch

    (bench.loss / 63).backward()
    gradients = [p.grad for group in bench.optimizer.param_groups for p in group["params"]]
    missing = sum(g is None for g in gradients)
    if missing:
        raise ValueError(f"{missing} of {len(gradients)} trained weights got no gradient")
    norm = torch.stack([g.norm() for g in gradients]).norm().item()
    if not norm > 0:
        raise ValueError(f"the gradient's norm is {norm}")
    return f"gradient norm {norm:.4f}"


def optimizer_step(bench: SimpleNamespace) -> str:
    for group in bench.optimizer.param_groups:
        group["lr"] = 1e-2
    before = bench.loss.item() / 63
    bench.optimizer.step()
    after = bench.module(bench.batch).item() / 63
    if not after < before:
        raise ValueError(f"the loss went from {before:.3f} to {after:.3f}")
    return f"loss {before:.3f} → {after:.3f}"


def save_and_reload(bench: SimpleNamespace) -> str:
    import torch

    from train.engine import checkpoint
    from train.models.optimizer_step import Trained
    from train.models.weights import trained_weights

    model = bench.module.model
    wanted = {name: p.detach().clone() for name, p in trained_weights(model).items()}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(
            Path(folder), 1, model, Trained(trained_weights(model), bench.optimizer), {"math": {}, "best": None}
        )
        saved, problems = checkpoint.newest_intact(Path(folder))
        if saved is None:
            raise ValueError("; ".join(problems))
        size = sum(file.stat().st_size for file in saved.folder.iterdir())
        with torch.no_grad():
            for parameter in trained_weights(model).values():
                parameter.zero_()
        checkpoint.load(saved, model, bench.optimizer)
    if not all(torch.equal(p, wanted[name]) for name, p in trained_weights(model).items()):
        raise ValueError("the weights that came back are not those that were saved")
    return f"{size / 1e6:.1f} MB, bit for bit"
