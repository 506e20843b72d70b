"""The keys that are pinned on first contact are those that a person has seen and agreed to."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from plugins.module_utils.motley.hostkeys import read_pins
from tests.support import ROOT, pace
from tests.support.stand_ins import program

SHOWN, LATER = (f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{letter * 43}" for letter in "AB")


def test_a_key_that_is_shown_later_is_not_pinned_in_its_place(tmp_path: Path) -> None:
    """Whatever answers at the address by then."""
    contact = {"name": "late", "state": "new", "address": "127.0.0.1", "key": SHOWN, "fingerprint": "SHA256:abc"}
    found = {"strangers": ["late"], "contacts": {"late": contact}, "host_keys": {"late": SHOWN}}
    asks = {"include_role": {"name": "motley_contact", "tasks_from": "ask_about_new_keys"}}
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "cluster", "gather_facts": False, "tasks": [asks]}]))
    program(tmp_path / "ssh-keyscan", f"#!/bin/sh\necho '127.0.0.1 {LATER}'\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    node = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_port": port}
    node |= {"motley_address": "127.0.0.1", "motley_state_folder": str(tmp_path), "motley_contact_ask": False}
    (tmp_path / "hosts.yml").write_text(json.dumps({"cluster": {"hosts": {"late": node}}}))
    agreed = {"motley_contact_found": found, "__motley_contact_answer": {"user_input": "yes"}}
    playbook = Path(sys.executable).with_name("ansible-playbook")
    command = [playbook, "-i", tmp_path / "hosts.yml", tmp_path / "play.yml", "-e", json.dumps(agreed)]
    where = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    pace.does(*command, cwd=ROOT, env=where)
    assert {name: key for name, (key, _) in read_pins(tmp_path / "known_hosts").items()} == {"late": SHOWN}
