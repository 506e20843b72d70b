"""When a machine steps aside by itself, and when it comes back: with invented clocks, batteries and games."""

import time
from pathlib import Path

import pytest

from tests.support.stand_ins import program
from train.cluster import owner_uses_machine
from train.cluster.may_run_here import Fitness
from train.cluster.owner_uses_machine import InUse, running_program
from train.cluster.step_aside import StepAside, on_battery
from train.game_on_card import drawing
from train.plan.settings.step_aside_rules import AsideRules

XML = "<nvidia_smi_log><gpu><processes>{}</processes></gpu></nvidia_smi_log>"


def process(kind: str, name: str, memory: str) -> str:
    tags = f"<type>{kind}</type><process_name>{name}</process_name><used_memory>{memory}</used_memory>"
    return f"<process_info><pid>7</pid>{tags}</process_info>"


def supply(folder: Path, name: str, **values: str) -> Path:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, value in values.items():
        (folder / name / file).write_text(f"{value}\n")
    return folder


def test_a_battery_counts_where_nothing_charges_it(tmp_path):
    assert not on_battery(tmp_path)
    supply(tmp_path, "hidpp_battery_0", type="Battery", scope="Device", status="Discharging")
    assert not on_battery(tmp_path), "a mouse"
    supply(tmp_path, "AC", type="Mains", online="1")
    supply(tmp_path, "BAT0", type="Battery", status="Discharging")
    assert not on_battery(tmp_path), "a battery that keeps itself below full"
    supply(tmp_path, "AC", online="0")
    assert on_battery(tmp_path)
    supply(tmp_path, "ucsi-source-psy-1", type="USB", online="1")
    assert not on_battery(tmp_path), "charged through USB-C"


def test_a_minute_on_battery_and_a_minute_back_on_the_mains(tmp_path):
    power = supply(supply(tmp_path / "p", "AC", type="Mains", online="0"), "BAT0", type="Battery", status="Discharging")
    stepping = StepAside(tmp_path, AsideRules(), power)
    seen = [(at, stepping.look(0.0, at)) for at in (0.0, 30.0, 59.0, 60.0, 61.0)]
    assert [change for _, change in seen] == [None, None, None, ("away", "on battery"), None]
    supply(power, "AC", online="1")
    assert [stepping.look(0.0, at) for at in (70.0, 129.0, 130.0)] == [None, None, ("back", "no longer on battery")]
    supply(power, "AC", online="0")
    assert stepping.look(0.0, 140.0) is None
    supply(power, "AC", online="1")
    assert stepping.look(0.0, 190.0) is None, "unplugged for a moment"
    trains = StepAside(tmp_path, AsideRules(on_battery="train"), power)
    supply(power, "AC", online="0")
    assert [trains.look(0.0, at) for at in (0.0, 100.0)] == [None, None]


def test_a_machine_on_battery_may_sleep_until_it_is_charged_again(tmp_path):
    """Also where another reason to step aside comes first, and where an agent before this one was killed."""
    (tmp_path / "config").mkdir()
    wish, asked = tmp_path / "config/may-sleep", tmp_path / "config/asked"
    wish.touch()
    power = supply(supply(tmp_path / "p", "AC", type="Mains", online="0"), "BAT0", type="Battery", status="Discharging")
    stepping = StepAside(tmp_path, AsideRules(), power)
    seen = []
    for at in (0.0, 59.0, 60.0):
        stepping.look(0.0, at)
        seen.append((wish.exists(), asked.exists()))
        asked.unlink(missing_ok=True)
    assert seen == [(False, True), (False, False), (True, True)]
    (tmp_path / "pause").touch()
    stepping.look(0.0, 61.0)
    assert wish.exists()
    supply(power, "AC", online="1")
    for at in (70.0, 130.0):
        stepping.look(0.0, at)
    assert not wish.exists() and asked.exists() and stepping.now is not None


def test_what_follows_the_run_is_asked_for_where_nobody_uses_the_machine(tmp_path):
    stepping = StepAside(tmp_path, AsideRules(then="poweroff", hours="22:00-07:00"), tmp_path)
    stepping.look(0.0, 0.0)
    assert stepping.after_the_run() == "poweroff" and (tmp_path / "config/then").read_text() == "poweroff\n"
    (tmp_path / "config/then").unlink()
    (tmp_path / "pause").touch()
    stepping.look(0.0, 1.0)
    assert stepping.after_the_run() == "" and not (tmp_path / "config/then").exists(), "somebody has paused it"
    assert StepAside(tmp_path, AsideRules(), tmp_path).after_the_run() == ""


