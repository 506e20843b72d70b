"""What a card's name says of its architecture, and its type in Slurm's Gres of its memory."""

import pytest

from train.errors import BadInput
from train.plan.machines import architectures, gpu_types


@pytest.mark.parametrize(
    ("kind", "gb", "capability"),
    [
        ("rtx5070ti", 16, "12.0"),
        ("rtx5070", 12, "12.0"),
        ("rtx4070maxq", 8, "8.9"),
        ("a100", 40, "8.0"),
        ("tesla_t4", 16, "7.5"),
        ("h100", 80, "9.0"),
        ("a4000", 16, ""),
    ],
)
def test_its_memory_is_the_least_that_is_sold_under_the_name(kind, gb, capability):
    card = gpu_types.card(kind)
    assert card.bytes >> 20 == gb * 1000
    assert card.capability == capability


def test_where_the_name_says_nothing_it_is_asked_for():
    with pytest.raises(BadInput, match="fix: --set slurm_gpu_gb=24"):
        gpu_types.card("gpu")
    assert gpu_types.card("gpu", 24).bytes >> 20 == 24000
    assert gpu_types.card("a100", 80).bytes >> 20 == 80000


@pytest.mark.parametrize(
    ("gpu", "compute"),
    [
        ("NVIDIA GeForce RTX 5090", 12.0),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 12.0),
        ("NVIDIA RTX 5000 Ada Generation", 8.9),
        ("NVIDIA RTX 4000 SFF Ada Generation", 8.9),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", 8.9),
        ("NVIDIA RTX A5000", 8.6),
        ("NVIDIA GeForce RTX 3060", 8.6),
        ("Quadro RTX 5000", 7.5),
        ("NVIDIA GeForce GTX 1080 Ti", 6.1),
    ],
)
def test_a_card_for_workstations_is_not_taken_for_one_for_games(gpu, compute):
    known = architectures.of_name(gpu)
    assert known is not None and known.compute == compute
