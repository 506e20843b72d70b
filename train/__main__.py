"""`python -m train COMMAND`: what a node can do. Each command's module is imported only when it is asked for.

Exit codes: 0 done, 1 a check failed, 2 bad input (nothing was started), 143 stopped by a signal after saving, 70 an
agent failed itself.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from train.cluster.attach_to_agent import attach_to_agent
from train.errors import BadInput, CheckFailed, Gated, first_line
from train.failures import classify_failure, report_to_agent
from train.plan.settings.read_settings import (
    SETTINGS,
    Settings,
    add_own_settings,
    names_of,
    nearest,
    read_yaml,
    recipe_of,
)
from train.safe_stdio import may_be_unread

COMMANDS = {
    "run": ("train.engine.run", "train an adapter, alone or as one of several processes"),
    "agent": ("train.cluster.agent", "keep a run running on this node, together with the other nodes' agents"),
    "slurm": ("train.cluster.slurm_job_nodes", "this node's part of a job of Slurm"),
    "kubernetes": ("train.cluster.kubernetes", "this pod's part of a Job of Kubernetes"),
    "torchrun": ("train.cluster.torchrun", "this node's part of a script of your own, by plain torchrun"),
    "warm": ("train.cluster.forkserver", "read the libraries once, for workers that begin at once (the agent's)"),
    "prepare": ("train.data.prepare", "turn a dataset into packed rows, once"),
    "selftest": ("train.measure.selftest", "check that this machine can train"),
    "versions": ("train.measure.versions", "every version that must agree between nodes"),
    "fetch": ("train.models.fetch", "a base model or data set as plain files, fetched or built once"),
    "calibrate": ("train.measure.calibrate", "how fast this machine computes, measured once and kept"),
    "check-model": ("train.measure.check_model", "whether a model trains exactly, shown on a miniature of it"),
    "check-rewards": ("train.measure.check_rewards", "the rewards of recipe=grpo, tried on some rows"),
    "bench": ("train.measure.exchange_bench", "measure the network and what combining gradients costs"),
    "trace": ("train.runlog.merge_traces", "the recorded steps of all processes as one picture"),
    "ask": ("train.results.ask", "your questions to what a run has made, before and after"),
    "serve": ("train.serve.command", "answer requests that come as lines, with what a run has made"),
    "eval": ("train.results.evaluate", "loss and answers of base and adapter side by side"),
    "export": ("train.results.export", "adapter, merged model, or GGUF for Ollama"),
}


class Parser(argparse.ArgumentParser):
    """argparse, with messages that name the nearest valid word."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message, fix=f"see: {self.prog} --help")


def main(argv: list[str]) -> int:
    wants_json = "--json" in argv
    attach_to_agent()
    # On AVX512-BF16 it asks for a package of which only a form that we do not take has a use (models/hf.py).
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        return run_command(argv)
    except BadInput as error:
        report_to_agent(error)
        print(str(error), file=sys.stderr)
        if wants_json:
            print(json.dumps({"ok": False, "failures": [str(error)], "gated": isinstance(error, Gated)}))
        return 1 if isinstance(error, CheckFailed) else 2
    except Exception as error:
        report_to_agent(error)
        if classify_failure(error) != "peer" or "MOTLEY_AGENT" not in os.environ:
            raise
        print(f"lost contact with another process: {first_line(error)}", file=sys.stderr)
        return 1


def run_command(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    name = argv[0]
    if name not in COMMANDS:
        raise BadInput(f"unknown command '{name}'{nearest(name, COMMANDS)}", fix="see: python -m train --help")
    module, parser = prepare_command(name)
    code: int = module.main(parse(parser, argv[1:]))
    return code


def prepare_command(name: str) -> tuple[Any, Parser]:
    module = importlib.import_module(COMMANDS[name][0])
    parser = Parser(prog=f"python -m train {name}", description=module.__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    parser.add_argument("--config", type=Path, help="YAML file of settings; flags come before it")
    parser.add_argument("--json", action="store_true", help="the result as one JSON object on stdout")
    return module, parser


def usage() -> str:
    lines = [f"  {name:10} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: python -m train COMMAND [--config FILE] [--json] …", "", *lines, "", "COMMAND --help"])


def parse(parser: Parser, argv: list[str]) -> argparse.Namespace:
    """Flags over the config file over defaults. A file may serve several commands: each takes what it knows."""
    early = Parser(prog=parser.prog, add_help=False, allow_abbrev=False)
    early.add_argument("--config", type=Path)
    early.add_argument("--recipe", default="")
    first = early.parse_known_args(argv)[0]
    file = first.config
    add_own_settings(parser, first.recipe or (str(read_yaml(file, "config file").get("recipe", "")) if file else ""))
    flags = {option for action in parser._actions for option in action.option_strings}
    for word in itertools.takewhile(lambda word: word != "--", argv):
        flag = word.split("=")[0]
        if flag.startswith("--") and flag not in flags:
            raise BadInput(f"unknown option {flag}{nearest(flag, flags)}", fix=f"see: {parser.prog} --help")
    if file is not None:
        defaults = read_config(file, {action.dest for action in parser._actions})
        for action in parser._actions:
            action.required = action.required and action.dest not in defaults
        parser.set_defaults(**defaults)
    return parser.parse_args(argv)


def read_config(file: Path, own: set[str]) -> Settings:
    values = read_yaml(file, "config file")
    known = own | set(SETTINGS) | names_of(recipe_of(values))
    for name in values:
        if name not in known:
            raise BadInput(f"unknown setting '{name}'{nearest(name, known)}", f"file: {file}")
    return {name: value for name, value in values.items() if name in own}


if __name__ == "__main__":
    with may_be_unread():
        status = main(sys.argv[1:])
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or os.environ.get("MOTLEY_AGENT"):
        os._exit(status)  # everything is on disk; tearing process groups down aborts now and then, or waits for ever
    sys.exit(status)
