"""Machines that somebody also lives with: paused, played on, unplugged, outside their hours; the others go on, and the
curve stays that of one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from lab import faults
from lab.host import Host
from tests.support.training import HOME, Training, training_on

MASTER, LAPTOP, OLD = "gpu-master", "gpu-worker-1", "gpu-worker-2"
LOST_S, BACK_S, BEGUN_S, FREE_S = 45, 60, 180, 5


@pytest.fixture(scope="module")
def machines(lab_allowed: None) -> Iterator[Training]:
    with training_on(f"l{os.getpid()}") as machines:
        yield machines


def pause(host: Host, lasts: str = "") -> None:
    """As who sits there does it."""
    host.run("runuser", "-u", "user", "--", "sh", "-c", f"echo {lasts} >{HOME}/pause")


def unpause(host: Host) -> None:
    host.run("rm", "-f", f"{HOME}/pause")


def held_mb(training: Training, name: str) -> float:
    """By the workers of this host; their memory stands for a card's."""
    host = training.host(name)
    look = "for p in $(pgrep -x motley-worker); do grep VmRSS /proc/$p/status; done; true"
    return sum(int(line.split()[1]) for line in host.run("sh", "-c", look).splitlines()) / 1000


def frees_its_memory(training: Training, name: str) -> float:
    """Seconds from the file to no worker."""
    assert held_mb(training, name) > 100
    pause(training.host(name))
    began = time.monotonic()
    training.wait(lambda: not training.worker_pids(name), FREE_S, f"{name} still holds memory")
    return time.monotonic() - began


@pytest.mark.long
def test_a_night_with_games_and_a_power_cut_keeps_the_curve(machines: Training) -> None:
    steps = 700
    began = time.time()
    machines.launch("night", max_steps=steps, learning_rate=2e-4)  # at 2e-3 a last bit grows to 2e-5 in 500 steps
    machines.together(*machines.names, since=began, within_s=BEGUN_S)
    for player in (LAPTOP, MASTER):
        rest = [name for name in machines.names if name != player]
        began = time.time()
        took_s = frees_its_memory(machines, player)
        machines.together(*rest, since=began, within_s=LOST_S)
        print(f"{player}: memory free after {took_s:.1f} s")
        assert took_s < FREE_S and machines.repeated(rest[0], began) <= 1, "more than the step under way was lost"
        assert machines.now(player)["state"] == "away"
        assert held_mb(machines, player) == 0
        unpause(machines.host(player))
        machines.together(*machines.names, since=time.time(), within_s=BACK_S)
    began = time.time()
    pause(machines.host(OLD))
    machines.together(MASTER, LAPTOP, since=began, within_s=LOST_S)
    faults.inject(machines.lab, machines.host(OLD), "power-cut")
    faults.fix(machines.lab, machines.host(OLD), "power-cut")
    machines.wait(lambda: machines.now(OLD).get("state") == "away", BACK_S, "paused, and after a restart no longer")
    cut = time.time()
    time.sleep(2)
    assert machines.steps_between(OLD, cut, time.time()) == 0, "paused, and it trains after a restart"
    unpause(machines.host(OLD))
    machines.together(*machines.names, since=time.time(), within_s=BACK_S)
    done = lambda: all(machines.now(name).get("state") == "done" for name in machines.names)  # noqa: E731
    machines.wait(done, 240, "it is not done")
    found = machines.proof()
    assert found["steps"] == steps and found["whole"], "a step was lost or trained twice"
    assert found["error"] <= 1e-6
    assert machines.stop() < 8


