"""Files from node to node: the controller hands them to the first, and each hands on what it has while it receives.

Every byte crosses each link once, so the whole takes as long as the slowest link, not as long as there are nodes.
Sender and receiver prove to each other that they know the token. The receiver then says how much it has of each file;
the sender says why it is over, or go, and the bytes that lack follow in the agreed order, bare. The receiver compares
every file with its hash and answers "done".
The hashes came over SSH, so nothing else is accepted; the bytes themselves are not encrypted.

Covered by tests/unit/plugins/module_utils/motley/test_pass_files_on.py: a break (both sides resume), a receiver that is
lost (its sender goes on to the one after it), a file that is not what it should be. Not covered: listeners on the LAN.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..train.files import file_hash
from .errors import ModuleError
from .files import read_json

CHUNK = 1 << 18
PIECE = 1 << 24  # handed on at a time: how often progress is counted
GREET_S = 2.0  # for the proof that a caller knows the token
STALL_S = 15.0  # no byte for so long: the other side is taken for lost
HASHED_PER_S = 100e6  # bytes that the slowest disk reads and hashes in a second
GO, OVER, WHY_BYTES = b"g", b"x", 300
MEMO = ".motley-hashes.json"


class Broken(OSError):
    """The other side went away or is not who it should be; another one may come."""


@dataclass(frozen=True, slots=True)
class File:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    address: str


def listed(files: dict[str, dict[str, str | int]]) -> list[File]:
    """The agreed order: small ones first, so that the last file's tail is all that a break can cost."""
    found = [File(name, int(facts["size"]), str(facts["sha256"])) for name, facts in files.items()]
    for file in found:
        if file.name.startswith("/") or ".." in Path(file.name).parts or not file.name:
            raise ModuleError(f"'{file.name}' is no name for a file of a set")
    return sorted(found, key=lambda file: (file.size, file.name))


def hash_of_begun(part: Path, left: int) -> hashlib._Hash:
    digest = hashlib.sha256()
    with part.open("rb", buffering=0) as stream:
        while left > 0 and (block := stream.read(min(CHUNK, left))):
            digest.update(block)
            left -= len(block)
    return digest


class Store:
    """A folder that fills up; `have` says how many bytes of each file may be read and handed on."""

    def __init__(self, folder: Path, files: Sequence[File]) -> None:
        self.folder, self.files = folder, files
        self.have = [0] * len(files)
        self.news = threading.Condition()
        self.over = ""  # why nothing more will come, if so
        self.received = 0
        self.to_give = self.given = 0  # bytes that the next one lacks, and that it got
        self.began = 0.0  # when the first sender had proven itself
        self.restarts = 0  # how often a file had to be begun again
        self.strikes = [0] * len(files)

    @classmethod
    def whole(cls, folder: Path, files: Sequence[File]) -> Store:
        """A folder that holds all of it already: the controller's."""
        store = cls(folder, files)
        store.have = [file.size for file in files]
        return store

    def path(self, index: int) -> Path:
        return self.folder / self.files[index].name

    def part(self, index: int) -> Path:
        path = self.path(index)
        return path.with_name(f".{path.name}.part")

    @property
    def complete(self) -> bool:
        return all(have == file.size for have, file in zip(self.have, self.files, strict=True))

    def look(self, *, verify: bool) -> None:
        """Count what is here. A file is read again when it changed since it was last hashed, or when asked to."""
        memo = read_memo(self.folder)
        for index, file in enumerate(self.files):
            path, part = self.path(index), self.part(index)
            if file.size == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            if path.is_file():
                if path.stat().st_size == file.size and known_hash(file.name, path, memo, verify=verify) == file.sha256:
                    self.have[index] = file.size
                    continue
                path.unlink()
            if part.is_file() and 0 < part.stat().st_size <= file.size:
                # A part of full length is complete but unverified: its last byte is asked for again.
                self.have[index] = min(part.stat().st_size, file.size - 1)
        write_memo(self.folder, memo)

    @property
    def missing(self) -> int:
        return sum(file.size - have for have, file in zip(self.have, self.files, strict=True))

    def set_have(self, index: int, have: int) -> None:
        with self.news:
            self.have[index] = have
            self.news.notify_all()

    def stop(self, why: str) -> None:
        with self.news:
            self.over = why
            self.news.notify_all()

    def finish(self, index: int, digest: str, resumed: bool) -> None:
        file, part = self.files[index], self.part(index)
        if digest != file.sha256:
            part.unlink()
            self.restarts += 1
            self.set_have(index, 0)
            self.strikes[index] += 1
            if resumed or self.strikes[index] < 2:  # half of it was from an earlier try, here or at the sender
                raise Broken(f"{file.name} arrived damaged")
            raise ModuleError(f"{file.name} is refused: its hash is {digest[:12]}…, it should be {file.sha256[:12]}…")
        path = self.path(index)
        part.replace(path)
        self.set_have(index, file.size)

    def remember(self) -> None:
        """From now on size and time stand for the hash, so the bytes must be on the disk first."""
        memo = {}
        for index in range(len(self.files)) if self.received else ():
            with self.path(index).open("rb") as stream:
                os.fsync(stream.fileno())
        for index, file in enumerate(self.files):
            if self.have[index] == file.size and (path := self.path(index)).is_file():
                memo[file.name] = [file.size, path.stat().st_mtime_ns, file.sha256]
        write_memo(self.folder, memo)