def test_hours_and_a_later_begin(tmp_path):
    noon = time.mktime((2026, 11, 23, 12, 0, 0, 0, 0, -1))
    stepping = StepAside(tmp_path, AsideRules(hours="22:00-07:00"), tmp_path)
    assert stepping.look(noon, 0.0) == ("away", "outside its hours 22:00-07:00, until 22:00")
    assert stepping.status(Fitness(), 0.0) == {
        "condition": "away", "cause": "outside its hours 22:00-07:00, until 22:00", "until": noon + 36000
    }  # fmt: skip
    assert stepping.look(noon + 36000, 36000.0) == ("back", "no longer outside its hours 22:00-07:00, until 22:00")
    assert stepping.status(Fitness(), 0.0)["condition"] == "fit"
    later = StepAside(tmp_path, AsideRules(not_before=noon + 60), tmp_path)
    assert later.look(noon, 0.0) == ("away", "the run begins later, until 12:01")
    assert later.look(noon + 60, 60.0) == ("back", "no longer the run begins later, until 12:01")


def test_a_pause_comes_first_and_what_cannot_run_is_not_only_away(tmp_path):
    stepping = StepAside(tmp_path, AsideRules(not_before=100.0), tmp_path)
    (tmp_path / "pause").touch()
    assert stepping.look(0.0, 0.0) == ("away", "paused")
    assert stepping.status(Fitness(unfit=True, cause="no driver"), 0.0) == {"condition": "unfit", "cause": "no driver"}


def test_a_game_counts_after_20_seconds_and_five_quiet_minutes_end_it():
    found = InUse((), lambda _: "", every_s=3600)

    def look(at, who):
        found.who = who
        return found.look(at)

    assert [look(at, "hl2_linux") for at in (0.0, 19.0)] == ["", ""]
    assert look(19.5, "") == "" and look(20.0, "hl2_linux") == "", "a game that was closed again"
    assert look(39.0, "hl2_linux") == "" and look(40.0, "hl2_linux") == "hl2_linux"
    assert look(41.0, "") == "hl2_linux" and look(340.0, "") == "hl2_linux", "a level loads, somebody fetches tea"
    assert look(340.5, "hl2_linux") == "hl2_linux" and look(341.0, "") == "hl2_linux" and look(640.0, "") == "hl2_linux"
    assert look(641.0, "") == ""


@pytest.mark.parametrize(
    ("processes", "who"),
    [
        ([], ""),
        ([process("G", "/usr/lib/xorg/Xorg", "412 MiB"), process("G", "/usr/bin/gnome-shell", "380 MiB")], ""),
        ([process("C", "env/bin/python", "7100 MiB")], ""),
        ([process("G", "/usr/bin/firefox", "180 MiB")], ""),
        ([process("G", "/home/a/.steam/hl2_linux -game tf", "2100 MiB")], "hl2_linux"),
        ([process("C+G", "C:\\Games\\Portal\\portal2.exe", "900 MiB")], "portal2.exe"),
        ([process("C+G", "C:\\Program Files (x86)\\Steam\\Hades II\\Hades2.exe -w", "900 MiB")], "Hades2.exe"),
        ([process("G", "/usr/lib/xorg/Xorg", "N/A"), process("C+G", "/usr/bin/blender", "N/A")], "blender"),
    ],
)
def test_who_draws(processes, who):
    assert drawing(XML.format("".join(processes))) == who


def test_what_is_no_answer_is_no_game():
    assert drawing("NVIDIA-SMI has failed") == "" and drawing(b"") == ""


@pytest.mark.parametrize("program", ["a-program-with-a-long-name", "Größenwahnsinnig"])
def test_programs_of_a_list_by_the_names_that_the_kernel_keeps(tmp_path, program):
    running = ["systemd", "vierzehn Zeichä", "Größenwahnsinnig", "a-program-with-a-long-name"]
    for pid, name in enumerate(running):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_bytes(name.encode()[:15] + b"\n")
    assert running_program(["blender", program], tmp_path) == program
    assert running_program(["blender"], tmp_path) == running_program([], tmp_path) == ""


def test_game_mode_and_the_card_are_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert owner_uses_machine.who_uses_it(()) == "", "a machine without either"
    xml = XML.format(process("G", "/opt/game", "4000 MiB"))
    for name, said in (("gamemoded", "gamemode is inactive"), ("nvidia-smi", xml)):
        program(tmp_path / name, f"#!/bin/sh\necho '{said}'\n")
    assert owner_uses_machine.who_uses_it(()) == "game"
    (tmp_path / "gamemoded").write_text("#!/bin/sh\necho 'gamemode is active'\n")
    assert owner_uses_machine.who_uses_it(()) == "a game (GameMode)"
