"""A hint names the command in the form in which Motley was called."""

import re
import sys

import pytest

from console import ansible_errors, hints, hub


@pytest.mark.parametrize(
    ("hint", "verb", "shown"),
    [
        ("resume it: make launch RESUME=my-run", "", "resume it: ./motley launch --resume my-run"),
        ("fix: make bootstrap PHASE=run LIMIT=a,b, then", "", "fix: ./motley bootstrap --phase run --nodes a,b, then"),
        ("(make bootstrap REPIN=NAME).", "", "(./motley bootstrap --repin NAME)."),
        ("make check-versions FIX=yes", "", "./motley check-versions --fix"),
        ('make launch SET="max_steps=40 lora_r=8"', "", "./motley launch --set max_steps=40 --set lora_r=8"),
        ('make inventory HOSTS="user@a user@b"', "", './motley inventory --hosts "user@a user@b"'),
        (
            "no checkpoint was deleted (without a terminal: YES=1)",
            "clean",
            "no checkpoint was deleted (without a terminal: --yes)",
        ),
        (
            "sudo make lab-down; make room; once: HF_TOKEN=…",
            "launch",
            "sudo make lab-down; make room; once: HF_TOKEN=…",
        ),
        ("make status", "", "./motley status"),
    ],
)
def test_hints_take_the_form_of_the_call(monkeypatch: pytest.MonkeyPatch, hint: str, verb: str, shown: str) -> None:
    assert hints.in_form(hint, verb) == hint
    monkeypatch.setenv(hints.FORM, "./motley")
    assert hints.in_form(hint, verb) == shown


def test_data_for_a_program_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(hints.FORM, "./motley")
    with hints.translated("follow", data=True):
        print('{"message": "make clean NODES=3"}')
        print("again: make stop", file=sys.stderr)
    assert capsys.readouterr() == ('{"message": "make clean NODES=3"}\n', "again: ./motley stop\n")


def test_every_fix_of_a_failed_task_is_a_command_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    fixes = [fix for _, _, fix in ansible_errors.KNOWN]
    assert not [fix for fix in fixes if re.search(r"[A-Z_]+=\S+ make ", fix)]
    monkeypatch.setenv(hints.FORM, "./motley")
    sudo = next(fix for fix in fixes if "SUDO_PASSWORD" in fix)
    assert hints.in_form(sudo) == "if sudo wants another one: ./motley bootstrap --sudo-password ask"


def test_what_is_printed_is_translated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(hints.FORM, "./motley")
    with hints.translated("stop"):
        print("again: make stop")
    assert capsys.readouterr().out == "again: ./motley stop\n"


def test_a_missing_token_is_used_in_the_form_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hints.FORM, "./motley")
    hint = hints.in_form(hub.in_words("x/y is gated", {"name": "x", "hub": "x/y"}, has_token=False))
    assert "then ./motley launch --vault ask (or once: HF_TOKEN=" in hint
