"""Which node is asked, with which words, and what is said where none can be: on nodes that are two folders of this
machine, whose training package only tells how it was called."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console import use_result
from console.infra.machines.node import LocalNode
from console.infra.node import from_inventory
from console.inventory.read import Inventory
from tests.support.folders import inventory_of
from tests.support.stand_ins import program, running
from train.errors import BadInput

TOLD = """#!/bin/sh
echo "$PWD" "$PYTHONPATH" "${HF_HUB_OFFLINE-online}" "$@"
cat
exit 3
"""


def begun(home: Path, run: str, time: int, *events: dict[str, Any], steps: int = 9) -> Path:
    """The folder of a run that began then, on that node."""
    folder = home / "logs/runs" / run
    folder.mkdir(parents=True)
    lines = [{"event": "start", "time": time, "total_steps": steps}, *events]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in lines))
    return folder


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    """Run old is done on both, run new on b alone, run half has no checkpoint; a folder's name has a space."""
    homes = {name: tmp_path / f"home of {name}" for name in ("a", "b")}
    for home, runs in zip(homes.values(), (["old"], ["old", "new"]), strict=True):
        for age, run in enumerate(["half", "old", "new"]):
            begun(home, run, age, {"event": "step", "time": age, "step": 4, "loss": 1})
            if run in runs:
                (home / "results" / run / "adapter").mkdir(parents=True)
        program(home / "env/bin/python", TOLD)
    return inventory_of(tmp_path, homes)


