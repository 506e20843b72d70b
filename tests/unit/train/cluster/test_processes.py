"""What an agent reads of the kernel's list of processes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from train.cluster.attach_to_agent import PR_SET_NAME, prctl
from train.cluster.processes import Processes


@pytest.fixture
def name_cut_in_a_letter() -> Iterator[None]:
    """A name of which the kernel has kept 15 bytes, and the last letter has two."""
    comm = Path("/proc/self/comm")
    before = comm.read_bytes().strip()
    prctl(PR_SET_NAME, "vierzehn Zeichä".encode())
    yield
    prctl(PR_SET_NAME, before)


@pytest.mark.usefixtures("name_cut_in_a_letter")
def test_work_is_counted_beside_a_program_whose_name_is_no_text():
    cpu_s, _ = Processes().used_by({os.getsid(0)})
    assert cpu_s > 0
