"""The way back of a change of the network: how it is started, and until when it is on the disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from plugins.module_utils.motley import undo_record
from plugins.modules import netplan_change as change

NETPLAN = "netplan.yaml"


class Refused(Exception):
    pass


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A change that is armed in this folder; what it has systemd start is listed here, and not started."""
    commands: list[tuple[str, ...]] = []
    places = {"FOLDER": "", "RESTORE": "restore.sh", "BEGUN": "begun", "APPLIED": "applied", "AT_BOOT": "at-boot"}
    for name, file in (places | {"AT_BOOT_WANTED": "wanted"}).items():
        monkeypatch.setattr(change, name, tmp_path / file)
    me = (os.geteuid(), os.getegid())
    monkeypatch.setattr(change, "write_file", lambda *file: undo_record.write_file(*file[:3], me))
    monkeypatch.setattr(change, "run_later", lambda unit, seconds, *command: commands.append(command))
    done = subprocess.CompletedProcess[str]([], 0)
    monkeypatch.setattr(change, "subprocess", SimpleNamespace(run=lambda *_, **__: done))
    netplan = tmp_path / NETPLAN
    netplan.write_text("old")
    seen = f"cp {tmp_path}/at-boot {tmp_path}/seen-at-boot; touch {tmp_path}/applied"
    change.save_way_back({netplan: "old"}, seen)
    change.arm(60)
    netplan.write_text("new")
    (tmp_path / "restore.sh").chmod(0o600)  # as it is to the kernel where /var is noexec
    return commands


def asked(**params: Any) -> Any:
    def fail_json(msg: str) -> None:
        raise Refused(msg)

    return SimpleNamespace(check_mode=False, params=params, fail_json=fail_json)


def test_what_is_refused_keeps_its_way_back_until_it_is_back(
    started: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut at any moment before that starts with what stood before the change."""
    monkeypatch.setattr(change, "wait_until_applied", lambda: True)
    monkeypatch.setattr(change, "wait_until_right", lambda params: "nobody answers at the gateway")
    with pytest.raises(Refused, match="nobody answers"):
        change.confirm(asked(back_to=""))
    assert (tmp_path / "at-boot").exists() and (tmp_path / "wanted").is_symlink()
    module = asked()
    module.exit_json = done = Mock()
    change.back(module)  # as the controller does, perhaps within the second until it starts
    assert done.call_args.kwargs["gone_back"]
    assert len(started) == 2, "by the timer, and at once"
    subprocess.run(started[-1], check=True)
    assert (tmp_path / NETPLAN).read_text() == "old" and (tmp_path / "seen-at-boot").exists()
    assert not (tmp_path / "at-boot").exists() and not (tmp_path / "wanted").is_symlink()


def test_a_way_back_that_has_begun_is_not_stopped(
    started: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change, "wait_until_right", lambda params: "")
    subprocess.run(started[0], check=True)
    with pytest.raises(Refused, match="it went back before the change could be confirmed"):
        change.confirm(asked(back_to=""))
    assert (tmp_path / NETPLAN).read_text() == "old"
    assert "ExecStart=/bin/sh /var" in change.AT_BOOT_TEXT


SAYS = """
** (generate:4711): WARNING **: 19:02:03.104: Permissions for /etc/netplan/01-netcfg.yaml are too open. \
Netplan configuration should NOT be accessible by others.

** (generate:4711): WARNING **: 19:02:03.104: `gateway4` has been deprecated, use default routes instead.
See the 'Default routes' section of the documentation for more details.

** (generate:4711): WARNING **: 19:02:03.105: Permissions for /etc/netplan/50-old.yaml are too open. \
Netplan configuration should NOT be accessible by others.
/etc/netplan/50-old.yaml:5:7: Error in network definition: unknown key 'adresses'
      adresses: [192.168.1.40/24]
      ^
"""


def test_of_what_netplan_says_the_error_is_shown_and_not_its_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bootstrap shows three lines of a message, and each old file of mode 0644 has a warning."""
    done = subprocess.CompletedProcess([], 78, "", SAYS)
    monkeypatch.setattr(change, "subprocess", SimpleNamespace(run=lambda *_, **__: done))
    error = "/etc/netplan/50-old.yaml:5:7: Error in network definition: unknown key 'adresses'"
    assert change.write_and_generate({}) == f"netplan refuses the new settings: {error}"
    done.stderr = "netplan: what nobody has seen yet\n"
    assert change.write_and_generate({}) == "netplan refuses the new settings: netplan: what nobody has seen yet"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (
            'auth: {key-management: psk, password: "hush, hush"}\nmtu: 9\n',
            "auth: {key-management: psk, password: ***\nmtu: 9\n",
        ),
        ("auth:\n  key-management: psk\n  password: hush, hush\n", "auth:\n  key-management: psk\n  password: ***\n"),
        ("'802-11-wireless-security.psk': 'hush'\n", "'802-11-wireless-security.psk': ***\n"),
        ("iface wlan0 inet dhcp\n  wpa-psk hush hush\n", "iface wlan0 inet dhcp\n  wpa-psk ***\n"),
    ],
)
def test_no_part_of_a_password_stands_in_a_diff(text: str, hidden: str) -> None:
    assert change.shown(text) == hidden.replace("***", "********")
