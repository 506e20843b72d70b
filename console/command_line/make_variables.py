"""What was set after `make TARGET`, as options of `./motley TARGET`. A name that a target does not know is refused.

python3 -m console.command_line.make_variables TARGET [TARGET…]: refuses, before anything is made. Standard library
only.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from console.command_line.options import Option
from console.command_line.verbs import VERBS
from console.inventory.what_is_wrong import nearest
from train.errors import BadInput

MAKEFILE = Path(__file__).parents[2] / "Makefile"
EVERYWHERE = ("PYTHON",)
OF_THE_TERMINAL = ("LINES", "COLUMNS")
"""A shell may have set them: they count after `make` only."""
ON, OFF = ("1", "yes", "true", "on"), ("", "0", "no", "false", "off")


def known(target: str) -> list[str]:
    """A verb's are its options; any other target names its own in its line of help."""
    if target in VERBS:
        return [name for option in VERBS[target].options for name in option.variables]
    line = re.search(rf"(?m)^{re.escape(target)}:.*?## (.*)", MAKEFILE.read_text())
    return re.findall(r"\b([A-Z][A-Z_]+)=", line[1]) if line else []


def refused(targets: list[str], given: list[str]) -> str:
    """Which name none of the targets knows, and the nearest that one does; empty: all is well."""
    names = [name for target in targets for name in known(target)]
    for name in given:
        if name not in (*names, *EVERYWHERE):
            what = f"make {' '.join(targets)} knows no {name}, so nothing was done"
            close = nearest(name.upper(), names, otherwise="")
            return "\n".join([what, *([close] if close else []), f"it knows: {' '.join(names) or 'no variable'}"])
    return ""


def options(verb: str, environment: Mapping[str, str]) -> list[str]:
    """BadInput where a quote is not closed."""
    given = environment.get("MOTLEY_GIVEN", "").split()
    words = []
    for option in VERBS[verb].options:
        for name in option.variables:
            counts = name in given or name not in OF_THE_TERMINAL
            if counts and (value := environment.get(name, "")):
                words += _words(option, value)
                break
    return words


def _words(option: Option, value: str) -> list[str]:
    flag = option.flags[0]
    if option.name == "follow" and value.lower() in OFF:
        return ["--set=follow=false"]
    if not option.value:
        return [] if value.lower() in OFF else [flag]
    if len(option.choices) == 1 and value.lower() in (*ON, *OFF):
        return [f"{flag}={option.choices[0]}"] if value.lower() in ON else []
    if option.name == "set":
        try:
            return [f"{flag}={word}" for word in shlex.split(value)]
        except ValueError as wrong:
            raise BadInput(f"SET: {wrong}") from None
    return [f"{flag}={value}"]


if __name__ == "__main__":
    if why := refused(sys.argv[1:], os.environ.get("MOTLEY_GIVEN", "").split()):
        print(why, file=sys.stderr)
        sys.exit(2)
