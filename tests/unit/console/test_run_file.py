"""A file that is a run: read for -f, said what of it does not count, and written back as it was launched."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from console import launch_commands, launch_records, launch_request, render, run_file
from console.command_line.verbs import parser
from console.launch_commands import launch_words
from console.watch import status
from plugins.action import launch_plan
from tests.support.plans import handed_on, node_facts
from tests.unit.train.plan.test_plan import VERSIONS, look
from train.errors import BadInput
from train.plan.launch.decide import decide
from train.plan.launch.launch_plan import LaunchPlan
from train.plan.machines.nodes import LaunchFacts
from train.plan.settings import request

CLUSTER = ["n0", "n1"]


def written(folder: Path, text: str, name: str = "run.yml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def words(*typed: str) -> dict[str, Any]:
    """What a launch gets, of what was typed."""
    args = vars(parser("plan").parse_args([*typed]))
    for name in ("inventory", "infra", "as_json", "cards"):
        del args[name]
    return {name: value for word in launch_words(**args) if word != "-e" for name, value in json.loads(word).items()}


def test_what_is_typed_wins_over_the_file_and_this_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "model: tiny\nmax_steps: 50  # a comment\nlora_r: 8\nrslora: true\n")
    found = words("-f", str(file), "--steps", "5", "--lora-r", "8", "--set", "seed=3", "--set", "rslora=true")
    assert found == {"model": "tiny", "rslora": "true", "max_steps": "5", "lora_r": "8", "seed": "3"}
    assert {*capsys.readouterr().out.splitlines()} == {"max_steps=5 as typed, not 50 of the file"}


def test_said_beside_the_data_and_not_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "model: tiny\nmax_steps: 50\n")
    given = {"settings": ["max_steps=5"], "run_file": str(file), "vault": "", "verbose": False}
    assert launch_commands.plan_for_cards("24", as_json=True, **given) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["ok"] and "max_steps=5 as typed" in said.err


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("lora_rank: 8\nmodel: tiny\n", r"unknown variable 'lora_rank' — did you mean 'lora_r'\?\nfile: .*run.yml"),
        ("learning-rate: 1\n", "did you mean 'learning_rate'"),
        ("motley_firewal_manage: false\n", "did you mean 'motley_firewall_manage'"),
        ("model: {name: tiny}\n", "model: it is neither a value nor a list of values"),
        ("nodes: [[a]]\n", "nodes: it is neither"),
        ("model:\n", "model: it has no value"),
        ("model: a\nmodel: b\n", r"'model' is written twice, in lines 1 and 2"),
        ("model: {{ base }}\n", r"a mapping stands where a name belongs\nfile: .*:1\nfix: put"),
        ("- model\n", "the run's file holds no variables"),
        ("model: 'a\n", r"(?s)this is not YAML.*file: .*run.yml:\d"),
        ("motley_hub_token: hf_x\n", "motley_hub_token: a run's file is no place for it"),
        ("model: tiny\nrun: 2026-02-30\n", r"'2026-02-30' is no timestamp\nfile: .*run.yml:2\nfix: put it into quotes"),
        ("epochs: !!int many\n", "'many' is no int"),
        ("model: !!int ''\n", "'' is no int\nfile: .*run.yml:1"),
        ("model: " + 2000 * "[", "too much stands within|this is not YAML"),
        ("model: " + 2000 * "[" + 2000 * "]", "too much stands within one another"),
        ("model: !vault x\n", "(?s)model: it is locked.*--set @.*run.yml --vault ask"),
    ],
)
def test_what_a_file_may_not_hold(text: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=wrong):
        run_file.read(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read: No such file.*\nfile: .*none.yml"):
        run_file.read(tmp_path / "none.yml")


def test_files_lie_beside_it_and_names_stay_names(tmp_path: Path) -> None:
    for name in ("notes.jsonl", "tiny", "rewards.py"):
        (tmp_path / name).touch()
    text = "model: tiny\ndataset: notes.jsonl\nrewards: 'exact,./rewards.py'\nrecipe: grpo\n"
    found = run_file.read(written(tmp_path, text))
    assert found["model"] == "tiny" and found["recipe"] == "grpo" and found["dataset"] == f"{tmp_path}/notes.jsonl"
    assert f"{tmp_path}/" in found["rewards"]
    elsewhere = run_file.read(written(tmp_path, "dataset: examples/household.jsonl\n"))
    assert elsewhere == {"dataset": "examples/household.jsonl"}


def test_a_run_may_be_called_like_a_day(tmp_path: Path) -> None:
    """YAML takes it for a date."""
    assert run_file.read(written(tmp_path, "run: 2026-11-30\n")) == {"run": "2026-11-30"}


def test_several_data_sets_may_be_a_list(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"prompt": "a", "completion": "b"}\n')
    found = run_file.read(written(tmp_path, "dataset: ['a.jsonl:2', b.jsonl]\n"))
    assert found["dataset"] == f"{tmp_path}/a.jsonl:2,{tmp_path}/b.jsonl"


def test_a_recipe_of_ones_own_has_variables_of_its_own(tmp_path: Path) -> None:
    text = f"recipe: {Path(__file__).parents[3]}/examples/table.py\ntarget: kwh\n"
    assert run_file.read(written(tmp_path, text))["target"] == "kwh"
    with pytest.raises(BadInput, match="unknown variable 'targett' — did you mean 'target'"):
        run_file.read(written(tmp_path, text.replace("target:", "targett:")))


def test_then_and_nodes_of_the_file_are_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the command line: whoever works at one of the machines would lose it."""
    found = []
    monkeypatch.setattr(launch_commands.launch_playbook, "agreed_to", lambda *given, yes: found.append(given[1:]))
    args = vars(parser("launch").parse_args(["-f", str(written(tmp_path, "then: suspend\nnodes: [a, b]\n"))]))
    for name in ("inventory", "infra"):
        del args[name]
    assert launch_commands.launch(SimpleNamespace(), **args) == 1
    assert found == [(["a", "b"], "suspend")]


