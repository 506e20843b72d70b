"""A first launch on somebody's Slurm, over SSH to its login node: whatever the run needs is brought by it, once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab.demo_sites import fetch_wheels
from tests.support.slurm_site import Account, opened

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def account(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    fetch_wheels("3.11", "tiny")  # the lab's controller has no way out
    own = {"motley_python_env_manage": True, "motley_python_env_sets": ["node-cpu"]}  # its cards are none
    yield from opened(tmp_path_factory.mktemp("slurm"), "slurm", own=own)


def test_environment_model_and_rows_are_brought_once_for_all_nodes(account: Account) -> None:
    assert not account.shared.exists()
    first = account.launches("first", "max_steps=4")
    first.hears(r"brings    the environment \(node-cpu\) to /srv/shared/user/ai-cluster, once for all nodes", 60)
    first.hears(r"bringing [\d.]+ [MG]B over ssh \(\d+ of \d+ files\)", 240)
    first.hears(r"bringing torch-\S+, \d+ MB of them", 240)
    first.hears(r"done · 4 steps", 600)
    assert first.ends(30) == 0
    assert (account.shared / "env").is_symlink()
    for host in account.person.cluster.hosts:
        assert host.outcome("test", "-e", "/home/user/ai-cluster").returncode == 1, "a node has something of its own"
    found = account.head.run("find", "/srv/shared/user", "-user", "root")
    assert not found.strip(), "nothing there is root's"


def test_what_is_there_is_not_brought_again(account: Account) -> None:
    """After the one above."""
    second = account.launches("second", "max_steps=4")
    second.hears(r"done · 4 steps", 300)
    assert second.ends(30) == 0
    assert not re.search("brings|bringing", second.said), second.said
