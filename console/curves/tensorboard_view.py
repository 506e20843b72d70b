"""TensorBoard for any run, also while it is running: its event logs are brought here, and drawn as curves.

python -m console tensorboard [--run NAME] [--port 6006]

Nothing is installed on a node. TensorBoard has a locked environment of its own on the controller, made on first use.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from console.fetch import newest, no_name
from console.infra.node import ROOT, Node, Silent, from_inventory
from console.inventory.read import Inventory
from console.processes import end_group
from console.text_layout import say
from train.cache import cache_dir
from train.errors import CheckFailed
from train.plan.run_name import is_name
from train.runlog.paths import EVENTS, NODES

EVERY_S = 5.0


def tensorboard(inventory: Inventory, run: str, results: Path, port: int) -> int:
    nodes = from_inventory(inventory)
    run = run or newest(nodes) or newest_fetched(results)
    if run and not is_name(run):
        say(no_name(run))
        return 2
    folder = results / run / NODES
    if not run or not (bring_all(nodes, run, folder) or list(folder.glob(f"*/{EVENTS}"))):
        say(f"no node that answers has run '{run}', nor has {results}" if run else "there is no run to show")
        return 1
    curves = (results / run / "tensorboard").resolve()
    shutil.rmtree(curves, ignore_errors=True)
    python = environment()
    drawing = [python, "-m", "console.curves.tensorboard_points", str(folder.resolve()), str(curves)]
    serving = [python, *f"-m tensorboard.main --port {port} --reload_interval 5 --logdir".split(), str(curves)]
    shown = [subprocess.Popen(command, cwd=ROOT, start_new_session=True) for command in (drawing, serving)]
    say(f"run {run}: http://127.0.0.1:{port}   end: Ctrl-C")
    try:
        while all(process.poll() is None for process in shown):
            time.sleep(EVERY_S)
            bring_all(nodes, run, folder)
    except KeyboardInterrupt:
        return 0
    finally:
        for process in shown:
            end_group(process)
    say(f"TensorBoard has ended; if another program has port {port}: --port 6007")
    return 1


def environment(kind: str = "tensorboard") -> str:
    """The Python of TensorBoard, or of another such program, of its locked set; made where it is not there yet."""
    target = cache_dir() / "envs" / kind
    make = [f"{ROOT}/requirements/make_env.sh", str(target), kind]
    if subprocess.run(make, check=False, env=dict(os.environ, PYTHON=sys.executable)).returncode:
        raise CheckFailed(f"{kind} could not be installed: pip's messages are above", fix="fix: the same command again")
    return f"{target}/bin/python"


def newest_fetched(results: Path) -> str:
    files = list(results.glob(f"*/{NODES}/*/{EVENTS}"))
    return max(files, key=lambda file: file.stat().st_mtime).parents[2].name if files else ""


def bring_all(nodes: list[Node], run: str, folder: Path) -> int:
    """How many nodes have the run."""
    return sum(bring_more(node, run, folder / node.name / EVENTS) for node in nodes)


def bring_more(node: Node, run: str, file: Path) -> bool:
    """Append what the node's event log has more than the copy here; begin again where that is another log."""
    have = file.stat().st_size if file.exists() else 0
    try:
        process = node.events_after(run, have)
    except Silent:
        return False
    assert process.stdout
    try:
        head, _, data = process.stdout.read().partition(b"\n")
    finally:
        end_group(process)
    if not head:
        return False
    if have and data and not data.startswith(b'{"event"'):  # the middle of a line: of another log, and it is longer
        file.unlink()
        return bring_more(node, run, file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as copy:
        copy.truncate(int(json.loads(head)["offset"]))
        copy.write(data)
    return True
