"""./motley VERB, and `make VERB` with it. Exit code 2 for bad input, 1 for a node that failed or was skipped."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from console import (
    check_versions,
    contact,
    fetch,
    front,
    interrupt,
    launch,
    launch_request,
    make_words,
    new_inventory,
    notify,
    pause,
    play,
    rent_commands,
    restart,
    run_commands,
    status,
    tensorboard_view,
    use_result,
    wake,
)
from console.doctor import look as doctor
from console.infra.kubernetes import not_there
from console.infra.slurm import slurm_conf
from console.inventory.check import check
from console.inventory.finding import Finding, nearest
from console.inventory.read import Inventory, is_local, on_kubernetes
from console.new_inventory import GROUP_VARS
from console.torchrun import command as torchrun
from console.verbs import PHASES, SETTINGS, VERBS, parser
from console.words import counted
from train.errors import BadInput, CheckFailed
from train.plan.model.catalogue import catalogue
from train.plan.run_name import is_name
from train.plan.settings import own_recipe
from train.plan.settings.pictures import SUFFIXES
from train.safe_stdio import may_be_unread

ROOT = Path(__file__).parents[1]
# Of an inventory whose machines cannot be reached from here: a program that runs a command where they can.
ENTRANCE = ".enter"
# What a node has that is only a folder on this machine.
OF_A_FOLDER = ("python_env", "workspace")


def main() -> int:
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    os.environ.setdefault("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))  # Ansible reads none in a folder open to all
    if ROOT.stat().st_mode & stat.S_IWOTH:
        print(
            f"others may change what Motley runs: fix: chmod o-w {ROOT}, or clone it below your home", file=sys.stderr
        )
    with may_be_unread():
        return run_verb(verb, sys.argv[2:])


def run_verb(verb: str, words: list[str]) -> int:
    called_as, called_in = (os.environ.pop(f"MOTLEY_CALLED_{what}", "") for what in ("AS", "IN"))
    if verb in ("", "help", "-h", "--help"):
        return front.main(["help"])
    interrupt.listen_to_sigterm()
    try:
        if verb not in VERBS:
            raise BadInput(f"./motley has no verb '{verb}'", fix=nearest(verb, VERBS, otherwise="fix: ./motley help"))
        if called_as == "make":
            words = make_words.options(verb, os.environ)
        args = parser(verb).parse_args(words)
        if called_in and Path(called_in) != ROOT:
            from_where_it_was_called(args, typed(verb, words), Path(called_in))
        inventory = getattr(args, "inventory", "")
        if called_as and verb != "inventory" and inventory and Path(inventory, ENTRANCE).exists():
            enter(Path(inventory, ENTRANCE), verb, words, called_in)
        return act(verb, args)
    except BadInput as wrong:
        print(wrong, file=sys.stderr)
        return 1 if isinstance(wrong, CheckFailed) else 2
    except KeyboardInterrupt as stopped:
        left = "what was done stays" if isinstance(stopped, interrupt.Halfway) else "nothing was changed"
        print(f"\nstopped; {left}", file=sys.stderr)
        return interrupt.CODE


def typed(verb: str, words: list[str]) -> set[str]:
    """The options that were given: a default is not looked for where one stands."""
    nothing = argparse.Namespace(**dict.fromkeys(vars(parser(verb).parse_args([]))))
    return {name for name, value in vars(parser(verb).parse_args(words, nothing)).items() if value is not None}


def from_where_it_was_called(args: argparse.Namespace, given: set[str], folder: Path) -> None:
    """./motley itself runs in the checkout; what was typed may lie elsewhere."""
    if "results" in given:
        args.results = folder / args.results
    if "inventory" in given and ((folder / args.inventory).exists() or not (ROOT / args.inventory).exists()):
        args.inventory = str(folder / args.inventory)
    for kind in given & {"model", "dataset", "recipe", *(["question"] if is_picture(args) else [])}:
        setattr(args, kind, moved(kind, getattr(args, kind), folder))
    if "settings" in given:
        args.settings = [moved_setting(setting, folder) for setting in args.settings]
    if getattr(args, "words", []) and not args.module:
        args.words[0] = str(folder / args.words[0])


def is_picture(args: argparse.Namespace) -> bool:
    return str(getattr(args, "question", "")).lower().endswith(SUFFIXES)


def moved_setting(setting: str, folder: Path) -> str:
    if setting.startswith("@"):
        return "@" + moved("", setting[1:], folder)
    kind, _, value = setting.partition("=")
    is_file = kind in ("model", "dataset") or (kind == "recipe" and value.endswith(".py"))
    return f"{kind}={moved(kind, value, folder)}" if is_file else setting


def moved(kind: str, value: str, folder: Path) -> str:
    """A name that Motley knows means what it means everywhere."""
    if kind == "recipe" and not own_recipe.is_file(value):
        return value
    names = catalogue().get(f"{kind}s", {}) if kind else {}
    known = [*names, *(alias for entry in names.values() for alias in entry.get("aliases", ()))]
    return str(folder / value) if value and value not in known and (folder / value).exists() else value


def enter(entrance: Path, verb: str, words: list[str], called_in: str) -> NoReturn:
    if not os.access(entrance, os.X_OK):
        raise BadInput(f"{entrance} cannot be run", fix=f"fix: chmod +x {entrance}")
    os.environ["MOTLEY_CALLED_IN"] = called_in
    os.execv(entrance, [str(entrance), sys.executable, "-m", "console", verb, *words])


def act(verb: str, args: argparse.Namespace) -> int:
    """Each option goes to the verb's function under its name, behind the inventory where it has one."""
    options = vars(args)
    rent_commands.before_any(verb)
    if "inventory" not in options:
        return ACTS[verb](**options)
    infra = options.pop("infra", "")
    if verb in ("inventory", "rent"):
        return ACTS[verb](**options)
    nodes = options.get("nodes") or options.get("limit") or ""
    inventory = checked(of_infra(infra, rent_commands.inventory_of(nodes, options.pop("inventory"))))
    if verb in not_there.VERBS and any(map(on_kubernetes, inventory.nodes.values())):
        raise BadInput(f"{verb}: {not_there.VERBS[verb]}")
    for name in options.keys() & {"limit", "repin"}:
        options[name] = chosen_nodes(inventory, options[name].replace(",", " ").split())
    return ACTS[verb](inventory, **options)


