"""./motley sweep: what is typed becomes a launch; what came of it is shown, and the best one is trained."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console import launch_request, sweep
from console.command_line.verbs import parser
from console.extra_vars import values_of
from console.report.trials import parallel_chart, table_lines, view
from train.errors import BadInput
from train.plan.settings.read_settings import load_config
from train.runlog.trials import Trial

INVENTORY: Any = SimpleNamespace(path=Path("inventory"), nodes={})
TYPED = ["--model", "tiny", "--dataset", "stdlib-qa", "--set", "learning_rate=1e-5..1e-3:log", "--lora-r", "8,16,32"]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What was launched, in place of launching it."""
    found: list[Any] = []

    def run_it(_: Any, run: str, settings: dict[str, Any], more: list[str], results: Path) -> int:
        found.append((run, settings))
        folder = results / run / "sweep"
        folder.mkdir(parents=True)
        told = [one.to_json() for one in (trial(1, loss=2.0), trial(2, loss=1.0, lora_r=16), trial(3, state="failed"))]
        (folder / "sweep.json").write_text(json.dumps({"trials": told}))
        (folder / "best.yml").write_text("model: tiny\ndataset: stdlib-qa\nlora_r: 16\n")
        return 0

    monkeypatch.setattr(sweep.commands_in_pieces, "run_it", run_it)
    monkeypatch.setattr(sweep.commands_in_pieces, "known_runs", lambda _: {"tiny-sweep": {}})
    monkeypatch.setattr(sweep.launch_playbook, "launch", lambda _, words: found.append(words) or 0)
    return found


def trial(number: int, state: str = "done", loss: float | None = None, **params: Any) -> Trial:
    params = {"learning_rate": 1e-4 * number, "lora_r": 8} | params
    losses = () if loss is None else ((40, loss + 1), (80, loss))
    return Trial(
        number=number, node="a", params=params, state=state, losses=losses, total=80,
        reason="out of memory" if state == "failed" else "",
    )  # fmt: skip


def run(words: list[str], results: Path) -> int:
    options = vars(parser("sweep").parse_args(words))
    options |= {"results": results}
    for name in ("inventory", "infra"):
        options.pop(name, None)
    return sweep.sweep(INVENTORY, **options)


def test_a_setting_with_several_values_is_what_is_tried(launched: list[Any], tmp_path: Path, capsys: Any) -> None:
    assert run([*TYPED, "--trials", "7", "--steps", "40"], tmp_path / "elsewhere") == 0
    [(name, settings)] = launched
    assert name == "tiny-sweep-2"
    assert settings == {
        "model": "tiny", "dataset": "stdlib-qa", "max_steps": "40", "trials": "7", "recipe": "sweep", "trains": "sft",
        "search": "learning_rate=1e-5..1e-3:log lora_r=8,16,32",
    }  # fmt: skip
    assert load_config(settings).trials == 7  # type: ignore[attr-defined]
    said = capsys.readouterr().out
    assert "3 of 3 trials · best 1.0000 with learning_rate 0.0002  lora_r 16 (a) · 1 failed" in said
    assert f"the best one over all machines: ./motley launch -f {tmp_path}/elsewhere/tiny-sweep-2/sweep/best" in said


def test_then_train_launches_the_best_one(launched: list[Any], tmp_path: Path) -> None:
    assert run([*TYPED, "--run", "night", "--then", "train"], tmp_path / "results") == 0
    words = launched[1]
    asked = values_of([word for word in words if word != "-e"])
    assert asked == {"model": "tiny", "dataset": "stdlib-qa", "lora_r": 16, "run": "night-best"}


def test_who_leaves_a_sweep_that_runs_is_told_how_its_best_is_trained(
    launched: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sweep.commands_in_pieces, "run_it", lambda *_: 2)
    for name, is_said in (("tiny-sweep", True), ("refused", False)):
        assert run([*TYPED, "--run", name, "--then", "train"], tmp_path / "results") == 2
        assert (f"--resume {name} --then train" in capsys.readouterr().out) == is_said


