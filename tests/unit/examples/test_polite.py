"""The demo's pairs: each a polite and a curt answer to one question, and enough of them are held out."""

from __future__ import annotations

import json

from lab.demo_courses import KIND, POLITE, PREFERRED
from train.data.pair_records import Preference, preference_of
from train.data.read_records import Found

RECORDS = [json.loads(line) for line in POLITE.read_text().splitlines()]
CURT = ("Look it up.", "Who cares?", "Stop asking.", "Obviously.", "Leave me alone.")


def test_each_is_a_pair_of_a_polite_and_a_curt_answer() -> None:
    for number, record in enumerate(RECORDS):
        found = preference_of(Found(record, "", f"line {number + 1}", 0), paired=True)
        assert isinstance(found, Preference), found
        assert record["chosen"].startswith(KIND) and record["rejected"].endswith(CURT)


def test_both_say_the_same_fact() -> None:
    for record in RECORDS:
        fact = record["rejected"].split(".")[0].lower()
        assert fact.split()[-1] in record["chosen"].lower(), record


def test_some_are_held_out_for_an_evaluation() -> None:
    fraction = PREFERRED.settings["eval_fraction"]
    sides = [
        pair.split(fraction)
        for pair in (preference_of(Found(record, "", "", 0), paired=True) for record in RECORDS)
        if isinstance(pair, Preference)
    ]
    assert sides.count("eval") >= PREFERRED.settings["eval_rows"] and sides.count("train") > 80
