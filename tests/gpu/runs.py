"""Runs of `train run` for the lines: forks of this process, each a node of its own, something changed from outside.

The process that forks must not have computed: neither a card nor autograd's threads outlive a fork.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.line import Figures, Place, Verdict, furthest, together, told, within
from train.runlog.state import history
from train.runlog.tail import read

Options = dict[str, Any]
STEPS, ROWS_PER_STEP = 10, 8
OPTIONS: Options = {
    "model": "tiny", "backend": "hf", "load_in": "16bit", "precision": "fp32", "max_steps": STEPS, "lora_r": 8,
    "rows_per_step": ROWS_PER_STEP, "learning_rate": 5e-3, "warmup_steps": 2, "save_every": 4, "proof_every": 4,
    "micro_batch": 4, "wire": "fp32", "sync": "flat", "eval_rows": 4,
}  # fmt: skip
PATIENCE = 5
"""Times as long on a CPU, where other tests compute beside it."""


class Runs:
    """The processes of one run."""

    def __init__(
        self,
        home: Path,
        options: Options,
        devices: Sequence[str],
        *,
        change: Callable[[int], None] | None = None,
        one_card_each: bool = False,
        failure: Path | None = None,
    ) -> None:
        """`failure`: a file for the cause, as an agent wants it."""
        from tests.train.cluster import free_port

        self.home = home
        self.deadline_s = deadline_s(devices[-1])
        self.codes: list[int] = []
        self.pids = []
        home.mkdir(parents=True, exist_ok=True)
        size, port = len(devices), free_port()
        for rank, device in enumerate(devices):
            env = {"MOTLEY_NODE": f"node-{rank}", "LOCAL_RANK": str(rank if one_card_each else 0)}
            if size > 1:
                env |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
                env |= {"MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
            if failure:
                env |= {"MOTLEY_AGENT": str(os.getpid()), "MOTLEY_FAILURE": str(failure)}
            own = options | {"device": "cuda" if device != "cpu" else "cpu", "home": self.node_home(rank)}
            act = functools.partial(_train, ["run", *flags(own)], functools.partial(change or nothing, rank))
            self.pids.append(_fork(act, env, home / f"out-{rank}.txt"))

    def wait(self) -> list[int]:
        """Exit codes; whoever is not done by then is killed."""
        end, codes = time.monotonic() + self.deadline_s, dict.fromkeys(self.pids)
        while None in codes.values():
            for pid in [pid for pid, code in codes.items() if code is None]:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.codes = [int(code or 0) for code in codes.values()]
        return self.codes

    def until(self, holds: Callable[[], bool]) -> None:
        """Or until it should be done."""
        end = time.monotonic() + self.deadline_s
        while not holds() and time.monotonic() < end:
            time.sleep(0.01)

    def node_home(self, rank: int) -> Path:
        return self.home / f"node-{rank}"

    def said(self) -> str:
        return "\n".join((self.home / f"out-{rank}.txt").read_text() for rank in range(len(self.pids)))

    def events(self, rank: int = 0, kind: str = "") -> list[dict[str, Any]]:
        return [event for event in events_of(self.node_home(rank)) if kind in ("", event["event"])]

    def losses(self, rank: int = 0) -> list[float]:
        return losses_of(self.node_home(rank))

    def adapters(self) -> list[dict[str, str]]:
        """What each rank has proven, by step."""
        return [
            {str(event["step"]): event["adapter"] for event in self.events(rank, "proof")}
            for rank in range(len(self.pids))
        ]


def events_of(home: Path) -> list[dict[str, Any]]:
    log = home / "logs/runs/run/events.jsonl"
    return read(log) if log.exists() else []


def losses_of(home: Path) -> list[float]:
    """Of the steps that count."""
    return [event["loss"] for event in history(events_of(home))]


def nothing(rank: int) -> None:
    """Nothing is changed from outside."""


def flags(options: Options) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def _train(words: list[str], change: Callable[[], None] | None = None) -> int:
    if change:
        change()
    from train.__main__ import main

    return main(words)


def _fork(act: Callable[[], int], env: dict[str, str], out: Path) -> int:
    """Its number; the fork ends with what `act` returns."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.environ.update(env)
        code = act()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ends_well(pid: int, out: Path, what: str = "") -> None:
    if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError(f"{what or 'a fork'} ended with {code}: {out.read_text()[-2000:]}")


def train(home: Path, options: Options, devices: Sequence[str], **how: Any) -> Runs:
    return well(Runs(home, options, devices, **how))


def well(runs: Runs) -> Runs:
    """To its good end."""
    if any(runs.wait()):
        raise RuntimeError(f"a run that should end well ended with {runs.codes}: {runs.said()[-2000:]}")
    return runs


def command(place: Place, words: list[str], env: dict[str, str]) -> dict[str, Any]:
    """What `python -m train WORDS --json` answers."""
    out = place.folder / "said.txt"
    _ends_well(_fork(functools.partial(_train, [*words, "--json"]), env, out), out, f"train {words[0]}")
    answers = [line for line in out.read_text().splitlines() if line.startswith("{")]
    return dict(json.loads(answers[-1]))


def apart(place: Place, act: Callable[[], Any]) -> Any:
    """What `act` finds, in a fork: it may open the card, or read libraries in another order than this process will."""
    found, said = place.folder / "apart.json", place.folder / "apart.txt"

    def write() -> int:
        found.write_text(json.dumps(act()))
        return 0

    _ends_well(_fork(write, {}, said), said)
    return json.loads(found.read_text())


def data(place: Place) -> Path:
    from tests.train.cluster import make_rows

    folder = place.folder / "data"
    if not folder.exists():
        folder.mkdir()
        make_rows(folder, 40, 6)
    return folder


def options_for(place: Place, **own: Any) -> Options:
    return {**OPTIONS, "dataset": data(place), "timeout_s": deadline_s(place.device), **own}


def deadline_s(device: str) -> float:
    return 50.0 * (PATIENCE if device == "cpu" else 1)


def begin_truth(place: Place, **own: Any) -> Runs:
    """One process, everything else as it is; beside what is compared with it."""
    return Runs(place.folder / "truth", options_for(place, **own), [place.device])


def beside_truth(place: Place, devices: Sequence[str], options: Options, **how: Any) -> Figures:
    """Processes on these devices, and one alone."""
    truth = begin_truth(place, micro_batch=options.get("micro_batch", OPTIONS["micro_batch"]))
    return compared(train(place.folder / "some", options_for(place, **options), devices, **how), truth)


def compared(found: Runs, truth: Runs) -> Figures:
    return {"losses": found.losses(), "adapters": found.adapters(), "truth": well(truth).losses()}


def over_gloo(rank: int) -> None:
    """Two processes on one card: NCCL refuses that, gloo does not."""
    from train.parallel.process_group import World

    start_group = World.start_group
    World.start_group = lambda self, *, nccl: start_group(self, nccl=False)  # type: ignore[method-assign]


def curve(values: Figures, limit: float = 1e-4) -> Verdict:
    """The losses are those of one process, and all ranks prove the same adapter."""
    adapters = values["adapters"]
    same = bool(adapters[0]) and all(one == adapters[0] for one in adapters)
    losses = values["losses"]
    return together(
        within(f"{len(losses)} losses off one process by", furthest(losses, values["truth"]), limit),
        told(same, "the same adapter on all", "the ranks' adapters differ"),
    )
