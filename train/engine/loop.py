"""The training loop. `train` is the page to read; what stands below it are its parts, in the order of their use.

For fixed data, seed and settings the losses are the same on any cluster: the rows of a step follow from the step alone,
each rank takes a slice of them, and every gradient is divided by the target tokens of the whole step. `sync: local`
alone is different: there a rank steps by its own gradient until the round ends (local.py).
"""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from train.data.rows import Rows
from train.engine import checkpoint, consistency, staging
from train.engine.batches import loss_over, rows_of_step, to_tensors
from train.engine.microbatch import chunks, step_down
from train.engine.optimizer import learning_rate
from train.models.weights import trained_weights
from train.parallel.balance import Balance
from train.parallel.diloco import Rounds
from train.parallel.sync import Shell, SyncChoice, Work
from train.parallel.world import World
from train.plan import decided
from train.plan.config import RunConfig
from train.plan.shares import spans, split_rows
from train.runlog.events import EventLog, Progress


@dataclass(kw_only=True)
class Run:
    """Everything that a step needs. `step` counts the finished ones."""

    config: RunConfig
    world: World
    device: str
    identity: dict[str, Any]
    rows: Rows
    eval_rows: Rows
    shell: Shell
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    scaler: Any
    """torch's GradScaler for fp16, else None."""
    sync: SyncChoice
    rounds: Rounds | None
    """The rounds of `sync: local`, else None."""
    shares: list[float]
    """One weight a rank; may change between steps, as long as it changes alike on all ranks."""
    balance: Balance
    """What is known of each process's speed, and what follows for the shares."""
    micro_batch: int
    total_steps: int
    log: EventLog
    progress: Progress
    board: Any = None
    step: int = 0
    settled: int = 0
    """The last step after which proofs, evaluations and checkpoints had their turn."""
    best: dict[str, Any] | None = None
    proven: int = -1
    saved: int = -1
    updating: bool = False
    state_lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while weights change and while they are saved: a checkpoint never sees half an update."""


class LossNotFiniteError(RuntimeError):
    """The loss is NaN or infinite: going on would only destroy the adapter."""


def train(run: Run) -> None:
    config, world = run.config, run.world
    since = time.perf_counter()
    while run.step < run.total_steps:
        rows = rows_of_step(run.step, rows=len(run.rows), rows_per_step=config.rows_per_step, seed=config.seed)
        slices = spans(split_rows(len(rows), run.shares))
        targets = [int(run.rows.targets[rows[a:b]].sum()) for a, b in slices]
        first, end = slices[world.rank]
        rate = set_learning_rate(run)

        divisor = targets[world.rank] if run.rounds else sum(targets)
        work, fed = compute(run, rows[first:end], weight=1 / max(1, divisor))
        norm = gradient_norm(run)
        fed["first"] = run.step * config.rows_per_step + first
        if run.rounds:
            clip(run, norm)
            work = go_own_way(run, run.rounds, work, targets)
        now = time.perf_counter()
        event = report(run, work, fed, step_s=now - since, targets=targets, lr=rate, grad_norm=norm)
        since = now
        tell(run, event)  # before the update, so that no trained row goes unlogged
        if not run.rounds:
            clip(run, event["grad_norm"])
        update(run)
        choose_sync(run, event)
        choose_local_steps(run, event)
        rebalance(run, event)
        if between_steps(run):
            since = time.perf_counter()  # a step's seconds are its own


def between_steps(run: Run) -> bool:
    """Proof, evaluation and checkpoint, each when it is due and all hold the same; whether any was."""
    if run.rounds and run.step != run.rounds.began:
        return False
    due = due_at(run, run.step)
    run.settled = run.step
    for act, now in due.items():
        if now:
            act(run)
    return any(due.values())


def due_at(run: Run, step: int) -> dict[Callable[[Run], None], bool]:
    """What has its turn after this step, the first since run.settled at which all hold the same."""
    config, last = run.config, step == run.total_steps

    def passed(every: int) -> bool:
        return step // every > run.settled // every

    return {
        prove: run.settled == 0 or passed(config.proof_every),
        evaluate: last or bool(config.eval_every and passed(config.eval_every)),
        save: last or passed(config.save_every),
    }


def choose_sync(run: Run, event: dict[str, Any]) -> None:
    undecided = not run.sync.reason
    run.sync.learn(max(node["compute_s"] for node in event["nodes"].values()) + event["sync_s"])
    if undecided and run.sync.reason:
        run.progress.say(f"sync {run.sync.now.kind}: {run.sync.reason}")
        if run.world.writes:
            decided.keep(run.config, sync=run.sync.now.kind)


def rebalance(run: Run, event: dict[str, Any]) -> None:
    """Shares follow the speeds; while two ways of adding up are compared they stay, to keep the comparison fair."""
    change = run.balance.learn(event["nodes"], hold=run.sync.comparing)
    if change is None:
        return
    run.shares = [float(rows) for rows in run.balance.counts]
    run.sync.begin_anew()
    run.log.write("balance", step=run.step, shares=change.shares, speeds=change.speeds, reason=change.reason)
    rows = "  ".join(f"{name} {count}" for name, count in change.shares.items())
    run.progress.say(f"shares from step {run.step + 1}: {rows} ({change.reason})")


def choose_local_steps(run: Run, event: dict[str, Any]) -> None:
    """After a meeting, from figures that are the same on all ranks."""
    rounds = run.rounds
    if rounds is None:
        return
    rounds.seconds.append(max(node["compute_s"] for node in event["nodes"].values()))
    if rounds.began == run.step and (reason := rounds.choose()):
        run.log.write("local", step=run.step, steps=rounds.steps, reason=reason)
        if run.world.writes:
            decided.keep(run.config, local_steps=str(rounds.steps))
        run.progress.say(f"rounds of {rounds.steps} steps from step {run.step + 1}: {reason}")


def set_learning_rate(run: Run) -> float:
    c = run.config
    rate = learning_rate(
        run.step, peak=c.learning_rate, kind=c.schedule, warmup_steps=c.warmup_steps, total_steps=run.total_steps
    )
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    return rate


def compute(run: Run, mine: list[int], weight: float) -> tuple[Work, dict[str, float]]:
    """Forward, backward and the summed gradient of this step; a smaller micro-batch after an out-of-memory."""
    scale = run.scaler.get_scale() if run.scaler else 1.0
    while True:
        fed = {"rows": 0, "rows_crc": 0, "tokens": 0}
        batches = [feed(run, some, fed) for some in chunks(mine, run.micro_batch)]
        try:
            return run.sync.now.step(batches, weight * scale), {**fed, "micro_batch": run.micro_batch}
        except torch.OutOfMemoryError:
            if run.sync.now.interrupted_exchange:  # peers wait in the exchange of this step; only a restart helps
                raise
        run.optimizer.zero_grad(set_to_none=True)
        if run.device != "cpu":
            torch.cuda.empty_cache()
        run.micro_batch = step_down(run.micro_batch)
        warn(run, f"{run.world.node}: out of memory, going on with {run.micro_batch} rows at a time")


def feed(run: Run, some: list[int], fed: dict[str, int]) -> dict[str, torch.Tensor]:
    """A micro-batch on its device, entered in the books: the event log proves from them which rows were trained."""
    batch = run.rows.batch(some)
    fed["rows"] += len(some)
    fed["rows_crc"] = zlib.crc32(np.array(some, dtype="<i8").tobytes(), fed["rows_crc"])
    fed["tokens"] += int(batch["lengths"].sum())
    return to_tensors(batch, run.device)


def gradient_norm(run: Run) -> float:
    """Of the whole gradient; of the own, in local steps."""
    if run.scaler and run.parameters[0].grad is not None:
        run.scaler.unscale_(run.optimizer)
    return float(nn.utils.get_total_norm([p.grad for p in run.parameters if p.grad is not None]))


def clip(run: Run, norm: float) -> None:
    """By a norm that all ranks have from the same exchange: unlike cards may add up their own in another order, and
    then the adapters would differ in a last bit."""
    if run.config.grad_clip:
        nn.utils.clip_grads_with_norm_(run.parameters, run.config.grad_clip, torch.tensor(norm))


def go_own_way(run: Run, rounds: Rounds, work: Work, targets: list[int]) -> Work:
    """A step by the own gradient, and the exchange where the round ends; nothing that all share changes here."""
    if targets[run.world.rank]:
        with run.state_lock:
            run.updating = True
            optimizer_step(run)
            run.updating = False
    rounds.count(targets)
    if not rounds.ends_with(run.step + 1):
        return work
    due = due_at(run, run.step + 1)
    start = time.perf_counter()
    ways_s = rounds.meet(run.world.rank, moments=due[evaluate] or due[save])
    if run.scaler:
        agree_on_scale(run)
    return replace(work, blocked_s=time.perf_counter() - start, ways_s=ways_s)


def agree_on_scale(run: Run) -> None:
    """The most careful rank's: an overflow that one of them met is met by all."""
    state = run.scaler.state_dict()
    names = ("scale", "_growth_tracker")
    everyone = run.world.numbers([float(state[name]) for name in names])
    scale, tracker = (min(row[i] for row in everyone) for i in range(len(names)))
    run.scaler.load_state_dict({**state, "scale": scale, "_growth_tracker": int(tracker)})


