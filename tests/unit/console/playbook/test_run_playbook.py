"""No phase fails without a word: whatever kind of failure, its node, phase, task and own output are printed."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from console import playbook_receipt
from console.inventory.read import Inventory
from console.playbook import run_playbook
from console.playbook.playbook_progress import Progress
from console.playbook.run_playbook import Passwords
from tests.support import ROOT

SH, INCLUDE = "ansible.builtin.shell", "ansible.builtin.include_tasks"


@dataclass(frozen=True)
class Failing:
    node: str
    task: dict[str, Any]
    said: tuple[str, ...]
    """What is known of its own output; one or another of what ` or ` joins."""
    variables: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"Do what {self.node} does"


REFUSED = "Connection refused or Broken pipe"
"""By which end ansible notices first: it may still write when ssh is gone already."""
KINDS = (
    Failing("mute", {SH: "exit 3"}, ("exit code 3", "it printed nothing")),
    Failing("on-stdout", {SH: "seq 1 40; echo the disk is flat; exit 4"}, ("exit code 4", "the disk is flat", "40")),
    Failing("on-stderr", {SH: "echo the disk is round >&2; exit 5"}, ("exit code 5", "the disk is round")),
    Failing("not-as-expected", {SH: "echo 10.77.0.40 oldname", "failed_when": True}, ("10.77.0.40 oldname",)),
    Failing("empty-message", {"ansible.builtin.fail": {"msg": ""}}, ("it gave no message",)),
    Failing(
        "looped",
        {SH: "[ {{ item }} = b ] || { echo bad {{ item }}; exit 6; }", "loop": ["a", "b"]},
        ("bad a", "code 6"),
    ),
    Failing("again", {SH: "echo never; exit 7", "retries": 1, "delay": 0, "until": False}, ("never", "code 7")),
    Failing("untrue", {"ansible.builtin.assert": {"that": ["1 == 2"]}}, ("1 == 2",)),
    Failing("untemplated", {"ansible.builtin.debug": {"msg": "{{ nowhere.found }}"}}, ("'nowhere' is undefined",)),
    Failing("raising", {"crashes": {}}, ("ZeroDivisionError", "division by zero")),
    Failing("raising-here", {"crashes_here": {}}, ("KeyError", "lost_key")),
    Failing("advising", {"advises": {}}, ("it is wet", "fix: dry it")),
    Failing("killed", {"dies": {}}, ("dies", "killed by signal 9")),
    Failing("chatty", {"chats": {}}, ("did not handle its own exit",)),
    Failing("late", {SH: "sleep 9", "timeout": 1}, ("1 second",)),
    Failing("too-late", {SH: "sleep 9", "async": 1, "poll": 3}, ("Timeout exceeded",)),
    Failing("secret", {SH: "echo {{ 'hidden' }}-word; exit 8", "no_log": True}, ("no_log",)),
    Failing(
        "no-root",
        {SH: "true", "become": True, "become_user": "nobody"},
        ("/nowhere/sudo",),
        {"ansible_become_exe": "/nowhere/sudo"},
    ),
    Failing("not-included", {INCLUDE: "missing.yml"}, ("missing.yml",)),
    Failing("gone", {SH: "true"}, (REFUSED,), {"ansible_connection": "ssh", "ansible_host": "127.0.0.1"}),
)
ALWAYS = Failing("tidied", {SH: "echo before tidying; exit 9"}, ("before tidying", "exit code 9"))
RESCUED = "rescued"
CRASHES = "from ansible.module_utils.basic import AnsibleModule\nAnsibleModule(argument_spec={})\nprint(1 / 0)\n"
ADVISES = "from ansible.module_utils.basic import AnsibleModule\n"
ADVISES += "AnsibleModule(argument_spec={}).fail_json(msg='it is wet\\nfix: dry it')\n"
DIES = "import os, signal\nfrom ansible.module_utils.basic import AnsibleModule\n"
DIES += "print('it dies', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
CHATS = "from ansible.module_utils.basic import AnsibleModule\nprint('no JSON at all')\n"
HERE = "from ansible.plugins.action import ActionBase\n\n\nclass ActionModule(ActionBase):\n"
HERE += "    def run(self, tmp=None, task_vars=None):\n        return {}['lost_key']\n"


def tasks() -> dict[str, list[dict[str, Any]]]:
    """A file of tasks for each node, so that none waits for the others' to be skipped."""
    files = {kind.node: [{"name": kind.name, **kind.task}] for kind in (*KINDS, ALWAYS)}
    tidy, again = ({"name": name, SH: "true"} for name in ("Tidy up", "Make up for it"))
    files[ALWAYS.node] = [{"name": "Try", "block": files[ALWAYS.node], "always": [tidy]}]
    files[RESCUED] = [{"name": "Try too", "block": [{"name": "Fail first", SH: "exit 1"}], "rescue": [again]}]
    return files


