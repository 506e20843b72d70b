"""Labs for tests: `trio` (shared by its module), `fresh_trio` (as an installer leaves it), `ready_trio` (can train)."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import base
from lab import lab as labs
from lab.place import Place
from tests.support import cluster as clusters
from tests.support.cluster import Cluster

if TYPE_CHECKING:
    from tests.support.bootstrap import Person

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what runs in its background; every program under test would inherit it, and heed no Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("ansible"):  # the trainer's environment has none
    import ansible.module_utils

    # A module finds what it shares with others where it finds it on a node.
    ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "plugins/module_utils"))

BASES = sorted({"bookworm", "trixie", base.default_suite()})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What did not run, a line for each reason: a hundred lines are not read. run.sh says it again at its end."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} {'test' if count == 1 else 'tests'}: {reason}", yellow=True)
    if kept := os.environ.get("MOTLEY_NOT_RUN"):
        with Path(kept).open("a") as file:
            file.writelines(f"{count}\t{' '.join(reason.split())}\n" for reason, count in reasons.items())


@pytest.fixture(scope="session")
def lab_allowed() -> None:
    """Where the lab cannot run, its tests are named as not run; where it must (CI), they fail."""
    if missing := labs.what_is_missing():
        reason = " ".join(missing)
        if os.environ.get("MOTLEY_REQUIRE_LAB"):
            pytest.fail(f"the lab must run here: {reason}")
        pytest.skip(f"NOT RUN: {reason}")


def _lab(profile: str, suite: str, folder: Path, *layers: str) -> Iterator[Cluster]:
    place = Place(name=f"t{os.getpid()}")
    try:
        yield clusters.start(place.name, profile, suite, folder, layers)
    finally:
        labs.down(place)


@pytest.fixture(scope="module")
def trio(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """BASE=trixie runs a test by hand on another base than this machine's own."""
    yield from _lab("trio", os.environ.get("BASE") or base.default_suite(), tmp_path_factory.mktemp("trio"))


@pytest.fixture(scope="module")
def ready_trio(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Three nodes as a bootstrap leaves them for training: names, keys, addresses, and the training environment."""
    from tests.support.bootstrap import Person  # noqa: PLC0415  needs what the training environment has not

    folder = tmp_path_factory.mktemp("ready")
    for cluster in _lab("trio", base.default_suite(), folder, "train"):
        person = Person(cluster, folder)
        person.writes()
        for phase in ("ssh_trust", "static_ip"):
            person.bootstraps(phase=phase)
        yield person


@pytest.fixture(scope="module")
def trio_to_train_on(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three fresh hosts that have the training environment already."""
    yield from _lab("trio", base.default_suite(), tmp_path_factory.mktemp("trio"), "train")


@pytest.fixture(scope="module")
def trixie_trio(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For what Debian 13 has and Debian 12 has not."""
    yield from _lab("trio", "trixie", tmp_path_factory.mktemp("trixie"))


@pytest.fixture(scope="module")
def pair(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from _lab("pair", base.default_suite(), tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module", params=BASES)
def trio_on_each_base(
    request: pytest.FixtureRequest, lab_allowed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    yield from _lab("trio", request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def fresh_trio(trio: Cluster) -> Cluster:
    labs.reset(trio.lab, [])
    return trio


@pytest.fixture
def fresh_trio_on_each_base(trio_on_each_base: Cluster) -> Cluster:
    labs.reset(trio_on_each_base.lab, [])
    return trio_on_each_base
