"""A run's life after its start: status, follow, logs, stop, fetch, runs, clean. Every verb goes to the nodes directly.

python -m console status|follow|logs|stop|fetch|runs|clean [--inventory FOLDER]
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from console import interrupt, live_view
from console.follow import Story, base, clock, end_group, first, rows_of
from console.infra.choose import from_inventory
from console.infra.node import Node, Silent, ask_all
from console.inventory.read import Inventory
from train.plan.names import RULE, is_name
from train.safe_stdio import unread

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
LITTLE_BYTES = 500e6
"""With less free room a node's checkpoints may soon be missing."""


def say(line: str) -> None:
    print(line, flush=True)


# -- status ----------------------------------------------------------------------------------------------------------


def status(inventory: Inventory, *, as_json: bool = False) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.status())
    names = [node.name for node in nodes]
    if as_json:
        print(json.dumps({"nodes": answers, "silent": silent}))
    else:
        for line in status_lines(names, answers, silent):
            say(line)
    return 0 if answers else 1


def status_lines(names: list[str], answers: dict[str, Any], silent: dict[str, str]) -> list[str]:
    """What is on, and where; or which run was the last."""
    if not answers:
        return ["no node answers:", *(f"  {name}  {silent[name]}" for name in names)]
    on = {name: look for name, look in answers.items() if look["on"]}
    lines = [run_line(run, [look for look in on.values() if look["run"] == run]) for run in runs_of(on)]
    width = max(map(len, names))
    newest = newest_step(on)
    for name in names:
        words = node_words(name, answers[name], newest) if name in answers else off_words(name, silent[name], on)
        lines.append(f"  {name:<{width}}  {words}")
    if not on:
        lines[:0] = [f"no run is on{last_run(answers)}"]
    elif happened := last_happened(on):
        lines.append(f"  last: {happened}")
    return lines


def runs_of(on: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(look["run"] for look in on.values()))


def newest_step(looks: dict[str, Any]) -> dict[str, Any]:
    steps = [look["step"] for look in looks.values() if look["step"]]
    return max(steps, key=lambda step: float(step["time"]), default={})


def run_line(run: str, looks: list[dict[str, Any]]) -> str:
    step = newest_step({str(i): look for i, look in enumerate(looks)})
    states = Counter(str(look["now"].get("state") or "starting") for look in looks)
    state = states.most_common(1)[0][0]
    if not step:
        reason = next((look["now"].get("reason") for look in looks if look["now"].get("reason")), "")
        return f"run {run}  {state}{f': {first(str(reason))}' if reason else ''}"
    total = max((int(look["start"].get("total_steps", 0)) for look in looks), default=0)
    step_s = max(1e-6, float(step["step_s"]))
    rows = sum(rows_of(step).values())
    words = [f"run {run}", f"step {step['step']}/{total}", f"loss {step['loss']:.4f}"]
    words += [f"{rows / step_s:.1f} rows/s", f"{step['tokens'] / step_s:.0f} tok/s"]
    words.append(f"eta {clock((total - step['step']) * step_s)}" if state == "training" else state)
    return "  ".join(words)


def off_words(name: str, silent: str, on: dict[str, Any]) -> str:
    """Since when the others train without it."""
    lost = [e for look in on.values() for e in look["members"] if e["event"] == "lost" and name in e["nodes"]]
    return f"{silent}; lost at step {max(lost, key=lambda e: float(e['time']))['step']}" if lost else silent


