"""./motley VERB, and `make VERB` with it. Exit code 2 for bad input, 1 for a node that failed or was skipped."""

from __future__ import annotations

import argparse
import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import NoReturn

from console import infra, while_rented
from console.command_line import make_variables, without_environment
from console.command_line.commands_as_typed import for_one_verb, remember
from console.command_line.verbs import VERBS, parser
from console.command_line.where_typed import from_where_it_was_called
from console.inventory.check import check
from console.inventory.read import Inventory
from console.inventory.what_is_wrong import Finding, unknown
from console.new_inventory import GROUP_VARS
from console.playbook import ansible_environment, interrupt
from console.text_layout import counted, shown_on
from train.errors import BadInput, CheckFailed
from train.files import DISK_FULL
from train.safe_stdio import may_be_unread

ROOT = Path(__file__).parents[1]
# Of an inventory whose machines cannot be reached from here: a program that runs a command where they can.
ENTRANCE = ".enter"


def main() -> int:
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    ansible_environment.settle()
    if ROOT.stat().st_mode & stat.S_IWOTH:
        print(
            f"others may change what Motley runs: fix: chmod o-w {ROOT}, or clone it below your home", file=sys.stderr
        )
    with may_be_unread(shown_on):
        return run_verb(verb, sys.argv[2:])


@for_one_verb()
def run_verb(verb: str, words: list[str]) -> int:
    called_as, called_in = (os.environ.pop(f"MOTLEY_CALLED_{what}", "") for what in ("AS", "IN"))
    if verb in (*without_environment.HELP, *without_environment.VERSION):
        return without_environment.main([verb, *words])
    interrupt.listen_to_sigterm()
    interrupt.listen_to_sigint()
    try:
        if verb not in VERBS:
            raise without_environment.unknown(verb)
        if called_as == "make":
            words = make_variables.options(verb, os.environ)
        args = parser(verb).parse_args(words)
        given = typed(verb, words)
        remember({name: getattr(args, name) for name in given} if "infra" in args else {})
        if called_in and Path(called_in) != ROOT:
            from_where_it_was_called(args, given, Path(called_in))
        inventory = getattr(args, "inventory", "")
        if called_as and verb != "inventory" and inventory and Path(inventory, ENTRANCE).exists():
            enter(Path(inventory, ENTRANCE), verb, words, called_in)
        return act(verb, args)
    except BadInput as wrong:
        print(wrong, file=sys.stderr)
        return 1 if isinstance(wrong, CheckFailed) else 2
    except (OSError, RuntimeError) as wrong:
        if not (why := wrong_place(wrong)):
            raise
        print(why, file=sys.stderr)
        return 2
    except (KeyboardInterrupt, EOFError) as stopped:  # Ctrl-D at a question is a Ctrl-C
        left = "what was done stays" if isinstance(stopped, interrupt.Halfway) else "nothing was changed"
        print(f"\nstopped; {left}", file=sys.stderr)
        return interrupt.CODE


NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, *DISK_FULL)


def wrong_place(error: OSError | RuntimeError) -> str:
    """Why nothing can be read or written where somebody wanted it, where the error is about that; else empty."""
    if not isinstance(error, OSError):
        nobody = "a path begins with ~NAME, and there is no such user\nfix: give the name of one"
        return nobody if "home directory" in str(error) else ""
    if error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:40]}… is too long for a file's name\nfix: give the name of one"
    words = f"{error.filename}: {error.strerror}\nfix: name another place, make room there, or let yourself write there"
    return words if error.errno in NO_PLACE and error.filename else ""


def typed(verb: str, words: list[str]) -> set[str]:
    """The options that were given: a default is not looked for where one stands."""
    nothing = argparse.Namespace(**dict.fromkeys(vars(parser(verb).parse_args([]))))
    return {name for name, value in vars(parser(verb).parse_args(words, nothing)).items() if value is not None}


def enter(entrance: Path, verb: str, words: list[str], called_in: str) -> NoReturn:
    if not os.access(entrance, os.X_OK):
        raise BadInput(f"{entrance} cannot be run", fix=f"fix: chmod +x {entrance}")
    os.environ["MOTLEY_CALLED_IN"] = called_in
    os.execv(entrance, [str(entrance), sys.executable, "-m", "console", verb, *words])


