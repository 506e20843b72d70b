"""Small clusters for the tests of the loop: prepared rows, and runs of several processes, each a node of its own."""

import contextlib
import functools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from tests.support import ROOT, pace
from train.__main__ import main
from train.cluster.attach_to_agent import PR_SET_CHILD_SUBREAPER, prctl
from train.cluster.forkserver import ForkServer, Worker
from train.data.rows import FORMAT, RowWriter
from train.runlog.state import history
from train.runlog.tail import read

ROW_LENGTH = 48
ENDS_S = 200.0
"""Processes that wait for each other show: after timeout_s, five minutes, they would end all the same."""
STARTED: list[subprocess.Popen | Worker] = []


def make_rows(
    folder: Path, rows: int = 60, held_out: int = 7, seed: int = 0, *, vocabulary: int = 1003, alone: bool = False
) -> Path:
    """Packed rows of ragged samples with masked prompts: token counts differ widely from row to row. `alone`: a sample
    has a row for itself."""
    random = np.random.default_rng(seed)
    splits = {}
    for name, count in (("train", rows), ("eval", held_out)):
        writer = RowWriter(folder / name, ROW_LENGTH, 2)
        for _ in range(count):
            samples = make_row(random, vocabulary)
            writer.add(samples[:1] if alone else samples)
        splits[name] = writer.close()
    index = {"format": FORMAT, "row_length": ROW_LENGTH, "pad_id": 0, "token_bytes": 2, "splits": splits}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def write_records(file: Path, records) -> Path:
    """A data set: a line of JSON for each."""
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def make_row(random, vocabulary: int = 1003) -> list[tuple[list[int], list[int]]]:
    samples, room = [], int(random.integers(12, ROW_LENGTH + 1))
    while room >= 6:
        length = int(random.integers(5, min(room, 30) + 1))
        start = int(random.integers(3, vocabulary - 103))
        prompt = int(random.integers(1, length - 1))
        tokens = [3 + (start + 7 * i) % (vocabulary - 3) for i in range(length)]  # a pattern that can be learned
        samples.append((tokens, [0] * prompt + [1] * (length - prompt)))
        room -= length
    return samples


def environment(node: str = "node-0") -> dict[str, str]:
    keep = {
        name: os.environ[name] for name in ("PATH", "HOME", "MOTLEY_CACHE", "UNSLOTH_FORCE_CPU") if name in os.environ
    }
    return keep | {"OMP_NUM_THREADS": "1", "MOTLEY_NODE": node, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}


def rank_environment(rank: int, machines: Sequence[int], port: int) -> dict[str, str]:
    """As torchrun would have it; `machines`: of each rank the number of its node."""
    env = environment(f"node-{machines[rank]}")
    if len(machines) == 1:
        return env
    env |= {"RANK": str(rank), "WORLD_SIZE": str(len(machines)), "GLOO_SOCKET_IFNAME": "lo"}
    env |= {"LOCAL_RANK": str(machines[:rank].count(machines[rank]))}
    return env | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def free_port() -> int:
    """Below those that the kernel gives away: it is used seconds later, after the libraries are read. And above those
    of agents and heartbeats, as a group's store listens on all addresses."""
    while True:
        port = 30_000 + secrets.randbelow(2_700)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


@functools.cache
def warm() -> ForkServer:
    """One for all tests, which has built a model, too: three seconds less for each process."""
    return fork_server("-m", "tests.train.has_built", str(os.getpid()))


