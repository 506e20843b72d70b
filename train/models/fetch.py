"""`python -m train fetch`: a base model or a data set as plain files below the home, fetched or built once.

    python -m train fetch --model qwen3-4b                  # → models/base/qwen3-4b
    python -m train fetch --model qwen3-4b --look           # its size and config.json alone: nothing large is fetched
    python -m train fetch --dataset alpaca                   # → data/raw/alpaca
    python -m train fetch --model qwen3-4b --list           # its files with the hub's hashes, as one line of JSON
    python -m train fetch --model qwen3-4b --listed         # exactly these: that list comes on standard input

Files of the hub are compared with the hub's own hashes, a broken download continues where it stopped, also in another
process, and a folder takes its name only when all of it is there. Embedded models are built here instead.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from train import hub
from train.cache import home_dir
from train.errors import BadInput
from train.files import SizeAndHash, file_hash, size_and_hash
from train.hub_data import NoSuchPart, training_part
from train.layout import BASE_MODELS, RAW_DATA, TOKENIZER_FILES, TOKENIZERS
from train.plan.model import weight_files
from train.plan.model.catalogue import FETCHED, Model, resolve_dataset, resolve_model

LISTED = ".motley-hashes.json"
"""Name to size, time and SHA-256, as the relay between the nodes keeps it: what was hashed here is not read again."""
CHUNK = 1 << 20
"""What a broken connection costs at most; by itself the client counts in tens of megabytes."""
TRIES = 5
"""How often in a row a download may break off without a byte."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file of the hub, and the hub's hash of its content: SHA-256 of large ones, git's hash of others."""

    name: str
    size: int
    sha256: str | None
    git: str | None

    def __post_init__(self) -> None:
        if self.name.startswith("/") or ".." in self.name.split("/"):
            raise BadInput(
                f"the hub names a file that would lie outside its folder: {self.name}",
                fix="fix: fetch it from huggingface.co itself: unset HF_ENDPOINT",
            )


@dataclass(frozen=True, slots=True)
class Listing:
    repo: str
    kind: str
    revision: str
    files: list[Wanted]
    closed: bool = False
    """Whether the hub gives it only to those whom its owner lets in."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class Fetched(TypedDict, total=False):
    """What `fetch` prints as JSON: of what was brought, or of what there is."""

    folder: str
    bytes: int
    here: bool
    """Whether all of it lies in the folder."""
    config: str
    """The file config.json."""
    listing: Mapping[str, Any]
    """A Listing."""
    closed: bool
    files: Mapping[str, SizeAndHash]
    problem: str
    """Why the hub has not that part; empty where it has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="catalogue name or hub id")
    parser.add_argument("--dataset", help="catalogue name or hub id")
    parser.add_argument("--in-4bit", action="store_true", help="the model's copy in 4 bit, where the catalogue has one")
    parser.add_argument("--tokenizer", action="store_true", help="of a model its tokenizer alone")
    parser.add_argument("--look", action="store_true", help="only its size, and its config.json")
    parser.add_argument("--list", action="store_true", help="only what there is of the model, with the hub's hashes")
    parser.add_argument("--listed", action="store_true", help="what such a list on standard input says, and no other")


def main(args: argparse.Namespace) -> int:
    if bool(args.model) == bool(args.dataset):
        raise BadInput("fetch wants a model or a data set", fix="for example: python -m train fetch --model tiny")
    # Our own progress is shown instead, and nothing is sent to the hub that it need not know.
    os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    if args.model and args.list:
        fetched = list_model(args.model, in_4bit=args.in_4bit)
    elif args.model and args.listed:
        fetched = fetch_listed(args.model, json.load(sys.stdin), in_4bit=args.in_4bit)
    elif args.model and args.tokenizer:
        fetched = fetch_tokenizer(args.model)
    elif args.model:
        fetched = fetch_model(args.model, in_4bit=args.in_4bit, look=args.look)
    else:
        fetched = look_at_dataset(args.dataset) if args.look else fetch_dataset(args.dataset)
    print(json.dumps({"ok": True, **fetched}) if args.json else fetched["folder"])
    return 0


def fetch_model(name: str, *, in_4bit: bool = False, look: bool = False) -> Fetched:
    model = resolve_model(name)
    repo, folder = place_of(model, in_4bit=in_4bit)
    is_here = (folder / "config.json").is_file()
    if model.embedded and not in_4bit and not is_here:
        from train.models.embedded import embedded_model

        is_here = bool(embedded_model(model.embedded, folder))
    if is_here:
        weight_files.require(folder)
        return {"folder": str(folder), "bytes": size_of(folder), "here": True, "config": str(folder / "config.json")}
    if not repo:
        raise BadInput(f"{name} is a folder of this machine: there is nothing to fetch")
    listing = list_hub(repo, "model")
    part = folder.with_name(f".{folder.name}.part")
    if look:
        part.mkdir(parents=True, exist_ok=True)
        download(replace(listing, files=[file for file in listing.files if file.name == "config.json"]), part)
        return {"folder": str(folder), "bytes": listing.size, "here": False, "config": str(part / "config.json")}
    bring(listing, folder)
    weight_files.require(folder)
    return {"folder": str(folder), "bytes": listing.size, "here": True, "config": str(folder / "config.json")}


