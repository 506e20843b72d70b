"""recipe=evaluate in a launch: a task of one's own, what travels with it, what is refused, what nodes are told."""

import json
from pathlib import Path

import pytest
import yaml

from console import plan_view
from tests.support.plans import decided, files_of, handed_on, look
from train.errors import BadInput
from train.plan.settings import request, task_files
from train.plan.settings.read_settings import load_config

GOOD = "task: mine\ndataset_path: json\ndataset_kwargs: {data_files: {test: mine.jsonl}}\ntest_split: test\n"


def write(folder: Path, text: str = GOOD, name: str = "mine.yaml") -> Path:
    (folder / "mine.jsonl").write_text("{}\n")
    (folder / name).write_text(text)
    return folder / name


def test_what_it_includes_and_its_data_travel_with_it(tmp_path):
    write(tmp_path)
    file = write(tmp_path, "include: mine.yaml\ntask: other\nnum_fewshot: 3\n", "other.yaml")
    task = task_files.read(file)
    assert [path.name for path in task.files] == ["other.yaml", "mine.yaml", "mine.jsonl"]
    assert task.name == "other" and task.config["test_split"] == "test"
    assert task_files.placed(task.config, tmp_path)["dataset_kwargs"] == {
        "data_files": {"test": str(tmp_path / "mine.jsonl")}
    }


def test_a_data_set_of_the_hub_needs_no_file(tmp_path):
    file = write(tmp_path, "task: mine\ndataset_path: allenai/ai2_arc\ndataset_name: ARC-Easy\n")
    assert task_files.read(file).files == (file,)


BAD = {
    "doc_to_text: !function mine.text": "mine.yaml, line 5\n",
    "class: mine.Task": "class: names code",
    "custom_dataset: mine.data": "custom_dataset: names code",
    "unsafe_code: true": "unsafe_code: what a model writes is not run",
    "doc_to_image: picture": "doc_to_image: tasks of pictures",
    "group: all": "this file is a group of tasks",
    "task: ../mine": "task: '../mine' is no name",
    "dataset_path: ./mine.py": "dataset_path: ./mine.py is neither",
    "dataset_path: 3": "dataset_path is missing",
    "dataset_kwargs: {}": "data_files is missing",
    "dataset_kwargs: mine.jsonl": "dataset_kwargs: it is not NAME: VALUE",
    "since: 2026-13-45": "is not YAML",
    "since: !!int ''": "is not YAML",
    "since: " + 2000 * "[": "is not YAML",
    "dataset_kwargs: {data_files: /etc/passwd}": "/etc/passwd lies elsewhere",
    "dataset_kwargs: {data_files: ../mine.jsonl}": "../mine.jsonl lies elsewhere",
    "dataset_kwargs: {data_files: 'https://example.org/a.jsonl'}": "lies elsewhere",
    "dataset_kwargs: {data_files: none.jsonl}": "there is no file",
    "dataset_kwargs: {data_files: mine.jsonl, trust_remote_code: true}": "trust_remote_code: code of a data set",
    "include: ../other.yaml": "../other.yaml lies elsewhere",
    "include: mine.yaml": "include: leads back to this file",
    "a: [": "is not YAML",
    "doc_to_text: !!python/name:os.system": "is not YAML",
}


@pytest.mark.parametrize("line", BAD)
def test_what_is_refused(line, tmp_path):
    key = line.partition(":")[0]
    kept = "".join(one + "\n" for one in GOOD.splitlines() if not one.startswith(f"{key}:"))
    with pytest.raises(BadInput) as refused:
        task_files.read(write(tmp_path, kept + line + "\n"))
    assert BAD[line] in str(refused.value) + "\n"


def test_a_launch_without_tasks_with_data_or_with_files_in_two_folders_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(BadInput, match=r"tasks: 'arc_easy hellaswag' is no name\ntasks=arc_easy,hellaswag"):
        request.read(asked(tasks="arc_easy hellaswag"))
    with pytest.raises(BadInput, match="tasks: none is named"):
        request.read({"recipe": "evaluate", "model": "tiny"})
    with pytest.raises(BadInput, match="dataset: recipe=evaluate reads what its tasks name"):
        request.read(asked(dataset="stdlib-qa"))
    with pytest.raises(BadInput, match="in several folders"):
        request.read(asked(tasks=f"{write(tmp_path)},{write(tmp_path / 'a')}"))


def asked(**values: object) -> dict[str, object]:
    return {"recipe": "evaluate", "model": "tiny", "tasks": "arc_easy", **values}


def test_the_harness_and_the_files_of_a_task_travel_and_the_head_reads_them_there(tmp_path):
    found = decided(asked(tasks=f"arc_easy, {write(tmp_path)}", documents=20, shots=2), look(), look())
    data = handed_on(found, "tasks-1")
    [extra] = data.extra_environments
    assert (extra.folder, extra.sets, extra.imports, extra.layered) == ("extra/tasks", ["tasks"], ["lm_eval"], True)
    place = "/home/user/ai-cluster/data/raw/tasks-mine"
    [raw] = data.raw_parts
    assert raw.place == place and raw.dataset["folder"] == str(tmp_path)
    assert sorted(raw.dataset["files"]) == ["mine.jsonl", "mine.yaml"]
    assert {f"--dataset={place}", "--tasks=arc_easy,mine.yaml", "--documents=20", "--shots=2"} <= {*data.prepare}
    assert data.calibrate == []
    settings = yaml.safe_load(files_of(data, "b")["config/training_config.yaml"])
    there = load_config(settings)
    assert there.dataset.endswith("data/processed/tasks-1")
    assert json.dumps(there.scoped("math"))


def test_tasks_of_the_harness_need_no_file():
    found = decided(asked(), look())
    data = handed_on(found)
    assert data.raw_parts == [] and "--tasks=arc_easy" in data.prepare
    head = plan_view.lines(found)[0]
    assert head.endswith("asked arc_easy · in pieces of arc_easy") and "epoch" not in head


def test_it_counts_the_memory_of_requests_side_by_side():
    few, many = (decided(asked(requests_at_once=count), look()).fit.nodes[0].memory.total for count in (1, 64))
    assert few < many


def test_what_is_asked_follows_from_the_adapter():
    assert load_config(asked()).sides == ("base",)
