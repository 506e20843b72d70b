"""The picture on the front page: a record of a demo, drawn as it was printed."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lab import picture

RECORD = """\
making .venv (controller dev); the first time takes a minute or two
motley demo · three simulated machines on this one; nothing leaves it, nothing of it is changed
  tools      wheels & model   0.3 s
plan  demo · tiny
  model     tiny is in the catalogue
starting: gpu-master: first plan · 12 s
step 5/48  loss 6.7535  gpu-master 39  gpu-worker-1 36
step 7/48  loss 6.7029  gpu-master 41  gpu-worker-1 37
⚡ gpu-worker-1 lost at step 8 · lost gpu-worker-1 (silent)
step 8/48  loss 6.7142  gpu-master 46  gpu-worker-1 33  (starting)
step 41/48  loss 6.5301  gpu-master 69  gpu-worker-1 24
held-out loss 6.6153 after step 48 (best so far)
step 48/48  loss 6.5583  gpu-master 65  gpu-worker-1 24
done · 48 steps · loss 6.5968

next       make inventory            (your own machines)

real 1m46.927s
"""


def test_it_shows_the_lines_as_they_were_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "record").write_text(RECORD)
    monkeypatch.setattr(sys, "argv", ["picture", str(tmp_path / "record"), str(tmp_path / "picture.svg")])
    assert picture.main() == 0
    drawing = ET.parse(tmp_path / "picture.svg").getroot()
    lines = [
        "".join(text.itertext()).replace("\u00a0", " ") for text in drawing.iter("{http://www.w3.org/2000/svg}text")
    ]
    assert lines == [
        "$ sudo make demo",
        "motley demo · three simulated machines on this one; nothing leaves it, nothing of it is changed",
        "  tools      wheels & model   0.3 s",
        "plan  demo · tiny",
        "step 7/48  loss 6.7029  gpu-master 41  gpu-worker-1 37",
        "⚡ gpu-worker-1 lost at step 8 · lost gpu-worker-1 (silent)",
        "step 48/48  loss 6.5583  gpu-master 65  gpu-worker-1 24",
        "done · 48 steps · loss 6.5968",
        "next       make inventory            (your own machines)",
    ]


def test_a_demo_that_broke_off_is_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "record").write_text(RECORD.partition("next ")[0])
    monkeypatch.setattr(sys, "argv", ["picture", str(tmp_path / "record"), str(tmp_path / "picture.svg")])
    assert picture.main() == 2 and "came to its end" in capsys.readouterr().err
    assert not (tmp_path / "picture.svg").exists()
