"""What uv puts down is what pip would have installed; what is damaged or reaches outside is refused."""

import os
import signal
import subprocess
import sys
import threading
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plugins.modules import python_env
from tests.support import made_wheels

NAME = "Shown-1.0-py3-none-any.whl"
INFO = "shown-1.0.dist-info"
NOTES = ("INSTALLER", "RECORD", "REQUESTED", "uv_cache.json", "direct_url.json", "motley-files.json", ".lock")
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


def install(wheels: Path, files: dict[str, dict[str, Any]], env: Path) -> None:
    uv = made_wheels.uv(wheels)
    python_env.bring(env.parent, env, {"wheels": str(wheels), "files": {**uv, **files}})


def environment(folder: Path) -> Path:
    venv.create(folder, with_pip=False)
    return folder


def tree(env: Path) -> dict[str, tuple[int, bytes]]:
    """Everything but who installed it, and the folder's own name in scripts."""
    files = [path for path in env.rglob("*") if path.is_file() and path.name not in NOTES]
    mine = [path for path in files if not path.is_symlink() and path.name != "pyvenv.cfg"]
    found = {header_folder(str(path.relative_to(env))): path for path in mine}
    return {name: (p.stat().st_mode & 0o777, p.read_bytes().replace(bytes(env), b"ENV")) for name, p in found.items()}


def header_folder(path: str) -> str:
    """Newer pips name it as the project spells itself, older ones as its wheel does; nothing looks there by name."""
    return path.lower() if "include/site/" in path else path


