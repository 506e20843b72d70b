"""Setting a run up, in an order that matters: facts are exchanged and choices made first, the model is built before the
process group, and what is to be trained is proven to be the same everywhere before the first step."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import nn

from train.data.rows import Rows, open_rows
from train.engine import consistency, microbatch, resume
from train.engine.device import look
from train.engine.loop import Run
from train.engine.optimizer import is_mixed, make_optimizer
from train.errors import BadInput
from train.models import backends
from train.models.backends import ModelSpec
from train.models.locate import model_folder
from train.models.weights import Named, trained_weights
from train.parallel import sync
from train.parallel.balance import Balance
from train.parallel.diloco import Rounds
from train.parallel.world import World
from train.plan import decided
from train.plan.catalogue import Facts, facts_of
from train.plan.config import RunConfig
from train.plan.decide import choose
from train.plan.fit import Decisions
from train.plan.hashes import base_hash
from train.plan.nodes import Device
from train.plan.shares import parse_speeds
from train.runlog import events, paths


def set_up(config: RunConfig, world: World, out: TextIO | None) -> Run:
    base = Path(model_folder(config.model))
    config, why_decided = decided.obey(config, world.gather(decided.read(config)))
    devices = [Device(**f) for f in world.gather(asdict(look(config, world.node, world.local_rank, base)))]
    decisions = choose(config, devices, shape_of(base))
    device = devices[world.rank].device
    if device != "cpu":
        torch.cuda.set_device(device)
    check_shares(config, world.size)

    backend = backends.get(decisions.backend)
    data = dataset_folder(config, out)
    rows, eval_rows = open_rows(data), open_rows(data, "eval")
    if world.writes:  # one reading a node; a page that was lost with the power would train in silence
        rows.verify()
        eval_rows.verify()
    identity = agree(config, decisions, world, base, {"rows": rows.hash, "held-out rows": eval_rows.hash})
    model = backend.build(model_spec(config, decisions, str(base), device, rows.row_length))

    world.start_group(cards=all(found.is_gpu for found in devices))
    named = dict(sorted(trained_weights(model).items()))
    parameters = list(named.values())
    shell = sync.make_shell(backend, model, decisions.precision, device)
    mixed = is_mixed(devices)
    optimizer = make_optimizer(config, parameters, on_cpu=mixed and config.sync != "local")
    wire, why_wire = sync.choose_wire(config.wire, world, parameters)
    micro_batch, why_micro = choose_micro_batch(config, shell, parameters, optimizer, rows, device=device)
    log = events.EventLog(config.log_folder / paths.EVENTS if world.writes else None)
    total_steps = config.max_steps or math.ceil((config.epochs or 1) * len(rows) / config.rows_per_step)
    run = Run(
        config=config,
        world=world,
        device=device,
        identity=identity,
        rows=rows,
        eval_rows=eval_rows,
        shell=shell,
        parameters=parameters,
        optimizer=optimizer,
        scaler=make_scaler(decisions.precision, device),
        sync=sync.SyncChoice(config.sync, wire, shell, parameters, device),
        rounds=make_rounds(config, named, optimizer, wire, total_steps, on_cpu=mixed)
        if config.sync == "local"
        else None,
        shares=[1.0] * world.size,
        balance=make_balance(config, identity["names"]),
        micro_batch=micro_batch,
        total_steps=total_steps,
        log=log,
        progress=events.Progress(out, total_steps),
    )
    why_start = resume.bring_up_to_date(run)
    run.board = make_board(config, run.step) if world.speaks and config.tensorboard else None
    run.shares, why_shares = first_shares(config, run.balance)
    if world.writes:
        measured = {"wire": wire} if world.size > 1 else {}
        decided.keep(config, **decisions.as_dict(), **measured)
    made_now = [reason for reason in decisions.reasons if not (why_decided and reason.endswith(": as set"))]
    reasons = [*why_decided, *made_now, f"micro-batch {micro_batch}: {why_micro}", f"wire {wire}: {why_wire}"]
    why_sync = local_reason(run.rounds) if run.rounds else run.sync.reason or "both are tried in the first steps"
    reasons += [f"sync {config.sync}: {why_sync}", why_shares, why_start]
    announce(run, reasons, decisions.as_dict() | {"wire": wire})
    return run


def shape_of(base: Path) -> Facts | None:
    """None for a family whose memory is not known."""
    try:
        return facts_of(json.loads((base / "config.json").read_text()), str(base))
    except BadInput:
        return None


def make_rounds(
    config: RunConfig, named: Named, optimizer: torch.optim.Optimizer, wire: str, total_steps: int, *, on_cpu: bool
) -> Rounds:
    return Rounds(
        named,
        optimizer,
        steps=None if config.local_steps == "auto" else int(config.local_steps),
        total_steps=total_steps,
        rate=config.outer_learning_rate,
        momentum=config.outer_momentum,
        wire=wire,
        on_cpu=on_cpu,
    )


def check_shares(config: RunConfig, ranks: int) -> None:
    if config.shares is not None and len(config.shares) != ranks:
        raise BadInput(
            f"shares: {len(config.shares)} numbers for {ranks} processes", fix="give one number a process, 0 for none"
        )


def make_balance(config: RunConfig, names: list[str]) -> Balance:
    moves = config.balance == "auto" and config.shares is None
    return Balance(names, config.rows_per_step, known=parse_speeds(config.speeds), moves=moves)


def first_shares(config: RunConfig, balance: Balance) -> tuple[list[float], str]:
    """The shares to begin with, and why."""
    if config.shares is not None:
        return list(config.shares), f"shares {':'.join(f'{s:g}' for s in config.shares)}: as set"
    if not balance.moves:
        return [1.0] * len(balance.names), "shares even: as set" if len(balance.names) > 1 else "shares: one process"
    counts = ":".join(map(str, balance.counts))
    if not balance.planned:
        return [float(n) for n in balance.counts], f"shares {counts}: even until speeds are measured"
    speeds = ", ".join(f"{name} {speed:.3g}" for name, speed in balance.planned.items())
    return [float(n) for n in balance.counts], f"shares {counts}: by the speeds known so far, {speeds} rows/s"


def local_reason(rounds: Rounds) -> str:
    how = f"rounds of {rounds.steps} steps, until measured" if rounds.measured else f"rounds of {rounds.steps} steps"
    return f"{how}; the curve depends on the cluster"


def dataset_folder(config: RunConfig, out: TextIO | None) -> Path:
    """A prepared folder as it is; anything else is prepared first (once: the next run finds it)."""
    folder = Path(config.dataset).expanduser()
    if (folder / "index.json").exists():
        return folder
    from train.data.prepare import PrepareSettings, prepare

    names = ("dataset", "model", "max_seq_length", "pack", "train_on", "eval_fraction", "max_bad")
    settings = PrepareSettings(**{name: getattr(config, name) for name in names})
    return prepare(settings, say=lambda text: print(text, file=out, flush=True) if out else None)


def model_spec(config: RunConfig, decisions: Decisions, base: str, device: str, row_length: int) -> ModelSpec:
    names = ("method", "lora_r", "lora_alpha", "lora_targets", "rslora", "seed")
    chosen = {name: value for name, value in decisions.as_dict().items() if name != "backend"}
    wanted = {name: getattr(config, name) for name in names}
    return ModelSpec(folder=base, device=device, max_seq_length=row_length, **wanted, **chosen)


def agree(config: RunConfig, decisions: Decisions, world: World, base: Path, data: dict[str, str]) -> dict[str, Any]:
    """Proof that all ranks are about to train the same thing; what identifies this run from here on."""
    math_facts = config.scoped("math") | {"precision": decisions.precision, "load_in": decisions.load_in}
    math_facts |= {"base weights": base_hash(base), **data}
    versions = {name: version(name).split("+")[0] for name in ("torch", "transformers", "peft", "numpy")}
    claims = world.gather([world.node, math_facts | config.scoped("agree") | versions])
    consistency.require_agreement(
        [(node, facts) for node, facts in claims], "before the first step", "see: make check-versions, make launch"
    )
    nodes = [node for node, _ in claims]
    names = [node if nodes.count(node) == 1 else f"{node}:{nodes[:i].count(node)}" for i, node in enumerate(nodes)]
    return {"math": math_facts, "versions": versions, "names": names}


def make_scaler(precision: str, device: str) -> Any:
    """fp16 alone needs its gradients scaled up, so that small ones do not vanish."""
    if precision != "fp16":
        return None
    scaler = torch.amp.GradScaler(torch.device(device).type)
    scaler.scale(torch.zeros(1, device=device))  # makes its scale exist before the first unscale_
    return scaler


def choose_micro_batch(
    config: RunConfig, shell: sync.Shell, parameters: list[nn.Parameter], optimizer: Any, rows: Rows, *, device: str
) -> tuple[int, str]:
    if config.micro_batch is not None:
        return config.micro_batch, "as set"
    if device == "cpu":
        choice = microbatch.on_cpu(rows.row_length)
    else:
        from train.engine.microbatch import gpu_trial

        trial, ceiling = gpu_trial(shell, parameters, optimizer, rows, device=device, ceiling=config.memory_ceiling)
        choice = microbatch.find(trial, ceiling_bytes=ceiling, most=config.rows_per_step)
    return choice.micro_batch, choice.reason


def make_board(config: RunConfig, step: int) -> Any:
    """The curves; points of steps that are made again after a resume are hidden."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput(
            "tensorboard: it is not installed here", fix="pip install tensorboard, or leave it out"
        ) from None
    return SummaryWriter(str(config.log_folder / "tensorboard"), purge_step=step + 1)


def announce(run: Run, reasons: list[str], decisions: dict[str, Any]) -> None:
    config = run.config
    weights = sum(p.numel() for p in run.parameters)
    run.log.write(
        "start",
        run=config.run,
        step=run.step,
        total_steps=run.total_steps,
        rows_per_step=config.rows_per_step,
        nodes=run.identity["names"],
        weights=weights,
        decisions=decisions,
        identity=run.identity["math"],
        reasons=reasons,
    )
    run.progress.say(
        f"{config.run}: {config.model} · {config.method} {weights / 1e6:.2f} M weights · "
        f"{config.rows_per_step} rows a step · {len(run.rows)} rows · {run.total_steps} steps · "
        f"{', '.join(run.identity['names'])}"
    )
    for reason in reasons:
        run.progress.say(f"  {reason}")
