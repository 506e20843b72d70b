"""The fork server: what it starts, whose children they are, and what happens without it."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support import pace
from tests.support.pids import is_alive
from tests.train import cluster
from train.cluster import forkserver
from train.cluster.forkserver import ForkServer, Worker
from train.cluster.timing import Timing

SAYS = "import os, sys; print(os.environ['WORD'], 'torch' in sys.modules, os.getppid(), sys.argv)"


def started(warm: ForkServer, words: list[str], env: dict[str, str] | None = None, out: int | None = None) -> Worker:
    born = warm.start(words, cluster.environment() | (env or {}), out)
    assert born
    cluster.STARTED.append(born)
    return born


def until_there(born: Worker) -> int:
    pace.until(lambda: born.poll() is not None or born.pid, 60, every_s=0.01)
    assert born.pid
    return born.pid


@pytest.fixture
def program(tmp_path):
    def written(text: str) -> str:
        file = tmp_path / "program.py"
        file.write_text(text)
        return str(file)

    return written


@pytest.fixture
def warm() -> ForkServer:
    """With its libraries; test_agent.py has one that an agent has started itself."""
    return cluster.warm()


def test_it_is_a_child_of_whoever_asked_with_its_environment_and_its_words(warm, program, tmp_path):
    with (tmp_path / "said").open("w") as out:
        born = started(warm, [program(SAYS), "a", "b"], {"WORD": "hello"}, out.fileno())
    assert pace.ended(born, 60) == 0
    said = (tmp_path / "said").read_text()
    assert said == f"hello True {os.getpid()} {[program(SAYS), 'a', 'b']}\n"


@pytest.mark.parametrize(("ends", "code"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("import os; os._exit(7)", 7)])
def test_its_end_is_told_as_of_any_child(warm, program, ends, code, tmp_path):
    with (tmp_path / "said").open("w") as out:
        assert pace.ended(started(warm, [program(ends)], out=out.fileno())) == code
    assert ("ZeroDivisionError" in (tmp_path / "said").read_text()) == (code == 1)


def test_what_is_too_long_for_a_request_is_not_cut_but_refused(warm, program):
    long = {f"SERVICE_{number}": "x" * 1000 for number in range(150)}
    assert warm.start([program("")], cluster.environment() | long) is None
    assert pace.ended(started(warm, [program("")]), 60) == 0, "and the next one starts"


def test_a_signal_reaches_it_also_before_it_is_there(warm, program):
    born = started(warm, [program("import time; time.sleep(600)")])
    born.send_signal(signal.SIGTERM)
    assert pace.ended(born, 60) == -signal.SIGTERM


def test_it_dies_with_whoever_asked_and_so_does_what_it_made(program):
    belongs = "from train.cluster.attach_to_agent import attach_to_agent; attach_to_agent(); "
    sleeps = program(f"{belongs}import time; time.sleep(600)")
    asks = f"""
import os, time
from tests.train.cluster import fork_server
warm = fork_server("-m", "train", "warm", "--parent", str(os.getpid()), "--cold")
born = warm.start([{sleeps!r}], dict(os.environ) | {{"MOTLEY_AGENT": str(os.getpid())}})
while born.poll() is None and born.pid is None: time.sleep(0.01)
while b"motley-worker" not in open(f"/proc/{{born.pid}}/comm", "rb").read(): time.sleep(0.01)
print(warm.process.pid, born.pid, flush=True)
time.sleep(600)
"""
    asker = subprocess.Popen(
        [sys.executable, "-c", asks], env=cluster.environment(), cwd=cluster.ROOT, stdout=subprocess.PIPE, text=True
    )
    cluster.STARTED.append(asker)
    pids = [int(pid) for pid in asker.stdout.readline().split()]
    assert all(map(is_alive, pids))
    asker.kill()
    pace.until(lambda: not any(map(is_alive, pids)), 10, "they outlive it")


def test_where_it_was_killed_there_is_no_warm_start_any_more(program):
    warm = ForkServer(cluster.environment())
    os.kill(warm.process.pid, signal.SIGSTOP)
    waits = started(warm, [program("pass")])
    assert waits.poll() is None
    warm.process.kill()
    assert pace.ended(waits, 10) == -signal.SIGKILL
    assert warm.start([program("pass")], cluster.environment()) is None


def test_one_that_answers_nobody_is_given_up(program, monkeypatch):
    warm = ForkServer(cluster.environment())
    os.kill(warm.process.pid, signal.SIGSTOP)
    waits = started(warm, [program("pass")])
    waits.kill()
    assert waits.poll() is None, "it may be slow"
    monkeypatch.setattr(forkserver, "TIMING", Timing(stuck_s=0.0))
    waits.kill()
    try:
        assert pace.ended(waits, 10) == -signal.SIGKILL
    finally:
        warm.process.kill()
        pace.ended(warm.process, 10)
    assert warm.start([program("pass")], cluster.environment()) is None


def test_a_process_that_has_opened_a_card_is_not_forked(program, tmp_path):
    """It begins again without libraries; what was asked meanwhile is answered."""
    opened = "import train.cluster.forkserver as w; w._import_libraries = lambda: None; "
    opened += "w._open_gpus = lambda: ['/dev/nvidiactl']; "
    runs = f"import sys; from train.__main__ import main; sys.exit(main(['warm', '--parent', '{os.getpid()}']))"
    with (tmp_path / "log").open("w") as log:
        warm = cluster.fork_server("-c", opened + runs, log=log)
    cluster.STARTED.append(warm.process)
    with (tmp_path / "said").open("w") as out:
        born = started(warm, [program(SAYS)], {"WORD": "hello"}, out.fileno())
    assert pace.ended(born, 60) == 0
    assert (tmp_path / "said").read_text() == f"hello False {os.getpid()} {[program(SAYS)]}\n"
    assert (tmp_path / "log").read_text() == "no warm start: a library has opened /dev/nvidiactl\n"
