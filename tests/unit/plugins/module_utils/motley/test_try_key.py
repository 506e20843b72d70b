"""Whose keys a machine is offered, and whose Ansible may run our playbooks."""

from pathlib import Path

import pytest

from plugins.callback.calm import unfit
from plugins.module_utils.motley import try_key
from tests.support import pace
from tests.support.stand_ins import program


def test_all_keys_of_a_person_are_offered_where_there_are_any(tmp_path: Path) -> None:
    assert try_key.own_keys(tmp_path, False) == []
    assert try_key.own_keys(tmp_path, True) == ["-o", "IdentitiesOnly=no"]
    (tmp_path / "id_ed25519").touch()
    assert try_key.own_keys(tmp_path, False)[2:] == ["-o", "IdentityFile=~/.ssh/id_ed25519"]


@pytest.mark.parametrize(
    ("opened", "names"),
    [({"a": "IdentitiesOnly=yes"}, []), ({"a": "IdentitiesOnly=no"}, ["a"]), ({}, [])],
)
def test_they_are_needed_only_where_ours_opens_nothing(
    opened: dict[str, str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_key, "opens", lambda keys, node, _: opened.get(node["name"]) in keys)
    nodes = [{"name": "a"}, {"name": "b"}]
    assert try_key.opened_by(["-o", "IdentitiesOnly=no"], nodes, "state") == names
    assert try_key.opened_by([], nodes, "state") == []


def test_a_key_that_waits_for_a_touch_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "ssh", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(try_key, "TOUCH_S", 0.5)
    began = pace.now()
    assert not try_key.opens([], {"name": "a", "port": 22, "user": "anna", "address": "192.0.2.1"}, "state")
    assert pace.now() - began < 20


def test_an_ansible_that_cannot_run_our_playbooks_says_why() -> None:
    assert "ansible-core 2.14.18" in unfit("2.14.18", whole=True)
    assert "the system's ansible-core 2.20.1" in unfit("2.20.1", whole=False)
    assert not unfit("2.19.14", whole=True) and not unfit("2.22.0rc1", whole=True) and not unfit("3.0.0", whole=True)
