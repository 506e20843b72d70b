"""What is settled alike on all ranks before a model is loaded: decisions, what is trained on, and who computes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Self, TextIO

from train.data import left_out_in_words, mix_data_sets
from train.data.rows import Rows
from train.engine import consistency, kept_decisions, pipe_members
from train.engine.loop import Run
from train.engine.make_optimizer import why_on_cpu
from train.errors import BadInput
from train.models.device import look
from train.parallel.process_group import World, over_nccl
from train.parallel.row_takers import RowTakers
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts
from train.plan.placement.decisions import Decisions
from train.plan.placement.first_way_that_fits import choose_on_devices
from train.plan.placement.fit import placed, setup_for
from train.plan.settings.read_settings import RunConfig
from train.proof.admit_model import require_exact
from train.recipes import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """What is decided; the same on all ranks, but for which of them this is and where its base lies."""

    config: RunConfig
    recipe: Recipe
    world: World
    base: Path
    decisions: Decisions
    devices: list[Device]
    """The device of each rank."""
    shape: AnyFacts | None
    decided_before: dict[str, str]
    """What an earlier generation has decided."""
    may_hold: bool
    """Whether the card may hold the layers of a streamed base for which it has room."""
    why_decided: list[str]
    why_placed: list[str]

    @property
    def device(self) -> str:
        return self.devices[self.world.rank].device


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """What the run trains on, read and verified."""

    rows: Rows
    held_out: Rows
    hashes: dict[str, str]
    """What base and rows are known by."""

    @classmethod
    def of_run(cls, kept: Run) -> Self:
        return cls(rows=kept.rows, held_out=kept.held_out, hashes=kept.trains_on)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Who computes what, and where."""

    workers: RowTakers
    nccl: bool
    """Whether ranks exchange over NCCL."""
    on_processor: bool
    """Whether all ranks step on their processors."""
    why: list[str]


def say(out: TextIO | None, text: str) -> None:
    if out:
        print(text, file=out, flush=True)


def settle(config: RunConfig, recipe: Recipe, world: World, base: Path) -> Settled:
    config, why_decided, decided_before = kept_decisions.obey(config, world.gather(kept_decisions.read(config)))
    devices = [Device(**facts) for facts in world.gather(asdict(look(config, world.node, world.local_rank, base)))]
    shape = recipe.shape(config, base)
    fit = choose_on_devices(config, devices, shape)
    device = devices[world.rank]
    may_hold = device.is_gpu and "stream" not in (device.weights, config.holding.weights)
    config, why_placed = placed(config, fit, world.rank)
    return Settled(
        config=config,
        recipe=recipe,
        world=world,
        base=base,
        decisions=fit.decisions,
        devices=devices,
        shape=shape,
        decided_before=decided_before,
        may_hold=may_hold,
        why_decided=why_decided,
        why_placed=why_placed,
    )


def read_rows(settled: Settled, out: TextIO | None) -> Data:
    config = settled.config
    rows, held_out = settled.recipe.rows(config, partial(say, out))
    if settled.world.writes:  # one reading a node; a page that was lost with the power would train in silence
        rows.verify()
        held_out.verify()
    hashes = settled.recipe.identity(config, settled.base) | mix_data_sets.identity(rows, held_out)
    left_out_in_words.require_held_out(config, len(held_out))
    return Data(rows=rows, held_out=held_out, hashes=hashes)


def agree(settled: Settled, data: Data) -> tuple[dict[str, object], list[str]]:
    """Proof that all ranks are about to train the same thing: what decides the loss curve, and the ranks' names."""
    config, decisions, world = settled.config, settled.decisions, settled.world
    identity = config.scoped("math") | {"precision": decisions.precision, "load_in": decisions.load_in} | data.hashes
    versions = {name: version(name).split("+")[0] for name in ("torch", "transformers", "peft", "numpy")}
    claims = world.gather([world.node, identity | config.scoped("agree") | versions])
    fix = "see: ./motley check-versions, ./motley launch"
    consistency.require_agreement(claims, "before the first step", fix)
    nodes = [node for node, _ in claims]
    names = [node if nodes.count(node) == 1 else f"{node}:{nodes[:i].count(node)}" for i, node in enumerate(nodes)]
    return identity, names


def arrange(settled: Settled, names: list[str], data: Data, *, waits: bool) -> Layout:
    """The workers, each of ranks that hold the model together, and how they exchange and step; of a model that is
    proven. `waits`: alone, for a group of which it knows only how that one stepped."""
    config, decisions, devices = settled.config, settled.decisions, settled.devices
    why = require_exact(config, decisions, settled.base, [data.rows, data.held_out])
    cluster = pipe_members.Cluster(
        names=names,
        devices=devices,
        facts=settled.shape,
        setup=setup_for(config, decisions.gradient_checkpointing, decisions.load_in),
        decided_before=settled.decided_before,
    )
    workers, why_cut = pipe_members.arrange(config, decisions, settled.world, settled.base, cluster)
    check_shares(config, len(workers.groups))
    nccl, why_nccl = over_nccl(
        config.exchange, [(device.name, device.is_gpu and not workers.cut) for device in devices]
    )
    why_stepping = why_on_cpu(devices, config.optimizer)
    on_processor = bool(why_stepping) or workers.cut
    if waits:
        stepped = settled.decided_before.get(kept_decisions.STEPPING, kept_decisions.stepping(on_processor))
        on_processor = stepped == kept_decisions.stepping(True)
    why += [*why_cut, *filter(None, [why_stepping, why_nccl])]
    return Layout(workers=workers, nccl=nccl, on_processor=on_processor, why=why)


def check_shares(config: RunConfig, ranks: int) -> None:
    if config.shares is not None and len(config.shares) != ranks:
        raise BadInput(
            f"shares: {len(config.shares)} numbers for {ranks} processes", fix="give one number a process, 0 for none"
        )
