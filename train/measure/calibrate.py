"""`python -m train calibrate`: how fast this machine computes, with the model and the rows that are meant.

    python -m train calibrate --model qwen3-4b --max-seq-length 512
    python -m train calibrate --model llama2-13b --pipes a+b --part 0-22

Whole steps of one and of several micro-batches, random rows of full length, this process alone; no data is needed. What
was measured is kept in MOTLEY_HOME/calibration.json by model, settings, device and environment, and not measured again.
Without a micro_batch it is the one that a run would take, found on a GPU by the same trials. The model is loaded once;
the steps take ten seconds at most, or two steps where one takes longer. Of a model that is cut, a part is measured:
layers of a row per second. Where the model makes its rows itself, a row is made and trained on; by vLLM where it makes
them, and where that is not there yet nothing is measured, and it says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.cache import home_dir
from train.files import write_atomic
from train.models.wrapper import text_of
from train.nvidia_smi import Silent
from train.plan.settings.every_run import COMMON_COUNTS
from train.plan.settings.read_settings import RECIPES, SETTINGS, RunConfig, add_settings, config_of

if TYPE_CHECKING:
    from train.recipes import Recipe

BUDGET_S = 10.0
LARGER = 3
"""How many times as many micro-batches the second kind of step has: what does not depend on rows is left at none."""
REPEATS = 5
FILE = "calibration.json"


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a machine as `plan` takes it in `speeds` and `fixed`."""

    rows_per_s: float
    fixed_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    own = [name for settings in RECIPES.values() for name in settings.COUNTED if name in SETTINGS]
    add_settings(parser, dict.fromkeys(["recipe", *own, *COMMON_COUNTS, "pipes"]))
    parser.add_argument("--part", type=part_of, metavar="A-B", help="the layers from A to before B, counted from 0")
    parser.add_argument("--known-only", action="store_true", help="show what was measured before; measure nothing")


def part_of(text: str) -> tuple[int, int]:
    first, _, end = text.partition("-")
    return int(first), int(end)


def main(args: argparse.Namespace) -> int:
    config = config_of(args)
    started = time.perf_counter()
    file = home_dir() / FILE
    key = key_of(config, args.part)
    speed, cached = known(file).get(key), True
    if speed is None and not args.known_only:
        speed, cached = measure(config, args.part), False
        keep(file, key, speed)
    seconds = round(time.perf_counter() - started, 2)
    if args.json:
        found = asdict(speed) if speed else None
        print(json.dumps({"ok": True, "speed": found, "cached": cached, "key": key, "seconds": seconds}))
    elif speed:
        source = "measured before" if cached else f"measured in {seconds} s"
        print(f"{speed.rows_per_s:.3g} rows/s, {speed.fixed_s:.3g} s a step beside them ({source}, kept in {file})")
    else:
        print("not measured yet")
    return 0


# -- what was measured before ------------------------------------------------------------------------------------