def of_infra(infra: str, path: str) -> str:
    """The inventory that is meant; one that was named stays, but is of that kind."""
    usual = {option.name: option.default for option in VERBS["status"].options}["inventory"]
    if infra in ("slurm", "kubernetes") and path in (usual, str(ROOT / usual)):
        return str(ROOT / "inventory" / infra)
    if not infra:
        return path
    kinds = {str(values.get("infra", "ssh")) for values in check(Path(path)).nodes.values()}
    if kinds - {infra}:
        raise BadInput(f"{path} is of infra {', '.join(kinds)}, not {infra}", fix="fix: name another --inventory")
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


def do_check(inventory: Inventory) -> int:
    width = max(map(len, inventory.nodes))
    for place, (name, values) in enumerate(inventory.nodes.items()):
        card = values.get("motley_gpu", "")
        at = values.get("motley_address") or values.get("ansible_host", "")
        print(f"  {name:<{width}}  {at:<15}  {card:<14}  {'head' if place == 0 else ''}".rstrip())
    for note in inventory.notes:
        print(f"  · {note}")
    print("the inventory is good")
    return 0


def unknown(what: str, word: str, all_of: str, known: Iterable[str]) -> str:
    close = nearest(word, known, otherwise="")
    return "\n  ".join([f"there is no {what}", *([close] if close else []), f"{all_of}: {', '.join(known)}"])


def chosen_nodes(inventory: Inventory, names: list[str]) -> list[str]:
    for name in names:
        if name not in inventory.nodes:
            raise BadInput(unknown(f"node '{name}' in {inventory.path}", name, "nodes", inventory.nodes))
    return names


def do_bootstrap(
    inventory: Inventory,
    *,
    phase: str,
    limit: list[str],
    check: bool,
    rollback: bool,
    repin: list[str],
    reboot: str,
    sudo_password: str,
    verbose: bool,
) -> int:
    if phase and phase not in PHASES:
        raise BadInput(unknown(f"phase '{phase}'", phase, "phases", PHASES))
    if rollback and phase != "python_env":
        raise BadInput(
            "only the Python environment can be rolled back: ./motley bootstrap --phase python_env --rollback"
        )
    os.environ |= {"VERBOSE": "1"} if verbose else {}
    os.environ |= {"SUDO_PASSWORD": "ask"} if sudo_password else {}
    os.environ |= {"REBOOT": "yes"} if reboot else {}
    if not contact.pin_new(inventory, limit, repin):
        raise BadInput("the host keys were not accepted: nothing was changed")
    request = play.PlaybookRun(
        verb="bootstrap",
        playbook="bootstrap",
        inventory=inventory,
        phase=phase,
        limit=",".join(limit),
        check=check,
        variables={"motley_python_env_rollback": True} if rollback else {},
    )
    return restart.run(request, play.ask_passwords(inventory))


