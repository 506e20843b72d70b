"""Ctrl-C and SIGTERM: what is under way is told, nothing of it is left here, and what it had come to is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from console import __main__, bootstrap, launch_playbook, processes
from console.inventory.read import Inventory
from console.playbook import interrupt, run_playbook
from console.playbook.playbook_progress import Progress
from console.playbook.run_playbook import Passwords
from tests.support import pace

# As Ansible: a worker and its SSH client in sessions of their own, and an SSH connection that is kept for later.
FAMILY = """
import os, signal, subprocess, sys, time
worker = "import signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", worker], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "ssh: kept [" + "mux]"], start_new_session=True)
signal.signal(signal.SIGINT, lambda *_: sys.exit(99) if PATIENT else None)
print("up", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    mark = interrupt.new_mark()
    yield mark
    processes.end(f"{interrupt.MARK}={mark}")


def up(code: str, **how: Any) -> subprocess.Popen[bytes]:
    """Once it has printed so."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, **how)
    assert process.stdout and process.stdout.readline() == b"up\n"
    return process


def family(mark: str, *, patient: bool = True) -> subprocess.Popen[bytes]:
    code = FAMILY.replace("PATIENT", str(patient))
    return up(code, env=os.environ | {interrupt.MARK: mark}, start_new_session=True)


@pytest.mark.parametrize(("patient", "code"), [(True, 99), (False, -signal.SIGKILL)])
def test_nothing_that_works_for_us_is_left(mark: str, patient: bool, code: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(interrupt, "GRACE_S", 0.5)
    process = family(mark, patient=patient)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert len(interrupt.marked(mark)) == 2 and interrupt.children(mark) == [process.pid]
    assert interrupt.end_in_order(process, mark) == code
    assert interrupt.marked(mark) == [], "the worker that heeds no SIGTERM too"
    (kept,) = processes.alive(f"{interrupt.MARK}={mark}")
    assert "[mux]" in Path(f"/proc/{kept}/cmdline").read_text() and other.poll() is None
    other.kill()
    other.wait()


@pytest.mark.parametrize(("others", "patience_s"), [("have one", 0.2), ("have none", 0.2), ("have none", 0.0)])
def test_who_shows_no_environment_amid_exec_is_found(
    mark: str, others: str, patience_s: float, monkeypatch: Any
) -> None:
    """Also where one look takes longer than the patience."""
    monkeypatch.setattr(processes, "EXEC_S", patience_s)
    process = family(mark)
    environ, read, asked = Path(f"/proc/{process.pid}/environ"), Path.read_bytes, []

    def read_bytes(path: Path) -> bytes:
        asked.append(path)
        has_none = asked.count(path) <= 3 if path == environ else others == "have none" and path.name == "environ"
        return b"" if has_none else read(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert process.pid in interrupt.marked(mark)
    monkeypatch.undo()
    interrupt.end_in_order(process, mark)


@pytest.mark.timeout(20)
def test_who_heeds_no_sigterm_is_ended_with_the_group(mark: str) -> None:
    process = family(mark)
    code = "import signal; signal.signal(15, 1); print('up', flush=True); signal.pause()"
    stubborn = up(code, start_new_session=True)
    processes.end_group(stubborn, patience_s=0.2)
    assert stubborn.returncode == -signal.SIGKILL
    processes.end_group(process)
    assert process.returncode == -signal.SIGTERM, "who heeds it is not killed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_our_child_alone_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)]
    with interrupt.Watch() as watch:
        process = family(watch.mark)
        os.kill(os.getpid(), number)
        assert pace.ended(process, 5) == 99 and watch.asked and not watch.overdue()
    assert interrupt.marked(watch.mark) == [] and interrupt.MARK not in os.environ
    assert [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM)] == before
    processes.end(f"{interrupt.MARK}={watch.mark}")


def test_who_types_it_twice_does_not_wait() -> None:
    with interrupt.Watch() as watch:
        os.kill(os.getpid(), signal.SIGINT)
        assert not watch.overdue()
        os.kill(os.getpid(), signal.SIGINT)
        assert watch.overdue()


def test_who_missed_the_first_ctrl_c_gets_a_second(monkeypatch: Any) -> None:
    """Python drops an exception that a signal raises in a hook of its own, such as those that it runs at a fork."""
    monkeypatch.setattr(interrupt, "INSIST_S", 0.2)
    code = "import signal; signal.signal(signal.SIGINT, lambda *_: exit(98)); print('up', flush=True); signal.pause()"
    with interrupt.Watch() as watch:
        process = family(watch.mark, patient=False)
        os.kill(os.getpid(), signal.SIGINT)
        deaf = up(code)
        assert not watch.overdue()
        pace.until(lambda: not watch.overdue() and deaf.poll() is not None, 10)
        assert deaf.returncode == 98 and process.poll() is None


@pytest.mark.parametrize(
    ("within", "left"), [("nullcontext", "nothing was changed"), ("changing", "what was done stays")]
)
def test_sigterm_at_a_question_is_ctrl_c(within: str, left: str) -> None:
    code = (
        "import sys, time; from contextlib import nullcontext; from console import __main__ as m, new_inventory\n"
        "from console.playbook.interrupt import changing\n"
        f"def slow(*_):\n    with {within}(): print('up', flush=True); time.sleep(60)\n"
        "new_inventory.write_inventory = slow; sys.argv = ['console', 'inventory']; sys.exit(m.main())"
    )
    process = up(code, stderr=subprocess.PIPE, cwd=__main__.ROOT)
    process.terminate()
    assert pace.said_by(process, 10)[1] == f"\nstopped; {left}\n".encode() and process.returncode == 130


# -- what it had come to -----------------------------------------------------------------------------------------------


def at(phase: str, *tasks: str) -> Progress:
    progress = Progress()
    for place, task in enumerate(tasks):
        data = {"role": f"motley_{phase}", "task": task, "host": f"node-{place}"}
        progress.take({"event": "playbook_on_task_start", "event_data": data})
        progress.take({"event": "runner_on_start", "event_data": data})
    return progress


def request(**more: Any) -> run_playbook.PlaybookRun:
    words = {"verb": "bootstrap", "playbook": "bootstrap"} | more
    return run_playbook.PlaybookRun(inventory=Inventory(path=Path("hosts.yml")), **words)


def test_it_says_where_it_stopped_and_what_to_type() -> None:
    assert run_playbook.stopped(at("preflight", "See what it is"), "./motley bootstrap") == [
        "stopped before anything was changed",
        "again: ./motley bootstrap",
    ]
    said = run_playbook.stopped(at("firewall", "Keep strangers out"), "./motley bootstrap")
    assert said[0] == "stopped in firewall: Keep strangers out"
    assert "taken back unless it was proven" in said[1] and said[2].startswith("again: ./motley bootstrap   (")


def test_stopped_between_two_tasks_it_does_not_deny_what_was_changed() -> None:
    progress = at("proof", "Prove that it works")
    progress.take({"event": "playbook_on_stats", "event_data": {}})
    assert run_playbook.stopped(progress, "./motley bootstrap")[0] == "stopped in proof: Prove that it works"
    begins = {"role": "motley_firewall", "task": "Keep strangers out"}
    progress.take({"event": "playbook_on_task_start", "event_data": begins})
    assert run_playbook.stopped(progress, "./motley bootstrap")[0] == "stopped in firewall: Keep strangers out"


def test_the_same_command_is_named_with_its_words() -> None:
    assert request(phase="clock", limit="a,b").command == "./motley bootstrap --phase clock --nodes a,b"
    assert request(check=True).command == "./motley bootstrap --check"
    assert request(verb="undo", playbook="undo").command == "./motley undo --phase all"
    assert request(verb="doctor-fix", typed="./motley doctor --fix").command == "./motley doctor --fix"


def test_a_launch_that_was_stopped_says_whether_a_run_is_on_and_where() -> None:
    off, on = {"on": False, "run": ""}, {"on": True, "run": "qa"}
    (said,) = launch_playbook.interrupted_lines({"a": off, "b": off}, {})
    assert said.startswith("interrupted: no run was started;") and said.endswith("again: the same")
    said, silent = launch_playbook.interrupted_lines({"a": on, "b": off}, {"c": "nobody answers at 10.0.0.3"})
    assert said == "interrupted: 'qa' is running on a   watch it: ./motley follow   stop it: ./motley stop"
    assert silent.startswith("c  nobody answers at 10.0.0.3: ")


def test_ctrl_c_at_the_question_about_a_restart_tells_that_the_rest_is_done(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(run_playbook, "run", lambda *_: 1)
    monkeypatch.setattr(bootstrap, "ask", Mock(side_effect=KeyboardInterrupt))
    assert bootstrap.run(request(), Passwords("", "")) == 130
    assert "the restart is still to come. Again: ./motley bootstrap" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "loaded"),
    [("", "yaml"), (".playbook.ansible_playbook", "yaml"), (".command_line.without_environment", "argparse")],
)
def test_a_ctrl_c_while_it_is_loaded_shows_no_traceback(program: str, loaded: str, tmp_path: Path) -> None:
    (tmp_path / f"{loaded}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = pace.run(sys.executable, "-m", f"console{program}", "status", cwd=__main__.ROOT, env=env)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_a_ctrl_c_once_it_is_loaded_is_reported(tmp_path: Path) -> None:
    """Its settings are a pipe: it waits for whoever writes there."""
    os.mkfifo(pipe := tmp_path / "run.yml")
    command = [sys.executable, "-m", "console", "plan", "--cards", "24", "--model", "tiny", "--file", str(pipe)]
    waits = subprocess.Popen(command, cwd=__main__.ROOT, stderr=subprocess.PIPE, text=True)
    with pipe.open("w"):
        waits.send_signal(signal.SIGINT)
        said = waits.communicate()[1]
    assert waits.returncode == interrupt.CODE and said.endswith("stopped; nothing was changed\n")