FACTS: tuple[str, ...] = ("loss_sum", "grad_norm", "compute_s", "blocked_s", "ways_s", "step_s", "gpu_gb")
FACTS += ("rows", "first", "rows_crc", "tokens", "micro_batch")


def report(
    run: Run, work: Work, fed: dict[str, float], *, step_s: float, targets: list[int], lr: float, grad_norm: float
) -> dict[str, Any]:
    """What all ranks did in this step, gathered in one small exchange; the same on every rank."""
    gpu_gb = torch.cuda.max_memory_allocated() / 1e9 if run.device != "cpu" else 0.0
    mine = {**fed, "loss_sum": work.loss_sum, "compute_s": work.compute_s, "blocked_s": work.blocked_s}
    mine |= {"step_s": step_s, "gpu_gb": gpu_gb, "grad_norm": grad_norm, "ways_s": work.ways_s}
    ranks = [dict(zip(FACTS, row, strict=True)) for row in run.world.numbers([float(mine[f]) for f in FACTS])]
    require_whole(run, ranks)
    whole = max(1, sum(targets))
    loss = sum(r["loss_sum"] for r in ranks) / whole
    if not math.isfinite(loss):
        at = [rank_name(run, i) for i, r in enumerate(ranks) if not math.isfinite(r["loss_sum"])]
        raise LossNotFiniteError(f"the loss is {loss} (from {', '.join(at)}); try a lower learning_rate")
    if not run.scaler and (at := [rank_name(run, i) for i, r in enumerate(ranks) if not math.isfinite(r["grad_norm"])]):
        raise LossNotFiniteError(f"the gradient is not finite (on {', '.join(at)}); try a lower learning_rate")
    if run.rounds:
        run.rounds.exchange_s = min(r["ways_s"] for r in ranks)
    if run.rounds and not run.rounds.exchange_s:  # nothing is exchanged, but nobody is a step ahead
        longest = max(r["compute_s"] for r in ranks)
        for r in ranks:
            r["blocked_s"] = longest - r["compute_s"]
    sync_s = min(r["blocked_s"] for r in ranks)  # who came last waited for nobody: its time is pure transfer
    return {
        "step": run.step + 1,
        "loss": loss,
        "lr": lr,
        "grad_norm": sum(r["grad_norm"] * count for r, count in zip(ranks, targets, strict=True)) / whole,
        "tokens": int(sum(r["tokens"] for r in ranks)),
        "targets": sum(targets),
        "step_s": round(ranks[0]["step_s"], 5),
        "sync_s": round(sync_s, 5),
        "sync": run.sync.now.kind,
        "shares": run.shares,
        "nodes": {rank_name(run, i): node_report(r, sync_s) for i, r in enumerate(ranks)},
    }


