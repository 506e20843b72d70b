"""`python -m train bench`: what the network between the nodes gives, and which exchange of gradients is faster.

    torchrun --nproc-per-node 2 -m train bench allreduce
    torchrun --nproc-per-node 2 -m train bench collectives
    torchrun --nproc-per-node 2 -m train bench sync --model tiny

allreduce: sums of several sizes. collectives: every exchange, its values checked (collectives.py). Both against the
link as it is measured in the same run (link.py). sync: whole steps of a model with each exchange
(ddp, flat) and each wire (fp32, bf16), on random rows. Start it on all nodes alike; the first one reports. Over your
machines: ./motley torchrun -m train bench collectives
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, TypedDict

from train.errors import BadInput, CheckFailed
from train.measure import link
from train.models.wrapper import text_of
from train.plan.speed.step_time import ring_bytes

DEFAULT_SIZES = "0.064,1,4,16,64"
TENSOR = 65_536
"""How many numbers a tensor has: LoRA has many small ones. The first four open the connections, and do not count."""
Found = tuple[Any, list[str]]
"""What was measured, as data and as lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=tuple(BENCHES), help="what to measure")
    parser.add_argument(
        "--sizes-mb", default=DEFAULT_SIZES, help=f"allreduce, collectives: sizes in MB (default {DEFAULT_SIZES})"
    )
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each; the median counts (default 5)")
    parser.add_argument("--wire", choices=("fp32", "bf16"), default="fp32", help="allreduce: how sums travel")
    parser.add_argument("--model", default="tiny", help="sync: the model (default tiny)")
    parser.add_argument("--max-seq-length", type=int, default=256, help="sync: tokens of a row (default 256)")
    parser.add_argument("--micro-batch", type=int, default=1, help="sync: rows at a time (default 1)")
    parser.add_argument("--micro-batches", type=int, default=2, help="sync: of them, per step (default 2)")
    parser.add_argument("--lora-r", type=int, default=16, help="sync: rank of the adapter (default 16)")
    parser.add_argument(
        "--timeout-s", type=float, default=120, help="a peer silent for so long has failed (default 120)"
    )


