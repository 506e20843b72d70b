"""What a launch decides, step by step: `decide` is the page to read. Pure, and without torch.

It decides for all nodes that are to take part, and writes it into the run's settings; the trainer then finds nothing
open, and checks. Where `train run` is started by hand, its first generation chooses by the same rule
(placement/first_way_that_fits.py), and keeps what it chose (train/engine/kept_decisions.py). From then on that is
obeyed, whoever leaves or comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from train.errors import BadInput
from train.plan.estimate import sizes
from train.plan.estimate.predict_and_cut import Foreseen, foresee
from train.plan.estimate.sizes import SizeEstimate
from train.plan.launch import extra_packages, what_blocks_a_launch
from train.plan.launch.base_model import BaseFacts, base_model
from train.plan.launch.new_or_resumed import choose_run, known_runs
from train.plan.machines.nodes import Device, LaunchFacts, PlanNode, Speeds, link, nodes_of, speeds
from train.plan.model import catalogue
from train.plan.model.sources import BaseModel
from train.plan.model.verdict import Verdict
from train.plan.placement.first_way_that_fits import choose
from train.plan.placement.fit import Fit
from train.plan.placement.pipeline_placement import bubbles, staged
from train.plan.settings.read_settings import RunConfig, Settings
from train.plan.settings.request import Request
from train.plan.speed.prediction import Prediction, slows_the_run
from train.plan.speed.step_time import wire_for


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What a launch decided, with its reasons. `plan_for_playbook.py` makes of it what the later steps read."""

    request: Request
    nodes: Sequence[PlanNode]
    settings: Settings
    """Every setting of the run, as it will be."""
    model: BaseModel
    model_bytes: int
    lacking: Sequence[str]
    """Nodes that have not the model yet."""
    old_code: Sequence[str]
    """Nodes whose training package is not the one here."""
    fit: Fit
    link_why: str
    speeds: Speeds = field(default_factory=Speeds)
    prediction: Prediction | None = None
    """What the nodes do together; None until every node's speed is known."""
    verdict: Verdict | None = None
    """What a miniature of the model has shown."""
    sizes: Sequence[SizeEstimate] = ()
    """What could be trained instead, of a recipe whose sizes have names."""
    warnings: Sequence[str] = ()

    @property
    def run(self) -> str:
        return self.request.config.run

    @property
    def wire(self) -> str:
        return wire_for(self.fit.seconds["fp32"], str(self.settings["wire"]))

    @property
    def sync_s(self) -> float:
        return self.fit.seconds[self.wire]


def decide(request: Request, facts: LaunchFacts, *, queue: bool = False) -> Decided:
    """The run that is launched, or BadInput with everything that blocks it. `queue`: it may wait for others."""
    refuse([] if queue else what_blocks_a_launch.running(facts.nodes))
    request = choose_run(request, known_runs(facts.nodes, facts.launched))
    if facts.verdict:
        request = replace(request, config=request.config.proven(facts.verdict))
    nodes = nodes_of(facts, request.config.device)
    old_code = [name for name, versions in facts.versions.items() if versions["train"] != facts.code]
    refuse(what_blocks_a_launch.no_place_in_queue(request.config.run, facts.nodes, old_code) if queue else [])
    refuse(what_blocks_a_launch.unequal(facts.versions) + what_blocks_a_launch.blocking(nodes))
    refuse(extra_packages.obstacles(request.config, nodes, facts.versions))
    mbit, link_why = link(nodes, facts.proof_mbit)
    base, fitted = fitting_base(request, facts, nodes, mbit)
    decided = {name: value for name, value in fitted.decisions.as_dict().items() if name in request.settings}
    settings = request.settings | decided  # once for all nodes, whoever leaves
    measured = known_speeds(request.config, facts, nodes, fitted, settings)
    foreseen = foresee(request.config, nodes, fitted, measured, mbit)
    settings |= {"pipes": foreseen.fit.pipes} if settings.get("pipes") == "auto" else {}
    return Decided(
        request=request,
        nodes=nodes,
        settings=settings,
        model=base.model,
        model_bytes=base.size,
        lacking=base.lacking,
        old_code=old_code,
        fit=foreseen.fit,
        link_why=link_why,
        speeds=foreseen.speeds,
        prediction=foreseen.prediction,
        verdict=facts.verdict,
        sizes=sizes.sizes(request.config, foreseen.fit, foreseen.machines, foreseen.prediction),
        warnings=warnings(request.config, facts, nodes, foreseen),
    )


