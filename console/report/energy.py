"""What a run took in electricity, as the report shows it: measured by the GPUs, and at rest as the inventory says."""

from __future__ import annotations

from console.electricity import money
from console.report.read_run import History
from console.report.run_charts import kwh
from console.text_layout import wh_or_kwh
from train.runlog.state import nodes_of, time_of


def energy(history: History) -> tuple[str, str, str]:
    """A figure of the page. Only what was measured is called energy; motley_idle_watts is added as what was set."""

    def reported(node: str) -> bool:
        return any(reading.get("watts") is not None for reading in history.cards.get(node, []))

    gpus = {node: used for node in history.nodes if (used := node_kwh(history, node)) is not None}
    rest, price = at_rest(history), history.electricity.get("kwh_price")
    used, resting, currency = sum(gpus.values()), sum(rest.values()), history.electricity.get("currency") or ""

    def with_price(kwh: float, between: str) -> str:
        return wh_or_kwh(kwh) + (f"{between}{money(kwh * price, currency)}" if price else "")

    at = f"; {money(price, currency)} a kWh" if price else ""
    if not used:
        few = any(map(reported, history.nodes))
        why = "too few readings of the cards" if few else "no card that computed reported its power"
        more = f"; idle power as you set it: {with_price(resting, ', ')}{at}" if resting else ""
        return "electricity", "not measured", why + more
    value = with_price(used + resting, " · ")
    if not resting:
        missing = [node for node in history.nodes if node not in gpus]
        without = f", nothing of {', '.join(missing)}" if missing else ""
        return "electricity", value, f"graphics cards only{without}: the rest of each machine is not measured{at}"
    parts = f"graphics cards {wh_or_kwh(used)} measured, idle power {wh_or_kwh(resting)} as you set it"
    uncounted = [node for node in history.nodes if node not in rest]
    return "electricity", value, parts + (f" (not of {', '.join(uncounted)})" if uncounted else "") + at


def node_kwh(history: History, node: str) -> float | None:
    """The energy of a node's GPUs; None where they did not compute, did not report it, or were read too seldom."""
    return kwh(history.cards.get(node, []))


def at_rest(history: History) -> dict[str, float]:
    """kWh of each node for which motley_idle_watts was set at the launch, while it took part."""
    watts = history.electricity.get("idle_watts", {})
    return {node: usual * seconds_there(history, node) / 3.6e6 for node in history.nodes if (usual := watts.get(node))}


def seconds_there(history: History, node: str) -> float:
    """Seconds from each start that it took part in to the last step before the next: not while away, or all stopped."""
    starts = sorted(history.starts, key=time_of)
    seconds = 0.0
    for start, end in zip(starts, [*map(time_of, starts[1:]), float("inf")], strict=True):
        times = [time_of(step) for step in history.steps if time_of(start) <= time_of(step) < end]
        if times and node in nodes_of(start["nodes"]):
            seconds += max(times) - time_of(start)
    return seconds
