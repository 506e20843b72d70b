"""What a launch decides, step by step: `decide` is the page to read. Pure, and without torch.

It decides for all nodes that are to take part, and writes it into the run's settings; the trainer then finds nothing
open, and checks. Where `train run` is started by hand, its first generation chooses, by the same rule
(auto_settings.py), and keeps it (decided.py). From then on it is obeyed, whoever leaves or comes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from train.errors import BadInput
from train.plan.estimate import pipeline_prediction, sizes
from train.plan.launch import obstacles
from train.plan.launch.auto_settings import choose
from train.plan.launch.base_model import BaseFacts, base_model
from train.plan.launch.new_or_resumed import choose_run, known_runs
from train.plan.launch.plan import Plan
from train.plan.machines.nodes import Device, LaunchFacts, PlanNode, Speeds, link, machines, nodes_of, speeds
from train.plan.model import catalogue
from train.plan.placement.fit import Fit, cut_by_speed, fit, predict, with_pipes
from train.plan.placement.pipeline_placement import bubbles, may_be_cut, staged
from train.plan.settings.config import RunConfig
from train.plan.settings.request import Request
from train.plan.settings.sft import SftConfig
from train.plan.speed.prediction import Prediction, slows_the_run
from train.plan.speed.speedup import Machine


def decide(request: Request, facts: LaunchFacts) -> Plan:
    """The run that is launched, or BadInput with everything that blocks it."""
    refuse(obstacles.running(facts.looks))
    request = choose_run(request, known_runs(facts.looks, facts.launched))
    nodes = nodes_of(facts, request.config.device)
    refuse(obstacles.unequal(facts.versions) + obstacles.blocking(nodes))
    mbit, link_why = link(nodes, facts.proof_mbit)
    devices = [node.as_device(unsloth=bool(facts.versions[node.name].get("unsloth"))) for node in nodes]
    base = base_model(request, facts, devices)
    fitted = fit_base(request.config, base, devices, mbit)
    refuse(too_long(base.model.name, request.config, fitted.facts))
    to_come = dict.fromkeys(base.lacking, base.size)
    kept = checkpoint_bytes(fitted, request.config.keep)
    refuse(obstacles.does_not_fit(nodes, fitted) + obstacles.blocking(nodes, to_come, kept))
    decided = {name: value for name, value in fitted.decisions.as_dict().items() if name in request.settings}
    settings = request.settings | decided  # once for all nodes, whoever leaves
    streams = [node.device.name for node in fitted.nodes if node.place.weights == "stream"]
    parts = staged(fitted.pipes, [node.device for node in fitted.nodes]) if fitted.cut else []
    known = speeds(nodes, settings, facts.calibrated, request.config.COUNTED, streams=streams, staged=parts)
    fitted, known, computing, prediction = foresee(request.config, nodes, fitted, known, mbit)
    settings |= {"pipes": fitted.pipes} if settings.get("pipes") == "auto" else {}
    wireless = [node.name for node in nodes if node.look["route"]["wireless"]]
    return Plan(
        request=request,
        nodes=nodes,
        settings=settings,
        model=base.model,
        model_bytes=base.size,
        lacking=base.lacking,
        old_code=[name for name, versions in facts.versions.items() if versions["train"] != facts.code],
        fit=fitted,
        link_why=link_why,
        speeds=known,
        prediction=prediction,
        sizes=sizes.sizes(request.config, fitted, computing, prediction),
        warnings=[
            *(f"{why}; it is skipped" for why in facts.off.values()),
            *obstacles.larger_card_idle(nodes),
            *slows_the_run(prediction),
            *(bubbles(fitted.pipes, request.config.rows_per_step) if fitted.cut else []),
            *(f"{name} is on Wi-Fi: a cable would make every step quicker" for name in wireless),
        ],
    )


def fit_base(config: RunConfig, base: BaseFacts, devices: list[Device], mbit: float) -> Fit:
    """Where the base is on each node while it trains, and whether that fits."""
    if isinstance(config, SftConfig) and base.load_in:
        config = replace(config, load_in=base.load_in)
    config, why_cut = with_pipes(config, devices, base.shape)
    about: dict[str, Any] = {"model": base.model.name, "facts": base.shape, "mbit": mbit, "why_cut": why_cut}
    return fit(config, choose(config, devices, base.shape), devices, **about)


def too_long(model: str, config: RunConfig, facts: catalogue.AnyFacts | None) -> list[str]:
    """Rows beyond the positions that a model has seen."""
    rows = config.max_seq_length
    if not isinstance(facts, catalogue.Facts) or rows <= facts.positions:
        return []
    return [
        f"rows have up to {rows} tokens, {model} was made for {facts.positions}\n"
        f"fix: --set max_seq_length={facts.positions}, or a model that was made for longer texts"
    ]


def foresee(
    config: RunConfig, nodes: list[PlanNode], fitted: Fit, known: Speeds, mbit: float
) -> tuple[Fit, Speeds, list[Machine], Prediction | None]:
    """What the nodes do together, once all their speeds are known; by these the model is cut, or cut at all."""
    if len(known.rows_per_s) < len(nodes):
        return fitted, known, [], None
    if not fitted.cut:
        computing = machines(nodes, known, mbit)
        prediction = predict(fitted, computing, config)
        faster = cut_instead(config, nodes, fitted, known, prediction)
        if not faster:
            return fitted, known, computing, prediction
        fitted, known = faster
    fitted = cut_by_speed(fitted, config, known.rows_per_s)
    return fitted, known, [], pipeline_prediction.predict(fitted, config, known.rows_per_s, known.fixed_s)


def cut_instead(
    config: RunConfig, nodes: list[PlanNode], streamed: Fit, known: Speeds, prediction: Prediction
) -> tuple[Fit, Speeds] | None:
    """A pipe of all nodes, where that is faster than to stream the base; for who has set neither."""
    all_stream = all(one.place.weights == "stream" and not one.device.weights for one in streamed.nodes)
    several = len(nodes) > 1 and all(node.processes == 1 for node in nodes)
    if not (isinstance(config, SftConfig) and all_stream and several and may_be_cut(config, streamed.setup)):
        return None
    config = replace(config, pipes="+".join(node.name for node in nodes))
    devices = [node.device for node in streamed.nodes]
    about: dict[str, Any] = {"model": streamed.model, "facts": streamed.facts, "mbit": streamed.link_mbit}
    cut = fit(config, streamed.decisions, devices, **about)
    step_s = prediction.together.step_s
    found = pipeline_prediction.faster_than_streamed(cut, config, known.rows_per_s, step_s)
    return found and (found[0], replace(known, rows_per_s=found[1]))


def checkpoint_bytes(fitted: Fit, keep: int) -> int:
    """Disk for all checkpoints kept, the best one and the one being written: much where all weights are trained."""
    each = (4 + fitted.setup.optimizer_bytes) * fitted.trained_weights if fitted.setup.full else 0
    return max(obstacles.KEPT_FREE_BYTES, (keep + 2) * each)


def refuse(findings: list[str]) -> None:
    if findings:
        raise BadInput("\n".join(findings))
