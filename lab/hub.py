"""A small Hugging Face hub on the lab's controller, for the hub's own client: HF_ENDPOINT=http://127.0.0.1:PORT

    hub.py FOLDER PORT ADDRESS

FOLDER holds OWNER/NAME/… for each model, and `behaviour.json`, read at each request:
gated (repositories that want the token), token (which a push needs), rate (bytes a second), drop (file → after how many
bytes the connection breaks off, once each), damage (file → how many times it is sent with wrong bytes), busy (how many
requests for files it puts off), about (repository → what else its page says).
requests.jsonl has what was asked: method, path, range, by whom, whether a token came, status and bytes sent.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lab import services
from lab.place import Place
from lab.shell import LabError, outcome

LARGE_BYTES = 100_000
"""From here on a file is known by its SHA-256, as the hub does for what it keeps outside git."""
REVISION = hashlib.sha1(b"the only revision", usedforsecurity=False).hexdigest()
PORT = 8099
PIECE = 1 << 16
"""Bytes at a time: a file may be larger than main memory."""


@dataclass(frozen=True, slots=True)
class Served:
    """A hub's folder, as a test sees it."""

    folder: Path
    endpoint: str

    def behave(self, **how: Any) -> None:
        (self.folder / "behaviour.json").write_text(json.dumps(how))
        (self.folder / "requests.jsonl").write_text("")

    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "requests.jsonl").read_text().splitlines()]

    def bytes_sent(self, name: str, to: str = "") -> int:
        """The bytes of a file that were sent to whoever asked, or to one address."""
        asked = [entry for entry in self.requests() if entry["path"].endswith(f"/{name}")]
        return sum(entry["bytes"] for entry in asked if to in ("", entry["from"]))


@dataclass(frozen=True, slots=True)
class Hub(Served):
    place: Place


def start(place: Place, folder: Path, port: int = PORT, address: str = "127.0.0.1") -> Hub:
    """On the controller, reachable there alone: nodes have no business with the hub, but one that is rented has."""
    hub = Hub(folder, f"http://{address}:{port}", place)
    hub.behave()
    root = Path(__file__).parents[1]
    words: list[str | Path] = [sys.executable, "-m", "lab.hub", folder, str(port), address]
    command = ["env", f"PYTHONPATH={root}", *words]
    services.start(place, "hub", place.controller, command)
    ask = f"exec 3<>/dev/tcp/{address}/{port}"
    deadline = time.monotonic() + 15
    while outcome("ip", "netns", "exec", place.controller, "bash", "-c", ask).returncode:
        if time.monotonic() > deadline:
            raise LabError("the lab's hub did not start")
        time.sleep(0.1)
    return hub


def stop(hub: Hub) -> None:
    services.stop(hub.place, "hub")


# -- the server ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class State:
    """What has happened already: a fault is there once, and then it works."""

    folder: Path
    dropped: set[str] = field(default_factory=set)
    damaged: dict[str, int] = field(default_factory=dict)
    put_off: int = 0
    large: dict[str, bytes] = field(default_factory=dict)
    """What came of a push so far, by its hash."""

    @property
    def behaviour(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "behaviour.json").read_text()))


