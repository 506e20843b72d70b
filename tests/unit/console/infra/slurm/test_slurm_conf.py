"""slurm.conf of unequal machines; tests/lab/test_slurm.py gives the same files to a real Slurm."""

from dataclasses import replace
from pathlib import Path

import pytest

from console.infra.slurm.slurm_conf import Card, Machine, machine, rendered, slurm_conf
from console.inventory.check import check
from tests.support.cluster import REPOSITORY
from train.errors import BadInput

TOWER = Machine(
    name="tower",
    address="10.0.0.1",
    sockets=1,
    cores=8,
    threads=2,
    memory_mb=31000,
    cards=(Card("rtx5070ti", "/dev/nvidia0"),),
)
LAPTOP_FACTS = {
    **{"sockets": 1, "cores": 16, "threads": 1, "memory_mb": 15000},
    "cards": [{"type": "rtx4070maxq", "file": "/dev/nvidia0"}, {"type": "rtx4070maxq", "file": "/dev/nvidia1"}],
}


def test_every_machine_has_its_line_and_every_card_its_file() -> None:
    laptop = machine("laptop", "10.0.0.2", LAPTOP_FACTS)
    files = rendered(
        "home", [TOWER, laptop, Machine(name="old", address="10.0.0.3", sockets=1, cores=4, threads=1, memory_mb=7000)]
    )
    lines = files["slurm.conf"].splitlines()
    assert "SlurmctldHost=tower(10.0.0.1)" in lines
    assert [line.split()[0] for line in lines if line.startswith("NodeName")] == [
        *("NodeName=tower", "NodeName=laptop", "NodeName=old"),
    ]
    assert next(line for line in lines if "laptop" in line).endswith("RealMemory=15000 Gres=gpu:rtx4070maxq:2")
    assert next(line for line in lines if "old" in line).endswith("ThreadsPerCore=1 RealMemory=7000")
    assert "CPUs=16" in next(line for line in lines if "NodeName=tower" in line)
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
