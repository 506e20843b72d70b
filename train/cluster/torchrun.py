"""`python -m train torchrun`: this node's part of a training script that knows nothing of Motley, by plain torchrun.

    python -m train torchrun --run mnist --folder scripts/mnist -- --nnodes 2 --node-rank 0 … train.py --lr 0.1

What stands behind `--` goes to torchrun as it is; scripts/launch_cluster.sh has the whole line. Of such a script Motley
knows what it prints, and when and how it ends: output.jsonl, agent.json and members.jsonl in logs/runs/RUN. Only this
node is watched; when a process of it ends, the others see that by their broken connections, or wait for their time-out.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import FrameType
from typing import IO

from train.cluster.agent_files import MemberLog, StatusFile
from train.cluster.agent_surroundings import Outside
from train.cluster.attach_to_agent import PR_SET_PDEATHSIG, prctl
from train.cluster.gpu_log import GpuReadings
from train.failures import OWN_SIGNS, PEER_SIGNS
from train.runlog import paths
from train.runlog.secret import secret_of
from train.safe_stdio import may_get_lost
from train.send_notice import Notice, send

OF_TORCHRUN = re.compile(r"[EWI]\d{4} [\d:.]+ +\d+ .*torch/distributed/elastic/")
REPORT = re.compile(rf"{OF_TORCHRUN.pattern}.*failed \(exitcode: (-?\d+)\)")
"""How torchrun begins its own account of a process that failed: forty lines, of which none is the script's."""
LAST_LINES = 6
PREFIX = "[${rank}] "
"""What stands before each line, where a node has several processes."""
ERROR = re.compile(r"\b\w*(Error|Exception|Interrupt)\b")
THREADS_LEFT = "terminate called without an active exception"
HOW_TO_END = "torch's threads outlived the script; if its work was done, let it end with os._exit(0)"
OF_RANK = re.compile(r"(\[\d+\]) ")
KEPT_BYTES = 64 << 20
"""How much of one run's output is kept; the journal has the rest."""
EVERY_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", required=True, help="its name, and that of its folder in logs/runs")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the script runs, below MOTLEY_HOME")
    parser.add_argument("words", nargs="*", help="behind --: torchrun's options, the script and its arguments")


def main(args: argparse.Namespace) -> int:
    may_get_lost()  # or a full disk under its output stops the thread that reads it, and the script waits for ever
    home, node = Path(os.environ.get("MOTLEY_HOME", ".")).resolve(), os.environ.get("MOTLEY_NODE", "")
    return NodeScript(home, args.run, node, args.words).run(home / args.folder)


class Output:
    """What the script prints: passed on at once, kept as lines of JSON, and its last lines by heart."""

    def __init__(self, file: Path) -> None:
        self.file, self.kept = file, file.stat().st_size if file.exists() else 0
        self.of_rank: dict[str, deque[str]] = {}
        self.exit_code: int | None = None
        self.at = 0.0

    def pass_on(self, stream: IO[bytes]) -> None:
        """Passes the stream on to its end. Of a progress bar, which draws over itself, the last state counts."""
        for raw in stream:
            line = raw.decode(errors="replace")
            print(line, end="", flush=True)
            text = line.rstrip("\n").rpartition("\r")[2].rstrip()
            if self.exit_code is None and (report := REPORT.match(text)):
                self.exit_code = int(report[1])
            if not text or self.exit_code is not None:
                continue
            self.keep(text)
            if not OF_TORCHRUN.match(text):
                rank = OF_RANK.match(text)
                self.of_rank.setdefault(rank[1] if rank else "", deque(maxlen=LAST_LINES)).append(text)

    def keep(self, text: str) -> None:
        self.at = max(round(time.time(), 6), round(self.at + 1e-6, 6))  # by which lines are told apart, and ordered
        line = json.dumps({"time": self.at, "text": text}) + "\n"
        self.kept += len(line)
        if self.kept < KEPT_BYTES:
            with contextlib.suppress(OSError), self.file.open("a", encoding="utf-8") as file:
                file.write(line)

    @property
    def last(self) -> list[str]:
        """The last lines of the process that failed by itself, where one did: the others of this node only lost it."""
        every = [list(lines) for lines in self.of_rank.values()]
        own = [lines for lines in every if error_of(lines) and not lost_a_peer(lines)]
        return [*own, *reversed(every), []][0]

    def reason(self, code: int) -> str:
        """Why the script ended, in one line: its own last one, unless a signal ended it. Behind an error of its own an
        abort is only how torch's threads end when the interpreter goes before them (pytorch issue 190489)."""
        signalled = -code if self.exit_code is None else -self.exit_code
        last = self.last
        own = error_of(last)
        if signalled > 0 and not (own and signalled == signal.SIGABRT):
            left = any(THREADS_LEFT in line for line in last) and f": {HOW_TO_END}"
            return f"ended by {signal.Signals(signalled).name}{left or ''}"
        return own or last[-1] if last else f"exit code {code}, and it printed nothing"

    @property
    def is_of_a_peer(self) -> bool:
        """Whether this node only noticed that another one is gone."""
        return lost_a_peer(self.last)


