"""A launch of a model from nothing: its plan, what the nodes are told, and how it continues."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from console import plan_view
from tests.support.plans import ON_GPUS, files_of, gpu, handed_on, launch_facts, look, ran
from train.errors import BadInput
from train.plan.launch.decide import Decided, decide
from train.plan.model.sources import TokenizerSource
from train.plan.settings import request
from train.plan.settings.every_run import COMMON_COUNTS
from train.plan.settings.read_settings import load_config

GPU = gpu("RTX 4090", 24)
SPEEDS = {"a": {"rows_per_s": 300.0, "fixed_s": 0.0}, "b": {"rows_per_s": 100.0, "fixed_s": 0.0}}


def decided(values: dict[str, Any], *looks: dict[str, Any], **more: Any) -> Decided:
    facts = launch_facts(looks, ON_GPUS, **more)
    return decide(request.read({"recipe": "pretrain", **values}, Path("/nowhere")), facts)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "my texts"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    for name in ("a.txt", "deep/b.md", "deep/c.py", "d.jsonl", "e.png", ".git/f.txt"):
        (folder / name).write_text("{}")
    return folder


def test_nothing_is_brought_but_the_texts(texts):
    found = decided({"dataset": str(texts)}, GPU, GPU)
    data = handed_on(found)
    assert found.run == "llama-10m-my-texts" and found.lacking == [] and found.model_bytes == 0
    assert data.dataset.files == ["a.txt", "d.jsonl", "deep/b.md", "deep/c.py"]
    assert data.raw == "/home/user/ai-cluster/data/raw/my-texts"
    assert "--model" not in " ".join(data.prepare) and "--model" not in " ".join(data.calibrate)


@pytest.mark.parametrize("command", ["prepare", "calibrate"])
def test_what_a_node_is_told_means_the_same_there(texts, command):
    found = decided({"dataset": str(texts), "size": "50m", "tokenizer": "bytes", "tie_embeddings": False}, GPU)
    told = [word.removeprefix("--").partition("=") for word in getattr(handed_on(found), command)[2:]]
    there = load_config({name.replace("-", "_"): value for name, _, value in told})
    counts = COMMON_COUNTS + found.request.config.COUNTED
    alike = {"prepare": ("tokenizer", "vocab_size", "max_seq_length"), "calibrate": counts}
    for name in alike[command]:
        assert getattr(there, name) == found.settings[name], name


def test_another_models_tokenizer_is_brought_alone(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    shape = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    shape |= {"intermediate_size": 8, "vocab_size": 500, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(shape))
    found = decided({"tokenizer": str(folder)}, GPU)
    data = handed_on(found)
    place = "/home/user/ai-cluster/data/raw/tokenizer-other"
    assert data.tokenizer == TokenizerSource(name="other", hub=None, folder=str(folder), place=place)
    assert f"--tokenizer={place}" in data.prepare and not any("vocab" in word for word in data.prepare)
    assert found.fit.facts.vocab == 500
    assert handed_on(decided({"tokenizer": "tiny"}, GPU)).tokenizer is None, "the head makes it itself"
    assert handed_on(decided({}, GPU)).tokenizer is None


def test_the_settings_that_are_written_down_are_read_again_as_they_are():
    found = decided({"size": "124m", "tokens_per_step": 65536}, GPU, GPU)
    written = files_of(handed_on(found, "my-texts-1"), "a")
    settings = yaml.safe_load(written["config/training_config.yaml"])
    assert "model" not in settings and settings["hidden_size"] == 768 and settings["learning_rate"] == 6e-4
    assert settings["dataset"].endswith("/data/processed/my-texts-1")
    there = load_config(settings).scoped("math")
    assert there == {name: found.settings[name] for name in there}
    launched = json.loads(written[f"logs/runs/{found.run}/launch.json"])
    assert launched["model"] == {"name": "llama-124m", "hub": None, "folder_name": ""}


def test_the_plan_says_what_all_weights_cost_and_shows_the_sizes():
    found = decided({"size": "124m"}, GPU, GPU, calibrated=SPEEDS)
    lines = plan_view.lines(found)
    text = "\n".join(lines)
    assert lines[0].startswith("plan  llama-124m-stdlib-qa · llama-124m · from nothing, all 123.6 M weights · 64 rows")
    made = "a new Llama of 123.6 M weights: 12 layers, 768 wide, 12 heads, a vocabulary of up to 50304"
    assert f"model     {made}" in text
    assert "all 123.6 M weights travel in each step: " in text
    assert "of a step of 32768 tokens; more tokens a step, or sync=local, make it less" in text
    offered = re.findall(r"--set tokens_per_step=(\d+)", text)
    assert offered and all(int(tokens) % 512 == 0 for tokens in offered)
    assert "--set sync=local" in text and "lora_targets" not in text
    assert all(f"--set size={size}" in text for size in ("10m", "50m", "124m", "350m"))
    assert [row.size for row in handed_on(found).sizes] == ["10m", "50m", "124m", "350m"]


def test_its_checkpoints_need_room():
    full = look(cards=GPU["cards"], free_bytes=20 * 10**9)
    with pytest.raises(BadInput, match=r"b: 20\.0 GB are free, 21\.3 GB are needed \(21\.3 GB for checkpoints\)"):
        decided({"size": "350m"}, GPU, full)
    assert decided({"size": "350m", "keep": 1}, GPU, full).fit.ok


def test_a_run_continues_with_its_own_numbers():
    there = ran(decided({"size": "50m", "layers": 6, "run": "mine"}, GPU), cards=GPU["cards"])
    found = decided({"resume": "mine"}, there)
    assert found.settings["layers"] == 6 and found.settings["hidden_size"] == 512 and found.request.step == 12
    with pytest.raises(BadInput, match="layers: the run was launched with 6, 8 is asked for"):
        decided({"resume": "mine", "layers": 8}, there)
    with pytest.raises(BadInput, match="recipe: the run was launched with pretrain, sft is asked for"):
        decided({"recipe": "sft", "model": "tiny", "run": "mine"}, there)


def test_a_folder_is_no_data_for_fine_tuning(texts, tmp_path):
    with pytest.raises(BadInput, match="this is a folder; a data set is one file"):
        request.read({"model": "tiny", "dataset": str(texts)})
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="this folder holds no text"):
        request.read({"recipe": "pretrain", "dataset": str(tmp_path / "empty")})
