"""Cgroups on both layouts, on a copy of their folders: this machine has only one of them."""

from pathlib import Path

import pytest

from lab import cgroups

GROUP = "motley-lab/lab/gpu-master"


@pytest.fixture(params=["v2", "hybrid"])
def layout(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    if request.param == "v2":
        (tmp_path / "cgroup.controllers").write_text("cpu memory")
    else:
        for tree in ("unified", "systemd", "cpu"):
            (tmp_path / tree).mkdir()
    for tree in cgroups.trees():
        (tree / "cgroup.procs").write_text("")
    return str(request.param)


def test_a_host_joins_one_folder_in_every_tree_and_v2_hands_the_cpu_down_to_it(layout: str, tmp_path: Path) -> None:
    folders = cgroups.create(GROUP)
    assert len(folders) == {"v2": 1, "hybrid": 3}[layout]
    assert all(folder.is_dir() and folder.name == "gpu-master" for folder in folders)
    assert cgroups.check() is None
    delegated = [tmp_path, tmp_path / "motley-lab", tmp_path / "motley-lab/lab"]
    written = [(folder / "cgroup.subtree_control").exists() for folder in delegated]
    assert written == [layout == "v2"] * 3
    assert not (tmp_path / GROUP / "cgroup.subtree_control").exists(), "the host's own level belongs to its systemd"


def test_a_quota_is_read_back_and_lifted(layout: str, tmp_path: Path) -> None:
    cgroups.create(GROUP)
    cgroups.quota(GROUP, 15)
    assert cgroups.quota_percent(GROUP) == 15
    file = tmp_path / (f"{GROUP}/cpu.max" if layout == "v2" else f"cpu/{GROUP}/cpu.cfs_quota_us")
    assert file.read_text() == ("3000 20000" if layout == "v2" else "3000")
    cgroups.quota(GROUP, None)
    assert cgroups.quota_percent(GROUP) is None


def test_freezing_goes_by_the_v2_tree(layout: str) -> None:
    cgroups.create(GROUP)
    cgroups.freeze(GROUP, True)
    assert cgroups.frozen(GROUP)
    cgroups.freeze(GROUP, False)
    assert not cgroups.frozen(GROUP)


def test_a_missing_tree_is_named(layout: str) -> None:
    tree = cgroups.trees()[-1]
    (tree / "cgroup.procs").unlink()
    assert cgroups.check() == f"no cgroup tree at {tree}"
