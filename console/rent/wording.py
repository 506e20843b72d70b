"""The plan of a rent, the list of what is rented, and the bill, as a person reads them. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from console.rent.asleep import Helper
from console.rent.lease import Lease, Moment
from console.rent.which_offers_do import Good, Needs, percent
from console.rent.which_to_give_back import IDLE_S
from console.text_layout import duration


def plan_lines(
    good: Good, needs: Needs, *, market: str, fee: float, balance: Mapping[str, float], at: float, helper: Helper
) -> list[str]:
    offer, most = good.offer, good.usd_h * needs.hours
    until = clock(at + needs.hours * 3600)
    size = f"{offer.gpu_gb:g} GB · {offer.ram_gb:g} GB of main memory · {offer.disk_gb:g} GB of disk"
    cards = f"all {offer.gpus} cards of it train in one run" if offer.gpus > 1 else "its one card trains"
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
        *worst_lines(good.usd_h, helper),
        "leaves    model, rows and adapter lie on a stranger's machine: send nothing secret",
        "          nothing of your own machines goes there; its host key cannot be verified",
        f"one       {cards}; one rented machine per run: containers cannot reach each other's ports",
    ]


def worst_lines(usd_h: float, helper: Helper) -> list[str]:
    """The lines on who gives it back while this machine cannot, what that may cost, and where the key for it lies."""
    rate, asleep = f"{usd_h:.2f} $/h", "this machine asleep or off at that time"
    if helper.keeper:
        by = f"{helper.keeper} gives it back half a minute later"
        if helper.outlives:
            kept = f"in a file on {helper.keeper} (0600) until its time is over: a restart of it does not matter"
        else:
            kept = f"in the memory of {helper.keeper} alone; if that restarts too, {rate} until this one wakes"
        return [f"worst     {asleep}: {by}", f"key       {kept}"]
    if helper.timer:
        return [
            f"worst     {asleep}: its timer gives it back when it wakes; till then {rate}",
            "key       in .motley/rented/key, which only you can read, until the machine is back",
        ]
    return [
        f"worst     {asleep}: until it wakes it is billed at {rate}",
        "          --keeper NODE: a machine at home gives it back; --timer: this one does when it wakes",
    ]


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
    amounts = [(coin, f"{had:.2f}", f"{after.get(coin, had):.2f}") for coin, had in before.items()]
    spent = [f"{coin} {had} → {has}" for coin, had, has in amounts if had != has]
    account = f" · the account: {', '.join(spent)}" if spent else ""
    return [f"  {name}  {receipt['gpu']} · {times} · {receipt['why']}", f"    {cost}{account}"]


def clock(at: float) -> str:
    return time.strftime("%H:%M" if abs(at - time.time()) < 64800 else "%F %H:%M", time.localtime(at))
