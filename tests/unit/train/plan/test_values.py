"""A value as YAML or a person gives it, as the type that its setting has; and files of settings that are none."""

import pytest

from train.errors import BadInput
from train.plan.settings.read_settings import load_config, read_yaml


@pytest.mark.parametrize(
    ("name", "value", "noun"),
    [
        ("learning_rate", True, "a number"),
        ("shares", [True, 1], "a list of numbers"),
        ("lora_alpha", False, "a number"),
        ("max_steps", True, "a whole number"),
    ],
)
def test_what_is_no_number_is_refused(name, value, noun):
    with pytest.raises(BadInput, match=f"^{name}: '.*' is not {noun}$"):
        load_config({name: value})


@pytest.mark.parametrize(
    "values", [{"pipes": False}, {"recipe": "sweep", "search": "lora_r=8,16", "prune": False, "pipes": False}]
)
def test_off_needs_no_quotes_in_yaml(values):
    config = load_config(values)
    assert {getattr(config, name) for name in ("pipes", "prune") if name in values} == {"off"}


def test_a_space_behind_a_comma_names_no_other_layer():
    assert load_config({"lora_targets": "q_proj, v_proj"}).holding.lora_targets == "q_proj,v_proj"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("run: caf\xe9".encode("latin-1"), "the file is not text in UTF-8"),
        (b"run: 2026-13-45", "the file is not YAML\nfile: .*\nmonth must be in 1..12"),
        (b"run: [", "the file is not YAML"),
        (b"run: !!bool x", "the file is not YAML"),
        (b"- run", "the file holds no settings"),
    ],
)
def test_a_file_that_holds_no_settings_is_named(text, problem, tmp_path):
    (tmp_path / "run.yml").write_bytes(text)
    with pytest.raises(BadInput, match=problem):
        read_yaml(tmp_path / "run.yml", "file")
