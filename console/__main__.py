"""python -m console VERB: what `make` calls. Exit code 2 for bad input, 1 for a node that failed or was left out."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from console import (
    ask,
    contact,
    fetch,
    interrupt,
    launch,
    launch_request,
    play,
    restart,
    run_commands,
    status,
    tensorboard_view,
    use_result,
    versions,
)
from console.ask import GROUP_VARS
from console.doctor import verb as doctor
from console.inventory.check import check
from console.inventory.finding import Finding, nearest
from console.inventory.read import Inventory, is_local
from train.errors import BadInput
from train.plan.names import is_name
from train.safe_stdio import may_be_unread

PHASES = (
    *("ssh_trust", "hostname", "static_ip", "firewall", "clock", "power"),
    *("gpu_driver", "python_env", "workspace", "run", "proof"),
)
# What a node has that is only a folder on this machine.
OF_A_FOLDER = ("python_env", "workspace")


def main() -> int:
    with may_be_unread():
        return run_verb()


def run_verb() -> int:
    args, words = parser().parse_known_args()
    if words and not hasattr(args, "words"):
        parser().error(f"unrecognized arguments: {' '.join(words)}")
    args.words = words
    interrupt.listen_to_sigterm()
    try:
        return int(args.act(args))
    except BadInput as wrong:
        print(wrong, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; nothing was changed", file=sys.stderr)
        return interrupt.CODE


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m console", description=__doc__)
    verbs = top.add_subparsers(required=True, metavar="VERB")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--inventory", type=Path, default=Path("inventory/homelab"), metavar="FOLDER")
    run = argparse.ArgumentParser(add_help=False, parents=[shared])
    run.add_argument("--phase", default="", help="one phase only: " + ", ".join(PHASES))
    run.add_argument("--limit", default="", help="these nodes only: NAME[,NAME]")

    verb = verbs.add_parser("check", parents=[shared], help="check the inventory; connects to nothing")
    verb.set_defaults(act=do_check)
    verb = verbs.add_parser("inventory", parents=[shared], help="write the inventory after a few questions")
    verb.add_argument("--hosts", default="", help='"user@ADDRESS user@ADDRESS …" instead of questions')
    verb.set_defaults(act=do_inventory)
    verb = verbs.add_parser("bootstrap", parents=[run], help="from password-only machines to a cluster")
    verb.add_argument("--check", action="store_true", help="say what would change, change nothing")
    verb.add_argument(
        "--rollback", action="store_true", help="with --phase python_env: the environment before this one"
    )
    verb.add_argument("--repin", default="", help="forget the pinned host keys of these nodes: they were reinstalled")
    verb.set_defaults(act=do_bootstrap)
    verb = verbs.add_parser("undo", parents=[run], help="put back what a phase found (--phase all: every phase)")
    verb.set_defaults(act=do_undo)
    verb = verbs.add_parser("check-versions", parents=[shared], help="what must agree between the nodes, and does it")
    verb.add_argument("--limit", default="", help="these nodes only: NAME[,NAME]")
    verb.add_argument("--json", action="store_true", help="the same as data")
    verb.add_argument("--fix", action="store_true", help="converge the Python side to the lock")
    verb.set_defaults(act=do_check_versions)
    verb = verbs.add_parser("doctor", parents=[shared], help="what is wrong with the cluster, each with its fix")
    verb.add_argument("--limit", default="", help="these nodes only: NAME[,NAME]")
    verb.add_argument("--json", action="store_true", help="the same as data")
    verb.add_argument("--fix", action="store_true", help="do what is safe, then look again")
    verb.add_argument("--quick", action="store_true", help="leave out what loads the machines for a moment")
    verb.add_argument("--full", action="store_true", help="read every file of environment, models and data; minutes")
    verb.set_defaults(act=do_doctor)
    verb = verbs.add_parser("report", help="a run on one page, from what fetch has brought")
    verb.add_argument("--run", default="", help="its name (default: the newest)")
    verb.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    verb.set_defaults(act=do_report)
    _add_life(verbs, shared)
    return top


def _add_life(verbs: Any, shared: argparse.ArgumentParser) -> None:
    """What comes after a launch; each goes to the nodes directly."""

    def add(name: str, help_: str, act: Callable[[argparse.Namespace, Inventory], int]) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, parents=[shared], help=help_)
        verb.set_defaults(act=lambda args: act(args, checked(args.inventory)))
        return verb

    verb = add("status", "what runs, where, how far", lambda args, inv: status.status(inv, as_json=args.json))
    verb.add_argument("--json", action="store_true", help="the same as data")
    add("follow", "watch the run that is running; Ctrl-C leaves it alone", lambda _, inv: run_commands.follow(inv))
    verb = add("logs", "what the nodes' part of the run says", _logs)
    verb.add_argument("--limit", default="", help="these nodes only: NAME[,NAME]")
    verb.add_argument("--lines", type=int, default=200, help="how many old lines of each node")
    verb.add_argument("--no-follow", action="store_true", help="the old lines only")
    add("stop", "save, stop, and prove that nothing is left", lambda _, inv: run_commands.stop(inv))
    verb = add("fetch", "bring results, event logs and settings to results/RUN", _fetch)
    verb.add_argument("--run", default="", help="its name; otherwise the newest")
    verb.add_argument("--results", type=Path, default=fetch.RESULTS, metavar="FOLDER")
    verb = add("tensorboard", "the curves of a run, also while it is running", _tensorboard)
    verb.add_argument("--run", default="", help="its name; otherwise the newest")
    verb.add_argument("--results", type=Path, default=fetch.RESULTS, metavar="FOLDER")
    verb.add_argument("--port", type=int, default=6006, help="where the browser finds it (default 6006)")
    add("runs", "all runs of all nodes", lambda _, inv: status.runs(inv))
    verb = add("clean", "delete the checkpoints of runs that are done", _clean)
    verb.add_argument("--run", default="", help="these runs only: NAME[,NAME]")
    verb.add_argument("--yes", action="store_true", help="without asking")
    verb = add("ask", "your questions to what a run has made, before and after", _ask)
    verb.add_argument("--run", default="", help="its name; otherwise the newest that is done")
    verb.add_argument("--question", default="", help="one question; otherwise they are typed")
    verb.add_argument("--answer-tokens", default="", help="longest answer (default 200)")
    verb = add("eval", "loss and answers on what was held out, before and after", _eval)
    verb.add_argument("--run", default="", help="its name; otherwise the newest that is done")
    verb = add("export", "what a run has made as one that others load, on the node", _export)
    verb.add_argument("--run", default="", help="its name; otherwise the newest that is done")
    verb.add_argument("--to", default="gguf", choices=("adapter", "merged", "gguf"), help="default: gguf, for Ollama")
    for name, help_, act in (
        ("plan", "what a run would do, and whether it can", launch.plan),
        ("launch", "run launch.yml and watch", launch.launch),
    ):
        verb = add(name, help_, functools.partial(_with_words, act))
        verb.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable, as it is")
        verb.add_argument("--settings", default="", help="several: \"NAME=VALUE NAME='A VALUE'\"")
        verb.set_defaults(words=[])  # what is not known here is for ansible-playbook


def _with_words(act: Callable[[Inventory, list[str]], int], args: argparse.Namespace, inventory: Inventory) -> int:
    try:
        words = launch_request.as_words(args.set, args.settings)
    except ValueError as wrong:  # a quote that is not closed
        raise BadInput(str(wrong)) from None
    return act(inventory, [*args.words, *words])


def _logs(args: argparse.Namespace, inventory: Inventory) -> int:
    return run_commands.logs(
        inventory, chosen_nodes(inventory, args.limit), lines=args.lines, following=not args.no_follow
    )


def _fetch(args: argparse.Namespace, inventory: Inventory) -> int:
    return fetch.fetch(inventory, args.run, args.results)


def _tensorboard(args: argparse.Namespace, inventory: Inventory) -> int:
    return tensorboard_view.tensorboard(inventory, args.run, args.results, args.port)


def _clean(args: argparse.Namespace, inventory: Inventory) -> int:
    return run_commands.clean(inventory, args.run.replace(",", " ").split(), yes=args.yes)


def _ask(args: argparse.Namespace, inventory: Inventory) -> int:
    return use_result.ask(inventory, args.run, args.question, args.answer_tokens)


def _eval(args: argparse.Namespace, inventory: Inventory) -> int:
    return use_result.on_a_node(inventory, args.run, ["eval"], more=[])


def _export(args: argparse.Namespace, inventory: Inventory) -> int:
    return use_result.on_a_node(inventory, args.run, ["export", args.to], more=[], offline=False)


def checked(path: Path) -> Inventory:
    inventory = check(path)
    for node in inventory.nodes.values():
        if "motley_state_folder" not in node:  # of group_vars: nothing would be found without
            folder = inventory.path if inventory.path.is_dir() else inventory.path.parent
            fix = f"cp -r {GROUP_VARS.relative_to(Path(__file__).parents[1])} {folder}/"
            inventory.findings.append(Finding(what="it has no group_vars beside it", where=str(folder), fix=fix))
            break
    if inventory.findings:
        count = len(inventory.findings)
        head = f"{count} thing{'s' if count > 1 else ''} to fix before anything is connected to:"
        raise BadInput("\n".join([head, *(f"  {finding}" for finding in inventory.findings)]))
    return inventory


def do_check(args: argparse.Namespace) -> int:
    inventory = checked(args.inventory)
    width = max(map(len, inventory.nodes))
    for place, (name, values) in enumerate(inventory.nodes.items()):
        card = values.get("motley_gpu", "")
        print(f"  {name:<{width}}  {values['motley_address']:<15}  {card:<14}  {'head' if place == 0 else ''}".rstrip())
    for note in inventory.notes:
        print(f"  · {note}")
    print("the inventory is good")
    return 0


def do_inventory(args: argparse.Namespace) -> int:
    return ask.write_inventory(args.inventory / "hosts.yml", args.hosts)


def unknown(what: str, word: str, all_of: str, known: Iterable[str]) -> str:
    close = nearest(word, known, otherwise="")
    return "\n  ".join([f"there is no {what}", *([close] if close else []), f"{all_of}: {', '.join(known)}"])


def chosen_nodes(inventory: Inventory, words: str) -> list[str]:
    names = [name for name in words.replace(",", " ").split() if name]
    for name in names:
        if name not in inventory.nodes:
            raise BadInput(unknown(f"node '{name}' in {inventory.path}", name, "nodes", inventory.nodes))
    return names


def do_bootstrap(args: argparse.Namespace) -> int:
    inventory = checked(args.inventory)
    if args.phase and args.phase not in PHASES:
        raise BadInput(unknown(f"phase '{args.phase}'", args.phase, "phases", PHASES))
    if args.rollback and args.phase != "python_env":
        raise BadInput("only the Python environment can be rolled back: make bootstrap PHASE=python_env ROLLBACK=yes")
    only, repin = chosen_nodes(inventory, args.limit), chosen_nodes(inventory, args.repin)
    if not contact.meet(inventory, only, repin):
        raise BadInput("the host keys were not accepted: nothing was changed")
    request = play.PlaybookRun(
        verb="bootstrap",
        playbook="bootstrap",
        inventory=inventory,
        phase=args.phase,
        limit=",".join(only),
        check=args.check,
        variables={"motley_python_env_rollback": True} if args.rollback else {},
    )
    return restart.run(request, play.ask_passwords(inventory))


def do_undo(args: argparse.Namespace) -> int:
    inventory = checked(args.inventory)
    if args.phase not in (*PHASES, "all"):
        if args.phase:
            raise BadInput(unknown(f"phase '{args.phase}'", args.phase, "phases", (*PHASES, "all")))
        raise BadInput(f"undo wants a phase: make undo PHASE=static_ip\n  phases: {', '.join(PHASES)}, all")
    if all(is_local(node) for node in inventory.nodes.values()) and args.phase not in (*OF_A_FOLDER, "all"):
        raise BadInput(
            f"the nodes of {inventory.path} are folders on this machine\n  of it, {args.phase} changed nothing to undo"
        )
    only = chosen_nodes(inventory, args.limit)
    phase = "" if args.phase == "all" else args.phase
    request = play.PlaybookRun(verb="undo", playbook="undo", inventory=inventory, phase=phase, limit=",".join(only))
    return play.run(request, play.ask_passwords(inventory))


def do_check_versions(args: argparse.Namespace) -> int:
    inventory = checked(args.inventory)
    only = chosen_nodes(inventory, args.limit)
    return versions.check(inventory, ",".join(only), as_json=args.json, fix=args.fix)


def do_doctor(args: argparse.Namespace) -> int:
    inventory = checked(args.inventory)
    only = chosen_nodes(inventory, args.limit)
    return doctor.run(inventory, ",".join(only), as_json=args.json, fix=args.fix, quick=args.quick, full=args.full)


def do_report(args: argparse.Namespace) -> int:
    from console.report.history import NothingHappened, newest_run, read_history  # noqa: PLC0415
    from console.report.page import write_page  # noqa: PLC0415  jinja2 and all, only where it is needed

    if args.run and not is_name(args.run):
        raise BadInput(fetch.no_name(args.run))
    try:
        folder = args.results / args.run if args.run else newest_run(args.results)
        print(f"report  {write_page(read_history(folder), folder / 'report.html')}")
    except NothingHappened as nothing:
        raise BadInput(str(nothing)) from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
