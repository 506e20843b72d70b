"""versions, bench, eval and export, as a person runs them."""

import functools
import io
import json
import re
import shutil
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support import ROOT, pace
from tests.train import cluster
from tests.train.bases import FORMS, save_in_4bit
from tests.train.cluster import answer, environment, free_port, rank_environment
from train.__main__ import main
from train.data.prepare import prepare
from train.data.to_tokens import Chat, load_chat
from train.engine.reporter import Reporter
from train.errors import CheckFailed
from train.measure import collectives
from train.measure.versions import collect
from train.models import backends
from train.models.model_files import model_folder
from train.parallel.process_group import World
from train.plan.model.catalogue import resolve_model
from train.plan.settings.read_settings import SftConfig
from train.plan.speed.step_time import ring_bytes
from train.results import gguf
from train.results.answer_question import Listener
from train.results.ask import AnswerPrinter
from train.results.finished_run import FinishedRun, find
from train.results.gguf import environment_of
from train.results.modelfile import modelfile
from train.runlog.events import EventLog, ProgressLine
from train.versions import package_hash


@pytest.fixture(scope="module")
def trained_in(tmp_path_factory):
    """A short run on the tiny model in that form, far enough to differ from its base."""
    return functools.cache(lambda form: short_run(tmp_path_factory.mktemp(form), form))


@pytest.fixture
def trained(trained_in, form):
    return trained_in(form)


def short_run(home, form):
    pairs = [{"prompt": f"Say {n}.", "completion": "blue red blue red"} for n in range(400)]
    data = cluster.write_records(home / "data.jsonl", pairs)
    folder = prepare(SftConfig(dataset=str(data), model="tiny", max_seq_length=64), str, out=str(home / "rows"))
    options = {"model": "tiny", "dataset": folder, "max_steps": 25, "rows_per_step": 8, "load_in": form}
    options |= {"learning_rate": 0.01, "warmup_steps": 4, "save_every": 100, "device": "cpu"}
    return cluster.train(home, options).result(), folder


def test_versions_come_without_torch():
    program = "import sys, train.__main__ as m; m.main(['versions', '--json']); sys.exit('torch' in sys.modules)"
    done = pace.does(sys.executable, "-c", program, cwd=ROOT, env=environment())
    facts = json.loads(done.stdout)
    assert facts["torch"].startswith("2.")
    assert facts["python"] == sys.version.split()[0]
    assert {"cuda", "nccl", "driver", "driver_library", "driver_on_disk", "kernel", "os", "train"} <= facts.keys()


def test_versions_see_driver_and_library_apart(tmp_path):
    """After an unattended upgrade the kernel still runs the old module: the two must be told apart."""
    module = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 12\n"
    found = {
        "proc/driver/nvidia/version": module,
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA GeForce RTX 4070\nIRQ: 1\n",
        "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05": "",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
    }
    for name, text in found.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    facts = collect(root=tmp_path)
    assert (facts["driver"], facts["driver_library"]) == ("580.65.06", "580.95.05")
    assert facts["gpus"] == ["NVIDIA GeForce RTX 4070"]
    assert facts["os"] == "Ubuntu 24.04.3 LTS"


def test_versions_tell_code_models_and_data_apart(tmp_path, trained):
    (tmp_path / "a.py").write_text("x = 1")
    before = package_hash(tmp_path)
    (tmp_path / "a.py").write_text("x = 2")
    assert package_hash(tmp_path) != before
    model_folder("tiny")
    facts = collect(model="tiny", dataset=str(trained[1]))
    assert re.fullmatch("[0-9a-f]{16}", facts["model"])
    assert re.fullmatch("[0-9a-f]{12}", facts["data"])


def test_eval_shows_what_training_changed(capsys, trained):
    adapter, data = trained
    words = ("--model", "tiny", "--adapter", adapter, "--dataset", data, "--answer-tokens", 12)
    code, out = answer(capsys, "eval", *words)
    assert code == 0
    assert out["adapter"]["loss"] < 0.75 * out["base"]["loss"]
    assert out["adapter"]["perplexity"] < out["base"]["perplexity"]
    assert out["adapter"]["tokens"] == out["base"]["tokens"] > 0
    assert len(out["questions"]) == 3
    card = (adapter / "README.md").read_text()
    assert f"| {out['base']['loss']:.3f} → {out['adapter']['loss']:.3f} |" in card, "the card says the same"
    for asked in out["questions"]:
        assert asked["question"].startswith("Say")
        assert asked["base"] != asked["adapter"]


