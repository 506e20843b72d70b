"""The timer for a machine that sleeps: what systemd would start is started here, as its unit says."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.rent import timer
from console.rent.clore import Clore
from console.rent.lease import Book, Lease
from lab.market import KEY, Books
from tests.support.rented import rented_there
from tests.support.stand_ins import program
from train.errors import BadInput

SYSTEMCTL = '#!/bin/sh\necho "$@" >>"$ASKED"\nexit ${SYSTEMCTL_FAILS:-0}\n'


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program(tmp_path / "bin/systemctl", SYSTEMCTL)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "asked"


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "rented")


def nothing_is_left(book: Book) -> bool:
    """No key in a file, and no unit."""
    return not (book.place / "key").exists() and not list(timer.units().glob("motley-*"))


def rented(book: Book, market: Clore) -> Lease:
    return rented_there(market, book, lambda lease: timer.arm(book, lease, KEY))


def unit(name: str, end: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (timer.units() / f"{name}.{end}").read_text().splitlines():
        key, _, value = line.partition("=")
        found.setdefault(key, []).append(value)
    return found


def test_what_the_timer_starts_gives_back_what_is_over_and_takes_the_key_away(
    asked: Path, served: tuple[Books, Clore], book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    books, market = served
    monkeypatch.setenv("MOTLEY_MARKET", market.url)
    lease = rented(book, market)
    name = timer.name_of(lease.mark)
    assert asked.read_text().split("\n")[-2] == f"--user enable --now {name}.timer"
    assert stat.S_IMODE((book.place / "key").stat().st_mode) == 0o600
    late = replace(lease, born=replace(lease.born, up=lease.born.up - 7200, wall=lease.born.wall - 7200))
    book.write(late)
    service = unit(name, "service")
    given = dict(shlex.split(line)[0].split("=", 1) for line in service["Environment"])
    with Path(service["StandardInput"][0].removeprefix("file:")).open() as key:
        done = subprocess.run(
            shlex.split(service["ExecStart"][0]), cwd=service["WorkingDirectory"][0], env=os.environ | given,
            stdin=key, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [order["ended"] is None for order in books.orders.values()] == [False]
    assert KEY not in done.stdout + done.stderr
    assert nothing_is_left(book)


def test_the_timer_waits_for_the_end_of_the_lease_and_makes_up_for_sleep(
    asked: Path, market: Clore, book: Book
) -> None:
    lease = rented(book, market)
    parts = unit(timer.name_of(lease.mark), "timer")
    at = time.strptime(parts["OnCalendar"][0], "%Y-%m-%d %H:%M:%S UTC")
    assert parts["Persistent"] == ["true"]
    assert 0 <= time.mktime(at) - time.timezone - lease.until < 3
    if analyze := shutil.which("systemd-analyze"):
        checked = subprocess.run([analyze, "calendar", parts["OnCalendar"][0]], capture_output=True, check=False)
        assert checked.returncode == 0


def test_a_folder_with_a_space_and_a_percent_is_one_word_to_systemd(tmp_path: Path, monkeypatch: Any) -> None:
    place = tmp_path / "my motley 50%h"
    (place / "rented").mkdir(parents=True)
    (place / "python").symlink_to(sys.executable)
    monkeypatch.setattr(timer, "ROOT", place)
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    text = timer._service(Book(place / "rented"), "motley-me-1", "try")
    unit = tmp_path / "motley-try.service"
    unit.write_text(text)
    if analyze := shutil.which("systemd-analyze"):
        said = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
        assert "motley-try" not in said.stderr, said.stderr
    for line in ("WorkingDirectory", "StandardInput", "Environment", "ExecStart"):
        assert "50%%h" in next(one for one in text.splitlines() if one.startswith(line)), text


def test_what_the_timer_would_start_is_tried_before_anything_is_ordered(
    asked: Path, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer.prove(book, KEY)
    assert "--user start motley-give-back-try.service" in asked.read_text()
    monkeypatch.setenv("SYSTEMCTL_FAILS", "1")
    with pytest.raises(BadInput, match="nothing was ordered"):
        timer.prove(book, KEY)
    assert nothing_is_left(book)


def test_where_no_unit_can_be_written_nothing_is_ordered_and_no_key_stays(
    asked: Path, book: Book, tmp_path: Path
) -> None:
    (tmp_path / "config").touch()
    with pytest.raises(BadInput, match=r"config/systemd/user: .*: nothing was ordered"):
        timer.prove(book, KEY)
    assert not (book.place / "key").exists()


def test_without_a_systemd_of_the_user_nothing_is_ordered(
    asked: Path, served: tuple[Books, Clore], book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYSTEMCTL_FAILS", "1")
    with pytest.raises(BadInput, match="no systemd"):
        timer.require()
    with pytest.raises(BadInput, match="could not be started"):
        rented(book, served[1])
    assert (served[0].orders, book.leases()) == ({}, [])
    assert nothing_is_left(book)
