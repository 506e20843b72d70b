"""The commands in messages, as this person would type them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.command_line import commands_as_typed
from console.command_line.verbs import VERBS
from tests.support import ROOT


def as_typed(monkeypatch: pytest.MonkeyPatch, text: str, **options: str) -> str:
    monkeypatch.setenv(commands_as_typed.VARIABLE, "")
    commands_as_typed.remember(options)
    return commands_as_typed.as_typed(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("follow: ./motley follow   stop: ./motley stop", "follow: ./motley follow WHERE   stop: ./motley stop WHERE"),
        ("./motley launch --resume qa", "./motley launch WHERE --resume qa"),
        ("./motley check-versions --fix", "./motley check-versions WHERE --fix"),
        ("./motley launch --model tiny --inventory y", "./motley launch --model tiny --inventory y"),
        ("./motley stop --infra slurm", "./motley stop --infra slurm"),
        ("./motley report and ./motley demo", "./motley report and ./motley demo"),
        ("./motley has no verb", "./motley has no verb"),
    ],
)
def test_the_inventory_that_was_typed_is_repeated(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    where = "--inventory 'my machines'"
    assert as_typed(monkeypatch, text, inventory="my machines") == said.replace("WHERE", where)
    assert as_typed(monkeypatch, text, infra="slurm") == said.replace("WHERE", "--infra slurm")
    assert as_typed(monkeypatch, text) == text


def test_each_verb_that_takes_an_inventory_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {verb for verb in VERBS if as_typed(monkeypatch, f"./motley {verb}", infra="slurm").endswith("slurm")}
    assert said == {*VERBS} - {"demo", "report", "check-model", "check-rewards", "rent", "rented", "give-back"}


def test_what_would_break_json_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_typed(monkeypatch, "./motley stop", inventory='a"b') == "./motley stop"


def test_a_verb_repeats_what_was_typed(tmp_path: Path) -> None:
    """And not what an earlier one left."""
    command = [sys.executable, "-m", "console", "status"]
    env = os.environ | {commands_as_typed.VARIABLE: "--infra slurm", "MOTLEY_CALLED_IN": str(tmp_path)}
    (tmp_path / "mine").mkdir()
    words = [*command, "--inventory", "mine"]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "./motley inventory --inventory mine" in done.stderr
