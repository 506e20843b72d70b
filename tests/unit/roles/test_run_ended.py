"""What decides whether a run that has ended starts again by itself: the script that systemd calls."""

import os
import subprocess
from pathlib import Path

import pytest
from jinja2 import Template

from tests.support.stand_ins import program

TEMPLATE = Path(__file__).parents[3] / "templates/motley-run-ended.sh.j2"
WANTED, PRELOAD = "config/run-wanted", "config/run-preload"
STARTED_AGAIN = "12 motley-run.service restart waiting\n"
GOING_DOWN = "7 shutdown.target start waiting\n"
STOPPED = "9 motley-run.service stop running\n"


@pytest.fixture
def ended(tmp_path: Path):
    """Whether it is still wanted after it ended so, with these jobs of systemd; None: systemd does not answer."""
    names = {"__motley_run_home": tmp_path, "__motley_run_preload": PRELOAD, "motley_run_wanted": WANTED}
    script = tmp_path / "ended"
    script.write_text(Template(TEMPLATE.read_text()).render(names) + "\n")
    (tmp_path / "config").mkdir()
    answers = '[ "$*" = "list-jobs --no-legend shutdown.target u.service" ] && cat "$JOBS"'
    program(tmp_path / "bin/systemctl", f"#!/bin/sh\n{answers}\n")

    def is_wanted(how: str, jobs: str | None = "") -> bool:
        for name in (WANTED, PRELOAD):
            (tmp_path / name).touch()
        if jobs is not None:
            (tmp_path / "jobs").write_text(jobs)
        result, _, status = how.partition(" ")
        env = {"SERVICE_RESULT": result, "EXIT_STATUS": status, "JOBS": str(tmp_path / "jobs")}
        env["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"
        subprocess.run(["sh", script, "u.service"], env=env, check=True)
        assert not (tmp_path / PRELOAD).exists()
        return (tmp_path / WANTED).exists()

    return is_wanted


OVER = ["success 0", "success 143", "timeout 15", "exit-code 1", "exit-code 2", "exit-code 126", "exit-code 127"]


@pytest.mark.parametrize("how", OVER)
def test_what_is_over_for_good_or_ill_is_no_longer_wanted(ended, how):
    assert not ended(how) and not ended(how, STOPPED)


@pytest.mark.parametrize("how", OVER)
@pytest.mark.parametrize("jobs", [STARTED_AGAIN, GOING_DOWN, None], ids=["restarted", "going down", "no answer"])
def test_a_restart_of_the_machine_or_the_service_does_not_end_it(ended, how, jobs):
    assert ended(how, jobs)


@pytest.mark.parametrize("how", ["exit-code 70", "signal KILL", "signal SEGV", "oom-kill KILL", "watchdog ABRT"])
def test_an_agent_that_was_killed_or_failed_itself_is_started_again(ended, how):
    assert ended(how)


def test_an_agent_for_which_no_run_came_leaves_the_next_one_wanted(ended):
    assert ended("success 75")


def test_a_shell_finds_nothing_to_say_of_it(tmp_path):
    shellcheck = Path(__file__).parents[3] / ".venv/bin/shellcheck"
    script = tmp_path / "ended.sh"
    script.write_text(Template(TEMPLATE.read_text()).render({"motley_run_wanted": WANTED}) + "\n")
    assert subprocess.run([shellcheck, script], capture_output=True, check=False, text=True).stdout == ""
