"""What the process of the rewards may not do; each is tried from a function of a file, as an owner's would."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from train.errors import BadInput
from train.rewards import confine
from train.rewards.judge import Judge

TRIES = """
import ctypes, errno, fcntl, mmap, os, resource, signal, socket, subprocess, threading
HOME, PORT, PARENT = {home!r}, {port}, os.getppid()
FILE = HOME + "/kept"

def raw(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")

def opened(*how):
    os.close(os.open(*how))

TRIES = {{
    "connection": lambda: socket.create_connection(("127.0.0.1", PORT), 2),
    "udp": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
    "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "socketpair": lambda: socket.socketpair(),
    "io_uring": lambda: raw(425, 1, None),
    "write": lambda: open(FILE, "w"),
    "write without openat": lambda: raw({open}, FILE.encode(), os.O_WRONLY),
    "append": lambda: open(FILE, "a"),
    "truncate by open": lambda: opened(FILE, os.O_RDONLY | os.O_TRUNC),
    "truncate": lambda: os.truncate(FILE, 0),
    "temporary file": lambda: opened(HOME, os.O_TMPFILE | os.O_RDWR),
    "mkdir": lambda: os.mkdir(HOME + "/new"),
    "remove": lambda: os.unlink(FILE),
    "rename": lambda: os.rename(FILE, FILE + "2"),
    "link": lambda: os.link(FILE, FILE + "2"),
    "symlink": lambda: os.symlink(FILE, FILE + "2"),
    "fifo": lambda: os.mkfifo(HOME + "/fifo"),
    "chmod": lambda: os.chmod(FILE, 0o777),
    "utime": lambda: os.utime(FILE, (1, 1)),
    "shell": lambda: subprocess.run(["true"]),
    "fork": lambda: os.fork(),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "signal": lambda: os.kill(PARENT, 0),
    "signal of a thread": lambda: raw({tgkill}, PARENT, PARENT, 0),
    "owner of a pipe": lambda: fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, PARENT),
    "memory limit": lambda: resource.prlimit(0, resource.RLIMIT_AS, (10**9, 8 * 10**9)),
    "memory of the parent": lambda: open(f"/proc/{{PARENT}}/mem", "rb+"),
    "memory file": lambda: os.memfd_create("x"),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, PARENT, 19),
    "affinity": lambda: os.sched_setaffinity(PARENT, [0]),
    "user": lambda: os.setuid(os.getuid()),
}}

def f(completions, **columns):
    for name, attempt in TRIES.items():
        try:
            attempt()
        except OSError as error:
            allowed = error.errno not in (errno.EPERM, errno.EACCES)
            print(name, "denied" if not allowed else error)
        else:
            print(name, "done")
    return [1.0]
"""
READS = """
import os, threading
from pathlib import Path
def f(completions):
    print(dict(os.environ), os.getcwd(), Path(__file__).read_text().split(chr(10))[1])
    print(b"secret" in Path("/proc/self/environ").read_bytes())
    thread = threading.Thread(target=print, args=("in a thread",))
    thread.start()
    thread.join()
    return [1.0]
"""


LOOKS = """
import os
def f(completions):
    try:
        print("seen", len(open(f"/proc/{os.getppid()}/environ").read()) > 0)
    except PermissionError:
        print("hidden")
    return [1.0]
"""
AS_ANYBODY = """
import sys
from pathlib import Path
from train.rewards import confine
from train.rewards.judge import Judge
confine.limit(64 << 30)  # of root's powers none: what root may not look into says nothing of other users
with Judge("./r.py", 30, "stop", Path(sys.argv[1]), say=print) as judge:
    judge.score(["a"], ["a"], {})
"""
UNCONFINED = (
    "import sys; sys.path.insert(0, {root!r}); from train.rewards import child, confine; "
    "confine.confine = lambda: 'no list'; child.main({asked}, {answered}, {parent}, {memory_bytes})"
)
WITHOUT_LANDLOCK = UNCONFINED.replace(
    "confine.confine = lambda: 'no list'", "confine.hide_other_processes = lambda: False"
)


def said(text: str, home: Path) -> list[str]:
    (home / "r.py").write_text(text)
    lines: list[str] = []
    with Judge("./r.py", 30, "stop", home, say=lines.append) as judge:
        judge.score(["a"], ["a"], {})
    return lines


@pytest.mark.parametrize("landlock", [True, False])
def test_it_reaches_no_network_writes_nothing_and_touches_no_process(landlock, tmp_path, monkeypatch):
    """Also where Landlock is not there to help, which is said."""
    if not landlock:
        monkeypatch.setattr("train.rewards.process.PROGRAM", WITHOUT_LANDLOCK)
    (tmp_path / "kept").write_text("as before")
    tgkill = confine.CALLS_IF["tgkill"][confine.MACHINES[os.uname().machine][0]]
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = TRIES.format(home=str(tmp_path), port=server.getsockname()[1], tgkill=tgkill, open=confine.OPEN)
        lines = said(text, tmp_path)
    if "no Landlock" in lines[0] or not landlock:
        assert lines.pop(0).startswith("this kernel has no Landlock: the functions could read the environment of")
    assert len(lines) == 31 and [line for line in lines if not line.endswith(" denied")] == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["kept", "r.py"]
    assert (tmp_path / "kept").read_text() == "as before"


def test_it_has_no_environment_reads_files_and_has_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    lines = [line for line in said(READS, tmp_path) if "no Landlock" not in line]
    assert lines == ["{} / import os, threading", "False", "in a thread"]


def test_the_environment_of_the_run_is_hidden_or_that_it_is_not_is_said(tmp_path):
    (tmp_path / "r.py").write_text(LOOKS)
    command = [sys.executable, "-c", AS_ANYBODY, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True)
    first, *more = done.stdout.splitlines()
    assert (first, more) == ("hidden", []) or ("no Landlock" in first and more == ["seen True"])


def test_root_has_no_powers_in_it(tmp_path):
    text = "def f(completions):\n  print(*open('/proc/self/status'))\n  return [1.0]"
    powers = [line.split()[1] for line in said(text, tmp_path) if line.strip().startswith(("CapEff", "CapPrm"))]
    assert powers == ["0000000000000000"] * 2


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_stays_in_it(machine):
    program = confine.filter_of(machine, 7)
    assert program[-1][0] == confine.RETURN and len(program) < 4096
    for at, (code, jump_true, jump_false, _) in enumerate(program):
        if code not in (confine.RETURN, confine.LOAD):
            assert at + 1 + max(jump_true, jump_false) < len(program) and max(jump_true, jump_false) < 256


def test_a_machine_that_cannot_confine_runs_motleys_own_alone(tmp_path, monkeypatch):
    (tmp_path / "r.py").write_text("print('it was run')\ndef f(completions): return [1.0]")
    monkeypatch.setattr("train.rewards.process.PROGRAM", UNCONFINED)
    lines: list[str] = []
    with pytest.raises(BadInput, match=r"cannot keep the functions of a file .*: no list.*\nallow seccomp"):
        Judge("./r.py", 30, "stop", tmp_path, say=lines.append)
    assert lines == []
    with Judge("json", 30, "stop", tmp_path, say=lines.append) as judge:
        assert judge.score(["a"], ["[]"], {}).total == [1]