def place_of(model: Model, *, in_4bit: bool) -> tuple[str | None, Path]:
    folder = home_dir() / BASE_MODELS / model.local_name
    if in_4bit and model.hub_4bit:
        return model.hub_4bit, folder.with_name(f"{folder.name}-4bit")
    return model.hub, folder


def list_model(name: str, *, in_4bit: bool = False) -> Fetched:
    """What the hub has of the model, for a machine that is to fetch it by itself, and not to choose what."""
    repo, _ = place_of(resolve_model(name), in_4bit=in_4bit)
    if not repo:
        raise BadInput(f"{name} is no model of the hub: there is nothing to list")
    listing = list_hub(repo, "model")
    return {"listing": asdict(listing), "bytes": listing.size, "closed": listing.closed}


def fetch_listed(name: str, given: Mapping[str, Any], *, in_4bit: bool = False) -> Fetched:
    """`given`: what list_model() has found elsewhere, and a token where one was let go here; it stays in memory."""
    facts = given["listing"]
    listing = Listing(**{**facts, "files": [Wanted(**file) for file in facts["files"]]})
    if given.get("token"):
        os.environ["HF_TOKEN"] = given["token"]
    _, folder = place_of(resolve_model(name), in_4bit=in_4bit)
    if not (folder / FETCHED).is_file():
        bring(listing, folder)
    return {"folder": str(folder), "bytes": listing.size, "here": True}


def fetch_tokenizer(name: str) -> Fetched:
    """→ models/tokenizers/NAME"""
    model = resolve_model(name)
    if not model.hub:
        raise BadInput(f"{name} is no model of the hub: there is no tokenizer to fetch")
    folder = home_dir() / TOKENIZERS / model.local_name
    if not (folder / FETCHED).is_file():
        whole = list_hub(model.hub, "model")
        files = [file for file in whole.files if any(fnmatch.fnmatch(file.name, each) for each in TOKENIZER_FILES)]
        bring(replace(whole, files=files), folder)
    return {"folder": str(folder), "bytes": size_of(folder), "here": True}


def fetch_dataset(name: str) -> Fetched:
    data = resolve_dataset(name)
    if not data.hub:
        raise BadInput(f"{name} needs no fetching: {data.reason}")
    folder = home_dir() / RAW_DATA / data.local_name
    if not (folder / FETCHED).is_file():
        bring(list_hub(data.hub, "dataset"), folder)
    hashes = json.loads((folder / LISTED).read_text())
    files = {name: SizeAndHash(size=size, sha256=sha256) for name, (size, _, sha256) in hashes.items()}
    files |= {FETCHED: size_and_hash(folder / FETCHED)}  # by it the head knows the folder as a data set
    return {"folder": str(folder), "bytes": size_of(folder), "here": True, "files": files}


def look_at_dataset(name: str) -> Fetched:
    """Whether the hub has that part of it; `problem` says why not."""
    data = resolve_dataset(name)
    folder = home_dir() / RAW_DATA / data.local_name
    problem = ""
    if data.hub and not (folder / FETCHED).is_file():
        try:
            list_hub(data.hub, "dataset")
        except NoSuchPart as wrong:
            problem = str(wrong)
    return {"folder": str(folder), "problem": problem}


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# -- the hub ---------------------------------------------------------------------------------------------------


def list_hub(name: str, kind: str) -> Listing:
    """`name`: of a data set with :config/split, where one is chosen."""
    from huggingface_hub import HfApi

    repo = name.partition(":")[0]
    info: Any = None
    files: list[Wanted] = []

    def look(revision: str | None = None) -> list[str]:
        nonlocal info, files
        with hub.explained(repo, kind):
            ask = HfApi().model_info if kind == "model" else HfApi().dataset_info
            info = ask(repo, revision=revision, files_metadata=True)
            files = [wanted(entry) for entry in info.siblings or []]
        return [file.name for file in files]

    names = model_files(look()) if kind == "model" else training_part(name, look)[1]
    chosen = [file for file in files if file.name in names]
    if kind == "model":
        if not any(file.name.endswith(".safetensors") for file in chosen):
            raise hub.no_safetensors(repo)
        if not any(file.name == "config.json" for file in chosen):
            raise BadInput(f"{repo} has no config.json: it is no model that transformers can load")
    # A gated repository lists its files to everybody and refuses each: small ones come first.
    closed = bool(getattr(info, "gated", False) or getattr(info, "private", False))
    return Listing(repo, kind, str(info.sha), sorted(chosen, key=lambda file: (file.size, file.name)), closed)


