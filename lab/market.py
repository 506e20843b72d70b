"""A market of machines as Clore.ai's, for tests: its shapes, its pace and its bill, with faults by verb.

    python -m lab.market 127.0.0.1 8600 [--pace 1.0] [--servers FILE]

POST /fault {"verb": "create_order", "fault": "lost", "times": 1}; GET /bill; POST /outbid {"id": 1000}. What it
bills is counted here, by its own clock, and not by what a renter believes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEY = "lab-market-key"
FEE = 0.05
USD_EACH = {"USD-Blockchain": 1.0, "CLORE-Blockchain": 0.04}
Facts = dict[str, Any]
FAULTS = {
    "lost": "it is done, and the answer never comes",
    "late": "no answer comes, and it is done some seconds later",
    "500": "answered with 500, and not done",
    "500-done": "answered with 500, and done all the same",
    "garbled": "done, and answered with what nobody understands",
    "busy": "answered with code 5, and not done",
    "taken": "somebody else was quicker",
    "down": "the connection is refused, as far as a test can tell",
}
LATE_S = 5.0
NOT_DONE = ("500", "busy", "taken", "down", "late")


class NoAnswer(Exception):
    """The connection is closed without a word."""


def server(number: int, **other: Any) -> Facts:
    """An offer that suits; what differs is named: gpu, cuda, ram, disk, down, reliability, usd, clore, mrl, count."""
    count, gpu = other.get("count", 1), other.get("gpu", "NVIDIA GeForce RTX 4090")
    return {
        "id": number,
        "rented": False,
        "reliability": other.get("reliability", 0.995),
        "mrl": other.get("mrl", 72),
        "cuda_version": other.get("cuda", "13.0"),
        "gpu_array": [gpu] * count,
        "allowed_coins": other.get("coins", ["USD-Blockchain", "CLORE-Blockchain"]),
        "specs": {
            "gpu": f"{count}x {gpu}", "gpuram": other.get("gpuram", 24), "ram": other.get("ram", 62.7),
            "disk": other.get("disk", "NVMe 900GB"), "cpus": "16/32",
            "net": {"up": 300, "down": other.get("down", 800), "cc": other.get("cc", "CZ")},
        },
        "price": {"usd": {"on_demand_usd": other.get("usd", 0.38), "on_demand_clore": other.get("clore", 0.36)}},
    }  # fmt: skip


def usual() -> list[Facts]:
    return [
        server(6),
        server(7, usd=0.22, clore=0.21, cuda="12.4", ram=16, disk="SSD 60GB", down=40, reliability=0.91, cc="US"),
        server(8, usd=0.75, clore=0.7, count=2, cc="DE"),
        server(9, usd=0.30, clore=0.29, gpu="NVIDIA GeForce RTX 3060", gpuram=12),
    ]


@dataclass(kw_only=True, slots=True)
class Books:
    """What the market has, has let and bills. `clock` is the market's own."""

    servers: list[Facts] = field(default_factory=usual)
    clock: Callable[[], float] = time.time
    wallets: dict[str, float] = field(default_factory=lambda: {"USD-Blockchain": 5.0, "CLORE-Blockchain": 210.0})
    shows_marks: bool = True
    on_order: Callable[[Facts], None] = lambda order: None
    on_end: Callable[[Facts], None] = lambda order: None
    orders: dict[int, Facts] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    """The next calls' faults, one each, by verb ("any" for all)."""
    waiting: list[tuple[float, Facts]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def answer(self, verb: str, body: Facts, key: str) -> Facts:
        """NoAnswer and ValueError (a 500) by the faults that are set."""
        self.asked.append(verb)
        self._late_ones()
        line = self.faults.get(verb) or self.faults.get("any") or []
        fault = line.pop(0) if line else ""
        if fault == "down":
            raise NoAnswer
        if verb != "marketplace" and key != KEY:
            return {"code": 3}
        if fault == "late":
            self.waiting.append((self.clock() + LATE_S, {"verb": verb, "body": body}))
        done = {} if fault in NOT_DONE else self._do(verb, body)
        if fault in ("lost", "late"):
            raise NoAnswer
        if fault.startswith("500"):
            raise ValueError(fault)
        if fault == "busy":
            return {"code": 5}
        if fault == "taken":
            return {"code": 6, "error": "server-already-rented"}
        return {"sorry": "?"} if fault == "garbled" else done

    def _late_ones(self) -> None:
        due = [call for at, call in self.waiting if at <= self.clock()]
        self.waiting = [(at, call) for at, call in self.waiting if at > self.clock()]
        for call in due:
            self._do(call["verb"], call["body"])

    def _do(self, verb: str, body: Facts) -> Facts:
        match verb:
            case "marketplace":
                return {"code": 0, "servers": self.servers}
            case "wallets":
                return {"code": 0, "wallets": [{"name": name, "balance": self._held(name)} for name in self.wallets]}
            case "my_orders":
                return self._listed()
            case "create_order":
                return self._create(body)
            case "cancel_order":
                return self._cancel(body)
        return {"code": 4}

    def _held(self, wallet: str) -> float:
        spent = sum(self.usd(order) for order in self.orders.values() if order["currency"] == wallet)
        return round(self.wallets[wallet] - spent / USD_EACH[wallet], 4)

    def _listed(self) -> Facts:
        hidden = {"born", "currency", "ended", "usd", "ssh_key", "machine", *(() if self.shows_marks else ("env",))}
        living = [order for order in self.orders.values() if order["ended"] is None]
        shown = [{name: value for name, value in order.items() if name not in hidden} for order in living]
        return {"code": 0, "orders": shown}

    def _cancel(self, body: Facts) -> Facts:
        order = self.orders.get(body.get("id", 0))
        if order is None or order["ended"] is not None:
            return {"code": 6, "error": "no such order"}
        self.end(order, "terminated")
        return {"code": 0}

    def _create(self, body: Facts) -> Facts:
        one = next((server for server in self.servers if server["id"] == body.get("renting_server")), None)
        if one is None or one["rented"]:
            return {"code": 6, "error": "server-already-rented"}
        if body["currency"] not in one["allowed_coins"]:
            return {"code": 6, "error": "currency-not-allowed"}
        price = one["price"]["usd"][{"USD-Blockchain": "on_demand_usd"}.get(body["currency"], "on_demand_clore")]
        if body["required_price"] < price:
            return {"code": 6, "error": "too_low_price"}
        one["rented"] = True
        number = 1000 + len(self.orders)
        order = {
            "id": number, "renting_server": one["id"], "status": "running", "image": body["image"],
            "env": body.get("env", {}), "ssh_key": body["ssh_key"], "born": self.clock(), "ended": None, "usd": price,
            "currency": body["currency"],
            "pub_cluster": [one.get("host", "127.0.0.1")], "tcp_ports": [f"22:{one.get('port', 2222)}"],
        }  # fmt: skip
        order["machine"] = one.get("machine", "")
        self.orders[number] = order
        self.on_order(order)
        return {"code": 0, "order_id": number}

    def end(self, order: Facts, status: str) -> None:
        if order["ended"] is None:
            order |= {"ended": self.clock(), "status": status}
            next(one for one in self.servers if one["id"] == order["renting_server"])["rented"] = False
            self.on_end(order)

    def usd(self, order: Facts) -> float:
        ended = self.clock() if order["ended"] is None else order["ended"]
        return float(order["usd"] * (1 + FEE) * (ended - order["born"]) / 3600)

    def bill(self) -> list[Facts]:
        self._late_ones()
        return [
            {"id": order["id"], "status": order["status"], "usd": self.usd(order), "mark": mark_of(order)}
            for order in self.orders.values()
        ]


def mark_of(order: Facts) -> str:
    return str(order["env"].get("MOTLEY_LEASE", ""))


class Handler(BaseHTTPRequestHandler):
    books: Books
    pace_s = 1.0
    lock = threading.Lock()
    last = 0.0

    def log_message(self, *_: object) -> None:
        """Nobody reads it, and the key is in a header."""

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

    do_GET = do_POST

    def _answer(self, body: Facts) -> None:
        verb = self.path.partition("?")[0].rpartition("/")[2]
        kind = type(self)
        try:
            with kind.lock:
                said = self._of_tests(verb, body)
                if said is None and time.monotonic() - kind.last < 0.8 * kind.pace_s:
                    said = {"code": 5}
                if said is None:
                    kind.last = time.monotonic()
                    said = kind.books.answer(verb, body, self.headers.get("auth", ""))
        except NoAnswer:
            self.close_connection = True
            return
        except ValueError:
            self._say({"error": "internal"}, 500)
            return
        self._say(said)

    def _of_tests(self, verb: str, body: Facts) -> Facts | None:
        books = type(self).books
        if verb == "fault":
            books.faults[body["verb"]] = [body["fault"]] * int(body.get("times", 1)) if body["fault"] else []
            return {"code": 0}
        if verb == "outbid":
            books.end(books.orders[body["id"]], "outbid")
            return {"code": 0}
        return {"orders": books.bill(), "asked": books.asked} if verb == "bill" else None

    def _say(self, value: Facts, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve(
    books: Books, address: str, port: int, pace_s: float, kind: type[HTTPServer] = ThreadingHTTPServer
) -> HTTPServer:
    own = {"books": books, "pace_s": pace_s, "lock": threading.Lock(), "last": 0.0}
    return kind((address, port), type("OneMarket", (Handler,), own))


def hook(command: str) -> Callable[[Facts], None]:
    """A program that gets the order as its last word: it makes a machine of it, or takes it away."""

    def call(order: Facts) -> None:
        if command:
            subprocess.Popen([*command.split(), json.dumps(order)], stdin=subprocess.DEVNULL)

    return call


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("address")
    asked.add_argument("port", type=int)
    asked.add_argument("--pace", type=float, default=1.0)
    asked.add_argument("--servers", type=Path)
    asked.add_argument("--on-order", default="")
    asked.add_argument("--on-end", default="")
    args = asked.parse_args()
    servers = json.loads(args.servers.read_text()) if args.servers else usual()
    books = Books(servers=servers, on_order=hook(args.on_order), on_end=hook(args.on_end))
    serve(books, args.address, args.port, args.pace).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
