"""Settings from files and flags: read as the type that is meant, or refused in three lines that name the fix."""

import json
from dataclasses import fields

import pytest

from tests.train import cluster
from train.__main__ import COMMANDS, main, parse, prepare_command
from train.errors import BadInput
from train.plan.settings.read_settings import RECIPES, load_config


def test_text_becomes_what_the_field_is():
    text = {"learning_rate": "1e-4", "max_steps": "20", "pack": "no", "shares": "[5, 2,1]"}
    config = load_config(text | {"lora_targets": ["q_proj", "v_proj"]})
    assert config.learning_rate == 1e-4 and config.max_steps == 20 and config.pack is False
    assert config.shares == (5.0, 2.0, 1.0) and config.lora_targets == "q_proj,v_proj"
    assert load_config({"gradient_checkpointing": True}).gradient_checkpointing == "true"  # YAML's own true
    assert load_config({"run": 7, "epochs": None}).run == "7"


def test_all_weights_have_a_learning_rate_of_their_own_and_the_plan_says_it():
    """At an adapter's rate, ten times higher, a model forgets what it knew."""
    full, adapter, given = (load_config(v) for v in ({"method": "full"}, {}, {"method": "full", "learning_rate": 3e-5}))
    assert (full.learning_rate, adapter.learning_rate, given.learning_rate) == (2e-5, 2e-4, 3e-5)
    assert full.rate_reason == "learning rate 2e-05: all weights are trained; an adapter has 0.0002"
    assert adapter.rate_reason == given.rate_reason == ""


def test_a_run_of_few_rows_has_fifty_steps_and_says_why_unless_its_length_is_set():
    """Packed, a hundred records are ten rows: one step, at a fifth of its rate."""
    plain, once, set_ = (load_config(v) for v in ({}, {"epochs": 1}, {"max_steps": 3}))
    assert [config.steps_over(10) for config in (plain, once, set_)] == [50, 1, 3]
    assert plain.steps_over(16 * 80) == 80 and plain.length_reasons(16 * 80) == []
    [why] = plain.length_reasons(10)
    assert why.startswith("50 steps, 80.0 times through the data: fewer teach little; set epochs or max_steps")
    assert once.length_reasons(10) == ["warm-up of 0 steps, a tenth of 1: set warmup_steps for another"]


def test_warm_up_is_a_tenth_of_a_run_at_most_unless_it_is_set():
    usual, given = load_config({}), load_config({"warmup_steps": 4})
    assert [usual.warm_up(steps) for steps in (1, 20, 50, 900)] == [0, 2, 5, 5]
    assert given.warm_up(20) == 4
    (never,) = load_config({"warmup_steps": 4, "max_steps": 4}).length_reasons(99)
    assert never.startswith("warm-up in all 4 steps: the learning rate never gets to its peak")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learnig_rate": 1}, "unknown setting 'learnig_rate', did you mean 'learning_rate'?"),
        ({"sync": "dpp"}, "sync: 'dpp' is none of auto|ddp|flat|local, did you mean 'ddp'?"),
        ({"rows_per_step": 2.5}, "rows_per_step: '2.5' is not a whole number"),
        ({"shares": [0, 0]}, "shares: none may be negative"),
        ({"seed": None}, "seed: a value is missing"),
    ],
)
def test_a_mistake_is_named(values, message):
    with pytest.raises(BadInput) as caught:
        load_config(values)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_every_setting_has_help_and_a_known_reach():
    for spec in (spec for kind in RECIPES.values() for spec in fields(kind)):
        assert spec.metadata["help"] and spec.metadata["scope"] in ("math", "agree", "node")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["rum"], "unknown command 'rum', did you mean 'run'?"),
        (["run", "--max-step=3"], "unknown option --max-step, did you mean '--max-steps'?"),
        (["run", "--config", "/nowhere.yml"], "the config file cannot be read"),
        (["run", "--config"], "argument --config: expected one argument\nsee: python -m train run --help"),
        (["run", "--learning-rate", "fast"], "learning_rate: 'fast' is not a number"),
    ],
)
def test_bad_input_exits_with_2_and_a_short_message(argv, message, capsys):
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) <= 3
    assert "Traceback" not in said


def test_of_a_lost_connection_without_a_message_its_error_is_named(monkeypatch, capsys):
    monkeypatch.setenv("MOTLEY_AGENT", "1")
    monkeypatch.setattr("train.__main__.attach_to_agent", lambda: None)
    monkeypatch.setattr("train.__main__.run_command", lambda _: (_ for _ in ()).throw(ConnectionResetError()))
    assert main(["run"]) == 1
    assert capsys.readouterr().err == "lost contact with another process: ConnectionResetError\n"


def test_a_wrong_key_in_the_config_file_names_key_and_file(tmp_path, capsys):
    file = tmp_path / "training.yml"
    file.write_text("model: tiny\nmodle: tiny\n")
    assert main(["run", "--config", str(file), "--json"]) == 2
    captured = capsys.readouterr()
    assert "unknown setting 'modle', did you mean 'model'?" in captured.err and str(file) in captured.err
    assert json.loads(captured.out)["ok"] is False


def test_flags_come_before_the_config_file_and_a_file_may_serve_several_commands(tmp_path):
    file = tmp_path / "training.yml"
    file.write_text("model: smollm2-135m\nrows_per_step: 24\nbackend: hf\nlora_r: 4\n")
    _, parser = prepare_command("run")
    args = parse(parser, ["--config", str(file), "--lora-r=8"])
    assert (args.model, args.rows_per_step, args.lora_r) == ("smollm2-135m", 24, "8")
    _, parser = prepare_command("selftest")
    args = parse(parser, ["--config", str(file)])
    assert (args.model, args.backend) == ("smollm2-135m", "hf")
    assert not hasattr(args, "lora_r")


def test_help_names_every_command_and_what_each_takes(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for command in COMMANDS:
        assert command in said and "--config" in prepare_command(command)[1].format_help(), command


def test_a_setting_is_explained_as_it_is_written():
    _, parser = prepare_command("run")
    assert "without a gain of 0.1 % until" in " ".join(parser.format_help().split())


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"lora_targets": "q_pro,v_proj"}, "model has no linear layer 'q_pro', did you mean 'q_proj'?"),
        ({"shares": "5,2,1"}, "shares: 3 numbers for 1 processes"),
    ],
)
def test_what_only_the_model_or_the_cluster_shows_is_named_too(setting, said, data, tmp_path):
    run = cluster.Cluster(tmp_path, {"model": "tiny", "dataset": data} | setting)
    assert run.wait() == [2]
    assert said in run.said()