def test_what_a_node_says_commands_no_terminal(
    inventory: Inventory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The bell, and OSC 52, which writes into the clipboard."""
    text = "#!/bin/sh\nprintf 'an \\033]52;c;ZXZpbA==\\007answer'; printf '\\007why\\n' >&2\n"
    program(tmp_path / "home of b/env/bin/python", text)
    assert use_result.evaluate(inventory, "") == 0
    said = capfd.readouterr()
    assert said.out.endswith("an �]52;c;ZXZpbA==�answer") and said.err == "�why\n"


@pytest.mark.parametrize(("run", "asked_on"), [("", "b"), ("old", "a"), ("new", "b")])
def test_the_newest_that_is_done_is_asked_where_it_lies(
    inventory: Inventory, tmp_path: Path, run: str, asked_on: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert use_result.ask(inventory, run, 'what\'s `this` $HOME "now"?', 7) == 3, "its exit code is the node's"
    said, named = capfd.readouterr().out.splitlines(), run or "new"
    assert said[0] == f"run {named} · on {asked_on}"
    words = "--question - --answer-tokens 7"
    assert said[1] == f"{tmp_path}/home of {asked_on} code 1 -m train ask --run {named} --home . {words}"
    assert said[2:] == ['what\'s `this` $HOME "now"?'], "not among the words of a command, which others read there"


def test_a_question_may_come_by_our_input(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Two lines?\nYes."))
    assert use_result.ask(inventory, "", "-", 0) == 3
    assert capfd.readouterr().out.endswith("--question -\nTwo lines?\nYes.")


def test_a_long_question_that_ends_like_a_picture_is_a_question(
    inventory: Inventory, capfd: pytest.CaptureFixture[str]
) -> None:
    question = "Why? " * 60 + "as in shot.png"
    assert use_result.ask(inventory, "", question, "") == 3
    assert capfd.readouterr().out.endswith(f"--question -\n{question}")


def test_a_question_in_another_encoding_is_refused_in_words(inventory: Inventory) -> None:
    with pytest.raises(BadInput, match="the question is not UTF-8"):
        use_result.ask(inventory, "", b"caf\xe9 \xf0\x9f\x98\x80".decode(errors="surrogateescape"), "")


def test_what_a_script_made_is_not_asked(
    inventory: Inventory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As `./motley torchrun` leaves it: newer than any run, and done."""
    view = {"time": 99.0, "state": "done", "script": "train.py"}
    for name in ("a", "b"):
        folder = tmp_path / f"home of {name}" / "logs/runs/train-4"
        folder.mkdir()
        (folder / "agent.json").write_text(json.dumps(view))
    assert use_result.ask(inventory, "", "Why?", 0) == 3
    assert capfd.readouterr().out.startswith("run new · on b\n"), "the newest is no script"
    assert use_result.ask(inventory, "train-4", "Why?", 0) == 1
    said = "train-4 was a script of your own (train.py): Motley does not know what it made\nfix: ./motley fetch"
    assert said in capfd.readouterr().out


@pytest.mark.parametrize("run", ["", "cut"])
def test_a_stopped_run_is_asked_where_its_newest_checkpoint_lies(
    inventory: Inventory, tmp_path: Path, run: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is the newest of all, so it is meant where none is named."""
    for name, step in (("a", 20), ("b", 40)):
        home = tmp_path / f"home of {name}"
        (home / "models/checkpoints/cut" / f"step-{step}").mkdir(parents=True)
        begun(home, "cut", 7, {"event": "step", "time": 8, "step": 44, "loss": 1}, steps=90)
    assert use_result.ask(inventory, run, "why?", 0) == 3
    said = capfd.readouterr().out.splitlines()
    assert said[0] == "run cut · stopped at step 44 of 90 · on b"
    assert said[1].endswith("ask --run cut --home . --question -") and said[2:] == ["why?"]


def test_a_stopped_run_that_lost_its_event_log_is_not_meant_by_itself(
    inventory: Inventory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No node could load it: its settings are gone too."""
    folder = tmp_path / "home of a/models/checkpoints/cut"
    (folder / "step-20").mkdir(parents=True)
    os.utime(folder, (4e9, 4e9))  # the newest of all
    assert use_result.ask(inventory, "", "why?", 0) == 3
    assert capfd.readouterr().out.startswith("run new · on b\n")


def test_a_picture_from_here_travels(inventory: Inventory, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "my cat.JPG"
    picture.write_bytes(bytes(range(256)))
    assert use_result.ask(inventory, "new", str(picture), 0) == 3
    said = capfd.readouterr().out
    assert "ask --run new --home . --question my cat.JPG --picture\n" in said
    assert base64.b64decode(said.splitlines()[-1]) == bytes(range(256))
    assert use_result.ask(inventory, "new", "is my cat.jpg a dog?", 0) == 3
    assert "--picture" not in capfd.readouterr().out


def test_of_a_node_that_reads_no_picture_the_own_words_are_heard(
    inventory: Inventory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home of b/env/bin/python").write_text("#!/bin/sh\necho no such run >&2; exit 2\n")
    picture = tmp_path / "cat.png"
    picture.write_bytes(bytes(1 << 20))  # more than a pipe holds
    assert use_result.ask(inventory, "new", str(picture), 0) == 2
    assert capfd.readouterr().err == "no such run\n"


def test_an_export_may_ask_the_hub(inventory: Inventory, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert use_result.on_a_node(inventory, "old", ["export", "gguf"], more=[], offline=False) == 3
    assert f"{tmp_path}/home of a code online -m train export gguf --run old --home ." in capfd.readouterr().out


def test_a_node_that_trains_is_spared(inventory: Inventory, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path / "home of a", "half"):
        use_result.on_a_node(inventory, "old", ["eval"], more=[])
        assert "run old · on b\n" in capfd.readouterr().out
        with running(tmp_path / "home of b", "half"):
            assert use_result.on_a_node(inventory, "old", ["eval"], more=[]) == 1
            said = capfd.readouterr().out
            assert said == "run half is running there and needs the memory\nfix: wait for its end, or ./motley stop\n"
            assert use_result.on_a_node(inventory, "half", ["eval"], more=[]) == 1
            told = "run half is running, at step 4 of 9\nfix: wait for its end, or ./motley stop\n"
            assert capfd.readouterr().out == told


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("odl", "there is no run 'odl'\n  did you mean 'old'?"),
        ("xyz", "there is no run 'xyz'\n  there are: new, old, half"),
        ("half", "run half was stopped before its first checkpoint\nfix: resume it: ./motley launch --resume half"),
    ],
)
def test_where_there_is_nothing_to_ask_it_says_what_to_do(inventory: Inventory, run: str, said: str) -> None:
    with pytest.raises(use_result.NowhereToAsk) as why:
        use_result.choose(from_inventory(inventory), run)
    assert str(why.value).endswith(said)


def test_before_the_first_run_it_says_how_to_train_one(tmp_path: Path) -> None:
    nodes = from_inventory(inventory_of(tmp_path, {"a": tmp_path / "a"}))
    said = "./motley launch --model qwen3-0.6b --dataset stdlib-qa trains one"
    for run in ("", "qa"):
        with pytest.raises(use_result.NowhereToAsk, match=said):
            use_result.choose(nodes, run)


def test_the_nodes_home_may_be_named_from_its_users(tmp_path: Path) -> None:
    node = LocalNode(name="a", home="~/ai cluster")
    program(tmp_path / "ai cluster/env/bin/python", TOLD)
    command = node.train(["ask", "--run", "it's"], {})
    done = subprocess.run(command, env={"HOME": str(tmp_path)}, input="", capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path}/ai cluster code online -m train ask --run it's\n"


def test_what_trained_nothing_is_not_asked(
    inventory: Inventory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run that answered prompts is newer than what was trained: the latter is meant, and the former is refused."""
    home = tmp_path / "home of b"
    (begun(home, "many", 99) / "launch.json").write_text(json.dumps({"asked": {"recipe": "generate"}, "time": "now"}))
    (home / "results/many/answers").mkdir(parents=True)
    use_result.evaluate(inventory, "")
    assert capfd.readouterr().out.startswith("run new · on b")
    assert use_result.evaluate(inventory, "many") == 1
    assert "many has trained nothing (recipe=generate)\nfix: ./motley fetch --run many" in capfd.readouterr().out
