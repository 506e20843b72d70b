"""Names that people type and nodes report become folders, lines of scripts and units: what cannot be one is refused."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console import fetch
from console.__main__ import main
from console.curves import tensorboard_view
from console.infra.machines.node import LocalNode
from console.inventory.check import check
from console.inventory.read import Inventory
from tests.support import ROOT
from tests.support.folders import inventory_of
from tests.support.plans import look
from tests.unit.train.plan.test_plan import files, nodes
from train.errors import BadInput
from train.plan.launch.new_or_resumed import free_name
from train.plan.settings import request
from train.plan.settings.read_settings import SftConfig

BAD_NAMES = ["a\nrm -rf ~", "a b", "../up", "a/b", ".hidden", "-rf", "", "a$(id)", "x" * 101, "ru\u0308n"]


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    homes = {name: tmp_path / name for name in ("a", "b")}
    for home in homes.values():
        home.mkdir()
    return inventory_of(tmp_path, homes)


@pytest.mark.parametrize("variable", ["run", "resume"])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_run_name_that_is_no_name_is_refused(variable, name):
    with pytest.raises(BadInput, match=rf"{variable}: .* cannot name a run"):
        SftConfig(**{variable: name})


@pytest.mark.parametrize("name", ["qa", "tiny-stdlib-qa-2", "Llama_3.1-8b", "7"])
def test_a_good_name_is_taken(name):
    assert SftConfig(run=name).run == name


def test_the_name_made_of_model_and_data_is_one():
    asked = request.read({"model": "tiny"})
    model, dataset = replace(asked.model, name="m" * 90), replace(asked.dataset, name="my notes\n" * 9)
    name = free_name(replace(asked, model=model, dataset=dataset), {}, from_start=False)
    assert SftConfig(run=name).run == name and len(name) < 100


def test_what_a_node_reports_never_becomes_a_command_of_the_script(tmp_path):
    """A network card may be called $(touch$IFS~x)."""
    odd = look(route={"why": "", "nic": "$(touch${IFS}x)"})
    script = tmp_path / "scripts/launch_cluster.sh"
    script.parent.mkdir()
    text = files(nodes(odd, look()), "n0")["scripts/launch_cluster.sh"]
    script.write_text(text.split("\nexec env/")[0] + '\necho "$NCCL_SOCKET_IFNAME"\n')
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=True)
    assert done.stdout == "=$(touch${IFS}x)\n"
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["A=1; rm -rf ~; B", "1A", "A B", "A\nB"])
def test_a_variable_of_ones_own_has_the_name_of_one(name):
    with pytest.raises(BadInput, match="motley_render_environment"):
        files(nodes(look()), "n0", **{name: "x"})


# -- what nodes report becomes a path of the controller ----------------------------------------------------------------


def reported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest run of every node has this name, and a file to fetch."""
    facts = {"time": 1.0, "step": 1, "steps": 1, "loss": 1.0, "done": True, "bytes": 1, "model": ""}
    files = {f"results/{name}/adapter/weights": "0"}
    monkeypatch.setattr(LocalNode, "runs", lambda _: {"runs": {name: facts}, "on": ""})
    monkeypatch.setattr(LocalNode, "files", lambda *_: {"files": files, "run": name, "on": False})
    monkeypatch.setattr(fetch, "bring", lambda *_: 0)
    monkeypatch.setattr(tensorboard_view, "bring_all", lambda *_: 1)
    monkeypatch.setattr(tensorboard_view, "environment", lambda: pytest.fail("it would be shown"))


@pytest.mark.parametrize("name", ["../../elsewhere", "/elsewhere", "..", "a\nb"])
def test_fetch_writes_below_no_name_that_leads_elsewhere(name, inventory, tmp_path, monkeypatch, capsys):
    reported(name, monkeypatch)
    results = tmp_path / "here/results"
    results.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    for typed in (name, ""):
        assert fetch.fetch(inventory, typed, results) == 2
        said = capsys.readouterr().out
        assert "cannot name a run" in said and len(said.splitlines()) <= 3
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("typed", [True, False])
def test_tensorboard_empties_no_folder_elsewhere(typed, inventory, tmp_path, monkeypatch):
    reported("../mine", monkeypatch)
    mine = tmp_path / "mine/tensorboard/keep"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert tensorboard_view.tensorboard(inventory, "../mine" if typed else "", tmp_path / "results", 6006) == 2
    assert mine.read_text() == "mine"


