"""What slurm.conf says of a machine: its processor from the kernel, its cards from the PCI bus."""

import pytest

from console.infra.slurm import machine_facts

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