def test_a_sweep_of_another_recipe_and_one_that_continues(launched: list[Any], tmp_path: Path) -> None:
    given = {"recipe": "preference", "model": "tiny", "lora_targets": "q_proj,v_proj", "lora_r": "8,16"}
    values = sweep.as_sweep(given)
    assert values["trains"] == "preference" and values["search"] == "lora_r=8,16"
    assert values["lora_targets"] == "q_proj,v_proj"
    assert run(["--resume", "night", "--trials", "30"], tmp_path / "results") == 0
    assert launched == [("night", {"resume": "night", "trials": "30", "recipe": "sweep"})]


@pytest.mark.parametrize(("words", "sentence"), [
    (["--model", "tiny"], "nothing is tried: every setting has one value"),
    (["--model", "tiny", "--set", "learning_rate=1e-3..1e-5"], "1e-3 is not below 1e-5"),
    (["--set", "lora_r=8,16"], "model: a value is missing"),
    (["--resume", "night", "--lora-r", "8,16"], "lora_r: a sweep that continues tries what it tried"),
    (["--model", "tiny", "--lora-r", "8,16", "--set", "lorar=4"], "unknown variable 'lorar'"),
])  # fmt: skip
def test_bad_input_is_refused_before_anything_is_connected_to(
    launched: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.setattr(sweep.commands_in_pieces, "known_runs", lambda _: pytest.fail("connected"))
    with pytest.raises(BadInput, match=sentence):
        run(words, tmp_path / "results")
    assert launched == []


@pytest.mark.parametrize("listed", ["8,16", "8, 16", [8, 16]])
def test_what_is_launched_is_a_launch_that_is_taken(listed: object) -> None:
    """Also with a space behind the comma, and as a list of a run's file."""
    values = sweep.as_sweep({"model": "tiny", "dataset": "stdlib-qa", "lora_r": listed})
    assert launch_request.read(values, ["a", "b"]).values == values
    assert load_config(values).searched[0].values == (8, 16)


def test_the_table_has_the_best_first_and_says_what_became_of_each(tmp_path: Path) -> None:
    cut = [trial(2, "pruned", 0.5), trial(3, "failed"), trial(4, "running", 1.5)]
    trials = [trial(1, loss=2.0), *cut, trial(5, loss=1.0)]
    (tmp_path / "sweep.json").write_text(json.dumps({"trials": [one.to_json() for one in trials]}))
    first, head, *rows = table_lines(tmp_path, 3)
    assert first.startswith("4 of 5 trials · best 1.0000") and first.endswith("1 running · 1 ended early · 1 failed")
    assert head.split("  ")[1:3] == ["trial", "learning_rate"]
    assert [row.split()[0] for row in rows[:3]] == ["5", "1", "4"]
    assert rows[-1] == "  and 2 more trials"
    states = {row["trial"]: row["state"] for row in view(trials, 5)["rows"]}
    assert states == {"1": "", "2": "ended early", "3": "out of memory", "4": "is running", "5": ""}


def test_the_picture_has_a_line_for_each_trial_and_an_axis_for_each_setting() -> None:
    trials = [trial(1, loss=2.0, schedule="cosine"), trial(50, loss=1.0, schedule="<wsd>"), trial(3, "failed")]
    svg = parallel_chart(trials)
    assert svg.count("<path") == 2 and svg.count('class="axis') == 4
    assert "&lt;wsd&gt;" in svg and "<wsd>" not in svg
    assert svg.count("var(--held)") == 1 and svg.rindex("var(--held)") > svg.rindex("var(--n1)"), "the best is on top"
    assert parallel_chart([trial(3, "failed")]) == ""
    assert parallel_chart([trial(1, loss=1.0)]).count("<path") == 1, "of one trial every axis has one value"
