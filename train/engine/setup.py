"""Setting a run up, in an order that matters: facts are exchanged and choices made first, the model is built before the
process group, and what is to be trained is proven to be the same everywhere before the first step."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO, cast

import torch

from train import recipes
from train.data import left_out, parts
from train.data.rows import Rows
from train.engine import consistency, early_stop, kept_decisions, micro_batch_search, pipe_members, resume
from train.engine.dealt import may_deal
from train.engine.loop import Run
from train.engine.optimizer import make_optimizer, why_on_cpu
from train.engine.reporter import Reporter, doing
from train.errors import BadInput, PeerFailed
from train.models import backends, dropout
from train.models.backends import LossModule
from train.models.device import look
from train.models.stream import stream_of
from train.models.weights import Trained, trained_weights
from train.parallel import sync
from train.parallel.diloco import DiLoCo
from train.parallel.pipeline import PipeSync, Stage
from train.parallel.process_group import World, over_nccl
from train.parallel.row_takers import RowTakers
from train.parallel.shares import Balance
from train.parallel.strategy import Strategy
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts
from train.plan.placement.decisions import Decisions
from train.plan.placement.fit import placed, setup_for
from train.plan.placement.held_streamed_or_cut import choose_on_devices
from train.plan.placement.micro_batch import on_cpu
from train.plan.settings.config import RunConfig, SftConfig
from train.plan.speed.row_split import parse_speeds
from train.proof.admit import require_exact
from train.recipes import Recipe
from train.recipes.sft import recipe as sft
from train.runlog import paths
from train.runlog.events import EventLog, ProgressLine


def set_up(
    config: RunConfig,
    world: World,
    out: TextIO | None,
    recipe: Recipe | None = None,
    kept: Run | None = None,
    *,
    waits: bool = False,
) -> Run:
    """`kept`: of this process's last group, whose rows, model and optimizer it keeps. All ranks exchange the same.
    `waits`: alone, for a group that it will be in; nothing begins."""
    recipe = recipe or (kept.recipe if kept else recipes.of(config))
    base = recipe.start(config, partial(say, out))
    settled = settle(config, recipe, world, base)
    config, decisions, devices, known = settled.config, settled.decisions, settled.devices, settled.known
    device = made_current(devices[world.rank].device)
    backends.get(decisions.backend)  # unsloth must come before transformers, which preparing rows may import
    rows, held_out = (kept.rows, kept.held_out) if kept else verified_rows(recipe, config, world, out)
    trains_on = kept.trains_on if kept else recipe.identity(config, base)
    trains_on |= parts.identity(rows, held_out)
    left_out.require_held_out(config, len(held_out))
    facts, names = agree(config, decisions, world, trains_on)
    workers, why_cut = arrange(settled, world, base, names, rows, held_out)
    nccl, why_nccl = over_nccl(config.exchange, [(found.name, found.is_gpu and not workers.cut) for found in devices])
    why_stepping = why_on_cpu(devices, config.optimizer)
    mixed = bool(why_stepping) or workers.cut
    if waits:
        mixed = known.get(kept_decisions.STEPPING, kept_decisions.stepping(mixed)) == kept_decisions.stepping(True)
    built = decisions.as_dict() | {"device": device, ON_PROCESSOR: mixed}
    if kept:
        require_kept(built, kept.built)
        module, trained, stage = kept.module, kept.trained, None
        world.start_group(nccl=nccl)
    else:
        module, stage = build(recipe, config, decisions, base, device, rows.row_length, workers, world)
        world.start_group(nccl=nccl)
        trained = make_trained(config, recipe, module, decisions.precision, device, on_cpu=mixed)
        freeze(world)
    wire, why_wire = sync.choose_wire(config.wire, world, trained.parameters)
    micro_batch_name = micro_batch_name_of(config, world, decisions, device, rows.row_length)
    if workers.cut:
        micro_batch_name = "pipe_micro_batch"
        micro_batch, why_micro = pipe_members.micro_batch(config, world, workers, rows.row_length, known)
    elif before := known.get(micro_batch_name):
        micro_batch, why_micro = int(before), "as it was found or fell to in this run"
    elif kept:
        micro_batch, why_micro = kept.micro_batch, "as before"
    else:
        micro_batch, why_micro = choose_micro_batch(config, recipe, module, trained, rows.row_length, world.size)
    why_held = []
    if settled.may_hold and not kept and known.get(micro_batch_name + kept_decisions.ALL_STREAMED) is None:
        why_held = hold_layers(config, recipe, module, trained, rows.row_length, micro_batch)
    total_steps = config.steps_over(parts.epoch_of(rows))
    strategy = make_strategy(config, world, module, trained, stage, workers, wire=wire, total_steps=total_steps)
    run = Run(
        config=config,
        recipe=recipe,
        world=world,
        workers=workers,
        device=device,
        math=facts | consistency.same_first_weights(world, module.model),
        built=built,
        trains_on=trains_on,
        rows=rows,
        held_out=held_out,
        module=module,
        total_steps=total_steps,
        warm_up=config.warm_up(total_steps),
        reporter=make_reporter(config, world, out, total_steps),
        strategy=strategy,
        trained=trained,
        balance=make_balance(config, workers.labels, deals=may_deal(config, rows, workers)),
        micro_batch=micro_batch,
        micro_batch_name=micro_batch_name,
    )
    why_cut += [why for why in (why_stepping, why_nccl) if why]
    why_measured = [*why_cut, f"micro-batch {micro_batch}: {why_micro}", *why_held, f"wire {wire}: {why_wire}"]
    if not waits:
        begin(run, decisions, wire, settled.why_decided, [*settled.why_placed, *why_measured], kept)
    return run


ON_PROCESSOR = "steps on the processor"


class NotKeptError(PeerFailed):
    """What this process keeps does not fit the new group: it must start again."""


def require_kept(built: Mapping[str, object], before: Mapping[str, object]) -> None:
    if changed := [name for name, value in built.items() if before[name] != value]:
        raise NotKeptError(f"{', '.join(changed)}: another one in this group, and the process begins anew")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """What is decided before anything is loaded; the same on all ranks, but for where this one's base is."""

    config: RunConfig
    decisions: Decisions
    devices: list[Device]
    """The device of each rank."""
    shape: AnyFacts | None
    known: dict[str, str]
    """What an earlier generation has decided."""
    may_hold: bool
    """Whether the card may hold the layers of a streamed base for which it has room."""
    why_decided: list[str]
    why_placed: list[str]


