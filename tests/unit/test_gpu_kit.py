"""The kit for graphics cards without one: what its judges say; what is skipped, kept, repeated and left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu import __main__ as kit
from tests.gpu import machine, post, process, results
from tests.gpu.line import UNSLOTH_S, Line, Place, Verdict
from tests.gpu.lines import LINES
from tests.gpu.machine import NEEDS, Machine
from tests.gpu.process import Processes
from tests.gpu.table import table
from tests.support import pace
from tests.support.pids import is_alive
from train.errors import BadInput


def test_every_need_is_known_and_every_line_is_short() -> None:
    for line in LINES.values():
        assert set(line.needs) <= NEEDS.keys(), line.name
        assert line.limit_s <= (UNSLOTH_S if "unsloth" in line.needs else 60) or kit.is_of_pair(line)


# -- what is run, and what is not ------------------------------------------------------------------------------------

CARD = {"name": "RTX 4070", "capability": [8, 9], "memory_bytes": 12 << 30, "cuda": "13.0"}
ALL = frozenset({*machine.PACKAGES, *machine.TRAINER})
HOME = Machine(
    device="cuda", cards=[CARD], driver="580.95.05", versions={"torch": "2.13.0"}, modules=ALL, compiler=True
)


def lacking(name: str, **other: object) -> list[str]:
    return replace(HOME, **other).lacks(LINES[name].needs)  # type: ignore[arg-type]


def test_a_line_is_skipped_by_what_is_not_there() -> None:
    assert not lacking("triton") and not lacking("exact-unsloth-4bit") and not lacking("memory-8b-unsloth")
    assert lacking("triton", compiler=False) == ["a C compiler"]
    assert lacking("exact-unsloth-4bit", modules=ALL - {"unsloth", "bitsandbytes"}) == ["unsloth", "bitsandbytes"]
    assert lacking("two-ddp", modules=frozenset({"torch"})) == ["transformers and peft"]
    assert lacking("memory-7b-hf", cards=[{**CARD, "memory_bytes": 6 << 30}]) == ["a card of 8 GB"]
    assert lacking("two-cards") == ["two cards"]
    assert not lacking("two-cards", cards=[CARD, CARD])
    assert lacking("adamw8bit", device="cpu") == ["a card"]


def test_a_line_that_does_not_exist_is_named_with_its_neighbour() -> None:
    with pytest.raises(BadInput, match="'sigtem', did you mean 'sigterm'"):
        kit.chosen("triton,sigtem", pair=False)
    assert [line.name for line in kit.chosen("sigterm,triton", pair=False)] == ["triton", "sigterm"]


def test_the_table_tells_what_it_was_found_on_and_marks_what_is_not_locked() -> None:
    machine_ = replace(HOME, versions={"python": "3.12.3", "torch": "2.9.1+cu130", "peft": machine.locked()["peft"]})
    found = [results.result(LINES["triton"], "passed", "2 s"), results.result(LINES["names"], "skipped", "needs a | b")]
    text = table(machine_, [{**found[0], "date": "2026-11-20"}, found[1]], "2026-11-22")
    assert text[0] == (
        f"RTX 4070, driver 580.95.05; 2026-11-22; python 3.12.3, torch 2.9.1+cu130 (not the locked one), "
        f"peft {machine_.versions['peft']}."
    )
    assert text[4] == "| triton | a Triton kernel compiles and runs | **passed** (2026-11-20): 2 s |"
    assert text[5].endswith("**skipped**: needs a ¦ b |") and text[-1] == "1 passed, 1 skipped."


def test_the_table_keeps_what_was_found_before(tmp_path: Path) -> None:
    results.keep(tmp_path, LINES["sigterm"], HOME, Verdict(True, "2 s"), values={}, seconds=9.0)
    now = [results.result(LINES["ask"], "passed", "right"), results.result(LINES["triton"], "passed", "2 s")]
    assert [one["line"] for one in kit.with_earlier(now, HOME, tmp_path)] == ["triton", "sigterm", "ask"]
    assert len(kit.with_earlier(now, replace(HOME, driver="570.1"), tmp_path)) == 2


PRIVATE = (
    "anna", "tower", "secret-plan", "/home/", "192.168.1.23", "192.168.1.31", "fd00::1:2", "02:00:00:aa:bb:cc",
    "enx020000aabbcc", "me@tower.lan", "gpu-master",
)  # fmt: skip


def test_the_file_to_post_has_what_helps_and_nothing_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(post.socket, "gethostname", lambda: "tower")
    monkeypatch.setattr(post.getpass, "getuser", lambda: "anna")
    monkeypatch.setenv("HOME", "/home/anna")
    why = (
        "it ended with 1: no file ~/.motley-vault, '/home/anna/secret-plan/a.py' nor /srv/secret-plan on tower for "
        "anna: me@tower.lan at 192.168.1.23:22, 192.168.1.31. fd00::1:2 (02:00:00:aa:bb:cc, enx020000aabbcc) gpu-master"
    )
    values = {"gpus": {"gpu-master": ["NVIDIA GeForce RTX 4070"]}, "per_s": 2149.9, "tried": [8, 4], "words": ["anna"],
              "logs": {"gpu-master": {"events": [{"step": 1}]}}, "long": list(range(99))}  # fmt: skip
    home = replace(HOME, pair=("gpu-master", "gpu-worker-1"))
    told = results.keep(tmp_path, LINES["pair-kill"], home, Verdict(False, why), values=values, seconds=12.3)
    text = post.post(home, [told, results.result(LINES["triton"], "skipped", "needs a C compiler")], told["date"])
    assert [word for word in PRIVATE if word in text] == []
    assert (post.file_name(HOME), post.file_name(home)) == ("to-post.md", "to-post-pair.md")
    for kept in (
        "RTX 4070, 12.0 GiB, compute capability 8.9",
        "driver 580.95.05",
        "torch 2.13.0",
        "Linux ",
        " threads",
    ):
        assert kept in text
    assert "- card of the first machine: NVIDIA GeForce RTX 4070\n" in text
    assert "**failed** in 12 s: it ended with 1: no file (path)" in text and "needs a C compiler" in text
    assert '{"line": "pair-kill", "seconds": 12.3, "figures": {"per_s": 2149.9, "tried": [8, 4]}}' in text


def test_a_rate_or_a_version_is_no_path_and_no_address() -> None:
    said = "1 498 tokens/s and/or 2.13.0 at 12:30:45, 8 % (1/2), test_x.py::test_y, 1.2e-5"
    assert post.without_private(said, {"tower": "(host)"}) == said


# -- a line's process ------------------------------------------------------------------------------------------------


def line(judge: object = None) -> Line:
    def measure(place: Place) -> dict[str, object]:
        raise AssertionError("not here")

    judge = judge or (lambda values: Verdict(True, f"found {values['n']}"))
    return Line(name="made", about="made up", needs=(), measure=measure, judge=judge)  # type: ignore[arg-type]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch):
    """A process of somebody else beside it is left alone, whatever a line does."""
    monkeypatch.setattr(process, "GRACE_S", 0.5)
    with subprocess.Popen(["sleep", "600"]) as other:
        made = Processes(warm=False, device="cpu")
        yield made
        made.close()
        left_alone = other.poll() is None
        other.kill()
    assert left_alone


SLEEPER = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"


def program(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "program.py"
    file.write_text(text)
    return [str(file)]


def test_what_a_line_leaves_behind_is_ended_and_told(processes: Processes, tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert processes.run(program(tmp_path, "pass"), said, 30) == ""
    words = program(tmp_path, f"import subprocess, sys\nprint({SLEEPER}.pid)\n")
    assert processes.run(words, said, 30) == "it left 1 processes behind"
    assert not is_alive(int(said.read_text()))


def test_a_line_that_hangs_is_ended_with_all_that_it_started(processes: Processes, tmp_path: Path) -> None:
    words = program(tmp_path, f"import subprocess, sys, time\nprint({SLEEPER}.pid, flush=True)\ntime.sleep(600)\n")
    said = tmp_path / "said"
    began = pace.now()
    assert processes.run(words, said, 2).startswith("not done within 2 s")
    assert pace.now() - began < 15
    assert not is_alive(int(said.read_text().split()[0]))


def test_an_error_is_told_by_its_last_words(processes: Processes, tmp_path: Path) -> None:
    words = program(tmp_path, "raise RuntimeError('the card has fallen off the bus')")
    said = processes.run(words, tmp_path / "said", 30)
    assert said == "it ended with 1: RuntimeError: the card has fallen off the bus"


# -- results ---------------------------------------------------------------------------------------------------------


def test_a_result_is_known_until_code_card_or_versions_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results.keep(tmp_path, line(), HOME, Verdict(True, "found 1"), values={"n": 1}, seconds=2.0)
    found = results.known(tmp_path, line(), HOME)
    assert found and (found["state"], found["machine"], found["values"]) == ("passed", "RTX 4070", {"n": 1})
    assert not results.known(tmp_path, line(), replace(HOME, driver="580.126.09"))
    assert not results.known(tmp_path, line(), replace(HOME, versions={"torch": "2.14.0"}))
    assert not results.known(tmp_path, line(), replace(HOME, cards=[{**CARD, "name": "RTX 3070 Ti"}]))
    monkeypatch.setattr(results, "code_hash", lambda: "other")
    assert not results.known(tmp_path, line(), HOME)


def test_a_line_with_a_result_is_not_run_but_on_request(tmp_path: Path) -> None:
    args = Namespace(results=tmp_path, again=False)
    assert kit.without_measuring(line(), HOME, args) is None
    results.keep(tmp_path, line(), HOME, Verdict(False, "found 0"), values={"n": 0}, seconds=2.0)
    found = kit.without_measuring(line(), HOME, args)
    assert found and found["state"] == "failed"
    assert kit.without_measuring(line(), HOME, Namespace(results=tmp_path, again=True)) is None


def test_recorded_figures_must_say_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RECORDED", tmp_path)
    (tmp_path / "made.json").write_text(json.dumps({"n": 1}))
    with pytest.raises(ValueError, match="must name the card, or say that they are simulated"):
        results.simulate(line())
    (tmp_path / "made.json").write_text(json.dumps({"n": 1, "simulated": True}))
    assert results.simulate(line())["state"] == "simulated"
    assert results.simulate(line(lambda _: Verdict(False, "no")))["state"] == "failed"


def test_a_python_without_torch_is_told_another(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tests.gpu", "--device", "cpu", "--results", str(tmp_path)],
        cwd=machine.ROOT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "has no torch" in done.stderr, done.stderr
