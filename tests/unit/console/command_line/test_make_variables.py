"""A name that a target does not know stops make before anything is done; the others are options of ./motley."""

import shlex
from pathlib import Path

import pytest

from console.command_line import make_variables
from console.command_line.verbs import VERBS, parser
from tests.support import ROOT, pace
from train.errors import BadInput


@pytest.mark.parametrize(
    ("target", "name", "words"),
    [
        ("undo", "LIMT", "did you mean 'LIMIT'?"),
        ("launch", "DATSET", "did you mean 'DATASET'?"),
        ("bootstrap", "phase", "did you mean 'PHASE'?"),
        ("stop", "LIMIT", "it knows: INVENTORY"),
        ("lab-up", "PROFIL", "did you mean 'PROFILE'?"),
        ("test", "VERBOSE", "it knows: no variable"),
    ],
)
def test_a_name_that_a_target_does_not_know_is_refused(target: str, name: str, words: str) -> None:
    why = make_variables.refused([target], [name])
    assert f"make {target} knows no {name}, so nothing was done" in why and words in why


def test_of_several_targets_one_must_know_it() -> None:
    assert not make_variables.refused(["lab-up", "bootstrap"], ["PROFILE", "INVENTORY", "PYTHON"])


def test_make_itself_refuses_before_it_does_anything() -> None:
    done = pace.run("make", "--no-print-directory", "undo", "PHASE=all", "LIMT=gpu-worker-2", cwd=ROOT)
    assert done.returncode == 2 and done.stdout == "" and "did you mean 'LIMIT'?" in done.stderr


@pytest.mark.parametrize(
    ("verb", "given", "words"),
    [
        ("undo", {"PHASE": "all", "LIMIT": "a,b"}, ["--phase=all", "--nodes=a,b"]),
        ("launch", {"MODEL": "my model"}, ["--model=my model"]),
        ("launch", {"SET": "lora_r=8 dataset='a b'"}, ["--set=lora_r=8", "--set=dataset=a b"]),
        ("bootstrap", {"CHECK": "0", "ROLLBACK": "yes"}, ["--rollback"]),
        ("ask", {"TOKENS": "400", "QUESTION": 'what\'s "it"?'}, ['--question=what\'s "it"?', "--tokens=400"]),
        ("logs", {"NODE": "a", "LINES": "24"}, ["--nodes=a"]),
        ("logs", {"LINES": "24", "MOTLEY_GIVEN": "LINES"}, ["--lines=24"]),
        ("demo", {"DEMO_FAST": "1"}, ["--fast"]),
        ("bootstrap", {"REBOOT": "no", "SUDO_PASSWORD": "0"}, []),
        ("bootstrap", {"REBOOT": "1", "SUDO_PASSWORD": "ask"}, ["--reboot=yes", "--sudo-password=ask"]),
        ("launch", {"VAULT": "yes", "FOLLOW": "false"}, ["--vault=ask", "--set=follow=false"]),
        ("launch", {"JSON": "1", "FOLLOW": "1"}, ["--json", "--follow"]),
    ],
)
def test_variables_become_options(verb: str, given: dict[str, str], words: list[str]) -> None:
    assert make_variables.options(verb, given) == words
    parser(verb).parse_args(words)


def test_a_quote_that_is_not_closed_is_named() -> None:
    with pytest.raises(BadInput, match="SET: No closing quotation"):
        make_variables.options("launch", {"SET": "a='b"})


def test_no_option_has_another_ones_variable() -> None:
    for verb in VERBS.values():
        names = [name for option in verb.options for name in option.variables]
        assert len({*names}) == len(names)


def test_the_front_door_keeps_words_whole_from_any_folder(tmp_path: Path) -> None:
    """A data set that is named from where one stands; exit codes as they are."""
    (tmp_path / "my notes.jsonl").write_text("nothing")
    words = ["--inventory", "inventory/loopback", "--model", "tiny", "--dataset", "my notes.jsonl"]
    done = pace.run(ROOT / "motley", "launch", *words, "--set", "lora_r=x", cwd=tmp_path)
    told = done.stdout + done.stderr
    assert done.returncode == 2 and "lora_r: 'x' is not" in told and "there is no file" not in told, told
    wrong = pace.run(ROOT / "motley", "undo", "--limt", "a", cwd=tmp_path)
    assert wrong.returncode == 2 and "did you mean '--limit'?" in wrong.stderr, shlex.join(words)
