"""Simulated hardware: what each kind of machine answers, and what becomes of a driver on it."""

import json
from pathlib import Path

import pytest

from lab import gpu, profile
from lab.gpu import Condition
from lab.in_host import kernel
from lab.profile import HostSpec

TRIO = {spec.name: spec for spec in profile.load("trio").hosts}
DESKTOP, LAPTOP = TRIO["gpu-worker-2"], TRIO["gpu-worker-1"]
NOBODY = HostSpec(name="bare", machine="", address="", installed_address="", nics=("eno1",), cpu_percent=10)

SIGNED_OPEN = {"version": "580.95.05", "license": "Dual MIT/GPL", "signer": "Canonical Ltd. Kernel Module Signing"}
SIGNED = SIGNED_OPEN | {"license": "NVIDIA"}
SELF_BUILT = SIGNED_OPEN | {"signer": "this machine's own key"}
OLD_CARD = {"bus_id": gpu.BUS, "pci_id": "10de:2482", "needs_open_modules": False}
NEW_CARD = {"bus_id": gpu.BUS, "pci_id": "10de:2c05", "needs_open_modules": True}


def answers(spec: HostSpec, **condition: bool) -> dict[str, bytes]:
    return gpu.files(spec, Condition(**condition))


def test_the_card_is_on_the_bus_beside_what_could_be_taken_for_it() -> None:
    found = answers(LAPTOP)
    of_nvidia = [path for path in found if path.endswith("/vendor") and found[path] == b"0x10de\n"]
    classes = sorted(found[path.replace("vendor", "class")] for path in of_nvidia)
    assert classes == [b"0x030200\n", b"0x040300\n"]  # a 3D controller without a screen, and its sound
    assert found["pci/0000:00:02.0/class"] == b"0x030000\n"
    assert found["pci/0000:00:02.0/vendor"] == b"0x8086\n"


def test_a_machine_without_a_card_has_none_anywhere() -> None:
    found = answers(NOBODY)
    assert found["card.json"] == b"{}"
    assert b"0x10de\n" not in found.values()


def test_secure_boot_is_the_last_byte_of_its_variable() -> None:
    path = f"firmware/efi/efivars/SecureBoot-{gpu.EFI_GLOBAL}"
    assert answers(DESKTOP)[path] == b"\6\0\0\0\0"
    assert answers(DESKTOP, secure_boot=True)[path] == b"\6\0\0\0\1"


def test_an_encrypted_disk_is_a_fact_of_the_hardware() -> None:
    assert answers(DESKTOP)["disks.json"] == b""
    assert b'"crypt"' in answers(DESKTOP, encrypted=True)["disks.json"]


def test_changes_add_up_and_are_kept(tmp_path: Path) -> None:
    gpu.plug_in(tmp_path, DESKTOP)
    gpu.change(tmp_path, DESKTOP, hot=True)
    gpu.change(tmp_path, DESKTOP, busy=True)
    gpu.change(tmp_path, DESKTOP, hot=False)
    assert gpu.condition(tmp_path) == Condition(busy=True)
    assert json.loads((tmp_path / "card.json").read_text())["busy"] is True


@pytest.mark.parametrize(
    ("module", "card", "keys", "told"),
    [
        (SIGNED_OPEN, OLD_CARD, {"secure_boot": True}, None),
        (SELF_BUILT, OLD_CARD, {"secure_boot": False}, None),
        (SELF_BUILT, OLD_CARD, {"secure_boot": True}, "Key was rejected"),
        (SELF_BUILT, OLD_CARD, {"secure_boot": True, "own_key": True}, None),
        (None, OLD_CARD, {"secure_boot": False}, "not found"),
        (SIGNED_OPEN, {}, {"secure_boot": False}, "No such device"),
    ],
    ids=["signed", "self-built", "with Secure Boot", "by a key that it knows", "none for this kernel", "no card"],
)
def test_when_the_module_loads(module: dict, card: dict, keys: dict, told: str | None) -> None:
    why_not = kernel.refusal(module, card, **keys)
    assert why_not is None if told is None else told in str(why_not)


@pytest.mark.parametrize(
    ("module", "card", "starts"),
    [(SIGNED, OLD_CARD, True), (SIGNED_OPEN, OLD_CARD, True), (SIGNED_OPEN, NEW_CARD, True), (SIGNED, NEW_CARD, False)],
)
def test_newer_cards_start_with_open_modules_only(module: dict, card: dict, starts: bool) -> None:
    assert kernel.works(module, card) is starts
    log = "".join(line for _, line in kernel.kernel_log(module, card))
    assert ("requires use of the NVIDIA open kernel modules" in log) is not starts


def test_the_newest_kernel_is_found_by_number_not_by_letter() -> None:
    in_order = ["6.8.0-88-generic", "6.8.0-100-generic", "6.14.0-36-generic"]
    assert sorted(sorted(in_order), key=kernel._age) == in_order


def test_a_module_built_here_comes_before_a_delivered_one(tmp_path: Path) -> None:
    for folder, version in (("kernel/nvidia-580", "580.1.1"), ("updates/dkms", "580.2.2")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "nvidia.ko").write_bytes(b"\0version=" + version.encode() + b"\0")
    found = kernel.installed_module(tmp_path)
    assert found and found["version"] == "580.2.2"
