"""What a launch is asked for, checked before anything is connected to: a bad value of each variable, its sentence."""

import atexit
import functools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from console import launch_request
from console.extra_vars import extra_vars
from tests.support import ROOT, pace
from train.errors import BadInput
from train.plan.settings import request
from train.plan.settings.preference import LOSSES
from train.plan.settings.read_settings import RECIPES, names_of

CLUSTER = ["gpu-master", "gpu-worker-1", "gpu-worker-2"]
BAD = {
    "model": ("llama2-7c", "did you mean llama2-7b?"),
    "dataset": ("./no-such.jsonl", "there is no file ./no-such.jsonl"),
    "run": ("a/b", "cannot name a run"),
    "max_steps": ("many", "max_steps: 'many' is not a whole number"),
    "epochs": (0, "epochs: 0.0 is not above 0"),
    "rows_per_step": (0, "rows_per_step: 0 is below 1"),
    "max_seq_length": ("0", "max_seq_length: 0 is below 1"),
    "learning_rate": ("-1", "learning_rate and timeout_s must be above 0"),
    "lora_r": ("4.5", "lora_r: '4.5' is not a whole number"),
    "lora_alpha": ("x", "lora_alpha: 'x' is not a number"),
    "load_in": ("4bits", "did you mean '4bit'?"),
    "weights": ("streamed", "did you mean 'stream'?"),
    "pipes": ("a+,b", "is no list of nodes, each once"),
    "nodes": ("gpu-master,gpu-worker-3", "there is no 'gpu-worker-3' in the inventory"),
    "balance": ("evn", "did you mean 'even'?"),
    "sync": ("dpd", "did you mean 'ddp'?"),
    "wire": ("fp16", "wire: 'fp16' is none of auto|fp32|bf16"),
    "exchange": ("ncl", "did you mean 'nccl'?"),
    "backend": ("unslot", "did you mean 'unsloth'?"),
    "slurm_options": ("--nodes=3", "slurm_options is for Slurm"),
    "sweep": ("lora_r=8,16", "sweep is for Slurm"),
    "slurm_gpu_gb": ("24", "slurm_gpu_gb is for Slurm"),
    "follow": ("maybe", "follow: 'maybe' is neither true nor false"),
    "at": ("10pm", "at: '10pm' is no time of the day"),
    "report_to": ("wandbb", "report_to: 'wandbb' is none of trackio, wandb, mlflow, tensorboard"),
    "then": ("off", "then: 'off' is none of suspend, poweroff"),
    "queue": ("2", "queue: '2' is neither true nor false"),
    "adapter": ("no-such-run", "there is no run 'no-such-run' with an adapter"),
    "method": ("lara", "did you mean 'lora'?"),
    "shares": ("5,x", "shares: '5,x' is not a list of numbers"),
    "seed": ("-1", "seed: -1 is below 0"),
    "train_on": ("answer", "did you mean 'answers'?"),
    "chat_template": ("./none.jinja", "chat_template: it cannot be read: No such file"),
    "system": (" ", "system: it is empty"),
    "format": ("alpacca", "did you mean 'alpaca'?"),
    "pack": ("perhaps", "pack: 'perhaps' is not true or false"),
    "eval_fraction": ("1", "eval_fraction: 1.0 is not from 0 to below 1"),
    "max_bad": ("-1", "max_bad: -1.0 is below 0"),
    "rslora": ("maybe", "rslora: 'maybe' is not true or false"),
    "dora": ("maybe", "dora: 'maybe' is not true or false"),
    "lora_init": ("pisa", "did you mean 'pissa'?"),
    "lora_dropout": ("1", "lora_dropout: 1.0 is not below 1"),
    "loraplus_lr_ratio": ("0.5", "loraplus_lr_ratio: 0.5 is below 1"),
    "neftune_alpha": ("-1", "neftune_alpha: -1.0 is below 0"),
    "precision": ("bf61", "did you mean 'bf16'?"),
    "gradient_checkpointing": ("yess", "gradient_checkpointing: 'yess' is none of auto|true|false|unsloth"),
    "device": ("cdua", "did you mean 'cuda'?"),
    "schedule": ("cosin", "did you mean 'cosine'?"),
    "warmup_steps": ("-1", "warmup_steps: -1 is below 0"),
    "weight_decay": ("-1", "weight_decay: -1.0 is below 0"),
    "grad_clip": ("-0.1", "grad_clip: -0.1 is below 0"),
    "optimizer": ("adam", "did you mean 'adamw'?"),
    "speeds": ("a=fast", "speeds: 'a=fast' is not NAME=ROWS_PER_SECOND"),
    "micro_batch": ("0", "micro_batch: 0 is below 1"),
    "memory_ceiling": ("2", "memory_ceiling: 2.0 is not between 0.1 and 1"),
    "local_steps": ("few", "local_steps: 'few' is neither auto nor a number above 0"),
    "outer_learning_rate": ("0", "outer_learning_rate must be above 0"),
    "outer_momentum": ("1", "outer_momentum from 0 to below 1"),
    "timeout_s": ("0", "timeout_s must be above 0"),
    "eval_every": ("-1", "eval_every: -1 is below 0"),
    "patience": ("-1", "patience: -1 is below 0"),
    "eval_rows": ("0", "eval_rows: 0 is below 1"),
    "save_every": ("0", "save_every: 0 is below 1"),
    "keep": ("0", "keep: 0 is below 1"),
    "proof_every": ("0", "proof_every: 0 is below 1"),
    "profile": ("23-20", "profile: '23-20' is not FIRST-LAST, two steps from 1"),
    "tensorboard": ("perhaps", "tensorboard: 'perhaps' is not true or false"),
    "label_smoothing": ("0.5", "label_smoothing: 0.5 is not from 0 to below 0.5"),
    "simpo_gamma": ("-1", "simpo_gamma not below"),
    "center_rewards_coefficient": ("-0.1", "center_rewards_coefficient: -0.1 is below 0"),
    "recipe": ("pretran", "did you mean 'pretrain'?"),
    "size": ("11m", "size: '11m' is none of 10m|50m|124m|350m"),
    "hidden_size": ("-1", "hidden_size: -1 is below 0"),
    "layers": ("few", "layers: 'few' is not a whole number"),
    "heads": ("6", "nearest that do: heads=4 or heads=8; or hidden_size=252 or hidden_size=264"),
    "kv_heads": ("3", "kv_heads: 3 do not divide 4 heads"),
    "intermediate_size": ("-1", "intermediate_size: -1 is below 0"),
    "tokenizer": ("bpee", "there is no model 'bpee'"),
    "vocab_size": ("200", "vocab_size: 200 is below 257"),
    "image_size": ("4", "image_size: 4 is below 8"),
    "width": ("9", "width: 9 is no multiple of 4"),
    "augment": ("perhaps", "augment: 'perhaps' is not true or false"),
    "tokens_per_step": ("1000", "nearest that are: tokens_per_step=512 or tokens_per_step=1024"),
    "tie_embeddings": ("perhaps", "tie_embeddings: 'perhaps' is not true or false"),
    "beta2": ("1", "beta2: 1.0 is not between 0 and 1"),
    "rewards": ("exakt", "rewards: there is no 'exakt'; did you mean exact?"),
    "reward_errors": ("zer", "did you mean 'zero'?"),
    "reward_timeout_s": ("0", "reward_timeout_s must be above 0"),
    "group": ("5", "rows_per_step: 32 answers are no whole number of groups of 5"),
    "max_new_tokens": ("600", "max_seq_length: 512 tokens leave a prompt 0 beside an answer of max_new_tokens=600"),
    "temperature": ("0", "temperature: 0.0 is below 0.01"),
    "top_p": ("1.5", "top_p above 0 and at most 1"),
    "loss": ("drgrpo", "did you mean 'dr_grpo'?"),
    "steps_per_rollout": ("0", "steps_per_rollout: 0 is below 1"),
    "epsilon": ("1.5", "epsilon: 1.5 bounds nothing"),
    "epsilon_high": ("-1", "epsilon_high: -1.0 is below 0"),
    "scale_rewards": ("groups", "did you mean 'group'?"),
    "beta": ("-1", "beta: -1.0 is below 0"),
    "mask_overlong": ("perhaps", "mask_overlong: 'perhaps' is not true or false"),
    "answers": ("0", "answers: 0 is below 1"),
    "piece": ("0", "piece: 0 is below 1"),
    "answers_at_once": ("0", "answers_at_once: 0 is below 1"),
    "tasks": ("./none.yaml", "tasks: there is no file"),
    "documents": ("-1", "documents: -1 is below 0"),
    "shots": ("-1", "shots: -1 is below 0"),
    "requests_at_once": ("0", "requests_at_once: 0 is below 1"),
    "of_run": ("a/b", "cannot name a run"),
    "engine": ("vlm", "engine: 'vlm' is none of transformers|vllm"),
    "trains": ("sftt", "did you mean 'sft'?"),
    "search": ("learning_rate=1e-3..1e-5", "search: learning_rate: 1e-3 is not below 1e-5"),
    "trials": ("0", "trials: 0 is below 1"),
    "grid": ("perhaps", "grid: 'perhaps' is not true or false"),
    "prune": ("ash", "did you mean 'asha'?"),
    "modle": ("llama2-7b", "unknown variable 'modle' — did you mean 'model'?"),
    "motley_rendr_presence_port": (1, "did you mean 'motley_render_presence_port'?"),
    "motley_notify": ("https://ntfy.example/x", "motley_notify belongs into the inventory"),
}


ONLY_ON_THE_NODES = {"resume", "lora_targets"}
"""Which runs they know, and which layers a model has."""


def refusal(**values: object) -> str:
    with pytest.raises(BadInput) as refused:
        launch_request.read({**base_of(values), **values}, CLUSTER)
    return str(refused.value)


BASE: dict[str, object] = {"model": "tiny", "dataset": "stdlib-qa"}
BASES = {
    "sft": BASE,
    "preference": BASE | {"loss": "simpo"},
    "grpo": BASE | {"rewards": "length:9"},
    "generate": BASE | {"temperature": 1},
    "sweep": BASE | {"search": "lora_r=8,16"},
    "evaluate": BASE | {"tasks": "arc_easy", "dataset": ""},
}
BESIDE = {
    "center_rewards_coefficient": {"loss": "reward"},
    "epsilon": {"steps_per_rollout": 2},
    "epsilon_high": {"steps_per_rollout": 2},
    "local_steps": {"sync": "local"},
}


def base_of(values: dict[str, object]) -> dict[str, object]:
    """What the recipe that these belong to needs beside them."""
    order = ("sft", "grpo", *RECIPES)  # where two have a setting, the first one
    owners = [next((name for name in order if one in names_of(RECIPES[name])), "sft") for one in values]
    recipe = str(values.get("recipe") or next((name for name in owners if name != "sft"), "sft"))
    if "loss" in values:
        recipe = "preference" if values["loss"] in LOSSES else "grpo"
    usual = {"dataset": photos() if recipe == "images" else "stdlib-qa"}
    found = {"recipe": recipe} | BASES.get(recipe, usual)
    for setting in values:
        found |= BESIDE.get(setting, {})
    return found


@functools.cache
def photos() -> str:
    """The least that there can be."""
    folder = Path(tempfile.mkdtemp(prefix="motley-photos-"))
    for kind in ("cat", "dog"):
        (folder / kind).mkdir()
        (folder / kind / "1.png").touch()
    atexit.register(shutil.rmtree, folder)
    return str(folder)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_named(name: str) -> None:
    value, sentence = BAD[name]
    assert sentence in refusal(**{name: value})


@pytest.mark.parametrize("name", ["learning_rate", "epochs", "weight_decay", "grad_clip", "max_bad", "timeout_s"])
@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
def test_what_is_not_finite_is_no_number(name: str, value: str) -> None:
    assert f"{name}: '{value}' is not a number" in refusal(**{name: value})
    assert "lora_r: 'inf' is not a whole number" in refusal(lora_r="inf")
    assert "shares: 'nan,1' is not a list of numbers" in refusal(shares="nan,1")


@pytest.mark.parametrize("name", ["epochs", "max_steps", "rows_per_step", "learning_rate"])
@pytest.mark.parametrize("value", ["1e308", "-1e16", 10**400])
def test_a_number_that_nothing_can_be_computed_from_is_refused(name: str, value: object) -> None:
    assert f"{name}: {str(value)[:20]} is too large a number" in refusal(**{name: value})


def test_a_file_whose_name_is_not_utf_8_is_refused() -> None:
    """As a disk of Windows 98 has it: Python hands on what it cannot read as half characters."""
    assert r"dataset: 'caf\udce9.jsonl' is no name in UTF-8" in refusal(dataset="./caf\udce9.jsonl")


@pytest.mark.parametrize(
    "name", ["model", "dataset", "recipe", "tokenizer", "rewards", "adapter", "chat_template", "tasks"]
)
def test_the_folder_of_nobody_is_refused(name: str) -> None:
    assert f"{name}: there is no user 'nobody-here', so no folder ~nobody-here" in refusal(
        **{name: "~nobody-here/a.py"}
    )


@pytest.mark.parametrize("name", ["model", "dataset", "recipe", "tokenizer", "rewards", "adapter"])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    assert f"{name}: a name has at most 255 letters, {'ä' * 20}… has 130" in refusal(**{name: f"./{'ä' * 130}"})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"learning_rate": "2e4"}, "learning_rate: 20000 is above 100\nfor example: --learning-rate 2e-4"),
        ({"max_steps": 5, "epochs": 2}, "max_steps and epochs are both set"),
        (
            {"local_steps": 8, "sync": "flat"},
            "local_steps: it counts only with sync=local, and sync is flat\nfix: sync=local, or local_steps=auto",
        ),
        (
            {**BASE, "method": "full", "lora_targets": "q_proj"},
            "lora_targets: it counts only with method=lora, and method is full\nfix: method=lora, or lora_targets=",
        ),
        ({"hidden_size": 256, "lora_r": 4}, "lora_r: this belongs to recipe=sft, and the run has recipe=pretrain"),
        ({**BASE, "recipe": "sft", "layers": 4}, "layers: this belongs to recipe=pretrain, and the run has recipe=sft"),
        ({**BASE, "recipe": "sft", "layers": 4}, "leave layers out, or give recipe=pretrain as well"),
    ],
)
def test_what_contradicts_itself_or_common_sense_is_refused(values: dict[str, object], said: str) -> None:
    assert said in refusal(**values)


def test_a_run_that_goes_on_keeps_what_has_no_effect() -> None:
    """It cannot be changed any more: lora_r is a part of what decides the curve."""
    assert launch_request.read({**BASE, "method": "full", "lora_r": 8, "resume": "before"}, CLUSTER)


def test_all_findings_come_at_once() -> None:
    said = refusal(max_steps="x", sync="dpd", nodes="nobody", follow="perhaps")
    assert all(word in said for word in ("max_steps:", "sync:", "nodes:", "follow:", "docs/reference.md"))
    said = refusal(recipe="images", model="resnet19", eval_rows=0, dataset=photos())
    assert said.count("model: 'resnet19' is none of") == 1 and "eval_rows: 0 is below 1" in said
    said = refusal(model=None, lora_r=0)
    assert said.count("model: a value is missing") == 1 and "lora_r: 0 is below 1" in said


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"model": "qwen2.5-7b"}, r"\./my-notes.jsonl, a hub id \(owner/name\), or one of: stdlib-qa .*\nfix: --da"),
        ({"recipe": "pretrain"}, "stdlib-qa alpaca"),
        ({"recipe": "images"}, "a sub-folder for each class, .*: fashion-mnist"),
    ],
)
def test_what_to_train_on_must_be_named(asked: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=rf"dataset: a value is missing\n.*{named}"):
        launch_request.read(asked, CLUSTER)


def test_a_model_must_be_named() -> None:
    with pytest.raises(BadInput, match="model: a value is missing; the catalogue has llama2-7b"):
        launch_request.read({}, CLUSTER)


def test_what_is_not_needed_need_not_be_named() -> None:
    for asked in ({"model": "tiny"}, {"resume": "first"}, {"recipe": str(ROOT / "examples/table.py")}):
        found = launch_request.read(asked, CLUSTER)
        assert found.values == asked and found.data == {}


def test_the_file_is_read_with_the_request(tmp_path: Path) -> None:
    data = tmp_path / "notes.jsonl"
    data.write_text('{"prompt": "a", "completion": "b"}\n' * 3)
    found = launch_request.read({"model": "tiny", "dataset": str(data), "eval_fraction": 0}, CLUSTER).data
    assert found["words"] == "3 examples: 0 held out, 3 trained on; 50 steps"
    data.write_text("")
    with pytest.raises(BadInput, match=f"the data set is empty\nfile: {data}\n.*datasets.md.*\\Z"):
        launch_request.read({"model": "tiny", "dataset": str(data)}, CLUSTER)


@pytest.mark.parametrize("name", ["PPO", "rlhf"])
def test_training_by_a_model_that_judges_is_refused_with_what_is_there(name: str) -> None:
    said = refusal(recipe=name)
    assert said.startswith(f"recipe: {name}: Motley does not train by a model that judges\n"), said
    assert "recipe=preference" in said and "docs/questions.md#what-is-not-there" in said and "did you mean" not in said


def test_what_a_model_was_taken_for_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    taken = {name: request.read({"model": name}).model for name in ("qwen", "a/b", str(tmp_path))}
    assert "is in the catalogue" in taken["qwen"].reason and taken["qwen"].name == "qwen2.5-7b"
    assert "is a Hugging Face hub id" in taken["a/b"].reason and taken["a/b"].local_name == "a--b"
    assert "is a folder of this machine" in taken[str(tmp_path)].reason


def test_what_awx_adds_is_nobodys_misspelling() -> None:
    added = {"awx_job_id": 7, "awx_user_name": "anna", "tower_job_id": 7, "tower_user_name": "anna"}
    assert launch_request.read({"model": "tiny", **added}, CLUSTER).values == {"model": "tiny"}


def test_a_value_that_a_space_has_cut_is_named() -> None:
    """What Ansible makes of -e dataset=./my notes.jsonl"""
    said = refusal(dataset="./my", _raw_params="notes.jsonl")
    assert "'notes.jsonl'" in said and """-e '{"NAME": "VALUE"}'""" in said and "_raw_params" not in said


def test_nodes_keep_the_order_of_the_inventory() -> None:
    request = launch_request.read({"model": "tiny", "nodes": "gpu-worker-2 gpu-master"}, CLUSTER)
    assert request.nodes == ["gpu-master", "gpu-worker-2"] and request.named_nodes


def examples() -> list[tuple[str, str]]:
    """Every `name=value` of the documents' table."""
    text = (ROOT / "docs/reference.md").read_text()
    table = text.split("\n## Launch variables\n")[1].split("\n\n|", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"`(\w+)=([^`]*)`", table)


def test_every_variable_has_an_example_in_the_documents_and_each_is_taken() -> None:
    known = {*request.settings(), *launch_request.LAUNCH_ONLY}
    shown = examples()
    assert {name for name, _ in shown} == known
    assert known - BAD.keys() == ONLY_ON_THE_NODES, "a bad value of each is tried"
    of_your_own = ("./my-model", "./notes.jsonl", "./my-adapter", "./mine.jinja")  # there is no such file here
    refused = {}
    for name, value in shown:
        if value not in of_your_own:
            try:
                on = launch_request.OF_INFRAS.get(name, "machines")
                launch_request.read({**base_of({name: value}), name: value}, CLUSTER, on=on)
            except BadInput as finding:
                refused[f"{name}={value}"] = str(finding)
    assert refused == {}


def on_slurm(**values: object) -> launch_request.Asked:
    return launch_request.read({"model": "tiny", **values}, ["login"], on="slurm")


def test_what_slurm_alone_takes_goes_to_slurm() -> None:
    asked = on_slurm(slurm_options="--nodes=3 --gpus=4", slurm_gpu_gb="24")
    assert asked.of_infra == {"slurm_options": "--nodes=3 --gpus=4", "slurm_gpu_gb": "24"}
    assert on_slurm().of_infra == {}


def test_a_sweep_is_each_combination() -> None:
    assert on_slurm(sweep="learning_rate=1e-4,2e-4 lora_r=8").sweep == [
        {"learning_rate": "1e-4", "lora_r": "8"},
        {"learning_rate": "2e-4", "lora_r": "8"},
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"slurm_options": "gpu"}, "'gpu' is no option"),
        ({"sweep": "lora_r"}, "'lora_r' is not NAME=VALUE,VALUE"),
        ({"sweep": "lora_r='8,16"}, "'lora_r='8,16' is not NAME=VALUE,VALUE"),
        ({"sweep": "lora_r=8,many"}, "lora_r: 'many' is not a whole number"),
        ({"sweep": "lora_r=8,16", "lora_r": 8}, "lora_r is set beside it"),
        ({"sweep": "lora_rr=8,16"}, "unknown variable 'lora_rr'"),
        ({"slurm_gpu_gb": "many"}, "'many' is no number of GB"),
        ({"nodes": "login"}, "nodes: Slurm chooses them"),
    ],
)
def test_what_slurm_would_not_understand_is_refused_here(values: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        on_slurm(**values)


def launch(*words: str) -> tuple[subprocess.CompletedProcess[str], float]:
    start = pace.now()
    program = Path(sys.executable).parent / "ansible-playbook"
    done = pace.run(program, "-i", "inventory/loopback", "launch.yml", *words, cwd=ROOT)
    return done, pace.now() - start


def test_ansible_itself_stops_before_it_connects_to_anything() -> None:
    """However a variable is given: NAME=VALUE or JSON; a file in the next test."""
    for variable in ("modle=llama2-7b", json.dumps({"modle": "llama2-7b"})):
        done, seconds = launch("-e", variable)
        said = done.stdout + done.stderr
        assert done.returncode == 2 and "unknown variable 'modle' — did you mean 'model'?" in said, said
        assert "PLAY" not in said and "TASK" not in said  # two lines, not a page
        assert seconds < 15  # 0.8 s on a quiet machine


def test_ansible_reads_the_file_of_a_run_as_motley_does(tmp_path: Path) -> None:
    """The same file, whoever reads it: each value of it comes to the same check."""
    text = "# a run\nmodel: qwen3-0.6b\ndataset: ./none.jsonl\nmax_steps: many\nat: 22:00\nlora_r: 8  # small\n"
    (file := tmp_path / "run.yml").write_text(text)
    done, _ = launch("-e", f"@{file}")
    words = ["launch", "--inventory", "inventory/loopback", "-f", str(file)]
    mine = pace.run(sys.executable, "-m", "console", *words, cwd=ROOT)
    for found in (done, mine):
        said = found.stdout + found.stderr
        assert found.returncode == 2 and "there is no file ./none.jsonl" in said, said
        assert "max_steps: 'many' is not a whole number" in said and "at:" not in said, said
    said = {line for line in done.stderr.splitlines() if line.strip()}
    assert said == {line for line in mine.stderr.splitlines() if line.strip()}


def test_make_hands_on_values_with_spaces_and_quotes_in_one_piece(tmp_path: Path) -> None:
    name = f"""{tmp_path}/it's "my" notes.jsonl"""
    settings = [f"DATASET={name}", "MODEL=my model", "SET=seed='4 2' max_steps=many lora_r=x"]
    done = pace.run("make", "--no-print-directory", "launch", "INVENTORY=inventory/loopback", *settings, cwd=ROOT)
    said = done.stdout + done.stderr
    assert f"there is no file {name}" in said and "'my model'" in said, said
    assert "max_steps: 'many' is not" in said and "lora_r: 'x' is not" in said and "seed: '4 2' is" in said, said
    assert done.returncode == 2


def test_the_hubs_token_is_no_word_of_a_command() -> None:
    with pytest.raises(BadInput, match=r"(?s)motley_hub_token: whoever is on this computer.*fix: HF_TOKEN="):
        extra_vars(["max_steps=4", "motley_hub_token=hf_x"])
    assert extra_vars(["@token.yml"]) == ["-e", "@token.yml"]
