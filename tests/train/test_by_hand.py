"""docs/elsewhere.md, "By hand, with plain torchrun": its commands as they stand there, on machines that are folders.

What stands for the reader's own (an address, a port, a network card) is replaced by this machine's.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pace
from tests.support.pages import Command, commands_of
from tests.train import cluster, reference
from tests.train.proof_of_run import merge, rows_are_right
from train.models.model_files import model_folder
from train.runlog.tail import read

PAGE = cluster.ROOT / "docs/elsewhere.md"
ADDRESS, PORT, NIC = "192.168.50.10", "29500", "enp3s0"
ROWS, ROWS_PER_STEP = 60, 8
TOLERANCE = 1e-4
SETTINGS = {
    **{"model": "tiny", "run": "run", "rows_per_step": ROWS_PER_STEP, "lora_r": 8, "lora_alpha": 16},
    **{"learning_rate": 2e-3, "grad_clip": 0.3, "save_every": 10, "wire": "fp32"},
}


def shown(*words: str) -> list[str]:
    """The page's commands with these words in them."""
    of_blocks = [command for command in commands_of(PAGE) if isinstance(command, Command) and command.whole]
    found = [each.text for each in of_blocks if all(word in each.text for word in words)]
    assert found, f"{PAGE.name} shows no command with {' '.join(words)}"
    return found


[EXPORTS] = shown("export PYTHONPATH")
ONE_PROCESS = shown("env/bin/python -m train run")
EACH_ITS_PART = shown("env/bin/torchrun", "--master_addr")
ELASTIC = [*shown("export TORCH"), *shown("env/bin/torchrun", "--rdzv_backend=c10d")]


class Machine:
    """As a launch leaves one: ~/ai-cluster with environment, code and settings."""

    def __init__(self, home: Path, settings: dict) -> None:
        self.home, self.name = home, home.name
        (home / "config").mkdir(parents=True)
        (home / "code").mkdir()
        (home / "code/train").symlink_to(cluster.ROOT / "train")
        (home / "env").symlink_to(sys.prefix)
        (home / "config/training_config.yaml").write_text(json.dumps(settings | {"home": str(home)}))
        self.started: list[subprocess.Popen] = []

    def types(self, command: str, port: int) -> None:
        text = f"{EXPORTS} && {command}".replace(ADDRESS, "127.0.0.1").replace(PORT, str(port)).replace(NIC, "lo")
        own = {name: value for name, value in cluster.environment(self.name).items() if name != "PYTHONPATH"}
        with (self.home / f"said-{len(self.started)}").open("w") as out:
            command_line = ["sh", "-c", text]
            self.started.append(subprocess.Popen(command_line, cwd=self.home, env=own, stdout=out, stderr=out))
        cluster.STARTED.append(self.started[-1])

    def ends(self) -> int:
        return pace.ended(self.started[-1], trouble=self.said)

    def loses_power(self) -> None:
        """torchrun and its workers at once: none of them says goodbye."""
        for folder in Path("/proc").glob("[0-9]*"):
            if f"MOTLEY_NODE={self.name}".encode() in environment_of(folder):
                os.kill(int(folder.name), signal.SIGKILL)
        self.started[-1].wait()

    def events(self) -> list[dict]:
        file = self.home / "logs/runs/run/events.jsonl"
        return read(file) if file.exists() else []

    def said(self) -> str:
        return "\n".join(file.read_text()[-3000:] for file in sorted(self.home.glob("said-*")))


def environment_of(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def steps_of(machines: list[Machine]) -> dict[int, dict]:
    return merge([machine.events() for machine in machines])


@pytest.fixture
def machines(tmp_path, data, request) -> list[Machine]:
    settings = SETTINGS | {"dataset": str(data), "max_steps": request.param}
    return [Machine(tmp_path / f"{tmp_path.name}-{place}", settings) for place in range(3)]


def is_the_truth(steps: dict[int, dict], data: Path, of_steps: int) -> None:
    assert sorted(steps) == list(range(1, len(steps) + 1))
    assert rows_are_right(steps, ROWS, ROWS_PER_STEP)
    truth = reference.losses(
        model_folder("tiny"), data, steps=len(steps), rows_per_step=ROWS_PER_STEP, of_steps=of_steps
    )
    assert reference.largest_error([steps[step]["loss"] for step in sorted(steps)], truth) < TOLERANCE


@pytest.mark.long  # test_exactness.py has unequal processes
@pytest.mark.parametrize("machines", [12], indirect=True)
def test_two_one_and_one_processes_are_the_one_of_the_page(machines, data) -> None:
    assert [re.search(r"nproc_per_node=(\d)", each)[1] for each in EACH_ITS_PART] == ["2", "1", "1"]
    port = cluster.free_port()
    for machine, command in zip(machines, EACH_ITS_PART, strict=True):
        machine.types(command, port)
    assert [machine.ends() for machine in machines] == [0, 0, 0], machines[0].said()
    steps = steps_of(machines)
    assert len(steps) == 12
    assert len(steps[1]["nodes"]) == 4
    is_the_truth(steps, data, 12)
    [alone] = ONE_PROCESS  # the same settings once more: there is nothing left to do
    machines[1].types(alone, port)
    assert machines[1].ends() == 0, machines[1].said()


@pytest.mark.long
@pytest.mark.parametrize("machines", [5000], indirect=True)
def test_elastic_goes_on_with_two_and_takes_the_third_back(machines, data) -> None:
    command = " && ".join(ELASTIC)
    port = cluster.free_port()
    first, *others = machines
    first.types(command, port)
    pace.until(lambda: listens(port), pace.HANG_S, first.said)  # by that address each would take itself for it
    for machine in others:
        machine.types(command, port)
    sees(machines, 3, after=0)
    *left, lost = machines  # without the first, where they meet, all is over
    lost.loses_power()
    step = sees(left, 2, after=0)
    lost.types(command, port)
    sees(machines, 3, after=step)
    for machine in machines:
        machine.started[-1].terminate()
    for machine in machines:
        machine.ends()
    is_the_truth(steps_of(machines), data, 5000)


def sees(machines: list[Machine], nodes: int, *, after: int) -> int:
    """A step of so many nodes, saved once by now."""

    def found() -> int:
        assert all(machine.started[-1].poll() is None for machine in machines), machines[0].said()
        steps = steps_of(machines)
        return max(
            (step for step, event in steps.items() if len(event["nodes"]) == nodes and step > after + 10), default=0
        )

    return pace.until(found, pace.HANG_S, lambda: "\n".join(machine.said() for machine in machines), every_s=0.5)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
