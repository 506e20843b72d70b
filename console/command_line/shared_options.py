"""The options that several verbs of `./motley` share.

Standard library only, as verbs.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from console.command_line.options import Forms, Option
from console.infra import NAMES
from train.plan.settings.gguf_quants import DEFAULT_QUANT, QUANTS

PHASES = (
    *("ssh_trust", "hostname", "static_ip", "firewall", "clock", "power", "gpu_driver"),
    *("python_env", "workspace", "run", "proof"),
)
INVENTORY = Option("inventory", "the folder that describes your machines", "FOLDER", default="inventory/homelab")
NODES = Option(
    "nodes", "only these machines; --limit is the same", "NAME[,NAME]", usual="all", also=("limit",), goes_as="limit"
)
LASTS = Option("for", "for how long", "2h", usual="until ./motley unpause", goes_as="lasts")
NODE = replace(NODES, also=("limit", "node"))
RUN = Option("run", "which run", "NAME", usual="the newest")
AS_FILE = Option("as-file", "print how this run was launched, as a file for launch -f", "RUN")
TO = Option("to", "instead, its curves for this program", "NAME", ("trackio", "wandb", "mlflow", "tensorboard"))
FORMS = Forms(("gguf", "merged", "adapter", "hub:USER/NAME"))
QUANT = Option("quant", "of a gguf: how many bits its weights get", "NAME", QUANTS, usual=DEFAULT_QUANT)
JSON = Option("json", "print JSON", goes_as="as_json")
RESULTS = Option("results", "the folder of fetched runs", "FOLDER", default=Path("results"))
FIX = Option("fix", "fix what can be fixed safely")
YES = Option("yes", "do not ask")
VERBOSE = Option("verbose", "show everything that Ansible prints", also=("v",))
VAULT = Option("vault", "ask for your vault's password", "ask", choices=("ask",))
PORT = Option("port", "the port on this machine", "N", default=7007, most=65535)
INFRA = Option(
    "infra",
    "where it runs; all but machines are described in inventory/NAME",
    "NAME",
    choices=NAMES,
    usual="as your inventory says",
)
"""The option of every verb with an inventory: a word for the usual inventory of that kind."""
SLURM_OPTIONS = Option(
    "slurm-options", "on Slurm: options of sbatch, such as '--partition=gpu --nodes=3'", "'--NAME …'"
)
SETTINGS = {"steps": "max_steps"}
"""Options of plan and launch that have another name than their variable of launch.yml."""
SET = Option(
    "set", "any variable listed in docs/reference.md, or @FILE, a file of them; as often as you like", "NAME=VALUE",
    default=[], also=("e",), goes_as="settings",
)  # fmt: skip
ASKED = (
    Option("file", "a file of launch variables; what you type wins", "run.yml", also=("f",), goes_as="run_file"),
    Option("model", "a name of docs/training.md#models, a hub id or a folder (images: resnet18, vit-tiny)", "NAME"),
    Option("dataset", "your data: a file, a folder, a hub id or a name from the catalogue", "FILE"),
    Option("run", "what to call the run", "NAME", usual="MODEL-DATASET"),
    Option("epochs", "how many times to go through the data", "N", usual="once, but at least 50 steps"),
    Option("steps", "how many steps to train, instead of --epochs", "N"),
    replace(NODES, goes_as="nodes"),
    Option("learning-rate", "the peak learning rate", "X", usual="2e-4 with LoRA", variable="learning_rate"),
    Option("rows-per-step", "the batch size, over all machines together", "N", usual="16", variable="rows_per_step"),
    Option("max-seq-length", "tokens in a row", "N", usual="512", variable="max_seq_length"),
    Option("lora-r", "the adapter's rank", "N", usual="16", variable="lora_r"),
    Option(
        "load-in", "precision of the frozen base", "BITS", ("4bit", "8bit", "16bit"), usual="16bit if it fits",
        variable="load_in",
    ),
    Option("resume", "continue this run", "RUN"),
    Option(
        "recipe", "fine-tune, train by preferences or rewards, a new model, pictures, or a file of your own", "NAME",
        ("sft", "preference", "grpo", "pretrain", "images", "./FILE.py"), other=True, usual="sft",
    ),
    Option("rewards", "with --recipe grpo: what scores an answer", "./rewards.py,exact"),
    Option("adapter", "begin with a trained adapter, as a new run", "RUN, FOLDER or HUB-ID"),
    Option("at", "start at this time; everything is prepared now", "22:00"),
    Option("then", "what the machines do after the run", "WORD", ("suspend", "poweroff"), usual="stay on"),
    Option("profile", "record these steps, to see where their time goes", "20-23"),
    SET,
    VAULT,
    VERBOSE,
    INVENTORY,
    JSON,
)  # fmt: skip
NOT_OF_A_SWEEP = ("then", "profile", "vault", "verbose", "json")
ON_SLURM = (SLURM_OPTIONS, Option("sweep", "on Slurm: one run for each combination", "'learning_rate=1e-4,2e-4 …'"))
CARDS = Option(
    "cards", "without an inventory: each machine's card by its GB or name; 8+8: two cards; cpu:16: none", "24,3060"
)
PHASE = Option("phase", "only this phase", "NAME", PHASES, other=True, usual="all")
