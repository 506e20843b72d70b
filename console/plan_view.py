"""What a person sees of a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from console.text_layout import clock, drawn
from train.plan.estimate import sizes
from train.plan.estimate.sizes import cost_of_exchange
from train.plan.launch.decide import Decided
from train.plan.launch.plan_for_playbook import adapter_to_bring, predicted
from train.plan.machines.nodes import gb
from train.plan.model.memory import GIB
from train.plan.placement.fit import Fit, NodeFit
from train.plan.settings.every_run import LEAST_STEPS, LENGTH_RULE
from train.plan.settings.pipes import parse_pipes
from train.plan.speed.prediction import remedies_as_text
from train.runlog.pipe_in_words import layer_words

BESIDE = "vLLM beside each process, with the base once more; the first step waits until it has started, a minute or so"


def lines(plan: Decided, cost: str = "", data: Mapping[str, Any] | None = None) -> list[str]:
    """The lines of a plan. `data`: what the launch has seen of the file to train on."""
    config, known = plan.request.config, plan.fit.facts is not None
    head = head_of_pieces(plan) if config.IN_PIECES else head_of_training(plan)
    does = "takes" if config.IN_PIECES else "rows a step"
    table: list[tuple[str, ...]] = [("node", "computes on", "memory", "network", "free", does)]
    entries = {entry.device.name: entry for entry in plan.fit.nodes}
    shares = alone_or_even(plan) | rows_of_others(plan.fit)
    for node in plan.nodes:
        route = node.facts.route
        speed = f"{route.mbit:g} Mbit/s" if route.mbit else "Wi-Fi" if route.wireless else ""
        each = f" × {node.device.processes}" if node.device.processes > 1 else ""
        table.append(
            (
                node.name,
                node.computes_on,
                memory_words(plan.fit, entries[node.name], node.device.memory_bytes, known=known) + each,
                f"{route.nic or '?'} {speed}".strip(),
                "?" if math.isinf(node.facts.free_bytes) else gb(node.facts.free_bytes),
                shares[node.name],
            )
        )
    sent = "" if config.IN_PIECES else cost_of_exchange(plan.fit, plan.wire, plan.prediction, config)
    lines_ = [head, *drawn(table)]
    lines_ += [
        f"  {word:<9} {text}" for word, text in [*summary(plan, data or {}), ("exchange", sent), ("cost", cost)] if text
    ]
    if plan.prediction:
        advice = [*plan.prediction.sentences, *remedies_as_text(plan.prediction, "--set ")]
        lines_ += [f"  {line}" for line in advice]
    lines_ += [f"  {line}" for line in sizes.as_text(plan.sizes, "--set ")]
    return lines_ + [f"  ⚠ {warning}" for warning in plan.warnings]


def head_of_training(plan: Decided) -> str:
    settings, config = plan.settings, plan.request.config
    known = plan.fit.facts is not None
    weights = f"{plan.fit.trained_weights / 1e6:.1f} M weights" if known else "(their number is not known yet)"
    epochs = settings["epochs"] or config.usual_epochs
    passes = f"{epochs:g} epoch{'s' * (epochs != 1)}"
    if not config.length_is_set:
        passes += f", {LEAST_STEPS} steps at least"
    steps = f"{settings['max_steps']} steps" if settings["max_steps"] else passes
    return f"plan  {plan.run} · {plan.model.name} · {config.about} {weights} · {config.row_words} a step · {steps}"


def head_of_pieces(plan: Decided) -> str:
    return f"plan  {plan.run} · {plan.model.name} · {plan.request.config.about} · in {plan.request.config.row_words}"


def memory_words(fit: Fit, entry: NodeFit, has_bytes: int, *, known: bool) -> str:
    needs = f"{entry.memory.total / GIB:.1f}" if known else "?"
    how = ", streams" if entry.place.weights == "stream" else ""
    if fit.cut and (own := fit.cut.layers.get(entry.device.name)):
        how = f", {own[1] - own[0]} of {fit.cut.room.layers} layers"
    return f"{needs} of {has_bytes / GIB:.0f} GB{how}"


def rows_of_others(fit: Fit) -> dict[str, str]:
    """The nodes with later layers alone, and whose rows each computes on with: the rows of the first of its pipe."""
    layers = fit.cut.layers if fit.cut else {}
    return {
        name: f"{group[0]}'s, {layer_words(*layers[name])}"
        for group in parse_pipes(fit.pipes)
        for name in group[1:]
        if name in layers
    }


def alone_or_even(plan: Decided) -> dict[str, str]:
    if plan.request.config.IN_PIECES:
        return {node.name: "as many as it can" for node in plan.nodes}
    if plan.settings["balance"] == "even":
        return {node.name: "even" for node in plan.nodes}
    if not plan.prediction:
        return {node.name: "found while it runs" for node in plan.nodes}
    shares = plan.prediction.together.shares
    if plan.fit.cut:
        return {name: str(count) for name, count in shares.items()}
    return {name: f"{count}  ({plan.speeds.rows_per_s[name]:.2f} rows/s)" for name, count in shares.items()}


def summary(plan: Decided, data: Mapping[str, Any]) -> list[tuple[str, str]]:
    sent, count = plan.fit.traffic, len(plan.nodes)
    network = f"{plan.fit.link_mbit:.0f} Mbit/s, {plan.link_why}"
    if count > 1 and plan.fit.facts and not plan.request.config.IN_PIECES:
        network += f"; {sent['fp32'] / 1e6:.1f} MB a step and node: {plan.sync_s:.2f} s"
    usual = plan.request.config.usual_epochs
    times = "once" if usual == 1 else f"{usual:g} times"
    length = f"{LEAST_STEPS} at least, where {times} through the data is less: {LENGTH_RULE}"
    where = f"{gb(plan.model_bytes)} to {', '.join(plan.lacking)}" if plan.lacking else "on every node"
    model = plan.model.reason if plan.model.source == "new" else f"{plan.model.reason}; {where}"
    speed = ""
    if foreseen := predicted(plan):
        step_s = foreseen.step_s
        exchange = "" if plan.fit.facts else " and the exchange"
        speed = f"{step_s:.2f} s a step{exchange} ({plan.speeds.why})"
        if steps := plan.settings["max_steps"]:
            speed += f", {clock(round(step_s * max(0, steps - plan.request.step)))} in all"
    unknown = "not known before the model is built: a micro-batch that is too large is made smaller while it trains"
    return [
        ("model", model),
        ("begins", began.words if (began := adapter_to_bring(plan)) else ""),
        ("proof", plan.verdict.line if plan.verdict else ""),
        ("memory", "" if plan.fit.facts else unknown),
        *(("streams", f"{entry.device.name}: {entry.place.why}") for entry in plan.fit.nodes if entry.place.why),
        ("pipes", f"{plan.settings['pipes']}: {plan.fit.cut.why}" if plan.fit.cut else ""),
        ("data", plan.request.dataset.reason),
        ("", data.get("words", "")),
        ("answers", BESIDE if plan.request.config.has_server else ""),
        ("steps", "" if plan.request.config.length_is_set or plan.request.config.IN_PIECES else length),
        ("decided", "; ".join(f"{what}: {why}" for what, why in list(plan.fit.decisions.whys.items())[:3] if why)),
        ("rate", plan.request.config.rate_reason.removeprefix("learning rate ")),
        ("network", network if count > 1 else ""),
        ("predicted", speed),
        ("run", plan.request.why),
    ]