@pytest.fixture
def launched(trained, monkeypatch):
    """The files that a launch leaves beside what `trained` has made."""
    monkeypatch.setenv("MOTLEY_HOME", "/nowhere")  # and put back, whatever --home has made of it
    adapter, data = trained
    home = adapter.parents[2]
    (home / "data").mkdir(exist_ok=True)
    (home / "data/processed").unlink(missing_ok=True)
    (home / "data/processed").symlink_to(Path(data).parent)
    launch = {"run": "run", "all": {"model": "tiny", "dataset": "data.jsonl", "max_seq_length": 64}}
    launch |= {"model": {"folder_name": "tiny"}, "rows": Path(data).name}
    (home / "logs/runs/run/launch.json").write_text(json.dumps(launch))
    return home


@pytest.mark.parametrize("form", FORMS)
def test_a_run_is_measured_asked_and_exported_by_its_name_alone(form, capsys, launched, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(launched))
    built, build = [], backends.get("hf").build
    monkeypatch.setattr(backends.get("hf"), "build", lambda spec: built.append(spec.load_in) or build(spec))
    code, scores = answer(capsys, "eval", "--run", "run", "--answer-tokens", 12, "--questions", 1)
    assert code == 0 and scores["adapter"]["loss"] < 0.75 * scores["base"]["loss"]
    held_out = scores["questions"][0]
    code, out = answer(capsys, "ask", "--run", "run", "--question", held_out["question"], "--answer-tokens", 12)
    assert code == 0
    (told,) = out["answers"]
    assert (told["before"], told["after"]) == (held_out["base"], held_out["adapter"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("Say 3.\nAnd 4.\n"))
    _, out = answer(capsys, "ask", "--run", "run", "--question", "-", "--answer-tokens", 2)
    assert [one["question"] for one in out["answers"]] == ["Say 3.\nAnd 4."], "its input is one question"
    assert built == [form, form, form], "what is measured and asked is what was trained"
    code, out = answer(capsys, "export", "adapter", "--run", "run", "--home", launched)
    assert code == 0 and out["folder"] == f"{launched}/exports/run/adapter"
    assert answer(capsys, "export", "adapter", "--run", "run", "--home", launched)[0] == 2


def test_a_stopped_run_is_used_from_its_newest_whole_checkpoint(capsys, launched, tmp_path):
    home = tmp_path / "home"
    for part in ("logs", "data"):
        shutil.copytree(launched / part, home / part, symlinks=True)
    kept = home / "models/checkpoints/run"
    shutil.copytree(launched / "models/checkpoints/run", kept)
    torn = kept / "step-999"
    shutil.copytree(kept / "step-25", torn)
    (torn / "adapter_model.safetensors").write_bytes(b"")
    asked = ["--run", "run", "--answer-tokens", 6]
    code, out = answer(capsys, "ask", *asked, "--home", home, "--question", "Say 1.")
    assert code == 0 and out["step"] == 25
    assert out["answers"] == answer(capsys, "ask", *asked, "--home", launched, "--question", "Say 1.")[1]["answers"]
    assert main(["eval", *map(str, asked), "--home", str(home), "--questions", "0"]) == 0
    said = capsys.readouterr()
    assert "held-out rows" in said.out
    assert said.err == (
        "step-999: adapter_model.safetensors is not what was written\n"
        "run is not done: this is its checkpoint of step 25\n"
    )
    code, out = answer(capsys, "export", "adapter", "--run", "run", "--home", home)
    assert code == 0 and out["folder"] == f"{home}/exports/run/adapter-step-25" and out["step"] == 25
    shutil.rmtree(kept)
    assert answer(capsys, "ask", *asked, "--home", home)[1]["failures"] == [
        "run 'run' has no whole checkpoint yet\nresume it: ./motley launch --resume run"
    ]


def test_questions_are_typed_and_answers_told_while_they_come(capsys, launched, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Say 1.\nSay 2.\n\nSay 3.\n"))
    asked = ["ask", "--run", "run", "--home", str(launched), "--answer-tokens", "6"]
    assert main([*asked, "--prompt"]) == 0
    typed = capsys.readouterr().out
    assert typed.count("\n? ") == 3 and typed.count("  before  ") == typed.count("  after   ") == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("Say 1.\n\nSay 2.\n"))
    assert main(asked) == 0
    piped = capsys.readouterr().out
    assert re.findall(r"\n(Say \d\.)\n", piped) == ["Say 1.", "Say 2."], "an empty line of a file ends nothing"
    for number in (1, 2):
        _, out = answer(capsys, *asked, "--question", f"Say {number}.")
        for name in ("before", "after"):
            assert " ".join(out["answers"][0][name].split()) in " ".join(typed.split())


def test_an_answer_of_several_lines_stands_below_its_name(capsys):
    printer = AnswerPrinter("after")
    for part in ("\n ", "one", " line\n", "\ntwo\nthree ", "\n"):
        printer.write(part)
    assert capsys.readouterr().out == "  after   one line\n\n          two\n          three "


def test_a_letter_of_two_tokens_is_told_whole():
    """As byte-level tokens bring it; nothing that was passed on is taken back."""
    heard = []
    tokenizer = SimpleNamespace(decode=lambda tokens, **_: bytes(tokens).decode(errors="replace"))
    listener = Listener(tokenizer, heard.append)
    listener.put(torch.tensor([[1, 2, 3]]))
    for byte in "aé→!".encode():
        listener.put(torch.tensor([byte]))
    listener.end()
    assert "".join(heard) == "aé→!"


def test_a_model_that_was_trained_as_a_whole_can_be_asked_too(capsys, launched, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(launched / "logs", home / "logs")
    model = AutoModelForCausalLM.from_pretrained(model_folder("tiny"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    model.save_pretrained(home / "results/run/adapter")
    code, out = answer(capsys, "ask", "--run", "run", "--home", home, "--question", "Say 1.", "--answer-tokens", 6)
    assert code == 0 and out["answers"][0]["before"] != out["answers"][0]["after"]


def test_the_base_is_the_copy_that_this_node_trained_on(launched, tmp_path):
    """Not one to be fetched again."""
    home = tmp_path / "node"
    shutil.copytree(launched / "logs", home / "logs")
    (home / "results/run/adapter").mkdir(parents=True)
    copy = home / "models/base/tiny"
    shutil.copytree(model_folder("tiny"), copy)
    assert find(Namespace(run="run", home=home)).base == str(copy)


def test_a_merge_wants_the_base_in_16_bit(tmp_path):
    """The quantised copy is what was trained on; the original is what is merged with."""
    facts = {"run": "r", "folder": tmp_path, "dataset": "d", "max_seq_length": 8, "load_in": "4bit", "settings": {}}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {}}))
    assert FinishedRun(base=str(tmp_path), original="llama2-7b", **facts).original_or_base == "llama2-7b"
    (tmp_path / "config.json").write_text("{}")
    assert FinishedRun(base=str(tmp_path), original="llama2-7b", **facts).original_or_base == str(tmp_path)


TOKENS = torch.arange(3, 40)[None]


@torch.no_grad()
def scores(folder, adapter=None, form="16bit", *, trained=True):
    spec = backends.ModelSpec(folder=str(folder), adapter=adapter, load_in=form, method="lora" if adapter else "base")
    model = backends.get("hf").build(spec)
    with nullcontext() if trained else model.disable_adapter():
        return model(TOKENS).logits


@pytest.mark.parametrize("form", FORMS)
def test_merged_model_answers_like_the_adapter(form, capsys, trained, launched, tmp_path):
    """It is the base as it was before it was quantised, and the adapter: nothing is rounded but that base."""
    adapter, _ = trained
    code, out = answer(capsys, "export", "merged", "--run", "run", "--home", launched, "--out", tmp_path / "m")
    assert code == 0
    assert "model.safetensors" in out["files"]
    base = AutoModelForCausalLM.from_pretrained(model_folder("tiny"))
    with torch.no_grad():
        wanted = PeftModel.from_pretrained(base, str(adapter))(TOKENS).logits
        found = AutoModelForCausalLM.from_pretrained(tmp_path / "m")(TOKENS).logits
    assert torch.allclose(wanted, found, atol=1e-3)
    config = json.loads((tmp_path / "m/config.json").read_text())
    assert "quantization_config" not in config and config["dtype"] == "float32"
    assert AutoTokenizer.from_pretrained(tmp_path / "m").chat_template

    asked, before = (scores(model_folder("tiny"), adapter, form, trained=trained) for trained in (True, False))
    assert (found - asked).norm() < (0.1 if form == "4bit" else 1e-3) * (asked - before).norm()


def test_a_base_that_is_only_there_in_4_bit_is_unpacked_for_the_merge(capsys, trained_in, tmp_path):
    adapter, _ = trained_in("4bit")
    base = save_in_4bit(tmp_path / "tiny-4bit")
    assert answer(capsys, "export", "merged", "--model", base, "--adapter", adapter, "--out", tmp_path / "m")[0] == 0
    assert "quantization_config" not in json.loads((tmp_path / "m/config.json").read_text())
    assert {tensor.dtype for tensor in load_file(tmp_path / "m/model.safetensors").values()} == {torch.float32}
    torch.testing.assert_close(scores(tmp_path / "m"), scores(base, adapter, "4bit"), rtol=0, atol=1e-3)


def test_what_becomes_a_gguf_is_the_merged_model_in_16_bit(capsys, trained_in, tmp_path, monkeypatch):
    """The converter here only writes down what it was given."""
    adapter, _ = trained_in("4bit")
    (tmp_path / "convert_hf_to_gguf.py").write_text(
        f"import shutil, sys\ndef main():\n    shutil.copytree(sys.argv[1], {str(tmp_path / 'given')!r})\n"
        "    open(sys.argv[-1], 'w').write(str(sys.argv))"
    )
    (tmp_path / "gguf.py").touch()
    (tmp_path / "conversion").mkdir()
    (tmp_path / "conversion/base.py").write_text("class TextModel:\n    _set_vocab_gpt2 = None")
    monkeypatch.setattr(gguf, "gguf_converter", lambda: tmp_path)
    for what in ("merged", "gguf"):
        flags = ("export", what, "--model", "tiny", "--adapter", adapter, "--out", tmp_path / what)
        assert answer(capsys, *flags)[0] == 0
    given = tmp_path / "given"
    assert "'--model-name', 'tiny'" in (tmp_path / "gguf/tiny.gguf").read_text(), "else that of a scratch folder"
    for name in ("model.safetensors", "config.json"):
        assert (given / name).read_bytes() == (tmp_path / "merged" / name).read_bytes()


def test_exported_adapter_names_its_base_for_others(capsys, tmp_path, trained):
    adapter, _ = trained
    folder = tmp_path / "a"
    assert answer(capsys, "export", "adapter", "--model", "smollm2-135m", "--adapter", adapter, "--out", folder)[0] == 0
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert not list(folder.glob("*.bin"))
    assert answer(capsys, "export", "adapter", "--model", "tiny", "--adapter", adapter, "--out", folder)[0] == 2


def test_gguf_of_an_unknown_vocabulary_is_refused_and_leaves_nothing(capsys, trained, tmp_path, monkeypatch):
    """Also shows that the converter runs isolated: it brings a gguf package that transformers must not see."""
    adapter, _ = trained
    monkeypatch.setattr(gguf, "cuts_as_gpt2", lambda _: False)
    code, out = answer(capsys, "export", "gguf", "--model", "tiny", "--adapter", adapter, "--out", tmp_path / "g")
    assert code == 1
    assert "pre-tokenizer was not recognized" in out["failures"][0]
    assert not (tmp_path / "g").exists()


def test_the_converter_is_not_taken_for_a_process_of_a_run(monkeypatch, tmp_path):
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    assert "MOTLEY_HOME" not in environment_of(tmp_path) and environment_of(tmp_path)["PYTHONPATH"] == str(tmp_path)


def test_curves_hide_the_steps_that_a_resume_makes_again(monkeypatch, tmp_path):
    made = []
    writer = SimpleNamespace(SummaryWriter=lambda folder, purge_step: made.append((folder, purge_step)))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", writer)
    Reporter(EventLog(None), ProgressLine(None, 50)).open_board(SftConfig(home=str(tmp_path), run="a"), 40)
    assert made == [(str(tmp_path / "logs/runs/a/tensorboard"), 41)]


def test_a_templates_own_message_adds_no_line_to_the_modelfile(monkeypatch):
    monkeypatch.setattr(Chat, "default_system", lambda _: 'You help."""\nADAPTER /home/me/x\nSYSTEM """')
    text = modelfile("a.gguf", load_chat(resolve_model("tiny")))
    system = text[text.index('SYSTEM """') + len('SYSTEM """') :]
    assert system.count('"""') == 1 and system.split('"""')[1].startswith("\nPARAMETER stop ")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("eval", "--model", "tiny", "--adapter", "/nowhere", "--dataset", "x"), "holds no adapter"),
        (("export", "merged", "--model", "tiny", "--adapter", "/nowhere", "--out", "x"), "holds no adapter"),
        (("ask", "--run", "rum"), "did you mean 'run'?"),
        (("eval", "--run", "half"), "run 'half' has no whole checkpoint yet"),
        (("export", "gguf", "--run", "by-hand"), "was not launched"),
        (("export", "gguf", "--model", "tiny"), "--adapter and --out is missing"),
        (("bench", "allreduce"), "torchrun --nproc-per-node 2"),
        (("bench", "allreduce", "--sizes-mb", "x"), "no list of sizes"),
    ],
)
def test_bad_input_is_said(capsys, flags, said, launched, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(launched))
    (launched / "logs/runs/half").mkdir(exist_ok=True)
    (launched / "results/by-hand/adapter").mkdir(parents=True, exist_ok=True)
    assert main(list(flags)) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def two(tmp_path):
    """What two processes measure."""

    def measured(*flags):
        port, said = free_port(), tmp_path / "said"
        words = ["-m", "train", *flags, "--json"]
        with said.open("w") as out:
            both = [
                cluster.warm().start(words, rank_environment(rank, (0, 0), port), out.fileno()) for rank in range(2)
            ]
        cluster.STARTED.extend(both)
        assert [pace.ended(each, trouble=said.read_text) for each in both] == [0, 0], said.read_text()
        return json.loads(next(line for line in said.read_text().splitlines() if line.startswith("{")))["measured"]

    return measured