def do_undo(inventory: Inventory, *, phase: str, limit: list[str]) -> int:
    if phase not in (*PHASES, "all"):
        if phase:
            raise BadInput(unknown(f"phase '{phase}'", phase, "phases", (*PHASES, "all")))
        raise BadInput(f"undo wants a phase: ./motley undo --phase static_ip\n  phases: {', '.join(PHASES)}, all")
    if all(is_local(node) for node in inventory.nodes.values()) and phase not in (*OF_A_FOLDER, "all"):
        raise BadInput(
            f"the nodes of {inventory.path} are folders on this machine\n  of it, {phase} changed nothing to undo"
        )
    whole = phase == "all"
    request = play.PlaybookRun(
        verb="undo",
        playbook="undo",
        inventory=inventory,
        phase="" if whole else phase,
        limit=",".join(limit),
        variables={"motley_undo_all": whole},
    )
    return play.run(request, play.ask_passwords(inventory))


def do_report(*, run: str, results: Path) -> int:
    from console.report.history import NothingHappened, newest_run, read_history  # noqa: PLC0415
    from console.report.page import write_page  # noqa: PLC0415  jinja2 and all, only where it is needed

    if run and not is_name(run):
        raise BadInput(fetch.no_name(run))
    try:
        folder = results / run if run else newest_run(results)
        print(f"report  {write_page(read_history(folder), folder / 'report.html')}")
    except NothingHappened as nothing:
        raise BadInput(str(nothing)) from None
    return 0


def do_dashboard(inventory: Inventory, *, run: str, port: int, lan: bool) -> int:
    from console.dashboard.server import dashboard  # noqa: PLC0415  a web server, only where it is needed

    if run and not is_name(run):
        raise BadInput(fetch.no_name(run))
    return dashboard(inventory, run=run, port=port, lan=lan)


def do_plan(inventory: Inventory, *, as_json: bool, **asked: Any) -> int:
    return launch.plan(inventory, launch_words(**asked), as_json=as_json)


def do_launch(
    inventory: Inventory, *, as_json: bool, follow: bool, yes: bool, wake_up: bool, page: bool, **asked: Any
) -> int:
    pairs = dict(setting.partition("=")[::2] for setting in asked["settings"])
    nodes, then = (asked[name] or pairs.get(name, "") for name in ("nodes", "then"))
    if then in launch.WHAT_FOLLOWS and not launch.agreed_to(inventory, nodes, then, yes=yes):
        return 1
    with rent_commands.used(inventory):
        if wake_up:  # who does not wake is said; whether the launch can do without is the plan's to say
            wake.wake(inventory, nodes.replace(",", " ").split())
        return launch.launch(inventory, launch_words(**asked), as_json=as_json, following=follow, page=page)


def do_torchrun(inventory: Inventory, **asked: Any) -> int:
    with rent_commands.used(inventory):
        return torchrun.torchrun(inventory, **asked)


def launch_words(*, vault: str, verbose: bool, settings: list[str], **named: str) -> list[str]:
    """The words of a launch for ansible-playbook."""
    pairs = [f"{SETTINGS.get(name, name)}={value}" for name, value in named.items() if value]
    flags = [*(["--ask-vault-pass"] if vault else []), *(["-v"] if verbose else [])]
    return [*flags, *launch_request.as_words([*settings, *pairs])]


def do_demo(*, recipe: str, fast: bool, folders: bool, infra: str, rent: str, base: str) -> NoReturn:
    given = {"recipe": recipe, "base": base, "infra": infra, "rent": rent}
    named = [word for name, value in given.items() if value for word in (f"--{name}", value)]
    words = [*(["--fast"] * fast), *(["--folders"] * folders), *named]
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "lab", "demo", *words])


ACTS: dict[str, Callable[..., int]] = {
    "demo": do_demo,
    "inventory": lambda inventory, hosts: new_inventory.write_inventory(Path(inventory) / "hosts.yml", hosts),
    "check": do_check,
    "bootstrap": do_bootstrap,
    "plan": do_plan,
    "launch": do_launch,
    "torchrun": do_torchrun,
    "status": status.status,
    "dashboard": do_dashboard,
    "follow": run_commands.follow,
    "logs": run_commands.logs,
    "stop": run_commands.stop,
    "pause": pause.pause,
    "unpause": pause.unpause,
    "wake": wake.wake,
    "notify-test": notify.test,
    "runs": status.runs,
    "fetch": fetch.fetch,
    "report": do_report,
    "ask": use_result.ask,
    "eval": use_result.evaluate,
    "export": use_result.export,
    "tensorboard": tensorboard_view.tensorboard,
    "clean": run_commands.clean,
    "rent": rent_commands.rent,
    "rented": rent_commands.show_rented,
    "give-back": rent_commands.give_back,
    "doctor": doctor.run,
    "slurm-conf": slurm_conf.slurm_conf,
    "check-versions": check_versions.check,
    "undo": do_undo,
}


if __name__ == "__main__":
    sys.exit(main())
