"""What is fetched of a model of which the tokenizer alone is wanted."""

from pathlib import Path

import pytest

from train.errors import BadInput
from train.models import fetch
from train.models.fetch import Listing, Wanted

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.json", "chat.jinja")


def test_a_tokenizer_comes_without_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[tuple[list[str], Path]] = []
    files = [Wanted(name, 1, None, None) for name in FILES]
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    monkeypatch.setattr(fetch, "list_hub", lambda repo, kind: Listing(repo, kind, "main", files))
    monkeypatch.setattr(
        fetch, "bring", lambda listing, folder: brought.append(([f.name for f in listing.files], folder))
    )
    found = fetch.fetch_tokenizer("owner/large-model")
    assert brought == [
        ([name for name in FILES if "safetensors" not in name], tmp_path / "models/tokenizers/owner--large-model")
    ]
    assert found["folder"] == str(brought[0][1])


def test_what_the_hub_does_not_have_cannot_be_fetched() -> None:
    with pytest.raises(BadInput, match="tiny is no model of the hub"):
        fetch.fetch_tokenizer("tiny")