def settle(config: RunConfig, recipe: Recipe, world: World, base: Path) -> Settled:
    config, why_decided, known = kept_decisions.obey(config, world.gather(kept_decisions.read(config)))
    devices = [Device(**f) for f in world.gather(asdict(look(config, world.node, world.local_rank, base)))]
    shape = recipe.shape(config, base)
    found = choose_on_devices(config, devices, shape)
    own = devices[world.rank]
    may_hold = own.is_gpu and "stream" not in (own.weights, config.holding.weights)
    config, why_placed = placed(config, found, world.rank)
    return Settled(
        config=config,
        decisions=found.decisions,
        devices=devices,
        shape=shape,
        known=known,
        may_hold=may_hold,
        why_decided=why_decided,
        why_placed=why_placed,
    )


def arrange(settled: Settled, world: World, base: Path, names: list[str], *rows: Rows) -> tuple[RowTakers, list[str]]:
    """The workers, each of ranks that hold the model together, and why they are so; of a model that is proven."""
    config, decisions = settled.config, settled.decisions
    why = require_exact(config, decisions, base, rows)
    setup = setup_for(config, decisions.gradient_checkpointing, decisions.load_in)
    cluster = pipe_members.Cluster(
        names=names, devices=settled.devices, facts=settled.shape, setup=setup, known=settled.known
    )
    found, why_cut = pipe_members.arrange(config, decisions, world, base, cluster)
    check_shares(config, len(found.groups))
    return found, [*why, *why_cut]


def make_reporter(config: RunConfig, world: World, out: TextIO | None, total_steps: int) -> Reporter:
    log = EventLog(config.log_folder / paths.EVENTS if world.writes else None)
    return Reporter(log, ProgressLine(out, total_steps))


def made_current(device: str) -> str:
    if device != "cpu":
        torch.cuda.set_device(device)
    return device


def verified_rows(recipe: Recipe, config: RunConfig, world: World, out: TextIO | None) -> tuple[Rows, Rows]:
    """What is trained and what is held out."""
    found = recipe.rows(config, partial(say, out))
    if world.writes:  # one reading a node; a page that was lost with the power would train in silence
        for rows in found:
            rows.verify()
    return found


