"""The simulated nvidia-smi: where it fails as the real one does, and what its queries print."""

import json
from pathlib import Path

import pytest

from lab import gpu, profile
from lab.gpu import Condition
from lab.in_host import nvidia_smi
from lab.in_host.nvidia_smi import Failed
from plugins.module_utils.motley import doctor_machine, start_stop_status
from train.cluster import gpu_log

TRIO = {spec.name: spec for spec in profile.load("trio").hosts}
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Sat"
BUS = "00000000:01:00.0"


def card(host: str = "gpu-worker-2", **condition: bool) -> dict:
    return json.loads(gpu.files(TRIO[host], Condition(**condition))["card.json"])


def known(host: str = "gpu-worker-2", chosen: dict | None = None, **condition: bool) -> dict:
    return nvidia_smi.facts(card(host, **condition), "580.95.05", chosen or {})


def ask(*words: str, host: str = "gpu-worker-2", chosen: dict | None = None, **condition: bool) -> str:
    return nvidia_smi.answer(nvidia_smi.parse(list(words)), known(host, chosen, **condition))


@pytest.mark.parametrize(
    ("card", "library", "module", "status", "told"),
    [
        (card(), None, CLOSED, 12, "couldn't find libnvidia-ml.so"),
        (card(), "580.95.05", None, 9, "couldn't communicate with the NVIDIA driver"),
        (card(), "580.126.09", CLOSED, 18, "Driver/library version mismatch\nNVML library version: 580.126"),
        (card("gpu-master"), "580.95.05", CLOSED, 6, "No devices were found"),
        (card(lost=True), "580.95.05", CLOSED, 15, "GPU0000:01:00.0: GPU is lost"),
    ],
    ids=["no library", "no module", "library newer", "module not open", "lost"],
)
def test_it_fails_as_a_real_one(card: dict, library: str | None, module: str | None, status: int, told: str) -> None:
    with pytest.raises(Failed) as failed:
        nvidia_smi.reachable(card, library, module)
    assert failed.value.status == status
    assert told in str(failed.value)


@pytest.mark.parametrize(("host", "module"), [("gpu-worker-2", CLOSED), ("gpu-worker-2", OPEN), ("gpu-master", OPEN)])
def test_it_reaches_a_card_whose_driver_fits(host: str, module: str) -> None:
    nvidia_smi.reachable(card(host), "580.95.05", module)


def test_queries_come_with_headers_and_units_or_without() -> None:
    fields = "--query-gpu=name,driver_version,memory.total,compute_cap"
    assert ask(fields, "--format=csv") == (
        "name, driver_version, memory.total [MiB], compute_cap\nNVIDIA GeForce RTX 3070 Ti, 580.95.05, 8192 MiB, 8.6"
    )
    bare = "NVIDIA GeForce RTX 3070 Ti, 580.95.05, 8192, 8.6"
    assert ask(fields, "--format=csv,noheader,nounits") == bare
    assert ask("--query-gpu=name, driver_version, memory.total, compute_cap", "--format=csv,nounits, noheader") == bare


def test_every_field_that_motley_asks_for_can_be_queried() -> None:
    fields = (
        "name driver_version memory.total memory.used memory.free temperature.gpu power.draw power.limit"
        " utilization.gpu compute_cap pci.bus_id uuid clocks_throttle_reasons.active persistence_mode pstate"
    ).split()
    fields += [*doctor_machine.ASKED, doctor_machine.REASONS, *start_stop_status.GPU_FIELDS, *gpu_log.FIELDS]
    values = ask(f"--query-gpu={','.join(fields)}", "--format=csv,noheader").split(", ")
    assert len(values) == len(fields) and "" not in values


@pytest.mark.parametrize(
    ("condition", "reasons", "busy"),
    [
        ({}, 0x1, False),
        ({"busy": True}, 0x0, True),
        ({"hot": True}, 0x8 | 0x40, True),
        ({"busy": True, "on_battery": True}, 0x4, True),
    ],
)
def test_what_it_tells_of_its_load(condition: dict, reasons: int, busy: bool) -> None:
    fields = "--query-gpu=clocks_throttle_reasons.active,utilization.gpu"
    bits, usage = ask(fields, "--format=csv,noheader,nounits", **condition).split(", ")
    assert int(bits, 16) == reasons
    assert (int(usage) > 90) is busy


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvidia_smi, "SETTINGS", tmp_path / "settings.json")
    monkeypatch.setattr("os.geteuid", lambda: 0)


def test_settings_are_kept_and_told(as_root: None) -> None:
    assert ask("-pl", "200") == f"Power limit for GPU {BUS} was set to 200.00 W from 290.00 W.\nAll done."
    assert ask("-pm", "1") == f"Enabled persistence mode for GPU {BUS}.\nAll done."
    assert nvidia_smi.settings() == {"power_limit_w": 200.0, "persistence": True}
    assert ask("-pm", "1", chosen=nvidia_smi.settings()).startswith("Persistence mode is already Enabled")
    assert ask("--query-gpu=power.limit", "--format=csv,noheader", chosen=nvidia_smi.settings()) == "200.00 W"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--query-gpu=memory.totl", "--format=csv"], r'Field "memory\.totl" is not a valid field to query'),
        (["--gpu-reset"], "Invalid combination"),
        (["-pl", "900"], r"should be between 96\.67 W and 319\.00 W"),
        (["-gtt", "30"], "not valid"),
    ],
)
def test_what_it_does_not_know_is_refused(as_root: None, words: list[str], why: str) -> None:
    with pytest.raises(Failed, match=why):
        ask(*words)


def test_a_laptops_driver_takes_no_power_limit(as_root: None) -> None:
    assert "is not supported" in ask("-pl", "60", host="gpu-worker-1")
    assert ask("--query-gpu=power.limit", "--format=csv,noheader", host="gpu-worker-1") == "[N/A]"


def test_only_root_may_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Failed, match="Insufficient Permissions") as failed:
        ask("-pm", "1")
    assert failed.value.status == 4


def test_the_overview_says_that_it_is_simulated_and_the_list_names_cards_by_uuid() -> None:
    assert "simulated by the Motley lab" in ask()
    assert ask("-L") == f"GPU 0: NVIDIA GeForce RTX 3070 Ti (UUID: {card()['uuid']})"


def test_how_hot_a_card_may_get_is_set_and_not_on_a_laptop(as_root: None) -> None:
    assert "GPU Target Temperature            : 83 C" in ask("-q", "-d", "TEMPERATURE")
    assert "was set to 70 C from 83 C" in ask("-gtt", "70")
    assert "GPU Target Temperature            : 70 C" in ask("-q", "-d", "TEMPERATURE", chosen=nvidia_smi.settings())
    assert "not supported" in ask("-gtt", "70", host="gpu-worker-1")
    assert "GPU Target Temperature            : N/A" in ask("-q", "-d", "TEMPERATURE", host="gpu-worker-1")
