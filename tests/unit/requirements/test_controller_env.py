"""The environments: which ansible-core each Python gets, what a Python that is too new is told, and which agree."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from requirements.fetch_wheels import for_python
from requirements.wheelhouse import lock_id
from tests.support.stand_ins import program

REQUIREMENTS = Path(__file__).parents[3] / "requirements"


@pytest.mark.parametrize(
    ("python", "branch"),
    [
        ("3.11", "2.19"),
        ("3.13", "2.19"),
        ("3.14", "2.2[0-9]"),
    ],
)
@pytest.mark.parametrize("lock", ["controller", "dev"])
def test_each_python_gets_an_ansible_core_that_runs_on_it(lock: str, python: str, branch: str) -> None:
    wanted = for_python((REQUIREMENTS / f"{lock}.txt").read_text(), python)
    (found,) = re.findall(r"^ansible-core==(\S+)", wanted, re.MULTILINE)
    assert re.match(branch, found)


def test_a_lock_is_read_for_the_processor_of_the_nodes_not_of_the_controller(tmp_path: Path) -> None:
    """A Raspberry Pi may be the controller of nodes that are PCs."""
    lock = "a==1 ; platform_machine == 'x86_64'\nb==2 ; platform_machine == 'aarch64'\n"
    assert [for_python(lock, "3.12", machine) for machine in ("x86_64", "aarch64")] == ["a==1\n", "b==2\n"]
    ids = {lock_id("3.12", ["uv"], machine=machine) for machine in ("x86_64", "aarch64", platform.machine())}
    assert len(ids) == 2 and lock_id("3.12", ["uv"]) in ids
    asked = []
    pip = tmp_path / "pip.py"
    pip.write_text("import sys; print(sys.argv)")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{REQUIREMENTS.parent}", "MOTLEY_CACHE": str(tmp_path)}
    for machine in ("x86_64", "aarch64"):
        fetch = [sys.executable, REQUIREMENTS / "fetch_wheels.py", f"--machine={machine}", tmp_path / "w", "3.12", "uv"]
        done = subprocess.run(fetch, env=environment, capture_output=True, text=True, check=True)
        asked.append(set(re.findall(r"--platform=\w+?_(x86_64|aarch64)'", done.stdout)))
    assert asked == [{"x86_64"}, {"aarch64"}]


@pytest.mark.parametrize("lock", ["node-gpu", "node-gpu-r570", "node-cpu", "parquet", "dev"])
def test_training_is_tested_with_the_versions_of_the_other_sets(lock: str) -> None:
    """As bitsandbytes on GPU nodes, pyarrow where a data set needs it."""
    tested, other = (dict(re.findall(r"^(\S+)==(\S+)", text(name), re.MULTILINE)) for name in ("test-train", lock))
    assert {"bitsandbytes", "pyarrow"} <= tested.keys()
    assert {name: version for name, version in tested.items() if other.get(name, version) != version} == {}


def test_unsloth_is_tested_with_the_versions_of_a_node_with_a_gpu() -> None:
    """All of them, but for torch and what only its CUDA build asks for."""
    tested, locked = (
        dict(re.findall(r"^(\S+)==(\S+)", text(name), re.MULTILINE)) for name in ("test-unsloth", "node-gpu")
    )
    of_cuda = {name for name in locked if name == "torch" or name.startswith(("nvidia-", "cuda-"))}
    assert {name: tested.get(name) for name in locked.keys() - of_cuda} == {
        name: version for name, version in locked.items() if name not in of_cuda
    }


def text(lock: str) -> str:
    return (REQUIREMENTS / f"{lock}.txt").read_text()


def test_a_python_that_is_too_new_is_told_before_anything_is_made(tmp_path: Path) -> None:
    python = program(
        tmp_path / "python3",
        '#!/bin/sh\n[ "$1" = -c ] || { echo Python 3.15.0; exit 0; }\n'
        'exec python3 -c "import sys; sys.version_info = (3, 15, 0); exec(sys.argv[1])" "$2"\n',
    )
    made = subprocess.run(
        [REQUIREMENTS / "make_env.sh", tmp_path / "env", "controller"],
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 2 and "3.11 to 3.14" in made.stderr and "found: Python 3.15.0" in made.stderr
    assert "PYTHON=python3.14 make env" in made.stderr and len(made.stderr.splitlines()) <= 3
    assert not (tmp_path / "env").exists()


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """It only says that it makes an environment, whose Python is it."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        f'  "-m venv "*) mkdir -p "$3/bin" && cp "{python}" "$3/bin/python" && touch "$3/"made ;;\n'
        '  "-m pip "*) exit 0 ;;\n'
        f'  *purelib*) echo "{tmp_path}" ;;\n  *) exec {sys.executable} "$@" ;;\nesac\n'
    )
    python.chmod(0o755)
    return python


