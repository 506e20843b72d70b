"""The verbs of a run's life on nodes that are two folders of this machine, and the live view without any node."""

from __future__ import annotations

import errno
import json
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from console import fetch, run_commands
from console.command_line import commands_as_typed
from console.infra.machines.node import LocalNode
from console.infra.node import Silent
from console.infra.slurm.machine_facts import MachineFacts
from console.infra.slurm.slurm_conf import MACHINE_FACTS
from console.inventory.read import Inventory
from console.playbook import interrupt
from console.strict_yaml import Vaulted
from console.text_layout import detached
from console.watch import follow, follow_view
from console.watch.run_in_words import Ended, RunView
from tests.support.folders import inventory_of
from tests.support.stand_ins import PlayedTime, running
from train.runlog import paths
from train.runlog.secret import Secret, secret_of
from train.runlog.state import RunState
from train.runlog.trace import FIGURES, STEP, read_trace, write_trace

DONE, HALF = "done-run", "half-run"


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    """Both nodes have a run that is done and one that is not."""
    homes = {name: tmp_path / name for name in ("a", "b")}
    for home in homes.values():
        for run in (DONE, HALF):
            (home / "logs/runs" / run).mkdir(parents=True)
            (home / "models/checkpoints" / run / "step-8").mkdir(parents=True)
            (home / "models/checkpoints" / run / "step-8/weights").write_bytes(b"x" * 2_000_000)
        (home / f"results/{DONE}/adapter").mkdir(parents=True)
        (home / f"results/{DONE}/adapter/weights").write_text("the same")
    return inventory_of(tmp_path, homes)


def fetched(inventory: Inventory) -> int:
    return fetch.fetch(inventory, DONE, inventory.path.parent / "results")


def weights(tmp_path: Path) -> str:
    """What was fetched."""
    return (tmp_path / f"results/{DONE}/adapter/weights").read_text()


def kept(tmp_path: Path, run: str) -> int:
    return sum((tmp_path / name / "models/checkpoints" / run).exists() for name in ("a", "b"))


@pytest.fixture
def on(tmp_path: Path) -> Iterator[None]:
    """The run that is done is running again, on node b."""
    with running(tmp_path / "b", DONE):
        yield


def test_clean_takes_what_is_done_after_asking(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_commands.clean(inventory, "", yes=False) == 1  # nobody sits here
    assert "no checkpoint was deleted (without a terminal: --yes)" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: "")
    assert run_commands.clean(inventory, "", yes=False) == 1 and kept(tmp_path, DONE) == 2
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert run_commands.clean(inventory, "", yes=False) == 0
    said = capsys.readouterr().out
    assert f"  {DONE}  step 8  4 MB on a, b\n" in said and HALF not in said and "4 MB freed on 2 of 2" in said
    assert (kept(tmp_path, DONE), kept(tmp_path, HALF)) == (0, 2)
    assert run_commands.clean(inventory, HALF, yes=True) == 0 and kept(tmp_path, HALF) == 0
    assert "it is not done: it could not be resumed after this" in capsys.readouterr().out


def with_an_address(tmp_path: Path) -> Path:
    file = tmp_path / "a" / paths.SECRET
    file.parent.mkdir()
    file.write_text(Secret(token="5f", messages="https://ntfy.example/secret").to_json())
    return file


