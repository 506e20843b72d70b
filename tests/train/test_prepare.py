"""prepare, from a file to rows: the same bytes each time, bad records named, memory bounded."""

import itertools
import json
import random
import shutil
import sys
import threading
from dataclasses import replace

import pytest
from transformers import AutoTokenizer

from tests.support import ROOT, pace
from tests.train import cluster
from tests.train.cluster import environment, write_records
from train.__main__ import main
from train.data import prepare as prepare_module
from train.data.convert_record import convert
from train.data.in_threads import threads_for
from train.data.prepare import prepare
from train.data.rows import FILES, open_rows, template_of
from train.data.split import split_of
from train.errors import BadInput
from train.models.model_files import model_folder
from train.plan.model.catalogue import resolve_model
from train.plan.settings.read_settings import SftConfig
from train.results.export import chat_with

WORDS = "the a of to list tuple returns value object key file path when not".split()


def records(count, seed=0):
    rng = random.Random(seed)

    def text(words):
        return " ".join(rng.choices(WORDS, k=words))

    return [{"instruction": f"{number} {text(4)}?", "output": text(rng.randrange(3, 40))} for number in range(count)]


def run(tmp_path, dataset, name="out", **changes):
    said = []
    config = SftConfig(dataset=str(dataset), **{"model": "tiny", "max_seq_length": 128, **changes})
    folder = prepare(config, said.append, out=str(tmp_path / name))
    return folder, said


def index(folder):
    return json.loads((folder / "index.json").read_text())


def decoded(folder, split="train"):
    tokenizer = AutoTokenizer.from_pretrained(model_folder("tiny"))
    rows = open_rows(folder, split)
    return "".join(tokenizer.decode(rows.batch([row])["input_ids"][0]) for row in range(len(rows)))


def test_the_same_data_gives_the_same_bytes(tmp_path):
    data = write_records(tmp_path / "data.jsonl", records(300))
    first, said = run(tmp_path, data)
    second, _ = run(tmp_path, data, "again")
    assert any("alpaca" in line and "instruction, output" in line for line in said)
    for split in ("train", "eval"):
        for file in FILES:
            assert (first / split / f"{file}.bin").read_bytes() == (second / split / f"{file}.bin").read_bytes()
    open_rows(first).verify()
    assert index(first)["splits"] == index(second)["splits"]


def test_every_record_is_there_once_and_only_answers_are_trained(tmp_path):
    items = records(120)
    folder, _ = run(tmp_path, write_records(tmp_path / "data.jsonl", items), eval_fraction=0.2)
    train, held_out = decoded(folder), decoded(folder, "eval")
    for item in items:
        text = f"<s>user\n{item['instruction']}</s><s>assistant\n{item['output']}</s>"
        assert (train.count(text), held_out.count(text)) in ((1, 0), (0, 1))
    rows = open_rows(folder)
    assert index(folder)["splits"]["train"]["targets"] == rows.targets.sum() < len(rows.tokens)


def test_the_folder_is_found_again_and_a_strange_one_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path / "home"))
    data = write_records(tmp_path / "data.jsonl", records(50))
    wanted, said = SftConfig(dataset=str(data), model="tiny"), []
    first = prepare(wanted, said.append)
    assert prepare(wanted, said.append) == first and "was there already" in said[-1]
    assert prepare(replace(wanted, max_seq_length=64), said.append) != first
    with pytest.raises(BadInput, match="holds something else"):
        prepare(replace(wanted, pack=False), said.append, out=str(first))


def test_without_packing_each_sample_has_its_row(tmp_path):
    folder, _ = run(tmp_path, write_records(tmp_path / "data.jsonl", records(40)), pack=False, eval_fraction=0.0)
    assert len(open_rows(folder)) == 40
    assert len(open_rows(folder, "eval")) == 0


def test_the_held_out_part_is_stable():
    """By content: a record stays where it is when others are added, and whatever the order."""
    items = [convert("alpaca", item) for item in records(2000)]
    held_out = [item for item in items if split_of(item, 0.1) == "eval"]
    assert 140 < len(held_out) < 260
    assert [item for item in reversed(items) if split_of(item, 0.1) == "eval"] == held_out[::-1]
    assert all(split_of(item, 0.2) == "eval" for item in held_out)


