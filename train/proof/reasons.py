"""Why a check of the proof fails, in a sentence that a person can act upon; the error itself stands behind it."""

from __future__ import annotations

import re

from train.errors import BadInput

FAILS = {
    "build": "no small copy of it can be made from its config.json",
    "adapters": "no adapter can be put around all of its layers",
    "rows": "its rows cannot be computed as a run computes them",
    "attention": "its quick attention cannot be compared with its plain one",
    "asked": "its loss cannot be compared with its answers",
    "saved": "its adapter cannot be saved and loaded again",
    "packed": "samples of it cannot share a row",
    "streamed": "its layers cannot be read one by one",
    "count": "its weights cannot be counted",
    "cut": "its layers cannot be shared out between machines",
    "bf16": "it does not compute in bf16",
    "fp16": "it does not compute in fp16",
}
"""Name of the check → why a model is refused."""
CAUSES = {
    r"has no attribute 'layers'": "its class keeps them under another name than most",
    r"layer by layer": "its files name the weights of a layer otherwise than its class",
    r"backward through the graph a second time": "they compute with what other layers have computed",
    r"'Identity' object has no attribute": "later ones need the table of tokens, which is with the first alone",
    r"incompatible with Mamba": "PEFT has no adapter for such a recurrence",
    r"No module named|requires the following|is not installed": "it needs a package that Motley has not",
    r"custom code|trust_remote_code": "it brings code of its own, which is never run",
    r"does not recognize|Unrecognized|model type": "this version of transformers does not know the family",
    r"\bCUDA\b|[Tt]riton": "it computes on graphics cards alone",
}
"""What an error says → its cause."""
MOST = 160
"""Characters of an error that are shown."""


class NotExactError(Exception):
    """A check has found a difference, and says which."""


def of(check: str, error: Exception) -> str:
    return str(error) if isinstance(error, NotExactError) else with_cause(FAILS[check], error)


def with_cause(what: str, error: Exception) -> str:
    told = first_message(error)
    cause = next((f", as {means}" for pattern, means in CAUSES.items() if re.search(pattern, told)), "")
    if isinstance(error, BadInput):
        return f"{what}{cause} ({told})" if cause else told
    raw = f"{type(error).__name__}: {told}".removesuffix(": ")
    return f"{what}{cause} ({raw if len(raw) <= MOST else raw[:MOST] + '…'})"


def first_message(error: Exception) -> str:
    """The first line, with the next one where it only announces that."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
