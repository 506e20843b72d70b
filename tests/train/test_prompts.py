"""Prompts on disk: what becomes of records, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.train import cluster
from train.data.rows import open_rows
from train.data.to_tokens import load_chat
from train.errors import BadInput
from train.plan.model.catalogue import resolve_model
from train.plan.settings.read_settings import GrpoConfig
from train.recipes.grpo.rows import open_prompts, prepare

RECORDS = [
    {"prompt": "What is 1 + 1?", "answer": "2", "level": 3},
    {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And 2 + 2?"}], "answer": "4"},
    {"question": "What is 3 + 3?", "answer": "6"},
    {"messages": [{"role": "user", "content": "4 + 4?"}, {"role": "assistant", "content": "8"}]},
    {"instruction": "What is 5 + 5?", "output": "10"},
]


def made(folder: Path, records=RECORDS, **settings) -> Path:
    data = cluster.write_records(folder / "data.jsonl", records)
    values = {"dataset": str(data), "eval_fraction": 0.0, "rewards": "exact"} | settings
    return prepare(GrpoConfig(**values), print, out=str(folder / "rows"))


def test_each_form_of_a_question_is_a_prompt_with_its_columns(tmp_path):
    rows = open_prompts(made(tmp_path), "train", 128)
    rows.verify()
    records = [rows.record(index) for index in range(len(rows))]
    assert [record["columns"].get("answer") for record in records] == ["2", "4", "6", "8", "10"]
    assert records[0] == {"prompt": "What is 1 + 1?", "columns": {"answer": "2", "level": 3}}
    assert [type(record["prompt"]) for record in records] == [str, list, str, str, str]
    chat = load_chat(resolve_model("tiny"))
    texts = [chat.tokenizer.decode(rows.prompt(index)) for index in range(2)]
    assert texts[0] == "<s>user\nWhat is 1 + 1?</s><s>assistant\n"
    assert texts[1] == "<s>system\nBe brief.</s><s>user\nAnd 2 + 2?</s><s>assistant\n"
    assert rows.end_ids == (chat.tokenizer.eos_token_id,)
    assert rows.row_length == max(len(rows.prompt(index)) for index in range(5)) + 128


def test_what_the_assistant_may_call_stands_in_the_prompt(tmp_path):
    template = tmp_path / "mine.jinja"
    template.write_text("{{ tools | tojson if tools }}{% for m in messages %}{{ m['content'] }}</s>{% endfor %}")
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    record = {"messages": [{"role": "user", "content": "Where?"}], "tools": tools, "answer": "2"}
    rows = open_prompts(made(tmp_path, [record], chat_template=str(template)), "train", 8)
    assert load_chat(resolve_model("tiny")).tokenizer.decode(rows.prompt(0)) == f"{json.dumps(tools)}Where?</s>"
    assert rows.record(0)["columns"] == {"answer": "2"}


def test_a_batch_ends_where_the_answers_begin(tmp_path):
    rows = open_prompts(made(tmp_path), "train", 8)
    batch = rows.batch([1, 0])
    assert batch["input_ids"][:, -1].tolist() == [rows.prompt(1)[-1], rows.prompt(0)[-1]]
    assert batch["attention_mask"].sum(axis=1).tolist() == [len(rows.prompt(1)), len(rows.prompt(0))]
    assert rows.token_count([1, 0]) == int(batch["attention_mask"].sum())
    assert not rows.targets.any() and rows.targets.dtype == np.int32


def test_the_same_question_is_on_one_side(tmp_path):
    records = [{"prompt": f"What is {n % 40} + 1?", "answer": str(n)} for n in range(200)]
    folder = made(tmp_path, records, eval_fraction=0.3)
    train, held_out = (open_prompts(folder, split, 8) for split in ("train", "eval"))
    asked, kept = ({rows.record(row)["prompt"] for row in range(len(rows))} for rows in (train, held_out))
    assert asked and kept and not asked & kept


EMPTY = [
    ({"prompt": ""}, "the prompt is empty"),
    ({"prompt": [{"role": "user", "content": " "}]}, "the prompt is empty"),
    ({"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "8"}]}, "the prompt is empty"),
    ({"instruction": "", "output": "3"}, "the question is empty"),
    ({"prompt": []}, "there is no question in it"),
    ({"prompt": None}, "'prompt' is not text but NoneType"),
]
NO_ROOM = ({"prompt": "why " * 200}, "raise max_seq_length")
CUT_EMOJI = ({"prompt": "What is 1?", "answer": "\ud83d"}, r"half a character (\ud83d")


@pytest.mark.parametrize(("record", "said"), [*EMPTY, NO_ROOM, CUT_EMOJI])
def test_a_prompt_that_cannot_be_used_is_left_out_and_named(record, said, tmp_path):
    folder = made(tmp_path, [*RECORDS, {"answer": "1"} | record], max_seq_length=160, max_new_tokens=64, max_bad=2)
    index = json.loads((folder / "index.json").read_text())
    assert (index["splits"]["train"]["rows"], index["records"]["bad"]) == (5, 1)
    assert said in index["records"]["first_bad"][0]


def test_a_column_that_a_reward_needs_must_be_there(tmp_path):
    with pytest.raises(BadInput, match="exact compares with the column answer"):
        made(tmp_path, [{"prompt": "What is 1?"}] * 3)


def test_a_file_of_rewards_lies_beside_the_rows(tmp_path):
    (tmp_path / "mine.py").write_text("def short(completions):\n    return [0.0 for _ in completions]\n")
    folder = made(tmp_path, rewards=str(tmp_path / "mine.py"))
    assert (folder / "rewards.py").read_text() == (tmp_path / "mine.py").read_text()


def test_rows_of_another_kind_are_refused(tmp_path):
    prompts = made(tmp_path)
    with pytest.raises(BadInput, match="these rows are prompts without answers"):
        open_rows(prompts)
    (tmp_path / "text").mkdir()
    with pytest.raises(BadInput, match="these rows are no prompts"):
        open_prompts(cluster.make_rows(tmp_path / "text", 4, 1), "train", 8)
    (prompts / "train" / "tokens.bin").write_bytes(b"\1\2" * 40)
    with pytest.raises(BadInput, match="the prepared prompts are damaged"):
        open_prompts(prompts, "train", 8).verify()
