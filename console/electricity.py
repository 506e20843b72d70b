"""What a run costs in electricity: motley_kwh_price, motley_currency and motley_idle_watts of the inventory, and what
GPUs draw. Pure.

Nothing is guessed: of a machine whose watts are not known nothing is counted, and it is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from console.text_layout import clock
from train.plan.launch.decide import Decided
from train.plan.launch.launch_plan import Electricity, RunElectricity
from train.plan.launch.plan_for_playbook import predicted
from train.plan.machines.facts import Card

Watts = Mapping[str, float | None]
Values = Mapping[str, Mapping[str, Any]]
"""Variables of each node."""


def hourly(values: Values, gpu_watts: Watts) -> Electricity:
    """The power and the price of an hour for the nodes of `gpu_watts`; None for what is not known or not set."""
    price, currency = price_of(values.get(name, {}) for name in gpu_watts)
    rest = {name: number(values.get(name, {}).get("motley_idle_watts")) for name in gpu_watts}
    watts = sum(filter(None, (*gpu_watts.values(), *rest.values()))) or None
    return Electricity(
        kwh_price=price,
        currency=currency,
        idle_watts=rest,
        gpu_watts=gpu_watts,
        watts=watts,
        per_hour=watts / 1000 * price if price and watts else None,
        covers=covers(gpu_watts, known(gpu_watts), known(rest)) if watts else None,
    )


def price_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[float | None, str]:
    """What a kWh costs, and in which currency: of the first node with a price."""
    for values in nodes:
        if price := number(values.get("motley_kwh_price")):
            return price, str(values.get("motley_currency", ""))
    return None, ""


def of_plan(plan: Decided, values: Values) -> RunElectricity:
    """A plan's power and cost with every computing GPU at its power limit, as long as predicted; None as above."""
    limits = {node.name: limit_of(node.cards) if node.device.is_gpu else None for node in plan.nodes}
    electricity, prediction, steps = hourly(values, limits), predicted(plan), plan.settings["max_steps"]
    seconds = prediction.step_s * max(0, steps - plan.request.step) if prediction and steps else None
    bound = "at least" if not known(limits) else "about" if None in limits.values() else "up to"
    cost = electricity.per_hour * seconds / 3600 if seconds is not None and electricity.per_hour else None
    return RunElectricity(**asdict(electricity), seconds=seconds, cost=cost, bound=bound if electricity.watts else None)


def status_line(electricity: Electricity) -> str:
    """What an hour costs now; empty where no price is set or nothing is known."""
    if not electricity.per_hour:
        return ""
    return f"electricity  {money(electricity.per_hour, electricity.currency)} an hour: {_basis(electricity)}"


def plan_words(electricity: RunElectricity) -> str:
    """What the plan costs; empty as above."""
    if not electricity.per_hour:
        return ""
    limit = "; cards at their power limit" if known(electricity.gpu_watts) else ""
    cost, time = electricity.per_hour, "an hour"
    if electricity.cost and electricity.seconds:
        cost, time = electricity.cost, f"in the predicted {clock(round(electricity.seconds))}"
    return f"{electricity.bound} {money(cost, electricity.currency)} {time}: {_basis(electricity, limit)}"


def _basis(electricity: Electricity, more: str = "") -> str:
    price = money(electricity.kwh_price or 0.0, electricity.currency)
    return f"{electricity.watts:.0f} W at {price} a kWh ({electricity.covers}{more})"


def covers(nodes: Iterable[str], gpus: Iterable[str], rest: Iterable[str]) -> str:
    """What is counted, where `gpus` names the nodes whose GPUs are, and `rest` those that are at rest."""
    gpus, rest = list(gpus), list(rest)
    without = [node for node in nodes if node not in gpus and node not in rest]
    alone = [node for node in gpus if node not in rest]
    words = "graphics cards and idle power" if gpus else "idle power only"
    words += f", without the idle power of {', '.join(alone)}" if alone else ""
    return (words if rest else "graphics cards only") + (f", nothing of {', '.join(without)}" if without else "")


def known(watts: Watts) -> list[str]:
    return [name for name, value in watts.items() if value is not None]


def money(amount: float, currency: str = "") -> str:
    """€0.25 or 0.25 EUR; of small change two digits. Without a currency in whatever the price is."""
    words = f"{amount:.2f}"
    if 0 < amount < 0.1:
        words = f"{amount:.{1 - math.floor(math.log10(amount))}f}"
        words = words.rstrip("0") if len(words) > 4 else words
    return f"{currency}{words}" if len(currency) == 1 else f"{words} {currency}".strip()


def watts_of(gpus: Iterable[Mapping[str, str]]) -> float | None:
    """What nvidia-smi reports that they draw; None where it cannot."""
    draws = [draw for gpu in gpus if (draw := number(gpu.get("power.draw"))) is not None]
    return sum(draws) if draws else None


def limit_of(cards: Iterable[Card]) -> float | None:
    """The sum of their limits; None where a card has none: what the others may draw is no upper bound."""
    limits = [number(card.power_limit) for card in cards]
    return sum(filter(None, limits)) if limits and None not in limits else None


def number(value: Any) -> float | None:
    """None for a template of the inventory, and where nvidia-smi writes [N/A]."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