def known_hash(name: str, path: Path, memo: dict[str, list[Any]], *, verify: bool = False) -> str:
    """Read again where size or time have changed since, or when asked to."""
    status = path.stat()
    known = memo.get(name)
    if verify or known is None or known[:2] != [status.st_size, status.st_mtime_ns]:
        memo[name] = known = [status.st_size, status.st_mtime_ns, file_hash(path)]
    return str(known[2])


def read_memo(folder: Path) -> dict[str, list[Any]]:
    memo: dict[str, list[Any]] = read_json(folder / MEMO)
    return memo


def write_memo(folder: Path, memo: dict[str, list[Any]]) -> None:
    if folder.is_dir():
        new = folder / f"{MEMO}.new"
        new.write_text(json.dumps(memo))
        new.replace(folder / MEMO)


# -- the wire ------------------------------------------------------------------------------------------------


def exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        block = line.recv(count - len(data))
        if not block:
            raise Broken("the other side hung up")
        data += block
    return data


def proof(token: str, who: bytes, *nonces: bytes) -> bytes:
    return hmac.digest(token.encode(), who + b"".join(nonces), "sha256")


def greet_as_receiver(line: socket.socket, token: str) -> None:
    mine = os.urandom(32)
    line.sendall(mine)
    theirs, shown = exactly(line, 32), exactly(line, 32)
    if not hmac.compare_digest(shown, proof(token, b"sender", mine, theirs)):
        raise Broken("somebody without the token called")
    line.sendall(proof(token, b"receiver", theirs, mine))


def greet_as_sender(line: socket.socket, token: str) -> None:
    theirs, mine = exactly(line, 32), os.urandom(32)
    line.sendall(mine + proof(token, b"sender", theirs, mine))
    if not hmac.compare_digest(exactly(line, 32), proof(token, b"receiver", mine, theirs)):
        raise Broken("somebody without the token answered")


# -- receiving -----------------------------------------------------------------------------------------------


@contextmanager
def open_door(address: str, port: int) -> Iterator[socket.socket]:
    try:
        door = socket.create_server((address, port))
    except OSError:
        door = socket.create_server(("", port))  # the node is reached at an address that is not its own
    with door:
        yield door


def receive(door: socket.socket, store: Store, token: str, wait_s: float) -> None:
    """Until everything is here and whoever handed it on knows it. Senders may come, break off, and others follow."""
    calls, last_word = Calls(door, token), ""
    try:
        while True:
            try:
                line = calls.greeted.get(timeout=wait_s)
            except queue.Empty:
                if store.complete:
                    return
                why = last_word or calls.last_word
                raise ModuleError(
                    f"nothing came for {wait_s:.0f} s ({why}); {megabytes(store.missing)} are missing"
                ) from None
            with line:
                line.settimeout(STALL_S)
                try:
                    take(line, store)
                    return
                except OSError as wrong:  # Broken and time-outs among them
                    last_word = str(wrong)
    finally:
        with suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)  # so that nobody waits in accept any more