def require_whole(run: Run, ranks: list[dict[str, float]]) -> None:
    """The slices of all ranks are the rows of this step, none left out and none twice: shares are no rank's own."""
    due = run.step * run.config.rows_per_step
    for rank, told in enumerate(ranks):
        if int(told["first"]) != due:
            raise consistency.Disagreement(
                f"the nodes do not train the same thing: the rows of {rank_name(run, rank)} begin with number "
                f"{told['first']:.0f} of the stream, those before end with {due - 1}",
                f"found: at step {run.step + 1}",
                f"the last proven checkpoint is kept: {run.config.checkpoint_folder()}",
            )
        due += int(told["rows"])


def rank_name(run: Run, rank: int) -> str:
    return str(run.identity["names"][rank])


def node_report(rank: dict[str, float], sync_s: float) -> dict[str, Any]:
    busy = max(rank["compute_s"], 1e-9)
    return {
        **{name: int(rank[name]) for name in ("rows", "first", "rows_crc", "micro_batch")},
        "compute_s": round(rank["compute_s"], 5),
        "wait_s": round(rank["blocked_s"] - sync_s, 5),
        "tokens_per_s": round(rank["tokens"] / busy, 1),
        "gpu_gb": round(rank["gpu_gb"], 3),
    }


def tell(run: Run, event: dict[str, Any]) -> None:
    with run.state_lock:  # a process that is leaving may have gone back to where the round began
        run.log.write("step", **event)
    run.progress.show(event)
    if run.board:
        for name in ("loss", "lr", "grad_norm", "tokens", "step_s", "sync_s"):
            run.board.add_scalar(f"train/{name}", event[name], event["step"])


def optimizer_step(run: Run) -> None:
    if run.scaler:
        run.scaler.step(run.optimizer)
        run.scaler.update()
    else:
        run.optimizer.step()


