"""A gguf that was made is used again, as it may take long and be large; not when its run has made something newer."""

import os
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from train.results import export


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    folder = tmp_path / "results/qa/adapter"
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").touch()
    return SimpleNamespace(run="qa", step=None, folder=folder)


def asked(what: str = "gguf", out: Path | None = None) -> Namespace:
    return Namespace(what=what, quant="q4_0", out=out)


def made(folder: Path, age_s: float) -> None:
    folder.mkdir(parents=True)
    at = folder.stat().st_mtime - age_s
    os.utime(folder, (at, at))


def test_one_that_is_newer_than_the_result_is_used_again(run, tmp_path):
    args = asked()
    assert not export.is_made(run, args) and args.out == tmp_path / "exports/qa/gguf-q4_0"
    made(args.out, age_s=-60)
    assert export.is_made(run, asked())


def test_an_older_one_goes(run, tmp_path):
    made(tmp_path / "exports/qa/gguf-q4_0", age_s=60)
    assert not export.is_made(run, asked()) and not (tmp_path / "exports/qa/gguf-q4_0").exists()


def test_a_folder_that_was_named_stays_and_is_refused_later(run, tmp_path):
    for args in (asked(out=tmp_path / "own"), asked(what="merged")):
        made(args.out or tmp_path / "exports/qa/merged", age_s=60)
        assert not export.is_made(run, args) and args.out.exists()


def test_that_of_a_checkpoint_has_its_step(run, tmp_path):
    run.step, args = 40, asked()
    assert not export.is_made(run, args) and args.out == tmp_path / "exports/qa/gguf-q4_0-step-40"
