"""A file of the environment that is not as installed is seen, its package is named, and it alone is brought again."""

import copy
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible.module_utils.motley import env_files

from plugins.filter.choose_python_env import motley_env_wheels
from plugins.modules import python_env, versions_info
from tests.support import made_wheels

PYTHON = "{}.{}".format(*sys.version_info[:2])
LOCK = "50729b9b53ec"


class Made:
    """A home whose environment has the packages alpha and beta, built as bootstrap builds it."""

    def __init__(self, home: Path) -> None:
        self.home, self.wheels = home, home / ".wheels"
        self.wheels.mkdir(parents=True)
        self.files = made_wheels.uv(self.wheels)
        self.files |= made_wheels.plain(self.wheels, "alpha", "1.0", __init__=b"A = 1\n", more=b"B = 2\n")
        self.files |= made_wheels.plain(self.wheels, "beta", "2.0", __init__=b"C = 3\n")
        self.build()

    def build(self) -> dict:
        params = {"lock": LOCK, "wheels": str(self.wheels), "files": self.files, "imports": ["alpha", "beta"]}
        return python_env.build(self.home, params | {"keep_wheels": True}, pretend=False)

    @property
    def env(self) -> Path:
        return self.home / "env"

    @property
    def site(self) -> Path:
        return self.env / f"lib/python{PYTHON}/site-packages"

    def seen(self) -> str:
        """As check-versions and doctor show it."""
        return str(versions_info.collect(self.home, [])["environment"])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("built") / "home")


@pytest.fixture
def made(built: Made, tmp_path: Path) -> Made:
    """One of its own, with its own times."""
    made = copy.copy(built)
    made.home, made.wheels = tmp_path / "home", tmp_path / "home/.wheels"
    shutil.copytree(built.home, made.home, symlinks=True)
    env_files.write_down(made.env.resolve())
    return made


