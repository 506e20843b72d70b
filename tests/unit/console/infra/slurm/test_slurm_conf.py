"""slurm.conf of unequal machines, from what each says; tests/lab/test_slurm.py gives the files to a real Slurm."""

from dataclasses import replace
from pathlib import Path

import pytest

from console.infra.slurm import machine_facts
from console.infra.slurm.slurm_conf import Machine, rendered, slurm_conf
from console.inventory.check import check
from tests.support.cluster import REPOSITORY
from train.errors import BadInput

CORES = {"sockets": 1, "cores": 8, "threads": 2}
CARD = {"type": "rtx5070ti", "file": "/dev/nvidia0"}
TOWER = Machine(name="tower", address="10.0.0.1", **CORES, memory_mb=31000, cards=[CARD])
LAPTOP_CARDS = [{"type": "rtx4070maxq", "file": f"/dev/nvidia{place}"} for place in (0, 1)]


def test_every_machine_has_its_line_and_every_card_its_file() -> None:
    laptop = Machine(name="laptop", address="10.0.0.2", **CORES, memory_mb=15000, cards=LAPTOP_CARDS)
    old = Machine(name="old", address="10.0.0.3", sockets=1, cores=4, threads=1, memory_mb=7000)
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
    cards = [CARD | {"type": kind} for kind in ("rtx4090", "rtx3060", "rtx4090")]
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


BUS = """\
01:00.0 "VGA compatible controller" "NVIDIA Corporation" "GB203 [GeForce RTX 5070 Ti]" -ra1 "" ""
01:00.1 "Audio device" "NVIDIA Corporation" "Device 22e9" -ra1 "" ""
41:00.0 "3D controller" "NVIDIA Corporation" "GA100 [A100 PCIe 40GB]" -ra1 "" ""
"""


def cpuinfo(*ids: tuple[int, int]) -> str:
    blocks = [
        f"processor\t: {place}\nphysical id\t: {ids[place][0]}\ncore id\t: {ids[place][1]}" for place in range(len(ids))
    ]
    return "\n\n".join(blocks) + "\n\n"


def test_each_card_is_its_own_type_by_its_name_on_the_bus() -> None:
    assert machine_facts.cards(BUS) == [
        {"type": "rtx5070ti", "file": "/dev/nvidia0"},
        {"type": "a100pcie40gb", "file": "/dev/nvidia1"},
    ]


def test_three_unlike_geforce_cards_are_three_types() -> None:
    names = ["GB203 [GeForce RTX 5070 Ti]", "AD106M [GeForce RTX 4070 Max-Q / Mobile]", "GA104 [GeForce RTX 3070 Ti]"]
    assert [machine_facts.type_of(name) for name in names] == ["rtx5070ti", "rtx4070maxq", "rtx3070ti"]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([(0, 0), (0, 0), (0, 1), (0, 1)], (1, 2, 2)),
        ([(0, 0), (1, 0), (0, 1), (1, 1)], (2, 2, 1)),
        ([(0, 0), (0, 0), (0, 1)], (1, 3, 1)),  # a core of each kind: Slurm has no words for it
    ],
)
def test_sockets_cores_and_threads_are_the_kernels(ids: list[tuple[int, int]], expected: tuple[int, int, int]) -> None:
    found = machine_facts.layout(cpuinfo(*ids))
    assert (found["sockets"], found["cores"], found["threads"]) == expected


def test_where_the_kernel_does_not_tell_each_processor_is_a_core() -> None:
    board = "Hardware\t: BCM2835\nModel\t\t: Raspberry Pi 4 Model B\n"
    found = machine_facts.layout(f"processor\t: 0\nBogoMIPS\t: 50\n\nprocessor\t: 1\nBogoMIPS\t: 50\n\n{board}")
    assert found == {"sockets": 1, "cores": 2, "threads": 1}


def test_the_machine_itself_answers() -> None:
    assert machine_facts.facts()["memory_mb"] > 100
