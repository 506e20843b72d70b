"""Events in, sentences out: progress, causes, receipts."""

import json
from pathlib import Path
from typing import Any

import pytest

from console import playbook_receipt
from console.inventory.read import Inventory
from console.playbook import playbook_view, run_playbook
from console.playbook.ansible_errors import explain
from console.playbook.playbook_progress import Progress


def event(kind: str, host: str = "", **data: Any) -> dict[str, Any]:
    return {"event": kind, "event_data": {"host": host, "role": data.pop("role", "motley_hostname"), **data}}


def ran(progress: Progress, host: str, task: str, kind: str = "runner_on_ok", **result: Any) -> None:
    progress.take(event("playbook_on_task_start", task=task))
    progress.take(event("runner_on_start", host, task=task))
    progress.take(event(kind, host, task=task, res=result))


def summary(progress: Progress, folder: Path, rc: int) -> list[str]:
    request = run_playbook.PlaybookRun(verb="bootstrap", playbook="bootstrap", inventory=Inventory(path=folder))
    return run_playbook._summary(request, progress, 1.0, rc, folder / "x.log")


def lines(progress: Progress) -> list[str]:
    said: list[str] = []
    playbook_view.failures(progress, said.append)
    playbook_view.skipped(progress, said.append)
    return said


def test_a_phase_is_one_line_per_node() -> None:
    progress = Progress()
    ran(progress, "one", "Give it its name", changed=True, motley_say="was debian")
    ran(progress, "one", "Prove that it has it")
    progress.take(event("playbook_on_stats", role=""))
    ((node, phase),) = progress.finished
    assert playbook_view.phase_line(node, phase, 3).split() == "one hostname ✓ 1 changed 0.0 s was debian".split()
    assert node.phases["hostname"].proven == ["it has it"]


def test_a_failure_that_was_dealt_with_is_none() -> None:
    progress = Progress()
    ran(progress, "one", "Try it", "runner_on_failed", msg="no")
    assert progress.nodes["one"].failed == "hostname"
    ran(progress, "one", "Put it right")
    assert progress.nodes["one"].failed == ""


def test_nodes_that_fail_alike_are_told_together_and_what_differs_is_kept() -> None:
    progress = Progress()
    for host in ("one", "two"):
        ran(progress, host, "Log in", "runner_on_unreachable", msg="user@x: Permission denied (publickey,password).")
    said = lines(progress)
    assert said[0] == "✗ one, two  hostname: Log in"
    assert "password was not accepted" in said[1] and len(said) == 4
    assert said[2] == "    its output: user@x: Permission denied (publickey,password)."
    progress = Progress()
    for host in ("one", "two"):
        ran(progress, host, "Write it", "runner_on_failed", msg=f"/home/{host}/x: No space left on device")
    said = lines(progress)
    assert said[0] == "✗ one, two  hostname: Write it" and "its disk is full" in said[1]
    assert "/home/one/x" in said[2] and "/home/two/x" in said[3] and len(said) == 5


@pytest.mark.parametrize("message", ["cp: /x: Permission denied", "curl: Connection refused", "wget: timed out"])
def test_what_a_program_says_of_its_own_connections_is_not_taken_for_ours(message: str) -> None:
    assert message in explain({"msg": "non-zero return code", "rc": 1, "stderr": message}).what


def test_what_ssh_says_stands_without_what_ansible_says_before_it() -> None:
    ssh = "user@10.0.0.2: Permission denied (publickey,password)."
    before = 'Data could not be sent to remote host "10.0.0.2". Make sure this host can be reached over ssh: '
    assert explain({"msg": f"Task failed: {before}{ssh}"}, unreachable=True).output == ssh


def test_a_failure_on_one_node_that_ends_the_work_on_all_is_not_called_done_elsewhere(tmp_path: Path) -> None:
    progress = Progress()
    for host in ("one", "two"):
        ran(progress, host, "Look", "runner_on_ok")
    ran(progress, "one", "Compare", "runner_on_failed", msg="they differ")
    progress.take(event("playbook_on_no_hosts_remaining"))
    said = summary(progress, tmp_path, rc=2)
    assert "– two: not finished, because it failed elsewhere" in said
    assert "0 of 2 nodes are done" in said[-1]


def test_an_ansible_that_dies_without_an_event_is_quoted(tmp_path: Path) -> None:
    progress = Progress()
    ran(progress, "one", "Look", "runner_on_ok")
    log = tmp_path / "x.log"
    log.write_text("TASK [Look]\nok: [one]\n\x1b[31m[ERROR]: Exception: the sky fell\x1b[0m\nOrigin: above\n")
    said = summary(progress, tmp_path, rc=250)
    assert said[0] == "✗ Ansible ended with exit code 250 in hostname:"
    assert said[1:3] == ["    [ERROR]: Exception: the sky fell", "    Origin: above"]
    assert str(log) in said[-1]


