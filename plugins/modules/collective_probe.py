#!/usr/bin/python
# MIT License, see LICENSE
"""One node's part of an all-reduce over all nodes, started directly, as a run's workers are."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TypedDict

from ansible.module_utils.motley.documented import module_of
from ansible.module_utils.motley.listening_ports import listeners
from ansible.module_utils.motley.node_network import ask

FREE_WITHIN_S = 20.0

DOCUMENTATION = r"""
module: collective_probe
short_description: Prove that all nodes compute together; runs on all of them in parallel
author: Motley
description:
  - Starts one rank of an all-reduce on every node at the same time, over the interface that has the node's address.
  - Fails with the last error of the rank where it does not succeed in time; nothing keeps running.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder on the node"},
  "rank": {"type": "int", "required": true, "description": "This node's place"},
  "addresses": {"type": "list", "elements": "str", "required": true,
    "description": "The nodes' addresses, in order of rank"},
  "port": {"type": "int", "default": 29891, "description": "Where rank 0 is reached"},
  "timeout_s": {"type": "float", "default": 150, "description": "Until when it must be over"},
  "settings": {"type": "dict", "default": {}, "description": "Further environment of the ranks"}
}
"""
EXAMPLES = """
- name: Let all nodes compute together
  collective_probe:
    home: ~/ai-cluster
    rank: "{{ ansible_play_hosts.index(inventory_hostname) }}"
    addresses: "{{ ansible_play_hosts | map('extract', hostvars, 'motley_address') | list }}"
"""
RETURN = r"""
measured: {type: dict, returned: on rank 0, description: "megabytes, seconds, percent_of_link, …"}
took_s: {type: float, returned: success, description: Seconds from start to end}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    python = Path(params["home"]) / "env/bin/python"
    if not list(Path(params["home"]).glob("env/lib/python*/site-packages/torch/version.py")):
        module.fail_json(msg="there is no torch in its environment\nfix: ./motley bootstrap --phase python_env")
    if not (Path(params["home"]) / "code/train/measure/compute_together.py").is_file():
        module.fail_json(msg="Motley's code is not there\nfix: ./motley bootstrap --phase workspace")
    me = params["addresses"][params["rank"]]
    start = time.monotonic()
    if params["rank"] == 0 and not comes_free(params["port"]):
        module.fail_json(msg=taken(params["port"], listeners(ask("ss", "-Hltnp"))))
    environ = environment(me) | {name: str(value) for name, value in params["settings"].items()}
    environ |= {"RANK": str(params["rank"]), "WORLD_SIZE": str(len(params["addresses"]))}
    environ |= {"MASTER_ADDR": params["addresses"][0], "MASTER_PORT": str(params["port"])}
    environ |= {"PYTHONPATH": str(Path(params["home"]) / "code")}
    code, output = run([str(python), "-m", "train.measure.compute_together"], environ, params["timeout_s"])
    took_s = round(time.monotonic() - start, 2)
    reports = [json.loads(line.removeprefix("MOTLEY ")) for line in output.splitlines() if line.startswith("MOTLEY ")]
    if reports:
        module.exit_json(changed=False, measured=reports[0], motley_say=sentence(reports[0]), took_s=took_s)
    if code == 0:
        module.exit_json(changed=False, took_s=took_s)
    module.fail_json(msg=why(output, params["addresses"][0], params["port"]))


def why(output: str, head: str, port: int) -> str:
    fix = "fix: ./motley check-versions; then ./motley bootstrap --phase firewall, and look at the node named above"
    if "client socket has timed out" in output:
        return f"nobody answered at port {port} of {head}, the first node\n{fix}"
    lines = output.splitlines()
    errors = [line for line in lines if "Error" in line or "CheckFailed" in line] or lines
    return f"the all-reduce did not succeed: {' '.join(errors[-2:])[:400]}\n{fix}"


def comes_free(port: int) -> bool:
    """Whether rank 0 can listen there; what takes the port for a moment is waited for."""
    until = time.monotonic() + FREE_WITHIN_S
    while True:
        try:
            socket.create_server(("", port)).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                return error.errno != errno.EADDRINUSE
            time.sleep(0.5)
        else:
            return True


def taken(port: int, listening: list[tuple[str, int, str]]) -> str:
    programs = sorted({program for _, taken_port, program in listening if taken_port == port and program})
    by = f" by {' and '.join(programs)}" if programs else ""
    return (
        f"port {port} is taken there{by}, so the other nodes cannot meet\n"
        "fix: end that program, or give it a port outside 29400-29899, which are Motley's; then the same command again"
    )


class Measured(TypedDict):
    megabytes: float
    seconds: float
    percent_of_link: float
    link_mbit: float
    backend: str
    world: int


def sentence(report: Measured) -> str:
    size = f"all-reduce {report['megabytes']:.0f} MB"
    words = f"{size} {report['seconds'] * 1000:.0f} ms = {report['percent_of_link']} % of the link"
    return f"{words} ({report['link_mbit']:.0f} Mbit/s, {report['backend']}, {report['world']} nodes)"


def environment(address: str) -> dict[str, str]:
    """The NIC that carries the LAN address, and nothing guessed."""
    nic = nic_of(address)
    known = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    known |= {"MOTLEY_ADDRESS": address, "OMP_NUM_THREADS": "1"}
    return known | ({"GLOO_SOCKET_IFNAME": nic} if nic else {})


def nic_of(address: str) -> str:
    if address.startswith("127."):
        return "lo"
    done = subprocess.run(["ip", "-json", "-4", "address"], capture_output=True, text=True, check=False)
    for link in json.loads(done.stdout or "[]"):
        if any(entry.get("local") == address for entry in link.get("addr_info", [])):
            return str(link["ifname"])
    return ""


def run(command: list[str], environ: dict[str, str], timeout_s: float) -> tuple[int, str]:
    """Runs a command, and ends it with all that it starts: nothing stays behind when time is up."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environ,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        output += f"\nError: it was not over after {timeout_s:.0f} s"
    return process.returncode, output


if __name__ == "__main__":
    main()