def main(args: argparse.Namespace) -> int:
    from train.parallel.process_group import join

    sizes = parse_sizes(args.sizes_mb)
    world = join(args.timeout_s)
    if world.size < 2:
        raise BadInput(
            "bench measures what is between processes, and this is the only one",
            fix="torchrun --nproc-per-node 2 -m train bench " + args.what,
        )
    measured, lines = BENCHES[args.what](world, sizes, args)
    if not world.speaks:
        return 0
    if args.json:
        print(json.dumps({"ok": True, "what": args.what, "nodes": world.size, "measured": measured}))
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def parse_sizes(text: str) -> list[int]:
    try:
        sizes = [int(float(part) * 1e6) // 4 * 4 for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 4:
        raise BadInput(f"sizes-mb: '{text}' is no list of sizes in MB", fix=f"for example --sizes-mb {DEFAULT_SIZES}")
    return sizes


def this_device(local_rank: int) -> str:
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    torch.cuda.set_device(local_rank)
    return f"cuda:{local_rank}"


def start_group(world: Any) -> bool:
    """Starts the group as a run of these processes would; whether that is over NCCL."""
    from train.parallel.process_group import over_nccl

    nccl, _ = over_nccl("auto", world.gather([world.node, this_device(world.local_rank) != "cpu"]))
    world.start_group(nccl=nccl)
    return nccl


def bench_collectives(world: Any, sizes: list[int], args: argparse.Namespace) -> Found:
    from train.measure import collectives

    nccl = start_group(world)
    device = this_device(world.local_rank) if nccl else "cpu"
    found = collectives.bench(world, sizes, args.repeats, device)
    backend = "nccl" if nccl else "gloo"
    return found | {"backend": backend}, collectives.text(found, world.size, backend)


def bench_allreduce(world: Any, sizes: list[int], args: argparse.Namespace) -> Found:
    """Times how `flat` exchanges so many MB of fp32 gradients, the conversion to the wire and back included."""
    import torch

    from train.parallel import gradient_exchange

    device = this_device(world.local_rank)
    start_group(world)
    link_mbit, _ = link.ring(world.gather, world.rank, link.own_address(), turns=1)
    measured = []
    for size in sizes:
        tensors = list(torch.empty(size // 4, device=device).split(TENSOR))
        gradient_exchange.all_reduce(tensors[:4], args.wire)
        seconds = []
        for _ in range(args.repeats):
            for place, tensor in enumerate(tensors):
                tensor.fill_(place % 16)  # sums are exact in bf16
            world.numbers([0.0])  # all start together
            start = time.perf_counter()
            gradient_exchange.all_reduce(tensors, args.wire)
            tensors[-1][-1].item()  # a GPU is done only now
            seconds.append(max(row[0] for row in world.numbers([time.perf_counter() - start])))
            if any(not bool((part == place % 16 * world.size).all()) for place, part in enumerate(tensors)):
                raise CheckFailed(f"all-reduce of {size / 1e6:g} MB in {args.wire}: wrong sums on rank {world.rank}")
        median = statistics.median(seconds)
        sent_mbit = ring_bytes(size, world.size) * (0.5 if args.wire == "bf16" else 1) * 8 / 1e6
        ideal = sent_mbit / link_mbit
        measured.append({"mb": size / 1e6, "seconds": median, "mbit_s": sent_mbit / median, "ideal_s": ideal})
    return measured, allreduce_text(measured, link_mbit)


def allreduce_text(measured: list[dict[str, float]], link_mbit: float) -> list[str]:
    lines = [f"{'MB':>9}{'seconds':>11}{'Mbit/s':>10}   of the link, {link_mbit:.0f} Mbit/s by plain TCP"]
    for row in measured:
        share = row["ideal_s"] / row["seconds"]
        lines.append(f"{row['mb']:9.3f}{row['seconds']:11.4f}{row['mbit_s']:10.0f}   {share:.0%}")
    return lines


class StepSeconds(TypedDict):
    """Medians over the steps of the slowest rank."""

    gradient_mb: float
    step_s: float
    blocked_s: float


class MeasuredSync(StepSeconds):
    sync: str
    wire: str


def bench_sync(world: Any, _: list[int], args: argparse.Namespace) -> Found:
    from train.models import backends
    from train.models.device import precision_of
    from train.models.model_files import model_folder
    from train.models.weights import trained_weights
    from train.parallel import gradient_exchange
    from train.recipes.sft import recipe as sft

    device = this_device(world.local_rank)
    backend = backends.get("hf")
    spec = backends.ModelSpec(
        folder=model_folder(args.model),
        device=device,
        precision=precision_of(device),
        lora_r=args.lora_r,
        max_seq_length=args.max_seq_length,
    )
    model: Any = backend.build(spec)  # before the group, as in a run
    start_group(world)
    parameters = list(trained_weights(model).values())
    module = backends.loss_module(backend, model, spec.precision, device)
    shape = args.micro_batch, args.max_seq_length
    batches = [
        sft.full_rows(*shape, text_of(model.config).vocab_size, device, seed) for seed in range(args.micro_batches)
    ]
    measured: list[MeasuredSync] = []
    for kind in ("flat", "ddp"):
        # one object for both wires: a second ddp around the same weights would exchange them twice
        exchange = gradient_exchange.make(kind, "fp32", module, parameters, device, world)
        for wire in gradient_exchange.WIRES:
            exchange.wire = wire
            medians = measure_steps(world, exchange, parameters, batches, args.repeats)
            measured.append(MeasuredSync(sync=kind, wire=wire, **medians))
    return measured, sync_text(measured)


def measure_steps(world: Any, exchange: Any, parameters: list[Any], batches: list[Any], repeats: int) -> StepSeconds:
    """Medians over the steps of the slowest rank; the first step warms up."""
    steps, blocked = [], []
    for _ in range(repeats + 1):
        world.numbers([0.0])
        start = time.perf_counter()
        timing = exchange.gradients(batches, 1.0)
        rows = world.numbers([time.perf_counter() - start, timing.blocked_s])
        steps.append(max(row[0] for row in rows))
        blocked.append(max(row[1] for row in rows))
        for parameter in parameters:
            parameter.grad = None
    gradient_bytes = 4 * sum(parameter.numel() for parameter in parameters)
    return {
        "gradient_mb": gradient_bytes / 1e6,
        "step_s": statistics.median(steps[1:]),
        "blocked_s": statistics.median(blocked[1:]),
    }


def sync_text(measured: list[MeasuredSync]) -> list[str]:
    best = min(measured, key=lambda row: row["step_s"])
    lines = [f"{measured[0]['gradient_mb']:.1f} MB of gradients", "sync  wire   step s   of it waiting and sending"]
    for row in measured:
        mark = "  ← fastest" if row is best else ""
        lines.append(f"{row['sync']:6}{row['wire']:5}{row['step_s']:9.3f}{row['blocked_s']:9.3f}{mark}")
    return lines


BENCHES: dict[str, Callable[[Any, list[int], argparse.Namespace], Found]] = {
    "allreduce": bench_allreduce,
    "collectives": bench_collectives,
    "sync": bench_sync,
}
