"""`python -m train warm`: the libraries read once, so that a worker is a fork of this process and begins at once.

An agent has one beside it (workers.py): reading torch, transformers and peft takes seconds, and after a loss the whole
cluster waits for them. A request comes by the socket that is its standard input: a command, its environment, and
a socket of its own on which the new process tells its pid. That process is a child of whoever asked, not of this one.

Where unsloth is installed only torch is read, because unsloth must be read before the others. A process that has opened
a card cannot be forked: should a library do that while it is read, this one begins anew without libraries, says so, and
what it makes reads them itself.
"""

from __future__ import annotations

import argparse
import array
import gc
import importlib
import importlib.util
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from train.cluster.worker_process import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl

SOURCE = str(Path(__file__).resolve().parents[2])
LONGEST = 1 << 17


# -- whoever asks ------------------------------------------------------------------------------------------------------


class Born:
    """A process that a warm one made. As subprocess.Popen, but for its pid, which is None until it is there."""

    STUCK_S = 60.0

    def __init__(self, args: Sequence[str], link: socket.socket, warm: subprocess.Popen[bytes]) -> None:
        self.args, self.link, self.warm = args, link, warm
        self.link.setblocking(False)
        self.pid: int | None = None
        self.returncode: int | None = None
        self.first_signal: int | None = None
        self.unwanted_at: float | None = None

    def poll(self) -> int | None:
        if self.pid is None and self.returncode is None:
            self._hear()
        if self.pid is not None and self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            told = self.link.recv(32)
            self.link.close()
            if not told:
                self.returncode = -signal.SIGKILL  # the warm one was killed before it could answer
                return
            self.pid = int(told)
            if self.first_signal is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, self.first_signal)

    def send_signal(self, number: int) -> None:
        """To it and to all that it started; as soon as it is there."""
        self.poll()
        if self.pid is None:
            self.first_signal = number
            self.unwanted_at = self.unwanted_at or time.monotonic()
            if self.returncode is None and time.monotonic() - self.unwanted_at > self.STUCK_S:
                self.warm.kill()  # it answers nobody any more; who comes next begins cold
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (1e9 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            time.sleep(0.01)
        return code


class Warm:
    """A warm process beside this one. What it makes are this process's children."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "train", "warm", "--parent", str(os.getpid())]
        with theirs:
            self.process = subprocess.Popen(
                command, stdin=theirs.fileno(), env=with_source(env or os.environ), start_new_session=True
            )

    def start(self, args: Sequence[str], env: Mapping[str, str], out: int | None = None) -> Born | None:
        """Begin `python ARGS…`; None if nothing warm is here (any more)."""
        if self.process.poll() is not None:
            return None
        mine, theirs = socket.socketpair()
        with theirs:
            given = array.array("i", [theirs.fileno(), *([] if out is None else [out])])
            request = json.dumps({"args": list(args), "env": dict(env)}).encode()
            try:
                self.link.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)])
            except OSError:
                mine.close()
                return None
        return Born(args, mine, self.process)


def with_source(env: Mapping[str, str]) -> dict[str, str]:
    path = env.get("PYTHONPATH", "")
    return dict(env) | {"PYTHONPATH": path if SOURCE in path.split(":") else f"{SOURCE}:{path}".rstrip(":")}


# -- the warm process --------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parent", type=int, required=True, help="the process that started it, and ends it by ending")
    parser.add_argument("--cold", action="store_true", help="read no libraries")


def main(args: argparse.Namespace) -> int:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != args.parent:
        return 1
    if not args.cold:
        _read_libraries()
        if cards := _open_cards():
            print(f"no warm start: a library has opened {', '.join(cards)}", file=sys.stderr, flush=True)
            os.execv(sys.executable, [sys.executable, "-m", "train", "warm", "--parent", str(args.parent), "--cold"])
    link = socket.socket(fileno=os.dup(0))
    gc.freeze()
    while True:
        request, fds, *_ = socket.recv_fds(link, LONGEST, 2)
        if not request:
            return 0
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            between = os.getpid()
            if os.fork() == 0:  # the one in between ends: whoever asked is the parent now
                link.close()
                _be(json.loads(request), fds, args, between)
            os._exit(0)
        os.waitpid(pid, 0)
        for fd in fds:
            os.close(fd)


def _read_libraries() -> None:
    import torch  # noqa: F401

    if importlib.util.find_spec("unsloth") is None:
        importlib.import_module("peft")
        from transformers import AutoModelForCausalLM  # noqa: F401
    for own in ("train.engine.run", "train.engine.loop", "train.engine.setup", "train.parallel.world"):
        importlib.import_module(own)


def _open_cards() -> list[str]:
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(str(file.readlink()))
    return sorted(name for name in found if name.startswith("/dev/nvidia"))


def _be(request: dict[str, Any], fds: list[int], args: argparse.Namespace, between: int) -> NoReturn:
    """Become `python ARGS…`."""
    code = 1
    try:
        os.setsid()
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        link, *out = fds
        for fd in out:
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            os.close(fd)
        os.environ.clear()
        os.environ.update(request["env"])
        while (parent := os.getppid()) == between:
            time.sleep(0.0005)
        if parent != args.parent:  # whoever asked is gone
            os._exit(1)
        with socket.socket(fileno=link) as told:
            told.sendall(str(os.getpid()).encode())
        if args.cold:
            os.execve(sys.executable, [sys.executable, *request["args"]], request["env"])
        code = _run(request["args"])
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(args: list[str]) -> int:
    first, *rest = args
    try:
        if first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = args
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