def node_words(name: str, look: dict[str, Any], newest: dict[str, Any]) -> str:
    if not look["on"]:
        free = look["free_bytes"] / 1e9
        return f"no run here · {free:.0f} GB free{cards(look['gpus'])}"
    view = look["now"]
    words = [str(view.get("state") or "starting")]
    if count := rows_of(newest).get(name):
        words.append(f"{count} rows")
        used = max(float(did.get("gpu_gb") or 0) for key, did in newest["nodes"].items() if base(key) == name)
        words += [f"{used:.1f} GB on the card"] if used else []
    elif view.get("reason"):
        words.append(first(str(view["reason"])))
    words.append(f"checkpoint {look['checkpoint']}")
    if look["free_bytes"] < LITTLE_BYTES:
        words.append(f"only {look['free_bytes'] / 1e6:.0f} MB free")
    if look["how"] != "unit":
        words.append({"by hand": "started by hand", "detached": "without a unit"}.get(look["how"], look["how"]))
    return "  ".join(words) + cards(view.get("gpus") or [])


def cards(found: list[dict[str, str]]) -> str:
    told = []
    for card in found:
        used, whole = (float(card.get(f"memory.{part}") or 0) / 1024 for part in ("used", "total"))
        heat, load, power = (card.get(f"{key}", "?") for key in ("temperature.gpu", "utilization.gpu", "power.draw"))
        told.append(f"  {card.get('name', 'card')}  {load} %  {heat} °C  {power} W  {used:.1f}/{whole:.0f} GB")
    return "".join(told)


def last_run(answers: dict[str, Any]) -> str:
    ran = [look for look in answers.values() if look["run"]]
    if not ran:
        return " and none was; start one: make launch MODEL=…"
    look = max(ran, key=lambda look: float((look["step"] or {}).get("time", 0)))
    ends = [event for event in look["events"] if event["event"] in ("done", "failed", "stopped")]
    end = max(ends, key=lambda event: float(event["time"]), default=None)
    step = look["step"].get("step", 0) if look["step"] else 0
    how = {"done": "done", "failed": f"failed: {first(end['message'])}" if end and "message" in end else "failed"}
    word = how.get(end["event"], "stopped") if end and end["step"] >= step else "stopped"
    more = "" if word == "done" else f" · go on with: make launch RESUME={look['run']}"
    return f"; the last was {look['run']}: {word} at step {step}{more}"


def last_happened(on: dict[str, Any]) -> str:
    told = [event for look in on.values() for event in look["members"] if event["event"] not in ("up", "plan")]
    if not told:
        return ""
    event = max(told, key=lambda event: float(event["time"]))
    when = time.strftime("%H:%M:%S", time.localtime(float(event["time"])))
    return f"{when}  {event['event']}  {first(str(event.get('reason', '')))}"


# -- follow and logs -------------------------------------------------------------------------------------------------


def follow(inventory: Inventory) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.status())
    on = {name: look for name, look in answers.items() if look["on"]}
    if not on:
        for line in status_lines([node.name for node in nodes], answers, silent):
            say(line)
        return 1
    run = runs_of(on)[0]
    order = list(next(iter(on.values()))["now"].get("peers") or {})
    order = [node.name for node in nodes if node.name in {*on, *order}]
    since = {name: float(look["since"]) for name, look in answers.items()}
    return show(nodes, Story(run=run, order=order, since=since))


def logs(inventory: Inventory, only: list[str], *, lines: int = 200, following: bool = True) -> int:
    """Every node's words behind its name, as they come."""
    nodes = [node for node in from_inventory(inventory) if not only or node.name in only]
    width = max(len(node.name) for node in nodes)
    lock, processes, threads = threading.Lock(), [], []
    for node in nodes:
        try:
            process = node.logs(lines, follow=following)
        except Silent as reason:
            say(f"{node.name:<{width}}  {reason}")
            continue
        processes.append(process)
        threads.append(threading.Thread(target=_prefix, args=(process, f"{node.name:<{width}}", lock), daemon=True))
        threads[-1].start()
    try:
        while not unread() and any(thread.is_alive() for thread in threads):
            time.sleep(0.1)
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            end_group(process)
    return 0 if processes else 1


def _prefix(process: subprocess.Popen[bytes], name: str, lock: threading.Lock) -> None:
    assert process.stdout
    for line in process.stdout:
        with lock:
            say(f"{name}  {line.decode(errors='replace').rstrip()}")


# -- stop ------------------------------------------------------------------------------------------------------------


