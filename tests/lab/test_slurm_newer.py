"""On Debian 13's Slurm 24.11, with a stand-in for the trainer: there may be no torch for its Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from console.infra.node import MARK, program
from console.infra.slurm.files import SCRIPT, rendered
from console.infra.slurm.node import SlurmNode
from tests.support import pace
from tests.support.cluster import REPOSITORY
from tests.support.plans import slurm_plan
from tests.support.slurm_site import HOME, Account, opened
from train.runlog import paths

pytestmark = pytest.mark.long
RUN, STEPS = "stand-in", 400
TRAINER = '''
"""Counts to STEPS in place of training, and is told to leave as an agent is."""
import json, os, signal, time
from pathlib import Path

def add_arguments(parser):
    parser.add_argument("--cluster", type=Path)

def main(args):
    cluster = json.loads(args.cluster.read_text())
    home, steps = Path(os.environ["MOTLEY_HOME"]), int(os.environ["STEPS"])
    saved, told = home / "saved", home / "logs/runs" / cluster["run"] / "agent.json"
    step, leaves = int(saved.read_text()) if saved.exists() else 0, []
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda *_: leaves.append(1))
    with (home / "starts").open("a") as starts:
        starts.write(json.dumps({"at": step, "nodes": cluster["nodes"]}) + "\\n")
    state = "running"
    while state == "running":
        step += 1
        state = "done" if step >= steps else "stopped" if leaves else "running"
        (home / "agent.new").write_text(json.dumps({"state": state, "time": time.time()}))
        (home / "agent.new").rename(told)
        time.sleep(0.1)
    saved.write_text(str(step))
    return 0 if state == "done" else 143
'''


@pytest.fixture(scope="module")
def account(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    yield from opened(tmp_path_factory.mktemp("slurm"), "slurm", suite="trixie")


def test_the_script_of_a_launch_is_queued_again_and_comes_to_its_end(account: Account) -> None:
    assert " 24.11" in account.slurm("sinfo", "--version")
    furnish(account)
    ask(account, "start", runs=[RUN], options=["--nodes=3", "--gpus=4"])
    places = [account.shared / f"jobs/{RUN}/place-{place}" for place in range(3)]
    pace.until(lambda: all((place / "starts").exists() for place in places), 60, lambda: said(account))
    assert ask(account, "look")["job"]["state"] == "RUNNING"
    account.slurm("scancel", "--batch", "--signal=USR1", account.job(RUN))
    pace.until(lambda: "Restarts=1 " in account.about(RUN), 60, lambda: said(account))
    pace.until(lambda: "JobState=COMPLETED" in account.about(RUN), 180, lambda: said(account))
    for place in places:
        first, second = map(json.loads, (place / "starts").read_text().splitlines())
        assert first["at"] == 0 < second["at"] < STEPS
        assert [node["processes"] for node in second["nodes"]] == [1, 2, 1]
        assert (place / "saved").read_text() == str(STEPS)
    assert "the agents left with 0 after 1 restarts; the run: 0" in said(account)


def test_stop_ends_a_job_for_good(account: Account) -> None:
    """After the one above."""
    for place in (account.shared / f"jobs/{RUN}").glob("place-*"):
        shutil.rmtree(place)
    ask(account, "start", runs=[RUN], options=[])
    starts = account.shared / f"jobs/{RUN}/place-0/starts"
    pace.until(starts.exists, 60, lambda: said(account))
    stopped = ask(account, "stop")
    assert stopped["was_on"]
    assert not stopped["forced"]
    assert not account.slurm("squeue", "-h").strip()


def furnish(account: Account) -> None:
    """As a launch leaves the shared folder, but for the trainer."""
    plan = slurm_plan({"run": RUN}, home=HOME)
    made = rendered(plan, ["--nodes=3", "--gpus=4"], {"STEPS": STEPS}, "now")
    files = {
        **{file.path: file.content for file in made if file.path == SCRIPT},
        f"jobs/{RUN}/logs/runs/{RUN}/launch.json": "{}",
        f"jobs/{RUN}/{paths.SETTINGS}": "{}",
        f"jobs/{RUN}/output/.kept": "",
        "code/yaml.py": "import json\nsafe_load, YAMLError = json.loads, ValueError\n",
    }
    shutil.copytree(REPOSITORY / "train", account.shared / "code/train")
    for name, content in files.items():
        (account.shared / name).parent.mkdir(parents=True, exist_ok=True)
        (account.shared / name).write_text(content)
    (account.shared / "code/train/cluster/agent.py").write_text(TRAINER)
    (account.shared / "env/bin").mkdir(parents=True)
    (account.shared / "env/bin/python").symlink_to("/usr/bin/python3")
    with program(SlurmNode.brings, SlurmNode.answers_by) as sent:
        (account.shared / "ask.py").write_bytes(sent.read())
    account.head.run("chown", "-R", "user:user", "/srv/shared/user")


def ask(account: Account, verb: str, **arguments: object) -> dict[str, object]:
    """As the console does over ssh."""
    words = json.dumps({"home": HOME, **arguments})
    found: dict[str, object] = json.loads(account.slurm("python3", f"{HOME}/ask.py", verb, words).partition(MARK)[2])
    assert "failed" not in found, found
    return found


def said(account: Account) -> str:
    outputs = sorted((account.shared / f"jobs/{RUN}/output").glob("*.out"))
    return "\n".join(path.read_text() for path in outputs) + account.slurm("squeue")
