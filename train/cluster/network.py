"""How a line and its answer get from one agent to another: TCP, a connection for each question."""

from __future__ import annotations

import contextlib
import errno
import socket
import socketserver
import threading
from collections.abc import Callable

from train.clock import Clock

LONGEST = 1 << 16


class Link:
    def __init__(self, link: socket.socket, clock: Clock) -> None:
        self.link, self.clock = link, clock

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def send(self, line: bytes, deadline: float) -> None:
        self.link.settimeout(max(0.05, deadline - self.clock.now()))
        self.link.sendall(line)

    def line(self, deadline: float) -> bytes:
        data = b""
        while not data.endswith(b"\n") and len(data) < LONGEST:
            self.link.settimeout(max(0.01, deadline - self.clock.now()))
            if not (more := self.link.recv(4096)) or self.clock.now() > deadline:
                raise TimeoutError
            data += more
        return data


class Network:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def connect(self, address: str, port: int, limit_s: float) -> Link:
        return Link(socket.create_connection((address, port), limit_s), self.clock)

    def serve(self, address: str, port: int, answer: Callable[[Link], None]) -> None:
        """Answers each connection in a thread of its own."""
        server = _Server((address, port), lambda link: answer(Link(link, self.clock)))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()

    def is_free(self, port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                return error.errno != errno.EADDRINUSE
        return True


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], answer: Callable[[socket.socket], None]) -> None:
        self.answer = answer
        super().__init__(address, socketserver.BaseRequestHandler)

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], _: object) -> None:
        assert isinstance(request, socket.socket)
        with contextlib.suppress(OSError):
            self.answer(request)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND: the cable may still be out
        super().server_bind()

    def handle_error(self, *_: object) -> None:
        """Reports nothing: it was a stranger, or a peer that gave up."""
