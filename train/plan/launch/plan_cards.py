"""Whether a model fits machines that need not exist, and what travels between them. No GPU, no weights, no inventory.

`./motley plan --cards 24,6` asks it. With `speeds` (rows per second of each machine alone) it predicts the run instead:
shares, the step's time, and what each machine adds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.plan.estimate import compare_placements, predict_and_cut, sizes
from train.plan.launch.base_model import BaseFacts
from train.plan.launch.decide import fit_base, refuse, too_long
from train.plan.machines import gpu_types
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import Facts, Model
from train.plan.model.catalogue import config_of as model_config
from train.plan.model.memory import GIB, USABLE, layer_bytes, parameters
from train.plan.model.sources import BaseModel
from train.plan.model.verdict import Verdict
from train.plan.placement import fit
from train.plan.placement.first_way_that_fits import case_of
from train.plan.placement.hold_or_stream import lacks
from train.plan.placement.pipeline_placement import bubbles
from train.plan.settings import own_recipe, request
from train.plan.settings.read_settings import RunConfig
from train.plan.speed import prediction, step_time
from train.plan.speed.row_split import parse_speeds

ABOUT_MACHINES = {
    "main_memory": "NAME=GB,… beside a graphics card; where unknown, plenty",
    "tflops": "NAME=TFLOPS,… that each computes with in training: adds tokens per second",
    "link_mbit": "the slowest link between machines (default 1000)",
    "links": "with speeds: NAME=MBIT,… where a link is not link_mbit",
    "wireless": "with speeds: NAME,… whose link is Wi-Fi",
    "fixed": "with speeds: NAME=SECONDS,… of a step whatever its rows",
}
"""What may be said of such machines, beside the settings of a run."""
PLENTY_GB = 1 << 20
UNKNOWN = "how many weights it has, what memory it needs and what travels shows only when the model is built"
LIKE = "like --cards 24,8+8,cpu:16 (in GB, a comma between machines, + between cards of one), or desktop=4090,laptop=6"
MOST_GB = 300
"""No card has more memory: 4090 is a name."""


@dataclass(frozen=True, slots=True)
class Answer:
    request: request.Request
    fits: bool
    data: dict[str, object]
    lines: list[str]


def what_if(cards: str, values: Mapping[str, Any], home: Path | None = None) -> Answer:
    """`values`: settings of a run, as a launch takes them, and what ABOUT_MACHINES names."""
    wanted = request.read(
        dict(values), home, also=ABOUT_MACHINES, required="model", what="variable", default_data=False
    )
    about = {name: str(values.get(name, "")) for name in ABOUT_MACHINES}
    config, model, mbit = wanted.config, wanted.model, number("link_mbit", about["link_mbit"] or "1000")
    if model.limits:
        config = config.proven(Verdict.from_json({"family": model.name, **model.limits}))
    nodes = parse_cards(cards, named_numbers("main_memory", about["main_memory"]))
    facts = None if own_recipe.is_file(config.recipe) else model.facts or config.facts_of(*model_config(model))
    refuse(too_long(model.name, config, facts))
    fitted = fit_base(config, BaseFacts(model=BaseModel.of(model), shape=facts), nodes, mbit)
    if config.speeds:
        if config.IN_PIECES:
            what = f"speeds: machines share no step of recipe={config.recipe}, each takes as many pieces as it can"
            raise BadInput(what, fix="leave speeds out")
        machines = machines_of(config.speeds, nodes, about, mbit)
        return Answer(wanted, True, *predicted(fitted, config, machines))
    others = sizes.sizes(config, fitted, (), None)
    lines = [*as_text(fitted, model, config), *sizes.as_text(others, "--set ")]
    lines += ways_of(fitted, config, nodes, named_numbers("tflops", about["tflops"]))
    return Answer(wanted, fitted.ok, fit.to_json(fitted) | sizes_json(others), lines)


def ways_of(fitted: fit.Fit, config: RunConfig, nodes: list[Device], tflops: dict[str, float]) -> list[str]:
    """The ways to train a base that does not fit all nodes, beside one another."""
    if not isinstance(fitted.facts, Facts) or fitted.setup.full or config.IN_PIECES or len(nodes) < 2:
        return []
    if all(node.fits and node.place.weights == "gpu" for node in fitted.nodes) and not fitted.cut:
        return []
    if any(node.processes > 1 for node in nodes):  # the table knows one card a machine
        return []
    if tflops:
        require_each("tflops", tflops, nodes)
    case = case_of(config, nodes, fitted.facts, model=fitted.model, mbit=fitted.link_mbit)
    options = compare_placements.compared(case, tflops)
    lines = ["", *compare_placements.as_text(options, nodes, layer_bytes(fitted.facts, fitted.setup) / GIB)]
    if fitted.cut:
        lines += [f"pipes {fitted.pipes}: {fitted.cut.why}", *bubbles(fitted.pipes, config.rows_per_step)]
    return [*lines, *([fitted.lacking] if fitted.lacking else [])]


def predicted(
    fitted: fit.Fit, config: RunConfig, machines: list[step_time.Machine]
) -> tuple[dict[str, object], list[str]]:
    together = predict_and_cut.predict(fitted, machines, config)
    others = sizes.sizes(config, fitted, machines, together)
    about = f"{fitted.trained_weights / 1e6:.1f} M weights trained, {together.wire} wire"
    head = f"{fitted.model}: {about if fitted.facts else UNKNOWN}"
    data = {"ok": True, "failures": [], "model": fitted.model, **asdict(together), **sizes_json(others)}
    return data, [head, *prediction.as_text(together), *sizes.as_text(others, "--set ")]


def sizes_json(estimates: list[sizes.SizeEstimate]) -> dict[str, object]:
    return {"sizes": [asdict(estimate) for estimate in estimates]} if estimates else {}


def machines_of(speeds: str, nodes: list[Device], about: Mapping[str, str], mbit: float) -> list[step_time.Machine]:
    rates = parse_speeds(speeds)
    links, fixed = (named_numbers(what, about[what]) for what in ("links", "fixed"))
    wireless = {name for name in about["wireless"].split(",") if name}
    require_each("speeds", rates, nodes)
    for what, names in (("links", set(links)), ("fixed", set(fixed)), ("wireless", wireless)):
        require_known(what, names, nodes)
    return [
        step_time.Machine(name, speed, links.get(name, mbit), fixed.get(name, 0.0), name in wireless)
        for name, speed in rates.items()
    ]


def parse_cards(cards: str, main_gb: Mapping[str, float]) -> list[Device]:
    """A process for each card of a machine, which counts on the memory of the smallest, as in a launch."""
    nodes: list[Device] = []
    for place, part in enumerate(cards.split(","), start=1):
        name, _, memory = part.strip().rpartition("=")
        name = name or f"machine-{place}"
        gpu = not memory.startswith("cpu:")
        sizes_gb = of_cards(memory, part) if gpu else [gigabytes(memory.removeprefix("cpu:"), part)]
        beside = int(main_gb.get(name, PLENTY_GB) * GIB) // len(sizes_gb)
        kind, least = "cuda" if gpu else "cpu", int(min(sizes_gb) * GIB)
        # A machine that computes on its CPU has the set without bitsandbytes.
        nodes.append(Device(name, kind, least, bitsandbytes=gpu, main_bytes=beside, processes=len(sizes_gb)))
    require_known("main_memory", set(main_gb), nodes)
    if len({node.name for node in nodes}) < len(nodes):
        raise BadInput("cards: two machines have one name", fix=LIKE)
    return nodes


def of_cards(memory: str, part: str) -> list[float]:
    """The GB of each card of a machine: as said, else as its name says."""
    found = []
    for words in memory.split("+"):
        times, card = re.fullmatch(r"\s*(?:(\d)\s*[x×*])?\s*(.*?)\s*", words).groups()  # type: ignore[union-attr]
        said = re.search(r"(?:^|\s)([\d.]+)\s*(?:GB)?$", card, re.IGNORECASE)
        size = gigabytes(said[1], part) if said else 0
        if not 0 < size <= MOST_GB:
            size = gpu_types.memory_gb(f"{card} laptop" if "laptop" in part.lower() else card)
        if not size:
            raise BadInput(f"cards: '{part.strip()}' is no machine", fix=LIKE)
        found += [size] * int(times or 1)
    return found


def gigabytes(size: str, part: str) -> float:
    try:
        count = float(size.strip().upper().removesuffix("GB"))
    except ValueError:
        count = 0
    if not 0 < count < 1e5:
        raise BadInput(f"cards: '{part.strip()}' is no machine", fix=LIKE)
    return count


def number(what: str, text: str) -> float:
    try:
        return named_numbers(what, f"{what}={text}")[what]
    except BadInput:
        raise BadInput(f"{what}: '{text}' is no number above 0") from None


def named_numbers(what: str, text: str) -> dict[str, float]:
    try:
        return parse_speeds(text)
    except ValueError as error:
        raise BadInput(f"{what}: {str(error).split(' is not')[0]} is not NAME=NUMBER, above 0") from None


def require_known(what: str, names: set[str], nodes: list[Device]) -> None:
    machines = [node.name for node in nodes]
    if unknown := sorted(names - set(machines)):
        fix = f"they are {', '.join(machines)}; names of your own: --cards NAME=24,NAME=8"
        raise BadInput(f"{what}: {', '.join(unknown)} is none of the machines", fix=fix)


def require_each(what: str, numbers: Mapping[str, float], nodes: list[Device]) -> None:
    require_known(what, set(numbers), nodes)
    if missing := [node.name for node in nodes if node.name not in numbers]:
        raise BadInput(f"{what}: {', '.join(missing)}: a number is missing", fix="give one for each machine of --cards")


def as_text(fitted: fit.Fit, model: Model, config: RunConfig) -> list[str]:
    if fitted.facts is None:
        return [f"{fitted.model}: {UNKNOWN}"]
    setup, count = fitted.setup, f"{fitted.trained_weights / 1e6:.1f} M weights trained"
    trained = "all weights are trained" if setup.full else f"LoRA r {setup.lora_r}, {count}"
    if not setup.trains:
        trained = "nothing is trained"
    base = "" if model.source == "new" or setup.full else f"base in {setup.load_in}, "
    lines = [
        f"{fitted.model}: {counted(parameters(fitted.facts))} ({model.reason})",
        f"{base}{trained}, rows of {setup.row_length} {config.ROW_UNIT}, {setup.micro_batch} at a time",
        *(f"  {reason}" for reason in fitted.decisions.reasons),
        "",
        "machine         has GB  needs GB =    base + trained + optimizer + activations + runtime",
        *(node_line(node) for node in fitted.nodes),
    ]
    if len(fitted.nodes) > 1 and not config.IN_PIECES:
        seconds = " · ".join(
            f"{wire}: {sent / 1e6:.0f} MB, {fitted.seconds[wire]:.2f} s" for wire, sent in fitted.traffic.items()
        )
        link = f"at {fitted.link_mbit:.0f} Mbit/s ({len(fitted.nodes)} machines)"
        lines += ["", f"each machine sends per step {link}: {seconds}"]
    return [*lines, f"an estimate; {1 - USABLE:.0%} of a card is left to the desktop and to fragmentation"]


def counted(count: int) -> str:
    return f"{count / 1e9:.2f} B parameters" if count >= 1e8 else f"{count / 1e6:.1f} M parameters"


def node_line(node: fit.NodeFit) -> str:
    m = node.memory
    parts = (m.base, m.adapter + m.gradients, m.optimizer, m.activations + m.logits, m.runtime)
    figures = "".join(f"{part / GIB:>10.2f}" for part in parts)
    mark = f"✓ up to {node.micro_batch_up_to} rows at a time" if node.fits else f"✗ {node.fix_text}{lacks(node.place)}"
    mark += f", streams: {node.place.why}" if node.place.why else ""
    count = f"{node.device.processes} × " * (node.device.processes > 1)
    has = f"{count}{node.device.memory_bytes / GIB:.1f}"
    return f"{node.device.name:14}{has:>8}{m.total / GIB:>10.2f}{figures}   {mark}"
