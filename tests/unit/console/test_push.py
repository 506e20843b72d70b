"""A result goes to the hub after a question, and what is there is what was sent. The lab's hub takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console import push
from console.command_line.verbs import parser
from lab.hub import LARGE_BYTES, Handler
from tests.support import stand_ins
from train.errors import BadInput, CheckFailed

TOKEN = "hf_of_a_test"
CARD = "---\nlibrary_name: peft\nbase_model: Qwen/Qwen3-0.6B\n---\n# notes\n"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What the hub has."""
    with stand_ins.hub(tmp_path / "hub", json.dumps({"token": TOKEN})) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield tmp_path / "hub"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A fetched run."""
    made = tmp_path / "results/notes/adapter"
    made.mkdir(parents=True)
    (made / "adapter_model.safetensors").write_bytes(bytes(range(256)) * (LARGE_BYTES // 256 + 40))
    (made / "adapter_config.json").write_text('{"r": 16}')
    (made / "README.md").write_text(CARD)
    (tmp_path / "results/notes/events.jsonl").write_text("{}\n")
    return tmp_path / "results"


def send(results: Path, to: str = "hub:anna/notes", run: str = "notes", **values: str) -> int:
    return push.push(to, run, results, values, yes=True)


def sent(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}


def asked(folder: Path) -> list[str]:
    file = folder / "requests.jsonl"
    return [json.loads(line)["path"] for line in file.read_text().splitlines()] if file.exists() else []


def test_what_is_there_is_what_was_sent_also_over_what_was_there_before(
    there: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert send(results) == 0
    assert sent(there / "anna/notes") == sent(results / "notes/adapter")
    said = capsys.readouterr().out
    assert "adapter_model.safetensors" in said and "sent: 3 files" in said
    assert "private unless it is there already" in said
    (results / "notes/adapter/README.md").write_text(CARD + "two")
    assert send(results, run="") == 0, "the newest that was fetched"
    assert sent(there / "anna/notes")["README.md"].endswith(b"two")


def test_without_a_yes_the_hub_is_asked_nothing(there: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert push.push("hub:anna/notes", "notes", results, {}, yes=False) == 1
    assert not (there / "anna").exists() and asked(there) == []
    assert "nothing was sent (without a terminal: --yes)" in capsys.readouterr().out


def test_a_token_that_may_not_write_is_refused(there: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(CheckFailed, match=r"(?s)the hub did not take anna/notes: .*401.*fix: may the token") as refused:
        send(results)
    assert "hf_other" not in str(refused.value) and not (there / "anna").exists()


def test_a_file_that_came_damaged_is_noticed(there: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Handler._commit

    def damaged(self: Any, folder: Path, body: bytes) -> None:
        commit(self, folder, body)
        file = folder / "adapter_model.safetensors"
        file.write_bytes(b"x" + file.read_bytes()[1:])

    monkeypatch.setattr(Handler, "_commit", damaged)
    with pytest.raises(CheckFailed, match=r"adapter_model.safetensors is not there as it was sent"):
        send(results)


@pytest.mark.parametrize(
    ("to", "run", "said"),
    [
        ("hub:anna", "notes", "'anna' names no repository of the hub"),
        ("hub:anna/notes/x", "notes", "names no repository"),
        ("hub:../notes", "notes", "names no repository"),
        ("hub:anna/notes", "other", "(?s)the result of other is not here.*fix: ./motley fetch other"),
    ],
)
def test_what_cannot_be_sent(to: str, run: str, said: str, there: Path, results: Path) -> None:
    with pytest.raises(BadInput, match=said):
        send(results, to, run)
    assert asked(there) == []


def test_without_a_token_it_says_where_one_goes(there: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(BadInput, match=r"(?s)without a token.*HF_TOKEN=… before the command; of the type Write"):
        send(results)
    assert send(results, motley_hub_token=TOKEN) == 0


def test_the_form_is_one_that_is_known() -> None:
    takes = parser("export")
    for words in (["hub:anna/notes"], ["--to", "hub:anna/notes"]):
        assert takes.parse_args(words).to == "hub:anna/notes"
    with pytest.raises(SystemExit):
        takes.parse_args(["--to", "hub-anna/notes"])
