"""python -m lab VERB: the lab by hand."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

from console.text_layout import drawn, shown_on
from lab import (
    base,
    cgroups,
    demo,
    demo_rent,
    faults,
    inventory,
    layer,
    needs,
    network,
    profile,
    shapes,
    shaping,
    slurm,
    slurm_demo,
)
from lab import lab as labs
from lab.demo_sites import EMBEDDED, ROOT
from lab.host import Host
from lab.lab import Lab
from lab.place import chosen
from lab.shell import LabError
from train.safe_stdio import may_be_unread


def main() -> int:
    with may_be_unread(shown_on):
        args = parser().parse_args()
        try:
            return int(args.act(args) or 0)
        except LabError as error:
            print(error, file=sys.stderr)
            return error.code


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m lab", description="Real hosts on one machine: docs/inside/lab.md")
    top.add_argument("--lab", metavar="NAME", help="which lab (default: $MOTLEY_LAB or 'lab')")
    verbs = top.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, act: Act, text: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        made.set_defaults(act=act)
        return made

    def on_lab(name: str, act: Callable[[Lab, argparse.Namespace], object], text: str) -> argparse.ArgumentParser:
        return verb(name, lambda args: act(labs.current(chosen(args.lab)), args), text)

    _machine_verbs(verb, on_lab)
    _fault_verbs(verb, on_lab)
    about = "quick start: bootstrap, training, a power cut, an adapter"
    demonstration = verb("demo", do_demo, about)
    default = base.default_suite()
    demonstration.add_argument("--base", default=default, help="Debian or Ubuntu suite (default: %(default)s)")
    demonstration.add_argument("--recipe", default="sft", choices=("sft", "preference", "grpo", "pretrain"))
    demonstration.add_argument("--fast", action="store_true", help="a tiny model instead of a real one")
    demonstration.add_argument("--infra", default="machines", choices=("machines", "slurm"), help="where it trains")
    demonstration.add_argument("--rent", choices=("fake",), help="a rented machine, with the lab's market")
    demonstration.add_argument("--folders", action="store_true", help="in three folders, as without root")
    on_lab("inventory", do_inventory, "the inventory as Ansible reads it")
    return top


Act = Callable[[argparse.Namespace], object]
Add = Callable[..., argparse.ArgumentParser]


def _machine_verbs(verb: Add, on_lab: Add) -> None:
    up = verb("up", do_up, "boot fresh hosts")
    up.add_argument("--profile", default="trio", choices=profile.names())
    up.add_argument("--base", help=f"Debian or Ubuntu suite (default: its shape's, or {base.default_suite()})")
    up.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="[HOST=]NAME[,NAME]",
        help=f"as an installer or its owner leaves a machine: {', '.join(shapes.SHAPES)}",
    )
    up.add_argument(
        "--layer", action="append", default=[], choices=sorted(layer.LAYERS), help="software under the hosts"
    )
    verb("down", do_down, "take everything away")
    on_lab("status", do_status, "what runs, at which address, with which faults")
    verb("check", do_check, "what this machine lacks to run the lab")
    verb("install-packages", do_install, "install what this machine lacks to run the lab (apt)")
    built = verb("build", do_build, "make what fresh hosts stand on, so that the first boot at once")
    built.add_argument("--layer", action="append", default=[], choices=sorted(layer.LAYERS))

    inside = on_lab("exec", do_exec, "run a command on the lab's controller: exec [--stranger] -- COMMAND…")
    inside.add_argument("--stranger", action="store_true", help="on the machine that is not part of the cluster")
    inside.add_argument("command", nargs=argparse.REMAINDER)
    shell = on_lab("shell", do_shell, "run a command as root in a host: shell HOST [-- COMMAND…]")
    shell.add_argument("host")
    shell.add_argument("command", nargs=argparse.REMAINDER)

    for name, act, text in (
        ("reset", do_reset, "fresh hosts again"),
        ("off", lambda lab, args: labs.each(lab.some(args.hosts), Host.power_off), "press the power button"),
        ("on", do_on, "switch on"),
    ):
        on_lab(name, act, text).add_argument("hosts", nargs="*", metavar="HOST")
    keep = on_lab("snapshot", lambda lab, args: labs.snapshot(lab, args.label), "keep all hosts under a name")
    keep.add_argument("label")
    on_lab("restore", do_restore, "go back to a snapshot").add_argument("label")
    limits = on_lab("limits", do_limits, "apply the profile's CPU shares and link speeds, or lift them")
    limits.add_argument("switch", choices=["on", "off"])


def _fault_verbs(verb: Add, on_lab: Add) -> None:
    fault = on_lab("fault", do_fault, "break something: fault NAME HOST [key=value…]; `faults` lists them")
    fault.add_argument("fault", choices=sorted(faults.FAULTS), metavar="NAME")
    fault.add_argument("host")
    fault.add_argument("settings", nargs="*", metavar="key=value")
    fix = on_lab("fix", do_fix, "undo a fault, or all of a host's")
    fix.add_argument("fault", choices=[*sorted(faults.FAULTS), "all"], metavar="NAME")
    fix.add_argument("host")
    verb("faults", do_faults, "what can be broken, and what it means")


def do_up(args: argparse.Namespace) -> None:
    since = time.monotonic()
    place = chosen(args.lab)
    wanted = shapes.wanted(args.shape, [host.name for host in profile.load(args.profile).hosts])
    for suite in sorted({args.base or shapes.suite_of(some, base.default_suite()) for some in wanted.values()}):
        system = base.locate(suite)
        if not needs.what_is_missing() and not base.built(system):
            print(f"base   {suite} is built once, about half a minute", flush=True)
            base.build(system)
            print(f"base   {suite} {labs.elapsed(since)}")
            since = time.monotonic()
    lab = labs.up(place, args.profile, args.base, args.layer, args.shape)
    if "slurm" in args.layer:
        slurm.start(lab)
    (ROOT / ".motley").mkdir(exist_ok=True)
    demo.hand_over(ROOT)
    print(f"lab    {'  '.join(f'{host.name} ✓' for host in lab.hosts)}   {labs.elapsed(since)}")
    head = lab.hosts[0]
    port = "" if head.ssh_port == 22 else f"-p {head.ssh_port} "
    first = f"{port}{profile.USER}@{head.spec.installed_address}"
    print("next   ./motley bootstrap --inventory inventory/lab")
    print(f"       .venv/bin/python -m lab exec -- ssh {first}   (password: {profile.PASSWORD})")


def refuse_without_effect(args: argparse.Namespace) -> None:
    """The demos of Slurm and of a rented machine are each one story."""
    story = "--infra slurm" if args.infra == "slurm" else "--rent fake" if args.rent else ""
    usual = {"recipe": "sft", "fast": False, "folders": False, "base": base.default_suite(), "infra": "machines"}
    usual |= {"rent": None} if args.infra == "slurm" else {}
    given = [f"--{name}" for name, value in usual.items() if getattr(args, name) != value and f"--{name}" not in story]
    if story and given:
        raise LabError(f"{', '.join(given)}: without effect beside {story}\nfix: leave it out", code=2)


def do_demo(args: argparse.Namespace) -> int:
    refuse_without_effect(args)
    if args.infra == "slurm":
        return slurm_demo.main()
    if args.rent:
        return demo_rent.main()
    return demo.main(recipe=args.recipe, fast=args.fast, folders=args.folders, suite=args.base)


def do_down(args: argparse.Namespace) -> None:
    place = chosen(args.lab)
    if os.geteuid() != 0:
        raise LabError("Only root can take a lab down: sudo make lab-down", code=2)
    labs.down(place)
    demo.hand_over(ROOT)
    print(f"lab    '{place.name}' is gone")


def do_status(lab: Lab, _: argparse.Namespace) -> None:
    print(f"lab '{lab.place.name}' · profile {lab.profile.name}")
    rows: list[tuple[str, ...]] = [("host", "power", "address", "cpu", "link", "installed", "broken")]
    for host in lab.hosts:
        percent = cgroups.quota_percent(host.cgroup) if host.running else None
        rate = shaping.rate_mbit(host.cable)
        link = [] if network.cable_plugged(host.cable) else ["unplugged"]
        rows.append(
            (
                host.name,
                "on" if host.running else "off",
                " ".join(network.addresses(host.namespace)) or "–",
                f"{percent:g} %" if percent else "all",
                " ".join([*link, f"{rate:g} Mbit/s" if rate else "unshaped"]),
                " ".join([host.suite, *(shape.name for shape in host.shapes)]),
                " ".join(faults.injected(host)) or "–",
            )
        )
    for line in drawn(rows):
        print(line.removeprefix("  "))


def do_check(args: argparse.Namespace) -> int:
    missing = needs.what_is_missing()
    print("\n".join(missing) if missing else "the lab can run here")
    return 2 if missing else 0


def do_install(args: argparse.Namespace) -> None:
    if packages := needs.missing_packages():
        print(f"installing {' '.join(packages)} (apt): the lab makes its hosts and networks with it", flush=True)
        needs.install_packages()


def do_build(args: argparse.Namespace) -> None:
    labs.build(profile.load("trio"), layers=args.layer)


def do_exec(lab: Lab, args: argparse.Namespace) -> None:
    namespace = lab.place.stranger if args.stranger else lab.place.controller
    command = _command(args.command)
    if "launch" in command and any(word.endswith(EMBEDDED) for word in command):  # no index can be reached from there
        wheel = [sys.executable, "requirements/wheelhouse.py", "3.11", "embedded-model"]
        subprocess.run(wheel, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    known = {"MOTLEY_LAB": lab.place.name, "MOTLEY_PASSWORD": os.environ.get("MOTLEY_PASSWORD", profile.PASSWORD)}
    os.execvpe("ip", ["ip", "netns", "exec", namespace, *command], os.environ | known)


def do_shell(lab: Lab, args: argparse.Namespace) -> None:
    host = lab.host(args.host)
    command = host.inside(*(_command(args.command) if args.command else ["bash", "-l"]))
    os.execvp(command[0], command)


def _command(words: list[str]) -> list[str]:
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise LabError("no command given: put it after --", code=2)
    return command


def do_reset(lab: Lab, args: argparse.Namespace) -> None:
    since = time.monotonic()
    labs.reset(lab, args.hosts)
    print(f"reset  {'  '.join(host.name for host in lab.some(args.hosts))}   {labs.elapsed(since)}")


def do_on(lab: Lab, args: argparse.Namespace) -> None:
    labs.each(lab.some(args.hosts), Host.restore_power)
    labs.each(lab.some(args.hosts), Host.wait_until_up)


def do_restore(lab: Lab, args: argparse.Namespace) -> None:
    since = time.monotonic()
    labs.restore(lab, args.label)
    print(f"restored '{args.label}'   {labs.elapsed(since)}")


def do_limits(lab: Lab, args: argparse.Namespace) -> None:
    labs.limit(lab, [], on=args.switch == "on")


def do_fault(lab: Lab, args: argparse.Namespace) -> None:
    print(faults.inject(lab, lab.host(args.host), args.fault, faults.settings(args.fault, args.settings)))


def do_fix(lab: Lab, args: argparse.Namespace) -> None:
    host = lab.host(args.host)
    for fault in faults.injected(host) if args.fault == "all" else [args.fault]:
        print(faults.fix(lab, host, fault))


def do_faults(args: argparse.Namespace) -> None:
    for name, fault in sorted(faults.FAULTS.items()):
        extras = " ".join(f"{key}={value}" for key, value in fault.defaults.items())
        print(f"{name:<16} {fault.meaning}{f'   [{extras}]' if extras else ''}")


def do_inventory(lab: Lab, _: argparse.Namespace) -> None:
    print(json.dumps(inventory.for_ansible(lab), indent=1))


if __name__ == "__main__":
    sys.exit(main())
