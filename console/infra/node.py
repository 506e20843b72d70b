"""What the controller asks of a node while a run is there, whatever the infra: how it is, stop, events, logs, fetch.

An infra says how a command gets to the node (node.py in its folder) and may answer a verb by itself. By default
plugins/module_utils/motley/start_stop_status.py is sent along and does the work there: seconds less than a playbook,
and a node that is off delays nobody.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from console.infra import name_of, part
from console.text_layout import in_place
from plugins.module_utils.motley.node_replies import Begun, Hashes, Look, Paused, Queued, Runs, Stopped
from train.layout import HOME
from train.runlog.paths import MEMBERS

if TYPE_CHECKING:
    from console.inventory.read import Inventory

ROOT = Path(__file__).parents[2]
MOTLEY = "plugins.module_utils.motley"
TRAIN = "plugins.module_utils.train"
SENT_ALONG = (
    *(f"{TRAIN}.{name}" for name in ("files", "layout", "nvidia_smi", "pause", "runlog.paths")),
    *(f"{TRAIN}.runlog.{name}" for name in ("event_types", "tail", "last_launch", "secret", "queue_order")),
    f"{TRAIN}.runlog.queue_files",
    *(f"{MOTLEY}.{name}" for name in ("node_replies", "files", "run_files", "run_processes", "run_unit")),
    *(f"{MOTLEY}.{name}" for name in ("pausing", "waking", "change_queue")),
)
FOR_ANSIBLE = re.compile(r"\{\{ *(\w+) *\}\}")
"""A variable that only Ansible would put in."""
ANSWER_S = 12.0
"""A small machine that trains on all its cores has needed more than 6."""
NOTIFY_S = 45.0
"""Three tries of a message, and the way there."""
STOP_S = 300.0
ENQUEUE_S = 60.0
HASHES_S = 300.0
"""30 GB on an old disk. A machine that dies meanwhile is noticed by its connection."""

MARK = "-- motley answers --"
"""The line before each answer: what stands above it a shell has printed, such as an echo in ~/.bashrc."""
MARKS = f"print({MARK!r}, flush=True)"

T = TypeVar("T")
"""What a node answers to a verb."""


class Silent(Exception):
    """Why a node gave no answer."""


def home_of(name: str, values: Mapping[str, Any], state: str) -> str:
    """The node's folder."""
    return filled_in(str(values.get("motley_home", HOME)), name, state)


def ssh_options(name: str, values: Mapping[str, Any], state: str) -> list[str]:
    """What an inventory says of the way there, as Ansible hands it to ssh: options, key and port."""
    words: list[str] = []
    for key in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        text = FOR_ANSIBLE.sub(r"{{\1}}", str(values.get(key, "")))
        words += [filled_in(word, name, state) for word in shlex.split(text)]  # a folder may have a ' in its name
    if identity := values.get("ansible_ssh_private_key_file"):
        words += ["-i", filled_in(str(identity), name, state)]
    if port := values.get("ansible_port"):
        words += ["-p", str(port)]
    return words


def filled_in(value: str, name: str, state: str) -> str:
    """A variable of a node with what only Ansible would put in."""
    known = {"motley_state_folder": state, "inventory_hostname": name}
    return FOR_ANSIBLE.sub(lambda variable: known.get(variable[1], variable[0]), value)


def text(name: str) -> str:
    return (ROOT / f"{name.replace('.', '/')}.py").read_text()


def program(brings: Sequence[str], answers_by: str) -> IO[bytes]:
    """What a node reads on its standard input: the module that answers, behind those of ours that it imports."""
    lines = [
        MARKS,
        "import sys, types",
        "def bring(name, text):",
        "    module = sys.modules[name] = types.ModuleType(name)",
        "    module.__package__ = name.rpartition('.')[0]",
        "    exec(text, module.__dict__)",
        *(f"bring({name!r}, {text(name)!r})" for name in brings),
        f"__package__ = {MOTLEY!r}",
        f"exec({text(answers_by)!r})",
    ]
    return sendable(lines)


def sendable(lines: Sequence[str]) -> IO[bytes]:
    sent = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    sent.write("\n".join(lines).encode())
    sent.seek(0)
    return sent


