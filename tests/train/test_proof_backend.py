"""The proof's all-reduce where not every machine has a card: all ranks agree, and none waits for another kind."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support import pace

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "roles/motley_proof/files/all_reduce.py"
PRETEND = """
import runpy, sys, torch
torch.cuda.is_available = lambda: {card}
runpy.run_path({script!r}, run_name="__main__")
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def rank(number: int, world: int, port: int, *, card: bool) -> subprocess.Popen[str]:
    known = {
        "RANK": number,
        "WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "MOTLEY_FLOATS": 4096,
    }
    known |= {"MOTLEY_ADDRESS": "127.0.0.1", "MOTLEY_LASTS_S": 0.01, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": 1}
    return subprocess.Popen(
        [sys.executable, "-c", PRETEND.format(card=card, script=str(SCRIPT))],
        env=os.environ | {name: str(value) for name, value in known.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_one_machine_without_a_card_makes_all_use_gloo():
    port = free_port()
    ranks = [rank(number, 2, port, card=number == 0) for number in range(2)]
    try:
        said = [pace.said_by(process)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0], said
    (line,) = [line for line in said[0].splitlines() if line.startswith("MOTLEY ")]
    told = json.loads(line.removeprefix("MOTLEY "))
    assert (told["backend"], told["world"]) == ("gloo", 2)
    assert "1 of 2 nodes has no card" in told["why"]