@pytest.mark.long
def test_two_of_three_paused_the_run_waits_and_nothing_is_lost(machines: Training) -> None:
    began = time.time()
    machines.launch("two", max_steps=100000)
    machines.together(*machines.names, since=began, within_s=BEGUN_S)
    pause(machines.host(OLD))
    pause(machines.host(LAPTOP), "20s")
    machines.wait(lambda: not any(map(machines.worker_pids, machines.names)), LOST_S, "somebody trains alone")

    def says_until_when() -> bool:
        reason = machines.now(MASTER)["reason"]
        return "waiting for a majority, until " in reason and f"{OLD} steps aside: paused" in reason

    machines.wait(says_until_when, 20, "the head does not say what it waits for")
    machines.together(MASTER, LAPTOP, since=time.time(), within_s=BACK_S)  # its 20 s are over
    unpause(machines.host(OLD))
    machines.together(*machines.names, since=time.time(), within_s=BACK_S)
    assert machines.stop() < 8


GAME = "hl2_linux"
NIGHT_MIN, DAY_MIN = 6, 2


def clock(host: Host, at: float) -> str:
    return host.run("date", "-d", f"@{at:.0f}", "+%H:%M").strip()


def nights(host: Host, dusk: float) -> str:
    """Two windows as motley_hours has them: nights of some minutes each, a day between them."""
    second = dusk + 60 * (NIGHT_MIN + DAY_MIN)
    return ",".join(f"{clock(host, at)}-{clock(host, at + 60 * NIGHT_MIN)}" for at in (dusk, second))


def plays(host: Host) -> None:
    """A program of the list motley_step_aside_programs; it is known by its name alone."""
    host.run("cp", "/bin/sleep", f"/tmp/{GAME}")
    host.run("systemd-run", "--quiet", "--unit=game", f"/tmp/{GAME}", "infinity")


@pytest.mark.long
def test_two_nights_with_a_battery_a_game_hours_and_a_power_cut_keep_the_curve(machines: Training) -> None:
    """An hour is a minute; what a machine waits itself (a minute on battery, five quiet minutes) is not cut."""
    old, laptop, head = (machines.host(name) for name in (OLD, LAPTOP, MASTER))
    dusk = time.time() // 60 * 60
    hours = nights(head, dusk)
    began = time.time()
    machines.launch("nights", max_steps=50000, learning_rate=2e-5, more={"aside": {"hours": hours, "programs": [GAME]}})
    machines.together(*machines.names, since=began, within_s=BEGUN_S)

    plays(old)
    machines.wait(lambda: machines.now(OLD).get("state") == "away", 60, "it trains beside a game")
    machines.together(MASTER, LAPTOP, since=time.time(), within_s=LOST_S)
    old.run("systemctl", "stop", "game")
    quiet = time.time()

    dawn = dusk + 60 * NIGHT_MIN
    machines.wait(lambda: all(machines.now(name)["state"] == "away" for name in machines.names), 420, "no day breaks")
    assert time.time() > dawn - 1
    evening = clock(head, dawn + 60 * DAY_MIN)
    waits = lambda: f"until {evening}" in machines.now(MASTER)["reason"]  # noqa: E731
    machines.wait(waits, 20, f"it does not say that it waits until {evening}")
    machines.wait(lambda: not any(map(machines.worker_pids, machines.names)), FREE_S, "somebody trains by day")
    faults.inject(machines.lab, laptop, "on-battery")

    machines.together(MASTER, OLD, since=dawn + 60 * DAY_MIN - 1, within_s=420)
    assert time.time() - quiet > 299, "it came back before five quiet minutes"
    assert machines.now(LAPTOP)["state"] == "away"
    faults.fix(machines.lab, laptop, "on-battery")
    machines.together(*machines.names, since=time.time(), within_s=60 + BACK_S)
    began = time.time()
    faults.inject(machines.lab, head, "power-cut")
    machines.together(LAPTOP, OLD, since=began, within_s=LOST_S)
    faults.fix(machines.lab, head, "power-cut")
    machines.together(*machines.names, since=time.time(), within_s=BACK_S)
    assert machines.stop() < 8
    found = machines.proof()
    print(found)
    assert found["whole"], "a step was lost or trained twice"
    assert found["error"] <= 1e-6
