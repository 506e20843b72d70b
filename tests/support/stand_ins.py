"""What stands in for something larger: a few lines for a program or a run's process, the lab's hub, a clock."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lab.hub import Handler, State


def program(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


class PlayedTime:
    """In the place of the module `time`: only who sleeps moves it."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@contextlib.contextmanager
def running(home: Path, run: str) -> Iterator[None]:
    """A process that is found on the node of this home as the agent of this run is."""
    (home / "config").mkdir(exist_ok=True)
    (home / "config/cluster_config.yaml").write_text(f"run: {run}\n")
    code = "import time; print('on', flush=True); time.sleep(60)"
    env = dict(os.environ, MOTLEY_HOME=str(home))
    process = subprocess.Popen([sys.executable, "-c", code, "train", "agent"], env=env, stdout=subprocess.PIPE)
    try:
        assert process.stdout and process.stdout.readline() == b"on\n"
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def hub(folder: Path, behaviour: str = "{}") -> Iterator[str]:
    """The lab's hub with what this folder has, until the end; its address."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "behaviour.json").write_text(behaviour)

    class Own(Handler):
        state = State(folder)

    with served(Own) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def answers(body: bytes, status: int = 200, **headers: str) -> Iterator[int]:
    """A server that answers so, whatever it is asked; its port."""

    class Own(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None: ...

    with served(Own) as port:
        yield port


@contextlib.contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()
