"""A clock is judged as it is once its time service has set it, not as it was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster, Played

PLAY = """
- name: The clock alone
  hosts: cluster
  gather_facts: false
  roles: [motley_clock]
"""
PROOF = "Prove that its clock agrees with the controller's"


@pytest.fixture
def played(pair: Cluster, tmp_path: Path) -> Any:
    def play(**extra: Any) -> Played:
        (tmp_path / "clock.yml").write_text(PLAY)
        # The hosts of a lab share one clock: what was found before is made up, what is looked at now is real.
        found = {"clock_off_s": -3600.0, "node": {"time_service": "systemd-timesyncd.service"}}
        roles = str(Path(__file__).parents[2] / "roles")
        variables = {"motley_preflight_look": found, "motley_clock_manage": False, **extra}
        return pair.play(tmp_path / "clock.yml", extravars=variables, envvars={"ANSIBLE_ROLES_PATH": roles})

    return play


def test_a_clock_that_was_set_since_it_was_found_wrong_is_good(played: Any) -> None:
    assert played().rc == 0
    still_off = played(motley_clock_skew_max_s=-1, motley_clock_wait_s=2)  # no clock is as good as that
    said = [result["result"]["msg"] for result in still_off.results if result["event"] == "runner_on_failed"][-1]
    assert "its clock is 0.0 s off the controller's" in said
