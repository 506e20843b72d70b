"""What is fetched of a model: its tokenizer alone, or what a list from elsewhere says."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from train.errors import BadInput
from train.models import fetch
from train.models.fetch import Listing, Wanted

OURS = (".motley-hashes.json", ".motley-source.json")
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.json", "chat.jinja")


def test_a_tokenizer_comes_without_its_model(tmp_path, monkeypatch):
    brought: list[tuple[Listing, Path]] = []
    files = [Wanted(name, 1, None, None) for name in FILES]
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    monkeypatch.setattr(fetch, "list_hub", lambda repo, kind: Listing(repo, kind, "main", files))
    monkeypatch.setattr(fetch, "bring", lambda *what: brought.append(what))
    found = fetch.fetch_tokenizer("owner/large-model")
    [(listing, folder)] = brought
    assert [file.name for file in listing.files] == [name for name in FILES if "safetensors" not in name]
    assert folder == tmp_path / "models/tokenizers/owner--large-model" and found["folder"] == str(folder)


def test_what_the_hub_does_not_have_cannot_be_fetched():
    with pytest.raises(BadInput, match="tiny is no model of the hub"):
        fetch.fetch_tokenizer("tiny")


@pytest.mark.parametrize("name", ["../../../x.jsonl", "/abs/x.jsonl", "data/../../x"])
def test_no_file_of_the_hub_lies_outside_its_folder(name):
    told = json.loads(json.dumps(listed(b"")).replace("config.json", name))
    with pytest.raises(BadInput, match="outside its folder"):
        fetch.fetch_listed("owner/small", told)


def listed(content: bytes) -> dict[str, object]:
    """As a controller has listed it, and sends it to a machine that fetches by itself."""
    files = [
        {"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "git": None}
        for name in ("config.json", "model.safetensors")
    ]
    listing = {"repo": "owner/small", "kind": "model", "revision": "abc", "files": files, "closed": False}
    return dict(json.loads(json.dumps({"listing": listing, "token": ""})))


def test_what_a_list_says_is_fetched_and_nothing_that_differs_from_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    monkeypatch.setattr(fetch, "list_hub", lambda repo, kind: pytest.fail("the hub's own list is not asked for"))
    sent = [b"changed"]
    monkeypatch.setattr(fetch, "get", lambda listing, file, path: path.write_bytes(sent[0]))
    with pytest.raises(BadInput, match="arrived damaged twice"):
        fetch.fetch_listed("owner/small", listed(b"right!!"))
    sent[0] = b"right!!"
    found = fetch.fetch_listed("owner/small", listed(b"right!!"))
    assert (Path(found["folder"]) / "model.safetensors").read_bytes() == b"right!!"
    assert found["folder"] == str(tmp_path / "models/base/owner--small")


def test_what_is_left_of_another_revision_is_no_part_of_the_model(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    begun = tmp_path / "models/base/.owner--small.part"
    begun.mkdir(parents=True)
    for name in ("model-00001-of-00002.safetensors", ".model-00001-of-00002.safetensors.part", "config.json"):
        (begun / name).write_bytes(b"right!!")
    (begun / ".model.safetensors.part").write_bytes(b"rig")
    fetched: list[tuple[str, bool]] = []

    def get(listing, file, path):
        fetched.append((file.name, path.with_name(f".{path.name}.part").is_file()))
        path.with_name(f".{path.name}.part").rename(path)
        path.write_bytes(b"right!!")

    monkeypatch.setattr(fetch, "get", get)
    folder = Path(fetch.fetch_listed("owner/small", listed(b"right!!"))["folder"])
    assert fetched == [("model.safetensors", True)], "what was begun of this revision is continued"
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", *OURS}


def test_a_token_is_used_where_one_came_and_is_left_in_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "")
    used: list[str] = []
    monkeypatch.setattr(
        fetch, "get", lambda listing, file, path: (used.append(os.environ["HF_TOKEN"]), path.write_bytes(b"x"))
    )
    fetch.fetch_listed("owner/small", listed(b"x") | {"token": "hf_TokenOfATest"})
    assert set(used) == {"hf_TokenOfATest"}
    left = [file for file in tmp_path.rglob("*") if file.is_file() and b"hf_TokenOfATest" in file.read_bytes()]
    assert left == []