class Calls:
    """Greets each caller in a thread of its own: one who says nothing delays nobody else."""

    def __init__(self, door: socket.socket, token: str) -> None:
        self.door, self.token, self.last_word = door, token, "nobody called"
        self.greeted: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        threading.Thread(target=self.answer, daemon=True).start()

    def answer(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self.door.accept()
                threading.Thread(target=self.greet, args=(line,), daemon=True).start()

    def greet(self, line: socket.socket) -> None:
        line.settimeout(GREET_S)
        try:
            greet_as_receiver(line, self.token)
            self.greeted.put(line)
        except OSError as wrong:
            self.last_word = str(wrong)
            line.close()


def take(line: socket.socket, store: Store) -> None:
    store.began = store.began or time.monotonic()
    line.sendall(struct.pack(f"!{len(store.have)}Q", *store.have))
    if exactly(line, 1) != GO:
        raise ModuleError(exactly(line, WHY_BYTES).decode(errors="replace").strip())
    buffer = memoryview(bytearray(CHUNK))
    for index, file in enumerate(store.files):
        if store.have[index] < file.size or not store.path(index).exists():
            take_file(line, store, index, buffer)
    line.sendall(b"done")


def take_file(line: socket.socket, store: Store, index: int, buffer: memoryview) -> None:
    file, part, start = store.files[index], store.part(index), store.have[index]
    part.parent.mkdir(parents=True, exist_ok=True)
    digest = hash_of_begun(part, start) if start else hashlib.sha256()
    with part.open("r+b" if start else "wb", buffering=0) as out:
        out.seek(start)
        have = start
        while have < file.size:
            count = line.recv_into(buffer[: min(CHUNK, file.size - have)])
            if count == 0:
                raise Broken("the other side hung up")
            out.write(buffer[:count])
            digest.update(buffer[:count])
            have += count
            store.received += count
            if have < file.size:
                store.set_have(index, have)  # the last piece is handed on once the hash is right
        out.truncate()
    store.finish(index, digest.hexdigest(), resumed=start > 0)


# -- handing on ----------------------------------------------------------------------------------------------


def hand_on(store: Store, targets: Sequence[Target], port: int, token: str, wait_s: float) -> str:
    """Hands it to the first target that is reached and stays, which looks after the others. Its name, or nothing."""
    for target in targets:
        end = time.monotonic() + wait_s
        while time.monotonic() < end and not store.over:
            store.given = 0
            try:
                with socket.create_connection((target.address, port), timeout=3) as line:
                    line.settimeout(STALL_S)
                    give(line, store, token)
                    return target.name
            except OSError:
                if store.given:
                    end = time.monotonic() + wait_s
                time.sleep(0.1)
    if store.over:
        for target in targets:
            with suppress(OSError), socket.create_connection((target.address, port), timeout=2) as line:
                line.settimeout(STALL_S)
                give(line, store, token)
    return ""


def give(line: socket.socket, store: Store, token: str) -> None:
    greet_as_sender(line, token)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    restarts = store.restarts
    needs = struct.unpack(f"!{len(store.files)}Q", exactly(line, 8 * len(store.files)))
    if store.over:
        line.sendall(OVER + store.over.encode()[:WHY_BYTES].ljust(WHY_BYTES))
        return
    line.sendall(GO)
    store.to_give, store.given = sum(f.size - have for f, have in zip(store.files, needs, strict=True)), 0
    for index, (file, start) in enumerate(zip(store.files, needs, strict=True)):
        offset = start
        while offset < file.size:
            have = wait_for_more(store, index, offset)
            if store.restarts != restarts:
                raise Broken("what was sent has to be sent again")
            piece = give_piece(line, store, index, offset, have)
            offset += piece
            store.given += piece
    if exactly(line, 4) != b"done":
        raise Broken("an answer that means nothing")


def give_piece(line: socket.socket, store: Store, index: int, offset: int, have: int) -> int:
    whole = have == store.files[index].size
    try:
        with (store.path(index) if whole else store.part(index)).open("rb", buffering=0) as stream:
            count = line.sendfile(stream, offset, min(have - offset, PIECE))
    except FileNotFoundError:
        if whole:
            raise Broken("the source is gone") from None
        return 0  # the part has just become the file
    if not count:
        raise Broken("the source became shorter")
    return count


def wait_for_more(store: Store, index: int, offset: int) -> int:
    with store.news:
        while store.have[index] <= offset:
            if store.over:
                raise Broken(store.over)
            store.news.wait(1)
        return store.have[index]


def megabytes(count: int) -> str:
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def patience_s(files: Sequence[File]) -> float:
    """How long one side waits for the other, which may first have to read what it has from a slow disk."""
    return 30 + sum(file.size for file in files) / HASHED_PER_S
