"""A gated model, from the hub's own client and a server that stands for the hub: what a node's fetch does."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.hub import Handler, State
from tests.train.cluster import ROOT, environment
from train.models.model_files import model_folder

REPOSITORY, NAME = "meta-llama/Llama-2-7b-hf", "llama2-7b"
TOKEN = "hf_" + "TokenThatStaysHere"


class Hub:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        Handler.state = State(folder)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def behave(self, **how) -> None:
        (self.folder / "behaviour.json").write_text(json.dumps({"gated": [REPOSITORY], "token": TOKEN, **how}))
        (self.folder / "requests.jsonl").write_text("")

    def requests(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "requests.jsonl").read_text().splitlines()]

    def sent(self, name: str) -> int:
        return sum(entry["bytes"] for entry in self.requests() if entry["path"].endswith(f"/{name}"))


@pytest.fixture
def hub(tmp_path):
    shutil.copytree(model_folder("tiny"), tmp_path / "hub" / REPOSITORY, ignore=shutil.ignore_patterns(".*"))
    found = Hub(tmp_path / "hub")
    yield found
    found.server.shutdown()
    found.server.server_close()


def fetch(hub: Hub, home: Path, token: str = "") -> subprocess.CompletedProcess[str]:
    """In a process of its own: which hub that is, its client reads as it is loaded."""
    where = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server.server_port}", "HF_HUB_OFFLINE": "0", "HF_TOKEN": token}
    env = environment() | where | {"MOTLEY_HOME": str(home), "HF_HOME": str(home / "hf")}
    command = [sys.executable, "-m", "train", "fetch", "--model", NAME]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_without_its_token_nothing_is_sent_and_it_says_what_to_do(hub, tmp_path):
    hub.behave()
    for token in ("", "hf_of-somebody-else"):
        refused = fetch(hub, tmp_path / "home", token)
        assert refused.returncode == 2 and f"{REPOSITORY} is gated" in refused.stderr, refused.stderr
        assert f"https://huggingface.co/{REPOSITORY}" in refused.stderr
    assert hub.sent("model.safetensors") == 0
    assert not (tmp_path / "home/models/base" / NAME).exists()


def test_it_goes_on_where_a_connection_broke_mends_what_arrived_damaged_and_asks_once(hub, tmp_path):
    home, theirs = tmp_path / "home", hub.folder / REPOSITORY / "model.safetensors"
    size = theirs.stat().st_size
    hub.behave(drop={"model.safetensors": size // 2}, damage={"tokenizer.json": 1})
    fetched = fetch(hub, home, TOKEN)
    assert fetched.returncode == 0, fetched.stderr
    assert "tokenizer.json arrived damaged: it is fetched again" in fetched.stderr
    assert [entry for entry in hub.requests() if str(entry["range"]).startswith("bytes=")]
    assert size <= hub.sent("model.safetensors") < 1.4 * size, "half of it came twice"
    ours = home / "models/base" / NAME / "model.safetensors"
    assert hashlib.sha256(ours.read_bytes()).digest() == hashlib.sha256(theirs.read_bytes()).digest()
    left = [Path(folder, name) for folder, _, names in os.walk(home) for name in names]
    assert not [path for path in left if TOKEN.encode() in path.read_bytes()]
    hub.behave()
    assert fetch(hub, home).returncode == 0
    assert hub.requests() == [], "nobody asks the hub for what is here"