def project(folder: Path) -> Path:
    shutil.copy(ROOT / "ansible.cfg", folder)
    for name in ("plugins", "console"):
        (folder / name).symlink_to(ROOT / name)
    role = folder / "roles/motley_trial"
    for place, text in {
        "tasks/main.yml": yaml.safe_dump([{"name": "Fail", INCLUDE: "{{ inventory_hostname }}.yml"}]),
        **{f"tasks/{node}.yml": yaml.safe_dump(own, sort_keys=False) for node, own in tasks().items()},
        "library/crashes.py": f"#!/usr/bin/python\n{CRASHES}",
        "library/advises.py": f"#!/usr/bin/python\n{ADVISES}",
        "library/dies.py": f"#!/usr/bin/python\n{DIES}",
        "library/chats.py": f"#!/usr/bin/python\n{CHATS}",
        "library/crashes_here.py": f"#!/usr/bin/python\n{CHATS}",
        "action_plugins/crashes_here.py": HERE,
    }.items():
        (role / place).parent.mkdir(parents=True, exist_ok=True)
        (role / place).write_text(text)
    (folder / "playbooks").mkdir()
    book = [{"name": "Trial", "hosts": "cluster", "gather_facts": False, "roles": ["motley_trial"]}]
    (folder / "playbooks/trial.yml").write_text(yaml.safe_dump(book))
    (folder / "playbooks/calm.yml").write_text(yaml.safe_dump([{**book[0], "vars": {"motley_calm": True}}]))
    (folder / "playbooks/broken.yml").write_text(yaml.safe_dump([{**book[0], "roles": ["motley_nowhere"]}]))
    return folder


def inventory(folder: Path) -> Inventory:
    local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    nodes = {kind.node: {**local, **(kind.variables or {})} for kind in (*KINDS, ALWAYS)}
    nodes[RESCUED] = dict(local)
    nodes["gone"] |= {"ansible_port": 1}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"cluster": {"hosts": nodes}}))
    state = {"motley_state": str(folder / "state")}
    return Inventory(path=folder / "hosts.yml", nodes={name: values | state for name, values in nodes.items()})


