"""./motley plan and launch: from the options that were typed to what is asked for."""

import argparse
import json
from typing import Any

import pytest

from console import __main__
from console.command_line.verbs import parser
from console.launch_commands import plan_for_cards
from train.errors import BadInput


def for_cards(cards: str, *settings: str, **asked: Any) -> int:
    return plan_for_cards(cards, as_json=False, settings=list(settings), **asked)


def test_the_plan_for_cards_reads_no_inventory(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--model qwen2.5-7b --cards 24,6 --inventory nowhere --json".split()
    args: argparse.Namespace = parser("plan").parse_args(words)
    assert __main__.act("plan", args) == 0
    first, second = json.loads(capsys.readouterr().out)["nodes"]
    assert (first["weights"], second["weights"]) == ("gpu", "stream")


def test_a_model_that_does_not_fit_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert for_cards("24,2", model="llama2-70b") == 1
    assert "✗" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "asked", "wrong"),
    [
        ([], {}, "model: a value is missing"),
        ([], {"model": "tiny", "nodes": "a"}, "nodes: it does not go with --cards"),
        (["follow"], {"model": "tiny"}, "'follow' is not NAME=VALUE"),
        ([""], {"model": "tiny"}, "'' is not NAME=VALUE\nfix: --set NAME=VALUE"),
        (["{follow: true}"], {"model": "tiny"}, "'{follow: true}' is not JSON"),
    ],
)
def test_what_cannot_be_asked_of_cards(settings: list[str], asked: dict[str, str], wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        for_cards("24", *settings, **asked)
