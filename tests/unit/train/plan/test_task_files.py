"""A task of one's own: what is read of its YAML, what travels with it, and what is refused."""

from pathlib import Path

import pytest

from train.errors import BadInput
from train.plan.settings import request, task_files

GOOD = "task: mine\ndataset_path: json\ndataset_kwargs: {data_files: {test: mine.jsonl}}\ntest_split: test\n"


def write(folder: Path, text: str = GOOD, name: str = "mine.yaml") -> Path:
    (folder / "mine.jsonl").write_text("{}\n")
    (folder / name).write_text(text)
    return folder / name


def test_what_it_includes_and_its_data_travel_with_it(tmp_path: Path) -> None:
    write(tmp_path)
    file = write(tmp_path, "include: mine.yaml\ntask: other\nnum_fewshot: 3\n", "other.yaml")
    task = task_files.read(file)
    assert [path.name for path in task.files] == ["other.yaml", "mine.yaml", "mine.jsonl"]
    assert task.name == "other" and task.config["test_split"] == "test"
    assert task_files.placed(task.config, tmp_path)["dataset_kwargs"] == {
        "data_files": {"test": str(tmp_path / "mine.jsonl")}
    }


def test_a_data_set_of_the_hub_needs_no_file(tmp_path: Path) -> None:
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
def test_what_is_refused(line: str, tmp_path: Path) -> None:
    key = line.partition(":")[0]
    kept = "".join(one + "\n" for one in GOOD.splitlines() if not one.startswith(f"{key}:"))
    with pytest.raises(BadInput) as refused:
        task_files.read(write(tmp_path, kept + line + "\n"))
    assert BAD[line] in str(refused.value) + "\n"


def asked(**values: str) -> request.Request:
    return request.read({"recipe": "evaluate", "model": "tiny", **values})


def test_the_files_of_all_tasks_are_the_data_of_the_launch(tmp_path: Path) -> None:
    file = write(tmp_path)
    found = asked(tasks=f"arc_easy, {file}")
    assert found.dataset.folder == tmp_path and {path.name for path in found.dataset.files} == {
        "mine.yaml",
        "mine.jsonl",
    }
    assert "--tasks=arc_easy,mine.yaml" in found.config.prepare_words("models/base/tiny")
    assert asked(tasks="arc_easy").dataset.embedded


def test_a_launch_without_tasks_or_with_files_in_two_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(BadInput, match="tasks: none is named"):
        asked()
    with pytest.raises(BadInput, match="in several folders"):
        asked(tasks=f"{write(tmp_path)},{write(tmp_path / 'a')}")
