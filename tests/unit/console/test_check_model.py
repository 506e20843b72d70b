"""./motley check-model: where it computes, and what it says where it cannot."""

from pathlib import Path

import pytest

from console import check_model
from tests.support.stand_ins import program
from train.errors import BadInput


def test_without_torch_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check_model, "ENVIRONMENTS", (tmp_path / "none",))
    with pytest.raises(BadInput, match=r"no torch.*\n.*\./motley plan --model NAME .*make_env.sh"):
        check_model.check_model(model="tiny", as_json=False)
    with pytest.raises(BadInput, match="name a model"):
        check_model.check_model(model="", as_json=False)


def test_the_environment_that_trains_computes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "env/bin/python", '#!/bin/sh\necho "$@"\nexit 1\n')
    monkeypatch.setattr(check_model, "ENVIRONMENTS", (tmp_path / "none", tmp_path / "env"))
    assert check_model.check_model(model="me/new", as_json=True) == 1
    assert capfd.readouterr().out == "-m train check-model --model me/new --json\n"
