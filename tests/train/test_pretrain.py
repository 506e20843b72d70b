"""A model from nothing: the same curve on any cluster, through the loss of a node, and what comes out of it."""

import json
import math

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train import cluster, reference, texts
from tests.train.agents import Agents
from train.__main__ import main
from train.data.rows import open_rows
from train.plan.settings.config import PretrainConfig, load_config
from train.recipes.pretrain import model as new
from train.recipes.pretrain import recipe as pretrain
from train.recipes.pretrain.rows import prepare

CLOSE = 1e-6


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = texts.write(tmp_path_factory.mktemp("data") / "texts")
    config = load_config({**texts.SETTINGS, "dataset": str(folder)})
    return prepare(config, lambda _: None, out=str(tmp_path_factory.mktemp("rows") / "rows"))


@pytest.fixture(scope="module")
def settings(data):
    return {**texts.SETTINGS, "dataset": data}


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    return cluster.train(tmp_path_factory.mktemp("alone"), settings)


def truth_of(data, settings, steps):
    """Plain PyTorch: a new Llama, its own groups for decay, schedule, clipping and update."""
    config = load_config({**settings, "dataset": str(data)})
    index = json.loads((data / "index.json").read_text())
    model = new.empty(config.facts(index["vocabulary"]), index["end_id"]).float()
    new.first_weights(model, config.layers, config.seed)
    matrices = [p for name, p in model.named_parameters() if name.startswith("model.layers") and p.dim() == 2]
    others = [p for name, p in model.named_parameters() if not (name.startswith("model.layers") and p.dim() == 2)]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    rows, found = open_rows(data), []
    stream = reference.order(rows, config.seed)
    for step in range(steps):
        total, count = reference.summed_loss(model, rows, stream[step * 8 : step * 8 + 8])
        optimizer.zero_grad()
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * reference.factor(step, 4, steps)
        optimizer.step()
        found.append((total / count).item())
    return found


def test_its_losses_are_those_of_plain_pytorch(alone, data, settings):
    truth = truth_of(data, settings, 24)
    assert reference.largest_error(alone.losses(), truth) < 1e-5
    assert truth[0] > 0.9 * math.log(400) and truth[-1] < 0.9 * truth[0], "nothing was learned"


@pytest.mark.parametrize("sync", ["flat", pytest.param("ddp", marks=pytest.mark.long)])
def test_three_unequal_processes_have_the_same_curve(alone, settings, tmp_path, sync):
    run = cluster.train(tmp_path, {**settings, "shares": "5,2,1", "sync": sync, "micro_batch": 2}, 3)
    for rank in range(3):
        assert reference.largest_error(run.losses(rank), alone.losses()) < CLOSE
    written = [[e["lines"] for e in run.events(rank) if e["event"] == "samples"] for rank in range(3)]
    assert written[0] == written[1] == written[2] and len(written[0]) == 3
    first = [(run.node_home(rank) / "results/run/model/model.safetensors").read_bytes() for rank in range(3)]
    assert first[0] == first[1] == first[2]


@pytest.mark.long
def test_it_goes_on_where_it_was_killed_with_fewer_nodes(alone, settings, tmp_path):
    cluster.killed(tmp_path, {**settings, "shares": "5,2,1"}, 9)
    run = cluster.train(tmp_path, {**settings, "shares": "3,1"}, 2)
    assert [e["step"] for e in run.events() if e["event"] == "start"][-1] >= 6
    assert reference.largest_error(run.losses(), alone.losses()) < CLOSE


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
        assert reference.largest_error([event["loss"] for event in steps], truth.losses()) < CLOSE
        assert (agents.folder(name) / "results/run/model/model.safetensors").is_file()


def test_local_steps_train_all_weights(alone, settings, tmp_path):
    run = cluster.train(tmp_path, {**settings, "sync": "local", "local_steps": 4, "shares": "2,1"}, 2)
    assert run.losses(0) == run.losses(1)
    assert run.losses()[-1] < 0.95 * run.losses()[0]


