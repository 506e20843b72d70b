"""What the head's ssh is told of the workers, as ssh itself reads it: nothing that is the owner's is changed by it."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path

import jinja2
import pytest

TEMPLATE = Path(__file__).parents[3] / "roles/motley_ssh_trust/templates/ssh_config.j2"
OURS, ADDRESS = "~/.ssh/motley_ed25519", "192.168.1.101"


def read_by_ssh(folder: Path, user: str, host: str) -> dict[str, list[str]]:
    """Setting → its values, where this user's machines are told of one worker."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["motley_addresses"] = lambda names, _: dict.fromkeys(names, ADDRESS)
    told = environment.from_string(TEMPLATE.read_text()).render(
        ansible_user=user, hostvars={"gpu-worker-1": {"ansible_port": 2222}},
        __motley_ssh_trust_workers=["gpu-worker-1"], motley_ssh_trust_key="motley_ed25519",
    )  # fmt: skip
    (folder / "told").write_text(told)
    done = subprocess.run(["ssh", "-F", folder / "told", "-G", host], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def test_the_login_user_reaches_a_worker_by_name_with_our_key_after_the_usual_ones(tmp_path: Path) -> None:
    seen = read_by_ssh(tmp_path, getpass.getuser(), "gpu-worker-1")
    assert (seen["hostname"], seen["port"], seen["hostkeyalias"]) == ([ADDRESS], ["2222"], ["gpu-worker-1"])
    assert seen["identityfile"][-1] == OURS and "~/.ssh/id_ed25519" in seen["identityfile"]
    assert seen["identitiesonly"] == ["no"], "a key of an agent opens it as before"


@pytest.mark.parametrize(("user", "host"), [("anna-of-elsewhere", "gpu-worker-1"), ("", ADDRESS)])
def test_whoever_else_or_by_whatever_else_is_told_nothing(user: str, host: str, tmp_path: Path) -> None:
    """Root's backups, and an address that somebody types."""
    seen = read_by_ssh(tmp_path, user or getpass.getuser(), host)
    assert OURS not in seen["identityfile"] and (seen["hostname"], seen["port"]) == ([host], ["22"])
    assert seen["user"] == [getpass.getuser()]
