"""A worker on a card stays while another one is lost and comes back: nothing is loaded again. Over gloo, as where a CPU
takes part; under NCCL all workers restart."""

from __future__ import annotations

from tests.gpu import runs
from tests.gpu.line import Figures, Line, Place, Verdict, furthest, together, within

STEP = 4
"""Not the second: there ddp exchanges how its gradients lie in buckets, and cannot be left."""


def measure(place: Place) -> Figures:
    from tests.train.agents import Agents

    options = runs.options_for(place, max_steps=100_000, schedule="constant", sync="ddp", save_every=100_000)
    agents = Agents(place.folder / "three", options, cold=True)
    agents.odd = {name: {"device": "cuda" if place.on_card else "cpu"} for name in agents.names[:2]}
    agents.odd[agents.names[2]] = {"device": "cpu"}
    limit_s = runs.deadline_s(place.device)
    stay, lost = [agents.names[0], agents.names[2]], agents.names[1]
    try:
        agents.start()
        agents.together(*agents.names, within_s=limit_s, step=STEP)
        workers = [agents.workers(name) for name in stay]
        agents.kill(lost)
        lost_s = agents.together(*stay, within_s=limit_s)
        agents.start(lost)
        agents.together(*agents.names, within_s=limit_s)
        kept = [agents.workers(name) for name in stay] == workers
        agents.stop(within_s=limit_s)
    finally:
        agents.kill()
    losses = agents.losses(*stay)
    truth = runs.options_for(place, max_steps=len(losses), schedule="constant", save_every=100_000)
    found = {"stayed": kept, "again_s": round(lost_s, 2), "losses": losses}
    return {**found, "truth": runs.train(place.folder / "truth", truth, [place.device]).losses()}


def judge(values: Figures) -> Verdict:
    return together(
        (values["stayed"], "who was whole stayed" if values["stayed"] else "who was whole has started again"),
        (True, f"{values['again_s']} s after a kill they trained again"),
        within("losses off one process by", furthest(values["losses"], values["truth"]), 1e-4),
    )


LINES = (
    Line(
        name="stays",
        about="two on a card and a CPU: who is whole stays while another one is killed and comes back",
        needs=("transformers and peft",),
        measure=measure,
        judge=judge,
    ),
)
