"""The files of a launch, as each node reads them without a library."""

from dataclasses import replace
from pathlib import Path

import pytest

from train.plan.launch.cluster_config import ClusterConfig, Member, read_cluster
from train.plan.placement.pipeline_split import Room
from train.plan.settings.read_settings import RECIPES
from train.plan.settings.step_aside_rules import AsideRules
from train.runlog import paths
from train.runlog.last_launch import LastLaunch, last_launch
from train.runlog.secret import Secret, forget_messages, secret_of


def test_what_any_recipe_makes_is_found_below_its_results():
    assert {kind.RESULT for kind in RECIPES.values()} == set(paths.MADE)


CLUSTER = ClusterConfig(
    run="1e5",
    node="b",
    nodes=(Member(name="a", address="10.0.0.1"), Member(name="b", address="b.lan", processes=2)),
    interface="enp3s0",
    group_ports=(30001, 30029),
    aside=AsideRules(hours="22:00-07:00", programs=("Wächter", "a: b #c")),
    limits={"watts": 250},
    pipe=Room(40, 160_000_000, {"a": 26, "b": 14}),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path / paths.CLUSTER


def test_what_is_written_of_a_cluster_is_read_back_as_it_was(tmp_path, file):
    file.write_text(replace(CLUSTER, token="5f").to_text())
    (tmp_path / paths.SECRET).write_text(Secret(token="0012").to_json())
    assert read_cluster(file) == replace(CLUSTER, token="0012")
    assert "5f" not in file.read_text(), "whoever may read it need not know the token"


def test_each_node_knows_its_launch_without_yaml(tmp_path, file):
    assert last_launch(tmp_path) == LastLaunch()
    file.write_text(CLUSTER.to_text())
    nodes = (("a", "10.0.0.1"), ("b", "b.lan"))
    assert last_launch(tmp_path) == LastLaunch(run="1e5", interface="enp3s0", nodes=nodes, limits=True)


def test_of_a_file_that_a_person_wrote_it_knows_the_words(tmp_path, file):
    file.write_text("run: 'qa' # mine\nnodes:\n  - {name: a, address: 10.0.0.1}\ninterface: \"wg0\"\n")
    assert last_launch(tmp_path) == LastLaunch(run="qa", interface="wg0")
    for nodes in ("[{name: a, address: 10.0.0.1}]", '["a", "b"]', "2"):
        file.write_text(f"run: qa\nnodes: {nodes}\n")
        assert last_launch(tmp_path) == LastLaunch(run="qa"), "whose nodes only YAML reads"
    file.write_bytes(b"\xff\x00torn")
    assert last_launch(tmp_path) == LastLaunch()


@pytest.mark.parametrize("text", [None, "{torn", "[]", "\x00"])
def test_a_secret_that_is_missing_or_torn_is_an_empty_one(tmp_path, file, text):
    if text is not None:
        (tmp_path / paths.SECRET).write_text(text)
    assert secret_of(tmp_path / paths.SECRET) == Secret()


def test_who_forgets_the_address_of_messages_keeps_the_token_and_forgets_that_of_waiting_runs_too(tmp_path, file):
    files = [tmp_path / paths.SECRET, tmp_path / paths.QUEUE / "next" / paths.SECRET]
    for each in files:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text(Secret(token="5f", messages="https://me").to_json())
    assert forget_messages(tmp_path)
    assert [secret_of(each) for each in files] == [Secret(token="5f")] * 2
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in files) and not forget_messages(tmp_path)
