"""What ./motley says before it has an environment: its help, and the completion for a shell. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from console.verbs import PHASES, VERBS, Option, help_lines

SHELLS = {
    "bash": "~/.bashrc: source <(./motley completion bash)",
    "zsh": "~/.zshrc, after compinit: source <(./motley completion zsh)",
    "fish": "~/.config/fish/config.fish: ./motley completion fish | source",
}
HEAD = """\
./motley VERB --options      each verb's options: ./motley VERB --help
"""
FOOT = """\
--inventory FOLDER: the machines, where they are not those of inventory/homelab
completion: ./motley completion bash|zsh|fish      pages: README.md, docs/getting-started.md"""


def words_of(option: Option) -> tuple[str, ...]:
    """What may follow it."""
    return (*PHASES, "all") if option.name == "phase" else option.choices


def bash() -> Iterator[str]:
    yield "_motley() {"
    yield '  local here=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=""'
    yield '  case "$COMP_CWORD:${COMP_WORDS[1]}:$before" in'
    yield f'    1:*) words="{" ".join(VERBS)} help completion" ;;'
    for name, verb in VERBS.items():
        for option in verb.options:
            if option.value:
                words = " ".join(words_of(option)) or '$(compgen -f -- "$here")'
                yield f'    *:{name}:{option.flags[0]}) words="{words}" ;;'
        yield f'    *:{name}:*) words="{" ".join(option.flags[0] for option in verb.options)} --help" ;;'
    yield "  esac"
    yield '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$here")'
    yield "}"
    yield "complete -F _motley motley ./motley"


def zsh() -> Iterator[str]:
    yield "_motley() {"
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
        yield f"    {name}) _arguments " + " ".join(f"'{_zsh_option(option)}'" for option in verb.options) + " ;;"
    yield "  esac"
    yield "}"
    yield "compdef _motley motley ./motley"


def _zsh_option(option: Option) -> str:
    about = f"{option.flags[0]}[{_quoted(option.help).replace('[', '').replace(']', '')}]"
    if not option.value:
        return about
    words = words_of(option)
    return f"{about}:{_quoted(option.value)}:" + (f"({' '.join(words)})" if words else "_files")


def _quoted(text: str) -> str:
    return text.replace("'", "").replace(":", "\\:")


def fish() -> Iterator[str]:
    first = "__fish_use_subcommand"
    for name, verb in VERBS.items():
        yield f"complete -c motley -n {first} -f -a {name} -d '{_plain(verb.help)}'"
        for option in verb.options:
            kind = f"-r -f -a '{' '.join(words_of(option))}'" if words_of(option) else "-r" if option.value else "-f"
            when = f"'__fish_seen_subcommand_from {name}'"
            yield f"complete -c motley -n {when} -l {option.name} {kind} -d '{_plain(option.help)}'"


def _plain(text: str) -> str:
    return text.replace("'", "")


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}


def main(words: list[str]) -> int:
    if words[:1] == ["completion"]:
        if words[1:2] and words[1] in SCRIPTS:
            print("\n".join(SCRIPTS[words[1]]()))
            return 0
        print("./motley completion SHELL prints what a shell reads; put it into", file=sys.stderr)
        print("\n".join(f"  {line}" for line in SHELLS.values()), file=sys.stderr)
        return 2
    form = "make" if words[1:2] == ["make"] else "./motley"
    print("\n".join([*([] if form == "make" else [HEAD]), *help_lines(form)]).rstrip())
    print(
        f"\n{FOOT}"
        if form != "make"
        else "\nthe rest, for work on Motley itself: make help-dev      as options: ./motley help"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["help"]))