def test_clean_takes_the_address_where_the_inventory_has_none_any_more(
    inventory: Inventory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = with_an_address(tmp_path)
    inventory.nodes["b"]["motley_notify"] = Vaulted("$ANSIBLE_VAULT;1.1;AES256")
    run_commands.clean(inventory, "", yes=False)
    assert secret_of(file).messages and "motley_notify" not in capsys.readouterr().out
    del inventory.nodes["b"]["motley_notify"]
    run_commands.clean(inventory, "", yes=False)
    said = capsys.readouterr().out
    assert "the address of motley_notify was deleted on a\n" in said and "secret" not in said
    assert secret_of(file) == Secret(token="5f") and kept(tmp_path, DONE) == 2


def test_ctrl_c_at_the_question_has_changed_nothing_and_later_it_says_that_something_was(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_an_address(tmp_path)
    interrupted = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_commands.clean(inventory, "", yes=False)
    assert not isinstance(stopped.value, interrupt.Halfway) and secret_of(file).messages
    for method in ("clean", "stop"):
        monkeypatch.setattr(LocalNode, method, interrupted)
    with pytest.raises(interrupt.Halfway):
        run_commands.clean(inventory, "", yes=True)
    with pytest.raises(interrupt.Halfway):
        run_commands.stop(inventory)


def test_clean_leaves_a_run_that_is_on(
    inventory: Inventory, tmp_path: Path, on: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_commands.clean(inventory, "", yes=True) == 0 and kept(tmp_path, DONE) == 2
    assert "there is nothing to clean" in capsys.readouterr().out
    assert run_commands.clean(inventory, DONE, yes=True) == 2 and kept(tmp_path, DONE) == 2
    assert f"run '{DONE}' is running, and keeps its checkpoints\nfix: ./motley stop" in capsys.readouterr().out
    assert run_commands.clean(inventory, "doen", yes=True) == 2
    assert "there is no run 'doen' on a node that answers" in capsys.readouterr().out


def test_stop_fails_where_something_is_left_or_was_not_asked(
    inventory: Inventory, on: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_commands.stop(inventory) == 0
    assert f"run {DONE} stopped at step 8 · resume it: ./motley launch --resume {DONE}" in capsys.readouterr().out
    told = {"was_on": True, "run": "r", "checkpoint": 1, "forced": 0, "left": [], "ports": [], "seconds": 1.0}
    for answers, silent in (({"a": told | {"left": [7]}, "b": told}, {}), ({"a": told}, {"b": "off"})):
        monkeypatch.setattr(run_commands, "ask_all", lambda *_, answers=answers, silent=silent, **__: (answers, silent))
        assert run_commands.stop(inventory) == 1


def test_fetch_compares_the_nodes_and_says_where_they_differ(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    receipt = tmp_path / f"results/{DONE}/receipt.json"
    assert fetched(inventory) == 0 and weights(tmp_path) == "the same"
    assert "the same on a, b" in capsys.readouterr().out and json.loads(receipt.read_text())["typed"] == {}
    (tmp_path / f"b/results/{DONE}/adapter/weights").write_text("another")
    monkeypatch.setenv(commands_as_typed.VARIABLE, "--inventory 'my own'")
    assert fetched(inventory) == 1
    assert f"✗ results/{DONE}/adapter/weights differs between the nodes" in capsys.readouterr().out
    assert json.loads(receipt.read_text())["typed"] == {"inventory": "my own"}, "which the report repeats"
    assert fetch.fetch(inventory, "nobody", tmp_path / "results") == 1


def test_fetch_brings_the_result_from_one_node_alone_and_no_link(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same on all and may be large; each node's log is its own."""
    for name in ("a", "b"):
        (tmp_path / name / "logs/runs" / DONE / "events.jsonl").write_text(f"{name}\n")
        (tmp_path / name / "logs/runs" / DONE / "leads.jsonl").symlink_to("/etc/passwd")
    packed: dict[str, str] = {}
    whole = LocalNode.fetch

    def seen(node: LocalNode, run: str, *, made: bool = True) -> subprocess.Popen[bytes]:
        with whole(node, run, made=made) as process:
            data, _ = process.communicate()
        packed[node.name] = subprocess.run(["tar", "-t"], input=data, capture_output=True, check=True).stdout.decode()
        return whole(node, run, made=made)

    monkeypatch.setattr(LocalNode, "fetch", seen)
    assert fetched(inventory) == 0
    assert "adapter/weights" in packed["a"] and "adapter/weights" not in packed["b"]
    logs = {name: tmp_path / f"results/{DONE}/nodes/{name}" for name in ("a", "b")}
    assert {name: (folder / "events.jsonl").read_text() for name, folder in logs.items()} == {"a": "a\n", "b": "b\n"}
    assert not (logs["a"] / "leads.jsonl").exists()


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[None]:
    """What was fetched before stays where something breaks, and no part of another lies beside it."""
    folder = tmp_path / f"results/{DONE}/adapter"
    folder.mkdir(parents=True)
    (folder / "weights").write_text("of an earlier fetch")
    yield
    assert [path.name for path in folder.iterdir()] == ["weights"]
    assert weights(tmp_path) == "of an earlier fetch"


@pytest.mark.usefixtures("earlier")
def test_a_file_that_arrives_damaged_is_not_taken(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = LocalNode.fetch

    def after_a_change(node: LocalNode, run: str, **how: bool) -> subprocess.Popen[bytes]:
        (tmp_path / node.name / f"results/{DONE}/adapter/weights").write_text("other than it was hashed")
        return whole(node, run, **how)

    monkeypatch.setattr(LocalNode, "fetch", after_a_change)
    assert fetched(inventory) == 1
    assert f"✗ a: results/{DONE}/adapter/weights did not arrive as it was" in capsys.readouterr().out


@pytest.mark.usefixtures("earlier")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (OSError(errno.ENOSPC, "no space left"), "✗ the disk of {folder} is full\n    fix: make room"),
        (tarfile.ReadError("unexpected end of data"), "✗ a: it stopped sending\n    fix: the same command again"),
    ],
    ids=["a full disk", "a broken stream"],
)
def test_a_stream_that_breaks_is_said(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *,
    fault: Exception, said: str,
) -> None:  # fmt: skip
    whole = fetch.written

    def written(*given: Any) -> str:
        whole(*given)
        raise fault

    monkeypatch.setattr(fetch, "written", written)
    assert fetched(inventory) == 1
    printed = capsys.readouterr().out
    assert said.format(folder=tmp_path / "results" / DONE) in printed
    assert "-1 file" not in printed and "  adapter   did not come whole from a\n" in printed


def test_a_node_that_falls_silent_amid_a_fetch_is_named_and_the_others_are_fetched(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = LocalNode.fetch

    def of_b_nothing(node: LocalNode, run: str, **how: bool) -> subprocess.Popen[bytes]:
        if node.name == "b":
            return subprocess.Popen(["true"], stdout=subprocess.PIPE, start_new_session=True)
        return whole(node, run, **how)

    monkeypatch.setattr(LocalNode, "fetch", of_b_nothing)
    assert fetched(inventory) == 1
    assert "✗ b: it stopped sending" in capsys.readouterr().out and weights(tmp_path) == "the same"


def test_a_large_file_is_seen_coming_on_a_terminal(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetch, "SHOWN_AFTER_S", 0.0)
    for name in ("a", "b"):
        (tmp_path / name / "results" / DONE / "adapter/weights").write_bytes(bytes(3_000_000))
    assert fetched(inventory) == 0
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert fetched(inventory) == 0
    said = capsys.readouterr().out
    assert "a  weights  ━━━━━━━━────────────────  1 MB of 3 MB" in said
    assert said.rpartition("\x1b[2K")[2].startswith(f"run {DONE} → "), "the line is gone before the result is told"


def test_a_large_result_may_be_hashed_long(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalNode, "answer_s", 0.001)
    node = LocalNode(name="a", home=str(tmp_path / "a"))
    with pytest.raises(Silent, match="no answer within"):
        node.runs()
    assert f"results/{DONE}/adapter/weights" in node.files(DONE)["files"]


SHELL = LocalNode.command
NOISE = 'echo "{welcome}"; printf "now 5\\nno line"; exec "$@"'


def test_a_shell_that_prints_something_spoils_no_answer(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An echo in ~/.bashrc, a machine that greets: before an answer, an archive, and lines that are followed."""
    monkeypatch.setattr(LocalNode, "command", lambda self, words: ["sh", "-c", NOISE, "sh", *SHELL(self, words)])
    (tmp_path / "a/logs/runs" / DONE / "events.jsonl").write_text('{"event": "start", "time": 1}\n')
    node = LocalNode(name="a", home=str(tmp_path / "a"))
    assert node.status()["on"] is False and node.read_by(MachineFacts, MACHINE_FACTS, "facts()")
    assert run_commands.stop(inventory) == 0
    assert fetched(inventory) == 0 and weights(tmp_path) == "the same"
    capsys.readouterr()
    with node.events_after(DONE, 0) as process:
        assert process.stdout and json.loads(process.stdout.readline())["offset"] == 0
        assert json.loads(process.stdout.readline())["event"] == "start"
    with node.events(DONE) as process:
        assert process.stdout and process.stdout.readline().split()[0] in (b"event", b"now")
        process.terminate()


def test_a_shell_that_answers_itself_is_named_with_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalNode, "command", lambda *_: ["sh", "-c", "echo; echo choose a menu"])
    with pytest.raises(Silent, match=r"its shell answers 'choose a menu' .*~/\.bashrc"):
        LocalNode(name="a", home="").status()


def test_follow_reads_from_a_node_that_trains(inventory: Inventory, on: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(run_commands, "show", lambda nodes, *_: asked.append([node.name for node in nodes]) or 0)
    assert run_commands.follow(inventory) == 0 and asked == [["b", "a"]]


def test_fetch_brings_what_each_node_recorded_as_one_picture(
    inventory: Inventory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(("a", "b")):
        mark = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": float(number), "dur": 5.0}
        (tmp_path / "seen").write_text(json.dumps({"traceEvents": [mark | {"name": w} for w in (f"{STEP}4", FIGURES)]}))
        facts = {"run": DONE, "process": name, "processes": ["a", "b"], "steps": [4, 4]}
        write_trace(tmp_path / name / "logs/runs" / DONE / "trace-0.json.gz", tmp_path / "seen", facts)
    assert fetched(inventory) == 0
    said = capsys.readouterr().out
    assert "steps 4-4 of a, b" in said and "clocks aligned within 0.0 ms by 1 exchange\n" in said
    shown = read_trace(tmp_path / "results" / DONE / "trace.json.gz")["traceEvents"]
    assert {event["pid"] for event in shown if event.get("name") == FIGURES} == {0, 1}


def test_logs_stand_behind_a_nodes_name(
    inventory: Inventory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "logs/run.out").write_text(f"{name} says one\n{name} says two\n")
    assert run_commands.logs(inventory, [], lines=1, no_follow=True) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["a  a says two", "b  b says two"]
    assert run_commands.logs(inventory, ["b"], lines=9, no_follow=True) == 0
    assert capsys.readouterr().out.splitlines() == ["b  b says one", "b  b says two"]


def test_the_last_line_of_data_is_the_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = {"event": "ended", "time": 10.0, "epoch": 1, "nodes": [], "done": True, "reason": "all steps"}
    words = ["sh", "-c", f"echo 'member {json.dumps(ended)}'; exec sleep 60"]
    events: Any = lambda *_: subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)  # noqa: E731
    monkeypatch.setattr(LocalNode, "events", events)
    view = run_commands.EventView(RunState(run="r"), ["a"])
    assert run_commands.show_as_json([LocalNode(name="a", home="")], view) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert shown == [ended, {"event": "result", "run": "r", "ok": True, "words": ["done · 0 steps"]}]


# -- the live view -----------------------------------------------------------------------------------------------------


def test_without_a_terminal_a_line_comes_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    at = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    screen = follow_view.Screen(RunView(RunState(run="r"), ["a"]), said.append, terminal=False, every_s=10)
    for second in range(21):
        at[0] = float(second)
        screen.tick()
    assert said == ["starting · 0 s", "starting · 10 s", "starting · 20 s"]


def test_a_narrow_terminal_has_two_lines_and_nothing_of_them_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = RunView(RunState(run="r"), ["a"])
    monkeypatch.setattr(view.__class__, "live", lambda *_, **__: ["step 1", "a 4 · b 2"])
    screen = follow_view.Screen(view, print, terminal=True, every_s=10)
    screen.tick()
    screen.show("⚡ b lost")
    assert capsys.readouterr().out == "\r\x1b[2Kstep 1\na 4 · b 2" + "\r\x1b[2K\x1b[A\x1b[2K" + "⚡ b lost\n"


@pytest.mark.parametrize(
    ("ended", "lines", "code"),
    [
        (Ended(True, ("done · 4 steps",)), ["done · 4 steps"], 0),
        (Ended(False, ("run r failed", "fix: x")), ["✗ run r failed", "  fix: x"], 1),
        (None, ["the first step is proven on 1 of 2 nodes: a", detached("run")], 0),
    ],
)
def test_the_end_is_said_and_decides_the_exit_code(
    ended: Any, lines: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(follow.Follower, "follow", lambda *_, **__: ended)
    view = RunView(RunState(run="r", proven=["a"]), ["a", "b"])
    assert run_commands.show([], view) == code and capsys.readouterr().out.splitlines() == lines


def test_ctrl_c_detaches(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(follow.Follower, "follow", Mock(side_effect=KeyboardInterrupt))
    assert run_commands.show([], RunView(RunState(run="r"), ["a"])) == 0
    assert capsys.readouterr().out.splitlines()[-1] == detached("run")


def test_without_a_network_it_goes_on_looking_without_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tried: list[str] = []

    def events(node: LocalNode, _: str) -> None:
        tried.append(node.name)
        raise Silent("the network is unreachable")

    monkeypatch.setattr(LocalNode, "events", events)
    monkeypatch.setattr(LocalNode, "status", Mock(side_effect=Silent("off")))
    monkeypatch.setattr(follow, "time", PlayedTime())
    nodes = [LocalNode(name=name, home="") for name in ("a", "b")]
    view = RunView(RunState(run="r"), ["a", "b"])
    with pytest.raises(TimeoutError):
        follow.Follower(nodes, view, said.append, lambda: None).follow(limit_s=2.2)
    assert said == ["… no node answers; the run continues without us, and this keeps looking"]
    assert tried == ["a", "b", "a", "b", "a"]
