"""Labs for tests: `trio` (shared by its module), `fresh_trio` (as an installer leaves it), `ready_trio` (can train)."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import base, needs
from lab import lab as labs
from lab.profile import USER
from tests.support import cluster as clusters
from tests.support.cluster import Cluster
from tests.support.leftovers import _nothing_is_left  # noqa: F401

if TYPE_CHECKING:
    from tests.support.bootstrap import Person

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what runs in its background; every program under test would inherit it, and heed no Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("ansible"):  # the trainer's environment has none
    import ansible.module_utils

    # A module finds what it shares with others where it finds it on a node.
    ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "plugins/module_utils"))

OWN_BASE = base.default_suite()
BASES: list[Any] = [
    OWN_BASE,
    *(pytest.param(other, marks=pytest.mark.long) for other in ("bookworm", "trixie") if other != OWN_BASE),
]
LONG_S = 3600
LIMIT = pytest.StashKey[object]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files on hosts first, large ones before small: where several run at a time, what is quick fills the end."""
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: ("unit" in item.path.parts, -tests[item.path]))
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(LONG_S))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> None:
    item.stash[LIMIT] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """pytest-timeout lets go of a test that has failed; its fixtures may hang all the more."""
    if LIMIT in item.stash and not any(signal.getitimer(signal.ITIMER_REAL)):
        item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[LIMIT])


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
    if missing := needs.what_is_missing():
        reason = " ".join(missing)
        if os.environ.get("MOTLEY_REQUIRE_LAB"):
            pytest.fail(f"the lab must run here: {reason}")
        pytest.skip(f"NOT RUN: {reason}")


def _lab(profile: str, suite: str, folder: Path, *layers: str, kept: Path | None = None) -> Iterator[Cluster]:
    with clusters.hosts(f"t{os.getpid()}", profile, suite, layers, kept=kept) as lab:
        yield Cluster(lab, folder)


@pytest.fixture(scope="module")
def trio(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """BASE=trixie runs a test by hand on another base than this machine's own."""
    yield from _lab("trio", os.environ.get("BASE") or base.default_suite(), tmp_path_factory.mktemp("trio"))


@pytest.fixture(scope="module")
def ready_trio(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Three nodes as a bootstrap leaves them for training: keys, addresses, the environment and the unit of a run.

    Bootstrapped once for each state of the code, on hosts that are kept beside the lab's layers.
    """
    from tests.support import ready  # noqa: PLC0415  needs what the training environment has not
    from tests.support.bootstrap import Person  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("ready")
    suite = base.default_suite()
    there = ready.ensure(suite)
    for cluster in _lab("trio", suite, folder, "train", kept=there):
        person = Person(cluster, folder)
        ready.take_over(person, there)
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


@pytest.fixture(scope="module")
def spoiled(request: pytest.FixtureRequest, trio: Cluster) -> set[str]:
    """Hosts of the module's trio that are no longer as an installer leaves them."""
    others = [item.fixturenames for item in request.session.items if item.path == request.path]
    only_fresh = all("fresh_trio" in names for names in others if "trio" in names)
    return set() if only_fresh else {host.name for host in trio.hosts}


@pytest.fixture
def fresh_trio(request: pytest.FixtureRequest, trio: Cluster, spoiled: set[str]) -> Iterator[Cluster]:
    """A test that is marked with the hosts that it spoils leaves the others to the next one."""
    if spoiled:
        labs.reset(trio.lab, sorted(spoiled))
        spoiled.clear()
    mark = request.node.get_closest_marker("spoils")
    spoiled.update(mark.args if mark else [host.name for host in trio.hosts])
    yield trio
    for host in trio.hosts:
        met = (host.disk.root / f"home/{USER}/.ansible").exists()
        assert host.name in spoiled or not met, f"{host.name} is spoiled, too: mark the test with it"
