"""The tables of docs/BENCHMARKS.md: set between their marks, and every part of `make bench` has a place there."""

import re
from pathlib import Path

import pytest

from tests.bench import balance, fan_out, launch, page, pipes, scaling, sync
from tests.bench import lab as lab_life
from tests.bench.__main__ import PARTS


def test_every_part_has_its_place_and_can_be_replaced(tmp_path: Path) -> None:
    text = page.PAGE.read_text()
    for name in PARTS:
        assert re.search(rf"<!-- {name}: .*-->", text), name
        copy = tmp_path / "page.md"
        copy.write_text(text)
        page.put(name, ["| new |"], copy)
        page.put(name, ["| newer |"], copy)
        changed = copy.read_text()
        assert "| newer |" in changed and "| new |" not in changed
        assert changed.split(f"<!-- {name}:")[0] == text.split(f"<!-- {name}:")[0]
        assert changed.split(f"end of {name} -->")[1] == text.split(f"end of {name} -->")[1]


def test_a_part_without_a_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing")
    with pytest.raises(SystemExit, match="no place for other"):
        page.put("other", [], tmp_path / "page.md")


def test_tables_are_made_of_medians_with_their_spread() -> None:
    assert page.row("a", [1, 3, 2], "{:.0f} s", "≤ 4 s") == "| a | 2 s (1 s–3 s, 3 runs) | ≤ 4 s |"
    assert page.spread([5], "{}") == "5 (one run)"
    one = {"1": 10.0, "2": 19.0, "3": 28.0, "5": 45.0}
    lines = scaling.table(
        {"equal": [one, one], "unequal": [{"alone": {"a": 10.0, "b": 5.0, "c": 4.0, "d": 4.0, "e": 2.0}} | one]}
    )
    assert "| 5 | 40 | 45.0 (45.0–45.0) | 4.50× | 4.9" in lines[5], lines
    assert lines[7].startswith("| 16 | 128 | – | – |") and "16 | 128" in lines[7]
    assert "| 2 | 10.0 + 5.0 | 19.0 | 127% | 1.90× |" in lines
    moves = [{"throttled": 3, "recovered": 5}]
    assert "| steps to follow a node that recovers | 5 (one run) | ≤ 10 |" in balance.table({"throttle": moves})
    assert "| … of the link's limit | 1.12× (one run) | ≤ 1.25× |" in fan_out.table(
        {"chain": [{"seconds": 18, "nodes": 3}]}
    )
    step = {"sync": "flat", "wire": "fp32", "step_s": 0.5, "blocked_s": 0.1}
    assert "| 100 Mbit/s | flat | fp32 | 0.50 s (0.50–0.50) | 0.10 s |" in sync.table({"100": [{"measured": [step]}]})
    ways = {"late": [{launch.WHOLE: 20.0}, {launch.WHOLE: 10.0}], "early": [{launch.WHOLE: 10.0}, {launch.WHOLE: 6.0}]}
    assert "| 55 % (50 %–60 %, 2 runs) |  | ≤ 60 % |" in launch.table(ways)[-1]
    cut = {"layers": {"a": 8, "b": 4}, "took": 3.0, "predicted": 3.3}
    streamed = {"streamed took": 4.0, "streamed predicted": 4.4, "chosen": "cut"}
    shown = pipes.table({"trio-1000": [cut | streamed], "pair-1000": [cut]})
    assert "| 8 + 4 | 3.00 (one run) | 3.30 | +10% | 4.00 (one run) | 4.40 | 2048 : 1536 | cut |" in shown[2]
    assert shown[3].endswith("| +10% |  |  |  |  |")
    life = {"down": 0.2}
    assert "| down | 0.2 s (one run) |" in lab_life.table({"bookworm": [life]})


def test_the_front_page_has_the_measured_figures() -> None:
    measured = page.PAGE.read_text()
    (found,) = re.findall(r"\| balanced over even \| ([\d.]+)× \(([\d.]+)×–([\d.]+)×, (\d+) runs\)", measured)
    middle, low, high = (f"{float(number):.1f}" for number in found[:3])
    words = {"2": "two", "3": "three", "4": "four", "5": "five"}
    front = " ".join((page.REPOSITORY / "README.md").read_text().split())
    told = f"{middle} times as fast as an even split** ({low} to {high} in {words[found[3]]} runs)"
    (together,) = re.findall(r"rows/s together, balanced \| ([\d.]+)", measured)
    (even,) = re.findall(r"rows/s together, even split \| ([\d.]+)", measured)
    (speeds,) = re.findall(r"rows/s of each alone \| ([\d.+ ]+) \|", measured)
    alone = speeds.split(" + ")
    assert f"**{float(together) / float(alone[0]):.1f} times as fast as the fastest machine alone, {told}" in front
    told = f"{', '.join(alone[:-1])} and {alone[-1]} rows of training data a second alone make {together} together"
    assert f"{told}, and {even}" in front
    picture = (page.REPOSITORY / "docs/shares.svg").read_text()
    assert all(picture.count(f"{speed} rows/s") == 2 for speed in alone)
