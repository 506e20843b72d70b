"""Profiles are checked when read: a wrong one is refused with the key that is wrong."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lab import gpu, profile
from lab.place import Place
from lab.shell import LabError, fetch

TRIO: dict[str, Any] = yaml.safe_load((profile.FOLDER / "trio.yml").read_text())


def changed(*path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(TRIO)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize("name", profile.names())
def test_shipped_profiles_are_right(name: str) -> None:
    loaded = profile.load(name)
    assert loaded.hosts[0].name == ("server-6" if name == "rented" else "gpu-master")
    assert all(gpu.card(host) for host in loaded.hosts)


@pytest.mark.parametrize("name", ["pair", "trio", "five"])
def test_profiles_keep_their_sum_of_cpu_near_one_core(name: str) -> None:
    assert 80 <= sum(host.cpu_percent for host in profile.load(name).hosts) <= 110


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("hosts", "gpu-master", "adress"), "10.77.0.9", "adress"),
        (("hosts", "gpu-master", "address"), "10.78.0.9", "outside 10.77.0.0/24"),
        (("hosts", "gpu-master", "address"), "10.77.0.101", "is both"),
        (("network",), "10.77.0.0/33", "33"),
    ],
)
def test_a_wrong_profile_is_refused(path: tuple[str, ...], value: Any, said: str) -> None:
    with pytest.raises(LabError, match=said):
        profile.parse("wrong", changed(*path, value=value))


def test_an_unknown_profile_names_those_that_exist() -> None:
    with pytest.raises(LabError, match="five, pair, rented, trio"):
        profile.load("quartet")


@given(st.text(max_size=20))
def test_no_lab_name_can_reach_outside_its_folder(name: str) -> None:
    try:
        place = Place(name=name)
    except LabError:
        return
    assert place.root.parent == Path("/var/lib/motley-lab") and place.root.name == name


def test_a_lab_owns_its_namespaces_and_no_other_labs() -> None:
    place = Place(name="lab")
    assert place.owns_namespace(place.switch) and place.owns_namespace(place.host_namespace("gpu-master"))
    assert not place.owns_namespace(Place(name="lab2").switch)
    assert not place.owns_namespace(Place(name="lab2").controller)


def test_what_cannot_be_fetched_says_what_to_look_at() -> None:
    said = "echo 'E: Failed to fetch http://mirror' >&2; echo 'E: setup exit code 100' >&2; exit 25"
    shown = "^the base: E: Failed to fetch http://mirror\nfix: sudo apt-get update"
    with pytest.raises(LabError, match=shown) as told:
        fetch("the base", "sh", "-c", said, timeout_s=10)
    assert "exit code" not in str(told.value)
    fetch("the base", "true", timeout_s=10)
