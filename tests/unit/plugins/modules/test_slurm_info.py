"""What sbatch is asked before a launch: the very options that the job will have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugins.module_utils.motley import slurm_login_node
from plugins.modules import slurm_info
from tests.support.stand_ins import program

SBATCH = """#!/usr/bin/env python3
import json, pathlib, sys
pathlib.Path(__file__).with_name("asked").write_text(json.dumps(sys.argv[1:]))
when, where = "2026-11-27T09:00:00 using 8 processors", "nodes n[1-2] in partition gpu"
print(f"sbatch: Job 7 to start at {when} on {where}", file=sys.stderr)
"""


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program(tmp_path / "sbatch", SBATCH)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_options_reach_it_as_they_are_quoted(sbatch: Path) -> None:
    found = slurm_info.asked(["'--nodelist=n[1-2]'", "'--constraint=a|b'", "'--comment=a b'", "-N 2"])
    assert (found[1], found[2], found[3]) == ("2026-11-27T09:00:00", "n[1-2]", "gpu")
    words = json.loads((sbatch / "asked").read_text())
    assert words[2:-1] == ["--nodelist=n[1-2]", "--constraint=a|b", "--comment=a b", "-N", "2"]


def test_a_slurm_that_does_not_answer_says_so(sbatch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sbatch / "sbatch").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(slurm_info, "SBATCH_S", 0.2)
    with pytest.raises(OSError, match=r"sbatch gave no answer within 0\.2 s\nfix: "):
        slurm_info.asked([])
    with pytest.raises(OSError, match=r"sbatch gave no answer within 0\.2 s"):
        slurm_login_node.slurm("sbatch", timeout_s=0.2)


def test_a_card_of_a_node_that_is_not_asked_for_is_not_counted() -> None:
    node = {"cards": ["v100", "v100"]}
    assert slurm_info.processes(node, ["--gpus-per-node 1"]) == {"cards": ["v100"], "processes": 1}
    assert slurm_info.processes(node, ["--gpus=8"]) == {"cards": ["v100", "v100"], "processes": 2}
    assert slurm_info.processes(node, ["--nodes=2"]) == {"cards": [], "processes": 1}