def test_bench_measures_the_network_and_the_ways_to_add_up(two):
    small, large = two("bench", "allreduce", "--sizes-mb", "0.004,8", "--repeats", "2")
    assert large["seconds"] > small["seconds"] > 0
    assert large["mbit_s"] == pytest.approx(ring_bytes(8_000_000, 2) * 8 / 1e6 / large["seconds"])
    [half] = two("bench", "allreduce", "--sizes-mb", "8", "--repeats", "2", "--wire", "bf16")
    assert large["ideal_s"] == pytest.approx(2000 * small["ideal_s"]), "at the link's speed of the same run"
    assert half["mbit_s"] == pytest.approx(ring_bytes(4_000_000, 2) * 8 / 1e6 / half["seconds"])
    ways = two("bench", "sync", "--repeats", "1", "--max-seq-length", "32")
    assert [f"{way['sync']} {way['wire']}" for way in ways] == ["flat fp32", "flat bf16", "ddp fp32", "ddp bf16"]
    assert all(way["step_s"] > way["blocked_s"] >= 0 for way in ways)


def test_bench_checks_every_collective_against_the_link_of_the_same_run(two):
    found = two("bench", "collectives", "--sizes-mb", "0.004,1", "--repeats", "2")
    rows = {(row["collective"], row["mb"]): row for row in found["rows"]}
    names = ("all-reduce", "broadcast", "all-gather", "reduce-scatter")
    assert set(rows) == {(name, mb) for name in names for mb in (0.004, 1.0)}
    assert found["link_mbit"] > 0 < found["round_trip_s"] and found["barrier_s"] > 0 and found["backend"] == "gloo"
    for (name, mb), row in rows.items():
        part = 1 if name in ("all-reduce", "broadcast") else 0.5  # of two processes
        least = part * mb * 8 / found["link_mbit"]
        assert row["seconds"] > 0 and row["limit_s"] == pytest.approx(least)
    lines = collectives.text(found, 2, "gloo")
    assert len(lines) == 6 and all(name in lines[1] for name in names) and "barrier" in lines[4]


def test_a_wrong_value_or_a_barrier_that_holds_nobody_is_found(monkeypatch):
    alone = World()
    assert collectives.timed(alone, lambda: None, lambda: None, lambda: True, "broadcast of 1 MB") >= 0
    with pytest.raises(CheckFailed, match="broadcast of 1 MB: the values on rank 0 are wrong"):
        collectives.timed(alone, lambda: None, lambda: None, lambda: False, "broadcast of 1 MB")
    both = SimpleNamespace(rank=1, size=2, numbers=lambda mine: [mine, mine])
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    with pytest.raises(CheckFailed, match="passed it before rank 0 had come"):
        collectives.barrier(both, 1)
