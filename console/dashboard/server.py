"""Serves the live page (./motley dashboard). It only reads: `kill -9` of it changes nothing for a run.

What it can do, stop and ask, it does by the verbs themselves, each as a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from console.dashboard import tables
from console.dashboard.feed import Feed
from console.dashboard.guard import Guard
from console.dashboard.pages import REPORT, Pages
from console.dashboard.qr import lines as qr_lines
from console.doctor.look import last
from console.fetch import no_name
from console.infra.node import ROOT, ask_all, from_inventory
from console.inventory.keys import Nodes, is_address
from console.inventory.read import Inventory
from console.text_layout import say
from train.errors import BadInput
from train.plan.run_name import is_name
from train.safe_stdio import draw

MOST_STREAMS = 16
EVERY_S = 0.25
ALIVE_S = 10.0
LONGEST_QUESTION = 4000
LONGEST_FORM = 16 << 10
LINKS = {"": "run", "charts": "charts", "runs": "all runs", "ask": "ask", "machines": "machines"}
NOTHING_YET = "<p>There is nothing to draw yet: the first step has not been trained.</p>"
FILES = {"run.css": "text/css", "live.css": "text/css", "run.js": "text/javascript", "live.js": "text/javascript"}


@dataclass
class Dashboard:
    feed: Feed
    pages: Pages
    inventory: Inventory
    streams: int = 0
    drawn: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the next drawing."""
    home: str = "./"
    """Below it are all pages."""
    boot: str = ""
    """Which life of the server a stream's numbers are of."""

    def app(self, hosts: Sequence[str], folder: str, token: str) -> Guard:
        self.boot = secrets.token_hex(4)
        routes = [
            Route("/", self.run),
            Route("/events", self.events),
            Route("/charts", self.charts),
            Route("/runs", self.runs),
            Route("/machines", self.machines),
            Route("/ask", self.ask, methods=["GET", "POST"]),
            Route("/stop", self.stop, methods=["GET", "POST"]),
            Route("/{name}", self.file),
        ]
        self.home = f"{folder}/"
        handlers: Any = {404: self.missing, 405: self.missing, ClientDisconnect: unread}
        return Guard(Starlette(routes=routes, exception_handlers=handlers), hosts=hosts, folder=folder, token=token)

    # -- pages -------------------------------------------------------------------------------------------------------

    async def run(self, _: Request) -> Response:
        self.feed.watched_at = time.monotonic()
        await run_in_threadpool(self.pages.refresh)
        parts = {name: text for _, name, text in self.pages.newer(0)}
        body = "\n".join(f'<div id="part-{name}">{parts.get(name, "")}</div>' for name in ("live", *REPORT))
        return self.page(self.feed.run or "Motley", body, live=True, title=self.pages.title)

    async def charts(self, _: Request) -> Response:
        body = await run_in_threadpool(self.pages.charts)
        return self.page("charts", body.replace("<details>", "<details open>", 1) or NOTHING_YET)

    async def runs(self, _: Request) -> Response:
        answers, silent = await run_in_threadpool(ask_all, self.feed.nodes, lambda node: node.runs())
        body = self.pages.page("tables.html.j2", what="runs", rows=tables.runs(answers), silent=silent)
        return self.page("all runs", body + self.command("runs"))

    async def machines(self, _: Request) -> Response:
        answers, silent = await run_in_threadpool(ask_all, self.feed.nodes, lambda node: node.status())
        rows = tables.machines([node.name for node in self.feed.nodes], answers, silent)
        body = self.pages.page("tables.html.j2", what="machines", rows=rows, silent={}) + self.command("status")
        at, said = await run_in_threadpool(last, self.inventory)
        when = time.strftime("%A %d %B, %H:%M", time.localtime(at)) if at else "never"
        body += f"<h2>Last check-up: {when}</h2>"
        body += f'<pre class="said" tabindex="0">{html.escape(chr(10).join(said))}</pre>' if at else ""
        return self.page("machines", body + self.command("doctor"))

    def command(self, verb: str) -> str:
        return f'<p class="quiet do">In a terminal: <code>./motley {html.escape(verb)}{self.named()}</code></p>'

    def named(self) -> str:
        return html.escape(self.pages.inventory)

    def page(self, heading: str, body: str, *, live: bool = False, title: str = "", status: int = 200) -> Response:
        return HTMLResponse(self.whole(heading, body, live=live, title=title), status)

    def whole(self, heading: str, body: str, *, live: bool = False, title: str = "") -> str:
        title = title or f"{heading} · Motley"
        shown = {"heading": heading, "body": body, "live": live, "title": title, "home": self.home, "links": LINKS}
        return self.pages.page("dashboard.html.j2", **shown)

    async def missing(self, _: Request, error: Exception) -> Response:
        not_allowed = isinstance(error, HTTPException) and error.status_code == 405
        said = "That cannot be done here." if not_allowed else "There is no such page."
        body = f'<p>{said}</p><p><a href="{self.home}">Back to the run</a></p>'
        return self.page("not found", body, status=405 if not_allowed else 404)

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404)
        return PlainTextResponse((ROOT / "templates" / name).read_text(), media_type=FILES[name])

    # -- the stream --------------------------------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        if self.streams >= MOST_STREAMS:
            return PlainTextResponse("too many pages are open\n", 503)
        boot, _, number = request.headers.get("last-event-id", "").partition("-")
        seen = int(number) if boot == self.boot and number.isdecimal() else 0
        return StreamingResponse(self.stream(seen), media_type="text/event-stream")

    async def stream(self, seen: int) -> AsyncIterator[str]:
        self.streams += 1
        title, quiet_since = "", time.monotonic()
        try:
            yield "retry: 1000\n\n"
            while True:
                self.feed.watched_at, drawn = time.monotonic(), self.drawn
                for version, name, text in self.pages.newer(seen):
                    seen, quiet_since = version, time.monotonic()
                    yield event("part", {"name": name, "html": text}, f"{self.boot}-{version}")
                if self.pages.title != title:
                    title = self.pages.title
                    yield event("title", title)
                if time.monotonic() - quiet_since > ALIVE_S:
                    quiet_since = time.monotonic()
                    yield ": still here\n\n"
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(drawn.wait(), ALIVE_S)
        finally:
            self.streams -= 1

    async def draw_for_ever(self) -> None:
        while True:
            if self.streams and self.pages.due():
                await run_in_threadpool(self.pages.refresh)
                self.drawn.set()
                self.drawn = asyncio.Event()
            await asyncio.sleep(EVERY_S)

    # -- what it can do ----------------------------------------------------------------------------------------------

    async def stop(self, request: Request) -> Response:
        run, said, status = self.feed.run, "", 200
        why = "" if self.feed.running else "No run is running: there is nothing to stop."
        if request.method == "POST":
            if not run or await typed(request, "run") != run:
                said, status = "That is not its name: nothing was stopped.", 400
            elif why:  # the next of the queue may have begun: it is not meant
                status = 409
            else:
                said = await self.verb(["stop", f"--inventory={self.inventory.path}"])
        form = (
            f"<p>This saves run <b>{html.escape(run)}</b> and ends it on every machine. It can be resumed:"
            f" <code>./motley launch --resume {html.escape(run)}{self.named()}</code></p>"
            '<form method="post" action="stop"><p><label>Type its name: '
            '<input name="run" autocomplete="off" required></label>'
            "</p><p><button>stop it</button></p></form>"
        )
        body = f'{usable(form, why)}<p id="said">{html.escape(said)}</p>{self.command("stop")}'
        return self.page("stop", body, status=status)

    async def ask(self, request: Request) -> Response:
        if request.method == "POST":
            question = await typed(request, "question")
            if not question or len(question) > LONGEST_QUESTION:
                return self.page("ask", ASK + "<p>A question has 1 to 4000 characters.</p>", status=400)
            return StreamingResponse(self.answer(question), media_type="text/html")
        why = "" if self.feed.run else "There is no run to ask yet."
        if self.feed.running:
            why = f"{self.feed.run} is still running: the machines compute for it. Ask when it has ended."
        return self.page(
            "ask", usable(ASK, why) + self.command(f"ask --run {self.feed.run}" if self.feed.run else "ask")
        )

    async def answer(self, question: str) -> AsyncIterator[str]:
        """The page up to its end, with the answer's lines as they come."""
        before, _, after = self.whole("ask", "\0").partition("\0")
        yield f'{before}{ASK}<h2>{html.escape(question)}</h2><pre id="said">'
        words = ["ask", f"--inventory={self.inventory.path}", "--question=-"]
        words += [f"--run={self.feed.run}"] if self.feed.run else []
        async for line in self.output(words, question):
            yield html.escape(line)
        yield f"</pre>{after}"

    async def verb(self, words: list[str]) -> str:
        return "".join([line async for line in self.output(words)])

    async def output(self, words: list[str], given: str = "") -> AsyncIterator[str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "console", *words),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdin and process.stdout
        process.stdin.write(given.encode())
        process.stdin.close()
        try:
            async for line in process.stdout:
                yield line.decode(errors="replace")
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()


