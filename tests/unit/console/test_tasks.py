"""./motley eval --tasks: what is launched, the table, and what of it stands in report and model card."""

import json
from pathlib import Path
from typing import Any

import pytest

from console import commands_in_pieces, tasks
from console.command_line import commands_as_typed
from console.inventory.read import Inventory
from console.report.command import report
from console.report.page import write_page
from console.report.read_run import read_history
from tests.support.run_files import HEAD, start, step, write
from train.errors import BadInput
from train.runlog import scores

NOWHERE = Inventory(path=Path("inventory/none"), nodes={})


def row(task: str, before: float, after: float, verdict: str = "", group: str = "") -> dict[str, Any]:
    return {
        "task": task, "group": group, "metric": "acc", "higher_is_better": True, "base": before, "base_error": 0.01,
        "adapter": after, "adapter_error": 0.01, "change": after - before, "change_error": 0.005, "verdict": verdict,
    }  # fmt: skip


FACTS = {
    "run": "notes-tasks", "of_run": "notes", "harness": "0.4.13", "documents": 200, "seed": 1,
    "rows": [row("arc_easy", 0.41, 0.38, "forgotten"), row("mmlu", 0.25, 0.26), row("mmlu_law", 0.2, 0.3, "", "mmlu")],
}  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results/notes-tasks/scores"
    folder.mkdir(parents=True)
    (folder / "tasks.json").write_text(json.dumps(FACTS))
    card = tmp_path / "results/notes/adapter/README.md"
    card.parent.mkdir(parents=True)
    card.write_text("---\ntags: [lora]\n---\n# notes\n\n| | |\n|---|---|\n| base | tiny |\n\n## With transformers\n")
    return tmp_path / "results"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    given = {"model": "tiny", "load_in": "4bit"}
    runs = {"notes": {"done": True, "launched": {"given": given}}, "notes-tasks": {"done": True, "launched": {}}}
    seen: list[dict[str, Any]] = []

    def run_it(_: Inventory, run: str, settings: dict[str, Any], more: list[str], __: Path) -> int:
        seen.append({"run": run, **settings, "more": more})
        return 0

    monkeypatch.setattr(commands_in_pieces, "known_runs", lambda _: runs)
    monkeypatch.setattr(commands_in_pieces, "run_it", run_it)
    monkeypatch.setattr(tasks, "show", lambda *_: 0)
    return seen


def ask(results: Path, **values: Any) -> int:
    usual: dict[str, Any] = dict.fromkeys(("run", "tasks", "name", "resume", "nodes", "documents", "shots"), "")
    return tasks.evaluate(NOWHERE, **usual | {"results": results, "settings": []} | values)


def test_the_runs_model_and_adapter_are_asked_by_a_run_of_another_name(launched: list[Any], results: Path) -> None:
    assert ask(results, run="notes", tasks="arc_easy", documents="20") == 0
    assert launched == [
        {"run": "notes-tasks-2", "documents": "20", "recipe": "evaluate", "tasks": "arc_easy", "of_run": "notes",
         "model": "tiny", "adapter": "notes", "load_in": "4bit", "more": []}
    ]  # fmt: skip
    assert ask(results, resume="notes-tasks", nodes="a") == 0
    assert launched[1] == {"run": "notes-tasks", "resume": "notes-tasks", "nodes": "a", "more": []}


def test_what_cannot_be_asked_is_refused_before_a_machine_is(results: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        ask(results, tasks="arc_easy,./none.yaml")
    (tmp_path / "mine.yaml").write_text("task: mine\nprocess_docs: !function a.b\n")
    with pytest.raises(BadInput, match="names code"):
        ask(results, tasks=str(tmp_path / "mine.yaml"))
    with pytest.raises(BadInput, match=r"which tasks\?"):
        ask(results, shots="3")


@pytest.mark.parametrize("given", [{"tasks": "arc_easy"}, {"documents": "5"}, {"shots": "0"}])
def test_what_goes_on_is_asked_what_it_was_asked(launched: list[Any], results: Path, given: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=f"{next(iter(given))}: a run that continues keeps what it began with"):
        ask(results, resume="notes-tasks", **given)
    assert launched == []


def test_the_table_marks_what_is_beyond_chance(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tasks.show(results, "notes-tasks") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["task", "metric", "before", "after", "change"]
    assert " ".join(lines[2].split()) == "arc_easy acc ↑ 0.4100 ± 0.0100 0.3800 ± 0.0100 -0.0300 ± 0.0050 forgotten"
    assert not any("mmlu_law" in line for line in lines)
    assert "1 more, of parts of these: scores/tasks.json" in lines


def test_the_card_of_the_run_says_what_it_was_asked_last(results: Path) -> None:
    card = results / "notes/adapter/README.md"
    before = card.read_text()
    for after in (0.38, 0.39):
        facts = FACTS | {"rows": [row("arc_easy", 0.41, after, "forgotten")]}
        (results / "notes-tasks/scores/tasks.json").write_text(json.dumps(facts))
        tasks.show(results, "notes-tasks")
    text = card.read_text()
    assert text.count(scores.TITLE) == 1 and "0.3900" in text and "0.3800" not in text
    other = results / "other/scores/tasks.json"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps({"rows": FACTS["rows"]}))
    assert scores.of_run(results, "notes"), "whatever another node's file lacks"
    assert text.index("| base | tiny |") < text.index("| arc_easy | acc ↑ |") < text.index("## With transformers")
    assert text.replace(text[text.index(scores.TITLE) : text.index("## With")], "") == before


@pytest.mark.parametrize("text", ["", "[]", '{"rows": [{}]}', '{"rows": 3}', '{"rows": [{"task": "", "metric": ""}]}'])
def test_scores_that_are_none_are_no_scores(text: str, results: Path) -> None:
    (results / "notes-tasks/scores/tasks.json").write_text(text)
    assert scores.read(results / "notes-tasks") is None and scores.of_run(results, "notes") is None
    with pytest.raises(BadInput, match="no scores that can be read"):
        tasks.show(results, "notes-tasks")


def test_the_report_has_what_the_run_was_asked_last(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands_as_typed, "remember", lambda _: None)
    folder = results / "notes"
    end = {"event": "done", "time": 105.0, "step": 1, "loss": 0.3, "seconds": 5}
    write(folder / "nodes" / HEAD, "events.jsonl", [start(100, 0, [HEAD]), step(102, 1, {HEAD: 5}), end])
    assert report(run="notes", results=results) == 0
    assert scores.TITLE in (folder / "adapter/README.md").read_text(), "a fetch brings the card as the nodes have it"
    page = (folder / "report.html").read_text()
    section = page[page.index('<section id="tasks">') :].partition("</section>")[0]
    assert "arc_easy" in section and "-0.0300 ± 0.0050" in section and "forgotten" in section
    assert "mmlu_law" not in section and "lm-evaluation-harness 0.4.13" in section
    (results / "notes-tasks/scores/tasks.json").unlink()
    assert '<section id="tasks">' not in write_page(read_history(folder), folder / "report.html").read_text()
