"""An infra is added by a folder alone: tests/support/infra/box, laid into a copy of the tree, serves every verb."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from console import infra
from tests.support import ROOT
from train.errors import BadInput

FILES = ("node", "look", "plan", "files", "start")
TREE = ("ansible.cfg", "launch.yml", "console", "playbooks", "plugins", "requirements", "roles", "templates", "train")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an inventory of that kind."""
    tree = tmp_path_factory.mktemp("tree")
    for part in (*TREE, "tests/support/run_files.py"):
        (tree / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, symlinks=True)
        else:
            shutil.copy(ROOT / part, tree / part)
    shutil.copytree(ROOT / "tests/support/infra/box", tree / "console/infra/box")
    shared = {
        **{"infra": "box", "motley_manage_host": False, "motley_box_steps": 4, "ansible_connection": "local"},
        **{"motley_state": str(tree / "state"), "motley_state_folder": str(tree / "state")},
    }
    (tree / "inventory/box").mkdir(parents=True)
    (tree / "inventory/box/hosts.yml").write_text(json.dumps({"cluster": {"vars": shared, "hosts": {"box": {}}}}))
    return tree


def motley(tree: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "console", *words, "--infra", "box"]
    where = {name: value for name, value in os.environ.items() if not name.startswith(("MOTLEY_", "ANSIBLE_"))}
    where |= {"PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=where, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_a_run_goes_through_all_steps_and_its_verbs_answer(tree: Path) -> None:
    code, said = motley(tree, "launch", "--model", "tiny", "--run", "first")
    assert code == 0, said
    assert f"plan  first in {tree}/state/box" in said and "box  in its box" in said and "done · 4 steps" in said, said
    code, said = motley(tree, "status", "--json")
    assert code == 0 and json.loads(said)["nodes"]["box"]["run"] == "first", said
    code, said = motley(tree, "runs")
    assert code == 0 and "first" in said, said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("launch", "--model", "tiny", "--at", "22:00"), "at: a box keeps no time"),
        (("bootstrap",), "bootstrap: there is nothing to prepare in a box"),
    ],
)
def test_what_it_lacks_is_said(tree: Path, words: tuple[str, ...], said: str) -> None:
    code, words_said = motley(tree, *words)
    assert code == 2 and said in words_said


@pytest.mark.parametrize("name", infra.NAMES)
def test_each_has_the_same_parts(name: str) -> None:
    assert infra.about(name) and all(map(callable, (infra.part(name, part) for part in FILES)))


def test_an_unknown_infra_names_those_there_are() -> None:
    with pytest.raises(BadInput, match="there is no infra 'bax'\nfix: one of kubernetes, machines, slurm"):
        infra.part("bax", "node")
