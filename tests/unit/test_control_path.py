"""The socket of a shared ssh connection: short enough for any home, and never that of another machine."""

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.support import ROOT

GIVEN = {
    "motley_state_folder": "/home/anna/motley/.motley",
    "inventory_hostname": "one",
    "ansible_host": "192.168.1.5",
    "ansible_port": 22,
    "ansible_user": "anna",
}
SUN_PATH = 107
"""What the kernel takes for a socket's path; ssh first listens at one with a dot and 16 letters more."""


def socket(inventory: str, **changed: object) -> str:
    known = {name: value for name, value in (GIVEN | changed).items() if value is not None}
    file = ROOT / f"inventory/{inventory}/group_vars/cluster.yml"
    text = trust_as_template(yaml.safe_load(file.read_text())["ansible_control_path"])
    return str(Templar(loader=DataLoader(), variables=known).template(text))


@pytest.mark.parametrize("inventory", ["homelab", "lab", "elsewhere", "rented"])
def test_it_fits_below_a_home_of_60_characters_and_no_two_machines_share_it(inventory: str) -> None:
    home = "/home/" + "a" * 54
    path = socket(inventory) % {"directory": f"{home}/.ssh/motley-cm"}
    assert len(path) + len(".0123456789abcdef") <= SUN_PATH and "%" not in path
    others = [{name: 23 if name == "ansible_port" else f"{value}x"} for name, value in GIVEN.items()]
    assert len({socket(inventory, **changed) for changed in [{}, *others]}) == 1 + len(GIVEN)
    assert socket(inventory, ansible_port=None) == socket(inventory), "22 is what ssh takes where none is named"
