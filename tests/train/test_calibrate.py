"""A machine's speed, measured once: the line through its steps, and what is kept."""

import argparse
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.test_vllm import install
from train import __main__
from train.measure import calibrate
from train.measure.calibrate import BUDGET_S, Speed, fit, keep, known
from train.models import sample_tokens
from train.models.vllm import Server, python_of
from train.plan.settings.read_settings import config_of
from train.recipes.grpo import generate


class Steps:
    """A machine that takes so long, on paper."""

    def __init__(self, fixed_s: float, row_s: float, rows: int) -> None:
        self.fixed_s, self.row_s, self.rows, self.took = fixed_s, row_s, rows, []

    def __call__(self, micro_batches: int) -> float:
        self.took.append(self.fixed_s + micro_batches * self.rows * self.row_s)
        return self.took[-1]


@given(st.floats(0, 0.5), st.floats(1e-4, 0.5), st.integers(1, 16))
def test_a_line_is_found_within_the_time(fixed_s, row_s, rows):
    steps = Steps(fixed_s, row_s, rows)
    found = fit(steps, rows)
    if len(steps.took) > 2 and fixed_s < rows * row_s:
        assert found.rows_per_s == pytest.approx(1 / row_s) and found.fixed_s == pytest.approx(fixed_s, abs=1e-6)
    assert found.rows_per_s > 0 and found.fixed_s >= 0
    assert sum(steps.took[1:]) <= BUDGET_S + 3 * max(steps.took)


def test_a_large_model_takes_two_steps():
    steps = Steps(1.0, 30.0, 1)
    assert fit(steps, 1) == Speed(1 / 31.0, 0.0) and len(steps.took) == 2


def test_single_slow_steps_count_for_nothing_and_noise_makes_no_row_free():
    steps = Steps(0.02, 0.01, 4)
    spoiled = iter([0, 0, 0, 0.3, 0.2, 0, 0, 0, 0, 0, 0])
    assert fit(lambda micro: steps(micro) + next(spoiled), 4).rows_per_s == pytest.approx(100)
    assert fit(lambda _: 0.1, 4).rows_per_s == pytest.approx(4 * 3 / (0.5 * 0.1)), "three times as many took no longer"
    uneven = fit(lambda micro: {1: 0.1, 3: 0.6}[micro], 4)
    assert uneven == Speed(pytest.approx(4 * 3 / 0.6), 0.0), "a row costs no more than the mean of all"


def test_what_is_kept_is_found_again_and_a_damaged_file_is_not_trusted(tmp_path):
    keep(tmp_path / "c.json", "a", Speed(1.5, 0.1))
    keep(tmp_path / "c.json", "b", Speed(2.5, 0.0))
    assert known(tmp_path / "c.json") == {"a": Speed(1.5, 0.1), "b": Speed(2.5, 0.0)}
    (tmp_path / "c.json").write_text('{"a": {"rows"')
    assert known(tmp_path / "c.json") == {}


def key(*words: str) -> str:
    parser = argparse.ArgumentParser()
    calibrate.add_arguments(parser)
    return calibrate.key_of(config_of(parser.parse_args(words)))


def test_another_machine_environment_or_weights_are_measured_anew(tmp_path, monkeypatch):
    words = ("--model", str(tmp_path), "--max-seq-length", "64")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    keys = [key(*words), key(*words)]
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    keys.append(key(*words))
    monkeypatch.setattr(calibrate, "processor", lambda: ["another"])
    keys.append(key(*words))
    monkeypatch.setattr(calibrate, "gpus", lambda: ["RTX 4070"])
    keys.append(key(*words))
    monkeypatch.setattr("train.measure.versions.environment_lock", lambda: "another")
    keys.append(key(*words))
    assert keys[0] == keys[1] and len(set(keys)) == 5


def test_other_settings_are_measured_anew():
    flags = ("--rows-per-step=4", "--memory-ceiling=0.5", "--optimizer=adamw8bit", "--lora-r=4", "--max-seq-length=64")
    keys = {key("--model=tiny"), *(key("--model=tiny", flag) for flag in flags)}
    assert len(keys) == 1 + len(flags)


@pytest.fixture
def measured(tmp_path, capsys, monkeypatch):
    """What `train calibrate` prints, as JSON, in a home of its own."""
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))

    def calibrated(*flags: str) -> dict:
        words = ["calibrate", "--model", "tiny", "--max-seq-length", "64", "--json", *flags]
        assert __main__.main(words) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return calibrated


def test_a_machine_is_measured_once(measured):
    assert measured("--known-only")["speed"] is None
    first = measured()
    assert first["speed"]["rows_per_s"] > 0 and not first["cached"]
    again = measured()
    assert again["cached"] and again["speed"] == first["speed"]


