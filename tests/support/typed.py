"""What a person types, and what a command says that has to go well."""

from __future__ import annotations

from tests.support.bootstrap import Person


def variables(*assignments: str) -> list[str]:
    """Each NAME=VALUE as an option of a launch."""
    return [word for assignment in assignments for word in ("-e", assignment)]


def says(person: Person, *words: str) -> str:
    return person.types(*words).went_well().out
