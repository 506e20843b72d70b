"""The first table of docs/BENCHMARKS.md: one line for each promise, from the kept figures of the other tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from tests.bench import front
from tests.bench.page import Figures, kept, over, spread, taken

NAME = "headlines"
LARGE_MB = 160
"""A LoRA of 40 million weights in fp32."""
PREFERENCE = ("48-preference", "`recipe=preference`, 48 pairs", 90)
Found = dict[str, list[Figures]]
Line = tuple[str, str, str]
"""What, measured, its limit or its peer."""


def table() -> list[str]:
    lines = ["| what | measured | its limit, its peer or the aim | section |", "| --- | --- | --- | --- |"]
    for name, section, make in SECTIONS:
        if found := kept(name):
            link = f"[{section}](#{section.lower().replace(' ', '-')}), {taken(name)}"
            lines += [f"| {what} | {figure} | {beside} | {link} |" for what, figure, beside in make(found)]
    return lines


def each(runs: list[Figures], value: Callable[[Any], float], form: str) -> str:
    return spread([value(run) for run in runs], form)


def turns(found: Found) -> Iterator[Line]:
    every = [turn for run in found[front.ROWS] for turn in zip(run["auto"], run["alone"], strict=True)]
    yield (
        f"unequal machines (60, 30, 15 % of a core) over the fastest alone, {front.ROWS} rows a step",
        spread([together / max(alone) for together, alone in every], "{:.2f}×", "turns"),
        "1×",
    )
    over_even = [together / len(alone) / min(alone) for together, alone in every]
    yield "… over the most that equal shares allow", spread(over_even, "{:.1f}×", "turns"), "1×"
    for part, rows, aim in (("8", "8 rows", 95), ("24", "24 rows", 95), ("96", "96 rows", 95), PREFERENCE):
        if runs := found.get(part):
            reached, allowed = ([r for run in runs for r in run[what]] for what in ("of the sum", "whole rows"))
            limit = f"{min(1, median(allowed)):.0%}: whole rows; aim {aim} %"
            yield f"… of their three speeds added, {rows} a step", spread(reached, "{:.0%}", "turns"), limit


def near_sum(found: Found) -> Iterator[Line]:
    from tests.bench.near_sum import AIMS, titled  # noqa: PLC0415  it imports the lab

    for part, aim in AIMS.items():
        if runs := found.get(part):
            reached, allowed = ([r for run in runs for r in run[what]] for what in ("of the sum", "whole rows"))
            what = f"of their speeds added, each with a whole computer, {':'.join(map(str, runs[-1]['speeds']))}"
            limit = f"{aim}; whole rows would leave {min(1, median(allowed)):.0%}"
            yield f"{what}: {titled(part)}", spread(reached, "{:.1%}", "turns"), limit


def balance(found: Found) -> Iterator[Line]:
    if runs := list(zip(found.get("trio", []), found.get("peer", []), strict=False)):
        over_peer = [over(trio["auto"], peer["peer"]) for trio, peer in runs]
        yield "… over transformers' Trainer under DDP", spread(over_peer, "{:.2f}×"), "1×"


def predict(found: Found) -> Iterator[Line]:
    from tests.bench.predict import summary  # noqa: PLC0415

    within, beside = summary(found).removesuffix(".").split("; ", 1)
    yield "a step's seconds as the plan predicts them", within.lower(), beside


def pipes(found: Found) -> Iterator[Line]:
    trio = found["trio-1000"]
    yield (
        "a model cut over three machines, 1000 Mbit/s, over streaming it on each",
        each(trio, lambda run: run["streamed took"] / run["took"], "{:.2f}×"), "1×",
    )  # fmt: skip


def stream(found: Found) -> Iterator[Line]:
    for tokens, runs in sorted(found.items(), key=lambda item: int(item[0])):
        what = f"a base streamed from disk, {tokens} tokens at a time: a step takes"
        yield what, each(runs, lambda run: run["stream"] / run["gpu"], "{:.2f}×"), "1×: kept in memory"


def exchange(found: Found) -> Iterator[Line]:
    from tests.bench.exchange import limit_s  # noqa: PLC0415  it imports the lab

    for link, wire in (("1000", "fp32"), ("1000", "bf16"), ("100", "fp32")):
        sizes = [one for run in found.get(link, []) for one in run["exchanged"] if one["wire"] == wire]
        over = [one["seconds"] / limit_s(one["mb"], wire, int(link)) for one in sizes if one["mb"] == LARGE_MB]
        what = f"{LARGE_MB} MB of gradients at {link} Mbit/s, {wire}: over the link's least time"
        yield what, spread(over, "{:.2f}×"), "1.07×: with TCP's headers and acknowledgements"


def slow_links(found: Found) -> Iterator[Line]:
    exact, local = (median(run["of the sum"] for run in found[f"20-{how}"]) for how in ("flat", "local"))
    yield (
        "all weights of a model over 20 Mbit/s, local steps",
        f"{local:.0%} of the sum of the speeds",
        f"98 %: whole rows; exact sync, which learns more in as many steps, {exact:.0%}",
    )


def faults(found: Found) -> Iterator[Line]:
    storm = found["storm"][-1]
    for what in dict.fromkeys(one["loss"] for one in storm["losses"]):
        again = [one["again_s"] for one in storm["losses"] if one["loss"] == what]
        silent = "5 to 9 s" if what.startswith("freeze") else "3 to 4.5 s"
        yield (
            f"{what}: the others train again",
            spread(again, "{:.1f} s", "losses"),
            f"{silent}: until it counts as lost",
        )
    error = f"{storm['error']:.1e}"
    what = f"{len(storm['losses'])} machines lost in {storm['steps']} steps: the loss curve of the first 500"
    yield f"{what}, from one process's", error, "≤ 1e-3"


def engines(found: Found) -> Iterator[Line]:
    def hung(engine: str) -> str:
        cells = [loss for run in found[engine] for loss in run.values()]
        count = sum(cell["again_s"] is None or cell["back_s"] is None for cell in cells)
        return f"{count} of {len(cells)}"

    peers = ", ".join(f"{engine} {hung(engine)}" for engine in ("torchrun", "torchft") if engine in found)
    yield "a machine is lost, in five ways: how often somebody had to help", hung("motley"), peers


def storm(found: Found) -> Iterator[Line]:
    from tests.bench.storm import summary  # noqa: PLC0415  it imports greenlet

    yield summary(found)


def launch(found: Found) -> Iterator[Line]:
    from tests.bench.launch import WHOLE  # noqa: PLC0415

    yield "a launch, from the command to the first step", each(found["early"], lambda r: r[WHOLE], "{:.1f} s"), "≤ 10 s"
    early, late = (found.get(way, []) for way in ("one early", "one late"))
    if early and late:
        aside = each(late, lambda run: run[WHOLE], "{:.1f} s") + ": loading only once the run is there"
        yield (
            "… on one machine, which shares two cores with the controller alone",
            each(early, lambda r: r[WHOLE], "{:.1f} s"),
            aside,
        )


def bootstrap(found: Found) -> Iterator[Line]:
    for part, what, aim in (
        ("bare", "a second bootstrap", "≤ 20 s"),
        ("whole", "… with drivers, environment, all-reduce", ""),
    ):
        yield what, each(found[part], lambda run: run["again"], "{:.1f} s"), aim


def look(found: Found) -> Iterator[Line]:
    for what, aim in (("check-versions", "≤ 5 s"), ("doctor", "≤ 30 s"), ("plan", "")):
        yield what, spread([run[what] for run in found["asked"]], "{:.1f} s"), aim


def demo(found: Found) -> Iterator[Line]:
    from tests.bench.demo import AIMS, TITLES  # noqa: PLC0415

    for part, aim in AIMS.items():
        if runs := found.get(part):
            yield (
                f"`./motley demo` a second time, {TITLES[part]}",
                each(runs, lambda run: sum(run["seconds"].values()), "{:.0f} s"),
                aim,
            )


def fan_out(found: Found) -> Iterator[Line]:
    from tests.bench.fan_out import LINK_S  # noqa: PLC0415

    limit = f"{LINK_S:.0f} s: one link"
    yield "200 MB to three nodes at 100 Mbit/s", each(found["chain"], lambda run: run["seconds"], "{:.1f} s"), limit


def prepare(found: Found) -> Iterator[Line]:
    whole = each(found["rates"], lambda run: run["core"] / run["alone"], "{:.0%}")
    then = each(found["rates"], lambda run: run["core_then"] / run["alone"], "{:.0%}")
    yield "`prepare` on a core", whole, f"of the tokenizer alone; {then} once it has begun, aim 95 %"
    if large := found.get("gigabyte"):
        yield (
            "… 1 GB on two cores",
            each(large, lambda run: run["wall_s"], "{:.0f} s"),
            "memory " + each(large, lambda run: run["peak_mb"], "{:.0f} MB") + ", aim 150",
        )


def pretrain(found: Found) -> Iterator[Line]:
    ours, peer = found["ours"], found["gpt2"]
    what = f"a model from nothing: held-out loss after {ours[0]['steps']} steps"
    beside = f"{median(run['loss'] for run in peer):.3f}: GPT-2's class after {peer[0]['steps']}"
    yield what, each(ours, lambda run: run["loss"], "{:.3f}"), beside


def images(found: Found) -> Iterator[Line]:
    ours = median(run["auto"] for run in found["ours"])
    yield "pictures, over a plain DDP script", each(found["plain"], lambda run: ours / run["plain"], "{:.2f}×"), "1×"


def scaling(found: Found) -> Iterator[Line]:
    one = median(run["1"] for run in found["equal"])
    five = [run["5"] / one for run in found["equal"] if "5" in run]
    yield "five equal machines over one", spread(five, "{:.2f}×"), "5×"


SECTIONS: tuple[tuple[str, str, Callable[[Found], Iterator[Line]]], ...] = (
    ("turns", "Unequal machines", turns),
    ("balance", "Unequal machines", balance),
    ("near_sum", "Where each has a whole computer", near_sum),
    ("scaling", "Unequal machines", scaling),
    ("faults", "Losing machines and getting them back", faults),
    ("engines", "Beside torchrun elastic and torchft", engines),
    ("storm", "A storm", storm),
    ("launch", "Launching", launch),
    ("demo", "The demo", demo),
    ("predict", "What the plan predicts", predict),
    ("exchange", "Exchanging gradients", exchange),
    ("slow_links", "Slow links", slow_links),
    ("stream", "A streamed base", stream),
    ("pipes", "A model cut over machines", pipes),
    ("bootstrap", "Bootstrap", bootstrap),
    ("look", "Environment and versions", look),
    ("fan_out", "Environment and versions", fan_out),
    ("prepare", "Prepare", prepare),
    ("images", "Pictures", images),
    ("pretrain", "A model from nothing", pretrain),
)