def test_where_the_model_makes_its_rows_both_halves_are_measured(measured, monkeypatch):
    """A token takes 20 ms here, for all of four answers side by side, and a row of training 100."""

    def choosing(*words):
        clock["now"] += 0.02
        return choose(*words)

    clock, choose = {"now": 0.0}, sample_tokens.choose
    monkeypatch.setattr(sample_tokens, "choose", choosing)
    monkeypatch.setattr(generate, "time", SimpleNamespace(perf_counter=lambda: clock["now"]))
    monkeypatch.setattr(calibrate, "fit", lambda *_: Speed(10.0, 0.0))
    both = [measured("--recipe", "grpo", "--max-new-tokens", tokens)["speed"] for tokens in ("10", "40")]
    wanted = [1 / (0.1 + 10 * 0.02 / 4), 1 / (0.1 + 40 * 0.02 / 4)]
    assert [speed["rows_per_s"] for speed in both] == pytest.approx(wanted)


def test_what_the_run_will_ask_is_asked(tmp_path, capsys, monkeypatch):
    """A server's token takes 10 ms here, for all of eight answers side by side, and a row of training 100."""
    clock, asked, answers = {"now": 0.0}, [], Server.answers

    def counting(self, prompts, rows, draw, *, end_ids, most):
        asked.append((len(prompts), most))
        clock["now"] += 0.01 * most
        made = answers(self, prompts, rows, draw, end_ids=end_ids, most=most)
        assert [len(one.tokens) for one in made] == [most] * len(prompts)
        servers.append(self)
        return made

    servers: list[Server] = []
    home = install(tmp_path / "home")
    monkeypatch.setenv("MOTLEY_HOME", str(home))
    monkeypatch.setattr(Server, "answers", counting)
    monkeypatch.setattr(generate, "time", SimpleNamespace(perf_counter=lambda: clock["now"]))
    monkeypatch.setattr(calibrate, "fit", lambda *_: Speed(10.0, 0.0))
    words = ["calibrate", "--model", "tiny", "--max-seq-length", "64", "--recipe", "grpo", "--max-new-tokens", "40"]
    words += ["--rows-per-step", "8", "--engine", "vllm", "--json"]
    assert __main__.main(words) == 0
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["speed"]["rows_per_s"] == pytest.approx(1 / (0.1 + 40 * 0.01 / 8))
    assert asked == [(8, 1), (8, 1), (8, 9)], "the first do not count"
    assert servers[-1].process.poll() is not None, "it ends with the measurement"
    assert not (home / "logs").exists(), "a measurement is no run"
    python_of(home).unlink()
    again, key = __main__.main(words), measured["key"]
    assert again == 0 and json.loads(capsys.readouterr().out.splitlines()[-1])["speed"] == measured["speed"]
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path / "other"))
    assert __main__.main(words) == 2
    (why,) = json.loads(capsys.readouterr().out.splitlines()[-1])["failures"]
    assert "vLLM is not installed here" in why and "./motley launch brings it" in why
    assert not (tmp_path / "other/calibration.json").exists()
    assert __main__.main([*words, "--engine", "transformers", "--known-only"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["key"] != key


@pytest.mark.parametrize(("rows_per_step", "found"), [(16, 4), (2, 2)])
def test_on_a_card_the_micro_batch_is_the_one_that_a_run_would_find(rows_per_step, found, measured, monkeypatch):
    """A card on paper has room for four rows."""

    def card(module, trained, full_rows, *, device, ceiling):
        assert trained.optimizer.param_groups and ceiling == 0.8
        return (lambda rows: 100 * rows), 500

    def step_of(step, rows):
        took.append(rows)
        return Speed(1.0, 0.0)

    took: list[int] = []
    monkeypatch.setattr("train.engine.after_loading.device_of", lambda _: "cuda:0")
    monkeypatch.setattr("train.engine.micro_batch_search.gpu_trial", card)
    monkeypatch.setattr(calibrate, "fit", step_of)
    measured("--rows-per-step", str(rows_per_step), "--memory-ceiling", "0.8")
    assert took == [found]


def test_of_a_model_that_is_cut_a_part_is_measured_in_layers(measured):
    cut = ("--micro-batch", "1", "--pipes", "a+b")
    parts = [measured(*cut, "--part", part) for part in ("0-2", "2-4", "0-2")]
    assert [part["cached"] for part in parts] == [False, False, True]
    assert parts[0]["key"] == parts[2]["key"] != parts[1]["key"]
    whole, part = measured(*cut), parts[0]["speed"]["rows_per_s"]
    assert not whole["cached"]
    assert part > 1.5 * whole["speed"]["rows_per_s"], "two layers of a row, or four and the head"
