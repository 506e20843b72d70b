"""What a look at a node makes of what the node's own programs say."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.motley.preflight import judge
from plugins.modules import preflight_info

TIMESYNCD = "installed systemd-timesyncd time-daemon, ntp"


@pytest.mark.parametrize(
    ("packages", "units", "service"),
    [
        (["installed bash", TIMESYNCD], "systemd-timesyncd.service enabled", "systemd-timesyncd.service"),
        (["installed openntpd time-daemon"], "openntpd.service enabled", "openntpd.service"),
        (["installed ntpd-rs time-daemon, ntp (= 4)"], "ntpd-rs.service enabled", "ntpd-rs.service"),
        (["config-files openntpd time-daemon"], "openntpd.service enabled", ""),
        (["installed chrony time-daemon"], "chrony.service enabled", "chrony.service"),
        (["installed bash"], "", ""),
    ],
)
def test_whatever_keeps_the_time_is_known(
    monkeypatch: pytest.MonkeyPatch, packages: list[str], units: str, service: str
) -> None:
    def says(program: str, *words: str) -> str:
        if program == "dpkg-query":
            return "\n".join(packages)
        return units if {*units.split()} & {*words} else ""

    monkeypatch.setattr(preflight_info, "output", says)
    assert preflight_info.time_service() == service


def test_a_system_without_dpkg_and_systemd_is_looked_at_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As Fedora, or a container: that it is none that Motley serves is said by the verdict."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preflight_info.time_service() == preflight_info.output("systemd-detect-virt", "--container") == ""
    assert not preflight_info.unit_active("NetworkManager.service") and preflight_info.wait_for_way_back() == 0.0


def test_the_room_is_measured_on_the_disk_where_the_folder_will_lie(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A home of 12 GB beside 2 TB at motley_home is enough, and the other way round it is not."""
    room = namedtuple("room", "total used free")
    free = {str(tmp_path): 2e12, str(Path.home()): 12e9}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room(0, 0, free.get(str(path), 5e12)))
    as_somebody = subprocess.run

    def as_ourselves(*words: Any, **how: Any) -> subprocess.CompletedProcess[Any]:
        return as_somebody(*words, **{name: how[name] for name in how if name not in ("user", "group", "extra_groups")})

    monkeypatch.setattr(subprocess, "run", as_ourselves)  # only root may be another
    for folder, enough in ((tmp_path / "new" / "cluster", True), (Path.home() / "not-there-yet", False)):
        report = preflight_info.look(getpass.getuser(), folder=str(folder)) | {"apt_lock": ""}
        assert report["cluster"]["at"] in free
        short = [found["what"] for found in judge(report, 20) if "GB free" in found["what"]]
        assert short == ([] if enough else [f"has 12.0 GB free for {Path.home()}, 20 GB are needed"])
