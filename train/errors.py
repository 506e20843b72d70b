"""What a person gets for bad input: what is wrong, where, and the one command or edit that fixes it."""


class BadInput(Exception):
    """Says that nothing was started: the command exits with 2 and this text, at most three lines."""

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        super().__init__("\n".join(line for line in (what, where, fix) if line))


class Gated(BadInput):
    """The hub gives the files only to accounts that have accepted a licence."""


class CheckFailed(BadInput):
    """Everything was well formed, and a check still failed: the command exits with 1."""


class OtherData(BadInput):
    """What a run has done is of other data than it has now."""

    def __init__(self, run: str, where: str) -> None:
        what = f"run '{run}' cannot continue: its data has changed since it began"
        super().__init__(f"{what}; put the old data back, or begin a new run, without --resume", where)


class Disagreement(CheckFailed):
    """The ranks do not train the same thing."""

    odd: frozenset[str] = frozenset()
    """The nodes that differ, where most of the others agree: these can continue without them."""


class PeerFailed(CheckFailed):
    """Something befell the group: this process only noticed, and is well."""


def first_line(error: BaseException) -> str:
    """The first line of the error's message; its name where it has none, as Python's own MemoryError."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def last_line(printed: str) -> str:
    """Why a program failed, by what it printed."""
    return (printed.strip().splitlines() or ["it printed nothing"])[-1][:200]
