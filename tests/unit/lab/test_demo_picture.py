"""The picture on the front page: a record of a demo, drawn as it was printed."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lab import demo_picture
from lab.demo_picture import BLUE, GREEN, GREY, PLAIN, YELLOW

RECORD = """\
making .venv (controller dev); the first time takes a minute or two
motley demo · three simulated machines on this one; nothing leaves it, nothing of it is changed
  tools      wheels & model   0.3 s
plan  demo · tiny
  model     tiny is in the catalogue
starting: gpu-master: first plan · 12 s
step 5/48  loss 6.7535  gpu-master 39  gpu-worker-1 36
step 7/48  loss 6.7029  gpu-master 41  gpu-worker-1 37
⚡ gpu-worker-1 lost at step 8 · silent
step 8/48  loss 6.7142  gpu-master 46  gpu-worker-1 33  (starting)
step 41/48  loss 6.5301  gpu-master 69  gpu-worker-1 24
held-out loss 6.6153 after step 48 (best so far)
step 48/48  loss 6.5583  gpu-master 65  gpu-worker-1 24
done · 48 steps · loss 6.5968

next       ./motley inventory            (your own machines)

real 1m46.927s
"""


def test_it_shows_the_lines_as_they_were_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "record").write_text(RECORD)
    monkeypatch.setattr(sys, "argv", ["picture", str(tmp_path / "record"), str(tmp_path / "picture.svg")])
    assert demo_picture.main() == 0
    drawing = ET.parse(tmp_path / "picture.svg").getroot()
    rows: dict[str, str] = {}
    for text in drawing.iter("{http://www.w3.org/2000/svg}text"):
        column = round((float(text.attrib["x"]) - demo_picture.EDGE) / demo_picture.CHARACTER)
        rows[text.attrib["y"]] = rows.get(text.attrib["y"], "").ljust(column) + "".join(text.itertext())
    lines = [row.replace(demo_picture.NO_BREAK, " ") for row in rows.values()]
    assert lines == [
        "$ sudo ./motley demo",
        "motley demo · three simulated machines on this one; nothing leaves it, nothing of it is changed",
        "  tools      wheels & model   0.3 s",
        "plan  demo · tiny",
        "step 7/48  loss 6.7029  gpu-master 41  gpu-worker-1 37",
        "⚡ gpu-worker-1 lost at step 8 · silent",
        "step 48/48  loss 6.5583  gpu-master 65  gpu-worker-1 24",
        "done · 48 steps · loss 6.5968",
        "next       ./motley inventory            (your own machines)",
    ]


def test_a_demo_that_broke_off_is_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "record").write_text(RECORD.partition("next ")[0])
    monkeypatch.setattr(sys, "argv", ["picture", str(tmp_path / "record"), str(tmp_path / "picture.svg")])
    assert demo_picture.main() == 2 and "came to its end" in capsys.readouterr().err
    assert not (tmp_path / "picture.svg").exists()


def test_a_line_that_is_too_wide_continues_below_its_words() -> None:
    line = "survived   " + "seven more words are in each part " * 5
    first, *rest = demo_picture.wrapped(line.rstrip())
    assert len(rest) == 1 and max(map(len, (first, *rest))) <= demo_picture.WIDE
    assert rest[0].startswith(" " * 11) and (first + " " + rest[0].strip()) == line.strip()
    assert demo_picture.wrapped("") == [""] and demo_picture.wrapped("plan  demo · tiny") == ["plan  demo · tiny"]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("⚡ gpu-worker-1 lost", [(0, YELLOW, "⚡ gpu-worker-1 lost")]),
        ("  tools      all is here   0.3 s", [(2, BLUE, "tools"), (13, PLAIN, "all is here"), (27, GREY, "0.3 s")]),
        ("done       42 steps", [(0, GREEN, "done"), (11, PLAIN, "42 steps")]),
        ("               after   Mitzi.   (right)", [(15, GREEN, "after   Mitzi.   (right)")]),
        ("", []),
    ],
)
def test_colours_are_those_of_a_terminal(line: str, parts: list[tuple[int, str, str]]) -> None:
    assert demo_picture.coloured(line) == parts


def test_every_colour_can_be_read_on_its_own_ground() -> None:
    def light(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    inks = {PLAIN, *(colour for _, colour in demo_picture.COLOURS)}
    assert min((light(ink) + 0.05) / (light(demo_picture.GROUND) + 0.05) for ink in inks) >= 4.5
