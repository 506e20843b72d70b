"""How we become root by default: each sudo's prompt and refusals are known, as it prints them in the C locale.

What sudo 1.9.16 and sudo-rs 0.2.5 and 0.2.15 print is copied from Debian 13 and its next release.
"""

from typing import Any

import pytest
from ansible import constants
from ansible.plugins.loader import become_loader, shell_loader

PASSWORD = "over there"


@pytest.fixture
def become() -> Any:
    plugin = become_loader.get(constants.DEFAULT_BECOME_METHOD)
    plugin.set_options(direct={"become_pass": PASSWORD})
    return plugin


def command(become: Any) -> str:
    return str(become.build_become_command("true", shell_loader.get("sh")))


@pytest.mark.parametrize(
    "shape",
    [
        "{prompt}",
        "[sudo: {prompt}] Password: ",
        "Lecture.\n\n[sudo: {prompt}] Password: ",
    ],
)
def test_either_prompt_is_answered(become: Any, shape: str) -> None:
    asked = command(become)
    assert become.prompt in asked and " -n " not in asked and PASSWORD not in asked
    said = shape.format(prompt=become.prompt).encode()
    assert become.check_password_prompt(said)
    assert become.strip_become_prompt(said + b"\nleft") == b"left"


@pytest.mark.parametrize("shape", ["Password: ", "[sudo: authenticate] Password: ", "[sudo] password for user: "])
def test_another_programs_prompt_gets_no_password(become: Any, shape: str) -> None:
    command(become)
    assert not become.check_password_prompt(shape.encode())


@pytest.mark.parametrize(
    "refusal",
    [
        "Sorry, try again.",
        "sudo: 1 incorrect password attempt",
        "sudo: Authentication failed, try again.",
        "sudo-rs: Maximum 1 incorrect authentication attempts",
        "sudo: maximum 3 incorrect authentication attempts",
    ],
)
def test_a_wrong_password_is_noticed(become: Any, refusal: str) -> None:
    command(become)
    assert become.check_incorrect_password(refusal.encode() + b"\n")


@pytest.mark.parametrize(
    "refusal",
    ["sudo: a password is required", "sudo-rs: interactive authentication is required"],
)
def test_a_missing_password_is_noticed(refusal: str) -> None:
    become: Any = become_loader.get(constants.DEFAULT_BECOME_METHOD)
    become.set_options()
    assert " -n " in command(become) and not become.expect_prompt()
    assert become.check_missing_password(refusal.encode() + b"\n")
    assert not become.check_incorrect_password(refusal.encode() + b"\n")


def test_the_machine_is_asked_in_english(become: Any) -> None:
    assert command(become).startswith("env LC_ALL=C.UTF-8 LANGUAGE=C sudo ")


@pytest.mark.parametrize("refusal", ["Sorry, try again.", "sudo: a password is required"])
def test_a_german_controller_understands_as_well(become: Any, refusal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible.plugins.become.dgettext", lambda *_: "Das hat nicht funktioniert.")
    assert become.check_incorrect_password(refusal.encode()) or become.check_missing_password(refusal.encode())
