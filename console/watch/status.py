"""How the nodes and their runs are: what runs where and how far, and which runs there were.

python -m console status|runs [--inventory FOLDER]
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from console import launch_records
from console.electricity import hourly, number, status_line, watts_of
from console.infra.node import ask_all, from_inventory
from console.inventory.read import Inventory
from console.inventory.what_is_wrong import nearest
from console.text_layout import clock, counted, first, say
from console.watch.run_in_words import gpu_gb, pieces, rates
from plugins.module_utils.motley.node_replies import Launched, Look, RunFacts, Runs
from train.errors import BadInput
from train.runlog.pipe_in_words import parts_of
from train.runlog.state import Event, RunState, replay, rows_of
from train.runlog.time_left import StepTime

LITTLE_BYTES = 500e6
"""The free room below which a node's checkpoints may soon be missing."""


def status(inventory: Inventory, *, as_json: bool = False) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.status())
    names = [node.name for node in nodes]
    electricity = hourly(inventory.nodes, drawn_watts(answers))
    if as_json:
        print(json.dumps({"nodes": answers, "silent": silent, "electricity": asdict(electricity)}))
    else:
        for line in status_lines(names, answers, silent):
            say(line)
        if line := status_line(electricity):
            say(f"  {line}")
    return 0 if answers else 1


def drawn_watts(answers: dict[str, Look]) -> dict[str, float | None]:
    """The watts of the GPUs of every node with a run; None where they do not compute in it, or do not report it."""
    running = {name: look for name, look in answers.items() if look["on"]}
    last = {run: state_of(looks).last for run, looks in by_run(running).items()}
    computing = {name for name, look in running.items() if (step := last[look["run"]]) and gpu_gb(step, name)}
    return {
        name: watts_of(look["now"].get("gpus") or []) if name in computing else None for name, look in running.items()
    }


def status_lines(names: list[str], answers: dict[str, Look], silent: dict[str, str]) -> list[str]:
    """What is running, and where; or which run was the last."""
    if not answers:
        return ["no node answers:", *(f"  {name}  {silent[name]}" for name in names)]
    running = {name: look for name, look in answers.items() if look["on"]}
    runs = by_run(running)
    states = {run: state_of(looks) for run, looks in runs.items()}
    lines = [run_line(run, states[run], looks) for run, looks in runs.items()]
    width = max(map(len, names))
    for name in names:
        words = node_words(name, answers[name], states) if name in answers else off_words(name, silent[name], states)
        lines.append(f"  {name:<{width}}  {words}")
    if not running:
        lines[:0] = [f"no run is running{last_run(answers)}"]
    elif happened := last_happened(running):
        lines.append(f"  last: {happened}")
    return lines + waiting_line(answers.values())


def waiting_line(answers: Iterable[Look]) -> list[str]:
    """What the queue holds beside the run whose turn it is."""
    queues = [list(answer.get("waiting") or []) for answer in answers]
    waiting = max(queues, key=len, default=[])[1:]
    return [f"  then, by itself: {', '.join(waiting)}   ./motley queue"] if waiting else []


def runs_of(running: dict[str, Look]) -> list[str]:
    return list(dict.fromkeys(look["run"] for look in running.values()))


def by_run(running: dict[str, Look]) -> dict[str, list[Look]]:
    return {run: [look for look in running.values() if look["run"] == run] for run in runs_of(running)}


def is_script(look: Look) -> bool:
    """Whether the node's run is of `./motley torchrun`: of steps, loss and checkpoints nothing is known."""
    return bool(look["now"].get("script"))


def state_of(looks: list[Look]) -> RunState:
    events = [event for look in looks for event in (look["start"], look["step"], *look["events"], *look["members"])]
    state = replay(filter(None, events))[0]
    if took_s := max((look.get("took_s", []) for look in looks), key=len, default=[]):
        state.step_time = StepTime.of(took_s)
    return state


def run_line(run: str, state: RunState, looks: list[Look]) -> str:
    if script := next((look["now"]["script"] for look in looks if is_script(look)), ""):
        age = clock(max(float(look["time"]) - float(look["since"]) for look in looks))
        return f"script {run}  {script}  for {age}   its lines: ./motley logs (steps and loss are not Motley's to see)"
    states = Counter(str(look["now"].get("state") or "starting") for look in looks)
    now = states.most_common(1)[0][0]
    if not state.last:
        reason = next((look["now"].get("reason") for look in looks if look["now"].get("reason")), "")
        return f"run {run}  {now}{f': {first(str(reason))}' if reason else ''}"
    if state.last["event"] == "piece":
        return "  ".join([f"run {run}", *pieces(state, bar=False), *([] if now == "training" else [now])])
    words = [f"run {run}", f"step {state.step}/{state.total}", *rates(state.last)]
    return "  ".join([*words, f"eta {clock(state.left_s)}" if now == "training" else now])


