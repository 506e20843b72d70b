"""./motley serve as a person starts it, on nodes that are folders, and what a program asks it by plain HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support import pace
from tests.support.cluster import REPOSITORY
from tests.support.folders import inventory_of

PATH = "/v1/chat/completions"


def inventory(tmp_path: Path, homes: Mapping[str, Path]) -> Path:
    found = inventory_of(tmp_path, homes).path
    shutil.copytree(REPOSITORY / "inventory/homelab/group_vars", found / "group_vars")
    return found


class Served:
    def __init__(self, folder: Path, run: str, *more: str) -> None:
        self.out = folder.parent / "served.txt"
        words = ["serve", "--inventory", str(folder), "--run", run, "--port", "0", *more]
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "console", *words], cwd=REPOSITORY, stdout=out, stderr=out
            )

    def said(self) -> str:
        return self.out.read_text()

    def says(self, words: str, times: int = 1) -> None:
        pace.until(lambda: self.said().count(words) >= times or self.process.poll() is not None, 30, self.said)
        assert self.said().count(words) >= times, self.said()

    @property
    def port(self) -> int:
        self.says("/v1 · model")
        return int(self.said().partition("http://")[2].partition("/v1")[0].rpartition(":")[2])

    def close(self) -> None:
        """As Ctrl-C; a test may have ended it already."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            assert pace.ended(self.process, 60, self.said) == 0, self.said()


@contextlib.contextmanager
def served(folder: Path, run: str, *more: str) -> Iterator[Served]:
    made = Served(folder, run, *more)
    try:
        yield made
        made.close()
    finally:
        made.process.kill()
        made.process.wait()


def ask(port: int, body: Mapping[str, Any], path: str = PATH, **headers: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def stream(
    port: int, body: Mapping[str, Any], on_part: Callable[[int], object] = lambda _: None
) -> tuple[str, list[dict[str, Any]]]:
    """The text of a stream, and its parts; it must have come to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    parts: list[dict[str, Any]] = []
    with contextlib.closing(connection):
        connection.request("POST", PATH, json.dumps({"stream": True} | dict(body)))
        answer = connection.getresponse()
        lines = list(lines_of(answer, on_part, parts))
        assert lines[-1] == "[DONE]", lines[-3:]
    text = "".join(choice["delta"].get("content", "") for part in parts for choice in part["choices"])
    return text, parts


def lines_of(
    answer: http.client.HTTPResponse, on_part: Callable[[int], object], parts: list[dict[str, Any]]
) -> Iterator[str]:
    for raw in answer:
        _, found, data = raw.decode().strip().partition("data: ")
        if found and data != "[DONE]":
            parts.append(json.loads(data))
            on_part(len(parts))
        if found:
            yield data
