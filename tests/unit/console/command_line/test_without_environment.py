"""What comes before there is an environment: the first screen, each command's help, the version, and misspellings."""

import os
import re
import shutil
from pathlib import Path

import pytest

from console.command_line import without_environment
from console.command_line.verbs import VERBS
from tests.support import ROOT, pace
from tests.support.stand_ins import program
from train.plan.model.catalogue import catalogue


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("console", "train", "Makefile"):
        (checkout / name).symlink_to(ROOT / name)
    program(checkout / "requirements/make_env.sh", "#!/bin/sh\necho it makes an environment\nexit 2\n")
    shutil.copy(ROOT / "motley", checkout)
    return checkout / "motley"


@pytest.mark.parametrize("form", without_environment.HEADS)
def test_the_first_screen_is_one(form: str) -> None:
    lines = without_environment.screen(form)
    assert len(lines) <= 40 and max(map(len, lines)) <= 80, max(lines, key=len)
    assert all(any(f" {verb} " in f"{line[8:]} " for line in lines) for verb in VERBS)
    assert any(f"./motley launch {VERBS['launch'].example}" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 0, "Start    demo"),
        (["help"], 0, "Start    demo"),
        (["--version"], 0, "motley "),
        (["-V"], 0, ", Python 3."),
        (["version"], 0, "motley "),
        (["launch", "--help"], 0, "--learning-rate X"),
        (["help", "launch"], 0, "--learning-rate X"),
        (["launch", "help"], 0, "--learning-rate X"),
        (["export", "--help"], 0, "gguf, merged, adapter, hub:USER/NAME; default"),
        (["stauts"], 2, "did you mean 'status'?"),
        (["train"], 2, "did you mean 'launch'?"),
        (["foo"], 2, "all commands: ./motley help"),
        (["update"], 2, "git pull"),
        (["launch", "--lr", "1e-4"], 2, "did you mean '--learning-rate'?"),
        (["launch", "--batch-size", "4"], 2, "did you mean '--rows-per-step'?"),
        (["launch", "--dry-run"], 2, "./motley plan"),
        (["launch", "--foo"], 2, "see: ./motley launch --help"),
        (["export", "onnx"], 2, "'onnx' is none of gguf, merged, adapter"),
        (["completion"], 2, "~/.bashrc"),
        (["plan", "--cards", "24"], 2, "model: a value is missing; such as --model qwen3-4b"),
        (["plan", "--cards", "24", "--model", "qwen2.5-7c"], 2, "did you mean 'qwen2.5-7b'?"),
        (["plan", "--cards", "24", "--model", "zzz"], 2, "docs/training.md#models"),
        (["plan", "--cards", "24", "--set", "model=tiny"], without_environment.GO_ON, ""),
        (["plan", "--cards", "24", "--recipe", "images"], without_environment.GO_ON, ""),
        (["plan", "--cards", "24", "--model", "qwen"], without_environment.GO_ON, ""),
        (["plan", "--cards", "24", "--model", "a/b"], without_environment.GO_ON, ""),
        (["status"], without_environment.GO_ON, ""),
    ],
)
def test_only_a_command_that_can_be_done_needs_an_environment(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = without_environment.main(words)
    except SystemExit as stopped:
        ended = stopped.code
    printed = "".join(capsys.readouterr())
    assert ended == code and said in printed, printed


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [([], 0, "Start    demo"), (["stauts"], 2, "did you mean 'status'?"), (["status"], 2, "it makes an environment")],
)
def test_the_front_door_makes_one_only_where_it_is_needed(bare: Path, words: list[str], code: int, said: str) -> None:
    """From a checkout that has none and cannot make one."""
    done = pace.run(bare, *words, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    printed = done.stdout + done.stderr
    assert done.returncode == code and said in printed, printed
    assert ("it makes" in printed) == ("it makes" in said)


def test_it_knows_the_models_of_the_catalogue() -> None:
    known = catalogue()["models"]
    others = [name for one in known.values() for name in one.get("aliases", [])]
    assert sorted(without_environment.models()) == sorted([*known, *others])


def test_it_needs_no_more_than_python() -> None:
    for words in (["help"], ["launch", "--help"], ["plan", "--cards", "24", "--model", "qwen2.5-7c"]):
        done = pace.run("python3", "-S", "-m", "console.command_line.without_environment", *words, cwd=ROOT)
        assert done.returncode in (0, 2) and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("words", ["help", "completion zsh", "launch --help", "--version"])
def test_nobody_has_to_read_it_to_its_end(words: str) -> None:
    done = pace.run("bash", "-c", f"set -o pipefail; {ROOT}/motley {words} | head -c 1")
    assert done.stderr == "" and done.returncode == 0


@pytest.mark.parametrize("verb", VERBS)
def test_each_help_has_an_example_and_a_page_that_is_there(verb: str) -> None:
    page, _, heading = VERBS[verb].page.partition("#")
    text = (ROOT / page).read_text()
    heads = [line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")]
    titles = [re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads]
    assert page and (not heading or heading in titles)
    assert VERBS[verb].options == () or all(option.help for option in VERBS[verb].options)