def act(verb: str, args: argparse.Namespace) -> int:
    """Each option goes to the verb's function under its name, behind the inventory where it has one."""
    options = vars(args)
    while_rented.before_any(verb)
    if cards := options.pop("cards", ""):
        for name in ("inventory", "infra", "vault", "verbose"):
            del options[name]
        return resolve_name("console.launch_commands:plan_for_cards")(cards, **options)  # type: ignore[no-any-return]
    if "inventory" not in options:
        return does(verb)(**options)
    kind = options.pop("infra", "")
    if verb in ("inventory", "rent"):
        return does(verb)(**options)
    nodes = options.get("nodes") or options.get("limit") or ""
    inventory = checked(of_infra(kind, while_rented.inventory_of(nodes, options.pop("inventory"))))
    for values in inventory.nodes.values():
        if instead := infra.infra_of(values).lacks.get(verb):
            raise BadInput(f"{verb}: {instead}")
    for name in options.keys() & {"limit", "repin"}:
        options[name] = chosen_nodes(inventory, options[name].replace(",", " ").split())
    return does(verb)(inventory, **options)


def of_infra(kind: str, path: str) -> str:
    """The inventory that is meant; one that was named stays, but is of that kind."""
    usual = {option.name: option.default for option in VERBS["status"].options}["inventory"]
    if kind not in ("", infra.USUAL) and path in (usual, str(ROOT / usual)):
        return str(ROOT / "inventory" / kind)
    if not kind:
        return path
    kinds = set(map(infra.name_of, check(Path(path)).nodes.values()))
    if kinds - {kind}:
        raise BadInput(f"{path} is of infra {', '.join(kinds)}, not {kind}", fix="fix: name another --inventory")
    return path


def checked(path: str | Path) -> Inventory:
    inventory = check(Path(path))
    for node in inventory.nodes.values():
        if "motley_state_folder" not in node:  # of group_vars: nothing would be found without
            folder = inventory.path if inventory.path.is_dir() else inventory.path.parent
            fix = f"cp -r {GROUP_VARS.relative_to(Path(__file__).parents[1])} {folder}/"
            inventory.findings.append(Finding(what="it has no group_vars beside it", where=str(folder), fix=fix))
            break
    if inventory.findings:
        head = f"{counted(len(inventory.findings), 'thing')} to fix before anything is connected to:"
        raise BadInput("\n".join([head, *(f"  {finding}" for finding in inventory.findings)]))
    return inventory


def chosen_nodes(inventory: Inventory, names: list[str]) -> list[str]:
    for name in names:
        if name not in inventory.nodes:
            raise BadInput(unknown(f"node '{name}' in {inventory.path}", name, "nodes", inventory.nodes))
    return names


ACTS = {
    "demo": "console.demo:demo",
    "inventory": "console.new_inventory:describe",
    "check": "console.inventory.check:show",
    "bootstrap": "console.bootstrap:bootstrap",
    "plan": "console.launch_commands:plan",
    "sweep": "console.sweep:sweep",
    "check-model": "console.check_model:check_model",
    "check-rewards": "console.check_rewards:check_rewards",
    "launch": "console.launch_commands:launch",
    "torchrun": "console.launch_commands:torchrun",
    "status": "console.watch.status:status",
    "dashboard": "console.dashboard.server:dashboard",
    "follow": "console.run_commands:follow",
    "logs": "console.run_commands:logs",
    "stop": "console.run_commands:stop",
    "queue": "console.queue:queue",
    "pause": "console.watch.pause:pause",
    "unpause": "console.watch.pause:unpause",
    "wake": "console.wake:wake",
    "notify-test": "console.notice_address:test",
    "runs": "console.watch.status:runs",
    "fetch": "console.fetch:fetch",
    "report": "console.report.command:report",
    "ask": "console.use_result:ask",
    "generate": "console.generate:generate",
    "chat": "console.serve.chat:chat",
    "serve": "console.serve.command:serve",
    "eval": "console.tasks:evaluate",
    "export": "console.use_result:export",
    "tensorboard": "console.curves.tensorboard_view:tensorboard",
    "clean": "console.run_commands:clean",
    "rent": "console.rent_commands:rent",
    "rented": "console.rent_commands:show_rented",
    "give-back": "console.rent_commands:give_back",
    "doctor": "console.doctor.look:run",
    "slurm-conf": "console.infra.slurm.slurm_conf:slurm_conf",
    "check-versions": "console.check_versions:check",
    "undo": "console.undo:undo",
}


def does(verb: str) -> Callable[..., int]:
    """Its function; a command waits only for what it uses."""
    function: Callable[..., int] = resolve_name(ACTS[verb])
    return function


if __name__ == "__main__":
    sys.exit(main())
