"""A miniature is the same each time: no number of it is left to chance, or a family would be refused now and then."""

import pytest
import torch
from safetensors.torch import load_file

from tests.train.proven_families import PACKED, QUICK, REFUSED, UNPACKED, config_of
from train.proof import miniature

OWN = ("apertus", *QUICK)
"""apertus: numbers that its class sets as it is made."""
OTHERS = [name for name in (*PACKED, *UNPACKED, *REFUSED) if name not in OWN]


@pytest.fixture
def _memory_is_full_of_nan():
    torch.use_deterministic_algorithms(True, warn_only=True)  # which fills what nobody has written
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_memory_is_full_of_nan")
@pytest.mark.parametrize("name", [*OWN, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def test_every_number_of_a_miniature_is_set(name, tmp_path):
    assert torch.empty(3).isnan().all()
    miniature.write(config_of(name), tmp_path)
    held = {name: weight for file in tmp_path.glob("*.safetensors") for name, weight in load_file(file).items()}
    assert held and [name for name, weight in held.items() if not weight.isfinite().all()] == []