def test_a_node_brings_its_own_events_alone():
    assert fetch.place_of("results/qa/nodes/b/events.jsonl", "qa", "a", results=True) is None
    assert fetch.place_of("results/qa/adapter/weights", "qa", "a", results=True) == Path("adapter/weights")


def test_a_report_is_written_below_no_other_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["console", "report", "--results", str(tmp_path), "--run", "../x"])
    monkeypatch.setattr("console.playbook.interrupt.listen_to_sigterm", lambda: None)
    monkeypatch.setenv("ANSIBLE_CONFIG", "ansible.cfg")
    monkeypatch.setattr("console.report.read_run.read_history", lambda _: pytest.fail("it would be read"))
    assert main() == 2


# -- the cluster's folder ----------------------------------------------------------------------------------------------

REFUSED = {"/srv/my cluster", "~/100%", "/srv/a\nb", "cluster", "~/it's", "/srv/$HOME", "~", "~other/x", "/srv/../etc"}
TAKEN = {"~/ai-cluster", "/srv/cluster_2/v1.0", "/home/jürgen/cluster"}


def test_the_check_refuses_a_home_that_units_and_shells_do_not_take(tmp_path):
    good: dict[str, Any] = {"ansible_user": "anna", "motley_subnet": "10.0.0.0/24", "motley_gateway": "10.0.0.1"}
    fixes = {}
    for home in REFUSED | TAKEN:
        cluster = {"vars": good | {"motley_home": home}, "hosts": {"one": {"motley_address": "10.0.0.2"}}}
        (tmp_path / "hosts.yml").write_text(json.dumps({"cluster": cluster}))
        if findings := check(tmp_path).findings:
            fixes[home] = findings[0].fix
    assert fixes.keys() == REFUSED and all("letters, digits" in fix for fix in fixes.values())


def plays(tmp_path: Path, *words: str) -> str:
    """The role that checks a request, alone."""
    shown = {"ansible.builtin.debug": {"msg": "nodes: {{ motley_request_checked.asked.nodes | join(',') }}."}}
    play = {"hosts": "cluster", "gather_facts": False, "roles": [{"role": "motley_request"}]}
    (tmp_path / "playbook.yml").write_text(json.dumps([play | {"post_tasks": [shown | {"name": "Show"}]}]))
    hosts = {name: {"motley_address": f"10.0.0.{place}"} for place, name in enumerate(("one", "two", "three"), 2)}
    variables = {"ansible_connection": "local", "motley_manage_host": True}
    (tmp_path / "hosts.yml").write_text(json.dumps({"cluster": {"vars": variables, "hosts": hosts}}))
    programs = Path(sys.executable).parent
    command: list[Any] = [programs / "ansible-playbook", "-i", tmp_path / "hosts.yml", tmp_path / "playbook.yml"]
    environment = {"ANSIBLE_ROLES_PATH": str(ROOT / "roles"), "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    environment["PATH"] = f"{programs}:{Path(shutil.which('sh') or '/bin/sh').parent}"
    command += ["-e", "model=tiny", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr


def test_a_launch_refuses_such_a_home_and_a_node_that_the_limit_leaves_out(tmp_path):
    said = plays(tmp_path, "--limit", "two,one", "-e", "nodes=three", "-e", '{"motley_home": "/srv/my cluster"}')
    assert "motley_home: '/srv/my cluster'" in said and "nodes: --limit leaves 'three' out" in said


def test_a_limit_is_as_good_as_nodes(tmp_path):
    assert "nodes: one,two." in plays(tmp_path, "--limit", "two,one")
