"""Clore.ai: the five calls over its API v1. Never tried with real money; the shapes are those of its documentation.

Reading is asked again where no answer comes. An order is sent once: the answer may be lost, the order is not.
What the market lists is let and ordered by strangers: what cannot be read is left out, and keeps nothing else from us.
The key is in a header alone: no message has it, and no address.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, build_opener
from urllib.request import Request as HttpRequest

from console.rent.call_within import within
from console.rent.market import Declined, Offer, Order, Request, Unanswered

URL = "https://api.clore.ai/v1"
MARK = "MOTLEY_LEASE"
IMAGE = "cloreai/ubuntu22.04-cuda12"
PRICES = {"USD-Blockchain": "on_demand_usd", "CLORE-Blockchain": "on_demand_clore"}
BUSY = 5
REASONS = {1: "it has an error of its own", 3: "it does not know this key", BUSY: "it is asked too often"}
TRIES, RETRY_S = 4, 1.0
Facts = dict[str, Any]


class NoRedirect(HTTPRedirectHandler):
    """A redirect is an error: followed, it would take the key to whatever address it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(kw_only=True, slots=True)
class Clore:
    key: str = field(repr=False)
    url: str = URL
    image: str = IMAGE
    """What the container is made of: with sshd, the driver's libraries and Python 3.11 or newer."""
    pace_s: float = 1.05
    """It answers one request a second."""
    timeout_s: float = 15.0
    """The limit of a whole call, however slowly its answer comes."""
    sleep: Callable[[float], None] = time.sleep
    name: str = "Clore.ai"
    fee: float = 0.05
    _last: float = -1e9

    def offers(self) -> list[Offer]:
        return [offer_of(server) for server in self._read("marketplace", "servers")]

    def order(self, request: Request) -> int:
        answer = self._ask("create_order", {
            "renting_server": request.server, "type": "on-demand", "currency": request.currency,
            "required_price": request.usd_h, "image": self.image, "ports": {"22": "tcp"}, "ssh_key": request.public_key,
            "env": {MARK: request.mark},
        })  # fmt: skip
        if not isinstance(answer.get("order_id"), int):
            raise Unanswered("its answer to the order has no order number")
        return int(answer["order_id"])

    def orders(self) -> list[Order]:
        return [order_of(order) for order in self._read("my_orders", "orders") if _whole(order.get("id"))]

    def cancel(self, number: int) -> None:
        self._again("cancel_order", {"id": number})

    def balance(self) -> dict[str, float]:
        return {str(wallet.get("name")): _number(wallet.get("balance")) for wallet in self._read("wallets", "wallets")}

    def _read(self, name: str, part: str) -> list[Facts]:
        entries = self._again(name, None).get(part)
        if not isinstance(entries, list):
            raise Unanswered(f"its answer to {name} has no {part}")
        return [entry for entry in entries if isinstance(entry, dict)]

    def _again(self, name: str, body: Facts | None) -> Facts:
        """What may be asked twice: reading, and cancelling what is cancelled."""
        for attempt in range(1, TRIES):
            try:
                return self._ask(name, body)
            except Unanswered:
                self.sleep(RETRY_S * attempt)
        return self._ask(name, body)

    def _ask(self, name: str, body: Facts | None) -> Facts:
        if (early_s := self._last + self.pace_s - time.monotonic()) > 0:
            self.sleep(early_s)
        self._last = time.monotonic()
        return judged(name, self._send(name, body), ordering=name == "create_order")

    def _send(self, name: str, body: Facts | None) -> Any:
        try:
            return within(self.timeout_s, partial(self._call, name, body))
        except TimeoutError:
            raise Unanswered(f"no answer to {name} within {self.timeout_s:g} s") from None

    def _call(self, name: str, body: Facts | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"auth": self.key, "Content-Type": "application/json"}
        request = HttpRequest(f"{self.url}/{name}", data, headers)  # noqa: S310
        try:
            with build_opener(NoRedirect).open(request, timeout=self.timeout_s) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            raise Unanswered(f"it answers {name} with {error.code}") from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            raise Unanswered(f"no answer to {name}: {type(error).__name__}") from None


def judged(name: str, answer: Any, *, ordering: bool) -> Facts:
    code = answer.get("code") if isinstance(answer, dict) else None
    if code == 0:
        return dict(answer)
    if not isinstance(code, int):
        raise Unanswered(f"its answer to {name} cannot be understood")
    why = str(answer.get("error") or REASONS.get(code) or f"code {code}")
    if code in (1, BUSY) and not (ordering and code == BUSY):
        raise Unanswered(why)
    raise Declined(why)


def offer_of(server: Mapping[str, Any]) -> Offer:
    """Any field may be missing or odd: it is let by strangers."""
    specs = _mapping(server.get("specs"))
    net, usd = _mapping(specs.get("net")), _mapping(_mapping(server.get("price")).get("usd"))
    cards, coins = _list(server.get("gpu_array")), _list(server.get("allowed_coins", list(PRICES)))
    prices = {coin: _number(usd.get(name)) for coin, name in PRICES.items() if coin in coins}
    return Offer(
        server=int(_number(server.get("id"))),
        gpu=str(specs.get("gpu") or ""),
        gpus=len(cards) or gpu_count(str(specs.get("gpu") or "")),
        gpu_gb=_number(specs.get("gpuram")),
        cuda=_number(server.get("cuda_version")),
        ram_gb=_number(specs.get("ram")),
        disk_gb=disk_gb(str(specs.get("disk") or "")),
        down_mbit=_number(net.get("down")),
        reliability=_number(server.get("reliability")),
        country=str(net.get("cc") or "?"),
        max_hours=_number(server.get("mrl")),
        taken=bool(server.get("rented")),
        usd_h={coin: price for coin, price in prices.items() if price > 0},
    )


def order_of(order: Mapping[str, Any]) -> Order:
    hosts = _list(order.get("pub_cluster"))
    pairs = [[_whole(port) for port in str(pair).split(":")] for pair in _list(order.get("tcp_ports"))]
    return Order(
        number=_whole(order.get("id")),
        server=int(_number(order.get("renting_server"))),
        mark=str(_mapping(order.get("env")).get(MARK) or ""),
        host=str(hosts[0]) if hosts else "",
        ports={pair[0]: pair[1] for pair in pairs if len(pair) == 2 and all(pair)},
    )


def gpu_count(text: str) -> int:
    """'2x NVIDIA GeForce RTX 4090' is two; what names no number is one."""
    count = re.match(r"(\d{1,2})x\b", text)
    return int(count[1]) or 1 if count else 1


def disk_gb(text: str) -> float:
    """'NVMe 900GB', 'SSD 1.8TB': the last size of the text."""
    sizes = re.findall(r"(\d+(?:\.\d+)?)\s*([GT])B", text)
    if not sizes:
        return 0.0
    size, unit = sizes[-1]
    return float(size) * (1000 if unit == "T" else 1)


def _number(value: Any) -> float:
    """0 where it does not begin with one. The rest of an account is often 8e-05."""
    number = re.match(r"\s*\d{1,12}(\.\d+)?(e[+-]?\d{1,2})?", str(value))
    return float(number[0]) if number else 0.0


def _whole(value: Any) -> int:
    """0 is none."""
    return int(value) if re.fullmatch(r"[0-9]{1,12}", str(value)) else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
