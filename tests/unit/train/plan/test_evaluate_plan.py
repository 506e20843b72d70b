"""recipe=evaluate as a launch sees it: what the machines are brought, and how they are told."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from console import plan_view
from tests.support.plans import files_of, handed_on
from tests.unit.train.plan.test_own_recipe import decided
from tests.unit.train.plan.test_plan import look
from train.plan.settings.config import load_config
from train.plan.settings.evaluate import EvaluateConfig
from train.plan.settings.every_run import RunConfig

TASK = "task: mine\ndataset_path: json\ndataset_kwargs: {data_files: {test: mine.jsonl}}\ntest_split: test\n"


def asked(**values: object) -> dict[str, object]:
    return {"recipe": "evaluate", "model": "tiny", "tasks": "arc_easy", **values}


def test_the_harness_and_the_files_of_a_task_travel_and_the_head_reads_them_there(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(TASK)
    (tmp_path / "mine.jsonl").write_text("{}\n")
    found = decided(asked(tasks=f"arc_easy,{tmp_path}/mine.yaml", documents=20, shots=2), look(), look())
    data = handed_on(found, "tasks-1")
    [extra] = data.extra_environments
    assert (extra.folder, extra.sets, extra.imports, extra.layered) == ("extra/tasks", ["tasks"], ["lm_eval"], True)
    place = "/home/user/ai-cluster/data/raw/tasks-mine"
    [raw] = data.raw_parts
    assert raw.place == place and raw.dataset["folder"] == str(tmp_path)
    assert {f"--dataset={place}", "--tasks=arc_easy,mine.yaml", "--documents=20", "--shots=2"} <= {*data.prepare}
    assert data.calibrate == []
    settings = yaml.safe_load(files_of(data, "b")["config/training_config.yaml"])
    there = load_config(settings)
    assert isinstance(there, EvaluateConfig) and there.dataset.endswith("data/processed/tasks-1")
    assert json.dumps(there.scoped("math"))


def test_tasks_of_the_harness_need_no_file() -> None:
    found = decided(asked(), look())
    data = handed_on(found)
    assert data.raw_parts == [] and "--tasks=arc_easy" in data.prepare
    head = plan_view.lines(found)[0]
    assert head.endswith("asked arc_easy · in pieces of arc_easy") and "epoch" not in head


def test_it_counts_the_memory_of_requests_side_by_side() -> None:
    few, many = (decided(asked(requests_at_once=count), look()).fit.nodes[0].memory.total for count in (1, 64))
    assert few < many


def test_what_is_asked_follows_from_the_adapter() -> None:
    config: RunConfig = load_config(asked())
    assert isinstance(config, EvaluateConfig) and config.sides == ("base",)
