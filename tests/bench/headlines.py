"""The first table of docs/BENCHMARKS.md: one line for each promise, from the kept figures of the other tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from tests.bench import balance as shares
from tests.bench import demo as demos
from tests.bench import front, near_sum, storm, turns
from tests.bench.exchange import limit_s
from tests.bench.launch import WHOLE
from tests.bench.page import Figures, Found, every, kept, over, spread, taken
from tests.bench.predict import summary
from tests.support.tables import table as table_of

NAME = "headlines"
LARGE_MB = 160
"""A LoRA of 40 million weights in fp32."""
Line = tuple[str, str, str]
"""What, measured, its limit or its peer."""


def table() -> list[str]:
    rows = []
    for name, section, make in SECTIONS:
        found = kept(name)
        link = f"[{section}](#{section.lower().replace(' ', '-')}), {taken(name)}"
        rows += [(*line, link) for line in make(found)]
    return table_of(("what", "measured", "its limit, its peer or the aim", "section"), rows)


def each(runs: list[Figures], value: Callable[[Any], float], form: str) -> str:
    return spread([value(run) for run in runs], form)


def of_turns(found: Found) -> Iterator[Line]:
    runs = found[front.ROWS]
    pairs = list(zip(every(runs, "auto"), every(runs, "alone"), strict=True))
    over_fastest = [together / max(alone) for together, alone in pairs]
    over_even = [together / len(alone) / min(alone) for together, alone in pairs]
    what = f"unequal machines (60, 30, 15 % of a core) over the fastest alone, {front.ROWS} rows a step"
    yield what, spread(over_fastest, "{:.2f}×", "turns"), "1×"
    yield "… over the most that equal shares allow", spread(over_even, "{:.1f}×", "turns"), "1×"
    for part, title in turns.TITLES.items():
        reached, allowed = turns.reached_and_allowed(found[part])
        limit = f"{min(1, allowed):.0%}: whole rows; aim {90 if 'preference' in part else 95} %"
        yield f"… of their three speeds added: {title}", spread(reached, "{:.0%}", "turns"), limit


def of_near_sum(found: Found) -> Iterator[Line]:
    for part, aim in near_sum.AIMS.items():
        reached, allowed = turns.reached_and_allowed(found[part])
        speeds = ":".join(map(str, found[part][-1]["speeds"]))
        what = f"of their speeds added, each with a whole computer, {speeds}: {near_sum.TITLES[part]}"
        yield what, spread(reached, "{:.1%}", "turns"), f"{aim}; whole rows would leave {min(1, allowed):.0%}"


def of_balance(found: Found) -> Iterator[Line]:
    for part, case in shares.CASES.items():
        yield f"shares over an even split: {case.title}", each(found[part], over_peer, "{:.2f}×"), "1×"


def over_peer(run: Figures) -> float:
    return over(run["auto"], run["peer"])


def of_predict(found: Found) -> Iterator[Line]:
    within, beside = summary(found).removesuffix(".").split("; ", 1)
    yield "a step's seconds as the plan predicts them", within.lower(), beside


def of_pipes(found: Found) -> Iterator[Line]:
    what = "a model cut over three machines, 1000 Mbit/s, over streaming it on each"
    yield what, each(found["trio-1000"], lambda run: run["streamed took"] / run["took"], "{:.2f}×"), "1×"


def of_stream(found: Found) -> Iterator[Line]:
    for tokens, runs in sorted(found.items(), key=lambda item: int(item[0])):
        what = f"a base streamed from disk, {tokens} tokens at a time: a step takes"
        yield what, each(runs, lambda run: run["stream"] / run["gpu"], "{:.2f}×"), "1×: kept in memory"


def of_exchange(found: Found) -> Iterator[Line]:
    for link, wire in (("1000", "fp32"), ("1000", "bf16"), ("100", "fp32")):
        large = [one for one in every(found[link], "exchanged") if (one["mb"], one["wire"]) == (LARGE_MB, wire)]
        least = limit_s(LARGE_MB, wire, int(link))
        what = f"{LARGE_MB} MB of gradients at {link} Mbit/s, {wire}: over the link's least time"
        over_limit = [one["seconds"] / least for one in large]
        yield what, spread(over_limit, "{:.2f}×"), "1.07×: with TCP's headers and acknowledgements"


def of_slow_links(found: Found) -> Iterator[Line]:
    exact, local = (median(run["of the sum"] for run in found[f"20-{how}"]) for how in ("flat", "local"))
    reached = f"{local:.0%} of the sum of the speeds"
    limit = f"98 %: whole rows; exact sync, which learns more in as many steps, {exact:.0%}"
    yield "all weights of a model over 20 Mbit/s, local steps", reached, limit


def of_faults(found: Found) -> Iterator[Line]:
    losses = found["storm"][-1]["losses"]
    for what in dict.fromkeys(one["loss"] for one in losses):
        again = [one["again_s"] for one in losses if one["loss"] == what]
        silent = "5 to 9 s" if what.startswith("freeze") else "3 to 4.5 s"
        limit = f"{silent}: until it counts as lost"
        yield f"{what}: the others train again", spread(again, "{:.1f} s", "losses"), limit
    steps, error = (found["storm"][-1][what] for what in ("steps", "error"))
    what = f"{len(losses)} machines lost in {steps} steps: the loss curve of the first 500, from one process's"
    yield what, f"{error:.1e}", "≤ 1e-3"


def of_engines(found: Found) -> Iterator[Line]:
    def hung(engine: str) -> str:
        cells = [loss for run in found[engine] for loss in run.values()]
        count = sum(cell["again_s"] is None or cell["back_s"] is None for cell in cells)
        return f"{count} of {len(cells)}"

    peers = ", ".join(f"{engine} {hung(engine)}" for engine in ("torchrun", "torchft"))
    yield "a machine is lost, in five ways: how often somebody had to help", hung("motley"), peers


def of_storm(found: Found) -> Iterator[Line]:
    yield storm.summary(found)


def of_launch(found: Found) -> Iterator[Line]:
    whole = {way: each(runs, lambda run: run[WHOLE], "{:.1f} s") for way, runs in found.items()}
    yield "a launch, from the command to the first step", whole["early"], "≤ 10 s"
    what = "… on one machine, which shares two cores with the controller alone"
    yield what, whole["one early"], f"{whole['one late']}: loading only once the run is there"


def of_bootstrap(found: Found) -> Iterator[Line]:
    seconds = {part: each(found[part], lambda run: run["again"], "{:.1f} s") for part in ("bare", "whole")}
    yield "a second bootstrap", seconds["bare"], "≤ 20 s"
    yield "… with drivers, environment, all-reduce", seconds["whole"], ""


def of_look(found: Found) -> Iterator[Line]:
    for what, aim in (("check-versions", "≤ 5 s"), ("doctor", "≤ 30 s"), ("plan", "")):
        yield what, spread([run[what] for run in found["asked"]], "{:.1f} s"), aim


def of_demo(found: Found) -> Iterator[Line]:
    for part, aim in demos.AIMS.items():
        whole = each(found[part], lambda run: sum(run["seconds"].values()), "{:.0f} s")
        yield f"`./motley demo` a second time, {demos.TITLES[part]}", whole, aim


def of_prepare(found: Found) -> Iterator[Line]:
    rates, large = found["rates"], found["gigabyte"]
    then = each(rates, lambda run: run["core_then"] / run["alone"], "{:.0%}")
    beside = f"of the tokenizer alone; {then} once it has begun, aim 95 %"
    yield "`prepare` on a core", each(rates, lambda run: run["core"] / run["alone"], "{:.0%}"), beside
    memory = each(large, lambda run: run["peak_mb"], "{:.0f} MB")
    yield "… 1 GB on two cores", each(large, lambda run: run["wall_s"], "{:.0f} s"), f"memory {memory}, aim 150"


def of_pretrain(found: Found) -> Iterator[Line]:
    ours, peer = found["ours"], found["gpt2"]
    what = f"a model from nothing: held-out loss after {ours[0]['steps']} steps"
    beside = f"{median(run['loss'] for run in peer):.3f}: GPT-2's class after {peer[0]['steps']}"
    yield what, each(ours, lambda run: run["loss"], "{:.3f}"), beside


SECTIONS: tuple[tuple[str, str, Callable[[Found], Iterator[Line]]], ...] = (
    ("turns", "Unequal machines", of_turns),
    ("balance", "Unequal machines", of_balance),
    ("near_sum", "Where each has a whole computer", of_near_sum),
    ("faults", "Losing machines and getting them back", of_faults),
    ("engines", "Beside torchrun elastic and torchft", of_engines),
    ("storm", "A storm", of_storm),
    ("launch", "Launching", of_launch),
    ("demo", "The demo", of_demo),
    ("predict", "What the plan predicts", of_predict),
    ("exchange", "Exchanging gradients", of_exchange),
    ("slow_links", "Slow links", of_slow_links),
    ("stream", "A streamed base", of_stream),
    ("pipes", "A model cut over machines", of_pipes),
    ("bootstrap", "Bootstrap", of_bootstrap),
    ("look", "Environment and versions", of_look),
    ("prepare", "Prepare", of_prepare),
    ("pretrain", "A model from nothing", of_pretrain),
)