def pip(env: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--python", str(env / "bin/python"), "-q", *words], check=True)


def test_it_is_what_pip_installs_and_can_remove(tmp_path: Path) -> None:
    files = wheel(tmp_path)
    ours, theirs = environment(tmp_path / "a/env"), environment(tmp_path / "b/env")
    before = tree(ours).keys()
    install(tmp_path, files, ours)
    pip(theirs, "install", "--no-index", "--no-compile", "--no-deps", str(tmp_path / NAME))
    mine, other = tree(ours), tree(theirs)
    assert mine.keys() == other.keys()
    scripts = {"bin/Say", "bin/say-kind"}  # their own words differ, what they do does not
    assert {n: f for n, f in mine.items() if n not in scripts} == {n: f for n, f in other.items() if n not in scripts}
    assert all(mine[name][0] == other[name][0] == 0o755 for name in scripts)
    for name in [*scripts, "bin/old-way"]:
        assert subprocess.run([ours / name], capture_output=True, text=True, check=True).stdout == "shown\n"
    assert not [path for path in ours.rglob("*") if path.is_file() and path.stat().st_nlink > 1], "the disk has it once"
    assert not (ours.parent / ".wheels/cache").exists()
    pip(ours, "uninstall", "-y", "shown")
    assert tree(ours).keys() == before


def test_nodes_that_share_an_environment_take_it_away_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, both = tmp_path / "shared", threading.Barrier(2)
    for number in range(200):
        (home / f"env.aa/lib/{number}").mkdir(parents=True)
    (home / "env").symlink_to("env.aa")

    def waits() -> None:
        both.wait(timeout=10)

    monkeypatch.setattr(python_env, "refuse_while_a_run_is_on", waits)
    with ThreadPoolExecutor(2) as nodes:
        done = [nodes.submit(python_env.remove, home, pretend=False) for _ in range(2)]
        said = [one.result()["motley_say"] for one in done]
    assert not home.exists() and {*said} == {"env.aa, env removed"}


def test_what_its_owner_calls_alike_stays(harmed: tuple[Path, dict[str, Any]]) -> None:
    home, params = harmed
    (home / "env.mine").mkdir()
    (home / "env.sh").write_text("export HF_HOME=/srv/hub\n")
    (home / "env.0123").mkdir()  # of a build that was killed
    assert python_env.build(home, params | {"lock": "def"}, pretend=False)["changed"]
    left = ["env.abc", "env.def", "env.mine", "env.previous", "env.sh"]
    assert sorted(path.name for path in home.glob("env.*")) == left
    assert python_env.remove(home, pretend=False)["motley_say"] == "env.abc, env.def, env.previous, env removed"
    assert sorted(path.name for path in home.iterdir()) == ["env.mine", "env.sh"]


def test_a_damaged_wheel_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    files, env = wheel(tmp_path), environment(tmp_path / "a")
    before = tree(env).keys()
    wheel(tmp_path, {**CONTENT, "shown/empty.py": b"import os\n"})
    refused = r"a wheel was refused: .*[Hh]ash(.|\n)*shown(.|\n)*\nfix: run again: damaged wheels"
    with pytest.raises(python_env.ModuleError, match=refused):
        install(tmp_path, files, env)
    assert tree(env).keys() == before


def test_a_uv_that_is_not_the_locked_one_is_not_started(tmp_path: Path) -> None:
    files = made_wheels.wheel(tmp_path, "uv-1.0-py3-none-any.whl", {"uv-1.0.dist-info/METADATA": b""})
    (tmp_path / "uv-1.0-py3-none-any.whl").write_bytes(b"something else")
    with pytest.raises(python_env.ModuleError, match=r"uv-1\.0-py3-none-any\.whl is not as locked"):
        python_env.bring(tmp_path, tmp_path / "env", {"wheels": str(tmp_path), "files": files})


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    names = ["../outside.py", "/etc/outside", "shown-1.0.data/data/../../outside"]
    files, env = wheel(tmp_path, CONTENT | dict.fromkeys(names, b"x")), environment(tmp_path / "home/env")
    install(tmp_path, files, env)
    assert not [path for path in tmp_path.rglob("outside*") if env not in path.parents]
    assert not Path("/etc/outside").exists()


FULL = "failed to write: No space left on device (os error 28)"
UNREACHED = "cause: tcp connect error cause: Connection refused (os error 111)"


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (FULL, OSError, "No space left"),
        (UNREACHED, python_env.ModuleError, r"refused \(os error 111\)\nfix: can that machine reach"),
    ],
    ids=["a full disk", "an index that is out of reach"],
)
def test_a_full_disk_is_called_so_and_the_network_is_not(said: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        python_env.run(["sh", "-c", f"echo '{said}' >&2; exit 2"], "not fetched", python_env.NO_INDEX)


VERSION = "import importlib.metadata as m; print(m.version('shown'))"


@pytest.fixture
def harmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
    """A home whose environment has one file of `shown` changed, and the parameters that built it."""
    monkeypatch.setattr(python_env, "refuse_while_a_run_is_on", lambda: None)
    wheels, home = tmp_path / "wheels", tmp_path / "home"
    wheels.mkdir()
    files = {**made_wheels.uv(wheels), **wheel(wheels)}
    params = {"lock": "abc", "wheels": str(wheels), "files": files, "imports": ["shown"], "keep_wheels": False}
    python_env.build(home, params, pretend=False)
    next((home / "env").resolve().rglob("shown/__init__.py")).write_text("harmed = True\n")
    return home, params


def version(home: Path) -> str:
    done = subprocess.run([home / "env/bin/python", "-c", VERSION], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def test_a_repair_that_is_killed_or_fails_leaves_a_package_as_it_was_and_the_next_one_succeeds(
    tmp_path: Path, harmed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, params = harmed
    before = python_env.look(home, "abc")
    with monkeypatch.context() as patch:
        patch.setattr(python_env, "bring", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        if not (child := os.fork()):
            python_env.build(home, params, pretend=False)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert version(home) == "" and python_env.look(home, "abc")["harmed"] == ["shown-1.0"]
    whole = (tmp_path / "wheels" / NAME).read_bytes()
    (tmp_path / "wheels" / NAME).write_bytes(whole[:-10])
    with pytest.raises(python_env.ModuleError, match="a wheel was refused"):
        python_env.build(home, params, pretend=False)
    assert version(home) == "1.0" and python_env.look(home, "abc") == before
    (tmp_path / "wheels" / NAME).write_bytes(whole)
    assert python_env.build(home, params, pretend=False)["motley_say"] == "shown installed again"
    assert version(home) == "1.0" and not python_env.look(home, "abc")["why"]
    assert not (home / ".wheels").exists()


def test_what_is_layered_over_another_environment_loads_with_what_that_one_has(tmp_path: Path) -> None:
    env, over = environment(tmp_path / "extra/env"), environment(tmp_path / "env")
    [site, below] = [next(one.glob("lib/python*/site-packages")) for one in (env, over)]
    (site / "shown.py").write_text("import below\n")
    (site / INFO).mkdir()
    with pytest.raises(python_env.ModuleError, match=r"does not load: .*No module named 'below'"):
        python_env.prove(env, ["shown"])
    (below / "below.py").write_text("")
    python_env.prove(env, ["shown"], str(over))
