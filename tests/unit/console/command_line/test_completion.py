"""The tab key: a script that each shell takes, and names that are known here."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from console.command_line import completion
from console.command_line.completion import OF_FILES, OF_WORDS, SCRIPTS
from console.command_line.verbs import VERBS
from tests.support import ROOT, pace


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
            more = VERBS[name].rest in (*OF_WORDS, *OF_FILES, "FORM")
            assert len(shlex.split(words)) == len(VERBS[name].options) + more, line


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["./motley", "boot"], ["bootstrap"]),
        (["./motley", "undo", "--ph"], ["--phase"]),
        (["./motley", "undo", "--phase", "stat"], ["static_ip"]),
        (["./motley", "export", "--to", "g"], ["gguf"]),
        (["./motley", "export", "g"], ["gguf"]),
        (["./motley", "launch", "--model", "qwen2.5-0"], ["qwen2.5-0.5b"]),
        (["./motley", "launch", "--steps", ""], []),
        (["./motley", "check-rewards", "LICEN"], ["LICENSE"]),
    ],
)
def test_bash_completes(typed: list[str], offered: list[str]) -> None:
    words = " ".join(f"'{word}'" for word in typed)
    ask = f"COMP_WORDS=({words}) COMP_CWORD={len(typed) - 1}; _motley; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    script = "\n".join([*SCRIPTS["bash"](), ask])
    done = pace.run("bash", "-c", script, cwd=ROOT)
    assert done.stdout.split() == offered


def test_names_that_are_known_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None that a shell would take for a command."""
    monkeypatch.setattr(completion, "ROOT", tmp_path)
    for name in ("notes", "$(id)", "a b"):
        (tmp_path / "results" / name).mkdir(parents=True)
    hosts = tmp_path / "inventory/homelab/hosts.yml"
    hosts.parent.mkdir(parents=True)
    hosts.write_text("cluster: {hosts: {desk: {motley_address: 192.168.1.2}, lap: {motley_address: 192.168.1.3}}}")
    assert completion.values("runs") == ["notes"] and completion.values("nodes") == ["desk", "lap"]
    assert "qwen2.5-0.5b" in completion.values("models")


@pytest.mark.parametrize("words", [[], ["tcsh"], ["values"]])
def test_what_is_no_shell_gets_the_shells_that_there_are(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main(words) == 2 and "~/.bashrc" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not here")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("./motley boot", ["bootstrap"]),
        ("./motley undo --phase stat", ["static_ip"]),
        ("./motley export g", ["gguf"]),
        ("./motley launch --dataset ./examples/house", ["./examples/household.jsonl"]),
        ("./motley launch --steps ", []),
        ("./motley status ", []),
    ],
)
def test_fish_completes(typed: str, offered: list[str]) -> None:
    script = "\n".join([*SCRIPTS["fish"](), f"complete -C '{typed}'"])
    done = pace.run("fish", "--no-config", "-c", script, cwd=ROOT)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == offered


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not here")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("./motley boot", "./motley bootstrap"),
        ("./motley undo --phase stat", "./motley undo --phase static_ip"),
        ("./motley export g", "./motley export gguf"),
        ("./motley launch --recipe im", "./motley launch --recipe images"),
        ("./motley launch --steps RE", "./motley launch --steps RE"),
    ],
)
def test_zsh_completes(typed: str, completed: str, tmp_path: Path) -> None:
    """As on a terminal: zsh completes nothing without one."""
    script = tmp_path / "completion"
    script.write_text("\n".join(SCRIPTS["zsh"]()))
    ready = f"autoload -Uz compinit; compinit -u -D; source {script}; bindkey '^I' complete-word"
    shows = "shown() { print -r -- \"<$BUFFER>\" }; zle -N shown; bindkey '^X' shown; print rea''dy"
    asks = f"""
        zmodload zsh/zpty; zpty z zsh -f -i; zpty -w z {shlex.quote(f"{ready}; {shows}")}
        zpty -r z said '*ready*'
        zpty -w -n z {shlex.quote(typed)}$'\\t\\x18'; zpty -r z said '*<*>*'; print -r -- "$said"
    """
    done = pace.run("zsh", "-f", "-c", asks, cwd=ROOT, limit_s=60)
    assert f"<{completed}" in done.stdout
