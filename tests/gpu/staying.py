"""Workers stay while one is lost and comes back: nothing is loaded again. Over gloo, as between machines; under NCCL
all workers restart."""

from __future__ import annotations

import functools
import time
from typing import Any

from tests.gpu import runs, weights
from tests.gpu.line import Figures, Line, Place, Verdict, furthest, together, told, within

STEP = 4
"""Not the second: there ddp exchanges how its gradients lie in buckets, and cannot be left."""
LAYERS_OF_1_GB = 10
KNOWN_S, JOINED_S = 1.0, 1.5
"""Between knowing of a change and the next step; an H100 took 0.35 s with tiny and 0.55 s with 1 GB (November 2026)."""


def measure(place: Place, model: str, devices: list[str]) -> Figures:
    from tests.support.again import begun_again_s
    from tests.train.agents import Agents

    if model != "tiny":
        model = runs.apart(place, lambda: str(weights.few_layers(place, LAYERS_OF_1_GB)))
    how: dict[str, Any] = {"model": model, "schedule": "constant", "save_every": 100_000, "learning_rate": 1e-4}
    options = runs.options_for(place, **how, max_steps=100_000, sync="ddp")
    agents = Agents(place.folder / "three", options, cold=True)
    agents.odd = {
        name: {"device": device if place.on_card else "cpu"} for name, device in zip(agents.names, devices, strict=True)
    }
    limit_s = runs.deadline_s(place.device)
    stay, lost = [agents.names[0], agents.names[2]], agents.names[1]
    try:
        agents.start()
        agents.together(*agents.names, within_s=limit_s, step=STEP)
        workers = [agents.workers(name) for name in stay]
        killed = time.time()
        agents.kill(lost)
        lost_s = agents.together(*stay, within_s=limit_s)
        known_s = begun_again_s(agents, stay[0], killed)
        returned = time.time()
        agents.start(lost)
        agents.together(*agents.names, within_s=limit_s)
        joined_s = begun_again_s(agents, stay[0], returned)
        kept = [agents.workers(name) for name in stay] == workers
        agents.stop(within_s=limit_s)
    finally:
        agents.kill()
    losses = agents.losses(*stay)
    truth = runs.train(place.folder / "truth", runs.options_for(place, **how, max_steps=len(losses)), [place.device])
    seconds = {"again_s": lost_s, "known_s": known_s, "joined_s": joined_s}
    found = {name: round(value, 2) for name, value in seconds.items()}
    return {"stayed": kept, "card": place.on_card, **found, "losses": losses, "truth": truth.losses()}


def judge(values: Figures) -> Verdict:
    quick = values["known_s"] <= KNOWN_S and values["joined_s"] <= JOINED_S
    again = f"{values['again_s']} s after a kill they trained again, {values['known_s']} s after they knew"
    return together(
        told(values["stayed"], "who was whole stayed", "who was whole has started again"),
        (
            quick or not values["card"],  # beside other work a processor shows nothing of it
            f"{again} (at most {KNOWN_S}); with who came back {values['joined_s']} s after it was taken in "
            f"(at most {JOINED_S})",
        ),
        within("losses off one process by", furthest(values["losses"], values["truth"]), 1e-4),
    )


LINES = (
    Line(
        "stays",
        "two on a card and a CPU: who is whole stays while another one is killed and comes back",
        functools.partial(measure, model="tiny", devices=["cuda", "cuda", "cpu"]),
        judge,
    ),
    Line(
        "stays-1gb",
        "the same of three on a card, with a base of 1 GB (10 layers of tiny on a CPU)",
        functools.partial(measure, model=weights.FEW, devices=["cuda", "cuda", "cuda"]),
        judge,
    ),
)
