"""What the nodes do together, once their speeds are known; by these a model is cut over them, or cut at all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from train.plan.estimate import pipeline_prediction
from train.plan.machines.nodes import PlanNode, Speeds
from train.plan.model.catalogue import Facts
from train.plan.model.counts import counts_of
from train.plan.model.memory import lora_parameters
from train.plan.placement.first_way_that_fits import case_of, may_be_cut, pipe_of_all
from train.plan.placement.fit import Fit, cut_by_speed, fit
from train.plan.settings.read_settings import RunConfig
from train.plan.speed import prediction, step_time
from train.plan.speed.prediction import MachinesPrediction, Prediction
from train.plan.speed.step_time import Machine

FEWER = ("q_proj", "v_proj")


@dataclass(frozen=True, kw_only=True, slots=True)
class Foreseen:
    """A way to hold the model, and what the nodes do together so."""

    fit: Fit
    speeds: Speeds
    machines: Sequence[Machine] = ()
    prediction: Prediction | None = None


def foresee(config: RunConfig, nodes: list[PlanNode], fitted: Fit, speeds: Speeds, mbit: float) -> Foreseen:
    """Once all nodes' speeds are known, what they do together; by these the model is cut, or cut at all."""
    if len(speeds.rows_per_s) < len(nodes):
        return Foreseen(fit=fitted, speeds=speeds)
    if fitted.cut:
        return as_stages(config, fitted, speeds)
    computing = machines(nodes, speeds, mbit)
    prediction = predict(fitted, computing, config)
    instead = cut_instead(config, fitted, speeds, prediction.together.step_s)
    return instead or Foreseen(fit=fitted, speeds=speeds, machines=computing, prediction=prediction)


def machines(nodes: list[PlanNode], speeds: Speeds, mbit: float) -> list[Machine]:
    """The nodes with their links. Where only some report one, the others have the measured one: Wi-Fi reports none."""
    reported = {node.name: node.facts.route.mbit for node in nodes}
    mixed = 0 < sum(map(bool, reported.values())) < len(nodes)
    return [
        Machine(
            node.name,
            speeds.rows_per_s[node.name],
            max(reported[node.name], mbit) if mixed else mbit,
            speeds.fixed_s.get(node.name, 0.0),
            node.facts.route.wireless,
        )
        for node in nodes
    ]


def as_stages(config: RunConfig, fitted: Fit, speeds: Speeds) -> Foreseen:
    fitted = cut_by_speed(fitted, speeds.rows_per_s)
    prediction = pipeline_prediction.predict(fitted, config, speeds.rows_per_s, speeds.fixed_s)
    return Foreseen(fit=fitted, speeds=speeds, prediction=prediction)


def cut_instead(config: RunConfig, streamed: Fit, speeds: Speeds, step_s: float) -> Foreseen | None:
    """A pipe of all nodes, where that is faster than to stream the base; for who has set neither."""
    devices = [node.device for node in streamed.nodes]
    all_stream = all(node.place.weights == "stream" and not node.device.weights for node in streamed.nodes)
    # A node's rate is that of all its cards, and a stage's that of one.
    several = len(devices) > 1 and all(device.processes == 1 for device in devices)
    if not (all_stream and several and may_be_cut(config, streamed.setup)):
        return None
    case = case_of(config, devices, streamed.facts, model=streamed.model, mbit=streamed.link_mbit)
    cut = replace(fit(case, pipe_of_all(case)), decisions=streamed.decisions)
    faster = pipeline_prediction.faster_than_streamed(cut, config, speeds.rows_per_s, step_s)
    return faster and as_stages(config, faster[0], replace(speeds, rows_per_s=faster[1]))


def predict(fit: Fit, machines: Sequence[step_time.Machine], config: RunConfig) -> MachinesPrediction:
    """What the machines would do together, with the wire that a run would choose."""
    weights = fit.sent_weights
    wire = step_time.wire_for(step_time.sync_seconds(machines, 4 * weights), config.wire)
    traffic = step_time.Traffic(weights, wire, fewer_targets(fit), config.max_steps)
    how = {"local": config.sync == "local", "dealt": config.deals}
    whole = prediction.predict(machines, config.rows_per_step, traffic, **how)
    return replace(whole, ways=[_as_settings(way, config) for way in whole.ways if _is_known(way, config)])


def fewer_targets(fit: Fit) -> dict[str, int]:
    """The usual smaller choice of targets, and how many weights are trained with it."""
    if not isinstance(fit.facts, Facts) or fit.setup.full or not set(fit.setup.lora_targets) - set(FEWER):
        return {}
    has_them = counts_of(fit.facts).adapters.keys() >= set(FEWER)
    return {",".join(FEWER): lora_parameters(fit.facts, fit.setup.lora_r, FEWER)} if has_them else {}


def _is_known(way: prediction.RemedyFigures, config: RunConfig) -> bool:
    return config.optimizer == "adamw" or "sync" not in way.settings  # as settings/every_run.py checks


def _as_settings(way: prediction.RemedyFigures, config: RunConfig) -> prediction.RemedyFigures:
    rows = way.settings.get("rows_per_step")
    return replace(way, settings=config.larger_step(rows)) if rows else way
