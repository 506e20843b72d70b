"""What is known of a data set of this computer before anything is sent: examples, which are held out, and the steps.

A launch asks, on the controller, which has neither numpy nor a tokenizer. How many tokens an example has, and so how
many share a row, shows only on the head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from train.data import pair_records, prompt_records
from train.data.convert_record import BadRecord, Example
from train.data.left_out_in_words import require_held_out
from train.data.pair_records import Preference
from train.data.prompt_records import Prompt
from train.data.read_records import Asked, Found, Reader, Tally, examples, require_bytes
from train.data.split import split_of
from train.data.texts import Texts, held_out
from train.errors import BadInput
from train.plan.model.catalogue import Dataset, Taken
from train.plan.settings.every_run import LEAST_STEPS
from train.plan.settings.read_settings import (
    GenerateConfig,
    GrpoConfig,
    PreferenceConfig,
    PretrainConfig,
    RunConfig,
    SftConfig,
)
from train.plan.settings.request import Request
from train.plan.settings.rewards import parse, require_columns

LOOK_BYTES = 32 << 20
"""What is read of a large file: a person waits."""
Sides = Callable[[float, Asked], list[tuple[str, bool] | BadRecord]]
LATER = "steps: known once the rows are made"


@dataclass(frozen=True, slots=True)
class Look:
    examples: int
    held_out: int
    skipped: int
    steps: str
    whole: bool
    """Whether all of the file was read."""
    first_bad: str = ""
    asks: bool = False
    """Whether its prompts are answered, and nothing is trained."""

    @property
    def words(self) -> str:
        return f"{self.counted}; {self.steps}"

    @property
    def counted(self) -> str:
        count = f"{self.examples + self.skipped} records" if self.skipped else f"{self.examples} examples"
        if not self.whole:
            count += f" in the first {LOOK_BYTES >> 20} MB"
        skipped = f"{self.skipped} skipped ({self.first_bad}), " if self.skipped else ""
        if self.asks:
            return count.replace("examples", "prompts") + (f": {skipped.rstrip(', ')}" if skipped else "")
        trained = self.examples - self.held_out
        return f"{count}: {skipped}{self.held_out} held out, {trained} trained on"


def look(request: Request) -> dict[str, object]:
    """Empty where the data is not here, or not read here; BadInput where it cannot be trained on."""
    config, data = request.config, request.dataset
    looks = {part.data.name: part_look for part in data.each if (part_look := look_at(config, part.data))}
    if len(looks) < len(data.each):
        return {}
    whole = together(config, data, list(looks.values()))
    if whole.whole:
        require_held_out(config, whole.held_out)
    each = [f"{part.data.name} × {part.weight:g}: {looks[part.data.name].counted}" for part in data.parts]
    words = "; ".join([*each, whole.steps]) if each else whole.words
    return asdict(whole) | {"words": words}


def together(config: RunConfig, data: Dataset, looks: list[Look]) -> Look:
    """Sums up all that an epoch takes of several data sets."""
    if not data.parts:
        return looks[0]
    pairs = [(part_look, part.weight) for part_look, part in zip(looks, data.parts, strict=True)]
    trained = sum(round((part_look.examples - part_look.held_out) * weight) for part_look, weight in pairs)
    known, whole = all(part_look.steps != LATER for part_look in looks), all(part_look.whole for part_look in looks)
    return Look(
        examples=sum(part_look.examples for part_look in looks),
        held_out=sum(part_look.held_out for part_look in looks),
        skipped=sum(part_look.skipped for part_look in looks),
        first_bad=next((part_look.first_bad for part_look in looks if part_look.first_bad), ""),
        steps=steps(config, trained, known=known and whole),
        whole=whole,
    )


def look_at(config: RunConfig, data: Dataset) -> Look | None:
    files = [data.file] if data.file else list(data.files)
    if any(file.suffix.lower() == ".parquet" for file in files) and not find_spec("pyarrow"):
        return None
    try:
        small = sum(file.stat().st_size for file in files) <= LOOK_BYTES
        if files and isinstance(config, GrpoConfig | GenerateConfig):
            return of_prompts(config, files, data.taken)
        if files and isinstance(config, PreferenceConfig):
            read = partial(pair_records.preference_of, paired=config.paired, form=config.format)
            return of_examples(config, files, partial(sides_of, read), pair_records.FORMAT_NAME, data.taken)
        if files and isinstance(config, SftConfig) and config.recipe != "evaluate":
            return of_examples(config, files, example_sides, config.format, data.taken)
        if files and isinstance(config, PretrainConfig) and small:
            return of_texts(config, files)
    except OSError as error:
        raise BadInput(f"the data cannot be read: {error.strerror}", f"file: {error.filename}") from None
    return None


def of_examples(config: SftConfig, files: list[Path], sides: Sides, name: str, taken: Taken) -> Look:
    """`name`: of the format of what has these sides."""
    require_bytes(files)
    reader = Reader(files, lambda _: None, format_name=name, max_bad=config.max_bad, taken=taken)
    counts = {"train": 0, "eval": 0}
    conversations, whole = True, True
    for found, (split, is_chat) in reader.made(partial(sides, config.eval_fraction)):
        counts[split] += 1
        conversations &= is_chat
        if found.seen - reader.passed_bytes > LOOK_BYTES:
            whole = False
            break
    if whole and not counts["train"]:
        reader.require_some(held_out=counts["eval"])
    return look_of(
        reader.tally, counts["eval"], steps(config, counts["train"], known=conversations and whole), whole=whole
    )


def of_prompts(config: GrpoConfig | GenerateConfig, files: list[Path], taken: Taken) -> Look:
    sides = partial(sides_of, partial(prompt_records.prompt_of, form=config.format))
    look_of_all = of_examples(config, files, sides, prompt_records.FORMAT_NAME, taken)
    if isinstance(config, GenerateConfig):
        return replace(look_of_all, asks=True)
    if config.rewards:
        columns = prompt_records.columns_of(files[0], taken, config.format)
        require_columns(parse(config.rewards, Path()), columns, f"file: {files[0]}")
    return look_of_all


def sides_of(
    read: Callable[[Found], Preference | Prompt | BadRecord], eval_fraction: float, asked: Asked
) -> list[tuple[str, bool] | BadRecord]:
    """Whether each is held out; all of them are conversations."""
    made = map(read, asked[1])
    return [one if isinstance(one, BadRecord) else (one.split(eval_fraction), True) for one in made]


def example_sides(eval_fraction: float, asked: Asked) -> list[tuple[str, bool] | BadRecord]:
    """Whether it is held out and whether it is a conversation, for each record."""
    return [
        (split_of(example, eval_fraction), bool(example.messages)) if isinstance(example, Example) else example
        for example in examples(asked)
    ]


def of_texts(config: PretrainConfig, files: list[Path]) -> Look:
    require_bytes(files)
    texts = Texts(files, config, lambda _: None)
    held_out_count = len(held_out(texts, config.eval_fraction))
    return look_of(texts.tally, held_out_count, steps(config, 0, known=False), whole=True)


def look_of(tally: Tally, held_out_count: int, steps: str, *, whole: bool) -> Look:
    return Look(
        examples=tally.records - tally.bad,
        held_out=held_out_count,
        skipped=tally.bad,
        first_bad="".join(tally.first_bad[:1]),
        steps=steps,
        whole=whole,
    )


def steps(config: RunConfig, trained: int, *, known: bool) -> str:
    """A conversation is one row at most, and short ones share one: so many steps can it be."""
    if isinstance(config, GenerateConfig):
        return f"{-(-trained * config.answers // config.piece)} pieces"
    if config.max_steps:
        return f"{config.max_steps} steps"
    most = config.steps_over(trained)
    if not known:
        return LATER
    is_least = not config.length_is_set and most == LEAST_STEPS
    may_share = not (is_least or isinstance(config, (GrpoConfig, PreferenceConfig)))
    return f"{most} steps" + " at most, as short examples share a row" * may_share