ASK = (
    '<form method="post" action="ask"><p><label>Your question, answered before and after training:'
    '<br><textarea name="question" rows="3" maxlength="4000" required></textarea></label></p>'
    "<p><button>ask</button></p></form>"
)


def usable(form: str, why: str) -> str:
    """The form, or why it cannot be used now."""
    return f'<p id="why">{html.escape(why)}</p><fieldset disabled>{form}</fieldset>' if why else form


async def typed(request: Request, name: str) -> str:
    """One field of a form; empty where somebody sends more than a person types."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_FORM:
            return ""
    return parse_qs(body.decode("utf-8", "replace")).get(name, [""])[0].strip()


async def unread(_: Request, __: Exception) -> Response:
    """What nobody is sent who has left meanwhile."""
    return Response()


def event(kind: str, facts: object, number: str = "") -> str:
    return f"event: {kind}\n{f'id: {number}' + chr(10) if number else ''}data: {json.dumps(facts)}\n\n"


# -- serving -----------------------------------------------------------------------------------------------------------


def dashboard(inventory: Inventory, *, run: str = "", port: int = 0, lan: bool = False) -> int:
    if run and not is_name(run):
        raise BadInput(no_name(run))
    listener = listening(port, lan=lan)
    port = listener.getsockname()[1]
    hosts = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", *(own_addresses(inventory.nodes) if lan else []))]
    folder, token = f"/{secrets.token_urlsafe(6)}", secrets.token_urlsafe(24)
    feed = Feed(from_inventory(inventory), inventory.nodes, run, launches=inventory.state)
    shown = "" if inventory.path == Path("inventory/homelab") else f" --inventory {inventory.path}"
    board = Dashboard(feed, Pages(feed, shown), inventory)
    feed.start()
    for host in hosts if lan else hosts[:1]:
        say(f"http://{host}{folder}/?token={token}")
    if lan:
        for line in qr_lines(f"http://{hosts[-1]}{folder}/?token={token}"):
            draw(f"{line}\n", sys.stdout)
        say("everybody in your network who has this address can read along, and stop the run: not over Wi-Fi of others")
    say("Ctrl-C ends the page; the run continues without it")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(board.app(hosts, folder, token), board, listener))
    return 0


class Connection(H11Protocol):
    """A connection. At most half of those allowed may be idle; the oldest idle ones are closed: strangers keep nobody
    out."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = time.monotonic()
        ours = [one for one in self.connections if isinstance(one, Connection)]
        idle = [one for one in ours if not one.cycle or one.cycle.response_complete]
        for one in sorted(idle, key=lambda one: one.since)[: -(self.limit_concurrency or 0) // 2]:
            one.transport.close()


class Server(uvicorn.Server):
    async def main_loop(self) -> None:
        """Looks twice a second whether it is to end: ten times, as it is, cost more than the page itself."""
        while not await self.on_tick(0):
            await asyncio.sleep(0.5)


async def serve(app: Guard, board: Dashboard, listener: socket.socket) -> None:
    drawing = asyncio.create_task(board.draw_for_ever())
    try:
        await listen(app, listener, most_connections=64)
    finally:
        drawing.cancel()


async def listen(app: ASGIApp, listener: socket.socket, *, most_connections: int) -> None:
    config = uvicorn.Config(
        app, log_level="error", access_log=False, lifespan="off", server_header=False,
        http=Connection, ws="none", timeout_graceful_shutdown=1,
        limit_concurrency=most_connections, h11_max_incomplete_event_size=1 << 15,
    )  # fmt: skip
    await Server(config).serve(sockets=[listener])


def listening(port: int, *, lan: bool) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("0.0.0.0" if lan else "127.0.0.1", port))  # noqa: S104 - asked for, and said
    except OSError as error:
        raise BadInput(f"port {port} cannot be had: {error.strerror}", fix="another one: --port 7008") from None
    listener.listen(64)  # who opens the address at once waits for the first page
    return listener


def own_addresses(nodes: Nodes) -> list[str]:
    """The addresses by which this machine leaves for the internet and for its nodes, whose network may have no router;
    nothing is sent."""
    own: dict[str, None] = {}
    for other in ("192.0.2.1", *filter(is_address, (values.get("motley_address") for values in nodes.values()))):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((str(other), 9))
            own[str(probe.getsockname()[0])] = None
    addresses = [address for address in own if not address.startswith("127.")]
    if not addresses:
        raise BadInput("lan: this machine is in no network", fix="fix: leave --lan out, or plug the cable in")
    return addresses
