"""What is answered before there is an environment: help, version, completion, and what was misspelled.

Standard library only. It ends with GO_ON where the command needs the environment.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

GO_ON = 3
# ruff: noqa: E402, UP036 - an older Python is to be told by make_env.sh, not by an import that fails
if sys.version_info < (3, 11):
    sys.exit(GO_ON)

from console.command_line import completion, make_variables
from console.command_line.verbs import GROUPS, VERBS, parser
from console.inventory.what_is_wrong import nearest
from train.errors import BadInput
from train.safe_stdio import may_be_unread

ROOT = Path(__file__).parents[2]
HELP, VERSION = ("", "help", "-h", "--help"), ("version", "--version", "-V")
HEADS = {
    "./motley": "./motley COMMAND --help: its options, with an example.",
    "make": "make COMMAND NAME=value is ./motley COMMAND --name value; --help explains it.",
}
EXAMPLES = ("launch",)
INSTEAD = {
    "update": "fix: git pull, then ./motley bootstrap   (docs/machines.md#a-newer-motley)",
    "models": "they are listed in docs/training.md#models",
}


def screen(form: str = "./motley") -> list[str]:
    """Every command on one screen: 40 lines of 80 characters at most."""
    lines = ["Motley fine-tunes a language model on all your PCs at once.", HEADS[form]]
    for group, title in GROUPS.items():
        verbs = [(name, verb) for name, verb in VERBS.items() if verb.group == group]
        if group == "more":
            lines.append(f"{title:<9}{' · '.join(name for name, _ in verbs)}")
            continue
        lines += [f"{title if not n else '':<9}{name:<16}{verb.help}" for n, (name, verb) in enumerate(verbs)]
    shown = [f"./motley {name} {VERBS[name].example}" for name in EXAMPLES]
    lines += [f"{'Example':<9}{line}" for line in shown]
    more = "for developers: make help-dev" if form == "make" else "tab key: ./motley completion"
    return [*lines, f"{'Docs':<9}README.md, docs/getting-started.md · {more}", f"{'Version':<9}{version()}"]


def version() -> str:
    """The commit's day and name, as there are no releases yet."""
    git = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}", "log", "-1"]
    try:
        done = subprocess.run(
            [*git, "--format=%cd (%h)", "--date=format:%Y.%m.%d"], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() or "unknown: no git checkout"
    except OSError:
        return "unknown: there is no git"


def unknown(verb: str) -> BadInput:
    otherwise = INSTEAD.get(verb, "all commands: ./motley help")
    return BadInput(f"./motley has no command '{verb}'", fix=nearest(verb, VERBS, otherwise=otherwise))


def main(words: list[str]) -> int:
    verb, rest = (words[0] if words else ""), words[1:]
    if verb in HELP and rest[:1] and rest[0] in VERBS:
        verb, rest = rest[0], ["--help"]
    if verb in HELP:
        print("\n".join(screen("make" if rest[:1] == ["make"] else "./motley")))
        return 0
    if verb in VERSION:
        print(f"motley {version()}, Python {'.'.join(map(str, sys.version_info[:3]))}")
        return 0
    if verb == "completion":
        return completion.main(rest)
    try:
        if verb not in VERBS:
            raise unknown(verb)
        if rest == ["help"] and VERBS[verb].rest not in ("QUESTION", "FILE …"):
            rest = ["--help"]
        args = parser(verb).parse_args(make_variables.options(verb, os.environ) if called_by_make() else rest)
        if verb == "plan" and args.cards:
            refuse_model(args)
    except BadInput as wrong:
        print(wrong, file=sys.stderr)
        return 2
    return GO_ON


def refuse_model(args: argparse.Namespace) -> None:
    """A question that needs no machines, of a model that is missing or misspelled, needs no environment either."""
    elsewhere = args.run_file or any(word.startswith(("model=", "recipe=", "@")) for word in args.settings)
    if elsewhere or args.recipe not in ("", "sft"):
        return
    if not args.model:
        raise BadInput("model: a value is missing; such as --model qwen3-4b", fix=INSTEAD["models"])
    known = models()
    folder = Path(os.environ.get("MOTLEY_CALLED_IN", ""), Path(args.model).expanduser())
    if args.model not in known and "/" not in args.model and not folder.exists():
        what = f"there is no model '{args.model}': not in the catalogue, no hub id (owner/name), no folder here"
        raise BadInput(what, fix=nearest(args.model, known, otherwise=INSTEAD["models"]))


def models() -> list[str]:
    """The catalogue's models, with their other names."""
    text = (ROOT / "train/plan/model/catalogue.yml").read_text().partition("\ndatasets:")[0]
    others = [name for words in re.findall(r"^    aliases: \[(.*)\]$", text, re.M) for name in words.split(", ")]
    return [*re.findall(r"^  (\S+):$", text, re.M), *others]


def called_by_make() -> bool:
    return os.environ.get("MOTLEY_CALLED_AS") == "make"


if __name__ == "__main__":
    with may_be_unread():
        code = main(sys.argv[1:])
    sys.exit(code)