def fitting_base(request: Request, facts: LaunchFacts, nodes: list[PlanNode], mbit: float) -> tuple[BaseFacts, Fit]:
    """The base and where it is on each node while it trains, or BadInput where it cannot be trained there."""
    config, devices = request.config, [node.device for node in nodes]
    streaming = [node.name for node in nodes if node.device.weights == "stream"]
    refuse(cannot_stream(config, facts.verdict, streaming))
    base = base_model(request, facts, devices)
    refuse(too_large_for_each(config, base, devices))
    fitted = fit_base(config, base, devices, mbit)
    refuse(no_numbers(facts.verdict, fitted.decisions.precision))
    refuse(too_long(base.model.name, config, fitted.facts))
    to_come = dict.fromkeys(base.lacking, base.size)
    kept = checkpoint_bytes(fitted, config.keep)
    refuse(what_blocks_a_launch.does_not_fit(nodes, fitted) + what_blocks_a_launch.blocking(nodes, to_come, kept))
    return base, fitted


def known_speeds(
    config: RunConfig, facts: LaunchFacts, nodes: list[PlanNode], fitted: Fit, settings: Settings
) -> Speeds:
    streams = [node.device.name for node in fitted.nodes if node.place.weights == "stream"]
    stages = staged(fitted.pipes, [node.device for node in fitted.nodes]) if fitted.cut else []
    return speeds(nodes, settings, facts.calibrated, config.COUNTED, streams=streams, staged=stages)


def warnings(config: RunConfig, facts: LaunchFacts, nodes: list[PlanNode], foreseen: Foreseen) -> list[str]:
    return [
        *(f"{why}; it is skipped" for why in facts.off.values()),
        *(f"{name} was not measured: {why}" for name, why in facts.unmeasured.items()),
        *what_blocks_a_launch.larger_card_idle(nodes),
        *slows_the_run(foreseen.prediction),
        *(bubbles(foreseen.fit.pipes, config.rows_per_step) if foreseen.fit.cut else []),
        *(
            f"{node.name} is on Wi-Fi: a cable would make every step quicker"
            for node in nodes
            if node.facts.route.wireless
        ),
    ]


def fit_base(config: RunConfig, base: BaseFacts, devices: list[Device], mbit: float) -> Fit:
    """Where the base is on each node while it trains, and whether that fits."""
    return choose(config.held(load_in=base.load_in), devices, base.shape, model=base.model.name, mbit=mbit)


def too_large_for_each(config: RunConfig, base: BaseFacts, devices: list[Device]) -> list[str]:
    """Refuses runs that one machine is to hold, and none can."""
    without = [
        what
        for what, run in config.runs_of_one_machine.items()
        if not any(fit_base(run, base, [device], 0.0).ok for device in devices)
    ]
    each = f"no machine has the memory for a trial with {'; nor for '.join(without)}"
    return [f"{each}\nfix: leave that out, or --set load_in=4bit"] if without else []


def cannot_stream(config: RunConfig, verdict: Verdict | None, names: list[str]) -> list[str]:
    """`names`: the nodes of which the inventory says that they stream, in every run."""
    try:
        streamed = config.held(weights="stream") if names else config
        if names and verdict:
            streamed.proven(verdict)
    except BadInput as why:
        what = f"motley_weights: stream on {', '.join(names)} does not go with this run"
        return [f"{what}: {str(why).splitlines()[0]}\nfix: write motley_weights: gpu there, in the inventory"]
    return []


def no_numbers(verdict: Verdict | None, precision: str) -> list[str]:
    """Why a model does not compute in the precision that these devices would take."""
    why = {"bf16": verdict.bf16, "fp16": verdict.fp16}.get(precision, "") if verdict else ""
    return [f"this model does not compute in {precision}: {why}\nfix: --set precision=fp32"] if why else []


def too_long(model: str, config: RunConfig, facts: catalogue.AnyFacts | None) -> list[str]:
    """Refuses rows beyond the positions that a model has seen."""
    rows = config.max_seq_length
    if not isinstance(facts, catalogue.Facts) or rows <= facts.positions:
        return []
    return [
        f"rows have up to {rows} tokens, {model} was made for {facts.positions}\n"
        f"fix: --set max_seq_length={facts.positions}, or a model that was made for longer texts"
    ]


def checkpoint_bytes(fitted: Fit, keep: int) -> int:
    """Disk for all checkpoints kept, the best one and the one being written: much where all weights are trained."""
    each = (4 + fitted.setup.optimizer_bytes) * fitted.trained_weights if fitted.setup.full else 0
    return max(what_blocks_a_launch.KEPT_FREE_BYTES, (keep + 2) * each)


def refuse(findings: list[str]) -> None:
    if findings:
        raise BadInput("\n".join(findings))
