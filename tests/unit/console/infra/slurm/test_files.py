"""What a job of Slurm runs by: its script is bash, our options stand before the person's, each run has its settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from console.infra.slurm.files import SCRIPT, SlurmPlan, SweptRun, files, rendered
from console.infra.slurm.sbatch_options import options_of
from tests.support.plans import node, slurm_plan
from tests.support.stand_ins import program
from train.errors import BadInput
from train.plan.model.sources import DataSource
from train.runlog.secret import Secret

SHARED = "/shared/me/ai-cluster"
SETTINGS = {"run": "qa", "dataset": "stdlib-qa", "model": "tiny", "device": "auto"}


def qa(home: str = SHARED, sweep: Sequence[SweptRun] = ()) -> SlurmPlan:
    rows, nodes = DataSource(name="x", folder_name="rows"), [node("a", home=SHARED)]
    return slurm_plan(
        SETTINGS | {"lora_r": 8}, home=home, sweep=sweep, dataset=rows, given={"model": "tiny"}, nodes=nodes
    )


def written(options: list[str] | None = None, *, home: str = SHARED, sweep: Sequence[SweptRun] = ()) -> dict[str, str]:
    plan = SlurmPlan.from_json(qa(home, sweep).to_json())
    return {file.path: file.content for file in rendered(plan, options or [], {"NCCL_ALGO": "Ring"}, "now")}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", []),
        ("--partition=gpu --account=x", ["--partition=gpu", "--account=x"]),
        ("-p gpu --nodes 3", ["-p gpu", "--nodes 3"]),
        ("--comment='two words'", ["'--comment=two words'"]),
    ],
)
def test_an_option_has_a_line_of_its_own(text: str, options: list[str]) -> None:
    assert options_of(text) == options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu", "'gpu' is no option"),
        ("--comment='x", "No closing quotation"),
        ("--comment='a\nb'", "a line break"),
        ("--output=x", "--output is the launch's own"),
        ("-n 4", "--n is the launch's own"),
        ("-n4", "--n is the launch's own"),
    ],
)
def test_what_cannot_be_an_option_is_told_with_its_fix(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as found:
        options_of(text)
    assert "fix: " in str(found.value)


def test_the_script_is_bash_and_what_was_asked_for_stands_behind_what_is_usual() -> None:
    script = written(["--nodes=3", "--signal=B:USR1@300"])[SCRIPT]
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    asked = [line.split(" #")[0].strip() for line in script.splitlines() if line.startswith("#SBATCH")]
    assert asked[-2:] == ["#SBATCH --nodes=3", "#SBATCH --signal=B:USR1@300"]
    assert "#SBATCH --requeue" in asked
    assert "#SBATCH --no-kill" in asked
    assert "export NCCL_ALGO=Ring" in script
    assert "export CUDA_DEVICE_ORDER=PCI_BUS_ID PYTORCH_ALLOC_CONF=expandable_segments:True\n" in script


STAND_INS = {
    "squeue": "exit 0",
    "scontrol": 'echo "$@" >>"$MOTLEY_HOME/asked"',
    "srun": "kill -USR1 $SCRIPT; echo '{}'",  # its time is over while the nodes are asked
    "env/bin/python": f'exec {sys.executable} "$@"',
}


def test_a_job_whose_starts_bring_it_no_further_ends_with_that_reason(tmp_path: Path) -> None:
    """The launch's own script: its time is over while it still starts, each time."""
    (tmp_path / "code").symlink_to(Path(__file__).parents[5])
    for name, does in STAND_INS.items():
        program(tmp_path / name, f"#!/bin/sh\n{does}\n")
    script = tmp_path / "script"
    script.write_text(written(home=str(tmp_path))[SCRIPT])
    (tmp_path / "jobs/qa").mkdir(parents=True)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    words = ["bash", "-c", f"SCRIPT=$$ exec bash {script}"]
    starts = [subprocess.run(words, env=env, text=True, capture_output=True, check=False, timeout=60) for _ in range(3)]
    assert [done.returncode for done in starts] == [0, 0, 1], starts
    assert (tmp_path / "asked").read_text() == "requeue 7\n" * 2
    assert "three starts after one another made no new step" in starts[-1].stdout
    view = json.loads((tmp_path / "jobs/qa/place-0/logs/runs/qa/agent.json").read_text())
    assert view["state"] == "failed" and view["reason"].splitlines()[-1].startswith("fix: ")


def test_the_settings_are_the_runs_and_name_no_places_home() -> None:
    files = written()
    settings = files["jobs/qa/config/training_config.yaml"]
    assert "dataset: /shared/me/ai-cluster/data/processed/rows" in settings
    assert "\nhome:" not in settings
    assert '"run": "qa"' in files["jobs/qa/logs/runs/qa/launch.json"]


def test_each_run_of_a_sweep_has_its_settings_and_one_script_starts_them_all() -> None:
    sweep = [
        SweptRun(run=f"qa-{place}", swept={"lora_r": rank}, settings=SETTINGS | {"lora_r": rank})
        for place, rank in ((1, 8), (2, 16))
    ]
    files = written(sweep=sweep)
    script = files[SCRIPT]
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert "#SBATCH --array=1-2" in script
    assert 'export MOTLEY_RUN=qa-"$SLURM_ARRAY_TASK_ID"' in script
    assert "--output=/shared/me/ai-cluster/jobs/qa-%a/output/%A_%a.out" in script
    assert "lora_r: 16 " in files["jobs/qa-2/config/training_config.yaml"]
    assert "run: qa-2 " in files["jobs/qa-2/config/training_config.yaml"]
    assert '"swept": {' in files["jobs/qa-1/logs/runs/qa-1/launch.json"]


def test_a_job_gets_the_address_of_messages_for_its_user_alone(tmp_path: Path) -> None:
    def brought(**values: str) -> dict[str, Any]:
        known: dict[str, Any] = {"inventory_hostname": "login", "hostvars": {"login": values}}
        known["motley_request_checked"] = {"asked": {"of_infra": {}}}
        return files(known, {"plan": qa().to_json(), "state_folder": str(tmp_path)}).params

    told, address = brought(motley_notify="https://me"), "jobs/qa/config/secret.json"
    found = [file for file in json.loads(told["files"]) if file["path"] == address]
    assert [(file["content"], file["mode"]) for file in found] == [(Secret(messages="https://me").to_json(), 0o600)]
    assert Secret().to_json() in [file["content"] for file in json.loads(brought()["files"])], "of an earlier launch"