def wanted(entry: Any) -> Wanted:
    large = entry.lfs or {}
    sha256 = large.get("sha256") if isinstance(large, dict) else large.sha256
    return Wanted(entry.rfilename, int(entry.size or 0), sha256, None if sha256 else entry.blob_id)


def model_files(names: list[str]) -> set[str]:
    """At the top level, nothing that would have to be unpickled, and no second copy of the weights."""
    top = [name for name in names if "/" not in name]
    kept = [name for name in top if any(fnmatch.fnmatch(name, pattern) for pattern in hub.MODEL_FILES)]
    return {name for name in kept if not any(fnmatch.fnmatch(name, pattern) for pattern in hub.NOT_NEEDED)}


def bring(listing: Listing, folder: Path) -> None:
    """Everything, into a folder beside it that takes the name when it is complete and stays for the next try if not."""
    part = folder.with_name(f".{folder.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    drop_others(listing, part)
    free, missing = shutil.disk_usage(part).free, listing.size - size_of(part)
    if missing > free:
        raise BadInput(
            f"{listing.repo}: {missing / 1e9:.1f} GB are to be fetched, {free / 1e9:.1f} GB are free",
            f"folder: {folder.parent}",
            "make room there, or set MOTLEY_CACHE to a larger disk",
        )
    with progress(f"fetching {folder.name}", part, listing.size):
        hashes = download(listing, part)
    (part / LISTED).write_text(json.dumps(hashes))
    (part / FETCHED).write_text(json.dumps({"hub": listing.repo, "revision": listing.revision}))
    part.rename(folder)


def drop_others(listing: Listing, part: Path) -> None:
    """Removes what an earlier try has left of another revision: transformers would prefer an old model.safetensors to
    the pieces that have replaced it."""
    named = {part / file.name for file in listing.files}
    for path in part.rglob("*"):
        if path.is_file() and not named & {path, path.with_name(path.name.removeprefix(".").removesuffix(".part"))}:
            path.unlink()


def download(listing: Listing, part: Path) -> dict[str, list[Any]]:
    """Each file, compared with what the hub has of it; their sizes, times and hashes."""
    hashes = {}
    for file in listing.files:
        path = part / file.name
        if not (path.is_file() and right(path, file)):
            path.unlink(missing_ok=True)
            for last_try in (False, True):
                get(listing, file, path)
                if right(path, file):
                    break
                path.unlink()
                if last_try:
                    raise BadInput(
                        f"{file.name} of {listing.repo} arrived damaged twice: its hash is not the hub's",
                        f"{listing.kind} of the Hugging Face hub",
                        "try again later; something between here and the hub changes what it sends",
                    )
                print(f"{file.name} arrived damaged: it is fetched again", file=sys.stderr, flush=True)
        status = path.stat()
        hashes[file.name] = [status.st_size, status.st_mtime_ns, file.sha256 or file_hash(path)]
    return hashes


def right(path: Path, file: Wanted) -> bool:
    if path.stat().st_size != file.size:
        return False
    if file.sha256:
        return file_hash(path) == file.sha256
    head = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        return not file.git or hashlib.file_digest(stream, lambda: head).hexdigest() == file.git


def get(listing: Listing, file: Wanted, path: Path) -> None:
    """Downloads a file with the hub's own client, into a part that outlives a broken connection and this process."""
    from httpx import TransportError
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers

    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    url = hf_hub_url(listing.repo, file.name, repo_type=listing.kind, revision=listing.revision)
    partial = path.with_name(f".{path.name}.part")
    partial.parent.mkdir(parents=True, exist_ok=True)
    fruitless = 0
    with hub.explained(listing.repo, listing.kind):
        while True:
            have = partial.stat().st_size if partial.exists() else 0
            if have > file.size:
                partial.unlink()
                have = 0
            try:
                with partial.open("ab") as out:
                    http_get(url, out, resume_size=have, headers=build_hf_headers(), expected_size=file.size)
                break
            except TransportError:
                fruitless = 0 if partial.stat().st_size > have else fruitless + 1
                if fruitless >= TRIES:
                    raise
                time.sleep(min(10, 2**fruitless / 2))
    partial.replace(path)


@contextmanager
def progress(what: str, folder: Path, total: int, every_s: float = 5.0) -> Iterator[None]:
    """A line now and then: how much there is, how fast, and how long it still takes."""
    over = threading.Event()

    def watch() -> None:
        before, since = size_of(folder), time.monotonic()
        while not over.wait(every_s):
            have = size_of(folder)
            rate = (have - before) / (time.monotonic() - since)
            left = f"{(total - have) / rate:.0f} s to go" if rate > 0 else "nothing comes at the moment"
            print(f"{what} {have / 1e6:.0f} of {total / 1e6:.0f} MB · {rate / 1e6:.1f} MB/s · {left}", file=sys.stderr)
            sys.stderr.flush()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
