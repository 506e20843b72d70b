"""Which offers could run it: what the locked set and the model need of a machine, and why each other one is left out.
Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from console.rent.market import Offer
from train.errors import BadInput
from train.plan.machines import architectures
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts
from train.plan.model.memory import BYTES_PER_WEIGHT, GIB, parameters
from train.plan.placement.first_way_that_fits import choose
from train.plan.settings.read_settings import RunConfig
from train.plan.settings.request import Request

ENV_GB = 14.0
"""The environment of a GPU node: its wheels, and what they become."""
ROOM_GB = 12.0
"""The disk for rows, checkpoints and results of an adapter."""
MODEL_S = 1200.0
"""A model is to be there after so long."""
MAIN_MEMORY_GB = 12.0
"""The main memory for Python with torch, and while a model is loaded."""
RELIABILITY = 0.98


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    gpu: str
    hours: float
    usd_h: float
    """At most, with the fee."""
    cuda: float
    ram_gb: float
    disk_gb: float
    down_mbit: float
    config: RunConfig | None = None
    facts: AnyFacts | None = None
    """The model's facts, as far as they are known without a download. None: a card's memory is not judged."""
    model: str = ""


def needs_of(gpu: str, hours: float, usd_h: float, *, cuda: float, request: Request | None) -> Needs:
    facts = request.model.facts if request else None
    form = "4bit" if request and request.model.hub_4bit else "16bit"
    files_gb = (parameters(facts) if facts else 0) * BYTES_PER_WEIGHT[form] / 1e9
    return Needs(
        gpu=gpu,
        hours=hours,
        usd_h=usd_h,
        cuda=cuda,
        ram_gb=math.ceil(MAIN_MEMORY_GB + files_gb / 2),
        disk_gb=math.ceil(ENV_GB + ROOM_GB + files_gb),
        down_mbit=max(100.0, 10 * math.ceil(files_gb * 800 / MODEL_S)),
        config=request.config if request else None,
        facts=facts,
        model=request.model.name if request else "",
    )


@dataclass(frozen=True, slots=True)
class Good:
    offer: Offer
    currency: str
    usd_h: float
    """The price of an hour, with the fee."""


def judge(offers: Sequence[Offer], needs: Needs, fee: float) -> tuple[list[Good], list[tuple[Offer, str]]]:
    """The offers that would do, the cheapest first, a tie by reliability; of the others of this name, why not."""
    good, refused = [], []
    for offer in offers:
        if words(needs.gpu) <= words(offer.gpu):
            if why := refusal(offer, needs, fee):
                refused.append((offer, why))
            else:
                currency = min(offer.usd_h, key=lambda name: offer.usd_h[name])
                good.append(Good(offer, currency, offer.usd_h[currency] * (1 + fee)))
    return sorted(good, key=lambda choice: (choice.usd_h, -choice.offer.reliability)), refused


def words(gpu: str) -> set[str]:
    """'4090' finds each, 'RTX 4070' no 'RTX 4070S' and 'RTX 4070 Ti' no 'RTX 4070'."""
    return set(gpu.lower().replace("geforce", "").replace("nvidia", "").split())


def refusal(offer: Offer, needs: Needs, fee: float) -> str:
    """The first reason that holds; empty where there is none."""
    price = min(offer.usd_h.values(), default=0.0) * (1 + fee)
    reasons = (
        (offer.taken, "it is let to somebody"),
        (not price, "it has no price in a currency that Motley pays with"),
        (price > needs.usd_h, f"{price:.2f} $/h with the fee is over --max {needs.usd_h:.2f}"),
        (offer.max_hours < needs.hours, f"it can be rented for {offer.max_hours:g} h at most"),
        (bool(why := architectures.unserved(offer.gpu)), why),
        (offer.cuda < needs.cuda, f"its driver carries CUDA {offer.cuda:g}, the locked set needs {needs.cuda:g}"),
        (offer.ram_gb < needs.ram_gb, f"{offer.ram_gb:g} GB of main memory, {needs.ram_gb:g} are needed"),
        (offer.disk_gb < needs.disk_gb, f"{offer.disk_gb:g} GB of disk, {needs.disk_gb:g} are needed"),
        (offer.down_mbit < needs.down_mbit, f"{offer.down_mbit:g} Mbit/s down, {needs.down_mbit:g} are needed"),
        (offer.reliability < RELIABILITY, f"{percent(offer.reliability)} reliable, {percent(RELIABILITY)} is needed"),
    )  # fmt: skip
    return next((why for holds, why in reasons if holds), "") or too_small(offer, needs)


def percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def too_small(offer: Offer, needs: Needs) -> str:
    """Why the offer's GPUs are too small by the plan, as a launch would make it there; empty: they are not."""
    if needs.config is None or needs.facts is None:
        return ""
    devices = [Device("rented", "cuda", int(offer.gpu_gb * GIB)) for _ in range(offer.gpus)]
    held: dict[str, Any] = {"weights": "gpu"}  # whoever pays for a card wants one that holds it
    config = replace(needs.config, **held) if getattr(needs.config, "weights", "") == "auto" else needs.config
    try:
        fit = choose(config, devices, needs.facts, model=needs.model)
    except BadInput as wrong:
        return str(wrong).splitlines()[0]
    if fit.ok:
        return ""
    needed = f"{needs.model} needs {max(node.memory.total for node in fit.nodes) / GIB:.1f} by the plan"
    return f"{offer.gpu_gb:g} GB of its card are too few, {needed}; {fit.nodes[0].fix_text}"