def test_a_time_means_the_same_in_yaml() -> None:
    """It reads 22:00 as a number to the base of 60, and Ansible with it."""
    (number,) = yaml.safe_load("at: 22:00").values()
    assert number == 1320 and launch_request.begin(number) == launch_request.begin("22:00")
    for clock in ("23:05", "1:00", "0:59", "00:01"):
        assert launch_request.begin(yaml.safe_load(clock)) == launch_request.begin(clock)
    for value in (True, False, 9, 22):
        assert launch_request.begin(value)[1] == [f"at: '{value}' is no time of the day\nfor example: --at 22:00"], (
            "no minutes after midnight"
        )


# -- written back ------------------------------------------------------------------------------------------------------

TINY = {"model": "tiny"}
LAUNCHED: dict[str, dict[str, Any]] = {
    "as typed": {**TINY, "dataset": "stdlib-qa", "max_steps": "40", "learning_rate": "1e-4", "rslora": "true"},
    "named": {**TINY, "dataset": "stdlib-qa", "run": "notes", "shares": "5,2", "pipes": "off", "load_in": "auto"},
    "of the launch": {**TINY, "nodes": "n1", "at": "22:00", "then": "suspend", "follow": "false", "report_to": "wandb"},
    "odd words": {**TINY, "dataset": "./it's: a #file.jsonl"},
}


def asked_of(values: dict[str, Any]) -> launch_request.Asked:
    return launch_request.read(dict(values), CLUSTER)


def kept(values: dict[str, Any], state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the steps of a launch keep it: the request goes through the plan to the record."""
    asked = json.loads(json.dumps(asdict(asked_of(values))))
    named = asked["values"] | {"run": asked["values"].get("run", "qa")}
    known = {"addresses": {"n0": "10.0.0.1"}, "nodes": node_facts(["n0"], [look()]), "versions": {"n0": VERSIONS}}
    found = decide(request.read(named), LaunchFacts(**known, code="1", files=lambda _: ({}, 0)))
    monkeypatch.setattr(launch_plan, "part", lambda *_: lambda *_: {"plan": handed_on(found).to_json()})
    step = launch_plan.ActionModule.__new__(launch_plan.ActionModule)
    plan = step.answer({"inventory_hostname": "n0", "hostvars": {"n0": {}}}, {"asked": asked})["plan"]
    launch_records.keep([render.launched(LaunchPlan.from_json(plan), "2026-11-29T05:00:00+0000")], state)


@pytest.mark.parametrize("values", LAUNCHED.values(), ids=LAUNCHED)
def test_a_run_that_is_written_back_asks_for_the_same(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f'{{"prompt": "a{n}", "completion": "b"}}\n' for n in range(40)]
    (tmp_path / "it's: a #file.jsonl").write_text("".join(rows))
    kept(values, tmp_path / "state", monkeypatch)
    monkeypatch.setattr(status, "from_inventory", lambda _: [])
    assert status.runs(SimpleNamespace(state=tmp_path / "state"), as_file=values.get("run", "qa")) == 0  # type: ignore[arg-type]
    text = capsys.readouterr().out
    found = run_file.read(written(tmp_path, text, "back.yml"))
    assert found.keys() == values.keys(), "only what was asked for"
    first, again = asked_of(values), asked_of(found)
    once, twice = (request.read(asked.values).config for asked in (first, again))
    assert replace(twice, dataset="") == replace(once, dataset="")
    assert (tmp_path / twice.dataset) == (tmp_path / once.dataset), "the file lies beside it, and is named in full"
    assert replace(again, values={}, data={}) == replace(first, values={}, data={})


def test_what_a_node_knows_of_a_launch_is_written_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that another computer launched; a node's word breaks out of no line."""
    launched = {"time": "x\x1b[31m 2026", "asked": {"model": "tiny", "dataset": "a\nrecipe: ./evil.py \x1b[31m"}}
    answers = {"n0": {"runs": {}}, "n1": {"runs": {"qa": {"launched": launched}}}}
    text = status.run_as_file("qa", None, answers)
    assert yaml.safe_load(text) == launched["asked"] and "\x1b" not in text
    older = {"n1": {"runs": {"qa": {"launched": {"given": {"model": "tiny", "max_steps": 4}}}}}}
    assert yaml.safe_load(status.run_as_file("qa", None, older)) == {"model": "tiny", "max_steps": 4}


def test_a_run_that_nobody_knows_is_named_with_the_nearest() -> None:
    facts = {"step": 1, "steps": 2, "loss": 1.0, "time": 1, "model": "", "done": True, "bytes": 0, "launched": {}}
    answers = {"n0": {"on": "", "runs": {"notes": facts}}}
    with pytest.raises(BadInput, match=r"no launch of a run 'note' is known\ndid you mean 'notes'\?"):
        status.run_as_file("note", None, answers)
