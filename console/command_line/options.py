"""What a command takes, as data, and the parser and the help that are made of it. Standard library only."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from console.inventory.what_is_wrong import nearest


class Forms(tuple[str, ...]):
    """Words that may be chosen; where one ends behind a colon with a name in capitals, any name may stand there."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        starts = tuple(f"{known.partition(':')[0]}:" for known in self if ":" in known)
        return super().__contains__(word) or (isinstance(word, str) and word.startswith(starts or ("\0",)))


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    help: str
    value: str = ""
    """What stands for its value in the help; empty: a switch."""
    choices: tuple[str, ...] = ()
    default: Any = ""
    usual: str = ""
    """What happens without it, for the help, where its default does not say that."""
    also: tuple[str, ...] = ()
    """Other names of the same."""
    other: bool = False
    """Whether anything else than its choices may be given."""
    goes_as: str = ""
    """What the verb's function calls it, where that is another name."""
    gives: Any = True
    """What a switch gives."""
    variable: str = ""
    """The launch variable that it sets, where the verb's function gets it as one of `settings`."""
    least: int = 0
    most: int = 10**9
    """What it may be, where its default is a number."""

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(f"--{name}" if len(name) > 1 else f"-{name}" for name in (self.name, *self.also))

    @property
    def variables(self) -> tuple[str, ...]:
        """The option's names as variables after `make`."""
        return tuple(name.upper().replace("-", "_") for name in (self.name, *self.also) if len(name) > 1)

    @property
    def about(self) -> str:
        """Its line of help, with the values that it takes and what happens without it."""
        usual = self.usual or (str(self.default) if self.default else "")
        words = [", ".join(self.choices)] if self.value not in self.choices else []
        return self.help + (f" ({note})" if (note := "; ".join([*filter(None, words), *_default(usual)])) else "")


def _default(usual: str) -> list[str]:
    return [f"default: {usual}"] if usual else []


@dataclass(frozen=True, slots=True)
class Verb:
    group: str
    help: str
    options: tuple[Option, ...] = ()
    rest: str = ""
    """What may stand behind the options without a name; a script and all that follows it where it is FILE …."""
    example: str = ""
    """What somebody types behind it."""
    page: str = ""


STANDS_FOR = {
    "NODE": "limit",
    "RUN": "run",
    "QUESTION": "question",
    "FORM": "to",
    "MODEL": "model",
    "REWARDS": "rewards",
    "DATASET": "dataset",
    "PROMPTS": "prompts",
}
"""What a word without a name is for the verb's function."""
SEVERAL = ("NODE", "QUESTION")
INSTEAD = {
    "--dry-run": "./motley plan shows what a launch would do, and changes nothing",
    "--gpus": "all cards of a machine take part; --nodes chooses machines",
}


class Words(argparse.Action):
    """Words that stand alone, instead of the options that they are the same as; all of them are one option's where it
    takes several."""

    def __init__(self, *, same: Sequence[Option], **kind: Any) -> None:
        flags = " and ".join(option.flags[0] for option in same)
        super().__init__(nargs="*", default=argparse.SUPPRESS, help=f"the same as {flags}", **kind)
        self.same = same

    def __call__(self, parser: Any, namespace: argparse.Namespace, words: Any, _: str | None = None) -> None:
        if self.metavar in SEVERAL:
            setattr(namespace, self.dest, " ".join(filter(None, [getattr(namespace, self.dest, ""), *words])))
            return
        for option, word in zip(self.same, words, strict=False):
            if option.choices and word not in option.choices:
                parser.error(f"{word!r} is none of {', '.join(option.choices)}")
            setattr(namespace, option.goes_as or option.name, word)
        if more := words[len(self.same) :]:
            parser.error(f"unrecognized arguments: {' '.join(more)}")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A word that it does not know gets the one that was meant."""
        wrong = [word.partition("=")[0] for word in message.rpartition(": ")[2].split() if word.startswith("-")]
        known = [flag for action in self._actions for flag in action.option_strings]
        close = [nearest(word, known, otherwise=INSTEAD.get(word, "")) for word in wrong if "unrecognized" in message]
        more = " ".join(filter(None, close)) or f"see: {self.prog} --help"
        self.exit(2, f"{self.prog}: {message}\n{more}\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Options may stand behind the words without a name as well; behind a script all is the script's."""
        takes_words = any(action.nargs == "*" for action in self._actions)
        return (self.parse_intermixed_args if takes_words else super().parse_args)(args, namespace)


def number_of(option: Option) -> Callable[[str], float]:
    """What reads its value; argparse shows the name of the function where the value is no number."""

    def number(text: str) -> float:
        value: float = type(option.default)(text)
        if value < option.least:
            raise argparse.ArgumentTypeError(f"{text} is below {option.least}")
        if not value <= option.most:
            raise argparse.ArgumentTypeError(f"{text} is no number up to {option.most}")
        return value

    return number


def parser_of(verb: Verb, called: str) -> Parser:
    ends = [f"example: {called} {verb.example}".rstrip(), f"page:    {verb.page}" if verb.page else ""]
    made = Parser(
        prog=called,
        usage=f"{called} [OPTIONS] {f'[{verb.rest}]' if verb.rest else ''}".rstrip(),
        description=f"{verb.help[0].upper()}{verb.help[1:]}.",
        epilog="\n".join(filter(None, ends)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for option in verb.options:
        add(made, option)
    if verb.rest == "FILE …":
        made.add_argument("words", nargs=argparse.REMAINDER, metavar=verb.rest, help="your script, and its arguments")
    elif verb.rest:
        dests = [STANDS_FOR[word.strip("[]")] for word in verb.rest.split()]
        by_dest = {option.goes_as or option.name: option for option in verb.options}
        same = [by_dest[dest] for dest in dests]
        made.add_argument(dests[0], metavar=verb.rest, action=Words, same=same)
    return made


def add(made: Parser, option: Option, *, hidden: bool = False) -> None:
    kind: dict[str, Any] = {
        "help": argparse.SUPPRESS if hidden else option.about.replace("%", "%%"),
        "dest": option.goes_as or option.name.replace("-", "_"),
    }
    if option.variable and option.value:
        kind |= {"dest": "settings", "action": "append", "default": argparse.SUPPRESS, "metavar": option.value}
        kind |= {"type": lambda value: f"{option.variable}={value}"}
        kind |= {"nargs": "?", "const": "true"} if option.value == "TRUE|FALSE" else {}
    elif option.variable:
        kind |= {"dest": "settings", "action": "append_const", "const": f"{option.variable}={option.gives}"}
        kind |= {"default": argparse.SUPPRESS}
    elif not option.value:
        known = made.get_default(kind["dest"])
        kind |= {"action": "store_const", "const": option.gives, "default": False if known is None else known}
    else:
        kind |= {"metavar": option.value, "default": option.default}
        kind |= {"choices": None if option.other else option.choices or None}
        if isinstance(option.default, list):
            kind["action"] = "append"
        else:
            kind["type"] = number_of(option) if isinstance(option.default, (int, float)) else type(option.default)
    made.add_argument(*option.flags, **kind)
