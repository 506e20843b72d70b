"""What answers are worth: each reward is asked in the process of the rewards, and their weighted sum is the reward.

    with Judge("./rewards.py,0.5@length:50", seconds=10, on_error="stop", home=Path.cwd()) as judge:
        scored = judge.score(prompts, completions, {"answer": answers})

As in TRL: prompts are texts and so are completions, or prompts are lists of messages and each completion is a list of
one message of the assistant; a function gets the columns of the data by name, one value for each answer, and may give
None where it does not apply. Make it in a thread that lives as long as it is used: its process ends with that.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from train.errors import BadInput, CheckFailed
from train.plan.settings.rewards import BUILT_IN, FILE, Reward, parse
from train.rewards.process import Lost, Process

if TYPE_CHECKING:
    from train.rewards.child import ChildAnswer

MEMORY_BYTES = 8 * 10**9
START_S = 60.0
"""How long reading the files may take, which may import much; a call has its own limit."""
BYTES_PER_VALUE, BYTES_OF_A_MESSAGE = 32, 4000
NOT_A_COLUMN = ("prompt", "completion")
"""What TRL does not hand on as a column: it has these as prompts and completions."""


class RewardFailed(CheckFailed):
    """A function of the owner's did not do what a reward does."""


@dataclass(frozen=True, slots=True)
class Scored:
    total: list[float]
    by_function: dict[str, list[float | None]]
    """Without weights; None where a function does not apply to an answer."""


def to_the_log(line: str) -> None:
    print(f"rewards: {line}", file=sys.stderr, flush=True)


class Judge:
    def __init__(
        self,
        rewards: str,
        seconds: float,
        on_error: Literal["stop", "zero"],
        home: Path,
        *,
        say: Callable[[str], None] = to_the_log,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """Reads the files, each within START_S; `seconds` is the limit of one call of one function."""
        self.named, self.rewards = rewards, parse(rewards, home)
        self.seconds, self.on_error, self.say, self.memory_bytes = seconds, on_error, say, memory_bytes
        self.warned: set[str] = set()
        self.process: Process | None = None
        self.started()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.process:
            self.process.close()
            self.process = None

    def score(self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Sequence[Any]]) -> Scored:
        """One total for each completion; the columns have one value for each, too."""
        count = len(completions)
        if any(len(values) != count for values in (prompts, *columns.values())):
            raise ValueError("prompts, completions and columns differ in length")
        rows: dict[str, object] = {
            "prompts": list(prompts),
            "completions": list(completions),
            "columns": {name: list(values) for name, values in columns.items() if name not in NOT_A_COLUMN},
        }
        by_reward = [self.values(at, rows, count) for at in range(len(self.rewards))]
        weights = [reward.weight for reward in self.rewards]
        total = [
            math.fsum(weight * value for weight, value in zip(weights, row, strict=True) if value is not None)
            for row in zip(*by_reward, strict=True)
        ]
        return Scored(total, {reward.name: values for reward, values in zip(self.rewards, by_reward, strict=True)})

    def values(self, at: int, rows: dict[str, object], count: int) -> list[float | None]:
        if not count:
            return []
        most_bytes = BYTES_PER_VALUE * count + BYTES_OF_A_MESSAGE
        try:
            answer = self.started().ask(rows | {"function": at}, self.seconds, most_bytes)
            values, bad_rows = valid(answer.get("values", [None] * count), answer.get("rows", range(count)), count)
        except Lost as lost:
            self.close()
            answer, values, bad_rows = {"wrong": str(lost)}, [None] * count, range(count)
        if "wrong" in answer:
            self.went_wrong(self.rewards[at], str(answer["wrong"]))
            values = [0.0 if row in bad_rows else value for row, value in enumerate(values)]
        return values

    def went_wrong(self, reward: Reward, what: str) -> None:
        """Ends it with one sentence, or says once that such answers count nothing."""
        sentence = f"the reward {reward.name} {what}"
        if self.on_error == "stop":
            raise RewardFailed(sentence, where_of(reward), self.fix(reward))
        if sentence not in self.warned:
            self.warned.add(sentence)
            self.say(f"{sentence}; 0 is given for such answers")

    def fix(self, reward: Reward) -> str:
        again = f"./motley check-rewards '{self.named}'"
        return f"fix it and try it with {again}; or set reward_errors=zero: such answers are worth 0 then"

    def started(self) -> Process:
        """The process, with every file read: also after one that had to be ended."""
        if self.process:
            return self.process
        self.process = Process(self.memory_bytes, self.say)
        try:
            request = {"load": [asdict(reward) for reward in self.rewards]}
            answer = self.process.ask(request, START_S, BYTES_OF_A_MESSAGE)
            self.require_confined(answer)
            if "wrong" in answer:
                reward = self.rewards[int(answer["at"])]
                what = f"the file of the reward {reward.name} {answer['wrong']}"
                raise BadInput(what, where_of(reward), "fix it there, and try it with ./motley check-rewards")
        except Lost as lost:
            self.close()
            files = [reward for reward in self.rewards if reward.kind == FILE]
            raise BadInput(f"the process of the rewards {lost} while it read them", *map(where_of, files[:1])) from None
        except BadInput:
            self.close()
            raise
        return self.process

    def require_confined(self, answer: ChildAnswer) -> None:
        """Motley's own rewards need nothing of it; a person's are not run where they could open a connection."""
        if answer.get("missing"):
            raise BadInput(
                f"this machine cannot keep the functions of a file from the network: {answer['missing']}",
                fix=f"allow seccomp (in a container by its security options), or take only {', '.join(BUILT_IN)}",
            )
        if (
            not answer.get("hidden")
            and any(reward.kind == FILE for reward in self.rewards)
            and "landlock" not in self.warned
        ):
            self.warned.add("landlock")
            self.say("this kernel has no Landlock: the functions could read the environment of the run's processes")


def valid(values: Any, bad_rows: Any, count: int) -> tuple[list[float | None], Container[int]]:
    """The process runs code of others: what it answers is looked at again."""
    if not isinstance(values, list) or len(values) != count or not isinstance(bad_rows, list | range):
        raise Lost("wrote into what its process answers with")
    if any(value is not None and not (isinstance(value, float) and math.isfinite(value)) for value in values):
        raise Lost("wrote into what its process answers with")
    return values, bad_rows


def where_of(reward: Reward) -> str:
    return f"file: {reward.argument}" if reward.kind == FILE else ""
