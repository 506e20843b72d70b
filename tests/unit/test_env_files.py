"""An environment whose files are not those that were installed is seen, the package is named, and it alone is brought again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.modules import node_versions, python_env
from tests.support import made_wheels

PYTHON = "{}.{}".format(*sys.version_info[:2])
LOCK = "50729b9b53ec"
NOT_YET = pytest.mark.xfail(strict=True, reason="versions are compared, files are not")


class Made:
    """A home whose environment has the packages alpha and beta, built as bootstrap builds it."""

    def __init__(self, home: Path) -> None:
        self.home, self.wheels = home, home / ".wheels"
        self.wheels.mkdir(parents=True)
        self.files = made_wheels.plain(self.wheels, "alpha", "1.0", __init__=b"A = 1\n", more=b"B = 2\n")
        self.files |= made_wheels.plain(self.wheels, "beta", "2.0", __init__=b"C = 3\n")
        self.build()

    def build(self) -> dict:
        wish = {"lock": LOCK, "wheels": str(self.wheels), "files": self.files, "imports": ["alpha", "beta"]}
        return python_env.build(self.home, wish | {"keep_wheels": True}, pretend=False)

    @property
    def env(self) -> Path:
        return self.home / "env"

    @property
    def site(self) -> Path:
        return self.env / f"lib/python{PYTHON}/site-packages"

    def seen(self) -> str:
        """As check-versions and doctor show it."""
        return str(node_versions.collect(self.home, [])["environment"])


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "home")


def change(file: Path, text: bytes = b"A = 9\n") -> None:
    """As an editor does it that keeps size and time."""
    before = file.stat()
    file.write_bytes(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_an_untouched_one_is_its_lock(made: Made) -> None:
    subprocess.run([made.env / "bin/python", "-c", "import alpha.more"], check=True)  # leaves caches
    assert made.seen() == LOCK
    assert not made.build()["changed"]


@NOT_YET
def test_a_changed_file_names_its_package(made: Made) -> None:
    change(made.site / "alpha/__init__.py")
    assert made.seen() == f"{LOCK}, changed: alpha (alpha/__init__.py)"
    assert python_env.look(made.home, LOCK)["why"]


@NOT_YET
def test_a_missing_file_names_its_package(made: Made) -> None:
    (made.site / "alpha/more.py").unlink()
    assert made.seen() == f"{LOCK}, changed: alpha (alpha/more.py)"


@NOT_YET
def test_what_somebody_laid_into_it_is_named(made: Made) -> None:
    (made.site / "alpha/more.so").write_bytes(b"x")
    (made.site / "shadow.pth").write_text("import os\n")
    assert made.seen() == f"{LOCK}, came: alpha/more.so shadow.pth"


@NOT_YET
def test_a_changed_package_alone_is_brought_again(made: Made) -> None:
    change(made.site / "alpha/__init__.py")
    (made.wheels / "beta-2.0-py3-none-any.whl").unlink()
    before = made.env.readlink(), (made.site / "beta/__init__.py").stat()
    assert made.build()["motley_say"].startswith("alpha installed again")
    assert made.seen() == LOCK and (made.site / "alpha/__init__.py").read_bytes() == b"A = 1\n"
    assert (made.env.readlink(), (made.site / "beta/__init__.py").stat()) == before
