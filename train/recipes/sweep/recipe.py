"""A sweep as a pool run: a piece is a trial, which one machine trains by itself; the record of pieces is all it knows.

next     the settings that Optuna proposes, of those that fit this machine's memory
work     trains them in a process of its own, tells each held-out loss, and ends it where Optuna prunes it
finish   results/RUN/sweep.json: all trials, the best first; best.yml: the best one's settings, for ./motley launch -f
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from train import recipes
from train.data import mix_data_sets
from train.data.left_out_in_words import require_held_out
from train.errors import BadInput, CheckFailed
from train.files import whole_folder
from train.models.device import look
from train.plan.launch import extra_packages
from train.plan.machines.nodes import Device
from train.plan.placement.first_way_that_fits import choose_on_devices
from train.plan.settings.every_run import RunConfig
from train.plan.settings.read_settings import names_of
from train.plan.settings.sweep import Sweep
from train.plan.values import Settings
from train.pool.pieces import Done, Known, Piece
from train.recipes.sweep import propose
from train.recipes.sweep.trial import Home, Process
from train.runlog import paths
from train.runlog.trials import BEST_RUN, SWEEP, Trial, best, ended, ranked, running, words

if TYPE_CHECKING:
    from train.pool.piece_thread import Desk

GIVE_UP_AFTER = 5
"""Trials that fail before one has succeeded: their settings are not the reason."""
WATCH_S = 0.5
LEAVES_S = 10.0
"""Whoever stops a run tells all its processes at once, and this one may hear of it last."""
NAME = "trial-{}"
NOT_OF_A_TRIAL = ("run", "home", "nodes", "at", "then", "follow", "queue", "resume", "pipes", "device")


class SweepRecipe:
    def __init__(self, config: Sweep) -> None:
        self.config = config
        self.total = config.total_trials
        self.lock = threading.Lock()
        self.process: Process | None = None
        self.base: Path | None = None
        self.device: Device | None = None
        self.rows = 0
        self.data = ""

    def load(self, desk: Desk) -> None:
        """Rows and base are read here first, so that the trials find them; the model is each trial's own."""
        desk.doing("reading the rows")
        extra_packages.use(self.config)
        first = self.config.trial({})
        recipe = recipes.of(first)
        self.base = recipe.start(first, print)
        rows, held_out = recipe.rows(first, print)
        require_held_out(self.config, len(held_out))
        self.rows, self.data = mix_data_sets.epoch_of(rows), f"{rows.hash} {held_out.hash}"
        at = int(desk.device.partition(":")[2] or 0)
        self.device = look(first, desk.node, at, self.base)

    def next(self, known: Known) -> Piece | None:
        if self.is_over(known):
            return None
        found = propose.next_trial(self.config, trials_of(known), self.fits)
        return Piece(found[0], {"params": found[1]}) if found else None

    def fits(self, params: Settings) -> bool:
        """Whether this machine has the memory for it."""
        assert self.device
        trial = self.config.trial(params)
        try:
            return choose_on_devices(trial, [self.device], recipes.of(trial).shape(trial, self.base)).ok
        except BadInput:
            return False

    def may_take(self, piece: Piece) -> bool:
        return self.fits(piece.what["params"])

    def is_over(self, known: Known) -> bool:
        return len(known.done) >= self.config.total_trials or bool(hopeless(known))

    def work(self, piece: Piece, desk: Desk) -> dict[str, Any]:
        self.tidy(desk.known(), desk.node)
        desk.note({"params": piece.what["params"]})
        process = self.begin(self.home(piece.number), self.trial(piece), desk.device)
        try:
            return self.watched(process, piece, desk)
        finally:
            with self.lock:
                self.process = None

    def begin(self, home: Home, config: RunConfig, device: str) -> Process:
        file = home.furnish(self.config.home_folder, config)
        with self.lock:
            self.process = Process(home, config, file, device)
            return self.process

    def trial(self, piece: Piece) -> RunConfig:
        """Its settings, as a run of its own."""
        name, home = NAME.format(piece.number), str(self.home(piece.number).folder.resolve())
        config = self.config.trial(piece.what["params"], run=name, home=home, resume="auto")
        every = self.config.look_every(config.steps_over(self.rows))
        return self.config.trial(piece.what["params"], run=name, home=home, resume="auto", eval_every=every)

    def watched(self, process: Process, piece: Piece, desk: Desk) -> dict[str, Any]:
        """Until it has ended, is to end, or falls behind."""
        state = ""
        while not state:
            code = process.poll()
            for step, loss in process.news():
                desk.note({"step": step, "loss": loss, "total": process.total})
                if code is None and self.is_behind(process, piece, desk):
                    state = "pruned"
            if process.is_heard:
                self.show_life()
                desk.lives()
            if desk.is_stopped.is_set():
                process.end(saves=True)
                return {}
            if code is not None:
                state = "done" if code == 0 else state or "failed"
            elif not state:
                desk.is_stopped.wait(WATCH_S)
        if state == "pruned":
            process.end(saves=False)
        elif state == "failed" and process.was_told_to_leave and desk.is_stopped.wait(LEAVES_S):
            return {}
        found = {
            "params": piece.what["params"],
            "state": state,
            "loss": min((loss for _, loss in process.losses), default=None),
            "losses": [list(pair) for pair in process.losses],
            "total": process.total,
            "reason": process.why_failed() if state == "failed" else "",
        }
        desk.note({"state": state, "reason": found["reason"]})
        return found

    def show_life(self) -> None:
        """Its agent takes a log that nobody writes for a worker that hangs; between two evaluations nothing is told."""
        with suppress(OSError):
            os.utime(self.config.log_folder / paths.EVENTS)

    def is_behind(self, process: Process, piece: Piece, desk: Desk) -> bool:
        trials = trials_of(desk.known())
        facts = [{"step": step, "loss": loss, "total": process.total} for step, loss in process.losses]
        own = running(piece.number, desk.node, piece.what, facts)
        return propose.is_behind(self.config, trials | {piece.number: own}, piece.number)

    def home(self, number: int) -> Home:
        return Home(folder=self.config.checkpoint_folder() / "trials" / NAME.format(number))

    def tidy(self, known: Known, node: str) -> None:
        """The best trial's result stays of what this machine has trained, and what it may continue."""
        trials = trials_of(known)
        best_trial = best(trials.values())
        in_progress = {number for number, taken in known.taken.items() if node in taken.nodes}  # also as the second
        for folder in (self.config.checkpoint_folder() / "trials").glob(NAME.format("*")):
            home, number = Home(folder=folder), int(folder.name.rpartition("-")[2])
            if number not in trials or number in in_progress:
                continue
            if best_trial and number == best_trial.number and best_trial.node == node:
                home.keep_result_alone()
            else:
                home.remove()

    def words(self, done: Done) -> str:
        one = ended(done.piece.number, done.node, done.seconds, done.result)
        return f"trial {one.number} {one.outcome} · {words(one.params)}"

    def finish(self, known: Known) -> Path:
        config, trials = self.config, ranked(trials_of(known).values())
        best_trial, folder = best(trials), config.result_folder / config.RESULT
        facts: dict[str, object] = {"run": config.run, "trains": config.trains, "search": config.search}
        facts["trials"] = [one.to_json() for one in trials]
        with whole_folder(folder) as draft:
            (draft / SWEEP).write_text(json.dumps(facts, indent=1) + "\n")
            if best_trial:
                (draft / BEST_RUN).write_text(self.run_file(best_trial))
        if best_trial is None:
            why = hopeless(known) or "each failed or was ended early"
            raise CheckFailed(f"no trial came to its end: {why}", f"all trials: {folder / SWEEP}")
        return folder

    def run_file(self, trial: Trial) -> str:
        """What was launched, with the best trial's settings in place of the search."""
        config = self.config
        asked = config.shared | {"dataset": config.dataset}  # of a run by hand
        with suppress(OSError, ValueError, KeyError):
            asked = dict(json.loads((config.log_folder / paths.LAUNCH).read_text())["asked"])
        own = names_of(type(config)) - names_of(config.KIND)
        kept = {name: value for name, value in asked.items() if name not in {*own, *NOT_OF_A_TRIAL}}
        values = kept | {"recipe": config.trains, **trial.params}
        why = f"the best of sweep {config.run}: trial {trial.number}, held-out loss {trial.loss:.4f}"
        return f"# {why}; over all machines: ./motley launch -f THIS-FILE\n{yaml.safe_dump(values, sort_keys=False)}"

    def close(self) -> None:
        with self.lock:
            if self.process:
                self.process.end(saves=True)


made = SweepRecipe


def trials_of(known: Known) -> dict[int, Trial]:
    under_way = {
        number: running(number, one.nodes[0], one.piece.what, one.notes) for number, one in known.taken.items()
    }
    over = {number: ended(number, one.node, one.seconds, one.result) for number, one in known.done.items()}
    return under_way | over


def hopeless(known: Known) -> str:
    """Why no further trial is begun, where all failed."""
    failed = [one for one in trials_of(known).values() if one.state == "failed"]
    return failed[-1].reason if len(failed) == len(known.done) >= GIVE_UP_AFTER else ""