def test_other_numbers_are_another_run(alone, settings, tmp_path):
    changed = cluster.Cluster(alone.home, {**settings, "max_steps": 30})
    assert changed.wait() == [2] and "max_steps was 24, is 30" in changed.said()
    wider = cluster.Cluster(alone.home, {**settings, "hidden_size": 64})
    assert wider.wait() == [2] and "hidden_size was 32, is 64" in wider.said()


def test_what_comes_out_loads_in_transformers(alone, data):
    folder = alone.node_home(0) / "results/run/model"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__ == "LlamaForCausalLM" and model.lm_head.weight is model.model.embed_tokens.weight
    rows = open_rows(data, "eval")
    batch = {name: torch.from_numpy(values) for name, values in rows.batch(list(range(len(rows)))).items()}
    with torch.no_grad():
        total = pretrain_loss(model, batch)
    assert float(total) / int(rows.targets.sum()) == pytest.approx(last_held_out(alone), rel=1e-5)
    text = "Generate a string: café ∑\n\ttabs, too"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert (folder / "README.md").is_file() and not (folder / "adapter_config.json").exists()
    assert (alone.node_home(0) / "results/run/best/tokenizer.json").is_file()


def pretrain_loss(model, batch):
    from train.models.hf import loss_sum  # noqa: PLC0415

    return loss_sum(model, batch)


def last_held_out(run):
    return [event["loss"] for event in run.events() if event["event"] == "eval"][-1]


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


def launched(run, data):
    """As a launch leaves it."""
    home = run.node_home(0)
    facts = {"model": {"name": "llama-0.1m", "hub": None, "folder_name": ""}, "rows": str(data)}
    facts["all"] = {"recipe": "pretrain", "dataset": "texts", "max_seq_length": 48}
    (home / "logs/runs/run/launch.json").write_text(json.dumps(facts))
    return home


def answer(capsys, *words):
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_it_is_asked_and_measured_without_a_base(alone, data, capsys):
    home = launched(alone, data)
    code, said = answer(capsys, "ask", "--run", "run", "--home", str(home), "--question", "The", "--answer-tokens", "9")
    assert code == 0 and list(said["answers"][0]) == ["question", "model"]
    again = answer(capsys, "ask", "--run", "run", "--home", str(home), "--question", "The", "--answer-tokens", "9")[1]
    assert again == said, "the same text is continued in the same words"
    code, found = answer(capsys, "eval", "--run", "run", "--home", str(home), "--questions", "2")
    assert code == 0 and found["model"]["loss"] == pytest.approx(last_held_out(alone), rel=1e-5)
    assert len(found["questions"]) == 2 and "base" not in found


def test_it_is_exported_whole(alone, data, capsys, tmp_path):
    words = ("--run", "run", "--home", str(launched(alone, data)), "--out")
    code, done = answer(capsys, "export", "merged", *words, str(tmp_path / "merged"))
    assert code == 0 and {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= done["files"].keys()
    AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    code, done = answer(capsys, "export", "adapter", *words, str(tmp_path / "adapter"))
    assert code == 2 and "made a model, not an adapter" in done["failures"][0]


def test_rows_of_a_base_models_tokenizer_are_refused(tmp_path):
    rows = cluster.make_rows(tmp_path / "rows")
    run = cluster.Cluster(tmp_path, {**texts.SETTINGS, "dataset": rows})
    assert run.wait() == [2] and "rows are of a base model's tokenizer" in run.said()


def test_a_longer_row_than_was_prepared_is_refused(settings, tmp_path):
    run = cluster.Cluster(tmp_path, {**settings, "max_seq_length": 64})
    assert run.wait() == [2] and "the rows have 48 tokens" in run.said()


def test_wsd_stays_at_its_peak_and_falls_at_the_end():
    from train.engine.make_optimizer import learning_rate  # noqa: PLC0415

    rates = [learning_rate(step, peak=1.0, kind="wsd", warmup_steps=10, total_steps=100) for step in range(100)]
    assert rates[0] == 0.1 and rates[10:80] == [1.0] * 70
    assert rates[90] == pytest.approx(0.5) and 0 < rates[99] < 0.06 and np.all(np.diff(rates[80:]) < 0)
