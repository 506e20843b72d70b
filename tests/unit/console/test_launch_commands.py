"""./motley plan and launch: from the options that were typed to what is asked for."""

import argparse
import json
from types import SimpleNamespace
from typing import Any

import pytest

from console import __main__, launch_commands
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
        (["{follow: true}"], {"model": "tiny"}, "'{follow: true}' is not JSON"),
    ],
)
def test_what_cannot_be_asked_of_cards(settings: list[str], asked: dict[str, str], wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        for_cards("24", *settings, **asked)


@pytest.mark.parametrize(("typed", "names"), [("all", []), ("", []), ("a,b", ["a", "b"])])
def test_all_nodes_are_woken_and_asked_about(typed: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[str]] = []

    def launched(*_: Any, **__: Any) -> int:
        return 0

    inventory: Any = SimpleNamespace(nodes={})
    monkeypatch.setattr(launch_commands.wake, "wake", lambda _, names: found.append(names))
    monkeypatch.setattr(
        launch_commands.launch_playbook, "agreed_to", lambda _, names, *__, yes: found.append(names) or yes
    )
    monkeypatch.setattr(launch_commands.launch_playbook, "launch", launched)
    args = vars(parser("launch").parse_args(["--nodes", typed, "--then", "suspend", "--wake", "--yes"]))
    for name in ("inventory", "infra"):
        del args[name]
    assert launch_commands.launch(inventory, **args) == 0
    assert found == [names, names]