def off_words(name: str, silent: str, states: dict[str, RunState]) -> str:
    """Since when the others train without it."""
    lost = next((state.lost[name] for state in states.values() if name in state.lost), None)
    return silent if lost is None else f"{silent}; lost at step {lost}"


def node_words(name: str, look: Look, states: dict[str, RunState]) -> str:
    if not look["on"]:
        paused = f" · paused {look['paused']}" if look.get("paused") else ""
        free = "" if look["free_bytes"] is None else f" · {look['free_bytes'] / 1e9:.0f} GB free"
        return f"no run here{paused}{free}{gpus(look['gpus'])}"
    view, step = look["now"], states[look["run"]].last
    words = [str(view.get("state") or "starting")]
    if view.get("state") != "away" and (does := does_in(step, name)):
        words.append(does)
        used = gpu_gb(step, name)
        words += [f"{used:.1f} GB on the GPU"] if used else []
    elif aside := view.get("aside"):
        words.append(first(aside["cause"]))
    elif view.get("reason"):
        words.append(first(str(view["reason"])))
    words += [] if is_script(look) else [f"checkpoint {look['checkpoint']}"]
    if look["free_bytes"] is not None and look["free_bytes"] < LITTLE_BYTES:
        words.append(f"only {look['free_bytes'] / 1e6:.0f} MB free")
    if look["how"] not in ("unit", "detached"):
        words.append({"by hand": "started by hand"}.get(look["how"], str(look["how"])))
    return "  ".join(words) + gpus(view.get("gpus") or [])


def does_in(step: Event, name: str) -> str:
    """What a node does in a step: its rows, or its layers of another node's rows; the pieces that it has done."""
    part = parts_of(step).get(name)
    layers = f"{part.words} of {part.layers}" if part else ""
    if part and name != part.begins:
        return f"{layers} of {part.begins}'s rows"
    count = rows_of(step).get(name)
    things = counted(count or 0, "piece" if step.get("event") == "piece" else "row")
    return f"{things}{', ' * bool(layers)}{layers}" if count else ""


def gpus(cards: list[dict[str, str]]) -> str:
    words = []
    for gpu in cards:
        used, whole = (number(gpu.get(f"memory.{part}")) for part in ("used", "total"))
        heat, load, power = (gpu.get(key, "?") for key in ("temperature.gpu", "utilization.gpu", "power.draw"))
        memory = f"  {used / 1024:.1f}/{whole / 1024:.0f} GB" if used is not None and whole is not None else ""
        words.append(f"  {gpu.get('name', 'GPU')}  {load} %  {heat} °C  {power} W{memory}")
    return "".join(words)


def last_run(answers: dict[str, Look]) -> str:
    with_a_run = [look for look in answers.values() if look["run"]]
    if not with_a_run:
        return " and none was; start one: ./motley launch --model qwen3-0.6b --dataset stdlib-qa"
    run = max(with_a_run, key=lambda look: max(float(look["step"].get("time", 0)), script_time(look)))["run"]
    if script := next((look for look in with_a_run if look["run"] == run and is_script(look)), None):
        return f"; the last was the script {run}: {script['now']['state']}"
    state = state_of([look for look in with_a_run if look["run"] == run])
    end = state.ending or {"event": "stopped"}
    word = f"failed: {first(end['message'])}" if end["event"] == "failed" else end["event"]
    more = "" if word == "done" else f" · resume it: ./motley launch --resume {run}"
    return f"; the last was {run}: {word} at {state.last.get('event', 'step')} {state.step}{more}"


def script_time(look: Look) -> float:
    return float(look["now"]["time"]) if is_script(look) else 0.0


def last_happened(running: dict[str, Look]) -> str:
    stepped = max(float((look["step"] or {}).get("time", 0)) for look in running.values())
    events = [
        event
        for look in running.values()
        for event in look["members"]
        if event["event"] not in ("up", "plan") and not (event["event"] == "waiting" and event["time"] < stepped)
    ]
    if not events:
        return ""
    event = max(events, key=lambda event: float(event["time"]))
    when = time.strftime("%H:%M:%S", time.localtime(float(event["time"])))
    kind, reason = str(event["event"]), first(str(event.get("reason", "")))
    return f"{when}  {reason}" if reason.startswith(kind) else f"{when}  {kind}  {reason}"


