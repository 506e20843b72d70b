"""`./motley serve`: finds the machines that have the run, opens the port, and stays until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

from console.dashboard.server import listen, listening, own_addresses
from console.infra.node import from_inventory
from console.inventory.read import Inventory
from console.serve.app import Endpoint
from console.serve.guard import FILE, Guard, token_of
from console.serve.machine import Machine
from console.serve.router import Router
from console.text_layout import say
from console.use_result import NowhereToAsk, find

MOST_CONNECTIONS = 512
"""Programs keep more connections open than the browsers of a live page."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, and by which machines."""

    run: str
    machines: list[Machine]
    left_out: dict[str, str]


def serve(inventory: Inventory, *, run: str = "", port: int = 0, lan: bool = False) -> int:
    listener = listening(port, lan=lan)
    try:
        served = of_run(inventory, run)
    except NowhereToAsk as reason:
        listener.close()
        say(str(reason))
        return 1
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(until_stopped(served, listener, inventory, lan=lan))
    return 0


def of_run(inventory: Inventory, run: str) -> Served:
    nodes = [part for node in from_inventory(inventory) for part in node.parts(run)]
    usable_run = find(nodes, run)
    say(f"run {usable_run.run}{usable_run.stopped}")
    left_out = {
        node.name: usable_run.silent.get(node.name) or "it has not what this run has made: ./motley launch brings it"
        for node in nodes
        if node not in usable_run.have
    }
    may_serve = [node for node in nodes if node in usable_run.have or node.name in usable_run.silent]
    return Served(usable_run.run, [Machine(node, usable_run.run) for node in may_serve], left_out)


async def until_stopped(served: Served, listener: socket.socket, inventory: Inventory, *, lan: bool) -> int:
    router = Router(say)
    try:
        for name, why in served.left_out.items():
            say(f"✗ {name} is left out: {why}")
        router.use(served.machines)
        await router.up.wait()
        if not any(machine.ready for machine in served.machines):
            say(f"no machine can serve {served.run} now")
            return 1
        hosts, token = announced(served.run, listener, inventory, lan=lan, tell=say)
        app = Guard(Endpoint(router, served.run).app(), hosts=hosts, token=token)
        await listen(app, listener, most_connections=MOST_CONNECTIONS)
    finally:
        await router.close()
    return 0


def announced(
    run: str, listener: socket.socket, inventory: Inventory, *, lan: bool, tell: Callable[[str], None]
) -> tuple[list[str], str]:
    """The names by which it is asked, and the token: shown when it is made, and never again."""
    port = listener.getsockname()[1]
    addresses = own_addresses(inventory.nodes) if lan else []
    for name in addresses or ["127.0.0.1"]:
        tell(f"http://{name}:{port}/v1 · model {run}")
    token = ""
    if lan:
        token, is_new = token_of(inventory.state)
        where = inventory.state / FILE
        tell(f"token (API key), shown only now: {token}" if is_new else f"token (API key): as it was shown; in {where}")
        tell("requests and the token cross your network unencrypted: not over Wi-Fi of others")
    else:
        tell("for programs of this machine; --lan is for others. Any API key will do")
    tell("Ctrl-C ends it")
    return [f"{name}:{port}" for name in ("127.0.0.1", "localhost", *addresses)], token
