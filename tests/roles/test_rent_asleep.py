"""Who gives back while the laptop that rented is off: a timer of its own systemd, or a machine at home, asked over SSH.

The laptop, the machine at home and the rented one are hosts of the lab: the first two with systemd, and users in it.
"""

from __future__ import annotations

import json
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console import processes
from lab.host import Host
from lab.market import KEY
from lab.profile import USER
from tests.support import pace
from tests.support.cluster import REPOSITORY
from tests.support.renter import Renter, market_of, wish
from tests.support.secrets import traces

PRICE = 0.36 * 1.05
"""The cheaper of the market's two, with its fee."""
UID = 1000
NOT_THERE = ("mypy*", "ruff*", "playwright*", "ansible_collections", "ansiblelint", "pip", "bin/ruff", "bin/mypy")

pytestmark = pytest.mark.long


@pytest.fixture
def renter(lab_allowed: None, tmp_path: Path) -> Iterator[Renter]:
    yield from market_of(tmp_path, "train", profile="away", shape="server-6=rented")


@pytest.fixture
def hours() -> str:
    """As few as this machine needs to set the rented one up, and to cut somebody's power."""
    return f"{pace.seconds(60) / 3600:.4f}"


def over_s(hours: str) -> float:
    """Until its time is over, and whoever comes last has given it back."""
    return float(hours) * 3600 + 120


def lingers(host: Host) -> None:
    host.run("loginctl", "enable-linger", USER)
    asks = f"XDG_RUNTIME_DIR=/run/user/{UID} systemctl --user show-environment"
    pace.until(lambda: host.outcome("su", "-", USER, "-c", asks).returncode == 0, 60, "its systemd is there")


def as_user(host: Host, command: str) -> str:
    done = host.outcome("su", "-", USER, "-c", f"export XDG_RUNTIME_DIR=/run/user/{UID}; {command}")
    return done.stdout + done.stderr


def has_no_unit(host: Host) -> None:
    pace.until(
        lambda: not as_user(host, "systemctl --user list-unit-files 'motley-*' --no-legend"), 60, "a unit is left"
    )


def is_back(renter: Renter) -> bool:
    return [order["status"] for order in renter.bill] == ["terminated"]


# -- a machine at home ---------------------------------------------------------------------------------------------