def fork_server(*words: str, log: IO[str] | None = None) -> ForkServer:
    """As the product's, of a program that is another one."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    warm = ForkServer.__new__(ForkServer)
    warm.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, *words]
    with theirs:
        warm.process = subprocess.Popen(
            command, env=environment(), cwd=ROOT, stdin=theirs.fileno(), stderr=log, start_new_session=True
        )
    return warm


def flags(options: dict) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


class Cluster:
    """Processes of one run, each a node of its own with its own home, as separate machines would have them."""

    def __init__(
        self,
        home: Path,
        options: dict,
        size: int = 1,
        program: list[str] | None = None,
        odd_rank_options=None,
        *,
        cold: bool = False,
        machines: Sequence[int] = (),
        changed: str = "",
    ) -> None:
        """`machines`: of each rank the number of its node, where several share one. `changed`: what broken.py changes
        of the program."""
        self.home = home
        self.machines = list(machines) or list(range(size))
        self.processes: list[subprocess.Popen | Worker] = []
        self.outputs: list[Path] = []
        port = free_port()
        program = ["tests/train/broken.py", changed] if changed else program or ["-m", "train"]
        for rank in range(size):
            own = options | (odd_rank_options or {}).get(rank, {})
            env = rank_environment(rank, self.machines, port)
            words = [*program, "run", *flags(own), f"--home={self.node_home(rank)}"]
            with (home / f"out-{rank}-{port}.txt").open("w") as out:
                if cold:
                    command = [sys.executable, *words]
                    process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=out, stderr=out)
                else:
                    process = warm().start(words, env, out.fileno())
                    assert process, "the warm process is gone"
            self.processes.append(process)
            self.outputs.append(Path(out.name))
        STARTED.extend(self.processes)

    def node_home(self, rank: int) -> Path:
        return self.home / f"node-{self.machines[rank]}"

    def wait(self, limit_s: float = ENDS_S) -> list[int]:
        return [pace.ended(process, limit_s, self.said) for process in self.processes]

    def reaches(self, step: int) -> None:
        def reached() -> bool:
            assert all(process.poll() is None for process in self.processes), self.said()
            return len(self.steps()) >= step

        pace.until(reached, pace.HANG_S, self.said, every_s=0.02)

    def said(self, rank: int = 0) -> str:
        return self.outputs[rank].read_text()

    def stop(self, number: int = signal.SIGKILL) -> None:
        """All at once, before they have ended by themselves."""
        for process in self.processes:
            process.send_signal(number)
        self.wait()
        assert not (self.node_home(0) / "results").exists(), "the run ended before it was stopped"

    def checkpoints(self, rank: int = 0) -> Path:
        return self.node_home(rank) / "models/checkpoints/run"

    def result(self, rank: int = 0, name: str = "adapter") -> Path:
        return self.node_home(rank) / "results/run" / name

    def launched(self, asked: dict, rows: Path | str, base: str = "") -> Path:
        """Rank 0's home, with what a launch leaves there."""
        model = {"name": base, "hub": None, "folder_name": base}
        facts = {"run": "run", "all": asked, "model": model, "rows": str(rows)}
        self.log().with_name("launch.json").write_text(json.dumps(facts))
        return self.node_home(0)

    def log(self, rank: int = 0, run: str = "run") -> Path:
        return self.node_home(rank) / "logs" / "runs" / run / "events.jsonl"

    def events(self, rank: int = 0, kind: str = "") -> list[dict]:
        return [event for event in read(self.log(rank)) if kind in ("", event["event"])]

    def steps(self, rank: int = 0) -> list[dict]:
        return history(self.events(rank))

    def losses(self, rank: int = 0) -> list[float]:
        return [event["loss"] for event in self.steps(rank)]


def train(home: Path, options: dict, size: int = 1, **extra) -> Cluster:
    """A run to its end, which must be a good one."""
    home.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(home, options, size, **extra)
    codes = cluster.wait()
    assert codes == [0] * size, "\n".join(cluster.said(rank) for rank in range(size))
    return cluster


def killed(home, settings, step):
    """A run of three whose processes are killed once it has reached that step."""
    torn = Cluster(home, settings, 3)
    torn.reaches(step)
    torn.stop()


def answer(capsys, *words) -> tuple[int, dict]:
    """A command's exit code, and what it answers."""
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])
