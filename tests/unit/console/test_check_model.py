"""./motley check-model and check-rewards: where they compute, with which words, and what they say where they cannot."""

import sys
from pathlib import Path
from typing import Any

import pytest

from console import check_model, check_rewards
from console.command_line.verbs import parser
from tests.support import ROOT, pace
from tests.support.stand_ins import program
from train.errors import BadInput

TRIED: dict[str, Any] = {"rewards": "exact", "dataset": "", "rows": 0, "as_json": False}


def test_without_torch_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check_model, "ENVIRONMENTS", (tmp_path / "none",))
    with pytest.raises(BadInput, match=r"no torch.*\n.*\./motley plan --model NAME .*make_env.sh"):
        check_model.check_model(model="tiny", as_json=False)
    with pytest.raises(BadInput, match="name a model"):
        check_model.check_model(model="", as_json=False)


def test_the_environment_that_trains_computes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "env/bin/python", '#!/bin/sh\necho "$@"\nexit 1\n')
    monkeypatch.setattr(check_model, "ENVIRONMENTS", (tmp_path / "none", tmp_path / "env"))
    assert check_model.check_model(model="me/new", as_json=True) == 1
    assert capfd.readouterr().out == "-m train check-model --model me/new --json\n"


def test_it_runs_where_training_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "env/bin/python", '#!/bin/sh\necho "$@"\nexit 1\n')
    monkeypatch.setattr(check_model, "ENVIRONMENTS", (tmp_path / "none", tmp_path / "env"))
    assert check_rewards.check_rewards(rewards="./r.py", dataset="a b.jsonl", rows=3, as_json=True) == 1
    assert capfd.readouterr().out == "-m train check-rewards --rewards=./r.py --dataset=a b.jsonl --rows=3 --json\n"


def test_without_such_an_environment_it_runs_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_model, "ENVIRONMENTS", (tmp_path / "none",))
    assert check_rewards.check_rewards(**TRIED) == 0
    assert "its own" in capfd.readouterr().out
    with pytest.raises(BadInput, match=r"name the rewards\n.*check-rewards ./rewards.py"):
        check_rewards.check_rewards(**TRIED | {"rewards": ""})


def test_rewards_and_data_set_stand_behind_it() -> None:
    args = parser("check-rewards").parse_args(["./r.py,exact", "--rows", "2", "sums.jsonl"])
    assert (args.rewards, args.dataset, args.rows) == ("./r.py,exact", "sums.jsonl", 2)
    args = parser("check-rewards").parse_args(["exact"])
    assert (args.rewards, args.dataset, args.rows) == ("exact", "", 0)
    with pytest.raises(SystemExit):
        parser("check-rewards").parse_args(["exact", "a", "b"])


def test_a_file_among_them_lies_where_it_was_called(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def f(completions): return [float(len(c)) for c in completions]\n")
    (tmp_path / "p.jsonl").write_text('{"prompt": "a", "answer": "bcd"}\n')
    command = [sys.executable, "-m", "console", "check-rewards", "exact,2@./r.py:f", "p.jsonl"]
    env = {"MOTLEY_CALLED_IN": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = pace.run(*command, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split() == ["1", "its", "own", "1", "3", "7", "bcd"]
