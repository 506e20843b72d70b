"""What a run costs in electricity: motley_kwh_price and motley_idle_watts of the inventory, and what GPUs draw. Pure.

Nothing is guessed: of a machine whose watts are not known nothing is counted, and it is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from console.words import clock
from train.plan.launch.plan import Plan, predicted

Watts = Mapping[str, float | None]
Values = Mapping[str, Mapping[str, Any]]
"""Variables of each node."""


def hourly(values: Values, gpu_watts: Watts) -> dict[str, Any]:
    """The power and the price of an hour for the nodes of `gpu_watts`; None for what is not known or not set."""
    prices = [number(values.get(name, {}).get("motley_kwh_price")) for name in gpu_watts]
    price = next(filter(None, prices), None)
    rest = {name: number(values.get(name, {}).get("motley_idle_watts")) for name in gpu_watts}
    watts = sum(filter(None, (*gpu_watts.values(), *rest.values()))) or None
    return {
        "kwh_price": price,
        "idle_watts": rest,
        "gpu_watts": dict(gpu_watts),
        "watts": watts,
        "per_hour": watts / 1000 * price if price and watts else None,
        "covers": covers(gpu_watts, known(gpu_watts), known(rest)) if watts else None,
    }


def of_plan(plan: Plan, values: Values) -> dict[str, Any]:
    """A plan's power and cost with every computing GPU at its power limit, as long as predicted; None as above."""
    limits = {node.name: limit_of(node.cards) if node.device == "cuda" else None for node in plan.nodes}
    found = hourly(values, limits)
    step_s, steps = predicted(plan).get("step_s"), plan.settings["max_steps"]
    seconds = step_s * max(0, steps - plan.request.step) if step_s and steps else None
    bound = "at least" if not known(limits) else "about" if None in limits.values() else "up to"
    cost = found["per_hour"] * seconds / 3600 if seconds is not None and found["per_hour"] else None
    return found | {"seconds": seconds, "cost": cost, "bound": bound if found["watts"] else None}


def status_line(found: Mapping[str, Any]) -> str:
    """Empty where no price is set or nothing is known."""
    return f"electricity  {money(found['per_hour'])} an hour: {_basis(found)}" if found["per_hour"] else ""


def plan_words(found: Mapping[str, Any]) -> str:
    """Empty as above."""
    if not found["per_hour"]:
        return ""
    limit = "; GPUs by their power limit" if known(found["gpu_watts"]) else ""
    cost, time = found["per_hour"], "an hour"
    if found["cost"]:
        cost, time = found["cost"], f"in the predicted {clock(round(found['seconds']))}"
    return f"{found['bound']} {money(cost)} {time}: {_basis(found, limit)}"


def _basis(found: Mapping[str, Any], more: str = "") -> str:
    return f"{found['watts']:.0f} W at {found['kwh_price']:g} a kWh ({found['covers']}{more})"


def covers(nodes: Iterable[str], gpus: Iterable[str], rest: Iterable[str]) -> str:
    """What is counted, where `gpus` names the nodes whose GPUs are, and `rest` those that are at rest."""
    gpus, rest = list(gpus), list(rest)
    without = [node for node in nodes if node not in gpus and node not in rest]
    alone = [node for node in gpus if node not in rest]
    words = "machines at rest and their GPUs" if gpus else "machines at rest only"
    words += f", on {', '.join(alone)} the GPUs only" if alone else ""
    return (words if rest else "GPUs only") + (f", nothing of {', '.join(without)}" if without else "")


def known(watts: Watts) -> list[str]:
    return [name for name, value in watts.items() if value is not None]


def money(amount: float) -> str:
    """In whatever the price is; of small change two digits."""
    if amount >= 0.1 or amount <= 0:
        return f"{amount:.2f}"
    return f"{amount:.{1 - math.floor(math.log10(amount))}f}".rstrip("0")


def watts_of(gpus: Iterable[Mapping[str, str]]) -> float | None:
    """What nvidia-smi reports that they draw; None where it cannot."""
    found = [draw for gpu in gpus if (draw := number(gpu.get("power.draw"))) is not None]
    return sum(found) if found else None


def limit_of(cards: Iterable[Mapping[str, Any]]) -> float | None:
    """None where one of them has none: what the others may draw is no upper bound."""
    limits = [number(card.get("power.limit")) for card in cards]
    return sum(filter(None, limits)) if limits and None not in limits else None


def number(value: Any) -> float | None:
    """None for a template of the inventory, and where nvidia-smi writes [N/A]."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
