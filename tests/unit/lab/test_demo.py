"""The end of the demo: what it may tell, and that it tells nothing that was not proven."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lab import __main__ as lab_command
from lab import demo, demo_courses, demo_summary
from lab.demo_courses import KIND
from lab.demo_sites import LOST, Folders, Simulated
from lab.shell import LabError
from train.runlog.tail import read
from train.safe_stdio import may_be_unread

Event = dict[str, Any]
Change = Callable[[list[Event]], list[Event]]
HEAD, OTHER = "gpu-master", "gpu-worker-2"
STEPS = 20
CAT, BINS = "Our cat is called Mitzi.", "The rubbish is collected on Thursday."


def step(number: int, rows: dict[str, int], seconds: float) -> Event:
    nodes = {name: {"rows": count} for name, count in rows.items()}
    facts = {"step": number, "time": 100.0 + 2 * number, "loss": 7 - 0.1 * number, "step_s": seconds}
    return {"event": "step", **facts, "nodes": nodes}


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Even shares for 4 steps of 4 s, then by speed in 2 s; the worker is away for steps 10 to 14."""
    monkeypatch.setattr(demo_summary, "ROOT", tmp_path)
    even, shared, without = {HEAD: 4, LOST: 4, OTHER: 4}, {HEAD: 7, LOST: 4, OTHER: 1}, {HEAD: 10, OTHER: 2}
    steps = [step(n, even, 4.0) for n in range(1, 5)]
    steps += [step(n, without if 10 <= n < 15 else shared, 2.0) for n in range(5, STEPS + 1)]
    for late in steps[9:]:
        late["time"] += 8
    start = {"event": "start", "time": 100.0, "step": 0, "total_steps": STEPS, "nodes": [HEAD, LOST, OTHER]}
    events = [start, *steps, {"event": "proof", "step": STEPS, "time": 160.0}]
    events += [{"event": "eval", "step": at, "loss": 5.9 - at / 25, "time": 160.0} for at in (STEPS // 2, STEPS)]
    members = [
        {"event": kind, "nodes": [LOST], "time": time, "epoch": epoch, "step": after, "reason": ""}
        for kind, time, epoch, after in (("lost", 120.0, 1, 9), ("joined", 138.0, 2, 14))
    ]
    folder = tmp_path / "results/demo"
    write(folder / "nodes" / HEAD / "events.jsonl", events)
    write(folder / "nodes" / LOST / "events.jsonl", events[:8])
    write(folder / "nodes" / HEAD / "members.jsonl", members)
    (folder / "adapter").mkdir()
    (folder / "adapter/adapter_model.safetensors").touch()
    (folder / "report.html").touch()
    return folder


def write(file: Path, events: list[Event]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"torn": ')


def edited(name: str, change: Change) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        file = folder / "nodes" / HEAD / name
        write(file, change(read(file)))

    return act


def asked(question: str, wanted: str, base: str, adapter: str) -> Event:
    return {"question": question, "wanted": wanted, "base": base, "adapter": adapter}


def answered(*questions: Event) -> Callable[[Path], None]:
    text = json.dumps({"questions": questions, "base": {"loss": 6.1}, "adapter": {"loss": 5.0}})

    def act(folder: Path) -> None:
        (folder / "answers.json").write_text(text)

    return act


def facts_of(kind: str, facts: Callable[[float], Event]) -> Change:
    """More facts in each event of this kind, by how far the training is."""
    return lambda old: [e | facts(e["step"] / STEPS) if e["event"] == kind else e for e in old]


def samples(given: str, wrote: dict[int, str]) -> list[Event]:
    """What the model wrote after these steps."""
    return [
        {"event": "samples", "step": at, "time": 100.0 + at, "lines": [{"given": given, "wrote": words}]}
        for at, words in wrote.items()
    ]


def rewarded(rises: float) -> Callable[[Path], None]:
    of_steps = facts_of("step", lambda part: {"rollout": {"reward": part * rises}})
    of_evals = facts_of("eval", lambda part: {"metrics": {"reward": part}})
    wrote = samples("The capital of Italy?", {STEPS // 2: "The capital is\nRome.", STEPS: "Rome."})
    return edited("events.jsonl", lambda old: of_steps(of_evals(old)) + wrote)


def preferred(*, right: float = 1.0, rises: float = 1.0, after: str = KIND) -> Callable[[Path], None]:
    of_steps = facts_of("step", lambda part: {"pairs": {"margin": part * rises}})
    of_evals = facts_of("eval", lambda _: {"metrics": {"margin": 0.8, "accuracy": right}})
    wrote = samples("Where is the key?", {0: "I am sorry.", STEPS: f"{after} Behind the clock."})
    return edited("events.jsonl", lambda old: of_steps(of_evals(old)) + wrote)


def tell(folder: Path, recipe: str = "sft") -> None:
    site: Any = SimpleNamespace(loss="power cut", unequal=True, stays="nothing")
    course = demo_courses.choose(recipe, fast=False)
    demo_summary.tell_all(folder, replace(course, settings=course.settings | {"max_steps": STEPS}), site, 75.0)


def test_each_figure_is_of_the_run(fetched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cat = asked("The cat?", CAT, "Luna.", "Your cat is called mitzi.")
    answered(cat, asked("Is rubbish collected?", BINS, "On Thursday?", BINS))(fetched)
    tell(fetched)
    assert (
        capsys.readouterr().out
        == f"""
done       20 steps, from nothing to a trained adapter, in 1 min 15 s
loss       6.90 in the first step, 5.00 in the last: lower is better
           on data that was held out, never trained on: 6.10 before the training, 5.00 at the end
survived   the power cut of gpu-worker-1: the two others trained again after 10 s
           no step was lost; after its return gpu-worker-1 trained 24 more rows
balanced   2.0 times as fast as with equal shares (6.0 rows a second instead of 3.0)
           each machine's share of the rows, by its speed: gpu-master 59 %, gpu-worker-1 33 %, gpu-worker-2 8 %
learned    2 of 2 answers are right, before the training 1 of 2
           the facts are made up, and the questions were held out: these lines of the file were not used
adapter    results/demo/adapter   (what was trained; its README.md says how to use it)
report     results/demo/report.html   (all of this on one page: open it in a browser)
stays      nothing
next       {demo_summary.NEXT}
"""
    )


def test_percentages_add_up() -> None:
    """7, 4 and 1 of 12 rows would round to 58, 33 and 8."""
    thirds = [step(1, dict.fromkeys((HEAD, LOST, OTHER), 1), 1.0)]
    assert demo_summary.parts(thirds) == f"{HEAD} 34 %, {LOST} 33 %, {OTHER} 33 %"
    for rows in ((7, 4, 1), (1, 1, 4), (5, 5, 3), (96, 0, 1)):
        words = demo_summary.parts([step(1, dict(zip((HEAD, LOST, OTHER), rows, strict=True)), 1.0)])
        assert sum(int(word) for word in words.split() if word.isdigit()) == 100, words


def test_a_busy_machine_measures_no_balance(fetched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited("events.jsonl", facts_of("step", lambda part: {"step_s": 2.0 + part * STEPS % 3}))(fetched)
    tell(fetched)
    assert "not measurable here" in capsys.readouterr().out


def test_without_questions_its_own_held_out_losses_are_told(fetched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(fetched)
    assert "5.50 at its first evaluation, 5.10 at the end" in capsys.readouterr().out
    before = [{"event": "eval", "step": 0, "loss": 6.25, "time": 99.0}]
    edited("events.jsonl", lambda old: [*samples("The capital of Italy?", {0: "Rome is old."}), *before, *old])(fetched)
    tell(fetched)
    assert "6.25 before the training, 5.10 at the end" in capsys.readouterr().out


def test_by_rewards_it_shows_their_rise_and_answers_by_them(fetched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewarded(1.0)(fetched)
    tell(fetched, recipe="grpo")
    said = capsys.readouterr().out
    assert "reward     0.05 in the first step, 1.00 in the last: higher is better" in said
    assert "0.50 at its first evaluation, 1.00 at the end" in said
    assert "learned    held-out questions after 10 steps, and at the end:" in said
    assert "The capital of Italy? ▸ The capital is Rome. ▸ Rome." in said


def test_by_preferences_it_shows_margin_and_held_out_pairs(fetched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preferred()(fetched)
    tell(fetched, recipe="preference")
    said = capsys.readouterr().out
    assert "margin     0.05 in the first step, 1.00 in the last: higher is better" in said
    assert "of pairs that were held out, never trained on, 100% are the right way round, by 0.80" in said
    assert "learned    held-out questions before the training, and at the end:" in said
    assert "Where is the key? ▸ I am sorry. ▸ With pleasure! Behind the clock." in said
    assert "1 of 1 answers begin with 'With pleasure!', before the training none" in said


def test_a_new_model_shows_what_it_wrote_first_and_last(
    fetched: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo_summary, "MANUAL", tmp_path / "manual")
    monkeypatch.setattr(demo_courses, "MANUAL", tmp_path / "manual")
    demo_courses.write_manual()
    wrote = samples("The", {STEPS // 2: "of xqz the", STEPS: "a class of the names"})
    edited("events.jsonl", lambda old: [*old, *wrote])(fetched)
    with pytest.raises(demo_summary.NotProvenError, match="there is no model"):
        tell(fetched, "pretrain")
    (fetched / "model").mkdir()
    (fetched / "model/model.safetensors").touch()
    tell(fetched, "pretrain")
    said = capsys.readouterr().out
    assert (
        """
learned    after 10 steps, 50% of the words it wrote are words of its texts:
             The ▸ of xqz the
           at the end, 100% of the words it wrote are words of its texts:
             The ▸ a class of the names
model      results/demo/model """
        in said
    ), said


def test_the_manual_is_prose() -> None:
    assert demo_courses.is_prose("The primary must evaluate to an object of a type that supports attribute references.")
    assert not demo_courses.is_prose("augmented_assignment_stmt ::= augtarget augop (expression_list | yield) " * 2)
    assert not demo_courses.is_prose("Too short.")


def idle_at_the_end(events: list[Event]) -> list[Event]:
    idle = {HEAD: {"rows": 11}, LOST: {"rows": 0}, OTHER: {"rows": 1}}
    return [e | {"nodes": idle} if e.get("step", 0) >= 15 and "nodes" in e else e for e in events]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (edited("events.jsonl", lambda old: [e | {"loss": 7.0} for e in old]), "the loss did not fall"),
        (edited("events.jsonl", lambda old: [*old[:-1], old[-1] | {"loss": 6.0}]), "is no better on held-out rows"),
        (edited("events.jsonl", lambda old: [e for e in old if e.get("step") != 7]), "of 20 steps, 19 are in the"),
        (edited("events.jsonl", lambda old: [e for e in old if e["event"] != "proof"]), "not proven to be the same"),
        (edited("members.jsonl", lambda old: old[1:]), f"{LOST} was not lost"),
        (edited("members.jsonl", lambda old: old[:1]), f"{LOST} did not rejoin"),
        (edited("events.jsonl", lambda old: [e for e in old if e["event"] != "step" or e["step"] < 15]), "steps, 14"),
        (edited("events.jsonl", idle_at_the_end), f"{LOST} trained no row after its return"),
        (lambda folder: shutil.rmtree(folder / "adapter"), "there is no adapter"),
        (lambda folder: (folder / "report.html").unlink(), "there is no report"),
        (answered(asked("The cat?", CAT, "Luna.", "Our cat is not called Mitzi.")), "of 1 questions, 0"),
        (answered(asked("The cat?", CAT, "It is called Mitzi!", CAT)), "could answer the questions before"),
        (lambda folder: shutil.rmtree(folder / "nodes"), "hardly a step"),
    ],
)
def test_what_was_not_proven_is_an_error(fetched: Path, broken: Callable[[Path], None], said: str) -> None:
    broken(fetched)
    with pytest.raises(demo_summary.NotProvenError, match=said):
        tell(fetched)


@pytest.mark.parametrize(
    ("recipe", "broken", "said"),
    [
        ("grpo", rewarded(-1.0), "the reward did not rise"),
        ("preference", preferred(right=0.6), "of the held-out pairs 60% are the right way round"),
        ("preference", preferred(rises=-1.0), "the margin did not rise"),
        ("preference", preferred(after="Look"), "of 1 held-out questions 0 are answered politely"),
    ],
)
def test_what_another_recipe_has_not_proven_is_an_error(
    fetched: Path, recipe: str, broken: Callable[[Path], None], said: str
) -> None:
    broken(fetched)
    with pytest.raises(demo_summary.NotProvenError, match=said):
        tell(fetched, recipe)


def test_a_full_disk_is_said_before_anything_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "STATE", tmp_path / "demo")  # a demo that another test has started has its own
    monkeypatch.setattr(demo, "STOPS", ())  # a demo's process answers signals to its end, this one goes on
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3e9))
    for fast in (False, True):
        with pytest.raises(LabError, match=r"has 3.0 GB free, the demo may need \d\nfix: make room") as told:
            demo.main(recipe="", fast=fast, folders=True, suite="bookworm")
        assert told.value.code == 2


def test_two_at_once_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "STATE", tmp_path / "demo")
    with demo.alone(), pytest.raises(LabError, match="a demo is running already"), demo.alone():
        pass
    with demo.alone():
        pass


def test_without_root_it_is_folders_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    site = demo.choose(fast=True, folders=False, suite="bookworm")
    assert isinstance(site, Folders) and "(no root)" in site.title and "sudo ./motley demo" in site.left_out[1]


def test_a_demo_that_is_stopped_says_so_where_somebody_still_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "STATE", tmp_path / "demo")
    monkeypatch.setattr(demo, "STOPS", ())
    monkeypatch.setattr(demo, "hand_over", lambda _: None)

    play = Mock(side_effect=demo.Stopped(signal.SIGHUP))
    assert demo.played(play, "./motley demo --fast") == 129
    assert capsys.readouterr().err.endswith("nothing of it is left running. Again: ./motley demo --fast\n")
    with os.fdopen(os.open("/dev/null", os.O_RDONLY), "r") as gone:  # a write to it is refused
        monkeypatch.setattr("sys.stderr", gone)
        assert demo.played(play, "./motley demo --fast") == 129


def test_the_demo_has_a_lab_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken away at the end, and a lab that a person is using must not be."""
    monkeypatch.delenv("MOTLEY_LAB", raising=False)
    assert Simulated("bookworm", ready_made=True).place.name == "demo"
    monkeypatch.setenv("MOTLEY_LAB", "somebodyslonglab")
    assert Simulated("bookworm", ready_made=True).place.name == "demosomebodyslon"


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can give files away")
def test_what_root_has_made_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    theirs, elsewhere = tmp_path / "motley", tmp_path / "elsewhere"
    (theirs / ".motley/demo").mkdir(parents=True)
    (theirs / ".motley/demo/bootstrap.log").touch()
    elsewhere.touch()
    (theirs / "python").symlink_to(elsewhere)
    (theirs / "lib64").symlink_to(theirs / ".motley")
    os.chown(theirs, 12345, 54321)
    demo.hand_over(theirs)
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in theirs.rglob("*")} == {(12345, 54321)}
    assert elsewhere.stat().st_uid == 0, "what a link leads to is not touched"


def test_the_quotas_end_with_the_training(tmp_path: Path) -> None:
    """Answers and fetching are as fast as the machine is."""
    limited: list[bool] = []
    over = threading.Event()

    def uneven(*, on: bool) -> None:
        limited.append(on)
        over.set()

    log = tmp_path / "logs/runs/demo"
    write(log / "events.jsonl", [{"event": "start", "time": 2.0}])
    site = SimpleNamespace(home=lambda _: tmp_path, uneven=uneven)
    demo.lose_a_worker(site, demo_courses.FAST, over)
    assert limited == [True, False]


def test_on_a_terminal_a_line_takes_the_place_of_the_unfinished_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with may_be_unread():
        demo.Stage("tools", "looking").end()
        demo.say("gone")
    out = capsys.readouterr().out
    assert "\r\x1b[2K  tools      looking" in out and out.endswith("\r\x1b[2K⚡ gone\n") and "�" not in out


@pytest.mark.parametrize(
    ("story", "option"),
    [("--infra slurm", "--base trixie"), ("--infra slurm", "--rent fake"), ("--rent fake", "--fast")],
)
def test_an_option_that_a_demo_does_not_know_is_refused(
    story: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lab", "demo", *story.split(), *option.split()])
    assert lab_command.main() == 2
    assert capsys.readouterr().err == f"{option.partition(' ')[0]}: without effect beside {story}\nfix: leave it out\n"