@dataclass(frozen=True)
class Ran:
    text: str
    receipt: dict[str, Any]

    def about(self, node: str) -> str:
        """From the line that names this node to the next ✗."""
        blocks = re.split(r"^(?=✗ )", self.text, flags=re.MULTILINE)
        return next((block for block in blocks if re.match(rf"✗ (\S+, )*{node}(,| |:)", block)), "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("trial"))


def run(folder: Path, playbook: str) -> Ran:
    words, kept = io.StringIO(), []
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(words):
        patch.setattr(run_playbook, "ROOT", folder)
        patch.setenv("PATH", os.environ["PATH"])  # to which it adds the folder of Ansible's programs
        patch.setattr(playbook_receipt, "write", lambda place, data, _: kept.append(data) or place)
        request = run_playbook.PlaybookRun(verb="trial", playbook=playbook, inventory=inventory(folder))
        assert run_playbook.run(request, Passwords("", ""), Progress()) == 1
    return Ran(words.getvalue(), kept[0])


@pytest.fixture(scope="module")
def ran(folder: Path) -> Ran:
    return run(folder, "trial")


def one_of(words: str, text: str) -> bool:
    return any(either in text for either in words.split(" or "))


@pytest.mark.parametrize("kind", [*KINDS, ALWAYS], ids=lambda kind: kind.node)
def test_every_failure_says_what_is_known_of_it(ran: Ran, kind: Failing) -> None:
    about = ran.about(kind.node)
    assert f"{kind.node}  trial: {kind.name}" in about
    assert all(one_of(words, about) for words in kind.said)
    assert "fix: " in about and len(about.splitlines()) <= 14
    written = ran.receipt["nodes"][kind.node]["phases"]["trial"]["failure"]
    assert all(one_of(words.removeprefix("fix: "), str(written)) for words in kind.said)
    assert "Message:" not in about  # of a traceback's own headings


def test_what_is_censored_stays_so(ran: Ran) -> None:
    assert "hidden-word" not in ran.text + str(ran.receipt)


def test_what_was_rescued_is_no_failure(ran: Ran) -> None:
    assert not ran.about(RESCUED) and ran.receipt["nodes"][RESCUED]["phases"]["trial"]["failure"] is None


def test_the_whole_log_is_named(ran: Ran, folder: Path) -> None:
    log = folder / "state/logs/trial.log"
    assert str(log) in ran.text and "the disk is flat" in log.read_text()


@pytest.fixture(scope="module")
def calm(folder: Path) -> Ran:
    """Plain ansible-playbook, as launch.yml and plan.yml are run."""
    inventory(folder)
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", "hosts.yml", "playbooks/calm.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Callback dispatch" not in done.stderr
    return Ran(done.stderr, {})


@pytest.mark.parametrize("kind", [*KINDS, ALWAYS], ids=lambda kind: kind.node)
def test_a_calm_play_says_it_too(calm: Ran, kind: Failing) -> None:
    about = calm.about(kind.node)
    if kind.node != "advising":  # a sentence with its fix stands for itself
        assert f"{kind.node}: motley_trial: {kind.name}" in about
    assert one_of(kind.said[-1], about) and "hidden-word" not in about
    assert "fix: " in about


def test_a_playbook_that_does_not_begin_says_why(folder: Path) -> None:
    ran = run(folder, "broken")
    assert "motley_nowhere" in ran.text and str(folder / "state/logs/trial.log") in ran.text


FOUND = {"strangers": ["late"], "contacts": {"late": {"address": "192.0.2.1", "fingerprint": "SHA256:abc"}}}


def test_a_machine_that_came_on_after_the_first_look_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "ansible.cfg", tmp_path)
    for name in ("plugins", "console", "roles"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "playbooks").mkdir()
    asks = {"ansible.builtin.include_role": {"name": "motley_contact", "tasks_from": "ask_about_new_keys"}}
    book = {"hosts": "cluster", "gather_facts": False, "tasks": [asks], "vars": {"motley_contact_found": FOUND}}
    (tmp_path / "playbooks/trial.yml").write_text(yaml.safe_dump([book]))
    node = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"cluster": {"hosts": {"late": node}}}))
    nodes = {"late": {**node, "motley_state": str(tmp_path / "state")}}
    inventory = Inventory(path=tmp_path / "hosts.yml", nodes=nodes)
    monkeypatch.setattr(run_playbook, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])  # to which it adds the folder of Ansible's programs
    request = run_playbook.PlaybookRun(verb="trial", playbook="trial", inventory=inventory)
    assert run_playbook.run(request, Passwords("typed", "typed")) == 1
    said = capfd.readouterr().out
    assert "the host keys of late were not accepted" in said, said
    assert "fix: nobody could be asked: ./motley bootstrap" in said, said
