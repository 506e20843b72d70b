"""The lab's hub in a thread, and the hub's own client in processes: which hub that is, it reads as it is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lab.hub import Handler, State
from tests.support import pace

ROOT = Path(__file__).parents[2]


class LocalHub:
    """`folder` has what it holds, as lab/hub.py says."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.behave()

    def behave(self, **how: Any) -> None:
        (self.folder / "behaviour.json").write_text(json.dumps(how))
        (self.folder / "requests.jsonl").write_text("")

    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "requests.jsonl").read_text().splitlines()]

    def sent(self, name: str) -> int:
        """Bytes of a file, to whoever asked."""
        return sum(entry["bytes"] for entry in self.requests() if entry["path"].endswith(f"/{name}"))

    def asked_by(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A Python program that asks it, to its end; its cache is beside the hub's folder."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        clean |= {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "HF_HOME": f"{self.folder}-cache"}
        return pace.run(sys.executable, *words, cwd=ROOT, env=clean | env)


@contextmanager
def local_hub(folder: Path) -> Iterator[LocalHub]:
    folder.mkdir(parents=True, exist_ok=True)

    class Own(Handler):
        state = State(folder)

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield LocalHub(folder, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
