"""Verbs that most people need seldom: what is wrong, and what few have.

Standard library only, as verbs.py.
"""

from __future__ import annotations

from dataclasses import replace

from console.command_line.options import Option, Verb
from console.command_line.shared_options import FIX, INVENTORY, JSON, NODES, PHASE, PHASES, SET, VAULT, VERBOSE, YES

RARER = {
    "doctor": Verb(
        "trouble",
        "find what is wrong, with its cause and fix",
        (
            INVENTORY,
            NODES,
            FIX,
            Option("quick", "skip the checks that put the machines under load for a moment"),
            Option("full", "read every file of environment, models and data; takes minutes"),
            JSON,
        ),
        example="--fix",
        page="docs/trouble.md",
    ),
    "check-versions": Verb(
        "trouble", "compare the software of all machines", (INVENTORY, NODES, FIX, JSON), page="docs/machines.md"
    ),
    "undo": Verb(
        "trouble",
        "put back what bootstrap changed",
        (
            INVENTORY,
            replace(PHASE, choices=(*PHASES, "all"), usual=""),
            Option("all", "the same as --phase all", goes_as="phase", gives="all"),
            NODES,
        ),
        example="--phase all --nodes gpu-worker-1",
        page="docs/machines.md#what-stays-after-an-undo",
    ),
    "torchrun": Verb(
        "more",
        "run a training script of your own on all machines",
        (
            Option("run", "what to call it", "NAME"),
            NODES,
            Option("module", "a Python module of the machines, instead of a script", "NAME", also=("m",)),
            Option("script", "the script and its arguments as one word, for make", "'FILE …'"),
            VERBOSE,
            INVENTORY,
        ),
        rest="FILE …",
        example="train.py --lr 0.1",
        page="docs/training.md#a-training-script-of-your-own",
    ),
    "rent": Verb(
        "more",
        "rent a machine: shows the price, asks, returns it",
        (
            Option("gpu", "its graphics card, as the market calls it", "'RTX 4090'"),
            Option("hours", "the longest time", "N", default=0.0),
            Option("max", "the highest price for an hour, in dollars, with the fee", "N", default=0.0, goes_as="usd_h"),
            Option("model", "what you will train there: cards that are too small are left out", "NAME"),
            Option("keeper", "a machine of inventory/homelab that returns it if this one sleeps", "NODE"),
            Option("timer", "a systemd timer of yours returns it after a sleep or restart; it keeps the key in a file"),
            replace(SET, help="other variables of that launch"),
            VAULT,
            YES,
            replace(INVENTORY, help="where rented machines are described", default="inventory/rented"),
        ),
        example="--gpu 'RTX 4090' --hours 3 --max 0.50",
        page="docs/renting.md",
    ),
    "rented": Verb("more", "show what is rented, and its cost so far", (VAULT, JSON), page="docs/renting.md"),
    "give-back": Verb("more", "return the rented machine now; shows the bill", (VAULT, YES), page="docs/renting.md"),
    "slurm-conf": Verb(
        "more",
        "write slurm.conf for your machines; installs nothing",
        (INVENTORY, Option("to", "write the files to this folder", "FOLDER", usual="print them")),
        example="--to ./slurm",
        page="docs/elsewhere.md",
    ),
    "notify-test": Verb(
        "more", "send a test notification to motley_notify", (INVENTORY, VAULT), page="docs/training.md"
    ),
}