def stop(inventory: Inventory) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.stop())
    for line in stop_lines([node.name for node in nodes], answers, silent):
        say(line)
    return 1 if silent or any(told["left"] or told["ports"] for told in answers.values()) else 0


def stop_lines(names: list[str], answers: dict[str, Any], silent: dict[str, str]) -> list[str]:
    was = [told for told in answers.values() if told["was_on"]]
    width = max(map(len, names))
    lines = []
    for name in names:
        if name in silent:
            lines.append(f"  {name:<{width}}  {silent[name]}: not stopped there; if it comes back: make stop")
        else:
            told = answers[name]
            left = (
                f"{len(told['left'])} processes and ports {told['ports']} are left" if told["left"] else "nothing left"
            )
            forced = f" · {told['forced']} had to be killed" if told["forced"] else ""
            saved = f"checkpoint {told['checkpoint']} · " if told["was_on"] else "no run was on · "
            lines.append(f"  {name:<{width}}  {saved}{left}{forced} · {told['seconds']:.1f} s")
    if not was:
        return ["no run was on", *lines]
    step = max(told["checkpoint"] for told in was)
    return [f"run {was[0]['run']} stopped at step {step} · go on with: make launch RESUME={was[0]['run']}", *lines]


# -- fetch -----------------------------------------------------------------------------------------------------------


def fetch(inventory: Inventory, run: str, target: Path = RESULTS) -> int:
    """Results of one run to results/RUN: the adapter once, hashes compared; each node's diaries."""
    nodes = from_inventory(inventory)
    run = run or newest(nodes)
    if run and not is_name(run):
        say(no_name(run))
        return 2
    answers, silent = ask_all(nodes, lambda node: node.files(run))
    answers = {name: told for name, told in answers.items() if told["files"]}
    if not answers:
        say(f"no node that answers has run '{run}'" if run else "there is no run to fetch")
        for name, reason in silent.items():
            say(f"  {name}  {reason}")
        return 1
    adapter = f"results/{run}/adapter/"
    whole = {name: told for name, told in answers.items() if any(path.startswith(adapter) for path in told["files"])}
    differ = disagreeing(adapter, whole)
    folder = target / run
    got: dict[str, int] = {}
    for node in nodes:
        if node.name in answers:
            keep = "all" if node.name == next(iter(whole), next(iter(answers))) else "diaries"
            got[node.name] = bring(node, run, folder, answers[node.name]["files"], keep)
    receipt = {
        "run": run,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "nodes": {name: told["files"] for name, told in answers.items()},
        "silent": silent,
        "adapter_from": next(iter(whole), ""),
        "adapter_same_on": [] if differ else list(whole),
        "differ": differ,
    }
    (folder / "receipt.json").write_text(json.dumps(receipt, indent=1) + "\n")
    say(f"run {run} → {folder}")
    if whole:
        same = "the same on" if not differ else "NOT the same on"
        say(f"  adapter   {folder}/adapter  {same} {', '.join(whole)}")
    else:
        say("  adapter   none yet: the run is not done")
    say(f"  diaries   {', '.join(f'{name} ({count} files)' for name, count in got.items())}")
    for name, reason in silent.items():
        say(f"  {name}  {reason}: not fetched")
    for path in differ:
        say(f"  ✗ {path} differs between the nodes")
    return 1 if differ or -1 in got.values() else 0


def no_name(run: str) -> str:
    """Typed, or reported by a node; either way it would be a folder here."""
    return f"{run!r} cannot name a run: {RULE}\nfix: make runs shows them; then RUN=NAME"


def newest(nodes: list[Node]) -> str:
    """Of all that nodes report; nobody has looked at the name."""
    answers, _ = ask_all(nodes, lambda node: node.runs())
    every = [(facts["time"], name) for told in answers.values() for name, facts in told["runs"].items()]
    return max(every)[1] if every else ""