def runs(inventory: Inventory, *, as_json: bool = False, as_file: str = "") -> int:
    nodes = from_inventory(inventory)
    launched = launch_records.known(inventory.state).get(as_file)
    answers, silent = ({}, {}) if launched else ask_all(nodes, lambda node: node.runs())
    if as_file:
        say(run_as_file(as_file, launched, answers), end="")
        return 0
    if as_json:
        say(json.dumps({"runs": gathered(answers), "silent": silent}))
        return 0 if answers else 1
    for line in run_lines(answers, silent):
        say(line)
    return 0 if answers else 1


def run_as_file(name: str, launched: Launched | None, answers: Mapping[str, Runs]) -> str:
    """The run as this computer launched it, or else as a node was given it."""
    from console import run_file  # noqa: PLC0415  it reads all settings, which nothing else here needs

    of_nodes = [answer["runs"][name].get("launched") for answer in answers.values() if name in answer["runs"]]
    launched = launched or next(filter(None, of_nodes), None)
    if not launched:
        closest = nearest(name, gathered(answers), otherwise="./motley runs")
        raise BadInput(f"no launch of a run '{name}' is known", fix=closest)
    return run_file.as_text(launched, run=name)


class KnownRun(RunFacts):
    """A run as several nodes have it: how far it is by the one that has most of it, and where it lies."""

    nodes: list[str]
    recipe: str


def gathered(answers: Mapping[str, Runs]) -> dict[str, KnownRun]:
    """The runs of all nodes by name, the newest first."""
    runs: dict[str, KnownRun] = {}
    for node, answer in answers.items():
        for name, facts in answer["runs"].items():
            before = runs.get(name)
            most: RunFacts | KnownRun = before if before and before["step"] >= facts["step"] else facts
            runs[name] = {
                "nodes": [*(before["nodes"] if before else []), node],
                "bytes": facts["bytes"] + (before["bytes"] if before else 0),
                "done": facts["done"] or bool(before and before["done"]),
                "on": answer["on"] == name or bool(facts.get("on")) or bool(before and before["on"]),
                "waits": bool(facts.get("waits")) or name in (answer.get("waiting") or [])[1:],
                "script": (before and before["script"]) or facts.get("script", ""),
                "swept": facts.get("swept", {}),
                "recipe": str(launched_as(facts).get("recipe", "")) or (before["recipe"] if before else ""),
                "launched": (before and before["launched"]) or facts.get("launched") or {},
                "step": most["step"],
                "steps": most["steps"],
                "loss": most["loss"],
                "reward": most.get("reward"),
                "time": most["time"],
                "model": most["model"],
                "checkpoint": most.get("checkpoint", 0),
            }
    return dict(sorted(runs.items(), key=lambda item: item[1]["time"], reverse=True))


def launched_as(facts: RunFacts) -> dict[str, object]:
    """What a run was asked for, by a person and by defaults of then, as far as its node knows."""
    launched = facts.get("launched") or {}
    return {**launched.get("given", {}), **launched.get("asked", {})}


def run_state(facts: KnownRun) -> str:
    return "waiting" if facts["waits"] else "running" if facts["on"] else "done" if facts["done"] else "stopped"


def measure_words(facts: KnownRun, places: int) -> str:
    """What a run is about: its reward where it is trained by rewards, else its loss."""
    if facts["reward"] is not None:
        return f"reward {facts['reward']:.{places}f}"
    return f"{facts['loss']:.{places}f}" if facts["loss"] is not None else "–"


def run_lines(answers: Mapping[str, Runs], silent: dict[str, str]) -> list[str]:
    known_runs = gathered(answers)
    width = max([3, *map(len, known_runs)])
    measured = {name: measure_words(facts, 4) for name, facts in known_runs.items()}
    wide = max([7, *map(len, measured.values())])
    lines = (
        [f"{'run':<{width}}  {'step':>11}  {'loss':>{wide}}  {'state':<8}  {'when':<16}  {'disk':>8}  on"]
        if known_runs
        else []
    )
    for name, facts in known_runs.items():
        state = run_state(facts)
        loss = measured[name]
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(facts["time"])))
        steps = "a script" if facts["script"] else f"{facts['step']}/{facts['steps'] or '?'}"
        where = "  ".join([", ".join(facts["nodes"]), *(f"{key}={value}" for key, value in facts["swept"].items())])
        size = f"{facts['bytes'] / 1e6:.0f} MB"
        lines.append(f"{name:<{width}}  {steps:>11}  {loss:>{wide}}  {state:<8}  {when:<16}  {size:>8}  {where}")
    lines += [] if known_runs else ["no node that answers has a run"]
    return lines + [f"{name}  {reason}" for name, reason in silent.items()]
