"""A file is read before anything is sent: what is in it, and the steps that follow; or what is wrong, and where."""

import json
from pathlib import Path
from typing import Any

import pytest

from train.data import look as looking
from train.data.convert_record import FORMATS, convert
from train.data.look import look
from train.data.split import split_of
from train.errors import BadInput
from train.plan.settings import request
from train.plan.settings.every_run import DATA_FORMATS

CHAT = [{"prompt": f"What is {number}?", "completion": str(number)} for number in range(60)]


def written(folder: Path, records: list[dict[str, Any]] | str, name: str = "my notes.jsonl") -> Path:
    text = records if isinstance(records, str) else "\n".join(json.dumps(one) for one in records)
    (folder / name).write_text(text)
    return folder / name


def seen(data: Path, **values: Any) -> dict[str, Any]:
    recipe = {"model": "tiny"} if "recipe" not in values else {}
    return look(request.read({"dataset": str(data), **recipe, **values}))


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        ({}, "50 steps"),
        ({"max_steps": 7}, "7 steps"),
        ({"epochs": 2, "rows_per_step": 4}, "27 steps at most, as short examples share a row"),
        ({"rows_per_step": 1}, "54 steps at most, as short examples share a row"),
    ],
)
def test_examples_and_steps(tmp_path, values, steps):
    found = seen(written(tmp_path, CHAT), **values)
    assert found["words"] == f"60 examples: 6 held out, 54 trained on; {steps}"


def test_a_few_bad_lines_are_skipped_and_named(tmp_path):
    data = written(tmp_path, CHAT)
    data.write_text('{"prompt": "half\n' + data.read_text())
    found = seen(data)
    assert (found["examples"], found["skipped"]) == (60, 1)
    why = "my notes.jsonl line 1: not JSON: Unterminated string starting at character 12"
    assert found["first_bad"] == why
    assert found["words"] == f"61 records: 1 skipped ({why}), 6 held out, 54 trained on; 50 steps", "it adds up"


def test_a_record_without_a_column_that_others_have_is_skipped(tmp_path):
    records = [{"q": f"What is {n}?", "a": f"It is {n}."} for n in range(60)]
    data = written(tmp_path, [*records[:50], {"q": "x"}, *records[50:]])
    found = look(request.read({"model": "tiny", "dataset": f"{data}?prompt=q&completion=a"}))
    assert (found["examples"], found["skipped"]) == (60, 1)
    assert found["first_bad"] == "my notes.jsonl line 51: there is no column 'a'"


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        (
            '{"prompt": "Größe", "completion": "Maß"}\n'.encode("latin-1") * 9,
            "iconv -f windows-1252 -t utf-8 'notes.jsonl'",
        ),
        (b'{"frage": "x", "antwort": "y"}\n', "--dataset 'notes.jsonl?prompt=frage&completion=antwort'"),
        (b'[{"prompt": "x", "completion": "y"}]\n', "call it notes.json"),
    ],
)
def test_the_fix_is_one_to_type(tmp_path, content, fix):
    (tmp_path / "notes.jsonl").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        look(request.read({"model": "tiny", "dataset": str(tmp_path / "notes.jsonl")}))
    assert fix in str(caught.value)


def test_of_a_large_file_the_beginning_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(looking, "LOOK_BYTES", 1000)
    found = seen(written(tmp_path, CHAT))
    assert not found["whole"] and 0 < found["examples"] < 60 and found["steps"] == looking.LATER


def test_of_a_part_of_a_large_file_the_beginning_of_that_part_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(looking, "LOOK_BYTES", 400)
    data = written(tmp_path, CHAT)
    first_held_out = next(n for n in range(30, 60) if split_of(convert("prompt", CHAT[n]), 0.05) == "eval")
    found = seen(data, dataset=f"{data}[{first_held_out}:]", eval_fraction=0.05)
    assert not found["whole"] and 4 < found["examples"] < 20


def test_bad_records_at_the_beginning_of_a_part_are_a_part_of_that(tmp_path):
    records = [{"prompt": f"What is {number}?", "completion": str(number)} for number in range(1000)]
    records[900:910] = [{"prompt": "", "completion": "x"}] * 10
    data = written(tmp_path, records)
    found = seen(data, dataset=f"{data}[90%:]", max_bad=0.2)
    assert (found["examples"], found["skipped"]) == (90, 10)


