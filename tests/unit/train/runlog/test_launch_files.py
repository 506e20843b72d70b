"""The files of a launch, as each node reads them without a library."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.plan.launch.cluster_config import ClusterConfig, Member, read_cluster
from train.plan.placement.pipeline_split import Room
from train.plan.settings.aside import AsideRules
from train.runlog import paths
from train.runlog.launch_files import LastLaunch, last_launch

CLUSTER = ClusterConfig(
    run="1e5",
    node="b",
    token="0012",
    nodes=(Member(name="a", address="10.0.0.1"), Member(name="b", address="b.lan", processes=2)),
    interface="enp3s0",
    group_ports=(30001, 30029),
    aside=AsideRules(hours="22:00-07:00", programs=("Wächter", "a: b #c")),
    pipe=Room(40, 160_000_000, {"a": 26, "b": 14}),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path / paths.CLUSTER


def test_what_is_written_of_a_cluster_is_read_back_as_it_was(file: Path) -> None:
    file.write_text(CLUSTER.to_text())
    assert read_cluster(file) == CLUSTER


def test_each_node_knows_its_launch_without_yaml(tmp_path: Path, file: Path) -> None:
    assert last_launch(tmp_path) == LastLaunch()
    file.write_text(CLUSTER.to_text())
    nodes = (("a", "10.0.0.1"), ("b", "b.lan"))
    assert last_launch(tmp_path) == LastLaunch(run="1e5", interface="enp3s0", nodes=nodes, token="0012")


def test_of_a_file_that_a_person_wrote_it_knows_the_words(tmp_path: Path, file: Path) -> None:
    file.write_text("run: qa # mine\ntoken: '5f'\nnodes:\n  - {name: a, address: 10.0.0.1}\ninterface: \"wg0\"\n")
    assert last_launch(tmp_path) == LastLaunch(run="qa", interface="wg0", token="5f")
    file.write_bytes(b"\xff\x00torn")
    assert last_launch(tmp_path) == LastLaunch()
