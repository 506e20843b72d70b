"""Run one playbook by ansible-runner and write down what happened: play.py REQUEST.json → answer.json beside it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import ansible_runner

from tests.support import ROOT

FINISHED = {"runner_on_ok", "runner_on_failed", "runner_on_unreachable"}


def main() -> None:
    request = Path(sys.argv[1])
    asked = json.loads(request.read_text())
    private = request.parent / "runner"
    private.mkdir()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where ansible-runner finds the program
    envvars = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **asked.pop("envvars", {})}
    places = {"private_data_dir": str(private), "project_dir": str(ROOT)}
    ran = ansible_runner.run(**places, quiet=True, envvars=envvars, **asked)
    events = [(event["event"], event["event_data"]) for event in ran.events if event["event"] in FINISHED]
    answer = {
        "rc": ran.rc,
        "stdout": ran.stdout.read(),
        "stats": {kind: hosts for kind, hosts in (ran.stats or {}).items() if isinstance(hosts, dict)},
        "results": [
            {"task": data.get("task"), "host": data.get("host"), "event": kind, "result": data.get("res", {})}
            for kind, data in events
        ],
    }
    (request.parent / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