def test_copies_of_a_held_out_record_are_not_trained_on(tmp_path):
    """Whatever else stands in them: a number, a date, another order of keys."""
    items = [{**item, "id": 2 * number + copy} for copy in (0, 1) for number, item in enumerate(records(400))]
    folder, _ = run(tmp_path, write_records(tmp_path / "twice.jsonl", items), eval_fraction=0.2, pack=False)
    rows = [open_rows(folder, split) for split in ("train", "eval")]
    trained, held_out = ([of.batch([row])["input_ids"].tobytes() for row in range(len(of))] for of in rows)
    assert len(trained) + len(held_out) == 800
    assert len(held_out) > 100
    assert not set(trained) & set(held_out)


def test_what_is_skipped_and_that_nothing_is_held_out_is_said_wherever_the_run_is(tmp_path, capsys):
    """A launch shows what `prepare` answers; the report shows the reasons of the event log."""
    data = write_records(tmp_path / "notes.jsonl", [*records(40), {"instruction": "x", "output": ""}])
    flags = ("--model", "tiny", "--dataset", str(data), "--eval-fraction", "0", "--json")
    assert main(["prepare", *flags, "--out", str(tmp_path / "rows")]) == 0
    lost = [
        "data: 1 of 41 records are skipped, the first: notes.jsonl line 41: the answer is empty",
        "data: 0 rows are held out: nothing shows whether it learns more than its own rows",
    ]
    assert json.loads(capsys.readouterr().out)["left_out"] == lost
    settings = {"model": "tiny", "dataset": data, "eval_fraction": 0, "max_steps": 1, "rows_per_step": 1}
    run = cluster.train(tmp_path, settings)
    assert [reason for reason in run.events()[0]["reasons"] if reason.startswith("data: ")] == lost
    card = (run.result() / "README.md").read_text()
    assert card.endswith(f"## What is not in it\n\n- {lost[0]}\n- {lost[1]}\n")
    assert not (run.result() / "chat_template.jinja").exists()


def test_patience_without_held_out_rows_is_refused_where_the_rows_are_made(tmp_path, capsys):
    """Before anything starts: the plan cannot know it."""
    data = write_records(tmp_path / "three.jsonl", records(3))
    flags = ("--model", "tiny", "--dataset", str(data), "--out", str(tmp_path / "rows"), "--patience", "3")
    assert main(["prepare", *flags]) == 2
    assert "patience: 3, but no rows are held out" in capsys.readouterr().err


def test_bad_records_are_named_and_counted_up_to_a_limit(tmp_path):
    lines = [json.dumps(item) for item in records(30)]
    lines[4] = '{"instruction": "x"'
    lines[9] = json.dumps({"instruction": "x", "output": ""})
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(lines))
    folder, said = run(tmp_path, data)
    assert any("data.jsonl line 5: not JSON" in line for line in said)
    assert any("data.jsonl line 10: the answer is empty" in line for line in said)
    assert index(folder)["records"]["bad"] == 2
    sentence = r"2 bad records of 10; the first: data.jsonl line 5.*\nfile: .*data.jsonl\n.*max_bad"
    with pytest.raises(BadInput, match=sentence):
        run(tmp_path, data, "limited", max_bad=1)
    assert not (tmp_path / "limited").exists()


@pytest.mark.parametrize(("good", "bad", "passes"), [(20, 5, True), (20, 6, False), (1000, 9, True), (1000, 14, False)])
def test_one_in_a_hundred_may_be_bad_and_the_few_that_are_named(tmp_path, good, bad, passes):
    items = [*records(good), *([{"instruction": "x", "output": ""}] * bad)]
    random.Random(1).shuffle(items)
    data = write_records(tmp_path / "data.jsonl", items)
    if passes:
        folder, _ = run(tmp_path, data)
        assert index(folder)["records"]["bad"] == bad
    else:
        with pytest.raises(BadInput, match="bad records of"):
            run(tmp_path, data)


def test_bad_records_at_the_beginning_of_an_array_are_a_part_of_all(tmp_path):
    data = tmp_path / "data.json"
    data.write_text(json.dumps([*[{"instruction": "x", "output": ""}] * 9, *records(1000)]))
    folder, _ = run(tmp_path, data)
    assert index(folder)["records"]["bad"] == 9


def test_columns_that_a_person_names_decide_the_format(tmp_path):
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    items = [{"messages": turns, "asked": f"{number}?", "said": f"It is {number}."} for number in range(9)]
    data = write_records(tmp_path / "data.jsonl", items)
    folder, _ = run(tmp_path, f"{data}?prompt=asked&completion=said", eval_fraction=0.0)
    assert "It is 3." in decoded(folder) and "Hello!" not in decoded(folder)


