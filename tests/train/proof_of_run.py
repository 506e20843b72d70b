"""From the event logs of all nodes: which steps count, which rows were trained, how far the losses are from the truth.

python -m tests.train.proof_of_run DATA ROWS_PER_STEP EVENTS.jsonl…      prints one JSON object
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np

from tests.train import reference
from train.data.rows import open_rows
from train.models.model_files import model_folder
from train.runlog.tail import read

SEED = 3407
MOST_COMPARED = 500  # one process needs as long for a step as three


def merge(logs: list[list[dict]]) -> dict[int, dict]:
    """One history of many logs: where a run went on at step k, what had been trained beyond k is taken back."""
    counts: dict[int, dict] = {}
    for event in sorted((event for log in logs for event in log), key=lambda event: event["time"]):
        if event["event"] == "start":
            counts = {step: kept for step, kept in counts.items() if step <= event["step"]}
        elif event["event"] == "step":
            counts[event["step"]] = event
    return counts


def rows_are_right(steps: dict[int, dict], rows: int, rows_per_step: int) -> bool:
    """The slices of all steps tile the stream of rows, and the rows in them are those of a single machine."""
    epochs = 2 + len(steps) * rows_per_step // rows
    stream = np.concatenate([np.random.Generator(np.random.PCG64([SEED, e])).permutation(rows) for e in range(epochs)])
    position = 0
    for step in sorted(steps):
        for node in steps[step]["nodes"].values():
            fed = stream[position : position + node["rows"]].astype("<i8")
            if node["first"] != position or node["rows_crc"] != zlib.crc32(fed.tobytes()):
                return False
            position += node["rows"]
        if position != step * rows_per_step:
            return False
    return True


def main(data: str, rows_per_step: str, *files: str) -> None:
    steps = merge([read(Path(file)) for file in files])
    rows, each = len(open_rows(Path(data))), int(rows_per_step)
    whole = sorted(steps) == list(range(1, len(steps) + 1))
    start = next(event for file in files for event in read(Path(file)) if event["event"] == "start")
    total, rate = start["total_steps"], start["identity"]["learning_rate"]
    compared = min(len(steps), MOST_COMPARED) if whole else 0
    truth = reference.losses(
        model_folder("tiny"), Path(data), steps=compared, rows_per_step=each, of_steps=total, rate=rate
    )
    errors = [abs(steps[i + 1]["loss"] - loss) / loss for i, loss in enumerate(truth)]
    worlds = sorted({len(event["nodes"]) for event in steps.values()})
    right = whole and rows_are_right(steps, rows, each)
    print(
        json.dumps({"steps": len(steps), "whole": whole, "rows": right, "error": max(errors or [9]), "worlds": worlds})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
