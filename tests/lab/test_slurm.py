"""A run as a job of a real Slurm: unequal machines of a cluster that is somebody else's, reached by its login node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import lab as labs
from lab import slurm
from lab.place import Place
from tests.support import cluster as clusters
from tests.support.cluster import Cluster


@pytest.fixture(scope="module")
def site(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place = Place(name=f"s{os.getpid()}")
    try:
        made = clusters.start(place.name, "trio", "bookworm", tmp_path_factory.mktemp("slurm"), ["train", "slurm"])
        slurm.start(made.lab)
        yield made
    finally:
        labs.down(place)


def test_it_is_a_slurm_that_gives_each_node_the_cards_it_has(site: Cluster) -> None:
    """With the slurm.conf of ./motley slurm-conf: one, two and one of four cards, each node knows its own."""
    said = slurm.slurm(site.hosts[0], *"srun -N3 --gpus=4 sh -c".split(), "echo $(hostname) $SLURM_GPUS_ON_NODE")
    assert sorted(said.split("\n")[:-1]) == ["gpu-master 1", "gpu-worker-1 2", "gpu-worker-2 1"]
    types = slurm.slurm(site.hosts[0], "sinfo", "-hN", "-o", "%N %G")
    assert "gpu-worker-1 gpu:rtx4070:2" in types


def test_what_one_host_writes_to_the_shared_folder_the_others_read(site: Cluster) -> None:
    slurm.slurm(site.hosts[0], "sh", "-c", "echo hello >/srv/shared/user/note")
    assert slurm.slurm(site.hosts[2], "cat", "/srv/shared/user/note") == "hello\n"
    assert (Path(site.lab.place.shared) / "user/note").exists()