def test_what_is_not_read_of_a_record_is_said(tmp_path):
    items = [{"conversations": []}, *({"question": f"{n}?", "context": "Of cats.", "answer": "Yes."} for n in range(9))]
    folder, said = run(tmp_path, write_records(tmp_path / "data.jsonl", items))
    assert "format    prompt, as the first record has question, context, answer; not read: context" in said
    assert index(folder)["records"]["first_bad"] == ["data.jsonl line 1: its list of turns is empty"]


def test_a_file_of_another_kind_is_another_data_set(tmp_path, monkeypatch):
    """What was called .txt by mistake is trained on as text, and not any more once it is called .jsonl."""
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path / "home"))
    text = write_records(tmp_path / "data.txt", records(50))
    first = prepare(SftConfig(dataset=str(text), model="tiny"), lambda _: None)
    second = prepare(SftConfig(dataset=str(text.rename(tmp_path / "data.jsonl")), model="tiny"), lambda _: None)
    assert [index(folder)["data_format"] for folder in (first, second)] == ["text", "alpaca"]


def test_a_broken_file_is_not_read_to_its_end(tmp_path):
    data = write_records(tmp_path / "data.jsonl", [{"instruction": "x", "output": ""}] * 5000)
    with pytest.raises(BadInput, match=r"bad records of (\d{1,2});"):
        run(tmp_path, data)


def test_a_template_that_writes_the_date_writes_one_for_all_of_the_run(tmp_path, monkeypatch):
    """Llama 3.2's does: without a fixed date the rows would be others after midnight."""
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path / "home"))
    dated = shutil.copytree(model_folder("tiny"), tmp_path / "dated")
    (dated / "chat_template.jinja").write_text(
        "{% set d = strftime_now('%d %b %Y') %}{% for m in messages %}{{ d }} {{ m['role'] }} {{ m['content'] }}</s>"
        "{% endfor %}{% if add_generation_prompt %}{{ d }} assistant {% endif %}"
    )
    data = write_records(tmp_path / "data.jsonl", records(30))
    wanted = SftConfig(dataset=str(data), model=str(dated), max_seq_length=128)
    first = prepare(wanted, lambda _: None, date="2026-01-31")
    assert index(first)["date"] == "2026-01-31"
    assert "31 Jan 2026 assistant" in decoded(first)
    assert prepare(wanted, lambda _: None, date="2026-02-01") == first
    other = prepare(wanted, lambda _: None, date="2026-02-01", out=str(tmp_path / "out"))
    assert index(other)["splits"]["train"]["hash"] != index(first)["splits"]["train"]["hash"]


def test_what_a_tokenizer_file_says_of_cutting_and_filling_is_not_obeyed(tmp_path):
    data = write_records(tmp_path / "data.jsonl", records(60))
    plain, _ = run(tmp_path, data)
    cut = shutil.copytree(model_folder("tiny"), tmp_path / "cut")
    tokenizer = json.loads((cut / "tokenizer.json").read_text())
    tokenizer["truncation"] = {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0}
    tokenizer["padding"] = {
        "strategy": {"Fixed": 40}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>",
    }  # fmt: skip
    (cut / "tokenizer.json").write_text(json.dumps(tokenizer))
    folder, _ = run(tmp_path, data, "cut-out", model=str(cut))
    assert index(folder)["splits"] == index(plain)["splits"]


def test_long_text_goes_on_in_the_next_row_and_long_answers_are_cut(tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("It was the best of times, it was the worst of times. " * 100)
    folder, _ = run(tmp_path, text, eval_fraction=0.0)
    assert len(open_rows(folder)) > 5
    assert decoded(folder).count("best of times") > 95
    long = {"instruction": "short?", "output": "word " * 500}
    folder, said = run(tmp_path, write_records(tmp_path / "long.jsonl", [long, *records(5)]), "long", eval_fraction=0.0)
    assert index(folder)["records"]["truncated"] == 1
    assert any("1 cut" in line for line in said)


@pytest.mark.parametrize(
    ("content", "changes", "said"),
    [
        ("", {}, "the data set is empty"),
        ("\n\n", {}, "no usable record"),
        (json.dumps({"instruction": "w " * 400, "output": "x"}), {"eval_fraction": 0.0}, "none has any of its answer"),
        (json.dumps({"instruction": "w", "output": "x"}), {"eval_fraction": 0.999999}, "held out for evaluation"),
    ],
)
def test_a_data_set_without_anything_to_learn_is_an_error(tmp_path, content, changes, said):
    data = tmp_path / "data.jsonl"
    data.write_text(content)
    with pytest.raises(BadInput) as error:
        run(tmp_path, data, **changes)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) <= 3
    assert not (tmp_path / "out").exists()


