"""`dataset=` as a person writes it: one data set, or several with commas between them; what is taken of each, and how
often.

    notes.jsonl                                  a file
    openai/gsm8k:main/train[:5%]                 of a data set of the hub one part, and of that the first twentieth
    openai/gsm8k?subset=main&split=train[:5%]    the same
    faq.csv?prompt=question&completion=reply     other names for its columns
    a.jsonl:2,b.jsonl:1,owner/name:0.5           several: in an epoch a's rows come twice, half of owner/name's once

What it takes is read here, and applied where records are read (train/data/read_records.py).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from train.errors import BadInput
from train.plan.model.catalogue import HUB_DATA, Dataset, Part, Taken, resolve_dataset

WEIGHT = re.compile(r"(.+):([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf|nan)")
QUERY = re.compile(r"([^?]+)\?.*")
SLICE = re.compile(r"(.+)\[(\d*%?):(\d*%?)\]")
MANY, HEAVIEST = 20, 100


def is_here(text: str, folder: Path = Path()) -> bool:
    """Whether there is a file or folder of that name, which may be longer than a name can be."""
    try:
        return (folder / Path(text).expanduser()).exists()
    except (OSError, RuntimeError, ValueError):
        return False


def resolve(text: str) -> Dataset:
    """The data set that a text means; of several, one data set that has them as its parts."""
    if not text or is_here(text):
        return resolve_dataset(text)
    entries = text.split(",")
    if any(not entry.strip() for entry in entries):
        raise BadInput(f"dataset: '{text}' has a comma too many", fix="write: a.jsonl:2,b.jsonl:1")
    if len(entries) > MANY:
        raise BadInput(f"dataset: these are {len(entries)} data sets", fix=f"{MANY} at most")
    parts = [part_of(entry.strip()) for entry in entries]
    if len(parts) == 1 and parts[0].weight == 1:
        return parts[0].data
    if not sum(part.weight for part in parts):
        raise BadInput("dataset: all weights are 0, so there is nothing to train on", fix="write: a.jsonl:2,b.jsonl:1")
    twice = [name for name, count in Counter(part.data.name for part in parts).items() if count > 1]
    if twice:
        fix = "give their files different names"
        raise BadInput(f"dataset: two of them are called {twice[0]}, and their losses are shown by name", fix=fix)
    reasons = " · ".join(f"{part.data.reason} × {part.weight:g}" for part in parts)
    return Dataset(name="+".join(part.data.name for part in parts)[:60], reason=reasons, parts=tuple(parts))


def part_of(entry: str) -> Part:
    """One of them, with its weight behind the last colon."""
    weighted = None if is_here(entry) else WEIGHT.fullmatch(entry)
    name, weight = (weighted[1], float(weighted[2])) if weighted else (entry, 1.0)
    if not 0 <= weight <= HEAVIEST:
        fix = f"0 to {HEAVIEST}; 0: measured, never trained on"
        raise BadInput(f"dataset: {name} has the weight {weight:g}", fix=fix)
    return Part(data=one(name), weight=weight)


def one(entry: str) -> Dataset:
    """One data set, and what of it is taken."""
    if is_here(entry):
        return resolve_dataset(entry)
    name, mark, query = entry.partition("?")
    columns = dict(column_of(pair, entry) for pair in query.split("&")) if mark else {}
    of_hub = [columns.pop(key) for key in ("subset", "split") if key in columns]
    name += ":" * bool(of_hub) + "/".join(of_hub)  # as the datasets library calls them
    found = SLICE.fullmatch(name)
    name, first, end = (found[1], found[2], found[3]) if found else (name, "", "")
    if "[" in name and not is_here(name):
        raise BadInput(f"dataset: '{entry}' is cut in a way that is not known", fix="write: [:1000], [10%:20%]")
    taken = Taken(first=first, end=end, columns=columns)
    data = resolve_dataset(name)
    return replace(data, taken=taken, reason=f"{data.reason}{taken.words}") if taken != Taken() else data


def column_of(pair: str, entry: str) -> tuple[str, str]:
    ours, mark, theirs = pair.partition("=")
    if not (mark and ours and theirs):
        fix = "write the key that Motley knows, and theirs: ?prompt=question&completion=answer"
        raise BadInput(f"dataset: '{pair}' in '{entry}' names no column", fix=fix)
    return ours, theirs


def files_here(text: str) -> list[Path]:
    """The files and folders of this computer that it would send to the nodes."""
    if not text:
        return []
    if is_here(text):
        return [Path(text).expanduser()]
    names = [name_of(entry.strip(), Path()) for entry in text.split(",")]
    return [Path(name).expanduser() for name in names if name and is_here(name)]


def name_of(entry: str, folder: Path) -> str:
    """Without weight and selection, whatever is wrong with them; a file of that name below `folder` is one."""
    for pattern in (WEIGHT, QUERY, SLICE):
        if not is_here(entry, folder) and (found := pattern.fullmatch(entry)):
            entry = found[1]
    return entry


def shown(text: str) -> str:
    """The data sets as others may read them: no folder of the owner's is given away, and nothing need be here any
    more."""
    if not text or is_here(text):
        return Path(text).stem
    titles = []
    for entry in text.split(","):
        name, weight = name_of(entry.strip(), Path()), WEIGHT.fullmatch(entry.strip())
        title = name if HUB_DATA.fullmatch(name) and not Path(name).suffix else Path(name).stem
        titles.append(title + (f" × {float(weight[2]):g}" if weight else ""))
    return ", ".join(titles)


def hub_ids(text: str) -> list[str]:
    """The ids of the data sets that are of the hub."""
    names = [name_of(entry.strip(), Path()) for entry in text.split(",")]
    return [name.partition(":")[0] for name in names if HUB_DATA.fullmatch(name) and not Path(name).suffix]


def moved(text: str, folder: Path) -> str:
    """The same data sets for a reader in another folder: relative paths begin in this one."""
    if is_here(text, folder):
        return str(folder / text)
    entries = [entry.strip() for entry in text.split(",")]
    names = [name_of(entry, folder) for entry in entries]
    return ",".join(
        str(folder / Path(name).expanduser()) + entry[len(name) :] if name and is_here(name, folder) else entry
        for entry, name in zip(entries, names, strict=True)
    )