def key_of(config: RunConfig, part: tuple[int, int] | None = None) -> str:
    """Everything that a speed depends on; needs no torch."""
    from train.measure.versions import environment_lock

    facts = {
        "environment": environment_lock(),
        "machine": [platform.machine(), gpus() or processor()],
        **{name: getattr(config, name) for name in COMMON_COUNTS},
        **config.counted,
        **({"part": part} if part else {}),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def gpus() -> list[str]:
    from train.cluster.gpu_log import read_gpus

    try:
        return [gpu["name"] for gpu in read_gpus()]
    except Silent:
        return []


def processor() -> list[Any]:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return [next(names, platform.processor()), len(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS")]


def known(file: Path) -> dict[str, Speed]:
    try:
        return {key: Speed(**facts) for key, facts in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def keep(file: Path, key: str, speed: Speed) -> None:
    found = {old: asdict(value) for old, value in known(file).items()} | {key: asdict(speed)}
    write_atomic(file, json.dumps(found, indent=1).encode())


# -- measuring -----------------------------------------------------------------------------------------------------


def measure(config: RunConfig, part: tuple[int, int] | None = None) -> Speed:
    """Measures with what the recipe has beside the run, as a server of answers, which ends with it."""
    from train import recipes

    recipe = recipes.of(config)
    try:
        return measured(config, recipe, part)
    finally:
        if maker := recipes.making(recipe):
            maker.close()


def measured(config: RunConfig, recipe: Recipe, part: tuple[int, int] | None) -> Speed:
    """Loads the model, or a part of it, as a run would and lets it train on random rows."""
    import torch

    from train import recipes
    from train.engine.after_loading import choose_micro_batch
    from train.engine.build_or_keep_model import make_trained
    from train.models.device import look
    from train.plan.placement.first_way_that_fits import choose_on_devices
    from train.plan.placement.fit import placed

    base = recipe.start_for_trial(config)
    facts = look(config, "here", 0, base)
    shape = recipe.shape(config, base)
    fitted = choose_on_devices(config, [facts], shape)
    config, _ = placed(config, fitted, 0)
    decisions = fitted.decisions
    layers = {"layers": part} if part else {}
    module = recipe.build(config, decisions, base, facts.device, config.max_seq_length, **layers)
    if maker := recipes.making(recipe):
        maker.ready(lambda _: None)
    trained = make_trained(config, recipe, module, decisions.precision, facts.device, on_cpu=False)
    trained.set_rate(1e-9)
    parameters, optimizer = trained.parameters, trained.optimizer
    if part and facts.device != "cpu":  # a part alone cannot try a whole step
        config = replace(config, micro_batch=config.micro_batch or 1)
    rows, _ = choose_micro_batch(config, recipe, module, trained, config.max_seq_length, 1)
    vocabulary: int = getattr(text_of(module.model.config), "vocab_size", 2)
    batch = recipe.full_rows(rows, config.max_seq_length, vocabulary, facts.device)
    if part:
        gradients, counted = train_part(module, batch, parameters, decisions.precision, facts.device)
    else:
        gradients, counted = train_whole(module, batch, parameters, facts.device), 1.0

    def step(micro_batches: int) -> float:
        started = time.perf_counter()
        gradients(micro_batches)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if facts.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    speed = fit(step, rows * counted)
    return with_answers(speed, maker.answer_s(config, module)) if maker else speed


def with_answers(speed: Speed, answer_s: float) -> Speed:
    """The speed over both halves of a step: a row is made before it is trained on."""
    return replace(speed, rows_per_s=1 / (1 / speed.rows_per_s + answer_s))


def train_whole(module: Any, batch: Any, parameters: list[Any], device: str) -> Callable[[int], object]:
    from train.parallel.gradient_exchange import FlatSync

    flat = FlatSync(module, parameters, "fp32", device)
    return lambda micro_batches: flat.gradients([batch] * micro_batches, 1.0)


def train_part(
    module: Any, batch: Any, parameters: list[Any], precision: str, device: str
) -> tuple[Callable[[int], object], float]:
    """A step of a part of the model, and what a row costs it, in layers. Hidden states and their gradients are random
    too; weights of layers elsewhere are updated as in a run."""
    import torch

    from train.parallel.pipeline import Stage

    stage = Stage(module.model, (0,), 0, precision, device)
    came = torch.randn(*batch["input_ids"].shape, stage.width, dtype=stage.dtype, device=device)

    def gradients(micro_batches: int) -> None:
        for _ in range(micro_batches):
            hidden = None if stage.part.begins else came.clone().requires_grad_()
            out = stage.forward(batch, hidden)
            stage.backward(out, 1.0, None if stage.part.ends else came)
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    return gradients, stage.cost


def fit(step: Callable[[int], float], rows: float, budget_s: float = BUDGET_S) -> Speed:
    """Takes steps of one and of several micro-batches in turns until the time is up; a line through the medians."""
    warm_s = step(1)
    if warm_s > budget_s / 2:  # a large model: one more step, and no line
        return Speed(rows / step(1), 0.0)
    small: list[float] = []
    large: list[float] = []
    spent_s = 0.0
    while len(small) < REPEATS and (not small or spent_s + small[-1] + large[-1] < budget_s):
        small.append(step(1))
        large.append(step(LARGER))
        spent_s += small[-1] + large[-1]
    return line(statistics.median(small), statistics.median(large), rows)


def line(one_s: float, many_s: float, rows: float) -> Speed:
    """The speed by a line through both: noise makes rows neither free nor dearer than their mean."""
    mean_s = many_s / LARGER
    each_s = min(max((many_s - one_s) / (LARGER - 1), 0.5 * mean_s), mean_s)
    return Speed(rows / each_s, max(0.0, one_s - each_s))
