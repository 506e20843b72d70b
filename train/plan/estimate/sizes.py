"""The sizes that have a name, each with its memory and time on these nodes: what a person chooses from. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from train.plan.machines.nodes import gb
from train.plan.model.catalogue import Facts
from train.plan.model.memory import GIB, linear_parameters
from train.plan.placement.first_way_that_fits import choose
from train.plan.placement.fit import Fit
from train.plan.settings.read_settings import RunConfig
from train.plan.speed import step_time
from train.plan.speed.prediction import Prediction
from train.plan.speed.step_time import TOO_MUCH


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeEstimate:
    size: str
    weights: int
    needs_bytes: int
    """Memory of the node that needs most."""
    fits: bool
    wire: str
    sync_s: float
    step_s: float | None


def sizes(
    config: RunConfig, found: Fit, machines: Sequence[step_time.Machine], prediction: Prediction | None
) -> list[SizeEstimate]:
    """`machines` and `prediction`: where the nodes' speeds are known, of the size that was asked for; the others follow
    from their work. Empty for a recipe that has no sizes."""
    rows: list[SizeEstimate] = []
    if found.facts is None:
        return rows
    for name, other in config.sizes().items():
        facts = other.start_model().facts
        assert isinstance(facts, Facts) and isinstance(found.facts, Facts)
        devices = [node.device for node in found.nodes]
        fitted = choose(other, devices, facts, model=name, mbit=found.link_mbit)
        sync_s, wire = exchange(fitted, machines, config.wire)
        times = work(facts, config.max_seq_length) / work(found.facts, config.max_seq_length)
        rows.append(
            SizeEstimate(
                size=name,
                weights=fitted.trained_weights,
                needs_bytes=max(node.memory.total for node in fitted.nodes),
                fits=fitted.ok,
                wire=wire,
                sync_s=round(sync_s, 3),
                step_s=round(prediction.together.compute_s * times + sync_s, 3) if prediction else None,
            )
        )
    return rows


def exchange(fitted: Fit, machines: Sequence[step_time.Machine], wire: str) -> tuple[float, str]:
    """The seconds that an exchange takes, and in which precision it travels."""
    seconds = fitted.seconds
    if machines:
        whole = {name: fitted.trained_weights * size for name, size in step_time.WIRE_BYTES.items()}
        seconds = {name: step_time.sync_seconds(machines, size) for name, size in whole.items()}
    chosen = step_time.wire_for(seconds["fp32"], wire)
    return seconds[chosen], chosen


def work(facts: Facts, length: int) -> float:
    """Work of a token, up to a factor: each matrix once, the table it comes out by, and attention over half the row."""
    return linear_parameters(facts) + facts.vocab * facts.hidden + facts.layers * facts.hidden * length


def as_text(rows: Sequence[SizeEstimate], flag: str = "") -> list[str]:
    if not rows:
        return []
    lines = ["sizes by name, on these nodes:"]
    for row in rows:
        step = "" if row.step_s is None else f", {row.step_s:.2f} s a step"
        fits = "" if row.fits else ", too large for a node here"
        needs = f"{row.needs_bytes / GIB:.1f} GB a node"
        travels = f"{row.sync_s:.2f} s all-reduce ({row.wire})" if row.sync_s else "nothing travels"
        choice = f"{flag}size={row.size}"
        lines.append(f"  {choice:<14}{row.weights / 1e6:>6.1f} M weights, {needs}, {travels}{step}{fits}")
    return lines


def cost_of_exchange(fitted: Fit, wire: str, prediction: Prediction | None, config: RunConfig) -> str:
    """What it means that all weights travel, and what makes that bearable."""
    if len(fitted.nodes) < 2 or not fitted.setup.full:
        return ""
    if fitted.facts is None:
        return "all weights travel in each step; how many they are shows only when the model is built"
    sent, seconds, (count, noun) = fitted.traffic[wire], fitted.seconds[wire], config.step_words
    text = f"all {fitted.trained_weights / 1e6:.1f} M weights travel in each step: {gb(sent)} a node, {seconds:.2f} s"
    if prediction:
        changes = f"more {noun} a step{', or sync=local,' if config.optimizer == 'adamw' else ''} make it less"
        part = seconds / (seconds + prediction.together.compute_s)
        text += f", {part:.0%} of a step of {count} {noun}"
        return text + ("" if part <= TOO_MUCH else f"; {changes}")
    return text
