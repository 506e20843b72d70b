"""Whether a start waits for somebody at the machine: what lsblk, crypttab and the LUKS header say of the disk."""

from typing import Any

import pytest

from plugins.module_utils.motley import encrypted

LVM = {"name": "ubuntu--vg-ubuntu--lv", "type": "lvm", "mountpoints": ["/"]}
NO_KEY = "# <target> <source> <key file> <options>\ndm_crypt-0 UUID=5fe3 none luks,discard\n"
CLEVIS = "Tokens:\n  0: clevis\n\tKeyslot:    1\n"


def disk(*children: dict[str, Any]) -> dict[str, Any]:
    boot = {"name": "nvme0n1p2", "type": "part", "mountpoints": ["/boot"]}
    return {"blockdevices": [{"name": "nvme0n1", "type": "disk", "mountpoints": [None], "children": [boot, *children]}]}


def locked(*inside: dict[str, Any], name: str = "dm_crypt-0", mounted: str | None = None) -> dict[str, Any]:
    crypt = {"name": name, "type": "crypt", "mountpoints": [mounted], "children": list(inside)}
    return {"name": "nvme0n1p3", "type": "part", "mountpoints": [None], "children": [crypt]}


def waits(tree: dict[str, Any], crypttab: str = NO_KEY, *, header: str = "", clevis: bool = False) -> str:
    return encrypted.waits_for(tree, crypttab, header_of=lambda device: header, clevis_at_start=clevis)


def test_a_root_in_luks_waits_for_its_passphrase() -> None:
    assert waits(disk(locked(LVM))) == "dm_crypt-0"
    assert waits(disk(locked(name="root", mounted="/")), "root /dev/sda3 - luks\n") == "root"


def test_a_home_that_is_unlocked_at_the_start_waits_as_well() -> None:
    plain = disk({"name": "sda2", "type": "part", "mountpoints": ["/"]}, locked(name="home", mounted="/home"))
    assert waits(plain, "home /dev/sda3 none luks\n") == "home"
    assert waits(plain, "home /dev/sda3 none luks,noauto\n") == ""
    assert waits(plain, "") == "", "unlocked by hand, after the start"


def test_a_root_that_crypttab_does_not_name_waits_too() -> None:
    assert waits(disk(locked(LVM)), "") == "dm_crypt-0"


def test_a_boot_folder_in_luks_is_asked_for_by_grub() -> None:
    tree = {"blockdevices": [locked(name="luks-1", mounted="/")]}
    tree["blockdevices"][0]["children"][0]["mountpoints"] = ["/"]
    assert waits(tree, "luks-1 UUID=1 /crypto_keyfile.bin luks\n") == "luks-1", "/boot is in it: GRUB comes first"


@pytest.mark.parametrize(
    ("tree", "crypttab", "header", "clevis"),
    [
        (disk({"name": "sda2", "type": "part", "mountpoints": ["/"]}), "", "", False),
        (disk(locked(LVM)), "dm_crypt-0 UUID=5fe3 /etc/keys/root.key luks\n", "", False),
        (disk(locked(LVM)), "dm_crypt-0 UUID=5fe3 none luks,tpm2-device=auto\n", "", False),
        (disk(locked(LVM)), "dm_crypt-0 UUID=5fe3 none luks,keyscript=/usr/local/sbin/key\n", "", False),
        (disk(locked(LVM)), NO_KEY, CLEVIS, True),
        (disk(locked(name="ubuntu-data-5fe3", mounted="/")), "", "", False),
        (disk({"name": "sda2", "type": "part", "mountpoints": ["/"]}), "swap /dev/sda4 /dev/urandom swap\n", "", False),
    ],
    ids=["not encrypted", "key file", "TPM", "script", "clevis", "Ubuntu's TPM", "swap with a new key each time"],
)
def test_what_unlocks_by_itself_waits_for_nobody(
    tree: dict[str, Any], crypttab: str, header: str, clevis: bool
) -> None:
    assert waits(tree, crypttab, header=header, clevis=clevis) == ""


def test_a_clevis_that_does_not_run_at_the_start_unlocks_nothing() -> None:
    assert waits(disk(locked(LVM)), NO_KEY, header=CLEVIS, clevis=False) == "dm_crypt-0"


def test_an_old_lsblk_with_one_mount_point_is_read() -> None:
    tree = {"blockdevices": [locked({"name": "root", "type": "lvm", "mountpoint": "/"})]}
    tree["blockdevices"].append({"name": "sda1", "type": "part", "mountpoint": "/boot"})
    assert waits(tree) == "dm_crypt-0"