def build(  # noqa: PLR0917 - as recipe.build
    recipe: Recipe, config: RunConfig, decisions: Decisions, base: Any, device: str, row_length: int,
    workers: RowTakers, world: World,
) -> tuple[LossModule, Stage | None]:  # fmt: skip
    """The model, or this rank's layers of it; with it, what a recipe has beside the run."""
    if (own := workers.layers[world.rank]) is None:
        whole = recipe.build(config, decisions, base, device, row_length)
        if maker := recipes.making(recipe):
            maker.ready(partial(doing, config, world))
        return whole, None
    module = sft.build(cast(SftConfig, config), decisions, base, device, row_length, layers=own)
    stage = Stage(module.model, workers.group(world.rank), world.rank, decisions.precision, device)
    return LossModule(stage.model, stage.loss_sum), stage


def say(out: TextIO | None, text: str) -> None:
    if out:
        print(text, file=out, flush=True)


def device_of(trained: Trained) -> str:
    return str(trained.parameters[0].device)


def begin(  # noqa: PLR0917 - what set_up found
    run: Run, decisions: Decisions, wire: str, why_decided: list[str], why_measured: list[str], kept: Run | None
) -> None:
    """Begins at the step where the run resumes, with what was decided kept and announced."""
    config, world = run.config, run.world
    by_trial = not run.workers.cut and config.micro_batch is None and run.device != "cpu"
    found = world.gather({run.micro_batch_name: str(run.micro_batch)} if by_trial else {})
    own = f"{kept_decisions.MICRO_BATCH}{world.node}:"
    micro_batches = {name: value for one in found for name, value in one.items() if name.startswith(own)}
    why_start = resume.bring_up_to_date(run, kept if kept and kept.step else None)
    if world.speaks and config.tensorboard:
        run.reporter.open_board(config, run.step)
    if world.writes:
        measured = {"wire": wire} if world.size > 1 else {}
        measured |= {"cut_proven": "true"} if run.workers.cut else {}
        measured |= micro_batches | {kept_decisions.STEPPING: kept_decisions.stepping(run.built[ON_PROCESSOR])}
        kept_decisions.keep(config, **decisions.as_dict(), **measured)
    sync_name = run.strategy.kind if run.workers.cut else config.sync
    made_now = [f"{what}: {why}" for what, why in decisions.whys.items() if why] if why_decided else decisions.reasons
    reasons = [*why_decided, *made_now, *why_measured, f"sync {sync_name}: {run.strategy.why}"]
    reasons += [reason for reason in (config.rate_reason, early_stop.why(config, run.total_steps)) if reason]
    reasons += config.length_reasons(parts.epoch_of(run.rows))
    reasons += [*dropout.why(run.module.model), *left_out.words_at(run.rows.folder)]
    announce(run, [*reasons, run.balance.why, why_start], decisions.as_dict() | {"wire": wire})


def freeze(world: World) -> None:
    """A process that may stay keeps libraries and model: where it leaves a group, only what that has made is looked
    through for what hangs on the weights."""
    if world.words:
        gc.collect()
        gc.freeze()


def make_trained(
    config: RunConfig, recipe: Recipe, module: LossModule, precision: str, device: str, *, on_cpu: bool
) -> Trained:
    """The trained weights, sorted by name, and their optimizer: all ranks and files have the weights in one order."""
    named = dict(sorted(trained_weights(module.model).items()))
    optimizer = make_optimizer(config, recipe.optimized(config, named), on_cpu=on_cpu and config.sync != "local")
    return Trained(named, optimizer, scaler=make_scaler(precision, device), grad_clip=config.grad_clip)


def make_strategy(  # noqa: PLR0917 - the whole set-up
    config: RunConfig,
    world: World,
    module: LossModule,
    trained: Trained,
    stage: Stage | None,
    workers: RowTakers,
    *,
    wire: str,
    total_steps: int,
) -> Strategy:
    if workers.cut:
        return PipeSync(stage, module, trained, workers, wire)
    if config.sync != "local":
        return sync.ExactSync(config.sync, wire, module, trained, world)
    device = device_of(trained)
    return DiLoCo(trained, module, world, device, config, total_steps=total_steps)


def make_balance(config: RunConfig, names: list[str], *, deals: bool) -> Balance:
    speeds, moves = parse_speeds(config.speeds), config.balance == "auto"
    return Balance(names, config.rows_per_step, known=speeds, moves=moves, fixed=config.shares, deals=deals)


