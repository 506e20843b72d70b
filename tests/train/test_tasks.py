"""Tasks of lm-evaluation-harness by pieces: the scores are those of lm_eval.simple_evaluate on one machine."""

import json
import math
import random
import statistics
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import lm_eval
import pytest
import torch

from tests.support import ROOT, pace, stand_ins
from tests.train import tasks_asked
from tests.train.cluster import Cluster, environment, flags, write_records
from train.__main__ import main
from train.plan.settings.read_settings import load_config
from train.recipes.evaluate import load_tasks, model, prepare, requests, score
from train.runlog import paths

SEED = 7
SEEDS = dict.fromkeys(("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed"), SEED)


@pytest.fixture(scope="module", autouse=True)
def _few_draws():
    """Of a bootstrapped error; the same for both sides of each comparison."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score, "DRAWS", 10)
        yield


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    return tasks_asked.write(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def options(own, tmp_path_factory) -> dict:
    adapter = tasks_asked.adapter(tmp_path_factory.mktemp("adapter") / "adapter")
    tasks = ",".join(tasks_asked.FILES)
    return {"recipe": "evaluate", "model": "tiny", "adapter": adapter, "tasks": tasks, "dataset": own, "seed": SEED}


@pytest.fixture(scope="module")
def asked(options) -> model.InBlocks:
    return model.load(load_config(options), "cpu", "fp32")


@pytest.fixture(scope="module")
def one_machine(asked, own) -> dict:
    """Of each side what the harness itself says, with its own order of requests."""
    found = {}
    for side in ("base", "adapter"):
        tasks = list(load_tasks.fetched(tasks_asked.FILES, own)[0]["tasks"].values())
        with asked.model.disable_adapter() if side == "base" else nullcontext():
            found[side] = lm_eval.simple_evaluate(asked, tasks=tasks, bootstrap_iters=score.DRAWS, **SEEDS)
    return found


@pytest.fixture(scope="module")
def prepared(options, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "tasks"
    return prepare.prepare(load_config(options), lambda _: None, out=str(out))


@pytest.mark.parametrize("share", [3, pytest.param(7, marks=pytest.mark.long)])
def test_however_it_is_cut_and_whatever_the_order_the_scores_are_those_of_one_machine(
    share, asked, prepared, one_machine
):
    loaded = load_tasks.kept(prepared)
    wanted = requests.build(loaded, limit=0, shots=None, seed=SEED)
    parts = requests.cut(wanted, share)
    mixed = [(part, side) for part in parts for side in ("base", "adapter")]
    random.Random(share).shuffle(mixed)
    said = {"base": {}, "adapter": {}}
    for part, side in mixed:
        documents = range(part.first, part.end)
        answers = json.loads(json.dumps(model.answers_to(asked, wanted, part.task, documents, side)))
        said[side].setdefault(part.task, []).append((documents, answers))
    found = {side: score.scores(loaded, said[side], limit=0) for side in said}
    for side, wanted_of_side in one_machine.items():
        assert found[side]["results"] == wanted_of_side["results"]
    assert found["base"]["results"] != found["adapter"]["results"]
    assert len(parts) >= {3: 4, 7: 6}[share]


def test_parts_are_whole_blocks_of_falling_cost_and_hold_each_document_once(prepared):
    wanted = requests.build(load_tasks.kept(prepared), limit=0, shots=None, seed=SEED)
    parts = requests.cut(wanted)
    for task in tasks_asked.TASKS:
        numbers = [number for part in parts if part.task == task for number in range(part.first, part.end)]
        assert numbers == list(range(tasks_asked.DOCUMENTS))
    assert all(part.first % requests.BLOCK == 0 for part in parts)
    assert parts[0].cost == max(part.cost for part in parts)
    assert prepare.read(prepared)["parts"] == [asdict(part) for part in parts]


def test_a_limit_and_shots_are_those_of_the_harness(asked, options, own, tmp_path):
    config = load_config(options | {"documents": 20, "shots": 1, "tasks": f"{own}/sums.yaml", "dataset": ""})
    loaded = load_tasks.kept(prepare.prepare(config, lambda _: None, out=str(tmp_path / "tasks")))
    wanted = requests.build(loaded, limit=20, shots=1, seed=SEED)
    answers = model.answers_to(asked, wanted, "sums", range(20), "adapter")
    found = score.scores(loaded, {"sums": [(range(20), answers)]}, limit=20)
    tasks = list(load_tasks.fetched(["sums.yaml"], own)[0]["tasks"].values())
    whole = lm_eval.simple_evaluate(asked, tasks=tasks, limit=20, num_fewshot=1, bootstrap_iters=score.DRAWS, **SEEDS)
    assert found["results"] == whole["results"]


def test_where_memory_ends_fewer_are_asked_side_by_side(prepared, options):
    asked = model.load(load_config(options), "cpu", "fp32")
    wanted = requests.build(load_tasks.kept(prepared), limit=0, shots=None, seed=SEED)
    some, sizes = [one for number in range(16) for one in wanted["sums"][number]], []

    def answer(some, disable_tqdm):
        sizes.append(asked.batch_size)
        if asked.batch_size > 2:
            raise torch.OutOfMemoryError
        return [(0.0, True)] * len(some)

    assert len(asked.in_blocks(answer, some)) == len(some) and sizes == [8, 4, 2]
    asked.is_stopped.set()
    with pytest.raises(model.Stopped):
        asked.in_blocks(answer, some)


def scores(cluster: Cluster, rank: int = 0) -> dict:
    return json.loads((cluster.result(rank, "scores") / "tasks.json").read_text())


def test_three_processes_have_the_scores_of_one_machine(options, prepared, one_machine, tmp_path):
    cluster = Cluster(tmp_path, options | {"dataset": prepared, "run": "run"}, size=3)
    cluster.wait()
    first = scores(cluster)
    assert all(scores(cluster, rank) == first for rank in range(3))
    for row in first["rows"]:
        for side in ("base", "adapter"):
            assert row[side] == one_machine[side]["results"][row["task"]][f"{row['metric']},none"]
    lines = (cluster.checkpoints() / paths.PIECES).read_text().splitlines()
    pieces = [json.loads(line)["piece"]["number"] for line in lines]
    assert sorted(pieces) == list(range(2 * len(prepare.read(prepared)["parts"])))
    assert {row["task"]: row["verdict"] for row in first["rows"] if row["metric"] == "acc"}["sums"] in ("", "forgotten")


def test_without_an_adapter_the_base_alone_is_asked(options, prepared, one_machine, tmp_path):
    alone = {name: value for name, value in options.items() if name != "adapter"}
    cluster = Cluster(tmp_path, alone | {"dataset": prepared, "run": "run"})
    cluster.wait()
    rows = scores(cluster)["rows"]
    (accuracy,) = [row["base"] for row in rows if row["metric"] == "acc"]
    assert accuracy == one_machine["base"]["results"]["sums"]["acc,none"]
    assert not any("adapter" in row for row in rows)


def test_the_error_of_a_change_is_that_of_the_differences_by_document(one_machine, prepared):
    rows = {(row["task"], row["metric"]): row for row in score.compared(load_tasks.kept(prepared), one_machine)}
    right = [[sample["acc"] for sample in one_machine[side]["samples"]["sums"]] for side in ("base", "adapter")]
    changes = [after - before for before, after in zip(*right, strict=True)]
    row = rows["sums", "acc"]
    assert row["change"] == pytest.approx(statistics.mean(changes))
    assert row["change_error"] == pytest.approx(statistics.stdev(changes) / len(changes) ** 0.5)
    row = rows["written", "chrf"]
    assert row["change_error"] == pytest.approx(math.hypot(row["base_error"], row["adapter_error"]))
    assert rows["rolling", "word_perplexity"]["change_error"] is None


def test_a_change_is_marked_where_it_is_beyond_chance():
    assert score.verdict(-0.1, 0.04, True) == "forgotten"
    assert score.verdict(-0.1, 0.04, False) == "learned"
    assert score.verdict(-0.1, 0.06, True) == ""
    assert score.verdict(0.1, None, True) == ""


SUMS = "task: sums\ndataset_path: json\ndataset_kwargs: {data_files: {test: sums.jsonl}}\ntest_split: test\n"
WRITTEN = 'output_type: generate_until\ndoc_to_text: "{{q}}"\ndoc_to_target: "1"\n'


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("task: sums\nprocess_docs: !function mine.docs", "!function mine.docs names code"),
        (SUMS + WRITTEN.replace("{{q}}", "{{ ''.__class__.__mro__ }}"), "unsafe"),
        (
            f"{SUMS}{WRITTEN}metric_list: [{{metric: bleurt, aggregation: mean, higher_is_better: true}}]",
            "measured by 'bleurt'",
        ),
        (
            SUMS + 'output_type: multiple_choice\ndoc_to_text: "{{q}}"\ndoc_to_target: answer\n'
            'doc_to_choice: "{{none if answer else choices}}"',
            "tasks: sums cannot be asked: TypeError",
        ),
    ],
)
def test_a_task_that_would_run_code_or_cannot_be_asked_is_refused(task, words, tmp_path, capsys):
    tasks_asked.write(tmp_path)
    (tmp_path / "wrong.yaml").write_text(task)
    given = {"recipe": "evaluate", "model": "tiny", "tasks": "wrong.yaml", "dataset": tmp_path}
    assert main(["prepare", *flags(given), "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_task_that_the_harness_does_not_have_is_named_with_the_nearest(tmp_path, capsys):
    given = {"recipe": "evaluate", "model": "tiny", "tasks": "arc_esay"}
    assert main(["prepare", *flags(given), "--out", str(tmp_path / "out")]) == 2
    assert "no task 'arc_esay', did you mean 'arc_easy'?" in capsys.readouterr().err


CARD = """---
configs:
- config_name: ARC-Easy
  data_files:
  - {split: train, path: ARC-Easy/train.jsonl}
  - {split: validation, path: ARC-Easy/train.jsonl}
  - {split: test, path: ARC-Easy/test.jsonl}
