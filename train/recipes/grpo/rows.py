"""Rows of prompts on disk: `python -m train prepare --recipe grpo`.

    python -m train prepare --recipe grpo --dataset sums.jsonl --model smollm2-135m --max-new-tokens 64

A row is one prompt, as the model's template writes it up to where the answer begins, and the other columns of its
record for the rewards. A split is a folder:

    tokens.bin    uint16|uint32  all tokens of all prompts, one after another
    starts.bin    int64          where each prompt starts in tokens, and the end
    records.jsonl                what is asked and the columns, a line each
    lines.bin     int64          where each line starts, and the end

The same data, model and settings give the same bytes. A file of rewards of one's own lies beside the splits.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from train.cache import build_once
from train.data.convert_record import BadRecord, Message
from train.data.index import Index, SplitIndex
from train.data.left_out_in_words import TRAINED_ON
from train.data.mix_data_sets import Parts, RowsPart, parts_in
from train.data.prepare import rows_folder
from train.data.prompt_records import FORMAT_NAME, Prompt, prompt_of
from train.data.read_records import Reader, Say
from train.data.rows import FORMAT, Ints, mapped, padded_left, read_index
from train.data.run_data import OpenedData, find_data
from train.data.to_tokens import Chat, asked_text, end_ids
from train.errors import BadInput
from train.files import file_hash
from train.plan.settings.read_settings import GenerateConfig, GrpoConfig
from train.plan.settings.rewards import parse, require_columns

AskingConfig = GrpoConfig | GenerateConfig
KIND, REWARDS = "prompts", "rewards.py"
FILES = ("tokens.bin", "starts.bin", "records.jsonl", "lines.bin")


class PromptRecord(TypedDict):
    """A line of records.jsonl."""

    prompt: str | list[Message]
    """What is asked as it stands in the data, and as the rewards get it."""
    columns: dict[str, object]


@dataclass(frozen=True)
class PromptRows:
    """One split of prompts."""

    folder: Path
    hash: str
    row_length: int
    """Tokens of the longest prompt with the longest answer."""
    pad_id: int
    end_ids: tuple[int, ...]
    """The marks that end an answer."""
    tokens: NDArray[Any]
    starts: Ints
    lines: Ints
    targets: NDArray[np.int32]
    """None: what is trained on are the answers."""
    parts: tuple[RowsPart, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def prompt(self, index: int) -> list[int]:
        found: list[int] = self.tokens[self.starts[index] : self.starts[index + 1]].tolist()
        return found

    def record(self, index: int) -> PromptRecord:
        with (self.folder / "records.jsonl").open("rb") as file:
            file.seek(int(self.lines[index]))
            found: PromptRecord = json.loads(file.read(int(self.lines[index + 1] - self.lines[index])))
        return found

    def batch(self, indices: list[int], position: int = 0) -> dict[str, Ints]:
        return self.prompts(indices, [[] for _ in indices])

    def prompts(self, indices: list[int], behind: Sequence[list[int]]) -> dict[str, Ints]:
        """Padded on the left; `behind`: what each has of an answer already."""
        prompts = [[*self.prompt(index), *tokens] for index, tokens in zip(indices, behind, strict=True)]
        return padded_left(prompts, self.pad_id)

    def token_count(self, indices: list[int]) -> int:
        return sum(int(self.starts[index + 1] - self.starts[index]) for index in indices)

    def verify(self) -> None:
        if split_hash(self.folder) != self.hash:
            raise BadInput(
                "the prepared prompts are damaged: their content does not have the hash that index.json names",
                f"folder: {self.folder}",
                "remove that folder and prepare the data set again",
            )


def open_prompts(folder: Path, split: str, answer_tokens: int) -> PromptRows:
    index = read_index(folder)
    if index.get("kind") != KIND:
        fix = "prepare prompts with: python -m train prepare --recipe grpo --dataset FILE --model MODEL"
        raise BadInput("these rows are no prompts", f"folder: {folder}", fix)
    facts, place = index["splits"][split], folder / split
    return PromptRows(
        folder=place,
        hash=facts["hash"],
        row_length=int(index["longest"]) + answer_tokens,
        pad_id=index["pad_id"],
        end_ids=tuple(index["end_ids"]),
        tokens=mapped(place / "tokens.bin", f"<u{index['token_bytes']}"),
        starts=mapped(place / "starts.bin", "<i8"),
        lines=mapped(place / "lines.bin", "<i8"),
        targets=np.zeros(facts["rows"], dtype=np.int32),
        parts=parts_in(index, split),
    )


def prepare(config: AskingConfig, say: Say, *, out: str | None = None, date: str = "") -> Path:
    """The folder of prompts; made only if it is not there yet. `date` is what templates write as today's."""
    data = find_data(config, say)
    opened, file = data.opened(say, date), config.rewards_file
    chosen = {"prompt_tokens": config.prompt_tokens, "eval_fraction": config.eval_fraction, "form": config.format}
    chosen |= {TRAINED_ON: False} if config.IN_PIECES else {}
    made_from = opened.made_from(chosen) | {"rewards": file_hash(file) if file else ""}
    folder = rows_folder(data.dataset.name, made_from, out)
    known = folder.exists()
    readers = data.readers(say, FORMAT_NAME)

    def build(draft: Path) -> None:
        write(draft, config, opened, readers, made_from)
        if file:
            shutil.copyfile(file, draft / REWARDS)

    build_once(folder, build)
    index = read_index(folder)
    held_out = index["splits"]["eval"]["rows"]
    say(f"prompts   {index['splits']['train']['rows']} of up to {index['longest']} tokens; {held_out} held out")
    say(f"folder    {folder}{' (was there already)' if known else ''}")
    return folder


