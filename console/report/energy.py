"""What a run took in electricity, as the report shows it: measured by the GPUs, and at rest as the inventory says."""

from __future__ import annotations

from console.electricity import covers, money
from console.report.history import History
from console.report.series import kwh
from train.runlog.state import nodes_of, time_of


def energy(history: History) -> tuple[str, str, str]:
    """Only what was measured is called energy; motley_idle_watts comes on top, and is named as what was set."""

    def reported(node: str) -> bool:
        return any(reading.get("watts") is not None for reading in history.cards.get(node, []))

    gpus = {node: used for node in history.nodes if (used := node_kwh(history, node)) is not None}
    rest = at_rest(history)
    used, resting, price = sum(gpus.values()), sum(rest.values()), history.electricity.get("kwh_price")
    what, at = ("energy and price", f"; {price:g} a kWh") if price else ("energy", "")
    as_set = f"{resting:.3g} kWh as motley_idle_watts says"
    if not used:
        cost = f", {money(resting * price)}" if price else ""
        more = f"; {covers(history.nodes, [], rest)}: {as_set}{cost}{at}" if resting else ""
        why = (
            "too few readings of the GPUs" if any(map(reported, history.nodes)) else "no GPU that computed reported it"
        )
        return "energy", "not measured", why + more
    cost = f" · {money((used + resting) * price)}" if price else ""
    parts = f"{used:.3g} kWh by the GPUs, {as_set}" if resting else "the rest of each machine is not measured"
    return what, f"{used + resting:.3g} kWh{cost}", f"{covers(history.nodes, gpus, rest)}: {parts}{at}"


def node_kwh(history: History, node: str) -> float | None:
    """The energy of a node's GPUs; None where they did not compute, did not report it, or were read too seldom."""
    return kwh(history.cards.get(node, []))


def at_rest(history: History) -> dict[str, float]:
    """kWh of each node for which motley_idle_watts was set at the launch, while it took part."""
    watts = history.electricity.get("idle_watts", {})
    return {node: watts[node] * seconds_there(history, node) / 3.6e6 for node in history.nodes if watts.get(node)}


def seconds_there(history: History, node: str) -> float:
    """From each start that it took part in to the last step before the next: not while it was away, or all stopped."""
    starts = sorted(history.starts, key=time_of)
    seconds = 0.0
    for start, end in zip(starts, [*map(time_of, starts[1:]), float("inf")], strict=True):
        times = [time_of(step) for step in history.steps if time_of(start) <= time_of(step) < end]
        if times and node in nodes_of(start["nodes"]):
            seconds += max(times) - time_of(start)
    return seconds
