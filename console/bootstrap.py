"""./motley bootstrap: from machines that know a password only to a cluster, or one phase of it.

It asks about the host keys of machines never seen before, and pins them once a person has agreed; and before a machine
restarts for its driver, machine by machine. Without a terminal nobody is asked: MOTLEY_ACCEPT_KEYS=yes and --reboot yes
are the answers there. Covered by tests/roles/test_gpu_driver.py on a pseudo-terminal.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from console.command_line.shared_options import PHASES
from console.infra import is_local
from console.inventory.keys import Nodes, Variables
from console.inventory.read import Inventory
from console.inventory.what_is_wrong import unknown
from console.playbook import interrupt, run_playbook
from console.playbook.playbook_progress import Progress
from console.playbook.run_playbook import Passwords, ask_passwords
from console.text_layout import agreed
from plugins.module_utils.motley import hostkeys
from train.errors import BadInput

HOW_TO_COMPARE = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
YES = ("y", "yes")
STOPPED = "Stop where nobody has allowed a restart"  # roles/motley_gpu_driver/tasks/restart.yml


def bootstrap(
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
    if not pin_new(inventory, limit, repin):
        raise BadInput("the host keys were not accepted: nothing was changed")
    request = run_playbook.PlaybookRun(
        verb="bootstrap",
        playbook="bootstrap",
        inventory=inventory,
        phase=phase,
        limit=",".join(limit),
        check=check,
        variables={"motley_python_env_rollback": True} if rollback else {},
    )
    return run(request, ask_passwords(inventory))


def addresses_of(nodes: Nodes, only: list[str]) -> list[hostkeys.NodeAddresses]:
    found = []
    for name, values in nodes.items():
        if (not only or name in only) and not is_local(values):
            keys = ("motley_address", "motley_current_address") if is_template(values) else ("ansible_host",)
            addresses = dict.fromkeys(str(values[key]) for key in keys if key in values)
            found.append(hostkeys.NodeAddresses(name, tuple(addresses), int(str(values.get("ansible_port", 22)))))
    return found


def is_template(values: Variables) -> bool:
    """Whether ansible_host is a template of the other two, as group_vars have it. A machine elsewhere gives its own."""
    return "{{" in str(values.get("ansible_host", "{{"))


def pin_new(inventory: Inventory, only: list[str], repin: list[str]) -> bool:
    """True when no unknown host key is left. Asks on a terminal; elsewhere MOTLEY_ACCEPT_KEYS=yes is the answer."""
    known_hosts = inventory.state / "known_hosts"
    if repin:
        hostkeys.forget(repin, known_hosts)
    wanted = addresses_of(inventory.nodes, only)
    pins = hostkeys.read_pins(known_hosts)
    if all(node.name in pins for node in wanted):
        return True
    contacts = hostkeys.look([node for node in wanted if node.name not in pins], known_hosts)
    new = [contact for contact in contacts if contact.state == "new"]
    if new and not accepted(new):
        return False
    hostkeys.pin(new, known_hosts)
    return True


def accepted(new: list[hostkeys.Contact]) -> bool:
    print(f"first contact: please compare once with each machine's own screen ({HOW_TO_COMPARE})")
    for contact in new:
        print(f"  {contact.name}  {contact.address}  {contact.fingerprint}")
    if os.environ.get("MOTLEY_ACCEPT_KEYS") == "yes":
        print("accepted (MOTLEY_ACCEPT_KEYS=yes)")
        return True
    if not sys.stdin.isatty():
        print(
            "nobody is here to say yes: run it in a terminal, or compare and set MOTLEY_ACCEPT_KEYS=yes",
            file=sys.stderr,
        )
        return False
    return agreed("all right?")


def run(request: run_playbook.PlaybookRun, passwords: Passwords) -> int:
    progress = Progress()
    code = run_playbook.run(request, passwords, progress)
    if code == interrupt.CODE:
        return code
    try:
        willing = ask(waiting(progress))
    except KeyboardInterrupt:
        print(f"\nstopped: what was done stays, the restart is still to come. Again: {request.command}", flush=True)
        return interrupt.CODE
    if not willing:
        return code
    variables = {**request.variables, "motley_gpu_driver_may_restart": willing}
    return run_playbook.run(replace(request, variables=variables), passwords)


def waiting(progress: Progress) -> dict[str, str]:
    """The nodes that stopped for want of a yes and for nothing else, each with what must be known before that yes."""
    failed = [(node.name, node.phases[node.failed]) for node in progress.nodes.values() if node.failed]
    stopped = {name: phase.failure for name, phase in failed if phase.failed_task == STOPPED and phase.failure}
    return {name: " ".join(cause.what.splitlines()[1:]) for name, cause in stopped.items()}


def ask(nodes: dict[str, str]) -> list[str]:
    """Which of them may restart now; whatever is not a yes is a no."""
    if not sys.stdin.isatty():
        return []
    questions = {node: " ".join([f"restart {node} now?", *([note] if note else [])]) for node, note in nodes.items()}
    try:
        return [node for node, question in questions.items() if input(f"{question} [y/N] ").strip().lower() in YES]
    except EOFError:
        return []
