"""`dataset=` as a person writes it: what is meant, what a launch brings and says, and what is refused before that."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from console.infra.kubernetes.objects import steps
from tests.support.cluster import REPOSITORY
from tests.support.plans import decided, handed_on, ran
from tests.support.plans import look as node
from train.data.look import look
from train.errors import BadInput
from train.plan.model import data_sets
from train.plan.model.catalogue import Taken
from train.plan.settings import request
from train.recipes.model_card import about_data


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where somebody types, with two files of their own."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("a", 40), ("b", 20)):
        records = [{"question": f"{name} {number}?", "reply": str(number), "note": "x"} for number in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


COLUMNS = "?prompt=question&completion=reply"


def test_several_with_weights_parts_and_columns(folder):
    text = "a.jsonl:2, b.jsonl[:5%]?prompt=question:0,openai/gsm8k:main/train[:10]:0.5,stdlib-qa"
    found = data_sets.resolve(text)
    assert [(part.data.name, part.weight) for part in found.parts] == [
        ("a", 2), ("b", 0), ("gsm8k-main-train", 0.5), ("stdlib-qa", 1),
    ]  # fmt: skip
    taken = [part.data.taken for part in found.parts]
    assert taken[1] == Taken(end="5%", columns={"prompt": "question"}) and taken[2] == Taken(end="10")
    assert found.parts[2].data.hub == "openai/gsm8k:main/train" and found.name == "a+b+gsm8k-main-train+stdlib-qa"
    same = data_sets.resolve("openai/gsm8k?subset=main&split=train[:10]")
    assert (same.hub, same.taken, same.parts) == ("openai/gsm8k:main/train", Taken(end="10"), ())


def test_a_file_is_meant_as_it_is_called(folder):
    for name in ("a,b.jsonl", "odd:2.jsonl", "b.jsonl:2", "what[:3].jsonl"):
        (folder / name).write_text("{}")
        found = data_sets.resolve(name)
        assert found.file == Path(name) and not found.parts
        assert data_sets.files_here(name) == [Path(name)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.jsonl:-1,b.jsonl", "a.jsonl has the weight -1"),
        ("a.jsonl:nan,b.jsonl", "a.jsonl has the weight nan"),
        ("a.jsonl:1e300,b.jsonl", "a.jsonl has the weight 1e+300"),
        ("a.jsonl:0,b.jsonl:0", "all weights are 0, so there is nothing to train on"),
        ("a.jsonl,,b.jsonl", "a comma too many"),
        ("a.jsonl,c.jsonl", "there is no file c.jsonl"),
        ("a.jsonl,./a.jsonl", "two of them are called a"),
        ("a.jsonl?prompt", "'prompt' in 'a.jsonl?prompt' names no column"),
        ("a.jsonl[5]", "is cut in a way that is not known"),
        (",".join(["stdlib-qa"] * 30), "these are 30 data sets"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(folder, text, said):
    with pytest.raises(BadInput, match=re.escape(said)) as refused:
        request.read({"model": "tiny", "dataset": text})
    assert len(str(refused.value).splitlines()) <= 2


def seen(text: str, **values: Any) -> str:
    return str(look(request.read({"model": "tiny", "dataset": text, "eval_fraction": 0, **values}))["words"])


def test_a_launch_reads_all_of_them_before_anything_is_sent(folder):
    assert seen(f"a.jsonl{COLUMNS}:2,b.jsonl[5:]{COLUMNS}", epochs=3, rows_per_step=5) == (
        "a × 2: 40 examples: 0 held out, 40 trained on; b × 1: 15 examples: 0 held out, 15 trained on; "
        "57 steps at most, as short examples share a row"
    )
    assert seen(f"a.jsonl[10%:50%]{COLUMNS}").startswith("16 examples")
    assert seen(f"a.jsonl[:7]{COLUMNS}", recipe="grpo", rewards="length:9").startswith("7 ex")
    for text, said in (
        (f"a.jsonl{COLUMNS},b.jsonl?prompt=asked", "there is no column 'asked'"),
        (f"a.jsonl{COLUMNS},b.jsonl[30:30]{COLUMNS}", r"of \[30:30\] no record is left"),
        (f"a.jsonl{COLUMNS},b.jsonl[30:]{COLUMNS}", "the data set has no usable record"),
        ("a.jsonl,stdlib-qa", "no known format has the keys question, reply, note"),
    ):
        with pytest.raises(BadInput, match=said):
            seen(text)


def test_a_run_by_preferences_reads_each_of_its_pairs(folder):
    pair = {"prompt": "Where?", "chosen": "In the hall.", "rejected": "Hall."}
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair | {"prompt": f"{n}?"}) + "\n" for n in range(8)))
    (folder / "more.jsonl").write_text("".join(json.dumps(pair | {"prompt": f"{n}!"}) + "\n" for n in range(4)))
    asked = {"recipe": "preference", "epochs": 4, "rows_per_step": 5}
    assert seen("pairs.jsonl:2,more.jsonl:0.5", **asked) == (
        "pairs × 2: 8 examples: 0 held out, 8 trained on; more × 0.5: 4 examples: 0 held out, 4 trained on; 15 steps"
    )
    (folder / "single.jsonl").write_text('{"prompt": "a", "completion": "b", "label": true}\n')
    with pytest.raises(BadInput, match=r"the loss takes chosen and rejected: .*\nfound: single.jsonl line 1"):
        seen("pairs.jsonl,single.jsonl", **asked)


def test_each_is_brought_to_the_head_and_named_there(folder):
    text = f"a.jsonl[:5%]{COLUMNS}:2,stdlib-qa:0.5,openai/gsm8k:main/train"
    found = handed_on(decided({"model": "tiny", "dataset": text, "max_steps": 9}, node(), node()))
    raw = "/home/user/ai-cluster/data/raw"
    assert [(part.dataset["name"], part.place) for part in found.raw_parts] == [
        ("a", f"{raw}/a"), ("gsm8k-main-train", f"{raw}/openai--gsm8k--main--train"),
    ]  # fmt: skip
    assert found.raw_parts[0].dataset["file"] == str(folder / "a.jsonl")
    wanted = f"{raw}/a/a.jsonl[:5%]{COLUMNS}:2,stdlib-qa:0.5,{raw}/openai--gsm8k--main--train:1"
    assert f"--dataset={wanted}" in found.prepare
    with pytest.raises(BadInput, match="a pod takes one data set"):
        steps(found)


def test_a_node_does_not_choose_a_file_of_this_computer_among_several(folder):
    asked = {"model": "tiny", "dataset": f"stdlib-qa,b.jsonl{COLUMNS}:2", "max_steps": 9, "run": "x"}
    there = ran(decided(asked, node()))
    with pytest.raises(BadInput, match="dataset: the nodes say that x was launched with"):
        decided({"resume": "x"}, there)


def test_paths_are_those_of_where_it_was_typed(folder, monkeypatch):
    monkeypatch.chdir("/")
    text = f"a.jsonl:2,b.jsonl[:5%]{COLUMNS}:0.5,stdlib-qa,owner/name:0.5"
    assert data_sets.moved(text, folder) == (
        f"{folder}/a.jsonl:2,{folder}/b.jsonl[:5%]{COLUMNS}:0.5,stdlib-qa,owner/name:0.5"
    )
    assert data_sets.moved("a.jsonl", folder) == f"{folder}/a.jsonl"
    assert data_sets.moved("a.jsonl, b.jsonl", folder) == f"{folder}/a.jsonl,{folder}/b.jsonl"
    assert data_sets.moved("a.jsonl,a.jsonl", folder) == f"{folder}/a.jsonl,{folder}/a.jsonl", "refused as it is typed"
    monkeypatch.setenv("HOME", str(folder))
    assert data_sets.moved("~/a.jsonl:2,stdlib-qa", Path("/")) == f"{folder}/a.jsonl:2,stdlib-qa"


def test_a_card_names_them_and_no_folder():
    text, hub = about_data("/home/me/secret/a.jsonl:2,owner/name:main/train:0.5,stdlib-qa")
    assert text == "`a × 2, owner/name:main/train × 0.5, stdlib-qa`" and hub == "owner/name"


@pytest.mark.parametrize("recipe", ["pretrain", "images", str(REPOSITORY / "examples/table.py")])
@pytest.mark.parametrize("folder", [".", "~", "/", ".."])
def test_a_whole_home_folder_is_no_data(recipe, folder, tmp_path, monkeypatch):
    """All that somebody has would be read, sent and trained on."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="your whole home folder"):
        request.read({"recipe": recipe, "dataset": folder})
