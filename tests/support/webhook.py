"""A server on loopback that keeps what is posted to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []
        """The next status codes; then 200."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/secret"


class Answer(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def webhook() -> Iterator[Webhook]:
    with Webhook() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()
