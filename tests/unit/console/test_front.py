"""The help and the completion come before there is an environment."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from console.front import SCRIPTS
from console.verbs import VERBS

REPOSITORY = Path(__file__).parents[3]


def test_the_help_needs_no_more_than_python() -> None:
    command = ["python3", "-S", "-m", "console.front", "help"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert all(f"./motley {verb} " in done.stdout for verb in VERBS)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_completion_script_is_one_of_that_shell(shell: str) -> None:
    script = "\n".join(SCRIPTS[shell]())
    assert all(verb in script for verb in VERBS)
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_each_option_is_one_word_to_zsh() -> None:
    for line in SCRIPTS["zsh"]():
        name, found, words = line.strip().removesuffix(" ;;").partition(") _arguments ")
        if found:
            assert len(shlex.split(words)) == len(VERBS[name].options), line


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["./motley", "boot"], ["bootstrap"]),
        (["./motley", "undo", "--ph"], ["--phase"]),
        (["./motley", "undo", "--phase", "stat"], ["static_ip"]),
        (["./motley", "export", "--to", "g"], ["gguf"]),
    ],
)
def test_bash_completes(typed: list[str], offered: list[str]) -> None:
    words = " ".join(f"'{word}'" for word in typed)
    ask = f"COMP_WORDS=({words}) COMP_CWORD={len(typed) - 1}; _motley; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    script = "\n".join([*SCRIPTS["bash"](), ask])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered
