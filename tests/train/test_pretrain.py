"""A model from nothing: the same curve on any cluster, through the loss of a node, and what comes out of it."""

import math

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train import cluster, reference, texts
from tests.train.agents import Agents
from tests.train.cluster import answer
from train.data.rows import open_rows
from train.engine.make_optimizer import learning_rate
from train.models.hf import loss_sum
from train.plan.settings.read_settings import PretrainConfig, load_config
from train.recipes.pretrain import model as new
from train.recipes.pretrain import recipe as pretrain


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return texts.rows(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def settings(data):
    return {**texts.SETTINGS, "dataset": data}


def with_groups_of_its_own(matrices, others):
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))

    def step_at(rate):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()

    return step_at


def test_its_losses_are_those_of_plain_pytorch(alone, data, settings):
    truth = texts.truth_of(data, settings, with_groups_of_its_own)
    assert reference.largest_error(alone.losses(), truth) < 1e-5
    assert truth[0] > 0.9 * math.log(400) and truth[-1] < 0.9 * truth[0], "nothing was learned"


@pytest.mark.parametrize("sync", ["flat", pytest.param("ddp", marks=pytest.mark.long)])
def test_three_unequal_processes_have_the_same_curve(alone, settings, tmp_path, sync):
    run = cluster.train(tmp_path, {**settings, "shares": "5,2,1", "sync": sync, "micro_batch": 2}, 3)
    reference.assert_one_model(run, alone)
    written = [[event["lines"] for event in run.events(rank, "samples")] for rank in range(3)]
    assert written[0] == written[1] == written[2] and len(written[0]) == 3


@pytest.mark.long
def test_the_curve_goes_through_the_loss_of_a_node(settings, tmp_path):
    """Agents: the unequal third of them is killed with its worker, the others go on by themselves."""
    longer = {**settings, "max_steps": 150, "save_every": 20, "eval_every": 0}
    truth = cluster.train(tmp_path / "alone", longer)
    agents = Agents(tmp_path, {**longer, "speeds": "node-0=5,node-1=2,node-2=1", "sync": "flat"})
    agents.start()
    agents.wait(lambda: agents.last_step("node-0")["step"] >= 10, 90, "they do not train")
    agents.kill("node-2")
    assert agents.ended() == [0, 0]
    for name in ("node-0", "node-1"):
        steps = agents.steps(name)
        assert len(steps[0]["nodes"]) == 3 and len(steps[-1]["nodes"]) == 2
        assert reference.largest_error([event["loss"] for event in steps], truth.losses()) < 1e-6
        assert (agents.folder(name) / "results/run/model/model.safetensors").is_file()


def test_local_steps_train_all_weights(alone, settings, tmp_path):
    run = cluster.train(tmp_path, {**settings, "sync": "local", "local_steps": 4, "shares": "2,1"}, 2)
    assert run.losses(0) == run.losses(1)
    assert run.losses()[-1] < 0.95 * run.losses()[0]


def test_other_numbers_are_another_run(alone, settings):
    other = cluster.Cluster(alone.home, {**settings, "max_steps": 30, "hidden_size": 64})
    assert other.wait() == [2]
    assert "max_steps was 24, is 30" in other.said() and "hidden_size was 32, is 64" in other.said()


def test_what_comes_out_loads_in_transformers(alone, data):
    folder = alone.result(name="model")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__ == "LlamaForCausalLM" and model.lm_head.weight is model.model.embed_tokens.weight
    rows = open_rows(data, "eval")
    batch = {name: torch.from_numpy(values) for name, values in rows.batch(list(range(len(rows)))).items()}
    with torch.no_grad():
        total = loss_sum(model, batch)
    assert float(total) / int(rows.targets.sum()) == pytest.approx(last_held_out(alone), rel=1e-5)
    text = "Generate a string: café ∑\n\ttabs, too"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert (folder / "README.md").is_file() and not (folder / "adapter_config.json").exists()
    assert (alone.result(name="best") / "tokenizer.json").is_file()


def last_held_out(run):
    return run.events(kind="eval")[-1]["loss"]


def test_first_weights_are_smaller_where_blocks_add_to_the_stream():
    config = load_config({**texts.SETTINGS, "layers": 8})
    model = new.empty(config.facts(400), 0)
    new.first_weights(model, 8, 1)
    spread = {name: p.std().item() for name, p in model.named_parameters() if p.dim() == 2}
    assert spread["model.layers.3.self_attn.q_proj.weight"] == pytest.approx(0.02, rel=0.1)
    assert spread["model.layers.3.self_attn.o_proj.weight"] == pytest.approx(0.005, rel=0.1)
    assert spread["model.layers.3.mlp.down_proj.weight"] == pytest.approx(0.005, rel=0.1)


def test_neither_norms_nor_embeddings_shrink():
    config = PretrainConfig(**texts.SHAPE, tie_embeddings=False)
    named = dict(new.empty(config.facts(400), 0).named_parameters())
    shrunk, kept = pretrain.optimized(config, named)
    names = {id(p): name for name, p in named.items()}
    assert all("_proj" in names[id(p)] for p in shrunk["params"]) and len(shrunk["params"]) == 2 * 7
    assert {names[id(p)] for p in kept["params"]} >= {"lm_head.weight", "model.embed_tokens.weight"}
    assert shrunk["weight_decay"] == 0.1 and kept["weight_decay"] == 0 and kept["betas"] == (0.9, 0.95)


@pytest.fixture(scope="module")
def home(alone, data):
    return alone.launched({"recipe": "pretrain", "dataset": "texts", "max_seq_length": 48}, data)


def test_it_is_asked_and_measured_without_a_base(alone, home, capsys):
    where = ("--run", "run", "--home", home)
    asked = [answer(capsys, "ask", *where, "--question", "The", "--answer-tokens", 9) for _ in range(2)]
    assert asked[0] == asked[1], "the same text is continued in the same words"
    code, said = asked[0]
    assert code == 0 and list(said["answers"][0]) == ["question", "model"]
    code, found = answer(capsys, "eval", *where, "--questions", 2)
    assert code == 0 and found["model"]["loss"] == pytest.approx(last_held_out(alone), rel=1e-5)
    assert len(found["questions"]) == 2 and "base" not in found


def test_it_is_exported_whole(home, capsys, tmp_path):
    words = ("--run", "run", "--home", home, "--out")
    code, done = answer(capsys, "export", "merged", *words, tmp_path / "merged")
    assert code == 0 and {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= done["files"].keys()
    AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    code, done = answer(capsys, "export", "adapter", *words, tmp_path / "adapter")
    assert code == 2 and "made a model, not an adapter" in done["failures"][0]


def test_rows_of_a_base_models_tokenizer_and_longer_ones_than_were_prepared_are_refused(data, settings, tmp_path):
    rows = cluster.make_rows(tmp_path / "rows")
    for wrong, said in (
        ({"dataset": rows}, "rows are of a base model's tokenizer"),
        ({"max_seq_length": 64}, "the rows have 48 tokens"),
    ):
        run = cluster.Cluster(tmp_path, {**settings, **wrong})
        assert run.wait() == [2] and said in run.said()


def test_wsd_stays_at_its_peak_and_falls_at_the_end():
    rates = [learning_rate(step, peak=1.0, kind="wsd", warmup_steps=10, total_steps=100) for step in range(100)]
    assert rates[0] == 0.1 and rates[10:80] == [1.0] * 70
    assert rates[90] == pytest.approx(0.5) and 0 < rates[99] < 0.06 and np.all(np.diff(rates[80:]) < 0)
