"""./motley eval --tasks: a run's model and its base are asked tasks by all machines; the table comes here, and to the
run's report and model card. Without tasks: loss and answers on its held-out rows."""

from __future__ import annotations

from pathlib import Path

from console import commands_in_pieces, use_result
from console.inventory.read import Inventory
from console.text_layout import say
from train.errors import BadInput
from train.plan.settings import task_files
from train.runlog import scores

CARD = "adapter/README.md"


def evaluate(
    inventory: Inventory, *, run: str, tasks: str, name: str, resume: str, results: Path, settings: list[str],
    nodes: str, **named: str,
) -> int:  # fmt: skip
    asked: dict[str, object] = {key: value for key, value in {**named, "nodes": nodes}.items() if value}
    if not tasks and not resume:
        if asked or name or settings:
            raise BadInput("which tasks?", fix="fix: ./motley eval --tasks arc_easy,./mine.yaml")
        return use_result.evaluate(inventory, run)
    require_files(tasks)
    runs = commands_in_pieces.known_runs(inventory)
    if resume:
        if given := [option for option, value in {"tasks": tasks, **named}.items() if value]:
            what = f"{given[0]}: a run that continues keeps what it began with"
            raise BadInput(what, fix=f"fix: leave it out; or without --resume {resume}")
        asked, name = {"resume": resume, "nodes": nodes} if nodes else {"resume": resume}, resume
    else:
        of_run, base = commands_in_pieces.trained(runs, run)
        name = name or commands_in_pieces.free_name(runs, f"{of_run}-tasks")
        asked |= {"recipe": "evaluate", "tasks": tasks, "of_run": of_run, **base}
    if code := commands_in_pieces.run_it(inventory, name, asked, settings, results):
        return code
    return show(results, name)


def require_files(tasks: str) -> None:
    """BadInput before any machine is asked for a task that is none."""
    for task in filter(task_files.is_file, task_files.names_in(tasks)):
        if not Path(task).expanduser().is_file():
            raise BadInput(f"tasks: there is no file {task}", fix="fix: give the path of a .yaml file")
        task_files.read(Path(task).expanduser())


def show(results: Path, name: str) -> int:
    facts = scores.read(results / name)
    if facts is None:
        raise BadInput(f"{results / name} has no scores that can be read", fix=f"fix: ./motley fetch --run {name}")
    say("\n".join(["", *scores.table(facts), "", f"scores    {results / name / scores.FOLDER / scores.FILE}"]))
    write_in_card(results, str(facts.get("of_run", "")))
    return 0


def write_in_card(results: Path, run: str) -> None:
    """The card of a run that was fetched says what it was asked last; the nodes' own copy stays as it is."""
    card, facts = results / run / CARD, scores.of_run(results, run)
    if run and facts and card.is_file():
        card.write_text(scores.in_card(card.read_text(encoding="utf-8"), facts), encoding="utf-8")
