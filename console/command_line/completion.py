"""What the tab key offers: a script for bash, zsh or fish, made of the verbs, which asks for names known here.

./motley completion bash|zsh|fish
./motley completion values models|datasets|nodes|runs      (what those scripts ask)
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from console.command_line.options import Option, Verb
from console.command_line.shared_options import PHASES
from console.command_line.verbs import VERBS

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/bin/python"
SHELLS = {
    "bash": f"~/.bashrc: source <({ROOT}/motley completion bash)",
    "zsh": f"~/.zshrc, after compinit: source <({ROOT}/motley completion zsh)",
    "fish": f"~/.config/fish/config.fish: {ROOT}/motley completion fish | source",
}
FROM_HERE = {
    "model": "models",
    "dataset": "datasets",
    "nodes": "nodes",
    "repin": "nodes",
    "run": "runs",
    "resume": "runs",
    "as-file": "runs",
}
"""Options whose values are names that this computer knows."""
OF_WORDS = {"NODE": "nodes", "RUN": "runs"}
OF_FILES = ("FILE …", "REWARDS [DATASET]")
FILES = (
    *("file", "dataset", "model", "inventory", "results", "hosts", "question", "recipe", "script", "rewards"),
    *("adapter", "chat_template"),
)
SOME_FILES = '$(compgen -f -- "$here")'
SAFE = re.compile(r"[\w.-]+")


def words_of(option: Option) -> tuple[str, ...]:
    """What may follow it."""
    return (*PHASES, "all") if option.name == "phase" else option.choices


def forms_of(verb: Verb) -> tuple[str, ...]:
    """What may stand behind export without an option."""
    return next(option.choices for option in verb.options if option.name == "to") if verb.rest == "FORM" else ()


def asked(kind: str) -> str:
    return f'$("${{COMP_WORDS[0]}}" completion values {kind} 2>/dev/null)'


def bash() -> Iterator[str]:
    yield "_motley() {"
    yield '  local here=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=""'
    yield '  case "$COMP_CWORD:${COMP_WORDS[1]}:$before" in'
    yield f'    1:*) words="{" ".join(VERBS)} help version completion" ;;'
    for name, verb in VERBS.items():
        for option in verb.options:
            if option.value:
                yield f'    *:{name}:{option.flags[0]}) words="{_bash_words(option)}" ;;'
        flags = " ".join([*(option.flags[0] for option in verb.options), "--help"])
        yield f'    *:{name}:*) words="{flags} {_bash_alone(verb)}" ;;'
    yield "  esac"
    yield '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$here")'
    yield "}"
    yield "complete -F _motley motley ./motley"


def _bash_alone(verb: Verb) -> str:
    if verb.rest in OF_WORDS:
        return asked(OF_WORDS[verb.rest])
    return SOME_FILES if verb.rest in OF_FILES else " ".join(forms_of(verb))


def _bash_words(option: Option) -> str:
    known = asked(FROM_HERE[option.name]) if option.name in FROM_HERE else ""
    return " ".join(filter(None, [*words_of(option), known, SOME_FILES if option.name in FILES else ""]))


def zsh() -> Iterator[str]:
    yield '_motley_known() { compadd -- ${(f)"$($motley completion values $1 2>/dev/null)"} }'
    yield "_motley() {"
    yield "  local motley=$words[1]"
    yield "  if (( CURRENT == 2 )); then"
    yield "    local -a verbs=(" + " ".join(f"'{name}:{_quoted(verb.help)}'" for name, verb in VERBS.items()) + ")"
    yield "    _describe verb verbs"
    yield "    return"
    yield "  fi"
    yield "  local verb=$words[2]"
    yield "  shift words"
    yield "  (( CURRENT-- ))"
    yield "  case $verb in"
    for name, verb in VERBS.items():
        words = [*map(_zsh_option, verb.options), *_zsh_alone(verb)]
        yield f"    {name}) _arguments " + " ".join(f"'{word}'" for word in words) + " ;;"
    yield "  esac"
    yield "}"
    yield "compdef _motley motley ./motley"


def _zsh_alone(verb: Verb) -> list[str]:
    if verb.rest in OF_WORDS:
        return [f"*:{verb.rest}:{{_motley_known {OF_WORDS[verb.rest]}}}"]
    if verb.rest in OF_FILES:
        return ["*:FILE:_files"]
    return [f"*:FORM:({' '.join(forms_of(verb))})"] if verb.rest == "FORM" else []


def _zsh_option(option: Option) -> str:
    about = f"{option.flags[0]}[{_quoted(option.help).replace('[', '').replace(']', '')}]"
    if not option.value:
        return about
    offers = [f"compadd -- {' '.join(words_of(option))}"] if words_of(option) else []
    offers += [f"_motley_known {FROM_HERE[option.name]}"] if option.name in FROM_HERE else []
    offers += ["_files"] if option.name in FILES else []
    return f"{about}:{_quoted(option.value)}:" + (f"{{{'; '.join(offers)}}}" if offers else " ")


def _quoted(text: str) -> str:
    return text.replace("'", "’").replace(":", "\\:")


def fish() -> Iterator[str]:
    yield "complete -c motley -f"
    for name, verb in VERBS.items():
        when = f"'__fish_seen_subcommand_from {name}'"
        yield f"complete -c motley -n __fish_use_subcommand -a {name} -d '{_plain(verb.help)}'"
        if verb.rest in OF_WORDS or verb.rest == "FORM":
            alone = " ".join(forms_of(verb)) or _fish_asked(OF_WORDS[verb.rest])
            yield f"complete -c motley -n {when} -a '{alone}'"
        elif verb.rest in OF_FILES:
            yield f"complete -c motley -n {when} -F"
        for option in verb.options:
            words = " ".join(words_of(option))
            words = _fish_asked(FROM_HERE[option.name]) if option.name in FROM_HERE else words
            kind = f"-r{'' if option.name in FILES else ' -f'} -a '{words}'" if option.value else ""
            flag = f"-l {option.name}" if len(option.name) > 1 else f"-s {option.name}"
            yield f"complete -c motley -n {when} {flag} {kind} -d '{_plain(option.help)}'"


def _fish_asked(kind: str) -> str:
    return f"(eval (commandline -opc)[1] completion values {kind} 2>/dev/null)"


def _plain(text: str) -> str:
    return text.replace("'", "’")


def values(kind: str) -> list[str]:
    """Names that are known here, without asking any machine; the environment reads the files."""
    if kind == "runs":
        found = [path.name for path in (ROOT / "results").glob("*/") if path.is_dir()]
    elif kind == "nodes":
        from console.inventory.check import check  # noqa: PLC0415  it reads YAML

        found = list(check(ROOT / "inventory/homelab").nodes)
    else:
        from train.plan.model.catalogue import catalogue  # noqa: PLC0415  it reads YAML

        found = list(catalogue().get(kind, {}))
    return sorted(filter(SAFE.fullmatch, found))


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def main(words: list[str]) -> int:
    if words[:1] == ["values"] and words[1:]:
        if words[1:] != ["runs"] and Path(sys.executable) != PYTHON and PYTHON.exists():
            os.execv(PYTHON, [str(PYTHON), "-m", "console.command_line.completion", *words])
        print("\n".join(values(words[1])))
        return 0
    if words[:1] and words[0] in SCRIPTS:
        print("\n".join(SCRIPTS[words[0]]()))
        return 0
    wanted = words[:1] in (["--help"], ["-h"])
    stream = sys.stdout if wanted else sys.stderr
    print("./motley completion SHELL prints what a shell reads; put it into", file=stream)
    print("\n".join(f"  {line}" for line in SHELLS.values()), file=stream)
    return 0 if wanted else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
