"""./motley generate: whose model, under which name, and what is refused before anything is launched."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console import commands_in_pieces, generate
from console.inventory.read import Inventory
from train.errors import BadInput

NOTHING: dict[str, Any] = {
    "prompts": "./q.jsonl", "run": "", "model": "", "name": "", "resume": "", "out": "", "results": Path("results"),
    "settings": [], "nodes": "",
}  # fmt: skip


def run(*, done: bool = True, **asked: Any) -> dict[str, Any]:
    return {"done": done, "on": False, "launched": {"given": asked, "asked": {}}}


RUNS = {
    "tasks": run(model="qwen3-4b", recipe="evaluate"),
    "scores": run(model="qwen3-4b", recipe="preference", loss="reward"),
    "new": run(model="qwen3-4b", load_in="4bit"),
    "half": run(done=False, model="qwen3-4b"),
    "all": run(model="smollm2-135m", method="full"),
    "photos": run(model="resnet18", recipe="images"),
    "made": run(model="qwen3-4b", recipe="generate", adapter="new"),
    "script": run(),
}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any], list[str]]]:
    found: list[tuple[str, dict[str, Any], list[str]]] = []

    def run_it(_: Inventory, name: str, settings: dict[str, Any], more: list[str], __: Path) -> int:
        found.append((name, settings, more))
        return 1

    monkeypatch.setattr(commands_in_pieces, "known_runs", lambda _: RUNS)
    monkeypatch.setattr(commands_in_pieces, "run_it", run_it)
    return found


INVENTORY: Any = None


def test_a_runs_adapter_answers_with_the_base_that_it_was_trained_on(launched: list[Any]) -> None:
    assert generate.generate(INVENTORY, **NOTHING | {"run": "new", "settings": ["piece=4"]}, temperature="0.5") == 1
    asked = {"temperature": "0.5", "recipe": "generate", "dataset": "./q.jsonl", "model": "qwen3-4b", "adapter": "new"}
    assert launched == [("new-answers", asked | {"load_in": "4bit"}, ["piece=4"])]


def test_without_a_name_it_is_the_newest_that_has_an_adapter(launched: list[Any]) -> None:
    generate.generate(INVENTORY, **NOTHING)
    assert launched[0][1]["adapter"] == "new"


def test_a_model_needs_no_run(launched: list[Any]) -> None:
    generate.generate(INVENTORY, **NOTHING | {"model": "Qwen/Qwen3-8B", "nodes": "a,b"})
    asked = {"nodes": "a,b", "recipe": "generate", "dataset": "./q.jsonl", "model": "Qwen/Qwen3-8B"}
    assert launched == [("qwen3-8b-answers", asked, [])]


def test_what_was_stopped_goes_on_under_its_name(launched: list[Any]) -> None:
    generate.generate(INVENTORY, **NOTHING | {"prompts": "", "resume": "new-answers"}, temperature="0.5")
    asked = {"recipe": "generate", "resume": "new-answers", "temperature": "0.5"}
    assert launched == [("new-answers", asked, [])], "the launch says whether that is what it was begun with"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prompts": ""}, "--prompts FILE"),
        ({"run": "old"}, "no node that answers has a run 'old'"),
        ({"run": "half"}, "half is not done"),
        ({"run": "script"}, "has no base model"),
        ({"run": "all"}, "all has made no adapter"),
        ({"run": "photos"}, "photos has made no adapter"),
        ({"run": "made"}, "made has made no adapter"),
        ({"run": "tasks"}, "tasks has made no adapter that writes"),
        ({"run": "scores"}, "scores has made no adapter that writes"),
        ({"out": "/no/such/folder/a.jsonl"}, "no file in a folder that is there"),
        ({"out": "/"}, "no file in a folder that is there"),
        ({"out": "q.jsonl"}, "has the prompts, which would be lost"),
    ],
)
def test_what_cannot_be_is_refused_before_a_launch(launched: list[Any], wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        generate.generate(INVENTORY, **NOTHING | wrong)
    assert launched == []


@pytest.mark.parametrize("prompts", ["q.jsonl?prompt=question", "q.jsonl[:5]", "other.jsonl,q.jsonl:2", "folder"])
def test_prompts_of_which_a_part_is_taken_are_not_written_over(
    launched: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompts: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for file in ("q.jsonl", "other.jsonl", "folder/q.jsonl"):
        (tmp_path / file).touch()
    out = "folder/q.jsonl" if prompts == "folder" else "q.jsonl"
    with pytest.raises(BadInput, match="has the prompts, which would be lost"):
        generate.generate(INVENTORY, **NOTHING | {"prompts": prompts, "out": out})
    assert launched == []
    generate.generate(INVENTORY, **NOTHING | {"prompts": prompts, "out": "folder/answers.jsonl"})
    generate.generate(INVENTORY, **NOTHING | {"prompts": "", "resume": "new-answers", "out": "q.jsonl"})
    assert len(launched) == 2


def test_other_prompts_or_another_model_of_what_goes_on_are_handed_on_to_be_refused(launched: list[Any]) -> None:
    generate.generate(INVENTORY, **NOTHING | {"resume": "new-answers", "model": "tiny"})
    assert launched[0][1] == {
        "recipe": "generate", "resume": "new-answers", "dataset": "./q.jsonl", "model": "tiny",
    }  # fmt: skip


def test_answers_are_where_results_says_and_in_the_file_that_was_named(
    launched: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fetched(_: Inventory, name: str, __: dict[str, Any], ___: list[str], results: Path) -> int:
        (results / name / "answers").mkdir(parents=True)
        (results / name / "answers/answers.jsonl").write_text("{}\n")
        return 0

    monkeypatch.setattr(commands_in_pieces, "run_it", fetched)
    out = tmp_path / "here.jsonl"
    assert generate.generate(INVENTORY, **NOTHING | {"results": tmp_path / "elsewhere", "out": str(out)}) == 0
    assert out.read_text() == "{}\n" and capsys.readouterr().out == f"answers   {out}\n"


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert commands_in_pieces.free_name(RUNS, "new") == "new-2" and commands_in_pieces.free_name({}, "new") == "new"
    assert commands_in_pieces.free_name({"new": {}, "new-2": {}}, "new") == "new-3"


def test_a_rented_machine_is_given_back_once_all_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    @contextlib.contextmanager
    def used(_: Inventory) -> Iterator[None]:
        yield
        happened.append("given back")

    monkeypatch.setattr(commands_in_pieces.while_rented, "used", used)
    monkeypatch.setattr(commands_in_pieces.launch_playbook, "launch", lambda *_: 0)
    monkeypatch.setattr(commands_in_pieces, "known_runs", lambda _: {} if happened else {"a": {"done": True}})
    monkeypatch.setattr(commands_in_pieces, "fetch", lambda *_: happened.append("fetched") or 0)
    inventory = Inventory(path=Path("inventory/rented"), nodes={}, findings=[])
    assert commands_in_pieces.run_it(inventory, "a", {"recipe": "generate"}, [], Path("results")) == 0
    assert happened == ["fetched", "given back"]


@pytest.mark.parametrize("setting", ["run=mine", '{"run": "mine"}'])
def test_a_name_among_the_settings_is_refused_as_another_run_would_be_waited_for(setting: str) -> None:
    with pytest.raises(BadInput, match="run: its name is given with --as\nfix: --as mine"):
        commands_in_pieces.run_it(INVENTORY, "a", {"recipe": "generate"}, [setting], Path("results"))


@pytest.mark.parametrize(("facts", "said"), [
    ({"done": False, "on": True}, "it is still running; when it is done: ./motley fetch --run a"),
    ({"done": False, "on": False}, "a is not done"),
])  # fmt: skip
def test_what_is_not_done_is_not_fetched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], facts: dict[str, Any], said: str
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(commands_in_pieces.launch_playbook, "launch", lambda _, words: asked.append(words) or 0)
    monkeypatch.setattr(commands_in_pieces, "known_runs", lambda _: {"a": facts})
    inventory = Inventory(path=Path("inventory/loopback"), nodes={}, findings=[])
    assert commands_in_pieces.run_it(inventory, "a", {"recipe": "generate"}, ["piece=4"], Path("results")) == 1
    assert said in capsys.readouterr().out
    values = [json.loads(word) for word in asked[0] if word != "-e"]
    assert {"recipe": "generate", "run": "a"} in values
