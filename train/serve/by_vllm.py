"""Answers by vLLM's server (train/models/vllm.py), where a launch has brought its environment to this node.

Each request is a stream of its own from the server, which makes them side by side. A request that is dropped has its
connection closed: the server then stops making it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from train.errors import CheckFailed
from train.models.vllm import PYTHON, RANKS, Line, Server, Serving
from train.results.finished_run import FinishedRun
from train.serve.memory import Room
from train.serve.request import Asked, Made

WAIT_S = 0.05
"""For the next token, before the next request is looked for."""
ADAPTER = "adapter"


def can_serve(run: FinishedRun, home: Path) -> bool:
    """Whether it is installed here and takes this model as it was trained: a base in 16 bit, and plain LoRA on it."""
    config = Path(run.base) / "config.json"
    quantised = config.is_file() and "quantization_config" in json.loads(config.read_text())
    settings = run.settings
    plain = not settings.get("dora") and settings.get("lora_init", "default") == "default"
    fits = int(settings.get("lora_r") or 16) <= RANKS[-1]
    is_taken = plain and fits and run.load_in == "16bit" and not quantised
    return (home / PYTHON).exists() and bool(run.base) and (is_taken or not run.is_adapter)


def serving(run: FinishedRun, home: Path, room: Room, *, precision: str, device: str) -> Serving:
    return Serving(
        python=home / PYTHON,
        base=run.base if run.is_adapter else str(run.folder),
        precision=precision,
        device=device,
        lora_r=int(run.settings.get("lora_r") or 16),
        row_length=room.context,
        at_once=room.slots,
        cache_bytes=room.cache_bytes,
        log=home / "vllm" / f"serve-{os.getpid()}.log",
    )


class ByVllm:
    name = "vLLM"

    def __init__(self, run: FinishedRun, given: Serving) -> None:
        self.context = given.row_length
        self.made: queue.Queue[Made] = queue.Queue()
        self.lines: dict[int, Line] = {}
        os.environ.pop("MOTLEY_HOME", None)  # a process that has it is taken for one of a run
        self.server = Server(given)
        try:
            self.server.started()
            if run.is_adapter:
                self.server.ask("/v1/load_lora_adapter", {"lora_name": ADAPTER, "lora_path": str(run.folder)})
        except BaseException:
            self.server.close()
            raise
        self.model = ADAPTER if run.is_adapter else "base"

    def begin(self, asked: Asked) -> None:
        line = self.lines[asked.number] = Line(self.server.door)
        threading.Thread(target=self._follow, args=(line, asked), daemon=True).start()

    def drop(self, numbers: Sequence[int]) -> None:
        for line in filter(None, [self.lines.pop(number, None) for number in numbers]):
            with contextlib.suppress(OSError, AttributeError):
                line.sock.shutdown(socket.SHUT_RDWR)

    def step(self) -> list[Made]:
        if self.server.process.poll() is not None:
            raise CheckFailed(f"vLLM ended; its last words are in {self.server.serving.log}")
        made: list[Made] = []
        with contextlib.suppress(queue.Empty):
            made.append(self.made.get(timeout=WAIT_S))
            while True:
                made.append(self.made.get_nowait())
        return [answer for answer in made if answer.number in self.lines]

    def _follow(self, line: Line, asked: Asked) -> None:
        """A connection that a drop has closed ends the thread; nobody waits for its last words."""
        try:
            for tokens in streamed(line, self.body(asked)):
                if asked.number not in self.lines:  # dropped before there was a connection to close
                    return
                self.made.put(Made(asked.number, tokens))
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            self.made.put(Made(asked.number, failed=f"vLLM broke off: {error}"))
        finally:
            line.close()

    def body(self, asked: Asked) -> dict[str, Any]:
        """Without an end of its own: who asks knows it. What is begun is read like the prompt."""
        prompt = [*asked.prompt, *asked.begun]
        return {
            "model": self.model,
            "prompt": prompt,
            "stream": True,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "seed": asked.seed,
            "max_tokens": self.context - len(prompt),
            "ignore_eos": True,
            "return_token_ids": True,
        }

    def close(self) -> None:
        self.server.close()


def streamed(line: Line, body: dict[str, Any]) -> Iterator[tuple[int, ...]]:
    line.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    if answer.status != http.HTTPStatus.OK:
        raise ValueError(answer.read().decode(errors="replace")[:300])
    for part in answer:
        _, found, data = part.partition(b"data: ")
        if found and not data.startswith(b"[DONE]"):
            for choice in json.loads(data)["choices"]:
                if tokens := choice.get("token_ids"):
                    yield tuple(tokens)
