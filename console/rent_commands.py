"""./motley rent, rented, give-back."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter
from pathlib import Path

from console import rented_machine
from console.extra_vars import values_of
from console.infra.node import Node
from console.rent import asleep, shop, watcher, which_offers_do, wording
from console.rent import lease as leases
from console.rent import timer as timers
from console.rent.compare_and_give_back import reconcile, want_back
from console.rent.known_key import KEY, known_key
from console.rent.lease import READY, Book, Lease
from console.rent.market import Declined, Market, Unanswered
from console.rent.order import Shop, Terms, take, why_not_now
from console.text_layout import agreed, say
from plugins.filter.choose_python_env import BRANCHES
from plugins.module_utils.motley import hostkeys
from train.errors import BadInput, CheckFailed
from train.plan.settings import request

PATIENCE_S, RETRY_S = 60.0, 2.0


def rent(
    inventory: str,
    *,
    gpu: str,
    hours: float,
    usd_h: float,
    model: str,
    settings: list[str],
    vault: str,
    yes: bool,
    timer: bool,
    keeper: str,
) -> int:
    wanted = wanted_of(gpu, hours, usd_h, model, settings)
    if timer:
        timers.require()
    if keeper:
        rented_machine.keeper_node(keeper)
    book, secret = Book(leases.folder()), shop.key(vault)
    market = shop.market(secret)
    for line in looked(market, book):
        say(line)
    if living := book.leases():
        raise BadInput(why_not_now(living[0]))
    good, balance = chosen(market, wanted)
    helper, stays_on = who_helps(asleep.Helper(timer=timer, keeper=keeper), market, asks=not yes)
    plan = wording.plan_lines(
        good, wanted, market=market.name, fee=market.fee, balance=balance, at=time.time(), helper=helper
    )
    for line in plan:
        say(line)
    if poor := wording.too_poor(good, wanted, balance):
        raise BadInput(poor, fix="fix: fewer hours, or more money on the account")
    if not yes and not agreed("rent it?"):
        say("nothing was rented")
        return 1
    if helper.timer:
        timers.prove(book, secret)
    with book.alone():
        watch = partial(watched, book, secret, by_timer=helper.timer)
        shop_here = Shop(market=market, book=book, watch=watch, say=say)
        return rent_it(shop_here, good, hours, inventory, stays_on)


def watched(book: Book, secret: str, lease: Lease, *, by_timer: bool) -> None:
    watcher.start(lease, secret, book.place)
    if by_timer:
        timers.arm(book, lease, secret)


def who_helps(helper: asleep.Helper, market: Market, *, asks: bool) -> tuple[asleep.Helper, Node | None]:
    """Finds who gives back while this machine sleeps. A machine at home is tried before anything is ordered."""
    if helper.nobody and asks and sys.stdin.isatty() and asleep.is_a_laptop():
        helper = asleep.asked(helper, rented_machine.head_at_home())
    if not helper.keeper:
        return helper, None
    node = rented_machine.keeper_node(helper.keeper)
    kept = rented_machine.kept_by(node, market, None)
    if kept.why:
        raise BadInput(f"{helper.keeper} cannot give it back: {kept.why}", fix="fix: another --keeper that is online")
    return replace(helper, keeper=node.name, outlives=kept.outlives), node


def wanted_of(gpu: str, hours: float, usd_h: float, model: str, settings: list[str]) -> which_offers_do.Needs:
    for name, value in (("gpu", gpu), ("hours", hours), ("max", usd_h)):
        example = 'fix: ./motley rent --gpu "RTX 4090" --hours 3 --max 0.50'
        if not value or (not isinstance(value, str) and value < 0):
            raise BadInput(f"rent needs --{name}", example)
        if not isinstance(value, str) and value >= leases.LONGEST_H:
            raise BadInput(f"{name}: {value:g} is not below {leases.LONGEST_H}", example)
    named = {**values_of(settings), **({"model": model} if model else {})}
    found = request.read(named) if named else None
    return which_offers_do.needs_of(
        gpu, hours, usd_h, cuda=min(float(branch["cuda"]) for branch in BRANCHES), request=found
    )


def chosen(market: Market, wanted: which_offers_do.Needs) -> tuple[which_offers_do.Good, dict[str, float]]:
    try:
        offers, balance = market.offers(), market.balance()
    except (Unanswered, Declined) as why:
        raise BadInput(
            f"{market.name} does not answer: {why}", fix="fix: try again later; nothing was ordered"
        ) from None
    good, refused = which_offers_do.judge(offers, wanted, market.fee)
    for offer, against in refused:
        say(f"  left out  server {offer.server}, {offer.gpu}: {against}")
    if not good:
        reason = "each is left out" if refused else f"of {len(offers)} offers none has that name"
        raise CheckFailed(f"no {wanted.gpu} that could run it: {reason}", fix="fix: another --gpu, or a higher --max")
    return good[0], balance


def rent_it(shop_here: Shop, good: which_offers_do.Good, hours: float, inventory: str, stays_on: Node | None) -> int:
    market, book = shop_here.market, shop_here.book
    terms = Terms(
        offer=good.offer,
        currency=good.currency,
        hours=hours,
        public_key=hostkeys.own_key(book.place / "controller_ed25519"),
        inventory=str(Path(inventory).resolve()),
    )
    lease = take(shop_here, terms)
    say(f"{lease.name}  {lease.host} port {lease.port}: it is yours until {wording.clock(lease.until)}")
    try:
        why = rented_machine.kept_by(stays_on, market, lease).why if stays_on else ""
        why = why or rented_machine.prepare(lease)
    except BaseException:
        gone_back(market, book, want_back(book, lease, "it was interrupted before it was proven"))
        raise
    if why:
        gone_back(market, book, want_back(book, lease, why.splitlines()[0].rstrip(":")))
        raise CheckFailed(f"{lease.name} was not proven: {why}", fix="fix: try again; it takes the next best offer")
    book.change(lease, state=READY)
    say(f"{lease.name}  proven. next: ./motley launch --nodes {lease.name} --model … --dataset …")
    return 0


def gone_back(market: Market, book: Book, lease: Lease) -> int:
    """Gives it back and shows the bill; 1 where the market has not confirmed it yet."""
    deadline, trouble = time.monotonic() + PATIENCE_S, f"{market.name} does not answer"
    while book.receipt(lease.mark) is None and time.monotonic() < deadline:
        try:
            reconcile(market, book, known=[lease], only=lease.mark)
        except (Unanswered, Declined, OSError) as why:
            trouble = "its bill cannot be written" if isinstance(why, OSError) else f"{market.name} does not answer"
            say(f"{trouble} ({why}): trying again")
            time.sleep(RETRY_S)
    receipt = book.receipt(lease.mark)
    if receipt is None:
        say(f"✗ {lease.name} is not given back yet: {trouble}; its watcher tries every 20 s")
        return 1
    say("given back")
    for line in wording.bill_lines(receipt):
        say(line)
    say(f"receipt  {os.path.relpath(book.receipts / lease.mark)}.json")
    return 0


def looked(market: Market, book: Book) -> list[str]:
    try:
        return reconcile(market, book)
    except (Unanswered, Declined) as why:
        return [f"{market.name} does not answer: {why}"]


def show_rented(*, vault: str, as_json: bool) -> int:
    """Leases and the last bills; with a key, compared with what the market bills."""
    book = Book(leases.folder())
    secret = shop.key(vault) if vault else known_key()
    lines = looked(shop.market(secret), book) if secret else []
    living = book.leases()
    receipts = filter(None, (book.receipt(file.stem) for file in book.receipts.glob("*.json")))
    bills = sorted(receipts, key=itemgetter("ended"))
    if as_json:
        say(json.dumps({"rented": [asdict(lease) | {"name": lease.name} for lease in living], "bills": bills}))
        return 0
    for line in [*lines, *(line for lease in living for line in wording.lease_lines(lease, leases.now()))]:
        say(line)
    say("" if living else "nothing is rented" + ("" if secret else f" as far as this controller knows (no {KEY})"))
    if bills:
        say("bills")
    for line in [line for bill in bills[-5:] for line in wording.bill_lines(bill)]:
        say(line)
    return 0


def give_back(*, vault: str, yes: bool) -> int:
    book = Book(leases.folder())
    market = shop.market(shop.key(vault))
    living = book.leases()
    if living and not yes and not agreed(f"give {living[0].name} back? what was not fetched is lost"):
        say("nothing was given back (without a terminal: --yes)")
        return 1
    code = 0
    for lease in living:
        code = max(code, gone_back(market, book, want_back(book, lease, "you gave it back")))
    for line in looked(market, book):
        say(line)
    if not living:
        say("nothing is rented")
    return code
