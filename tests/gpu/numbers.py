"""fp16 against bf16, and AdamW's 8-bit form against AdamW: each the same run twice."""

from __future__ import annotations

import statistics

from tests.gpu import runs
from tests.gpu.line import TRAINS, Figures, Line, Place, Verdict, furthest, off, together, told, within
from tests.gpu.two import stop_at

STEPS = {"cpu": 30, "card": 200}
HALF = 20


def measure_half(place: Place) -> Figures:
    steps = STEPS["card" if place.on_card else "cpu"]
    begun = {}
    for precision in ("fp16", "bf16"):
        options = runs.options_for(place, precision=precision, max_steps=steps, save_every=500, proof_every=500)
        begun[precision] = runs.Runs(place.folder / precision, options, [place.device])
    return {"steps": steps, **{precision: runs.well(one).losses() for precision, one in begun.items()}}


def judge_half(values: Figures) -> Verdict:
    fp16, bf16, steps = values["fp16"], values["bf16"], values["steps"]
    ends = [statistics.fmean(losses[-max(1, steps // 5) :]) for losses in (fp16, bf16)]
    learned = bf16[-1] < bf16[0] and fp16[-1] < fp16[0]
    return together(
        (len(fp16) == len(bf16) == steps, f"{len(fp16)} steps in fp16, {len(bf16)} in bf16"),
        told(learned, "both learn", "the loss does not fall"),
        within("no loss further apart than", furthest(fp16, bf16), 5e-2),
        within("their ends", off(*ends), 1e-2),
    )


def measure_adamw8bit(place: Place) -> Figures:
    """With an adapter large enough that bitsandbytes keeps its state in 8 bit; stopped in the middle, and not."""
    own = {"lora_r": 64, "max_steps": 2 * HALF, "save_every": HALF, "proof_every": HALF}
    plain = runs.Runs(place.folder / "adamw", runs.options_for(place, **own), [place.device])
    options = runs.options_for(place, **own, optimizer="adamw8bit")
    whole = runs.Runs(place.folder / "whole", options, [place.device])
    runs.Runs(place.folder / "parts", options, [place.device], change=stop_at(HALF)).wait()
    parts = runs.train(place.folder / "parts", options, [place.device])
    plain, whole = runs.well(plain), runs.well(whole)
    saved = [one.node_home(0) / f"models/checkpoints/run/step-{2 * HALF}" for one in (plain, whole)]
    sizes = [sum(file.stat().st_size for file in folder.glob("optimizer*")) for folder in saved]
    adapters = [one.adapters()[0].get(str(2 * HALF), "") for one in (whole, parts)]
    found = {"losses": whole.losses(), "truth": plain.losses(), "state_bytes": sizes[::-1], "adapters": adapters}
    return {**found, "starts": [event["step"] for event in parts.events(0, "start")]}


def judge_adamw8bit(values: Figures) -> Verdict:
    small, large = values["state_bytes"]
    whole, parts = values["adapters"]
    same = bool(whole) and whole == parts
    return together(
        within("losses off AdamW's by", furthest(values["losses"], values["truth"]), 5e-2),
        (0 < small < 0.5 * large, f"its state takes {small / max(1, large):.0%} of AdamW's"),
        (values["starts"] == [0, HALF], f"began at steps {values['starts']}"),
        told(same, "stopped and resumed bit for bit", "stopped and resumed it made another adapter"),
    )


LINES = (
    Line("fp16-bf16", "200 steps in fp16 against bf16 (30 on a CPU)", measure_half, judge_half),
    Line(
        "adamw8bit",
        "AdamW in 8 bit against AdamW; its resume",
        measure_adamw8bit,
        judge_adamw8bit,
        needs=(*TRAINS, "bitsandbytes", "a card"),
        simulated=True,
    ),
)