class HttpError(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *_: Any) -> None:
        """requests.jsonl says it better."""

    def _serve(self) -> None:
        self.sent, self.status = 0, 200
        try:
            self._answer([unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")])
        except HttpError as why:
            self._head(why.status, {"X-Error-Code": why.code, "Content-Length": "0"})
        finally:
            self._note()

    do_HEAD = do_GET = do_POST = do_PUT = _serve

    def _answer(self, parts: list[str]) -> None:
        if self.command in ("POST", "PUT"):
            self._take(parts)
            return
        if parts[4:5] == ["tree"]:
            self._list("/".join(parts[2:4]), "/".join(parts[6:]))
            return
        if parts[:1] == ["api"] and len(parts) >= 4:
            self._describe("/".join(parts[2:4]))
            return
        parts = parts[1:] if parts[:1] == ["datasets"] else parts
        if len(parts) < 5 or parts[2] != "resolve":
            raise HttpError(404, "EntryNotFound")
        self._give("/".join(parts[:2]), "/".join(parts[4:]))

    def _take(self, parts: list[str]) -> None:
        """A push, as the client of the hub does it: the repository, how each file comes, the large ones, a commit."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if parts[:1] == ["large"]:  # where the hub has sent the client: no token comes along
            self.state.large[parts[1]] = body
            self._say({})
            return
        if (self.headers.get("Authorization") or "").removeprefix("Bearer ") != self.state.behaviour.get("token"):
            raise HttpError(401, "RepoNotFound")
        if parts == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked['organization'] or 'me'}/{asked['name']}"
            (self.state.folder / name).mkdir(parents=True, exist_ok=True)
            self._say({"url": f"http://{self.headers['Host']}/{name}", "name": name})
        elif parts == ["api", "validate-yaml"]:
            self._say({"errors": [], "warnings": []})
        elif parts[-2:] == ["objects", "batch"]:
            place = f"http://{self.headers['Host']}/large"
            asked = json.loads(body)["objects"]
            put = [one | {"actions": {"upload": {"href": f"{place}/{one['oid']}"}}} for one in asked]
            self._say({"transfer": "basic", "objects": put})
        elif "preupload" in parts:
            files = json.loads(body)["files"]
            modes = {one["path"]: "lfs" if one["size"] >= LARGE_BYTES else "regular" for one in files}
            told = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            self._say({"files": told})
        elif "commit" in parts:
            self._commit(self.state.folder / parts[2] / parts[3], body)
            place = f"http://{self.headers['Host']}/{parts[2]}/{parts[3]}"
            self._say({"commitOid": REVISION, "commitUrl": f"{place}/commit/{REVISION}"})
        else:
            raise HttpError(404, "EntryNotFound")

    def _commit(self, folder: Path, body: bytes) -> None:
        for line in body.splitlines():
            entry, about = (found := json.loads(line))["key"], found["value"]
            if entry == "file":
                (folder / about["path"]).write_bytes(base64.b64decode(about["content"]))
            elif entry == "lfsFile":
                (folder / about["path"]).write_bytes(self.state.large[about["oid"]])

    def _say(self, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self._head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
        self._send([body])

    def _repository(self, name: str) -> Path:
        folder = self.state.folder / name
        if not folder.is_dir():
            raise HttpError(404, "RepoNotFound")
        return folder

    def _describe(self, name: str) -> None:
        """Names, sizes and hashes: shown of a gated repository as well."""
        folder = self._repository(name)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        siblings = [about(path, str(path.relative_to(folder))) for path in files]
        gated = "manual" if name in self.state.behaviour.get("gated", []) else False
        facts = {"id": name, "sha": REVISION, "private": False, "gated": gated, "siblings": siblings}
        facts |= {"tags": [], "downloads": 0} | self.state.behaviour.get("about", {}).get(name, {})
        self._say(facts)

    def _list(self, name: str, below: str) -> None:
        """The files below a folder, as the library `datasets` asks for them."""
        folder = self._repository(name)
        if not (folder / below).is_dir():
            raise HttpError(404, "EntryNotFound")
        found = []
        for path in sorted(path for path in (folder / below).rglob("*") if path.is_file()):
            facts = about(path, str(path.relative_to(folder)))
            found.append({"type": "file", "path": facts["rfilename"], "size": facts["size"], "oid": facts["blobId"]})
        self._say(found)

    def _give(self, repository: str, name: str) -> None:
        behaviour = self.state.behaviour
        if self.state.put_off < behaviour.get("busy", 0):
            self.state.put_off += 1
            raise HttpError(503, "Busy")
        path = self._repository(repository) / name
        if repository in behaviour.get("gated", []):
            given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            if given != behaviour.get("token"):
                raise HttpError(401 if not given else 403, "GatedRepo")
        if not path.is_file():
            raise HttpError(404, "EntryNotFound")
        facts, size, wrong = about(path, name), path.stat().st_size, False
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        if self.command == "GET" and self.state.damaged.get(name, 0) < behaviour.get("damage", {}).get(name, 0):
            self.state.damaged[name] = self.state.damaged.get(name, 0) + 1
            wrong = True
        headers = {
            "X-Repo-Commit": REVISION,
            "ETag": f'"{facts["lfs"]["sha256"] if facts["lfs"] else facts["blobId"]}"',
            "Accept-Ranges": "bytes",
            "Content-Length": str(size - begin),
        }
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
        self._head(206 if begin else 200, headers)
        with path.open("rb") as file:
            file.seek(begin)
            first = file.read(1)
            first = bytes([first[0] ^ 1]) if wrong and first and not begin else first
            pieces = itertools.chain([first], iter(functools.partial(file.read, PIECE), b""))
            self._send(pieces, rate=behaviour.get("rate", 0), drop_after=self._drop(name, behaviour))

    def _drop(self, name: str, behaviour: dict[str, Any]) -> int | None:
        after = behaviour.get("drop", {}).get(name)
        if self.command != "GET" or after is None or name in self.state.dropped:
            return None
        self.state.dropped.add(name)
        return int(after)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def _send(self, pieces: Iterable[bytes], rate: float = 0, drop_after: int | None = None) -> None:
        if self.command == "HEAD":
            return
        for one in pieces:
            piece = one if drop_after is None else one[: drop_after - self.sent]
            self.wfile.write(piece)
            self.sent += len(piece)
            if rate:
                time.sleep(len(piece) / rate)
            if self.sent == drop_after:
                break
        if drop_after is not None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()

    def _note(self) -> None:
        entry = {
            "method": self.command,
            "path": self.path,
            "range": self.headers.get("Range"),
            "token": bool(self.headers.get("Authorization")),
            "from": self.client_address[0],
            "status": self.status,
            "bytes": self.sent,
        }
        with (self.state.folder / "requests.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")


def about(path: Path, name: str) -> dict[str, Any]:
    now = path.stat()
    git, sha256 = hashes("" if not now.st_blocks else str(path), now.st_mtime_ns * bool(now.st_blocks), now.st_size)
    lfs = {"sha256": sha256, "size": now.st_size, "pointerSize": 132} if now.st_size >= LARGE_BYTES else None
    return {"rfilename": name, "size": now.st_size, "blobId": git, "lfs": lfs}


@functools.lru_cache(maxsize=64)
def hashes(path: str, _changed: int, size: int) -> tuple[str, str]:
    """The hashes of git and of the hub, once for each file; without a path, of zeros: a file that takes no disk."""
    git, sha256 = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False), hashlib.sha256()
    with Path(path or "/dev/zero").open("rb") as file:
        for at in range(0, size, PIECE):
            piece = file.read(min(PIECE, size - at))
            git.update(piece)
            sha256.update(piece)
    return git.hexdigest(), sha256.hexdigest()


def main() -> None:
    folder, port, address = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    Handler.state = State(folder)
    ThreadingHTTPServer((address, port), Handler).serve_forever()


if __name__ == "__main__":
    main()
