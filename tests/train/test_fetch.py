"""A gated model, from the hub's own client and a server that stands for the hub: what a node's fetch does."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import pace
from tests.support.local_hub import LocalHub, local_hub
from train.models.model_files import model_folder

REPOSITORY, NAME = "meta-llama/Llama-2-7b-hf", "llama2-7b"
TOKEN = "hf_" + "TokenThatStaysHere"
GATED = {"gated": [REPOSITORY], "token": TOKEN}


@pytest.fixture
def hub(tmp_path):
    shutil.copytree(model_folder("tiny"), tmp_path / "hub" / REPOSITORY, ignore=shutil.ignore_patterns(".*"))
    with local_hub(tmp_path / "hub") as found:
        found.behave(**GATED)
        yield found


def fetch(hub: LocalHub, home: Path, token: str = "") -> subprocess.CompletedProcess[str]:
    env = {"HF_TOKEN": token, "MOTLEY_HOME": str(home), "HF_HOME": str(home / "hf")}
    return hub.asked_by("-m", "train", "fetch", "--model", NAME, **env)


def test_without_its_token_nothing_is_sent_and_it_says_what_to_do(hub, tmp_path):
    for token in ("", "hf_of-somebody-else"):
        refused = fetch(hub, tmp_path / "home", token)
        assert refused.returncode == 2 and f"{REPOSITORY} is gated" in refused.stderr, refused.stderr
        assert f"https://huggingface.co/{REPOSITORY}" in refused.stderr
    assert hub.bytes_sent("model.safetensors") == 0
    assert not (tmp_path / "home/models/base" / NAME).exists()


def test_it_goes_on_where_a_connection_broke_mends_what_arrived_damaged_and_asks_once(hub, tmp_path):
    home, theirs = tmp_path / "home", hub.folder / REPOSITORY / "model.safetensors"
    size = theirs.stat().st_size
    hub.behave(**GATED, drop={"model.safetensors": size // 2}, damage={"tokenizer.json": 1})
    fetched = pace.went_well(fetch(hub, home, TOKEN))
    assert "tokenizer.json arrived damaged: it is fetched again" in fetched.stderr
    assert [entry for entry in hub.requests() if str(entry["range"]).startswith("bytes=")]
    assert size <= hub.bytes_sent("model.safetensors") < 1.4 * size, "half of it came twice"
    ours = home / "models/base" / NAME / "model.safetensors"
    assert hashlib.sha256(ours.read_bytes()).digest() == hashlib.sha256(theirs.read_bytes()).digest()
    left = [Path(folder, name) for folder, _, names in os.walk(home) for name in names]
    assert not [path for path in left if TOKEN.encode() in path.read_bytes()]
    hub.behave(**GATED)
    assert fetch(hub, home).returncode == 0
    assert hub.requests() == [], "nobody asks the hub for what is here"
