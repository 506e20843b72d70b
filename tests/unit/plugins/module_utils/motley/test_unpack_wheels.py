"""What is unpacked is what pip would have installed; what is damaged or reaches outside is refused."""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.motley import unpack_wheels as wheels
from plugins.module_utils.motley.unpack_wheels import Place, Refused, install
from tests.support import made_wheels

PYTHON = "{}.{}".format(*sys.version_info[:2])
NAME = "Shown-1.0-py3-none-any.whl"
INFO = "shown-1.0.dist-info"
CONTENT = {
    "shown/__init__.py": b"def main():\n    print('shown')\n\nclass Kind:\n    main = staticmethod(main)\n",
    "shown/large.bin": bytes(range(256)) * 8000,
    "shown/empty.py": b"",
    "shown-1.0.data/scripts/old-way": b"#!python\nimport shown; shown.main()\n",
    "shown-1.0.data/data/share/shown/a.txt": b"text",
    "shown-1.0.data/purelib/beside.py": b"BESIDE = 1\n",
    "shown-1.0.data/headers/shown.h": b"int shown;\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: shown\nVersion: 1.0\n",
    f"{INFO}/entry_points.txt": (
        b"[console_scripts]\nSay = shown:main\nsay-kind = shown:Kind.main [extra]\n\n[other]\nx = y:z\n"
    ),
}


def wheel(folder: Path, content: dict[str, bytes] = CONTENT) -> dict[str, dict[str, Any]]:
    return made_wheels.wheel(folder, NAME, content)


def environment(folder: Path) -> Path:
    venv.create(folder, with_pip=False)
    return folder


def tree(env: Path) -> dict[str, tuple[int, bytes]]:
    """Everything but who installed it, and the folder's own name in scripts."""
    files = [
        path for path in env.rglob("*") if path.is_file() and path.name not in ("INSTALLER", "RECORD", "REQUESTED")
    ]
    mine = [path for path in files if not path.is_symlink() and path.name not in ("pyvenv.cfg", "direct_url.json")]
    found = {header_folder(str(path.relative_to(env))): path for path in mine}
    return {name: (p.stat().st_mode & 0o777, p.read_bytes().replace(bytes(env), b"ENV")) for name, p in found.items()}


def header_folder(path: str) -> str:
    """Newer pips name it as the project spells itself, older ones as its wheel does; nothing looks there by name."""
    return path.lower() if "include/site/" in path else path


def records(env: Path) -> dict[str, str]:
    lines = (env / f"lib/python{PYTHON}/site-packages/{INFO}/RECORD").read_text().splitlines()
    return {header_folder(line.split(",", 1)[0]): line.split(",", 1)[1] for line in lines}


def test_it_is_what_pip_installs(tmp_path: Path) -> None:
    files = wheel(tmp_path)
    ours, theirs = environment(tmp_path / "a/env"), environment(tmp_path / "b/env")
    install(tmp_path, files, Place.of(ours, PYTHON))
    pip = [sys.executable, "-m", "pip", "--python", str(theirs / "bin/python"), "-q", "install", "--no-index"]
    subprocess.run([*pip, "--no-compile", "--no-deps", str(tmp_path / NAME)], check=True)
    mine, other = tree(ours), tree(theirs)
    assert mine.keys() == other.keys()
    scripts = {"bin/Say", "bin/say-kind"}  # their own words differ, what they do does not
    assert {n: f for n, f in mine.items() if n not in scripts} == {n: f for n, f in other.items() if n not in scripts}
    assert all(mine[name][0] == other[name][0] == 0o755 for name in scripts)
    for name in [*scripts, "bin/old-way"]:
        assert subprocess.run([ours / name], capture_output=True, text=True, check=True).stdout == "shown\n"
    told, known = records(ours), records(theirs)
    ignored = {f"{INFO}/INSTALLER", f"{INFO}/REQUESTED", f"{INFO}/direct_url.json", "../../../bin/old-way"}
    assert told.keys() - ignored == known.keys() - ignored
    same = told.keys() - ignored - {"../../../bin/Say", "../../../bin/say-kind"}
    assert {name: told[name] for name in same} == {name: known[name] for name in same}


def test_pip_can_remove_it(tmp_path: Path) -> None:
    files, env = wheel(tmp_path), environment(tmp_path / "a")
    before = tree(env).keys()
    install(tmp_path, files, Place.of(env, PYTHON))
    pip = [sys.executable, "-m", "pip", "--python", str(env / "bin/python"), "-q"]
    subprocess.run([*pip, "uninstall", "-y", "shown"], check=True)
    assert tree(env).keys() == before


def test_a_large_wheel_is_shared_among_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "LOT_BYTES", 100)
    files, env = wheel(tmp_path), environment(tmp_path / "a")
    place = Place.of(env, PYTHON)
    assert len(wheels.plan(tmp_path / NAME, place)) == 3
    install(tmp_path, files, place)
    assert (place.site / "shown/large.bin").read_bytes() == CONTENT["shown/large.bin"]


def test_a_damaged_wheel_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    files, env = wheel(tmp_path), environment(tmp_path / "a")
    before = tree(env).keys()
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b"shown", b"shawn", 1))
    with pytest.raises(Refused, match=r"Shown-1.0-py3-none-any.whl: its hash is"):
        install(tmp_path, files, Place.of(env, PYTHON))
    assert tree(env).keys() == before


def test_a_file_that_differs_from_its_checksum_is_refused(tmp_path: Path) -> None:
    """A wheel with the right hash, but made wrong."""
    wheel(tmp_path)
    path = tmp_path / NAME
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"Metadata-Version: 2.1", b"Metadata-Version: 2.2").replace(b"[extra]", b"[EXTRA]"))
    files = {NAME: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}
    with pytest.raises(Refused, match="another checksum"):
        install(tmp_path, files, Place.of(environment(tmp_path / "a"), PYTHON))


@pytest.mark.parametrize(
    "name", ["../outside.py", "/etc/outside", "shown-1.0.data/data/../../outside", "shown-1.0.data/what/x"]
)
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    files, env = wheel(tmp_path, {**CONTENT, name: b"x"}), environment(tmp_path / "a")
    before = {path for path in tmp_path.rglob("*")}
    with pytest.raises(Refused):
        install(tmp_path, files, Place.of(env, PYTHON))
    assert {path for path in tmp_path.rglob("*")} == before


def test_a_wheel_of_another_format_is_refused(tmp_path: Path) -> None:
    files = wheel(tmp_path, {**CONTENT, f"{INFO}/WHEEL": b"Wheel-Version: 2.0\n"})
    with pytest.raises(Refused, match=r"wheel version 2\.0"):
        install(tmp_path, files, Place.of(environment(tmp_path / "a"), PYTHON))


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    place = Place.of(environment(tmp_path / "a"), PYTHON)
    with pytest.raises(Refused, match=r"no wheel: There is no item named .*WHEEL"):
        install(tmp_path, wheel(tmp_path, {k: v for k, v in CONTENT.items() if not k.endswith("/WHEEL")}), place)
    (tmp_path / NAME).write_bytes(b"a page that says sorry")
    with pytest.raises(Refused, match=NAME):
        install(tmp_path, {NAME: {"sha256": hashlib.sha256(b"a page that says sorry").hexdigest()}}, place)
