"""`python -m train plan`: does this model fit on these cards, and what travels per step? No GPU, no weights needed.

    python -m train plan --model llama2-7b --nodes desktop=24,tower=12,laptop=8
    python -m train plan --model llama2-70b --nodes a=24,b=24 --max-seq-length 2048 --json

    python -m train plan --model llama2-7b --speeds a=11.3,b=6.1,c=2.8 --rows-per-step 24 --links c=187
    python -m train plan --recipe pretrain --nodes desktop=24,laptop=8
    python -m train plan --recipe images --model resnet50 --image-size 224 --nodes desktop=24,laptop=8

A node is NAME=GB of its card's memory, or NAME=cpu:GB of its RAM. Exit code 1 if a node does not fit.
With --speeds (rows per second of each node alone) it predicts shares, the step's time and what each node adds.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from train.errors import BadInput
from train.plan.estimate import compare_placements, sizes
from train.plan.launch.auto_settings import choose
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import Facts, Model
from train.plan.model.catalogue import config_of as model_config
from train.plan.model.memory import GIB, USABLE, parameters
from train.plan.placement import fit
from train.plan.placement.pipeline_placement import bubbles
from train.plan.placement.streaming import lacks
from train.plan.settings import own_recipe
from train.plan.settings.config import RunConfig, add_settings, config_of
from train.plan.speed import speedup
from train.plan.speed.row_split import parse_speeds

COUNTS = (
    "recipe", "size", "hidden_size", "layers", "heads", "kv_heads", "intermediate_size", "tie_embeddings", "tokenizer",
    "vocab_size", "tokens_per_step", "image_size", "width", "max_seq_length", "micro_batch", "load_in", "lora_r",
    "lora_targets", "method", "weights", "optimizer", "gradient_checkpointing", "backend", "precision", "rows_per_step",
    "max_steps", "sync", "wire", "pipes",
)  # fmt: skip
"""Settings that memory depends on, or the prediction: the last four."""


PLENTY_GB = 1 << 20
UNKNOWN = "how many weights it has, what memory it needs and what travels shows only when the model is built"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=argparse.SUPPRESS, help="catalogue name, hub id or local folder")
    parser.add_argument("--nodes", default="8GB=8,12GB=12,16GB=16,24GB=24", help="NAME=GB,… or NAME=cpu:GB,…")
    add_settings(parser, COUNTS)
    parser.add_argument("--main-memory", default="", help="NAME=GB,… beside a graphics card; where unknown, plenty")
    parser.add_argument("--tflops", default="", help="NAME=TFLOPS,… that each computes with in training: adds tokens/s")
    parser.add_argument("--without-bf16", default="", help="NAME,… whose GPU is too old for it")
    parser.add_argument("--without-unsloth", default="", help="NAME,… that have it not")
    parser.add_argument("--link-mbit", type=float, default=1000, help="the slowest link between nodes (default 1000)")
    parser.add_argument("--speeds", default="", help="NAME=ROWS_PER_SECOND,… of each alone: predict the run instead")
    parser.add_argument("--links", default="", help="with --speeds: NAME=MBIT,… where a link is not --link-mbit")
    parser.add_argument("--wireless", default="", help="with --speeds: NAME,… whose link is Wi-Fi")
    parser.add_argument("--fixed", default="", help="with --speeds: NAME=SECONDS,… of a step whatever its rows")


def main(args: argparse.Namespace) -> int:
    config, nodes = config_of(args), parse_nodes(args)
    if "model" in config.REQUIRED and not hasattr(args, "model"):
        raise BadInput("--model is missing", fix="name one, such as llama2-7b; or --recipe pretrain for a new one")
    model = config.start_model()
    facts = None if own_recipe.is_file(config.recipe) else model.facts or config.facts_of(*model_config(model))
    if not args.link_mbit > 0:
        raise BadInput(f"link_mbit: {args.link_mbit} is not above 0")
    config, why_cut = fit.with_pipes(config, nodes, facts)
    about = {"model": model.name, "facts": facts, "mbit": args.link_mbit, "why_cut": why_cut}
    found = fit.fit(config, choose(config, nodes, facts), nodes, **about)
    if args.speeds:
        return predict(args, found, config)
    others = sizes.sizes(config, found, (), {})
    if args.json:
        print(json.dumps(fit.as_json(found) | ({"sizes": others} if others else {})))
    else:
        text = [*as_text(found, model, config.ROW_UNIT), *sizes.as_text(others, "--")]
        print("\n".join([*text, *ways_of(found, config, nodes, args)]))
    return 0 if found.ok else 1


def ways_of(found: fit.Fit, config: RunConfig, nodes: list[Device], args: argparse.Namespace) -> list[str]:
    """The ways to train a base that does not fit all nodes, beside one another."""
    if not isinstance(found.facts, Facts) or found.setup.full or len(nodes) < 2:
        return []
    if all(node.fits and node.place.weights == "gpu" for node in found.nodes) and not found.cut:
        return []
    try:
        tflops = parse_speeds(args.tflops)
    except ValueError as error:
        raise BadInput(f"tflops: {str(error).split(' is not')[0]} is not NAME=NUMBER") from None
    if tflops and (missing := sorted({node.name for node in nodes} ^ set(tflops))):
        raise BadInput(f"tflops: {', '.join(missing)}: name exactly the nodes", fix="one for each of --nodes")
    options = compare_placements.ways(config, found.facts, found.setup, nodes, mbit=args.link_mbit, tflops=tflops)
    lines = ["", *compare_placements.as_text(options, nodes, compare_placements.source_gb(found.facts, found.setup))]
    if found.cut:
        lines += [f"pipes {found.pipes}: {found.cut.why}", *bubbles(found.pipes, config.rows_per_step)]
    return [*lines, *([found.lacking] if found.lacking else [])]


def predict(args: argparse.Namespace, found: fit.Fit, config: RunConfig) -> int:
    machines = parse_machines(args)
    predicted = fit.predict(found, machines, config)
    others = sizes.sizes(config, found, machines, predicted)
    if args.json:
        known = {"sizes": others} if others else {}
        print(json.dumps({"ok": True, "failures": [], "model": found.model, **predicted, **known}))
    else:
        about = f"{found.trained_weights / 1e6:.1f} M weights trained, {predicted['wire']} wire"
        head = f"{found.model}: {about if found.facts else UNKNOWN}"
        print("\n".join([head, *speedup.as_text(predicted), *sizes.as_text(others, "--")]))
    return 0


def parse_machines(args: argparse.Namespace) -> list[speedup.Machine]:
    speeds = parse_speeds(args.speeds)
    try:
        links, fixed = parse_speeds(args.links), parse_speeds(args.fixed)
    except ValueError as error:
        raise BadInput(f"links, fixed: {str(error).split(' is not')[0]} is not NAME=NUMBER") from None
    wireless = {name for name in args.wireless.split(",") if name}
    for option, names in (("links", set(links)), ("fixed", set(fixed)), ("wireless", wireless)):
        if unknown := sorted(names - set(speeds)):
            raise BadInput(f"{option}: {', '.join(unknown)} is not among the speeds", fix="name each node in --speeds")
    return [
        speedup.Machine(name, speed, links.get(name, args.link_mbit), fixed.get(name, 0.0), name in wireless)
        for name, speed in speeds.items()
    ]


def parse_nodes(args: argparse.Namespace) -> list[Device]:
    old, without = (args.without_bf16.split(","), args.without_unsloth.split(","))
    try:
        main = parse_speeds(args.main_memory)
    except ValueError as error:
        raise BadInput(f"main_memory: {str(error).split(' is not')[0]} is not NAME=GB") from None
    nodes = []
    for part in args.nodes.split(","):
        name, _, size = part.strip().partition("=")
        try:
            gigabytes = float(size.removeprefix("cpu:"))
        except ValueError:
            gigabytes = 0
        if not name or not 0 < gigabytes < 1e5:
            raise BadInput(
                f"nodes: '{part}' is not NAME=GB or NAME=cpu:GB", fix="for example --nodes desktop=24,laptop=8"
            )
        device = "cpu" if size.startswith("cpu:") else "cuda"
        # A node that computes on its CPU has the set without bitsandbytes.
        has: dict[str, Any] = {
            "bf16": name not in old,
            "unsloth": name not in without,
            "bitsandbytes": device == "cuda",
        }
        beside = int(main.get(name, PLENTY_GB) * GIB)
        nodes.append(Device(name, device, int(gigabytes * GIB), main_bytes=beside, **has))
    if unknown := sorted(main.keys() - {node.name for node in nodes}):
        raise BadInput(f"main_memory: {', '.join(unknown)} is not among the nodes", fix="name it in --nodes")
    return nodes


def as_text(found: fit.Fit, model: Model, unit: str = "tokens") -> list[str]:
    if found.facts is None:
        return [f"{found.model}: {UNKNOWN}"]
    setup, count = found.setup, f"{found.trained_weights / 1e6:.1f} M weights trained"
    trained = "all weights are trained" if setup.full else f"LoRA r {setup.lora_r}, {count}"
    base = "" if model.source == "new" or setup.full else f"base in {setup.load_in}, "
    lines = [
        f"{found.model}: {counted(parameters(found.facts))} ({model.reason})",
        f"{base}{trained}, rows of {setup.row_length} {unit}, {setup.micro_batch} at a time",
        *(f"  {reason}" for reason in found.decisions.reasons),
        "",
        "node            has GB  needs GB =    base + trained + optimizer + activations + runtime",
        *(node_line(node) for node in found.nodes),
    ]
    if len(found.nodes) > 1:
        seconds = " · ".join(
            f"{wire}: {sent / 1e6:.0f} MB, {found.seconds[wire]:.2f} s" for wire, sent in found.traffic.items()
        )
        lines += ["", f"each node sends per step at {found.link_mbit:.0f} Mbit/s ({len(found.nodes)} nodes): {seconds}"]
    return [*lines, f"an estimate; {1 - USABLE:.0%} of a card is left to the desktop and to fragmentation"]


def counted(count: int) -> str:
    return f"{count / 1e9:.2f} B parameters" if count >= 1e8 else f"{count / 1e6:.1f} M parameters"


def node_line(node: fit.NodeFit) -> str:
    m = node.memory
    parts = (m.base, m.adapter + m.gradients, m.optimizer, m.activations + m.logits, m.runtime)
    figures = "".join(f"{part / GIB:>10.2f}" for part in parts)
    mark = f"✓ up to {node.micro_batch_up_to} rows at a time" if node.fits else f"✗ {node.fix_text}{lacks(node.place)}"
    mark += f", streams: {node.place.why}" if node.place.why else ""
    return f"{node.device.name:14}{node.device.memory_bytes / GIB:>8.1f}{m.total / GIB:>10.2f}{figures}   {mark}"
