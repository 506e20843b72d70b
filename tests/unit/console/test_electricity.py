"""What electricity costs, by the hour and for a predicted run, and what is said of it where only a part is known."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from console.electricity import hourly, limit_of, money, of_plan, plan_words, status_line, watts_of
from console.inventory.keys import KEYS
from console.inventory.read import Inventory
from console.watch import status
from tests.support.run_files import start, step
from tests.unit.train.plan.test_plan import card, look, made, nodes
from train.plan.launch.decide import Decided
from train.plan.machines.facts import Card
from train.plan.speed.prediction import Figures, Prediction

PRICE = {"motley_kwh_price": 0.3}
RTX = card("RTX 4070", 12) | {"power_limit": "200.00"}
LAPTOP = card("RTX 4060 Laptop", 8) | {"power_limit": "[N/A]"}


@pytest.mark.parametrize(
    ("values", "gpu_watts", "line"),
    [
        ({"a": PRICE | {"motley_idle_watts": 60}, "b": PRICE | {"motley_idle_watts": 40}}, {"a": 200.0, "b": None},
         "electricity  0.09 an hour: 300 W at 0.30 a kWh (graphics cards and idle power)"),
        ({"a": PRICE, "b": PRICE}, {"a": 200.0, "b": 100.0},
         "electricity  0.09 an hour: 300 W at 0.30 a kWh (graphics cards only)"),
        ({"a": PRICE | {"motley_idle_watts": 50}, "b": PRICE}, {"a": 200.0, "b": 50.0},
         "electricity  0.09 an hour: 300 W at 0.30 a kWh (graphics cards and idle power, without the idle power of b)"),
        ({"a": PRICE, "b": PRICE}, {"a": 300.0, "b": None},
         "electricity  0.09 an hour: 300 W at 0.30 a kWh (graphics cards only, nothing of b)"),
        ({"a": PRICE | {"motley_idle_watts": 60}}, {"a": None},
         "electricity  0.018 an hour: 60 W at 0.30 a kWh (idle power only)"),
        ({"a": {"motley_kwh_price": "{{ 1 }}", "motley_idle_watts": 60}, "b": PRICE}, {"a": None, "b": None},
         "electricity  0.018 an hour: 60 W at 0.30 a kWh (idle power only, nothing of b)"),
        ({"a": PRICE | {"motley_currency": "€"}}, {"a": 200.0},
         "electricity  €0.06 an hour: 200 W at €0.30 a kWh (graphics cards only)"),
        ({"a": {"motley_idle_watts": 60}}, {"a": 200.0}, ""),
        ({"a": PRICE}, {"a": None}, ""),
        ({"a": PRICE}, {}, ""),
    ],
)  # fmt: skip
def test_the_price_of_an_hour(values: dict[str, dict[str, Any]], gpu_watts: dict[str, float | None], line: str) -> None:
    assert status_line(hourly(values, gpu_watts)) == line


def test_a_card_that_does_not_say_draws_nothing_known() -> None:
    assert watts_of([{"power.draw": "120.50"}, {"power.draw": "[N/A]"}]) == 120.5
    assert watts_of([{"power.draw": "[N/A]"}]) is None and watts_of([]) is None


def test_the_limit_of_some_cards_is_no_limit_of_all() -> None:
    def limit(*cards: dict[str, Any]) -> float | None:
        return limit_of([Card(**card) for card in cards])

    assert limit(RTX, RTX) == 400
    assert limit(RTX, LAPTOP) is None and limit() is None
    assert limit(card("it does not say", 8)) is None


def test_small_change_keeps_two_digits_and_a_sign_stands_before_it() -> None:
    amounts = {12.345: "12.35", 0.1: "0.10", 0.09: "0.09", 0.0024: "0.0024", 2.5e-5: "0.000025"}
    assert {amount: money(amount) for amount in amounts} == amounts
    assert (money(0.25, "€"), money(0.25, "EUR"), money(0.0024, "$")) == ("€0.25", "0.25 EUR", "$0.0024")


@pytest.mark.parametrize(("currency", "good"), [("€", True), ("EUR", True), ("kr", True), ("5", False), ("a b", False)])
def test_what_a_currency_may_be(currency: str, good: bool) -> None:
    assert KEYS["motley_currency"].accepts(currency) is good


# -- the plan ----------------------------------------------------------------------------------------------------------


def planned(*cards: list[dict[str, Any]], step_s: float | None = 90.0, **values: Any) -> Decided:
    """Of 40 steps; a node without cards computes on its CPU."""
    found = nodes(*(look(cards=some) for some in cards), cuda=True)
    return made(found, values, prediction=predicted(step_s) if step_s else None)


def predicted(step_s: float) -> Prediction:
    whole = Figures(shares={}, compute_s=step_s, sync_s=0.0, step_s=step_s, rows_per_s=1.0)
    return Prediction(wire="fp32", together=whole, best=whole)


@pytest.mark.parametrize(
    ("plan", "values", "words"),
    [
        (planned([RTX], [RTX]), {"n0": PRICE | {"motley_idle_watts": 60}, "n1": PRICE | {"motley_idle_watts": 40}},
         "up to 0.15 in the predicted 1:00:00: 500 W at 0.30 a kWh (graphics cards and idle power;"
         " cards at their power limit)"),
        (planned([RTX, RTX], [RTX]), {"n0": PRICE, "n1": PRICE},
         "up to 0.18 in the predicted 1:00:00: 600 W at 0.30 a kWh (graphics cards only; cards at their power limit)"),
        (planned([RTX], [LAPTOP]), {"n0": PRICE, "n1": PRICE},
         "about 0.06 in the predicted 1:00:00: 200 W at 0.30 a kWh (graphics cards only, nothing of n1;"
         " cards at their power limit)"),
        (planned([], []), {"n0": PRICE | {"motley_idle_watts": 60}, "n1": PRICE | {"motley_idle_watts": 40}},
         "at least 0.03 in the predicted 1:00:00: 100 W at 0.30 a kWh (idle power only)"),
        (planned([RTX], step_s=None), {"n0": PRICE},
         "up to 0.06 an hour: 200 W at 0.30 a kWh (graphics cards only; cards at their power limit)"),
        (planned([RTX], max_steps=None, epochs=2), {"n0": PRICE},
         "up to 0.06 an hour: 200 W at 0.30 a kWh (graphics cards only; cards at their power limit)"),
        (planned([RTX]), {"n0": {"motley_idle_watts": 60}}, ""),
        (planned([], [LAPTOP]), {"n0": PRICE, "n1": PRICE}, ""),
    ],
)  # fmt: skip
def test_the_price_of_a_run_that_is_planned(plan: Decided, values: dict[str, dict[str, Any]], words: str) -> None:
    assert plan_words(of_plan(plan, values)) == words


def test_a_simulated_card_that_does_not_compute_has_no_part_in_the_price() -> None:
    found = nodes(look(cards=[RTX]), cuda=False)
    data = of_plan(made(found, prediction=predicted(90.0)), {"n0": PRICE})
    assert data.gpu_watts == {"n0": None} and data.cost is None and plan_words(data) == ""


def test_the_price_of_a_plan_as_data() -> None:
    data = of_plan(planned([RTX]), {"n0": PRICE | {"motley_idle_watts": 60}})
    assert json.loads(json.dumps(asdict(data))) == {
        "kwh_price": 0.3,
        "currency": "",
        "idle_watts": {"n0": 60.0},
        "gpu_watts": {"n0": 200.0},
        "watts": 260.0,
        "per_hour": pytest.approx(0.078),
        "covers": "graphics cards and idle power",
        "seconds": pytest.approx(3600),
        "cost": pytest.approx(0.078),
        "bound": "up to",
    }


# -- status ------------------------------------------------------------------------------------------------------------


def running(gpu_gb: float) -> dict[str, Any]:
    now = {"gpus": [{"power.draw": "200"}]}
    looked = {"start": start(1.0, 0, ["a"]), "step": step(3.0, 1, {"a": 8}, gpu_gb=gpu_gb), "events": [], "members": []}
    return {"on": True, "run": "qa", "now": now} | looked


def test_status_counts_the_gpus_that_compute_in_a_run() -> None:
    assert status.drawn_watts({"a": running(gpu_gb=5.0), "b": {"on": False}}) == {"a": 200.0}
    assert status.drawn_watts({"a": running(gpu_gb=0.0)}) == {"a": None}, "it trains on its processor"
    assert status.drawn_watts({"a": running(gpu_gb=5.0) | {"step": {}}}) == {"a": None}, "no step yet"


def test_status_gives_the_price_as_numbers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(status, "from_inventory", lambda _: [])
    monkeypatch.setattr(status, "ask_all", lambda *_: ({"a": running(gpu_gb=5.0)}, {}))
    assert status.status(Inventory(path=Path("hosts.yml"), nodes={"a": PRICE}), as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["electricity"] == {
        "kwh_price": 0.3,
        "currency": "",
        "idle_watts": {"a": None},
        "gpu_watts": {"a": 200.0},
        "watts": 200.0,
        "per_hour": pytest.approx(0.06),
        "covers": "graphics cards only",
    }