def made(folder: Path, *sets: str, **environment: str) -> bool:
    (folder / "env/made").unlink(missing_ok=True)
    environment = os.environ | {"PATH": os.defpath} | environment
    subprocess.run([REQUIREMENTS / "make_env.sh", folder / "env", *sets], env=environment, check=True)
    return (folder / "env/made").exists()


def test_an_environment_that_has_more_serves_who_wants_less(tmp_path: Path, python: Path) -> None:
    """A person's has no developer's tools; `make test` adds them, and ./motley leaves them there."""

    def makes(*sets: str) -> bool:
        return made(tmp_path, *sets, PYTHON=str(python))

    assert makes("controller") and not makes("controller")
    assert makes("controller", "dev") and not makes("controller", "dev") and not makes("controller")
    assert "dev" not in (REQUIREMENTS.parent / "motley").read_text().split()


def test_an_environment_stays_whichever_python3_is_found_first(tmp_path: Path, python: Path) -> None:
    """sudo has another than conda or pyenv: by turns each would make it again. One that is asked for by name counts."""
    newer = f'exec {python} -c "import sys; sys.version_info = (3, 12, 99); exec(sys.argv[1])" "$2"'
    other = program(tmp_path / "bin/python3", f'#!/bin/sh\n[ "$1" = -c ] && {newer}\nexec {python} "$@"\n')
    path = f"{other.parent}:{os.defpath}"
    assert made(tmp_path, "controller", PYTHON=str(python)) and not made(tmp_path, "controller", PATH=path)
    assert made(tmp_path, "controller", PYTHON=str(other)), "it is asked for"
    assert made(tmp_path, "controller", PYTHON=str(python))
    (tmp_path / "env/bin/python").unlink()  # as after an upgrade of the system
    assert made(tmp_path, "controller", PATH=path)


def test_the_environment_leads_to_this_checkout(tmp_path: Path) -> None:
    program = "import console, plugins.module_utils.motley.pass_files_on, train.plan; print(console.__file__)"
    found = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(REQUIREMENTS.parent)


def test_a_fresh_clone_says_what_to_type_before_a_launch(tmp_path: Path) -> None:
    """Ansible would say no more than that it failed to parse."""
    (tmp_path / "inventory").mkdir()
    for path in REQUIREMENTS.parent.iterdir():
        if path.name != "inventory":
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(REQUIREMENTS.parent / "inventory/homelab/group_vars", tmp_path / "inventory/homelab/group_vars")
    words = [Path(sys.executable).parent / "ansible-playbook", "launch.yml", "-e", "model=tiny"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and "no machines are described yet" in said and "./motley inventory" in said, said


def test_an_ansible_that_nothing_leads_to_this_checkout_says_what_to_type(tmp_path: Path) -> None:
    """A person's own, of whatever version; or that of an .venv that `make env` has not made."""
    nobody = tmp_path / "hosts.yml"
    nobody.write_text("others: {hosts: {localhost: {}}}")
    program = "import sys; sys.path.remove(sys.argv.pop(1)); from ansible.cli.playbook import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, REQUIREMENTS.parent, "-i", nobody, "launch.yml"],
        cwd=REQUIREMENTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode and len(said) <= 3 and "Traceback" not in done.stderr, said
    assert "fix: make env; then .venv/bin/ansible-playbook" in said[1]


def test_a_folder_of_somebody_else_is_named_and_not_the_network() -> None:
    """As after `sudo git clone`. Root may write everywhere, so it is typed as nobody then."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(REQUIREMENTS, Path(folder) / "requirements")
        shutil.copy(REQUIREMENTS.parent / "motley", folder)
        python = Path(folder) / "python"
        program(python, "#!/bin/sh\ncase $* in *without_environment*) exit 3 ;; esac\n")
        Path(folder).chmod(0o555)
        typed = subprocess.run(
            [f"{folder}/motley", "status"],
            check=False,
            **({"user": 65534} if os.geteuid() == 0 else {}),  # type: ignore[call-overload]
            env=os.environ | {"PYTHON": str(python)},
            capture_output=True,
            text=True,
        )
        Path(folder).chmod(0o755)
    what, fix = typed.stderr.splitlines()  # and no line of bash's own
    assert f"may not write in {folder}, which belongs to" in what and fix.startswith("fix: sudo chown -R")
    assert typed.returncode == 2
