"""From a data set to an answer on unsloth's own CPU backend: over two unequal processes, against hf."""

import json

import pytest
from safetensors.torch import load_file

from tests.train import cluster
from train.__main__ import main

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def rows(home):
    data, folder = home / "data.jsonl", home / "node-0/data/processed/rows"
    pairs = [{"prompt": f"Say {n % 5}.", "completion": "blue red " * (1 + n % 4), "id": n} for n in range(300)]
    data.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    asked = {"dataset": data, "model": "tiny", "out": folder, "max-seq-length": 64}
    assert main(["prepare", *(f"--{name}={value}" for name, value in asked.items())]) == 0
    return folder


@pytest.fixture(scope="module")
def trained(home, rows):
    """By hf in one process, and by unsloth in two, of which one does twice as much."""
    options = {"model": "tiny", "dataset": rows, "max_steps": 8, "rows_per_step": 6, "lora_r": 8}
    options |= {"learning_rate": 1e-2, "warmup_steps": 1}
    hf = cluster.train(home / "hf", {**options, "backend": "hf"}, cold=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSLOTH_FORCE_CPU", "1")
        unsloth = cluster.train(home, {**options, "backend": "unsloth", "shares": "2,1"}, 2, cold=True)
    return hf, unsloth


def test_two_unequal_processes_lose_what_hf_loses(trained):
    hf, unsloth = trained
    assert unsloth.events()[0]["decisions"]["backend"] == "unsloth"
    assert unsloth.losses() == pytest.approx(hf.losses(), rel=1e-4)
    assert unsloth.losses()[-1] < 0.8 * unsloth.losses()[0]


def test_its_adapter_has_the_layers_of_hfs(trained):
    hf, unsloth = (load_file(one.node_home(0) / "results/run/adapter/adapter_model.safetensors") for one in trained)
    assert {name: values.shape for name, values in unsloth.items()} == {n: v.shape for n, v in hf.items()}


def test_it_is_asked_and_exported_by_its_name(trained, rows, capsys, monkeypatch):
    place = trained[1].node_home(0)
    monkeypatch.setenv("MOTLEY_HOME", str(place))
    launched = {"run": "run", "all": {"model": "tiny", "dataset": "data.jsonl", "max_seq_length": 64}}
    launched |= {"model": {"folder_name": "tiny"}, "rows": rows.name}
    (place / "logs/runs/run/launch.json").write_text(json.dumps(launched))
    assert main(["ask", "--run", "run", "--question", "Say 3.", "--answer-tokens", "8", "--json"]) == 0
    (asked,) = json.loads(capsys.readouterr().out)["answers"]
    assert asked["before"] != asked["after"] and "blue" in asked["after"]
    assert main(["export", "merged", "--run", "run", "--json"]) == 0
    assert "model.safetensors" in json.loads(capsys.readouterr().out)["files"]
