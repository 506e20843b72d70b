"""How the controller gets to somebody else's Slurm: as Ansible does, by the person's own keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.infra.node import Silent, from_inventory
from console.infra.slurm import INFRA
from console.infra.slurm.node import PlaceNode, SlurmNode, login
from console.inventory.check import check
from console.playbook.run_playbook import Passwords, ask_passwords
from plugins.module_utils.motley import slurm_login_node
from tests.support import ROOT

PLACE = "/shared/me/jobs/qa/place-0"


def written(folder: Path, hosts: dict[str, dict[str, object]]) -> Path:
    (folder / "group_vars").symlink_to(ROOT / "inventory/slurm/group_vars")
    (folder / "hosts.yml").write_text(json.dumps({"cluster": {"hosts": hosts}}))
    return folder


def test_the_inventory_of_the_project_is_one_login_node_and_refused_until_it_is_yours() -> None:
    inventory = check(ROOT / "inventory/slurm")
    [finding] = inventory.findings
    assert finding.what == "ansible_host: login.cluster.example.org is still the example"
    [node] = from_inventory(inventory)
    assert isinstance(node, SlurmNode)
    assert node.ssh[-1] == "login.cluster.example.org"
    assert node.home == "~/ai-cluster"


def test_on_the_login_node_itself_nobody_logs_in(tmp_path: Path) -> None:
    [node] = from_inventory(check(written(tmp_path, {"login": {"ansible_connection": "local"}})))
    assert isinstance(node, SlurmNode)
    assert node.command(["squeue", "-h"]) == ["squeue", "-h"]


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ({"a": {"ansible_host": "a.org"}, "b": {"ansible_host": "b.org"}}, "there are 2 machines beside infra: slurm"),
        ({"login": {}}, "ansible_host is missing"),
    ],
)
def test_what_is_no_login_node_is_told(tmp_path: Path, hosts: dict[str, dict[str, object]], said: str) -> None:
    findings = check(written(tmp_path, hosts)).findings
    assert said in " ".join(finding.what for finding in findings)


def test_what_ansible_is_told_of_the_way_holds_here_too() -> None:
    values = {
        **{"ansible_host": "l.org", "ansible_user": "anna", "ansible_port": 2222},
        **{"ansible_ssh_private_key_file": "/k", "ansible_ssh_common_args": "-o ProxyJump=gate"},
        "ansible_ssh_extra_args": "-4",
    }
    words = login("login", values, "/state")
    assert words[-1] == "anna@l.org"
    assert " ".join(words[-8:-1]) == "-o ProxyJump=gate -4 -i /k -p 2222"


@pytest.mark.parametrize(
    ("answer", "why"), [({"places": [], "one_node": []}, "no run has left"), (Silent("no squeue"), "no squeue")]
)
def test_where_no_run_is_there_to_fetch_it_says_why(
    answer: dict[str, object] | Silent, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object, **__: object) -> object:
        if isinstance(answer, Silent):
            raise answer
        return answer

    monkeypatch.setattr(SlurmNode, "_ask", ask)
    [node] = SlurmNode(name="login", home="~/ai-cluster", ssh=()).parts("")
    with pytest.raises(Silent, match=why):
        node.files("")


def test_a_verb_that_a_login_node_does_not_answer_is_refused_before() -> None:
    assert {"pause", "unpause", "queue"} - slurm_login_node.VERBS.keys() <= INFRA.lacks.keys()


def test_nobody_is_asked_for_a_password_where_nobody_is_named_to_log_in(tmp_path: Path) -> None:
    inventory = check(written(tmp_path, {"login": {"ansible_host": "l.org"}}))
    assert ask_passwords(inventory) == Passwords("", "")


@pytest.mark.parametrize("ssh", [(), ("ssh", "l.org")])
def test_a_question_is_answered_on_a_node_that_slurm_gives(ssh: tuple[str, ...]) -> None:
    place = PlaceNode(name="place-0", home=PLACE, ssh=ssh, one_node=("-p", "gpu", "--gpus=1"))
    words = place.train(["ask", "--run", "qa"], {"HF_HUB_OFFLINE": "1"})
    text = " ".join(words)
    assert "srun --quiet --nodes=1 --ntasks=1 -p gpu --gpus=1 sh -c" in text
    assert f"cd {PLACE} && exec env PYTHONPATH=code HF_HUB_OFFLINE=1 env/bin/python -m train ask --run qa" in text
    assert words[0] == ("ssh" if ssh else "srun")
