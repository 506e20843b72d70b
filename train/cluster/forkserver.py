"""`python -m train warm`: imports the libraries once, so that a worker is a fork of this process and starts at once.

An agent has one beside it (start_workers.py): importing torch, transformers and peft takes seconds, and after a loss
the whole cluster waits for them. A request comes on the socket that is its standard input: a command, its environment,
and a socket for the new process to send its pid. That process becomes a child of the agent, not of this one.

Where unsloth is installed only torch is imported, because unsloth must come before the others. A process that has
opened a GPU cannot be forked: if an import does that, the fork server restarts without libraries, says so, and its
workers import them themselves.
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

from train.cluster.attach_to_agent import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl
from train.cluster.timing import TIMING

SOURCE = str(Path(__file__).resolve().parents[2])
LONGEST = 1 << 17
"""The longest request. A worker with a longer environment, as in a pod among hundreds of services, starts cold."""


# -- the agent's side --------------------------------------------------------------------------------------------------


class Worker:
    """A process started by the fork server. Like subprocess.Popen, except that its pid is None until it runs."""

    def __init__(self, args: Sequence[str], link: socket.socket, server: subprocess.Popen[bytes]) -> None:
        self.args, self.link, self.server = args, link, server
        self.link.setblocking(False)
        self.pid: int | None = None
        self.returncode: int | None = None
        self.first_signal: int | None = None
        self.signalled_at: float | None = None

    def poll(self) -> int | None:
        if self.pid is None and self.returncode is None:
            self._receive_pid()
        if self.pid is not None and self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def _receive_pid(self) -> None:
        with suppress(BlockingIOError):
            pid = self.link.recv(32)
            self.link.close()
            if not pid:
                self.returncode = -signal.SIGKILL  # the fork server was killed before it could answer
                return
            self.pid = int(pid)
            if self.first_signal is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, self.first_signal)

    def send_signal(self, number: int) -> None:
        """Sends the signal to the worker's whole session, as soon as it runs."""
        self.poll()
        if self.pid is None:
            self.first_signal = number
            self.signalled_at = self.signalled_at or time.monotonic()
            if self.returncode is None and time.monotonic() - self.signalled_at > TIMING.stuck_s:
                self.server.kill()  # it no longer answers; the next worker starts without it
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


class ForkServer:
    """The fork server beside this process. Its workers are this process's children."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "train", "warm", "--parent", str(os.getpid())]
        with theirs:
            self.process = subprocess.Popen(
                command, stdin=theirs.fileno(), env=with_source(env or os.environ), start_new_session=True
            )

    def start(self, args: Sequence[str], env: Mapping[str, str], out: int | None = None) -> Worker | None:
        """Starts `python ARGS…`; None if the fork server is gone, or the request is too long for it."""
        request = json.dumps({"args": list(args), "env": dict(env)}).encode()
        if self.process.poll() is not None or len(request) > LONGEST:
            return None
        mine, theirs = socket.socketpair()
        with theirs:
            fds = array.array("i", [theirs.fileno(), *([] if out is None else [out])])
            try:
                self.link.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            except OSError:
                mine.close()
                return None
        return Worker(args, mine, self.process)


def with_source(env: Mapping[str, str]) -> dict[str, str]:
    path = env.get("PYTHONPATH", "")
    return dict(env) | {"PYTHONPATH": path if SOURCE in path.split(":") else f"{SOURCE}:{path}".rstrip(":")}


# -- the fork server ---------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parent", type=int, required=True, help="the agent; the fork server ends with it")
    parser.add_argument("--cold", action="store_true", help="import no libraries")


def main(args: argparse.Namespace) -> int:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != args.parent:
        return 1
    gc.disable()  # of thousands of modules there is nothing to collect
    if not args.cold:
        _import_libraries()
        if gpus := _open_gpus():
            print(f"no warm start: a library has opened {', '.join(gpus)}", file=sys.stderr, flush=True)
            os.execv(sys.executable, [sys.executable, "-m", "train", "warm", "--parent", str(args.parent), "--cold"])
    link = socket.socket(fileno=os.dup(0))
    gc.freeze()
    gc.enable()
    while True:
        request, fds, *_ = socket.recv_fds(link, LONGEST, 2)
        if not request:
            return 0
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            between = os.getpid()
            if os.fork() == 0:  # the process in between ends, so the agent becomes the parent
                link.close()
                _become(json.loads(request), fds, args, between)
            os._exit(0)
        os.waitpid(pid, 0)
        for fd in fds:
            os.close(fd)


def _import_libraries() -> None:
    import torch  # noqa: F401

    if importlib.util.find_spec("unsloth") is None:
        importlib.import_module("peft")
        from transformers import AutoModelForCausalLM  # noqa: F401
    for module in ("train.engine.run", "train.engine.loop", "train.engine.setup", "train.parallel.process_group"):
        importlib.import_module(module)


def _open_gpus() -> list[str]:
    open_files = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            open_files.add(str(descriptor.readlink()))
    return sorted(name for name in open_files if name.startswith("/dev/nvidia"))


def _become(request: dict[str, Any], fds: list[int], args: argparse.Namespace, between: int) -> NoReturn:
    """Becomes `python ARGS…`."""
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
        if parent != args.parent:  # the agent is gone
            os._exit(1)
        with socket.socket(fileno=link) as agent:
            agent.sendall(str(os.getpid()).encode())
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
