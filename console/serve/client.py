"""Asks an endpoint: that of ./motley serve, where it answers on this machine, else one for as long as it is used."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from console.dashboard.server import listen, listening
from console.inventory.read import Inventory
from console.serve.app import Endpoint
from console.serve.command import MOST_CONNECTIONS, Served, of_run
from console.serve.guard import FILE, Guard
from console.serve.router import Router

LOOK_S = 2.0

Messages = list[dict[str, str]]


class NotAnswered(Exception):
    """Says why there is no answer, in the endpoint's words."""


@dataclass(frozen=True, slots=True)
class Client:
    port: int
    run: str
    token: str = ""

    def stream(self, messages: Messages, **how: Any) -> Generator[str, None, None]:
        """The answer as it comes. Who stops listening stops it."""
        body = {"model": self.run, "messages": messages, "stream": True} | how
        headers = {"Content-Type": "application/json"} | authorization(self.token)
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
                answer = connection.getresponse()
                if answer.status != HTTPStatus.OK:
                    raise NotAnswered(json.loads(answer.read())["error"]["message"])
                yield from parts(answer)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise NotAnswered(f"the endpoint is gone: {error}") from None


def parts(answer: http.client.HTTPResponse) -> Generator[str, None, None]:
    for line in answer:
        _, is_data, data = line.partition(b"data: ")
        if data.startswith(b"[DONE]"):
            return
        if not is_data:
            continue
        facts = json.loads(data)
        if "error" in facts:
            raise NotAnswered(facts["error"]["message"])
        for choice in facts["choices"]:
            yield choice["delta"].get("content", "")
    raise NotAnswered("the endpoint is gone: the answer broke off")  # a server that ends closes its line


def authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def running(inventory: Inventory, run: str, port: int) -> Client | None:
    """The endpoint that answers there already, if it serves this run; whichever it serves where none is named."""
    file = inventory.state / FILE
    token = file.read_text().strip() if file.is_file() else ""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LOOK_S)
    odd = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)  # anything may answer at that port
    with contextlib.closing(connection), contextlib.suppress(*odd):
        connection.request("GET", "/v1/models", headers=authorization(token))
        [found] = json.loads(connection.getresponse().read())["data"]
        if found["owned_by"] == "motley" and found["id"] == (run or found["id"]):
            return Client(port, found["id"], token)
    return None


@contextlib.contextmanager
def endpoint(inventory: Inventory, run: str, port: int, say: Callable[[str], None]) -> Iterator[Client]:
    if known := running(inventory, run, port):
        say(f"run {known.run} · by ./motley serve on port {port}")
        yield known
        return
    own = Own(of_run(inventory, run), say)
    try:
        yield own.client()
    finally:
        own.close()


class Own:
    """An endpoint in a thread of its own, at a port that nobody else is told."""

    def __init__(self, served: Served, say: Callable[[str], None]) -> None:
        self.served, self.say = served, say
        self.listener = listening(0, lan=False)
        self.port = int(self.listener.getsockname()[1])
        self.loop = asyncio.new_event_loop()
        self.is_up, self.task = threading.Event(), self.loop.create_task(self._serve())
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(self.task)

    async def _serve(self) -> None:
        router = Router(lambda line: None if self.is_up.is_set() else self.say(line))  # no line within an answer
        try:
            router.use(self.served.machines)
            await router.up.wait()
            self.is_up.set()
            app = Guard(Endpoint(router, self.served.run).app(), hosts=[f"127.0.0.1:{self.port}"])
            await listen(app, self.listener, most_connections=MOST_CONNECTIONS)
        finally:
            self.is_up.set()
            await router.close()

    def client(self) -> Client:
        while not self.is_up.wait(0.2):  # an endless wait would hear no Ctrl-C
            pass
        if not any(machine.ready for machine in self.served.machines):
            raise NotAnswered(f"no machine can serve {self.served.run} now")
        return Client(self.port, self.served.run)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join(10)
