"""What a launch asks the hub: once for each repository, also where it does not answer; and what of a data set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console import hub
from console.controller_action import InfraStep
from console.infra import OnNode
from console.infra.machines import plan as plan_on_machines
from console.infra.machines.look import look as look_on_machines
from tests.support import pace, stand_ins
from tests.unit.train.plan.test_adapters import DESCENT, make
from train.errors import BadInput
from train.plan.model import data_sets
from train.plan.model.catalogue import FETCHED, resolve_model
from train.plan.model.sources import BaseModel

MODEL = BaseModel.of(resolve_model("me/model"))
CONFIG = {"model_type": "qwen3"}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions, in order; the hub has one model."""
    found: list[str] = []
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))

    def run(command: list[str], **_: Any) -> Any:
        found.append(command[command.index("--model") + 1])
        answer = {"ok": True, "config": str(tmp_path / "config.json"), "bytes": 7}
        answer = answer if found[-1] == "me/model" else {"ok": False, "failures": ["the hub is away"]}
        return SimpleNamespace(stdout=json.dumps(answer), stderr="")

    monkeypatch.setattr(hub.subprocess, "run", run)
    return found


def test_a_repository_is_asked_once_also_by_the_next_step(calls: list[str]) -> None:
    first = hub.Asked({})
    assert first.files(MODEL) == first.files(MODEL) == (CONFIG, 7)
    assert hub.Asked({}, first.answers).files(MODEL) == (CONFIG, 7)
    assert calls == ["me/model"]


def test_one_that_does_not_answer_is_not_waited_for_again(calls: list[str]) -> None:
    away = BaseModel.of(resolve_model("me/away"))
    asked: dict[str, Any] = {}
    for _ in range(2):
        step = hub.Asked({}, asked)
        with pytest.raises(BadInput, match="the hub is away"):
            step.files(away)
        asked = step.answers
    assert calls == ["me/away"]


def test_a_folder_is_read_each_time_it_may_have_changed(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(hub, "files", lambda model, _: (seen.append(model.folder), (CONFIG, 1))[1])
    asked = hub.Asked({})
    for _ in range(2):
        asked.files(BaseModel(name="mine", source="folder", reason="", folder="/mine"))
    assert (seen, calls, asked.answers) == (["/mine", "/mine"], [], {})


def test_what_the_look_has_heard_the_plan_does_not_ask_again(calls: list[str]) -> None:
    asked = {"values": {"model": "me/model", "dataset": "stdlib-qa"}}
    known = {"inventory_hostname": "a", "ansible_play_hosts": ["a", "b"], "hostvars": {"a": {}, "b": {}}}
    known["motley_request_checked"] = {"asked": asked}
    looked = look_on_machines(known, {"packages": []})
    assert looked == OnNode("launch_info", {"packages": [], "prove": CONFIG}, beside={"hub": answered()})
    known["hostvars"] = {"a": {"motley_plan_look": dict(looked.beside)}, "b": {"motley_plan_look": {}}}
    assert plan_on_machines.of_the_hub(known).files(MODEL) == (CONFIG, 7)
    assert calls == ["me/model"]


def test_a_second_plan_has_what_the_first_one_heard() -> None:
    hosts = {"a": {"motley_plan_decided": {"hub": answered()}}}
    known = {"inventory_hostname": "a", "ansible_play_hosts": ["a"], "hostvars": hosts}
    assert plan_on_machines.of_the_hub(known).answers == answered()


def answered() -> dict[str, Any]:
    return {"me/model": {"config": CONFIG, "bytes": 7}}


def test_what_the_controller_has_heard_stands_beside_the_nodes_result(monkeypatch: pytest.MonkeyPatch) -> None:
    class Look(InfraStep):
        step = "look"
        _task = SimpleNamespace(args={})

        def _execute_module(self, **_: Any) -> dict[str, Any]:
            return {"changed": True, "look": "of the node"}

    monkeypatch.setattr("console.controller_action.ActionBase.run", lambda *_: {})
    monkeypatch.setattr("console.controller_action.part", lambda *_: lambda *_: OnNode("m", {}, beside={"hub": {}}))
    known = {"hostvars": {"a": {}}, "inventory_hostname": "a"}
    assert Look.run(object.__new__(Look), None, known) == {"changed": True, "look": "of the node", "hub": {}}


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
