"""How numbers look to a person at the controller."""

import io
import sys
from unittest.mock import Mock

import pytest
from rich.console import Console

from console import text_layout
from console.playbook import playbook_view
from console.text_layout import counted, wh_or_kwh
from train.safe_stdio import may_be_unread


def test_one_thing_and_several_and_little_energy() -> None:
    assert [counted(number, "probe") for number in (0, 1, 2)] == ["0 probes", "1 probe", "2 probes"]
    assert [wh_or_kwh(kwh) for kwh in (0.000899, 0.0421, 0.0996, 0.1, 12.345, 1234.5)] == [
        "0.9 Wh", "42 Wh", "100 Wh", "0.1 kWh", "12.3 kWh", "1230 kWh",
    ]  # fmt: skip


PAINTED = [
    ("⚡ a lost at step 4", "\x1b[33m⚡ a lost at step 4\x1b[0m"),
    ("✗ run r failed\n  fix: x", "\x1b[31m✗ run r failed\x1b[0m\n  fix: x"),
    ("a  hostname  ✓ 1 changed", "a  hostname  \x1b[32m✓\x1b[0m 1 changed"),
    ("a  hostname  ✗ failed   2 s", "a  hostname  \x1b[31m✗ failed\x1b[0m   2 s"),
    ("! a gets no answer", "\x1b[31m! a gets no answer\x1b[0m"),
    ("step 3 of 4!", "step 3 of 4!"),
]


@pytest.mark.parametrize(("line", "shown"), PAINTED)
def test_marks_are_in_colour_on_a_terminal_alone(
    line: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for terminal, environment, text in (
        (True, {"TERM": "xterm", "NO_COLOR": ""}, shown),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, line),
        (True, {"TERM": "dumb", "NO_COLOR": ""}, line),
        (False, {"TERM": "xterm", "NO_COLOR": ""}, line),
    ):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys.stdout, "isatty", lambda there=terminal: there)
        with may_be_unread(text_layout.shown_on):
            text_layout.say(line)
        assert capsys.readouterr().out == f"{text}\n"


@pytest.mark.parametrize(("line", "shown"), PAINTED)
def test_a_playbooks_lines_have_the_same_colours(line: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for terminal, no_colour, coloured in ((True, False, True), (True, True, False), (False, False, False)):
        out = io.StringIO()
        system = "standard" if terminal else None
        screen = Console(file=out, force_terminal=terminal, no_color=no_colour, color_system=system, highlight=False)
        playbook_view.show(screen, line)
        assert out.getvalue() == f"{shown if coloured else line}\n"


def test_lines_are_drawn_over_as_many(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    text_layout.redraw("one", "two two two two", over=1)
    text_layout.redraw("", over=2)
    assert capsys.readouterr().out == "\r\x1b[2Kone\ntwo two t" + "\r\x1b[2K\x1b[A\x1b[2K"


def test_the_end_of_the_input_is_no_yes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-D at a question."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", Mock(side_effect=EOFError))
    assert not text_layout.agreed("delete all of it?")