def disagreeing(below: str, answers: dict[str, Any]) -> list[str]:
    """Files that are not the same on all. PEFT's adapter_config.json names the folder of the node's own base model."""
    paths = dict.fromkeys(path for told in answers.values() for path in told["files"] if path.startswith(below))
    alike = [path for path in paths if not path.endswith("/adapter_config.json")]
    return [path for path in alike if len({told["files"].get(path) for told in answers.values()}) > 1]


def bring(node: Node, run: str, folder: Path, files: dict[str, str], keep: str) -> int:
    """Unpack what the node packs; -1 where a file arrives other than it was. Its own diaries go below nodes/NAME."""
    process = node.fetch(run)
    assert process.stdout
    count = 0
    try:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                place = place_of(member.name, run, node.name, keep)
                source = archive.extractfile(member)
                if place is None or source is None:
                    continue
                data = source.read()
                moving = member.name.endswith((".jsonl", "agent.json"))  # a living run goes on writing these
                if not moving and hashlib.sha256(data).hexdigest() != files.get(member.name):
                    say(f"  ✗ {node.name}: {member.name} did not arrive as it was")
                    return -1
                path = folder / place
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_name(f".{path.name}.new")
                draft.write_bytes(data)
                draft.replace(path)
                count += 1
    finally:
        end_group(process)
    return count


def place_of(name: str, run: str, node: str, keep: str) -> Path | None:
    """Below results/RUN here; None for what is not wanted of this node, or lies outside."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        return None
    results, diaries = Path("results") / run, Path("logs/runs") / run
    if path.is_relative_to(results):
        inner = path.relative_to(results)
        return inner if keep == "all" and inner.parts[:1] != ("nodes",) else None  # those are of the nodes themselves
    if path.is_relative_to(diaries):
        return Path("nodes") / node / path.relative_to(diaries)
    return Path("nodes") / node / path.name


# -- runs and clean --------------------------------------------------------------------------------------------------


def runs(inventory: Inventory) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.runs())
    for line in run_lines(answers, silent):
        say(line)
    return 0 if answers else 1


def gathered(answers: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name → how far it is, and where; of several nodes' answers the furthest."""
    found: dict[str, dict[str, Any]] = {}
    for node, told in answers.items():
        for name, facts in told["runs"].items():
            known = found.setdefault(name, {"nodes": [], "bytes": 0, "done": False, "on": False, "step": -1})
            known["nodes"].append(node)
            known["on"] = known["on"] or told["on"] == name
            known["done"] = known["done"] or facts["done"]
            known["bytes"] += facts["bytes"]
            if facts["step"] > known["step"]:
                known |= {key: facts[key] for key in ("step", "steps", "loss", "time", "model")}
    return dict(sorted(found.items(), key=lambda item: float(item[1]["time"]), reverse=True))


def run_lines(answers: dict[str, Any], silent: dict[str, str]) -> list[str]:
    found = gathered(answers)
    width = max([3, *map(len, found)])
    lines = (
        [f"{'run':<{width}}  {'step':>11}  {'loss':>7}  {'state':<8}  {'when':<16}  {'disk':>8}  on"] if found else []
    )
    for name, facts in found.items():
        state = "on" if facts["on"] else "done" if facts["done"] else "stopped"
        loss = f"{facts['loss']:.4f}" if facts["loss"] is not None else "–"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(facts["time"])))
        steps = f"{facts['step']}/{facts['steps'] or '?'}"
        where = ", ".join(facts["nodes"])
        size = f"{facts['bytes'] / 1e6:.0f} MB"
        lines.append(f"{name:<{width}}  {steps:>11}  {loss:>7}  {state:<8}  {when:<16}  {size:>8}  {where}")
    lines += [] if found else ["no node that answers has a run"]
    return lines + [f"{name}  {reason}" for name, reason in silent.items()]


