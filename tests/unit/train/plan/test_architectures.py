"""What the name of a card says of its architecture."""

import pytest

from train.plan.machines import architectures


@pytest.mark.parametrize(
    ("gpu", "compute"),
    [
        ("NVIDIA GeForce RTX 5090", 12.0),
        ("RTX 5060 Ti", 12.0),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 12.0),
        ("NVIDIA RTX 5000 Ada Generation", 8.9),
        ("NVIDIA RTX 4000 SFF Ada Generation", 8.9),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", 8.9),
        ("NVIDIA RTX A5000", 8.6),
        ("NVIDIA GeForce RTX 3060", 8.6),
        ("Quadro RTX 3000", 7.5),
        ("Quadro RTX 4000", 7.5),
        ("Quadro RTX 5000", 7.5),
        ("NVIDIA GeForce GTX 1080 Ti", 6.1),
    ],
)
def test_a_card_for_workstations_is_not_taken_for_one_for_games(gpu: str, compute: float) -> None:
    known = architectures.of_name(gpu)
    assert known is not None and known.compute == compute
