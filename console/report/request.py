"""What was asked for: the settings that matter, and the command that repeats the run."""

from __future__ import annotations

import json
import shlex

from console.command_line.shared_options import SETTINGS
from console.command_line.verbs import VERBS
from console.report.run_data import LaunchRecord

MATTER = {
    "epochs": "epochs",
    "rows_per_step": "rows a step",
    "max_seq_length": "row length",
    "learning_rate": "learning rate",
    "method": "method",
    "lora_r": "LoRA rank",
    "lora_alpha": "LoRA alpha",
    "optimizer": "optimizer",
    "seed": "seed",
}
OF_LORA = ("lora_r", "lora_alpha")


def settings(launch: LaunchRecord) -> list[tuple[str, str]]:
    """The settings that shape the result, with their values, the usual ones too."""
    known = launch.get("all", {})
    found = {name: known.get(name) for name in MATTER if known.get("method") == "lora" or name not in OF_LORA}
    return [(MATTER[name], f"{value:g}" if isinstance(value, float) else str(value))
            for name, value in found.items() if value is not None]  # fmt: skip


def command(launch: LaunchRecord) -> str:
    """Repeats the run under a new name; empty where it is not known what was launched."""
    if not launch.get("given"):
        return ""
    names = {variable: option for option, variable in SETTINGS.items()}
    options = {option.name for option in VERBS["launch"].options}
    given = {name: launch["all"][name] for name in ("model", "dataset") if launch.get("all", {}).get(name)}
    words = ["./motley", "launch"]
    for name, value in {**given, **launch["given"]}.items():
        if name in ("run", "resume") or value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        option = names.get(name, name).replace("_", "-")
        words += [f"--{option}", text] if option in options else ["--set", f"{name}={text}"]
    return shlex.join(words)
