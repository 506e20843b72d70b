"""What a look at a node makes of what the node's own programs say."""

from __future__ import annotations

import pytest

from plugins.modules import node_info

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

    monkeypatch.setattr(node_info, "output", says)
    assert node_info.time_service() == service