def test_bad_settings_are_said_before_anything_is_read(capsys):
    assert main(["prepare", "--dataset", "stdlib-qaa", "--model", "tiny"]) == 2
    assert "did you mean stdlib-qa?" in capsys.readouterr().err


def test_stdlib_qa_is_the_same_in_every_process(tmp_path):
    made = []
    for name in ("a", "b"):
        script = [sys.executable, "-I", "-S", str(ROOT / "train/data/stdlib_qa.py"), str(tmp_path / name)]
        assert pace.run(*script).returncode == 0
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    assert made[0].count(b"\n") > 3000


def in_its_own_process(data, out):
    """As a person runs it: without torch. How much memory it took at most, in MB: VmHWM, as ru_maxrss begins with what
    the process that forked it held."""
    program = (
        "import re, sys; from train.__main__ import main\n"
        f"code = main(['prepare', '--dataset', {str(data)!r}, '--model', 'tiny', '--out', {str(out)!r}])\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\nsys.exit(code)"
    )
    done = pace.does(sys.executable, "-c", program, env=environment(), cwd=ROOT)
    return int(done.stdout.split()[-1]) // 1024


def test_rows_do_not_depend_on_the_number_of_threads(tmp_path, monkeypatch):
    """Three that are at it at the same time, while a fourth reads and writes. Nor on torch, which is loaded here."""
    items = records(900)
    items[200]["output"] = ""
    items[300] = {"messages": [{"role": "user", "content": "no answer"}]}
    data = write_records(tmp_path / "data.jsonl", items)
    alone, _ = run(tmp_path, data, max_seq_length=512)
    together, begun, made = threading.Barrier(3), itertools.count(), prepare_module.encoded

    def encoded(*words):
        if next(begun) < 3:
            together.wait(timeout=60)
        return made(*words)

    monkeypatch.setattr(prepare_module, "encoded", encoded)
    monkeypatch.setattr(prepare_module, "threads_for", lambda _: 3)
    by_three, _ = run(tmp_path, data, "three", max_seq_length=512)
    assert next(begun) > 3
    in_its_own_process(data, tmp_path / "own")
    assert index(alone)["records"]["bad"] == 2
    files = sorted(path.relative_to(alone) for path in alone.rglob("*") if path.is_file())
    assert len(files) == 12
    for file in files:
        for other in (by_three, tmp_path / "own"):
            assert (alone / file).read_bytes() == (other / file).read_bytes(), file


def test_there_are_as_many_threads_as_cores_have_enough_to_do(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4))
    assert [threads_for(mb << 20) for mb in (1, 7, 8, 13, 100)] == [1, 1, 3, 4, 5]


def test_memory_does_not_grow_with_the_data(tmp_path):
    """The measured 1 GB run is in docs/BENCHMARKS.md; here arrays of 0.5 and 4 MB, read object by object."""
    peaks = []
    for number, copies in enumerate((1, 8)):
        data = tmp_path / f"{number}.json"
        items = records(3500)
        with data.open("w") as file:
            file.write("[" + ",\n".join(json.dumps(item) for _ in range(copies) for item in items) + "]")
        peaks.append(in_its_own_process(data, tmp_path / f"{number}.rows"))
    assert peaks[1] - peaks[0] < 25
    assert peaks[1] < 190


def test_a_template_of_ones_own_writes_the_rows_and_stays_with_the_result(tmp_path):
    data = write_records(tmp_path / "data.jsonl", records(40))
    own = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{{ eos_token }}{% endfor %}"
    (tmp_path / "mine.jinja").write_text(own)
    folder, said = run(tmp_path, data, chat_template=str(tmp_path / "mine.jinja"))
    theirs, _ = run(tmp_path, data, "theirs")
    assert "template  your own" in said and "<user>" in decoded(folder) and "<user>" not in decoded(theirs)
    assert template_of(folder) == own and template_of(theirs) == ""
    options = {"model": "tiny", "dataset": folder, "max_steps": 1, "rows_per_step": 2, "lora_r": 2}
    adapter = cluster.train(tmp_path / "home", options).result()
    assert (adapter / "chat_template.jinja").read_text() == own
    assert chat_with(resolve_model("tiny"), adapter).template == own