def choose_micro_batch(  # noqa: PLR0917 - what a step is made of
    config: RunConfig, recipe: Recipe, module: LossModule, trained: Trained, row_length: int, ranks: int
) -> tuple[int, str]:
    if config.micro_batch is not None:
        return config.micro_batch, "as set"
    if device_of(trained) == "cpu":
        return on_cpu(row_length * config.lines_of_row, config.ROW_UNIT)
    trial, ceiling = trial_of(config, recipe, module, trained, row_length)
    even = -(-config.rows_per_step // ranks)  # beyond it, room on the card is better used for layers
    most = even if stream_of(module.model) else config.rows_per_step
    return micro_batch_search.find(trial, ceiling_bytes=ceiling, most=most)


def hold_layers(  # noqa: PLR0917 - what a step is made of
    config: RunConfig, recipe: Recipe, module: LossModule, trained: Trained, row_length: int, micro_batch: int
) -> list[str]:
    if not (stream := stream_of(module.model)):
        return []
    trial, ceiling = trial_of(config, recipe, module, trained, row_length)
    held = stream.hold(micro_batch_search.room(trial, micro_batch, ceiling_bytes=ceiling))
    return [f"{held} of {len(stream.layers)} layers stay on the card: they fit beside {micro_batch} rows at a time"]


def trial_of(
    config: RunConfig, recipe: Recipe, module: LossModule, trained: Trained, row_length: int
) -> tuple[micro_batch_search.Trial, int]:
    device = device_of(trained)
    full_rows = partial(recipe.full_rows, length=row_length, vocabulary=2, device=device)
    return micro_batch_search.gpu_trial(module, trained, full_rows, device=device, ceiling=config.memory_ceiling)


def micro_batch_name_of(config: RunConfig, world: World, decisions: Decisions, device: str, row_length: int) -> str:
    card = device if device == "cpu" else torch.cuda.get_device_name(device)
    on = (decisions.gradient_checkpointing, config.memory_ceiling, config.micro_batch or "auto")
    rows = f"{config.rows_per_step}x{row_length}"
    return f"{kept_decisions.MICRO_BATCH}{world.node}:{world.local_rank} {card} {rows} {' '.join(map(str, on))}"


def check_shares(config: RunConfig, ranks: int) -> None:
    if config.shares is not None and len(config.shares) != ranks:
        raise BadInput(
            f"shares: {len(config.shares)} numbers for {ranks} processes", fix="give one number a process, 0 for none"
        )


def agree(
    config: RunConfig, decisions: Decisions, world: World, trains_on: dict[str, str]
) -> tuple[dict[str, object], list[str]]:
    """Proof that all ranks are about to train the same thing: what decides the loss curve, and the ranks' names."""
    math_facts = config.scoped("math") | {"precision": decisions.precision, "load_in": decisions.load_in}
    math_facts |= trains_on
    versions = {name: version(name).split("+")[0] for name in ("torch", "transformers", "peft", "numpy")}
    claims = world.gather([world.node, math_facts | config.scoped("agree") | versions])
    fix = "see: ./motley check-versions, ./motley launch"
    consistency.require_agreement(claims, "before the first step", fix)
    nodes = [node for node, _ in claims]
    names = [node if nodes.count(node) == 1 else f"{node}:{nodes[:i].count(node)}" for i, node in enumerate(nodes)]
    return math_facts, names


def make_scaler(precision: str, device: str) -> Any:
    """The scaler of gradients, which fp16 alone needs, so that small ones do not vanish; else None."""
    if precision != "fp16":
        return None
    scaler = torch.amp.GradScaler(torch.device(device).type)
    scaler.scale(torch.zeros(1, device=device))  # makes its scale exist before the first unscale_
    return scaler


def announce(run: Run, reasons: list[str], decisions: Mapping[str, str]) -> None:
    config, names = run.config, list(run.workers.names)
    weights = sum(p.numel() for p in run.trained.parameters)
    run.reporter.write(
        "start",
        run=config.run,
        step=run.step,
        total_steps=run.total_steps,
        rows_per_step=config.rows_per_step,
        rows=len(run.rows),
        nodes=names,
        weights=weights,
        decisions=decisions,
        identity=run.math,
        reasons=reasons,
    )
    run.reporter.say(
        f"{config.run}: {config.subject} {weights / 1e6:.2f} M weights · "
        f"{config.rows_per_step} rows a step · {len(run.rows)} rows · {run.total_steps} steps · {', '.join(names)}"
    )
    for reason in reasons:
        run.reporter.say(f"  {reason}")
