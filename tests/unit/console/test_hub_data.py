"""A data set and an adapter of the hub, by the lab's own one: what is refused before, and what is sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console import hub
from tests.support import pace, stand_ins
from tests.unit.train.plan.test_adapters import DESCENT, make
from train.errors import BadInput
from train.plan.model import data_sets
from train.plan.model.catalogue import FETCHED

ROOT = Path(__file__).parents[3]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The hub's folder, with a data set of two parts and an adapter."""
    for part in ("main", "socratic"):
        for split in ("train", "test"):
            file = tmp_path / f"hub/me/qa/{part}/{split}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"question": f"{part}?", "answer": split}) + "\n")
    make(tmp_path / "hub/me/adapter", DESCENT)
    monkeypatch.setattr(hub, "FETCHED", tmp_path / "fetched")
    with stand_ins.hub(tmp_path / "hub") as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
        yield tmp_path


def test_a_part_that_the_hub_does_not_have_is_one_sentence(there: Path) -> None:
    hub.require_data(data_sets.resolve("me/qa:main,stdlib-qa"), {})
    with pytest.raises(BadInput, match="me/qa has no part 'other': main, socratic"):
        hub.require_data(data_sets.resolve("stdlib-qa,me/qa?subset=other:2"), {})
    with pytest.raises(BadInput, match="me/qa has several parts: main, socratic"):
        hub.require_data(data_sets.resolve("me/qa[:5%]"), {})


def test_what_is_sent_of_it_is_known_at_the_head_as_a_data_set(there: Path) -> None:
    words = ["fetch", "--dataset", "me/qa:main", "--json"]
    done = pace.run(sys.executable, "-m", "train", *words, env=hub.environment())
    told = json.loads(done.stdout.splitlines()[-1])
    assert set(told["files"]) == {"main/train.jsonl", FETCHED}
    head = there / "head"
    for name, facts in told["files"].items():
        source = Path(told["folder"], name).read_bytes()
        assert len(source) == facts["size"]
        (head / name).parent.mkdir(parents=True, exist_ok=True)
        (head / name).write_bytes(source)
    found = data_sets.resolve(f"{head}[:5%]:2,stdlib-qa")
    assert found.parts[0].data.files == (head / "main/train.jsonl",) and found.parts[0].data.taken.end == "5%"


def test_an_adapter_of_the_hub_is_fetched_without_what_is_not_needed(there: Path) -> None:
    (there / "hub/me/base").mkdir()
    (there / "hub/me/base/config.json").write_text("{}")
    (there / "hub/me/adapter/training_args.bin").write_text("pickled")
    program = (
        "from pathlib import Path; from train.plan.model import adapters; "
        "a = adapters.find('me/adapter', Path('/nowhere')); print(a.hash, sorted(p.name for p in a.folder.iterdir()))"
    )
    done = pace.run(sys.executable, "-c", program, cwd=ROOT)
    assert "['adapter_config.json', 'adapter_model.safetensors', 'descent.json']" in done.stdout, done.stderr
    done = pace.run(sys.executable, "-c", program.replace("me/adapter", "me/base"), cwd=ROOT)
    assert "adapter: me/base is no adapter: it has no adapter_config.json" in done.stderr