def write(
    folder: Path, config: AskingConfig, opened: OpenedData, readers: list[Reader], made_from: Mapping[str, object]
) -> None:
    """The prompts of one data set after another."""
    chat = opened.chat
    writers = {split: Writer(folder / split, chat.token_bytes) for split in ("train", "eval")}
    longest, columns, parts = 1, set[str](), Parts(opened.data.dataset)
    for reader in readers:
        long, own = write_prompts(config, reader, chat, writers)
        longest, columns = max(longest, long), columns | own
        parts.add({split: len(writer.starts) - 1 for split, writer in writers.items()}, reader)
    splits = {split: writer.close() for split, writer in writers.items()}
    if config.rewards:
        require_columns(parse(config.rewards, Path()), sorted(columns), f"file: {readers[0].sources[0].path}")
    head = Index(
        format=FORMAT,
        kind=KIND,
        row_length=config.max_seq_length,
        longest=longest,
        token_bytes=chat.token_bytes,
        pad_id=chat.pad_id,
        end_ids=end_ids(chat),
        splits=splits,
    )
    index = opened.complete(head, parts, readers, made_from, FORMAT_NAME)
    if config.IN_PIECES:
        index["trained_on"] = False
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def write_prompts(config: AskingConfig, reader: Reader, chat: Chat, writers: dict[str, Writer]) -> tuple[int, set[str]]:
    """The tokens of the longest, and the columns that some have."""
    longest, columns = 1, set[str]()
    for found, prompt in reader.made(lambda asked: [prompt_of(one, config.format) for one in asked[1]]):
        tokens = prompt_tokens(chat, prompt)
        if isinstance(tokens, BadRecord):
            reader.skip(found, tokens)
        elif len(tokens) > config.prompt_tokens:
            longer = f"its prompt has {len(tokens)} tokens, and beside an answer {config.prompt_tokens} have room"
            reader.skip(found, BadRecord(f"{longer}: raise max_seq_length"))
        else:
            longest = max(longest, len(tokens))
            columns.update(prompt.columns)
            writers[prompt.split(config.eval_fraction)].add(tokens, prompt)
    return longest, columns


def prompt_tokens(chat: Chat, prompt: Prompt) -> list[int] | BadRecord:
    """The prompt as the template writes it, up to where the answer begins."""
    try:
        text = asked_text(chat, prompt.messages, prompt.tools)
    except BadRecord as error:
        return error
    found: list[int] = chat.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return found


class Writer:
    """Appends prompts to a split."""

    def __init__(self, folder: Path, token_bytes: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.type = folder, np.dtype(f"<u{token_bytes}")
        self.tokens, self.records = (folder / "tokens.bin").open("wb"), (folder / "records.jsonl").open("wb")
        self.starts, self.lines = [0], [0]

    def add(self, tokens: list[int], prompt: Prompt) -> None:
        line = json.dumps({"prompt": prompt.asked, "columns": prompt.columns}, ensure_ascii=False).encode() + b"\n"
        self.tokens.write(np.array(tokens, dtype=self.type).tobytes())
        self.records.write(line)
        self.starts.append(self.starts[-1] + len(tokens))
        self.lines.append(self.lines[-1] + len(line))

    def close(self) -> SplitIndex:
        self.tokens.close()
        self.records.close()
        for name, places in (("starts.bin", self.starts), ("lines.bin", self.lines)):
            (self.folder / name).write_bytes(np.array(places, dtype="<i8").tobytes())
        return {"rows": len(self.starts) - 1, "tokens": self.starts[-1], "hash": split_hash(self.folder)}


def split_hash(folder: Path) -> str:
    return hashlib.sha256(
        " ".join([str(FORMAT), KIND, *(file_hash(folder / name) for name in FILES)]).encode()
    ).hexdigest()
