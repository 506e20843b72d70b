"""A finished run in seconds: an adapter that nobody has trained, with the files that a launch leaves beside it.

python -m tests.support.finished_run MODEL HOME … [--run RUN]      (with a node's environment)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path

import torch

from train.models import hf
from train.models.backends import ModelSpec
from train.models.model_files import model_folder

LORA_R = 8


def make(home: Path, model: str, run: str) -> None:
    base = home / "models/base" / model
    shutil.copytree(model_folder(model), base)
    torch.manual_seed(1)
    made = hf.build(ModelSpec(folder=str(base), lora_r=LORA_R))
    for name, weight in made.named_parameters():
        if "lora_B" in name:  # else it would be its base
            weight.data.normal_(0, 0.02)
    made.save_pretrained(home / "results" / run / "adapter")
    logs = home / "logs/runs" / run
    logs.mkdir(parents=True)
    settings = {"model": model, "dataset": "notes.jsonl", "max_seq_length": 64, "lora_r": LORA_R}
    launch = {"run": run, "all": settings, "model": {"folder_name": model}}
    (logs / "launch.json").write_text(json.dumps(launch))
    now = time.time()
    start = {"event": "start", "time": now, "total_steps": 9, "decisions": {"load_in": "16bit"}}
    events = [start, {"event": "step", "time": now, "step": 9, "loss": 1.0}]
    (logs / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))


def copied(home: Path, to: Path) -> None:
    shutil.copytree(home, to, symlinks=True, copy_function=os.link)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("homes", nargs="+", type=Path)
    parser.add_argument("--run", default="notes")
    args = parser.parse_args()
    make(args.homes[0], args.model, args.run)
    for other in args.homes[1:]:
        copied(args.homes[0], other)