def error_of(lines: list[str]) -> str:
    """The last line that names an error, else empty; warnings may come behind it."""
    return next((line for line in reversed(lines) if ERROR.search(line)), "")


def lost_a_peer(lines: list[str]) -> bool:
    text = "\n".join(lines).lower()
    ours = ("did not answer", "cannot start:")  # of a script that trains by motley.fit
    return not any(sign in text for sign in OWN_SIGNS) and any(sign in text for sign in (*PEER_SIGNS, *ours))


class NodeScript:
    def __init__(self, home: Path, run: str, node: str, words: list[str]) -> None:
        self.home, self.run_name, self.words = home, run, words
        logs = paths.logs(home, run)
        logs.mkdir(parents=True, exist_ok=True)
        outside = Outside()
        self.log, self.status = MemberLog(logs, node, outside), StatusFile(logs / paths.AGENT, outside)
        self.output = Output(logs / paths.OUTPUT)
        self.gpu_file, self.stopping = logs / paths.GPU, False

    def run(self, folder: Path) -> int:
        (self.home / paths.WANTED).unlink(missing_ok=True)  # a node that restarts could not join the others any more
        results = paths.results(self.home, self.run_name)
        results.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-u", "-P", "-m", "torch.distributed.run", *self.words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(os.environ, MOTLEY_RESULTS=str(results), TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=PREFIX),
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509  it ends its own processes
        )

        def pass_on_stop(number: int, _: FrameType | None) -> None:
            self.stopping = True
            process.send_signal(signal.SIGTERM)

        self.gpus = GpuReadings(self.gpu_file, self.log.node)
        signal.signal(signal.SIGTERM, pass_on_stop)
        signal.signal(signal.SIGINT, pass_on_stop)
        self.note("up", " ".join(self.words))
        assert process.stdout
        reader = threading.Thread(target=self.output.pass_on, args=(process.stdout,), daemon=True)
        reader.start()
        while (code := waited(process, EVERY_S)) is None:
            self.write_status("stopping" if self.stopping else "running")
        reader.join(EVERY_S)  # a process that the script left behind may hold it open for ever
        return self.ended(code)

    def ended(self, code: int) -> int:
        state = "stopped" if self.stopping else "failed" if code else "done"
        reason = "stopped" if self.stopping else self.output.reason(code) if code else "exit code 0"
        peer, last = self.output.is_of_a_peer, self.output.last
        self.write_status(state, reason=reason, **({"peer": peer, "last": last} if state == "failed" else {}))
        self.note("ended", reason, done=state == "done")
        if state != "stopped" and "--node-rank=0" in self.words:
            self.tell(state, reason)
        return 143 if self.stopping else 1 if code else 0

    def tell(self, state: str, reason: str) -> None:
        """The head sends the message of the end, where a launch has brought the address."""
        address = secret_of(self.home / paths.SECRET).messages
        if address and (why := send(address, Notice(state, self.run_name, reason))):
            print(f"the message of the end was not sent: {why}", flush=True)

    def write_status(self, state: str, **more: object) -> None:
        facts = {"pid": os.getpid(), "script": script_of(self.words), "gpus": self.gpus.now}
        self.status.write(state, facts | more)

    def note(self, kind: str, reason: str, **facts: object) -> None:
        self.log.write(kind, number=0, step=0, host="", nodes=[self.log.node], reason=reason, **facts)


def waited(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(limit_s)
    return None


def script_of(words: list[str]) -> str:
    """The script as a person typed it: what stands behind torchrun's own options, which all are --NAME=VALUE here."""
    return " ".join(itertools.dropwhile(lambda word: word.startswith("--"), words))
