"""`python -m train plan`: does this model fit on these cards, and what travels per step? No GPU, no weights needed.

    python -m train plan --model llama2-7b --nodes desktop=24,tower=12,laptop=8
    python -m train plan --model llama2-70b --nodes a=24,b=24 --max-seq-length 2048 --json

    python -m train plan --model llama2-7b --speeds a=11.3,b=6.1,c=2.8 --rows-per-step 24 --links c=187

A node is NAME=GB of its card's memory, or NAME=cpu:GB of its RAM. Exit code 1 if a node does not fit.
With --speeds (rows per second of each node alone) it foretells shares, the step's time and what each node adds.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from train.errors import BadInput
from train.plan import speedup
from train.plan.catalogue import Facts, Model, model_facts, resolve_model
from train.plan.config import CHOICES, RunConfig, load_config
from train.plan.decide import Decisions, Device, decide, on_device, setup_for
from train.plan.memory import (
    GIB,
    LINEARS,
    USABLE,
    Memory,
    Setup,
    changes_that_fit,
    fits,
    largest_micro_batch,
    lora_parameters,
    memory,
    parameters,
    wire_bytes,
)
from train.plan.shares import parse_speeds

FLAGS = {"row_length": "max_seq_length", "checkpointing": "gradient_checkpointing"}
LINK_EFFICIENCY = speedup.LINK_EFFICIENCY
FEWER = ("q_proj", "v_proj")
SETTINGS = (
    "max_seq_length", "micro_batch", "load_in", "lora_r", "lora_targets", "method", "optimizer", "pack",
    "gradient_checkpointing", "backend", "precision",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodePlan:
    node: Device
    memory: Memory
    fits: bool
    micro_batch_up_to: int
    fix: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Plan:
    model: Model
    facts: Facts
    setup: Setup
    decisions: Decisions
    nodes: list[NodePlan]
    link_mbit: float

    @property
    def traffic(self) -> dict[str, int]:
        """Bytes that each node sends per step, by wire."""
        return {wire: wire_bytes(self.facts, self.setup, wire, len(self.nodes)) for wire in ("fp32", "bf16")}

    @property
    def trained_weights(self) -> int:
        setup = self.setup
        return parameters(self.facts) if setup.full else lora_parameters(self.facts, setup.lora_r, setup.lora_targets)

    @property
    def ok(self) -> bool:
        return all(node.fits for node in self.nodes)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="catalogue name, hub id or local folder")
    parser.add_argument("--nodes", default="8GB=8,12GB=12,16GB=16,24GB=24", help="NAME=GB,… or NAME=cpu:GB,…")
    parser.add_argument("--max-seq-length", type=int, default=512, help="tokens of a row (default 512)")
    parser.add_argument("--micro-batch", type=int, default=1, help="rows at a time (default 1)")
    parser.add_argument("--load-in", default="auto", help="4bit|8bit|16bit|auto (default: 16bit if it fits all GPUs)")
    parser.add_argument("--lora-r", type=int, default=16, help="rank of the adapter (default 16)")
    parser.add_argument("--lora-targets", default="all-linear", help="all-linear, or names with commas")
    parser.add_argument("--method", default="lora", help="lora (default) or full")
    parser.add_argument("--optimizer", default="adamw", help="adamw (default) or adamw8bit")
    parser.add_argument(
        "--gradient-checkpointing", default="auto", help="auto (default: on cards only), true, unsloth or false"
    )
    parser.add_argument("--backend", default="auto", help="unsloth (default on GPUs) or hf: holds all logits")
    parser.add_argument("--precision", default="auto", help="bf16|fp16|fp32|auto (default)")
    parser.add_argument("--no-pack", dest="pack", action="store_false", help="one sample per row")
    parser.add_argument("--without-bf16", default="", help="NAME,… whose GPU is too old for it")
    parser.add_argument("--without-unsloth", default="", help="NAME,… that have it not")
    parser.add_argument("--link-mbit", type=float, default=1000, help="the slowest link between nodes (default 1000)")
    parser.add_argument("--speeds", default="", help="NAME=ROWS_PER_SECOND,… of each alone: foretell the run instead")
    parser.add_argument("--links", default="", help="with --speeds: NAME=MBIT,… where a link is not --link-mbit")
    parser.add_argument("--sync", default="auto", help="with --speeds: local foretells local steps")
    parser.add_argument("--wireless", default="", help="with --speeds: NAME,… whose link is Wi-Fi")
    parser.add_argument("--fixed", default="", help="with --speeds: NAME=SECONDS,… of a step whatever its rows")
    parser.add_argument("--rows-per-step", type=int, default=16, help="with --speeds: rows of a step (default 16)")
    parser.add_argument("--wire", default="auto", help="with --speeds: fp32, bf16 or auto (default)")


def main(args: argparse.Namespace) -> int:
    model, nodes = resolve_model(args.model), parse_nodes(args)
    facts, config = model_facts(model), config_of(args)
    decisions = decide(config, nodes, facts)
    setup = setup_for(config, decisions.backend, decisions.gradient_checkpointing)
    setup = replace(setup, load_in=decisions.load_in)
    if args.speeds:
        return foretell(args, model, facts, setup)
    fitted = [plan_node(facts, setup, node) for node in nodes]
    plan = Plan(model, facts, setup, decisions, fitted, args.link_mbit)
    print(json.dumps(as_json(plan)) if args.json else "\n".join(as_text(plan)))
    return 0 if plan.ok else 1


def foretell(args: argparse.Namespace, model: Model, facts: Facts, setup: Setup) -> int:
    machines = parse_machines(args)
    weights = parameters(facts) if setup.full else lora_parameters(facts, setup.lora_r, setup.lora_targets)
    if args.rows_per_step < 1:
        raise BadInput(f"rows_per_step: {args.rows_per_step} is below 1")
    if args.wire not in ("auto", "fp32", "bf16"):
        raise BadInput(f"wire: '{args.wire}' is not one of auto|fp32|bf16")
    wire = args.wire
    if wire == "auto":  # as a run decides
        wire = "bf16" if speedup.sync_seconds(machines, 4 * weights) > speedup.SLOW_S else "fp32"
    traffic = speedup.Traffic(weights, wire, {} if setup.full else fewer_weights(facts, setup))
    if args.sync not in CHOICES["sync"]:
        raise BadInput(f"sync: '{args.sync}' is not one of {'|'.join(CHOICES['sync'])}")
    found = speedup.as_json(machines, args.rows_per_step, traffic, local=args.sync == "local")
    if args.json:
        print(json.dumps({"ok": True, "failures": [], "model": model.name, "wire": wire, **found}))
    else:
        print("\n".join([f"{model.name}: {weights / 1e6:.1f} M weights trained, {wire} wire", *speedup.as_text(found)]))
    return 0


def fewer_weights(facts: Facts, setup: Setup) -> dict[str, int]:
    """The usual smaller choice of targets, where it is smaller."""
    named = ",".join(FEWER)
    return {named: lora_parameters(facts, setup.lora_r, FEWER)} if set(setup.lora_targets) - set(FEWER) else {}


def parse_machines(args: argparse.Namespace) -> list[speedup.Machine]:
    parsed = {}
    for name in ("speeds", "links", "fixed"):
        try:
            parsed[name] = parse_speeds(getattr(args, name))
        except ValueError as error:
            raise BadInput(f"{name}: {str(error).split(' is not')[0]} is not NAME=NUMBER") from None
    speeds, links, fixed = parsed["speeds"], parsed["links"], parsed["fixed"]
    wireless = {name for name in args.wireless.split(",") if name}
    for option, names in (("links", set(links)), ("fixed", set(fixed)), ("wireless", wireless)):
        if unknown := sorted(names - set(speeds)):
            raise BadInput(f"{option}: {', '.join(unknown)} is not among the speeds", fix="name each node in --speeds")
    return [
        speedup.Machine(name, speed, links.get(name, args.link_mbit), fixed.get(name, 0.0), name in wireless)
        for name, speed in speeds.items()
    ]


def config_of(args: argparse.Namespace) -> RunConfig:
    """As `run` would be given them."""
    if not args.link_mbit > 0:
        raise BadInput(f"link_mbit: {args.link_mbit} is not above 0")
    if args.lora_targets != "all-linear" and (unknown := set(args.lora_targets.split(",")) - set(LINEARS)):
        raise BadInput(
            f"lora_targets: no layer is called {', '.join(sorted(unknown))}", fix=f"known: {' '.join(LINEARS)}"
        )
    return load_config({name: getattr(args, name) for name in SETTINGS})


def parse_nodes(args: argparse.Namespace) -> list[Device]:
    old, without = (args.without_bf16.split(","), args.without_unsloth.split(","))
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
        has = {"bf16": name not in old, "unsloth": name not in without, "bitsandbytes": device == "cuda"}
        nodes.append(Device(name, device, int(gigabytes * GIB), **has))
    return nodes


def plan_node(facts: Facts, setup: Setup, node: Device) -> NodePlan:
    own = on_device(setup, node)
    enough = fits(facts, own, node.memory_bytes)
    return NodePlan(
        node=node,
        memory=memory(facts, own),
        fits=enough,
        micro_batch_up_to=largest_micro_batch(facts, own, node.memory_bytes),
        fix=None if enough else named(changes_that_fit(facts, own, node.memory_bytes)),
    )


def named(changes: dict[str, Any] | None) -> dict[str, Any] | None:
    """As a person sets them."""
    return changes and {FLAGS.get(name, name): value for name, value in changes.items()}


def link_seconds(sent_bytes: int, link_mbit: float) -> float:
    return sent_bytes * 8 / (link_mbit * 1e6 * LINK_EFFICIENCY)


def as_text(plan: Plan) -> list[str]:
    setup, count = plan.setup, f"{plan.trained_weights / 1e6:.1f} M weights trained"
    way = "all weights are trained" if setup.full else f"LoRA r {setup.lora_r}, {count}"
    lines = [
        f"{plan.model.name}: {parameters(plan.facts) / 1e9:.2f} B parameters ({plan.model.reason})",
        f"base in {setup.load_in}, {way}, rows of {setup.row_length} tokens, {setup.micro_batch} at a time",
        *(f"  {reason}" for reason in plan.decisions.reasons),
        "",
        "node            has GB  needs GB =    base + trained + optimizer + activations + runtime",
        *(node_line(node) for node in plan.nodes),
    ]
    if len(plan.nodes) > 1:
        seconds = " · ".join(
            f"{wire}: {sent / 1e6:.0f} MB, {link_seconds(sent, plan.link_mbit):.2f} s"
            for wire, sent in plan.traffic.items()
        )
        lines += ["", f"each node sends per step at {plan.link_mbit:.0f} Mbit/s ({len(plan.nodes)} nodes): {seconds}"]
    return [*lines, f"an estimate; {1 - USABLE:.0%} of a card is left to the desktop and to fragmentation"]


def node_line(plan: NodePlan) -> str:
    m = plan.memory
    parts = (m.base, m.adapter + m.gradients, m.optimizer, m.activations + m.logits, m.runtime)
    figures = "".join(f"{part / GIB:>10.2f}" for part in parts)
    mark = f"✓ up to {plan.micro_batch_up_to} rows at a time" if plan.fits else f"✗ {fix_text(plan)}"
    return f"{plan.node.node:14}{plan.node.memory_bytes / GIB:>8.1f}{m.total / GIB:>10.2f}{figures}   {mark}"


def fix_text(plan: NodePlan) -> str:
    if plan.fix is None:
        return "no setting makes it fit; choose a smaller model, or leave this node out"
    return "would fit with " + ", ".join(f"{name}={str(value).lower()}" for name, value in plan.fix.items())


def as_json(plan: Plan) -> dict[str, Any]:
    return {
        "ok": plan.ok,
        "failures": [f"{node.node.node}: {fix_text(node)}" for node in plan.nodes if not node.fits],
        "model": plan.model.name,
        "parameters": parameters(plan.facts),
        "trained_weights": plan.trained_weights,
        "decisions": plan.decisions.as_dict(),
        "reasons": list(plan.decisions.reasons),
        "max_seq_length": plan.setup.row_length,
        "micro_batch": plan.setup.micro_batch,
        "nodes": [
            {
                "name": node.node.node,
                "device": node.node.device,
                "has_bytes": node.node.memory_bytes,
                "needs_bytes": node.memory.total,
                "parts": asdict(node.memory),
                "fits": node.fits,
                "micro_batch_up_to": node.micro_batch_up_to,
                "fix": node.fix,
            }
            for node in plan.nodes
        ],
        "wire_bytes_per_step": plan.traffic,
        "wire_seconds_per_step": {
            wire: round(link_seconds(sent, plan.link_mbit), 3) for wire, sent in plan.traffic.items()
        },
    }