class Answer(io.RawIOBase):
    """What comes behind the mark."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self.stream, self.begun = stream, False

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self.begun and (line := self.stream.readline()):
            self.begun = line.endswith(f"{MARK}\n".encode())
        part = self.stream.read1(len(into))
        into[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self.stream.close()
        super().close()


def behind_mark(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    process.stdout = io.BufferedReader(Answer(cast(io.BufferedReader, process.stdout)))
    return process


@dataclass(frozen=True, kw_only=True, slots=True)
class Node(ABC):
    name: str
    home: str

    python: ClassVar[str] = "python3"
    brings: ClassVar[tuple[str, ...]] = SENT_ALONG
    answers_by: ClassVar[str] = f"{MOTLEY}.start_stop_status"
    answer_s: ClassVar[float] = ANSWER_S

    @abstractmethod
    def command(self, words: Sequence[str]) -> list[str]:
        """What runs these words there, with our standard input and output. Silent where nobody answers."""

    def answering(self) -> str:
        """The name or address at which it answers; Silent where nobody does. A folder here is always there."""
        return self.name

    def parts(self, run: str) -> list[Node]:
        """The homes in which a run's files lie: of a machine the machine itself."""
        return [self]

    def status(self) -> Look:
        return self._ask(Look, "look")

    def stop(self, timeout_s: float = STOP_S) -> Stopped:
        """Save, stop, and report what is left."""
        return self._ask(Stopped, "stop", timeout_s)

    def queue(self, change: str = "") -> Queued:
        """What it knows of the queue; `change`: what a person changed, as train/runlog/queue_order.py writes it."""
        return self._ask(Queued, "queue", change=change)

    def enqueue(self, change: str, launch: str, *, managed: bool) -> Begun:
        """It takes in a run that was added, and begins where nothing is on there."""
        return self._ask(Begun, "enqueue", ENQUEUE_S, change=change, node=self.name, launch=launch, managed=managed)

    def leave(self, change: str, launch: str) -> Stopped:
        """It saves the run of this launch and leaves it for the next of the queue; reports as stop() does."""
        return self._ask(Stopped, "leave", STOP_S, change=change, launch=launch)

    def unload(self) -> None:
        """No run comes for which it has begun to load."""
        self._ask(dict, "unload")

    def stop_after(self, seconds: float) -> dict[str, float]:
        """The node does so by itself, also without us: its time is over, and no other run may begin there."""
        return self._ask(dict[str, float], "expire", after_s=seconds)

    def pause(self, lasts: str) -> Paused:
        """It leaves the run that is running, or the next one, until it is unpaused; `lasts`: 2h, or empty."""
        return self._ask(Paused, "pause", STOP_S, lasts=lasts)

    def unpause(self) -> dict[str, bool]:
        return self._ask(dict[str, bool], "unpause")

    def wake(self, macs: list[str], broadcast: str) -> dict[str, int]:
        """It sends magic packets into its LAN."""
        return self._ask(dict[str, int], "wake", macs=macs, broadcast=broadcast)

    def runs(self) -> Runs:
        return self._ask(Runs, "runs")

    def clean(self, names: list[str]) -> dict[str, dict[str, int]]:
        """Delete the checkpoints of these runs."""
        return self._ask(dict[str, dict[str, int]], "clean", names=names)

    def forget_address(self) -> dict[str, bool]:
        """Deletes the address of motley_notify that the node has."""
        return self._ask(dict[str, bool], "forget")

    def try_notify(self, address: str) -> dict[str, str]:
        """A test message by the node: why it did not go out. It reads the address from standard input."""
        about = f"Notice('test', 'motley', {f'{self.name} can send'!r})"
        return self.read_by(dict[str, str], "train.send_notice", f"{{'why': send({address!r}, {about})}}", NOTIFY_S)

    def read_by(self, kind: type[T], module: str, expression: str, timeout_s: float = ANSWER_S) -> T:
        """What a module that needs none of ours finds there."""
        lines = [text(module), "import json", MARKS, f"print(json.dumps({expression}))"]
        return self._answer(kind, self.command([self.python, "-"]), sendable(lines), timeout_s)

    def files(self, run: str) -> Hashes:
        """What fetch() would bring, each with its hash: all of it is read for that."""
        return self._ask(Hashes, "hashes", max(HASHES_S, self.answer_s), run=run)

    def fetch(self, run: str, *, made: bool = True) -> subprocess.Popen[bytes]:
        """A tar archive; `made`: with the result, which is the same on all nodes."""
        return self._stream("pack", run=run, made=made)

    def exported(self, file: str, offset: int) -> subprocess.Popen[bytes]:
        """The rest of a file below its exports, from there on."""
        return self._stream("part", file=file, offset=offset)

    def events(self, run: str) -> subprocess.Popen[bytes]:
        """Lines of both event logs and of the agent's view, as they come."""
        return self._stream("report", run=run)

    def events_after(self, run: str, offset: int) -> subprocess.Popen[bytes]:
        """The rest of the event log, behind one line that says where it begins."""
        return self._stream("more", run=run, offset=offset)

    def members(self, run: str) -> subprocess.Popen[bytes]:
        """The agents' log, as events_after() has the trainers'."""
        return self._stream("more", run=run, offset=0, log=MEMBERS)

    def logs(self, lines: int, *, follow: bool) -> subprocess.Popen[bytes]:
        return self._stream("logs", lines=lines, follow=follow)

    def train(self, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """A command of the node's own training package, in its folder."""
        folder = '"$HOME"' + shlex.quote(self.home[1:]) if self.home.startswith("~") else shlex.quote(self.home)
        known = shlex.join(f"{name}={value}" for name, value in {"PYTHONPATH": "code", **environment}.items())
        script = f"cd {folder} && exec env {known} env/bin/python -m train {shlex.join(words)}"
        return self.command(["sh", "-c", script])

    def why(self, words: list[str]) -> str:
        """Why it gave no answer, of what the command printed instead."""
        return words[-1] if words else "it gave no answer"

    def _control(self, verb: str, params: Mapping[str, object]) -> list[str]:
        return self.command([self.python, "-", verb, json.dumps({"home": self.home, **params})])

    def _ask(self, kind: type[T], verb: str, timeout_s: float = 0.0, **params: object) -> T:
        sent = program(self.brings, self.answers_by)
        return self._answer(kind, self._control(verb, params), sent, timeout_s or self.answer_s)

    def _answer(self, kind: type[T], command: list[str], sent: IO[bytes], timeout_s: float) -> T:
        with sent, tempfile.TemporaryFile() as errors:
            try:
                done = subprocess.run(
                    command, stdin=sent, stdout=subprocess.PIPE, stderr=errors, timeout=timeout_s, check=False
                )
            except subprocess.TimeoutExpired:
                raise Silent(f"it gave no answer within {timeout_s:.0f} s") from None
            errors.seek(0)
            words = errors.read().decode(errors="replace").strip().splitlines()
        printed, _, answer = done.stdout.decode(errors="replace").partition(f"{MARK}\n")
        if printed.strip() and not answer and not words:
            raise Silent(
                f"its shell answers {printed.strip().splitlines()[-1]!r} and runs nothing: "
                "look at ~/.bashrc, or ~/.config/fish/config.fish, on it"
            )
        if done.returncode or not answer:
            raise Silent(self.why(words))
        return cast(T, json.loads(answer.splitlines()[0]))

    def _stream(self, verb: str, **params: object) -> subprocess.Popen[bytes]:
        """In a session of its own, so that Ctrl-C is ours alone to answer."""
        with program(self.brings, self.answers_by) as sent:
            process = subprocess.Popen(
                self._control(verb, params),
                stdin=sent,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"),
            )
        return behind_mark(process)


def ask_all(
    nodes: Sequence[Node], verb: Callable[[Node], T], doing: str = "asking"
) -> tuple[dict[str, T], dict[str, str]]:
    """Answers by name, and why the others gave none; all at once. `doing`: shown meanwhile on a terminal."""

    def ask(node: Node) -> T | Silent:
        try:
            return verb(node)
        except Silent as reason:
            return reason

    shown = doing and threading.current_thread() is threading.main_thread()
    with in_place() if shown else nullcontext() as show, ThreadPoolExecutor(max(1, len(nodes))) as pool:
        if show:
            show(f"{doing} {', '.join(node.name for node in nodes)} …")
        results = dict(zip([node.name for node in nodes], pool.map(ask, nodes), strict=True))
    answers = {name: answer for name, answer in results.items() if not isinstance(answer, Silent)}
    return answers, {name: str(answer) for name, answer in results.items() if isinstance(answer, Silent)}


def from_inventory(inventory: Inventory) -> list[Node]:
    """Its nodes, each by its infra."""
    state = str(inventory.state.resolve())
    return [_node(name, values, state) for name, values in inventory.nodes.items()]


def from_hostvars(names: Iterable[str], hostvars: Any) -> list[Node]:
    """Inside Ansible, which has already replaced every template."""
    return [_node(name, hostvars[name], str(Path(hostvars[name]["motley_state_folder"]).resolve())) for name in names]


def _node(name: str, values: Mapping[str, Any], state: str) -> Node:
    found: Node = part(name_of(values), "node")(name, values, state)
    return found