def test_a_node_that_is_off_or_whose_sshd_holds_us_off_is_named_with_its_address() -> None:
    tried = {"state": "off", "tried": ["192.168.1.5", "192.168.1.6"], "twin": ""}
    for contact, told in (
        (tried, "one was skipped: nobody answers at 192.168.1.5 or 192.168.1.6"),
        (tried | {"knock": "refused"}, "one was skipped: it is on, but no SSH server answers at 192.168.1.5"),
        (tried | {"knock": "silent"}, "one was skipped: it hangs"),
        (tried | {"knock": "behind"}, "one was skipped: ssh reaches 192.168.1.5 or 192.168.1.6 over another machine"),
        (tried | {"knock": "closed"}, "closes each connection from here at 192.168.1.5"),
    ):
        progress, seen = Progress(), {"contacts": {"one": contact}}
        progress.take(event("runner_on_ok", "two", role="motley_contact", task="See", res=seen))
        assert told in lines(progress)[0]
    assert "fix: wait two minutes" in "".join(lines(progress)) and "switch it on" not in "".join(lines(progress))


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("Task failed: Incorrect sudo password", "not for sudo"),
        ("Task failed: Missing sudo password", "sudo wants a password"),
        ("user is not in the sudoers file.", "may not use sudo"),
        ("Module result deserialization\nsudo: sorry, you must have a tty to run sudo", "a terminal only (requiretty)"),
        ("WARNING: Your password has expired.\nPassword change required but no TTY available.", "password has expired"),
        ("sudo: Account or password is expired, reset your password and try again", "password has expired"),
        ("Task failed: Timed out after 30 second(s).", "wanted a touch"),
        ("sudo-rs: I'm sorry user. I'm afraid I can't do that", "may not use sudo"),
        ("The module interpreter '/x' was not found.\nenv: ‘sudo’: No such file or directory", "no sudo"),
        ("env: „sudo“: Datei oder Verzeichnis nicht gefunden", "no sudo"),
        ("user@192.168.1.5: Permission denied (publickey).", "takes keys only"),
        ("Received disconnect from 192.168.1.5 port 22:2: Too many authentication failures", "too many keys"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "another host key"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("Failed to create temporary directory. … mkdir: Permission denied", "nothing can be written to"),
        ("Failed to create temporary directory. …\nmkdir: No space left on device", "disk is full"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend", "apt is busy"),
        ("/bin/sh: 1: /usr/bin/python3: not found", "no Python 3"),
        ("ssh: connect to host 192.168.1.5 port 22: Connection refused", "no SSH server"),
        ("ssh: connect to host 192.168.1.5 port 22: Connection timed out", "connection to it was lost"),
    ],
)
def test_what_people_meet_has_a_cause_and_a_mend(message: str, what: str) -> None:
    cause = explain({"msg": message})
    assert what in cause.what and cause.fix and "{host}" not in cause.fix_on("one")


def test_a_task_that_says_its_fix_is_believed_and_of_several_findings_none_is_lost() -> None:
    cause = explain({"msg": "Task failed: Action failed: 10.0.0.1 is taken\nfix: choose another"})
    assert (cause.what, cause.fix) == ("10.0.0.1 is taken", "choose another")
    cause = explain({"msg": "has Python 3.9\nfix: upgrade it\nits disk is small\nfix: make room"})
    assert cause.what.splitlines() == ["has Python 3.9", "fix: upgrade it", "its disk is small"]
    assert cause.fix == "make room"


def test_an_unknown_failure_is_quoted() -> None:
    assert "strange thing" in explain({"msg": "non-zero return code", "stderr": "a strange thing"}).what


def test_receipts_hide_secrets_and_public_addresses(tmp_path: Path) -> None:
    progress = Progress()
    said = "from 8.8.4.4 and 2a02:8109:9a80:12::5/64 to 192.168.1.5 and fe80::1 (aa:bb:cc:dd:ee:ff), version 1.2.3"
    ran(progress, "one", 'Say "s3cret"', changed=True, motley_say=said)
    data = playbook_receipt.as_data("bootstrap", "inventory/x", progress, outcome="proven", seconds=1)
    page = playbook_receipt.write(tmp_path, data, ("s3cret",))
    for text in (page.read_text(), page.with_suffix(".json").read_text()):
        assert "s3cret" not in text and "8.8.4.4" not in text
        assert "from 8.8.x.x and 2a02:8109:x/64 to 192.168.1.5 and fe80::1 (aa:bb:cc:dd:ee:ff)" in text
    assert json.loads(page.with_suffix(".json").read_text())["nodes"]["one"]["changed"] == 1


def test_a_receipt_says_of_a_phase_what_it_did_and_why_it_failed() -> None:
    progress = Progress()
    ran(progress, "one", "Write its names", changed=True, motley_say="one", measured={"ms": 2})
    progress.take(event("runner_on_failed", "one", task="Ask", res={"msg": "it is full\nfix: empty {host}"}))
    data = playbook_receipt.as_data("bootstrap", "inventory/x", progress, outcome="incomplete", seconds=1)
    node = data["nodes"]["one"]
    assert list(node) == ["off", "changed", "phases"]
    assert node["phases"]["hostname"] == {
        **{"seconds": 0, "changed": ["Write its names"], "files": [], "proven": [], "says": ["one"]},
        "measured": {"ms": 2},
        "failure": {"task": "Ask", "what": "it is full", "output": "", "fix": "empty one"},
    }


@pytest.mark.parametrize("said", ["user is not in the sudoers file.", "env: 'sudo': No such file or directory"])
def test_who_may_not_become_root_gets_the_one_command(said: str) -> None:
    fix = explain({"module_stderr": said, "msg": "MODULE FAILURE"}).fix_on("pc")
    assert """su - -c "apt install sudo && adduser $USER sudo\"""" in fix and "pc" in fix and "log in again" in fix