def change(file: Path) -> None:
    """As an editor does it that keeps size and time."""
    before = file.stat()
    file.write_bytes(b"A = 9\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_an_untouched_one_is_its_lock(made: Made) -> None:
    subprocess.run([made.env / "bin/python", "-c", "import alpha.more"], check=True)  # leaves caches
    assert made.seen() == LOCK
    assert not made.build()["changed"]


@pytest.mark.parametrize(
    ("file", "text", "said", "again"),
    [
        ("alpha/__init__.py", b"A = 9\n", "changed: alpha (alpha/__init__.py)", ["alpha-1.0"]),
        ("alpha/more.py", None, "changed: alpha (alpha/more.py)", ["alpha-1.0"]),
        ("shadow.pth", b"import os\n", "came: shadow.pth", []),
        ("../../../pyvenv.cfg", b"include-system-site-packages = true\n", "changed: Python (pyvenv.cfg)", []),
    ],
)
def test_what_is_no_longer_as_installed_is_named(
    made: Made, file: str, text: bytes | None, said: str, again: list[str]
) -> None:
    (made.site / file).unlink(missing_ok=True)
    if text:
        (made.site / file).write_bytes(text)
    assert made.seen() == f"{LOCK}, {said}"
    look = python_env.look(made.home, LOCK)
    assert (look["why"], look["harmed"]) == (f"it was changed since: {said}", again)


def test_a_link_in_place_of_a_package_is_named(made: Made) -> None:
    (made.site / "beta").rename(made.home / "beta")
    (made.site / "beta").symlink_to(made.home / "beta")
    assert made.seen() == f"{LOCK}, changed: beta (beta/__init__.py); came: beta"


def test_a_changed_package_alone_is_brought_again(made: Made) -> None:
    change(made.site / "alpha/__init__.py")
    (made.wheels / "beta-2.0-py3-none-any.whl").unlink()
    before = made.env.readlink(), (made.site / "beta/__init__.py").stat()
    assert made.build()["motley_say"].startswith("alpha installed again")
    assert made.seen() == LOCK and (made.site / "alpha/__init__.py").read_bytes() == b"A = 1\n"
    assert (made.env.readlink(), (made.site / "beta/__init__.py").stat()) == before


def test_a_package_whose_own_list_is_harmed_is_brought_again(made: Made) -> None:
    (made.site / "alpha-1.0.dist-info/RECORD").write_text("")
    assert made.build()["motley_say"].startswith("alpha installed again")
    assert made.seen() == LOCK


def test_what_is_removed_installed_and_replaced_by_hand_is_named(made: Made) -> None:
    shutil.rmtree(made.site / "alpha")
    shutil.rmtree(made.site / "alpha-1.0.dist-info")
    assert made.seen() == f"{LOCK}, gone: alpha"
    made_wheels.plain(made.home, "alpha", "3.0", __init__=b"A = 3\n", other=b"")
    made_wheels.plain(made.home, "gamma", "0.1", __init__=b"")
    for wheel in made.home.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(made.site)
    assert made.seen().startswith(f"{LOCK}, changed: alpha (")
    assert made.seen().endswith("; came: alpha-3.0 gamma-0.1")


def test_what_somebody_added_is_kept_as_the_environment_before(made: Made) -> None:
    before = made.env.readlink()
    (made.site / "mine.py").write_text("KEPT = 1\n")
    assert made.build()["motley_say"].endswith(f"env.{LOCK}-again") and made.seen() == LOCK
    assert made.env.readlink() != before == (made.home / "env.previous").readlink()
    assert (made.home / "env.previous" / made.site.relative_to(made.env) / "mine.py").exists()


def test_other_times_alone_are_no_change_and_are_read_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a backup was put back."""
    copied = made.home / "copied"
    shutil.copytree(made.env, copied, symlinks=True)
    made.env.unlink()
    copied.rename(made.env)
    assert made.seen() == LOCK
    monkeypatch.setattr(env_files, "hash_of", lambda file: pytest.fail(f"{file} is read again"))
    assert made.seen() == LOCK


def rots(made: Made, file: Path) -> None:
    """Its content changes and nothing else: the list is made to hold its times."""
    change(file)
    files = env_files.read(made.env)
    entry = files[str(file.relative_to(made.env))]
    entry[2:] = env_files.on_disk(made.env)[str(file.relative_to(made.env))]
    env_files.write_list(made.env, files)


def test_rot_is_seen_by_a_full_look_and_from_then_on(made: Made) -> None:
    rots(made, made.site / "alpha/__init__.py")
    assert made.seen() == LOCK
    assert "changed: alpha" in str(versions_info.collect(made.home, [], full=True)["environment"])
    assert "changed: alpha" in made.seen(), "what --fix looks at"
    made.build()
    assert str(versions_info.collect(made.home, [], full=True)["environment"]) == LOCK


def test_without_a_list_the_wheels_own_decide(made: Made) -> None:
    """An environment of an earlier Motley; or somebody deleted the list."""
    mine = made.env / env_files.LIST
    mine.unlink()
    change(made.site / "beta/__init__.py")
    assert made.seen() == f"{LOCK}, changed: beta (beta/__init__.py)" and not mine.exists()
    assert made.build()["motley_say"].startswith("beta installed again")
    assert made.seen() == LOCK and mine.exists()
    mine.write_text("{")
    assert made.seen() == LOCK and len(env_files.read(made.env)) > 10


def test_looking_in_check_mode_writes_nothing(made: Made) -> None:
    (made.env / env_files.LIST).unlink()
    versions_info.collect(made.home, [], write=False)
    python_env.look(made.home, LOCK, write=False)
    assert not (made.env / env_files.LIST).exists()


def test_of_a_file_that_two_packages_bring_differently_the_disk_decides(made: Made) -> None:
    content = {
        "alpha/__init__.py": b"A = 'other'\n",
        "delta-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: delta\nVersion: 1.0\n",
        "delta-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    made.files = made.files | made_wheels.wheel(made.wheels, "delta-1.0-py3-none-any.whl", content)
    made.env.unlink()
    made.build()
    assert str(versions_info.collect(made.home, [], full=True)["environment"]) == made.seen() == LOCK


def test_only_the_wheels_of_harmed_packages_are_handed_on() -> None:
    alpha, beta = "Alpha-1.0-py3-none-any.whl", "beta-2.0-cp311-cp311-linux_x86_64.whl"
    uv = "uv-0.13.9-py3-none-linux_x86_64.whl"
    files = {name: {} for name in (alpha, beta, "gamma-3-py3-none-any.whl", uv)}
    looks = [{"harmed": ["alpha-1.0"]}, {"harmed": ["beta-2.0"]}]
    assert list(motley_env_wheels(files, looks)) == [alpha, beta, uv], "uv puts them down"
    assert motley_env_wheels(files, [*looks, {"harmed": [], "why": "there is no environment yet"}]) == files