---
"""


def test_a_task_of_the_harness_reads_its_data_from_the_hub_once(tmp_path):
    """In a process of its own: which hub that is, its libraries read as they are loaded."""
    folder = tmp_path / "hub/allenai/ai2_arc"
    (folder / "ARC-Easy").mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    for split, count in (("train", 3), ("test", 5)):
        lines = [
            {"id": f"{split}-{n}", "question": f"How many are {n} and {n}?", "answerKey": "B",
             "choices": {"text": [str(n), str(2 * n), "none"], "label": ["A", "B", "C"]}}
            for n in range(count)
        ]  # fmt: skip
        write_records(folder / f"ARC-Easy/{split}.jsonl", lines)
    asked = {"recipe": "evaluate", "model": "tiny", "tasks": "arc_easy", "out": tmp_path / "out"}
    with stand_ins.hub(tmp_path / "hub") as address:
        where = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
        pace.does(sys.executable, "-m", "train", "prepare", *flags(asked), cwd=ROOT, env=environment() | where)
    assert prepare.read(tmp_path / "out")["documents"] == {"arc_easy": 5}
    assert len(json.loads((tmp_path / "out/tasks.json").read_text())["folders"]) == 1
    wanted = requests.build(load_tasks.kept(tmp_path / "out"), limit=0, shots=None, seed=SEED)
    assert wanted["arc_easy"][3][1].args == ("Question: How many are 3 and 3?\nAnswer:", " 6")