@pytest.mark.parametrize(
    ("content", "values", "wrong"),
    [
        ("", {}, r"the data set is empty\nfile: .*my notes.jsonl\n"),
        ('{"prompt": "x\n' * 6, {}, r"6 bad records of 6; the first: my notes.jsonl line 1: not JSON.*\nfile: .*my n"),
        ('{"prompt": "x", "completion": ""}\n', {}, "no usable record: my notes.jsonl line 1: the answer is empty"),
        ('\n{"a": 1}\n', {}, r"no known format has the keys a\nfile: .*my notes.jsonl, line 2\n"),
        (CHAT, {"eval_fraction": 0.9999}, r"all usable records are held out .*\n.*\n.*--set eval_fraction="),
        ('{"prompt"\n{"prompt": "x", "completion": "y"}\n', {"eval_fraction": 0.9999}, r"held out .*line 1: not JSON"),
        (CHAT[:2], {"recipe": "sweep", "search": "lora_r=4,8"}, r"no rows are held out, and trials .*\n.*\n.*=0.2"),
        (CHAT[:2], {"patience": 2}, r"no rows are held out .*\n.*\n.*--set eval_fraction="),
    ],
)
def test_what_cannot_be_trained_on_is_refused(tmp_path, content, values, wrong):
    with pytest.raises(BadInput, match=wrong) as caught:
        seen(written(tmp_path, content), **values)
    assert len(str(caught.value).splitlines()) <= 3 and str(tmp_path) in str(caught.value)


def test_texts_of_a_new_model_are_counted(tmp_path):
    for number in range(5):
        written(tmp_path, f"Text {number}.", f"{number}.txt")
    found = seen(tmp_path, recipe="pretrain")
    assert found["words"].startswith("5 examples: 1 held out, 4 trained on; steps: known")


def test_what_is_not_read_here_is_left_to_the_head(tmp_path):
    assert look(request.read({"model": "tiny", "dataset": "stdlib-qa"})) == {}
    assert look(request.read({"model": "tiny", "dataset": "me/data"})) == {}
    assert seen(written(tmp_path, "PAR1", "my.parquet")) == {}


def test_prompts_are_counted_without_their_answers(tmp_path):
    prompts = [{"prompt": f"What is {number}?"} for number in range(60)]
    values = {"model": "tiny", "recipe": "grpo", "rewards": "length:9", "max_steps": 7}
    found = seen(written(tmp_path, prompts), **values)
    assert found["words"] == "60 examples: 3 held out, 57 trained on; 7 steps"
    turns = [{"prompt": [{"role": "user", "content": f"What is {n}?"}], "answer": str(n)} for n in range(60)]
    again = seen(written(tmp_path, turns), **values | {"rewards": "exact"})
    assert (again["examples"], again["held_out"]) == (60, 3), "by what is asked alone"
    assert seen(written(tmp_path, CHAT), **values)["examples"] == 60
    by_epochs = values | {"max_steps": None, "rows_per_step": 16, "epochs": 3}
    assert seen(written(tmp_path, prompts), **by_epochs)["steps"] == "86 steps", "of two prompts in groups of 8"
    with pytest.raises(BadInput, match="exact compares with the column answer, which the data does not have"):
        seen(written(tmp_path, prompts), **values | {"rewards": "exact"})


def test_a_format_that_is_named_is_the_one_that_is_read(tmp_path):
    """The first record has the keys of two."""
    data = tmp_path / "both.jsonl"
    data.write_text(json.dumps({"text": "a page", "prompt": "a?", "completion": ""}) + "\n")
    with pytest.raises(BadInput, match=r"no usable record: both\.jsonl line 1: the answer is empty"):
        seen(data, model="tiny", eval_fraction=0)
    found = seen(data, model="tiny", eval_fraction=0, format="text")
    assert (found["examples"], found["steps"]) == (1, looking.LATER), "its tokens alone show how many rows a text is"
    assert tuple(FORMATS) == DATA_FORMATS, "a launch knows the names of all formats"
