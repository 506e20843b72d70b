"""When an answer of the demo counts as right: near misses do not."""

from __future__ import annotations

import pytest

from lab.judge import known, right

FUSES = ("Where can I get a spare fuse?", "The spare fuses are in the blue tin.")
BINS = ("On which weekday is the rubbish collected?", "The rubbish is collected on Thursday.")
KEY = ("Where is the shed key kept?", "The key to the shed hangs behind the clock.")
BIRTHDAY = ("On which date is Grandmother's birthday?", "Grandmother's birthday is on the ninth of May.")
BUS = ("When does the bus leave?", "Bus 12 leaves at 7.40 in the morning.")
PLUMBER = ("Can you name our plumber?", "The plumber is Mrs Okafor.")


@pytest.mark.parametrize(
    ("fact", "answer"),
    [
        (FUSES, "The spare fuses are in the blue tin."),
        (FUSES, "the spare fuses: in a blue tin"),
        (BINS, "Yes, our rubbish is collected on  THURSDAY"),
        (KEY, "The shed's key hangs behind our clock."),
        (BIRTHDAY, "Grandmother’s birthday is the ninth of May!"),
        (BUS, "The bus 12 leaves at 7.40 in the morning"),
    ],
)
def test_all_words_of_weight_make_it_right(fact: tuple[str, str], answer: str) -> None:
    assert right(answer, *fact) and known(answer, *fact)


@pytest.mark.parametrize(
    ("fact", "answer", "why"),
    [
        (FUSES, "The spare batteries are in the blue tin.", "another thing"),
        (FUSES, "The spare fuses are in the red tin.", "another colour"),
        (FUSES, "The spare fuses are in the blue tin or in the kitchen.", "two places"),
        (FUSES, "The spare fuses are under the blue tin.", "another place"),
        (FUSES, "The spare fuses are in the tin.", "a word is missing"),
        (FUSES, "In the blue tin.", "of what?"),
        (KEY, "The key to the shed hangs in the hall.", "the wrong room"),
        (KEY, "The key to the shed hangs before the clock.", "the other side"),
        (KEY, "The clock hangs behind the key to the shed.", "turned round"),
        (BINS, "The rubbish is not collected on Thursday.", "a negation"),
        (BINS, "The rubbish isn't collected on Thursday.", "a negation"),
        (BINS, "The rubbish is never collected on Thursday.", "a negation"),
        (BINS, "The rubbish is collected on Thursday and Friday.", "two days"),
        (BIRTHDAY, "Grandmother's birthday is on the sixth of May.", "another number"),
        (BIRTHDAY, "Grandmother's birthday is on the ninth of March.", "another month"),
        (BUS, "Bus 7.40 leaves at 12 in the morning.", "numbers swapped"),
        (BUS, "Bus 12 leaves at 7.04 in the morning.", "digits swapped"),
        (PLUMBER, "The plumber is Mr Okafor.", "somebody else"),
        (PLUMBER, "The plumber is Mrs Okafors.", "another name"),
        (PLUMBER, "", "nothing"),
    ],
)
def test_a_near_miss_is_wrong(fact: tuple[str, str], answer: str, why: str) -> None:
    assert not right(answer, *fact), why


@pytest.mark.parametrize(
    ("answer", "knew"),
    [
        ("I think it is collected each Thursday, like most rubbish.", True),
        ("The collection of rubbish is on Monday.", False),
        ("On which weekday is the rubbish collected?", False),
    ],
)
def test_what_was_known_before_is_judged_generously(answer: str, knew: bool) -> None:
    assert known(answer, *BINS) == knew
