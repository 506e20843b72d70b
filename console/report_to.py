"""`report_to=wandb` of a launch, and `./motley report --to wandb`: a run's curves go where others look (trackers.py).

python -m console.report_to KIND RUN INVENTORY RESULTS      while somebody watches the run

Each program has a locked environment of its own on the controller, which is made when it is asked for the first time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from console import launch_records
from console.curves.tensorboard_view import EVERY_S, bring_all, environment
from console.curves.trackers import ABOUT, FOLDER, About
from console.infra.node import ROOT, from_inventory
from console.inventory.check import check
from console.inventory.read import Inventory
from console.report.energy import node_kwh
from console.report.read_run import History, LaunchRecord, NothingHappened, read_history
from console.report.run_charts import loss_of
from console.report.where_time_goes import COLOURS, part_table
from console.text_layout import say
from train.errors import CheckFailed
from train.files import write_atomic
from train.runlog.paths import LAUNCH, NODES

ENDS_S = 60.0
"""How long the program may take to send the rest."""
WHERE = {
    "trackio": "trackio show --project motley",
    "wandb": "WANDB_MODE=online sends it as it comes; later: wandb sync",
    "mlflow": "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri",
    "tensorboard": "./motley tensorboard",
}


def send(kind: str, folder: Path) -> None:
    """Sends all that is fetched of a run, once; what was sent before is not sent again."""
    read_history(folder)  # NothingHappened where there is nothing to send
    write_about(folder, launched_of(folder))
    done = subprocess.run(feeding(kind, folder, "--once"), cwd=ROOT, check=False)
    if done.returncode:
        raise CheckFailed(f"{kind} did not take the run: its messages are above", fix="nothing of the run is lost")
    say(f"{kind}  {folder.name} is there: {where(kind, folder)}")


def where(kind: str, folder: Path) -> str:
    place = f" {folder / FOLDER / ('mlruns' if kind == 'mlflow' else 'wandb')}" if kind in ("mlflow", "wandb") else ""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "") if kind == "mlflow" else ""
    return uri or WHERE[kind] + place


def feeding(kind: str, folder: Path, *words: str) -> list[str]:
    return [environment(kind), "-m", "console.curves.trackers", kind, str(folder.resolve()), *words]


def write_about(folder: Path, launched: LaunchRecord) -> None:
    """Writes what is said once: the settings, and the numbers that the report has so far."""
    about: About = {"settings": launched.get("all", {}), "numbers": {}}
    with contextlib.suppress(NothingHappened):
        about["numbers"] = numbers(read_history(folder))
    write_atomic(folder / FOLDER / ABOUT, json.dumps(about).encode())


def numbers(history: History) -> dict[str, float]:
    """The report's own: of the whole run, and of each machine."""
    found = {
        "report/minutes": history.seconds / 60,
        "report/tokens": float(sum(step["tokens"] for step in history.steps)),
        "report/steps_trained_twice": float(history.repeated),
    }
    losses = [loss for event in history.evals if (loss := loss_of(event)) is not None]
    if losses:
        found |= {"report/held_out_first": losses[0], "report/held_out_last": losses[-1]}
        found["report/held_out_best"] = min(losses)
    for row in part_table(history):
        found |= {f"report/{part}_percent/{row['name']}": float(row["percent"][n]) for n, part in enumerate(COLOURS)}
    kwh = {node: used for node in history.nodes if (used := node_kwh(history, node)) is not None}
    return found | {f"report/kwh/{node}": used for node, used in kwh.items()}


def launched_of(folder: Path) -> LaunchRecord:
    file = next(iter(sorted((folder / NODES).glob(f"*/{LAUNCH}"))), None)
    launched: LaunchRecord = json.loads(file.read_text()) if file else {}
    return launched


@contextlib.contextmanager
def fed(inventory: Inventory, run: str, kind: str) -> Iterator[None]:
    """Sends as long as somebody watches; what comes after that is sent by ./motley report --to."""
    if not kind:
        yield
        return
    later = f"   all of it: ./motley fetch --run {run} && ./motley report --run {run} --to {kind}"
    try:
        environment(kind)  # it takes a minute once, and its messages would stand in the live view
    except CheckFailed as why:  # the run has been started: it is watched all the same
        say(f"{str(why).splitlines()[0]}; the run continues{later}")
        yield
        return
    command = [sys.executable, "-m", "console.report_to", kind, run, str(inventory.path), "results"]
    quiet = subprocess.DEVNULL
    feeder = subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, stdout=quiet, stderr=subprocess.PIPE, text=True
    )
    try:
        yield
    finally:
        feeder.terminate()
        try:
            words = feeder.communicate(timeout=2 * ENDS_S)[1].strip().splitlines()
        except subprocess.TimeoutExpired:
            feeder.kill()
            words = [f"it needed more than {2 * ENDS_S:.0f} s"]
        failed = f"{kind} did not take all of it: {words[-1] if words else 'it said nothing'}"
        say(f"{kind}  {where(kind, Path('results') / run)}" if not feeder.returncode else failed + later)


def main(kind: str, run: str, inventory: Inventory, results: Path) -> int:
    """Brings the logs here until it is told to end, while the program's own process reads them."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    nodes, folder = from_inventory(inventory), results / run
    launched = launch_records.known(inventory.state).get(run, {})
    feeder: subprocess.Popen[bytes] | None = None
    try:
        while not (feeder and feeder.poll()):
            if bring_all(nodes, run, folder / NODES):
                write_about(folder, launched)
                feeder = feeder or subprocess.Popen(feeding(kind, folder), cwd=ROOT, start_new_session=True)
            time.sleep(EVERY_S)
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        bring_all(nodes, run, folder / NODES)
        write_about(folder, launched)
    if feeder is None:
        return 0
    feeder.terminate()
    return feeder.wait(ENDS_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], check(Path(sys.argv[3])), Path(sys.argv[4])))
