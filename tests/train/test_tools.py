"""versions, bench, eval and export, as a person runs them."""

import json
import re
import subprocess
import sys

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train.cluster import ROOT, environment, free_port
from train.__main__ import main
from train.bench import ring_bytes
from train.catalogue import model_folder
from train.chat import PLAIN_TEMPLATE
from train.export import modelfile
from train.hashes import package_hash
from train.prepare import PrepareSettings, prepare
from train.versions import collect


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run on the tiny model, far enough to differ from its base."""
    home = tmp_path_factory.mktemp("home")
    data = home / "data.jsonl"
    pairs = [{"prompt": f"Say {n % 5}.", "completion": "blue red blue red"} for n in range(400)]
    data.write_text("".join(json.dumps({**pair, "id": n}) + "\n" for n, pair in enumerate(pairs)))
    folder = prepare(PrepareSettings(dataset=str(data), model="tiny", out=str(home / "rows"), max_seq_length=64), str)
    flags = {"model": "tiny", "dataset": folder, "home": home, "max-steps": 25, "rows-per-step": 8}
    flags |= {"learning-rate": 0.01, "save-every": 100, "device": "cpu"}
    command = [sys.executable, "-m", "train", "run", *(f"--{name}={value}" for name, value in flags.items())]
    subprocess.run(command, env=environment(), cwd=ROOT, check=True, capture_output=True)
    return home / "results" / "run" / "adapter", folder


def run(capsys, *flags):
    code = main([*map(str, flags), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_versions_come_without_torch():
    program = "import sys, train.__main__ as m; m.main(['versions', '--json']); sys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["torch"].startswith("2.")
    assert facts["python"] == sys.version.split()[0]
    assert {"cuda", "nccl", "driver", "driver_library", "driver_on_disk", "kernel", "os", "train"} <= facts.keys()


def test_versions_see_driver_and_library_apart(tmp_path):
    """After an unattended upgrade the kernel still runs the old module: the two must be told apart."""
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 12\n"
    )
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information").write_text(
        "Model: \t\t NVIDIA GeForce RTX 4070\nIRQ: 1\n"
    )
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05").touch()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n')
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
    assert re.fullmatch("[0-9a-f]{16}", facts["data"])


def test_eval_shows_what_training_changed(capsys, trained):
    adapter, data = trained
    code, out = run(capsys, "eval", "--model", "tiny", "--adapter", adapter, "--dataset", data, "--answer-tokens", 12)
    assert code == 0
    assert out["adapter"]["loss"] < 0.75 * out["base"]["loss"]
    assert out["adapter"]["perplexity"] < out["base"]["perplexity"]
    assert out["adapter"]["tokens"] == out["base"]["tokens"] > 0
    assert len(out["questions"]) == 3
    for asked in out["questions"]:
        assert asked["question"].startswith("Say")
        assert asked["base"] != asked["adapter"]


def test_merged_model_answers_like_the_adapter(capsys, trained, tmp_path):
    adapter, _ = trained
    code, out = run(capsys, "export", "merged", "--model", "tiny", "--adapter", adapter, "--out", tmp_path / "m")
    assert code == 0
    assert "model.safetensors" in out["files"]
    base = AutoModelForCausalLM.from_pretrained(model_folder("tiny"))
    tokens = torch.arange(3, 40)[None]
    with torch.no_grad():
        wanted = PeftModel.from_pretrained(base, str(adapter))(tokens).logits
        found = AutoModelForCausalLM.from_pretrained(tmp_path / "m")(tokens).logits
    assert torch.allclose(wanted, found, atol=1e-3)
    assert AutoTokenizer.from_pretrained(tmp_path / "m").chat_template


def test_exported_adapter_names_its_base_for_others(capsys, tmp_path, trained):
    adapter, _ = trained
    folder = tmp_path / "a"
    assert run(capsys, "export", "adapter", "--model", "smollm2-135m", "--adapter", adapter, "--out", folder)[0] == 0
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert not list(folder.glob("*.bin"))
    assert run(capsys, "export", "adapter", "--model", "tiny", "--adapter", adapter, "--out", folder)[0] == 2


def test_gguf_of_an_unknown_vocabulary_is_refused_and_leaves_nothing(capsys, trained, tmp_path):
    """Also shows that the converter runs isolated: it brings a gguf package that transformers must not see."""
    adapter, _ = trained
    code, out = run(capsys, "export", "gguf", "--model", "tiny", "--adapter", adapter, "--out", tmp_path / "g")
    assert code == 1
    assert "pre-tokenizer was not recognized" in out["failures"][0]
    assert not (tmp_path / "g").exists()


def test_modelfile_gives_ollama_the_template_that_was_trained():
    assert "### Instruction:\n{{ .Prompt }}" in modelfile("a.gguf", PLAIN_TEMPLATE)
    assert 'PARAMETER stop "<|im_end|>"' in modelfile("a.gguf", "…<|im_start|>…")
    assert modelfile("a.gguf", "[INST]") == "FROM ./a.gguf\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("eval", "--model", "tiny", "--adapter", "/nowhere", "--dataset", "x"), "holds no adapter"),
        (("export", "merged", "--model", "tiny", "--adapter", "/nowhere", "--out", "x"), "holds no adapter"),
        (("bench", "allreduce"), "torchrun --nproc-per-node 2"),
        (("bench", "allreduce", "--sizes-mb", "x"), "no list of sizes"),
    ],
)
def test_bad_input_is_said(capsys, flags, said):
    assert main(list(flags)) == 2
    assert said in capsys.readouterr().err


def torchrun(*flags):
    torch_run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    command = [*torch_run, f"--master-port={free_port()}", "-m", "train", *flags, "--json"]
    env = environment() | {"GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))["measured"]


def test_bench_measures_the_network_and_the_ways_to_add_up():
    small, large = torchrun("bench", "allreduce", "--sizes-mb", "0.004,8", "--repeats", "2")
    assert large["seconds"] > small["seconds"] > 0
    assert large["mbit_s"] == pytest.approx(ring_bytes(8_000_000, 2) * 8 / 1e6 / large["seconds"])
    ways = torchrun("bench", "sync", "--repeats", "1", "--max-seq-length", "32")
    assert [(way["sync"], way["wire"]) for way in ways] == [
        ("flat", "fp32"),
        ("flat", "bf16"),
        ("ddp", "fp32"),
        ("ddp", "bf16"),
    ]
    assert all(way["step_s"] > way["blocked_s"] >= 0 for way in ways)


def test_ring_bytes():
    assert [ring_bytes(600, nodes) for nodes in (2, 3, 4)] == [600, 800, 900]
