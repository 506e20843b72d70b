"""Shapes are chosen by name, for all hosts or for one, and combined in one order; what cannot be is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import gpu, profile, shapes
from lab.shapes.shape import Machine
from lab.shell import LabError

HOSTS = ("gpu-master", "gpu-worker-1")


def names(*words: str) -> dict[str, list[str]]:
    return {host: [shape.name for shape in some] for host, some in shapes.wanted(words, HOSTS).items()}


def test_a_shape_is_for_all_hosts_and_one_hosts_own_is_in_its_place() -> None:
    assert names() == {"gpu-master": [], "gpu-worker-1": []}
    assert names("debian-root") == {"gpu-master": ["debian-root"], "gpu-worker-1": ["debian-root"]}
    mixed = names("debian-root", "gpu-worker-1=desktop-2404")
    assert mixed == {"gpu-master": ["debian-root"], "gpu-worker-1": ["desktop-2404"]}
    assert names("debian-root", "gpu-worker-1=")["gpu-worker-1"] == []


@pytest.mark.parametrize("words", [["debian-root,debian-ifupdown"], ["debian-ifupdown", "debian-root,debian-root"]])
def test_they_are_combined_in_one_order(words: list[str]) -> None:
    assert names(*words)["gpu-master"] == ["debian-ifupdown", "debian-root"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("debian-rot", "no shape 'debian-rot'; there are: "),
        ("gpu-worker-9=debian-root", "no host 'gpu-worker-9'; there are: gpu-master, gpu-worker-1"),
        ("debian-ifupdown,desktop-2404", "both say who sets up its network"),
    ],
)
def test_what_cannot_be_is_refused(word: str, said: str) -> None:
    with pytest.raises(LabError, match=said) as refused:
        names(word)
    assert refused.value.code == 2


@given(st.lists(st.sampled_from(list(shapes.SHAPES))))
def test_the_order_of_names_makes_no_other_machine(asked: list[str]) -> None:
    def outcome(of: list[str]) -> object:
        try:
            return shapes.of(of)
        except LabError as refused:
            return str(refused)

    assert outcome(asked) == outcome(asked[::-1])


@pytest.mark.parametrize("shape", shapes.SHAPES.values(), ids=shapes.SHAPES)
def test_each_can_be_written_onto_a_machine(shape: shapes.Shape, tmp_path: Path) -> None:
    trio = profile.load("trio")
    gpu.Condition(**shape.hardware)
    assert shape.meaning and shape.ssh_port
    if shape.decides:
        shape.write(Machine(root=tmp_path, spec=trio.hosts[0], profile=trio, address="10.77.0.23"))
        written = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
        assert any("10.77.0.23" in text for text in written)
