"""What a recipe needs beside the nodes' own environment: named in the plan, found by its workers, refused elsewhere."""

import importlib
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from tests.support.plans import look
from tests.unit.train.plan.test_plan import nodes
from train.errors import BadInput
from train.plan.launch import extra_packages
from train.plan.launch.launch_plan import ExtraEnvironment
from train.plan.settings.read_settings import SftConfig


@dataclass(frozen=True, kw_only=True)
class Trials(SftConfig):
    PACKAGES: ClassVar[str] = "sweep"


def test_a_recipe_that_names_a_locked_set_gets_it_below_the_clusters_folder():
    [found] = extra_packages.environments(Trials(), nodes(look()))
    assert found == ExtraEnvironment(folder="extra/sweep", sets=["sweep"], imports=["optuna"], layered=True)
    assert extra_packages.environments(SftConfig(), nodes(look())) == []


def test_its_workers_find_it_behind_all_that_they_have(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = replace(Trials(), home=str(tmp_path))
    with pytest.raises(BadInput, match=r"needs optuna, and .*extra/sweep/env is not there\n./motley launch brings it"):
        extra_packages.use(config)
    site = tmp_path / "extra/sweep/env/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (site / "optuna.py").write_text("HERE = 1\n")
    (site / "json.py").write_text("HERE = 1\n")
    extra_packages.use(config)
    try:
        assert importlib.import_module("optuna").HERE == 1 and sys.path[-1] == str(site)
    finally:
        del sys.modules["optuna"]
    extra_packages.use(replace(SftConfig(), home="/nowhere"))


def test_it_comes_to_machines_of_ones_own_alone():
    with pytest.raises(BadInput, match="needs optuna, which comes to machines of your own, not to pods"):
        extra_packages.refuse_elsewhere(Trials(), "pods")
    extra_packages.refuse_elsewhere(SftConfig(), "pods")