def update(run: Run) -> None:
    with run.state_lock:
        run.updating = True
        if not run.rounds:
            optimizer_step(run)
        elif run.rounds.ends_with(run.step + 1):
            run.rounds.settle(run.step + 1)
        run.optimizer.zero_grad(set_to_none=True)
        if run.device != "cpu":
            torch.cuda.synchronize()  # another thread may save as soon as the lock is free
        run.step += 1
        run.updating = False


def prove(run: Run) -> None:
    """All ranks hold the same adapter, bit for bit, or the run ends here."""
    if run.proven == run.step:
        return
    mine = adapter_hash(run)
    claims = [(name, {"adapter": value}) for name, value in run.world.gather([run.world.node, mine])]
    consistency.require_agreement(
        claims, f"at step {run.step}", f"the last proven checkpoint is kept: {run.config.checkpoint_folder()}"
    )
    run.proven = run.step
    run.log.write("proof", step=run.step, adapter=mine)


def adapter_hash(run: Run) -> str:
    return consistency.tensors_hash(sorted(trained_weights(run.shell.model).items()))


def evaluate(run: Run) -> None:
    """Loss on the held-out rows, each rank looking at its part; a new best is saved at once."""
    count = min(len(run.eval_rows), run.config.eval_rows)
    if not count:
        return
    first, end = spans(split_rows(count, [1.0] * run.world.size))[run.world.rank]
    mine = loss_over(run.shell, run.eval_rows, list(range(first, end)), micro_batch=run.micro_batch, device=run.device)
    parts = run.world.numbers([float(number) for number in mine])
    targets = int(sum(part[1] for part in parts))
    loss = sum(part[0] for part in parts) / targets
    better = run.best is None or loss < run.best["loss"]
    if better:
        run.best = {"step": run.step, "loss": loss}
    run.log.write("eval", step=run.step, loss=loss, targets=targets, best=better)
    run.progress.say(f"held-out loss {loss:.4f} at step {run.step}{' (best)' if better else ''}")
    if run.board:
        run.board.add_scalar("held_out/loss", loss, run.step)
    if better:
        save(run)


def save(run: Run) -> None:
    """A proven checkpoint on every node. A full disk costs this checkpoint, not the run."""
    prove(run)
    if run.world.writes:
        write_checkpoint(run)


def write_checkpoint(run: Run, *, leaving: bool = False) -> None:
    """On leaving into main memory where there is room: the GPU must be free within seconds, the disk may be slow."""
    root = run.config.checkpoint_folder()
    with run.state_lock:
        if run.rounds and run.step != run.rounds.began:
            run.step = run.rounds.go_back()  # the run ends here: only what all share is kept
        if run.saved == run.step or (run.rounds and run.step == 0):
            return
        started = time.perf_counter()
        outer = run.rounds.velocity if run.rounds else None
        stage = staging.room_for(12 * sum(p.numel() for p in run.parameters)) if leaving else None
        try:
            checkpoint.write(stage or root, run.step, run.shell.model, run.optimizer, state_of(run), outer=outer)
        except checkpoint.WRITE_ERRORS as error:
            warn(run, f"{run.world.node}: the checkpoint of step {run.step} could not be written: {error}")
            return
        run.saved = run.step
        checkpoint.prune(root, run.step, run.config.keep, run.best["step"] if run.best else None)
        folder, took_s = str(root / f"step-{run.step}"), round(time.perf_counter() - started, 3)
        run.log.write("checkpoint", step=run.step, folder=folder, seconds=took_s, staged=stage is not None)


def state_of(run: Run) -> dict[str, Any]:
    return {
        "math": run.identity["math"],
        "best": run.best,
        "proven": run.proven,
        "shares": dict(zip(run.identity["names"], run.shares, strict=True)),
        "speeds": run.balance.speeds,
        "total_steps": run.total_steps,
        "local_steps": run.rounds.steps if run.rounds else None,
        "scaler": run.scaler.state_dict() if run.scaler else None,
        "adapter": adapter_hash(run),
    }


def warn(run: Run, message: str) -> None:
    run.log.write("warning", step=run.step, message=message)
    run.progress.say(f"warning: {message}")


def write_result(run: Run) -> Path:
    """results/RUN/adapter (last) and results/RUN/best, as PEFT or transformers loads them."""
    target = run.config.result_folder / "adapter"
    checkpoint.publish(target, lambda draft: checkpoint.write_weights(draft, run.shell.model))
    best = run.config.checkpoint_folder() / f"step-{run.best['step'] if run.best else 0}"
    if best.is_dir():  # a node that was away then does not have it
        checkpoint.publish(run.config.result_folder / "best", lambda draft: checkpoint.copy_weights(best, draft))
    return target
