"""slurm.conf of unequal machines; tests/lab/test_slurm.py gives the same files to a real Slurm."""

from dataclasses import replace
from pathlib import Path

import pytest

from console.infra.slurm.slurm_conf import Card, Machine, machine, rendered, slurm_conf
from console.inventory.check import check
from tests.support.cluster import REPOSITORY
from train.errors import BadInput

CORES = {"sockets": 1, "cores": 8, "threads": 2}
TOWER = Machine(name="tower", address="10.0.0.1", **CORES, memory_mb=31000, cards=(Card("rtx5070ti", "/dev/nvidia0"),))
LAPTOP_CARDS = [{"type": "rtx4070maxq", "file": f"/dev/nvidia{place}"} for place in (0, 1)]


def test_every_machine_has_its_line_and_every_card_its_file() -> None:
    laptop = machine("laptop", "10.0.0.2", CORES | {"memory_mb": 15000, "cards": LAPTOP_CARDS})
    old = machine("old", "10.0.0.3", {"sockets": 1, "cores": 4, "threads": 1, "memory_mb": 7000, "cards": []})
    files = rendered("home", [TOWER, laptop, old])
    lines = files["slurm.conf"].splitlines()
    assert "SlurmctldHost=tower(10.0.0.1)" in lines
    of_nodes = [line for line in lines if line.startswith("NodeName")]
    assert [line.split()[0] for line in of_nodes] == ["NodeName=tower", "NodeName=laptop", "NodeName=old"]
    assert "CPUs=16" in of_nodes[0]
    assert of_nodes[1].endswith("RealMemory=15000 Gres=gpu:rtx4070maxq:2")
    assert of_nodes[2].endswith("ThreadsPerCore=1 RealMemory=7000")
    assert [line for line in files["gres.conf"].splitlines() if line.startswith("NodeName")] == [
        "NodeName=tower Name=gpu Type=rtx5070ti File=/dev/nvidia0",
        "NodeName=laptop Name=gpu Type=rtx4070maxq File=/dev/nvidia0",
        "NodeName=laptop Name=gpu Type=rtx4070maxq File=/dev/nvidia1",
    ]


def test_cards_of_one_type_are_counted_together_wherever_they_are() -> None:
    cards = tuple(Card(kind, f"/dev/nvidia{place}") for place, kind in enumerate(("rtx4090", "rtx3060", "rtx4090")))
    assert replace(TOWER, cards=cards).gres == "gpu:rtx4090:2,gpu:rtx3060:1"


def test_an_option_of_ones_own_replaces_ours() -> None:
    text = rendered("home", [TOWER], {"ProctrackType": "proctrack/linuxproc"})["slurm.conf"]
    assert "ProctrackType=proctrack/linuxproc" in text
    assert "proctrack/cgroup" not in text


def test_a_slurm_conf_that_is_there_stays(tmp_path: Path) -> None:
    """It may be the cluster's own."""
    (tmp_path / "slurm.conf").write_text("mine")
    with pytest.raises(BadInput, match=r"has a slurm\.conf already, which would be lost"):
        slurm_conf(check(REPOSITORY / "inventory/loopback"), to=str(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["slurm.conf"]
