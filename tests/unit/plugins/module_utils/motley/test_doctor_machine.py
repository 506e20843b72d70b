"""What a node tells of its power, from the folders that its kernel lays out."""

from functools import partial
from pathlib import Path

import pytest

from plugins.module_utils.motley import doctor_machine
from train.power_supply import supplies


def supply(root: Path, name: str, **facts: str) -> None:
    (root / name).mkdir(exist_ok=True)
    for fact, value in facts.items():
        (root / name / fact).write_text(f"{value}\n")


def test_a_laptop_says_whether_it_is_charged_and_a_mouse_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_machine, "supplies", partial(supplies, tmp_path))
    supply(tmp_path, "hidpp_battery_0", type="Battery", scope="Device", status="Discharging", capacity="5")
    assert doctor_machine.power() == {"battery": False, "percent": "", "on_mains": True, "lid": ""}
    supply(tmp_path, "BAT0", type="Battery", status="Discharging", capacity="71")
    assert doctor_machine.power() == {"battery": True, "percent": "71", "on_mains": False, "lid": ""}
    supply(tmp_path, "ucsi", type="USB", online="1")
    assert doctor_machine.power()["on_mains"]
    supply(tmp_path, "ucsi", type="USB", online="0")
    supply(tmp_path, "BAT0", status="Full")
    assert not doctor_machine.power()["on_mains"], "its plug is out"