@pytest.fixture
def at_home(renter: Renter) -> str:
    """--keeper FOLDER:NODE, a node that Motley's key opens."""
    folder, state, host = renter.folder / "home", renter.folder / "home state", renter.lab.host("gpu-master")
    state.mkdir()
    pace.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(state / "controller_ed25519"))
    opened = host.disk.root / f"home/{USER}/.ssh"
    opened.mkdir(exist_ok=True)
    shutil.copy(state / "controller_ed25519.pub", opened / "authorized_keys")
    host.run("chown", "-R", f"{USER}:", f"/home/{USER}/.ssh")
    key = (host.disk.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
    (state / "known_hosts").write_text(f"gpu-master {key}")
    folder.mkdir()
    (folder / "group_vars").symlink_to(REPOSITORY / "inventory/homelab/group_vars")
    node = {"motley_address": host.spec.installed_address}
    shared = {"ansible_user": USER, "motley_state": str(state), "motley_subnet": str(renter.lab.profile.network)}
    shared |= {"motley_gateway": renter.lab.profile.gateway}
    (folder / "hosts.yml").write_text(json.dumps({"cluster": {"vars": shared, "hosts": {"gpu-master": node}}}))
    return f"{folder}:gpu-master"


def leaves_the_laptop_alone(renter: Renter) -> None:
    """Nobody is at the controller any more: not a process of it."""
    processes.end(f"MOTLEY_RENTED={renter.state}")
    assert not is_back(renter)


def test_a_machine_at_home_gives_back_and_its_key_was_on_no_disk(renter: Renter, at_home: str, hours: str) -> None:
    done = pace.went_well(renter.rents(hours, "--keeper", at_home))
    assert "in the memory of gpu-master alone" in done.stdout
    leaves_the_laptop_alone(renter)
    assert traces([renter.lab.host("gpu-master")], KEY) == []
    pace.until(lambda: is_back(renter), over_s(hours), "the machine at home gives it back")


def test_a_machine_at_home_that_was_restarted_gives_back_and_has_no_key_any_more(
    renter: Renter, at_home: str, hours: str
) -> None:
    host = renter.lab.host("gpu-master")
    lingers(host)
    done = pace.went_well(renter.rents(hours, "--keeper", at_home))
    assert "in a file on gpu-master (0600)" in done.stdout
    leaves_the_laptop_alone(renter)
    folder = host.disk.root / f"home/{USER}/.motley-keeper"
    (kept,) = folder.glob("*.json")
    assert json.loads(kept.read_text())["key"] == KEY
    assert (stat.S_IMODE(kept.stat().st_mode), kept.stat().st_uid) == (0o600, UID)
    host.power_cut()
    host.boot()
    pace.until(lambda: is_back(renter), over_s(hours), "it gives back after a restart")
    pace.until(lambda: not folder.exists(), 60, "its key is gone")
    has_no_unit(host)


def test_what_was_given_back_before_leaves_no_key_there(renter: Renter, at_home: str, hours: str) -> None:
    host = renter.lab.host("gpu-master")
    lingers(host)
    assert renter.rents(hours, "--keeper", at_home).returncode == 0
    assert renter.types("give-back", "--yes").returncode == 0
    folder = host.disk.root / f"home/{USER}/.motley-keeper"
    looks_s = 2 * float(hours) * 3600 + 180  # as long again as its hours, and by the minute
    pace.until(lambda: not folder.exists(), looks_s, "the market denies it, and did not end it for this one")


# -- a timer of the laptop ----------------------------------------------------------------------------------------


@pytest.fixture
def laptop(renter: Renter) -> Host:
    """With this checkout and its environment on its own disk, and a systemd of its user that needs no login."""
    host = renter.lab.host("laptop")
    version = host.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    place = host.disk.root / str(REPOSITORY).lstrip("/")
    left_out = shutil.ignore_patterns("__pycache__", ".git", "results", ".mypy_cache", ".pytest_cache", *NOT_THERE)
    shutil.copytree(REPOSITORY, place, symlinks=True, ignore=left_out)
    programs = place / ".venv/bin"
    if not (place / f".venv/lib/python{version}").is_dir():
        pytest.skip(f"NOT RUN: the laptop has Python {version}, and this controller's environment is for another one")
    for name in ("python", "python3", f"python{version}"):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to("/usr/bin/python3")
    shutil.copytree(renter.inventory, place / "inventory/away")
    uv = json.loads(pace.run(sys.executable, "requirements/wheelhouse.py", version, "uv", cwd=REPOSITORY).stdout)
    kept = Path(uv["folder"])
    shutil.copytree(kept, host.disk.root / f"home/{USER}/.cache/motley/wheels" / kept.name)
    host.run("chown", "-R", f"{USER}:", str(REPOSITORY), f"/home/{USER}/.cache")
    lingers(host)
    return host


def types(host: Host, renter: Renter, *words: str) -> str:
    known = {"MOTLEY_MARKET": renter.market, "CLORE_API_KEY": KEY, "LC_ALL": "C.UTF-8"}
    given = " ".join(f"{name}='{value}'" for name, value in known.items())
    typed = " ".join(f"'{word}'" for word in words)
    return as_user(host, f"cd {REPOSITORY} && env {given} .venv/bin/python -m console {typed}")


@pytest.mark.parametrize("then", ["its program is killed", "it is switched off and on"])
def test_the_laptops_timer_gives_back(then: str, renter: Renter, laptop: Host, hours: str) -> None:
    said = types(laptop, renter, "rent", *wish(hours), "--yes", "--timer", "--inventory", "inventory/away")
    assert "rented-1000  proven" in said, said
    assert "key       in .motley/rented/key" in said
    state = laptop.disk.root / f"{REPOSITORY}/.motley/rented".lstrip("/")
    assert stat.S_IMODE((state / "key").stat().st_mode) == 0o600
    if "off" in then:
        laptop.power_cut()
        laptop.boot()
    else:
        laptop.run("pkill", "-KILL", "-f", "console.rent.watcher")
    assert laptop.outcome("pgrep", "-f", "console.rent.watcher").returncode == 1, "nobody watches"
    assert not is_back(renter)
    pace.until(lambda: is_back(renter), over_s(hours), lambda: laptop.run("journalctl", "--no-pager", "-n", "30"))
    pace.until(lambda: not (state / "key").exists(), 60, "its key is gone")
    has_no_unit(laptop)
    assert "its time is over" in types(laptop, renter, "rented")


def test_a_laptop_that_was_off_when_the_time_was_over_gives_back_as_it_starts(
    renter: Renter, laptop: Host, hours: str
) -> None:
    said = types(laptop, renter, "rent", *wish(hours), "--yes", "--timer", "--inventory", "inventory/away")
    assert "rented-1000  proven" in said, said
    laptop.power_cut()
    pace.until(lambda: renter.bill[0]["usd"] > float(hours) * PRICE, over_s(hours), "its time is over", every_s=2)
    assert not is_back(renter)
    laptop.boot()
    pace.until(lambda: is_back(renter), 60, lambda: laptop.run("journalctl", "--no-pager", "-n", "30"))