def clean(inventory: Inventory, chosen: list[str], *, yes: bool) -> int:
    """Checkpoints of runs that are done, or of those that are named. Results and diaries stay."""
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.runs())
    found = gathered(answers)
    unknown = [name for name in chosen if name not in found]
    if unknown:
        say(f"there is no run '{unknown[0]}' on a node that answers; there are: {', '.join(found) or 'none'}")
        return 2
    names = [
        name
        for name, facts in found.items()
        if not facts["on"] and facts["bytes"] and (name in chosen if chosen else facts["done"])
    ]
    if not names:
        say("there is nothing to clean: no checkpoints of a run that is done (others by name: RUN=NAME)")
        return 0
    for name in names:
        facts = found[name]
        note = "" if facts["done"] else "   it is not done: it could not go on after this"
        say(f"  {name}  step {facts['step']}  {facts['bytes'] / 1e6:.0f} MB on {', '.join(facts['nodes'])}{note}")
    if not yes and not (sys.stdin.isatty() and input("delete these checkpoints? [y/N] ").lower() in ("y", "yes")):
        say("nothing was deleted (without a terminal: YES=1)")
        return 1
    freed, _ = ask_all([node for node in nodes if node.name in answers], lambda node: node.clean(names))
    total = sum(size for told in freed.values() for size in told["freed"].values())
    say(f"{total / 1e6:.0f} MB freed on {len(freed)} of {len(nodes)} nodes; results and diaries are kept")
    for name, reason in silent.items():
        say(f"  {name}  {reason}")
    return 0


def plan(inventory: Inventory, words: list[str]) -> int:
    return subprocess.run(
        [*playbook_command(inventory, "playbooks/plan.yml"), *words], cwd=ROOT, check=False
    ).returncode


def playbook_command(inventory: Inventory, playbook: str) -> list[str]:
    return [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory.path.resolve()), playbook]


def launch(inventory: Inventory, words: list[str]) -> int:
    """The playbook up to the start, in its own lines; then the live view, for which it needs a terminal."""
    with tempfile.TemporaryDirectory(prefix="motley-") as folder:
        file = Path(folder) / "started.json"
        mark = interrupt.new_mark()
        playbook = subprocess.Popen(
            [*playbook_command(inventory, "launch.yml"), *words, "-e", f"motley_start_tell_in={file}"],
            cwd=ROOT,
            env=os.environ | {interrupt.MARK: mark},
        )
        try:
            code = playbook.wait()
        except KeyboardInterrupt:
            if interrupt.end_in_order(playbook, mark) != interrupt.CODE:  # otherwise it has said so itself
                for line in interrupted_lines(*ask_all(from_inventory(inventory), lambda node: node.status())):
                    say(line)
            return interrupt.CODE
        if code or not file.exists():
            return code
        told = json.loads(file.read_text())
    story = Story(run=told["run"], order=told["nodes"], since=told["since"])
    nodes = [node for node in from_inventory(inventory) if node.name in told["nodes"]]
    return show(nodes, story, until_proven=not told["follow"])


def interrupted_lines(answers: dict[str, Any], silent: dict[str, str]) -> list[str]:
    """What a launch that was stopped before it could show the run has left behind."""
    on = {name: look for name, look in answers.items() if look["on"]}
    lines = [f"{name}  {reason}: whether it is on there, make status tells later" for name, reason in silent.items()]
    if not on:
        return ["interrupted: no run was started; what was brought to the nodes stays there   again: the same", *lines]
    runs = " and ".join(f"'{run}'" for run in runs_of(on))
    return [f"interrupted: {runs} is on, on {', '.join(on)}   watch it: make follow   stop it: make stop", *lines]


def show(nodes: list[Node], story: Story, *, until_proven: bool = False) -> int:
    try:
        ended = live_view.watch(nodes, story, say, terminal=sys.stdout.isatty(), until_proven=until_proven)
    except KeyboardInterrupt:
        say(live_view.DETACHED)
        return 0
    if ended and not ended.ok:
        for line in ended.lines:
            say(f"✗ {line}" if line == ended.lines[0] else f"  {line}")
        return 1
    return 0
