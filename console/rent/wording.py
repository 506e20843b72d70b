"""The plan of a rent, the list of what is rented, and the bill, as a person reads them. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from console.rent.lease import Lease, Moment
from console.rent.market import Offer
from console.rent.needs import Good, Needs, percent
from console.words import duration

IDLE_S = 2400.0
"""A machine on which no run was begun goes back after so long."""


def refused_lines(refused: Sequence[tuple[Offer, str]]) -> list[str]:
    return [f"  left out  server {offer.server}, {offer.gpu}: {why}" for offer, why in refused]


def plan_lines(
    good: Good, needs: Needs, *, market: str, fee: float, balance: Mapping[str, float], at: float, worst: str
) -> list[str]:
    offer, most = good.offer, good.usd_h * needs.hours
    until = clock(at + needs.hours * 3600)
    size = f"{offer.gpu_gb:g} GB · {offer.ram_gb:g} GB of main memory · {offer.disk_gb:g} GB of disk"
    where = f"{offer.country} · {market}, server {offer.server}"
    hours = f"{needs.hours:g} h are {most:.2f} $ at most, and only what is used is paid"
    return [
        f"rent      {offer.gpu} · {size}",
        f"          {offer.down_mbit:g} Mbit/s down · {percent(offer.reliability)} reliable · {where}",
        f"model     {f'{needs.model} fits by the plan' if needs.facts else 'not named: its memory was not judged'}",
        f"price     {good.usd_h:.2f} $/h with the fee of {100 * fee:g} %: {hours}",
        f"account   {money(balance, good.currency)}",
        f"back      at {until} in any case; sooner when its run has ended and is fetched,",
        f"          after {IDLE_S / 60:.0f} minutes without a run, or at once if it is not proven within ten minutes",
        f"worst     {worst}",
        "leaves    model, rows and adapter lie on a stranger's machine: never what nobody else may read",
        "          nothing of your own machines goes there; its host key can be compared with nothing",
        "one       one rented machine per run, with all of its cards: ports of several containers do not meet",
    ]


def worst(usd_h: float, *, timer: bool, keeper: str) -> str:
    asleep = "this machine asleep or off at that time"
    if keeper:
        return f"{asleep}: {keeper} gives it back (not after a restart of it)"
    until = "its timer gives it back when it wakes; till then" if timer else "until it wakes it is billed at"
    return f"{asleep}: {until} {usd_h:.2f} $/h"


def money(balance: Mapping[str, float], currency: str) -> str:
    if currency not in balance:
        return f"nothing in {currency}"
    amount = balance[currency]
    return f"{amount:.2f} $ in {currency}" if currency.startswith("USD") else f"{amount:.2f} {currency}"


def too_poor(good: Good, needs: Needs, balance: Mapping[str, float]) -> str:
    """Only of dollars is it known; another currency's worth the market knows."""
    held = balance.get(good.currency, 0.0)
    short = good.usd_h * needs.hours - held
    if good.currency.startswith("USD") and short > 0:
        return f"the account has {held:.2f} $, {needs.hours:g} h may cost {good.usd_h * needs.hours:.2f} $"
    return ""


def lease_lines(lease: Lease, at: Moment) -> list[str]:
    left = lease.left_s(at)
    when = f"back at {clock(time.time() + left)}, in {duration(left)}" if left > 0 else "its time is over: it goes back"
    run = f" · run {lease.run}" if lease.run else ""
    why = f" · {lease.why}" if lease.why else ""
    return [
        f"  {lease.name}  {lease.gpu} · {lease.state}{why}{run}",
        f"    {when} · {lease.usd_until(at):.2f} $ so far, {lease.usd_at_most:.2f} $ at most",
    ]


def bill_lines(receipt: Mapping[str, Any]) -> list[str]:
    name = f"rented-{receipt['order']}" if receipt["order"] else "no order"
    took = duration(float(receipt["ended"]) - float(receipt["began"]))
    times = f"{clock(receipt['began'])} to {clock(receipt['ended'])} ({took})"
    cost = f"{receipt['usd_at_most']:.2f} $ at most, at {receipt['usd_h']:.2f} $/h"
    before, after = receipt["balance_before"], receipt["balance_after"]
    spent = [f"{coin} {had:.2f} → {after[coin]:.2f}" for coin, had in before.items() if after.get(coin, had) != had]
    account = f" · the account: {', '.join(spent)}" if spent else ""
    return [f"  {name}  {receipt['gpu']} · {times} · {receipt['why']}", f"    {cost}{account}"]


def clock(at: float) -> str:
    return time.strftime("%H:%M" if abs(at - time.time()) < 64800 else "%F %H:%M", time.localtime(at))
