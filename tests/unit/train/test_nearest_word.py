"""What somebody may have meant: other trainers' names, misspellings, and nothing rather than something wrong."""

import pytest

from console.command_line.verbs import VERBS
from train.nearest_word import OTHER_NAMES, meant
from train.plan.settings.request import settings

OPTIONS = [flag for verb in VERBS.values() for option in verb.options for flag in option.flags]


@pytest.mark.parametrize(
    ("typed", "verb"),
    [
        ("train", "launch"),
        ("remove", "undo"),
        ("lanch", "launch"),
        ("giveback", "give-back"),
        ("aks", "ask"),
        ("asl", "ask"),
        ("foo", ""),
        ("models", ""),
        ("update", ""),
    ],
)
def test_a_verb(typed, verb):
    assert meant(typed, VERBS) == verb


@pytest.mark.parametrize(
    ("typed", "name"),
    [("lr", "learning_rate"), ("batch_size", "rows_per_step"), ("modle", "model"), ("foo", ""), ("lora-R", "lora_r")],
)
def test_a_launch_variable(typed, name):
    assert meant(typed, settings()) == name


def test_it_is_written_as_it_stands_there():
    assert meant("--LIMT", ["LIMIT", "PHASE"]) == "LIMIT" and meant("--limt", ["--limit"]) == "--limit"


def test_one_letter_too_many_or_missing():
    assert meant("aa", ["a", "b"]) == "a" and meant("od", ["old", "new"]) == "old"


def test_every_word_that_is_meant_is_there():
    known = {name.lstrip("-").replace("-", "_") for name in [*VERBS, *OPTIONS, *settings()]}
    assert OTHER_NAMES.keys() <= known
