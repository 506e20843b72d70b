"""Every verb of `./motley` with its options: the parser, the help, make's variables and the completion are made of it.

Standard library only: a fresh checkout can show its help before anything is installed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from console.inventory.finding import nearest

PHASES = (
    *("ssh_trust", "hostname", "static_ip", "firewall", "clock", "power"),
    *("gpu_driver", "python_env", "workspace", "run", "proof"),
)
GROUPS = {
    "start": "set up your machines",
    "train": "run a training, and watch it",
    "results": "what a run has made",
    "rent": "a bigger machine for some hours",
    "trouble": "find what is wrong, and undo",
}


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    help: str
    value: str = ""
    """What stands for its value in the help; empty: a switch."""
    choices: tuple[str, ...] = ()
    default: Any = ""
    also: tuple[str, ...] = ()
    """Other names of the same."""
    other: bool = False
    """Whether anything else than its choices may be given."""
    goes_as: str = ""
    """What the verb's function calls it, where that is another name."""

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(f"--{name}" if len(name) > 1 else f"-{name}" for name in (self.name, *self.also))

    @property
    def variables(self) -> tuple[str, ...]:
        """The option's names as variables after `make`."""
        return tuple(name.upper().replace("-", "_") for name in (self.name, *self.also) if len(name) > 1)


@dataclass(frozen=True, slots=True)
class Verb:
    group: str
    help: str
    options: tuple[Option, ...] = ()
    rest: str = ""
    """What stands behind the options, as it is."""


INVENTORY = Option("inventory", "the folder that describes the machines", "FOLDER", default="inventory/homelab")
NODES = Option("nodes", "these nodes only: NAME[,NAME]", "NAMES", also=("limit",), goes_as="limit")
LASTS = Option("for", "how long, such as 2h; otherwise until unpause", "TIME", goes_as="lasts")
NODE = replace(NODES, also=("limit", "node"))
RUN = Option("run", "its name (default: the newest)", "NAME")
JSON = Option("json", "the same as data", goes_as="as_json")
RESULTS = Option("results", "where fetched runs lie", "FOLDER", default=Path("results"))
FIX = Option("fix", "fix what is safe to fix")
YES = Option("yes", "without asking")
VERBOSE = Option("verbose", "show all that Ansible says", also=("v",))
VAULT = Option("vault", "ask for the password of ansible-vault", "ask", choices=("ask",))
INFRA = Option(
    "infra", "where: ssh, or inventory/slurm, inventory/kubernetes", "NAME", choices=("ssh", "slurm", "kubernetes")
)
"""The option of every verb with an inventory: a word for the usual inventory of that kind."""
SLURM_OPTIONS = Option("slurm-options", "options of sbatch: '--partition=gpu --nodes=3 --gpus=4'", "'--NAME …'")
SETTINGS = {"steps": "max_steps"}
"""Options of plan and launch that have another name than their variable of launch.yml."""
ASKED = (
    Option(
        "recipe",
        "sft: fine-tune a model; pretrain: a new language model; images: classify pictures; or a file of your own",
        "NAME",
        ("sft", "pretrain", "images"),
        other=True,
    ),
    Option("model", "a name of the catalogue, a hub id or a folder; of pictures resnet18|resnet50|vit-tiny", "NAME"),
    Option("dataset", "a name of the catalogue, a hub id, a file or a folder", "FILE"),
    Option("run", "what to call the run", "NAME"),
    Option("steps", "how many steps it trains", "N"),
    Option("epochs", "how often it goes through the data", "N"),
    replace(NODES, goes_as="nodes"),
    Option("resume", "continue this run", "RUN"),
    Option("at", "begin at this time: all is prepared now", "22:00"),
    Option("then", "after the run all machines sleep, or switch off", "WORD", ("suspend", "poweroff")),
    Option("profile", "record these steps, to see where their time goes", "20-23"),
    Option(
        "set",
        "any variable of docs/reference.md, or @FILE; may be given again",
        "NAME=VALUE",
        default=[],
        also=("e",),
        goes_as="settings",
    ),
    SLURM_OPTIONS,
    Option("sweep", "on Slurm: a run for each combination: 'learning_rate=1e-4,2e-4'", "'NAME=VALUE,VALUE …'"),
    VAULT,
    VERBOSE,
    INVENTORY,
    JSON,
)
CARDS = Option("cards", "without an inventory: GB of each machine's cards, or of a CPU's memory: 24,8+8,cpu:16", "24,6")
PHASE = Option("phase", f"one phase only: {', '.join(PHASES)}", "NAME")

VERBS = {
    "demo": Verb(
        "start",
        "quick start: three simulated machines, training, a power cut, an adapter",
        (
            Option("recipe", "pretrain: a new language model instead of an adapter", "NAME", ("sft", "pretrain")),
            Option("fast", "a tiny model instead of a real one", also=("demo-fast",)),
            Option("folders", "in three folders, as without root"),
            Option("infra", "slurm: on a Slurm of three simulated machines", "NAME", ("ssh", "slurm")),
            Option("rent", "a rented machine instead, with a simulated market and no money", "fake", choices=("fake",)),
            Option("base", "Debian or Ubuntu suite of the simulated machines", "SUITE"),
        ),
    ),
    "inventory": Verb(
        "start",
        "describe your machines: asks you a few questions",
        (INVENTORY, Option("hosts", '"user@192.168.1.23 user@192.168.1.31" instead of questions', "'USER@ADDRESS …'")),
    ),
    "check": Verb("start", "check the inventory; connects to nothing", (INVENTORY,)),
    "bootstrap": Verb(
        "start",
        "set up your machines and test them",
        (
            INVENTORY,
            PHASE,
            NODES,
            Option("check", "say what would change; change nothing"),
            Option("reboot", "machines may restart for a new driver", "yes", choices=("yes",)),
            Option("repin", "forget the host keys of these nodes: they were reinstalled", "NAMES"),
            Option("rollback", "with the phase python_env: the environment before this one"),
            Option("sudo-password", "sudo has another password than SSH: ask for it", "ask", choices=("ask",)),
            VERBOSE,
        ),
    ),
    "notify-test": Verb("start", "send a test message to motley_notify; says who can", (INVENTORY, VAULT)),
    "plan": Verb("train", "what a run would do, and whether it can; changes nothing", (CARDS, *ASKED)),
    "launch": Verb(
        "train",
        "train on all nodes, and watch",
        (
            *ASKED,
            YES,
            Option("dashboard", "the run as a live page in a browser too, as long as you watch", goes_as="page"),
            Option("wake", "switch on first what is off", goes_as="wake_up"),
            Option("follow", "with --json: each event of the run as a line, until it ends"),
        ),
    ),
    "torchrun": Verb(
        "train",
        "a training script of your own on all nodes, by plain torchrun",
        (
            Option("run", "what to call it", "NAME"),
            NODES,
            Option("module", "a module that the nodes have, instead of a script", "NAME", also=("m",)),
            Option("script", "the script and its arguments as one word, for make", "'FILE …'"),
            VERBOSE,
            INVENTORY,
        ),
        rest="FILE …",
    ),
    "status": Verb("train", "which run is running, where, how far; or which was the last", (INVENTORY, JSON)),
    "dashboard": Verb(
        "train",
        "the run as a live page in a browser; Ctrl-C leaves the run alone",
        (
            INVENTORY,
            RUN,
            Option("port", "where the browser finds it", "N", default=7007),
            Option("lan", "let others in your network read along; they can also stop it"),
        ),
    ),
    "follow": Verb("train", "watch the run; Ctrl-C leaves it alone", (INVENTORY, VAULT, JSON)),
    "logs": Verb(
        "train",
        "the messages of each node's part of the run",
        (
            INVENTORY,
            Option("nodes", "these nodes only: NAME[,NAME]", "NAMES", also=("limit", "node"), goes_as="limit"),
            Option("lines", "how many old lines of each node", "N", default=200),
            Option("no-follow", "the old lines only"),
        ),
    ),
    "stop": Verb("train", "save and stop the run on every node; no process is left", (INVENTORY,)),
    "pause": Verb(
        "train",
        "somebody needs a machine: it leaves the run and frees its memory, the others continue",
        (INVENTORY, replace(NODE, help="which"), LASTS),
        rest="NODE",
    ),
    "unpause": Verb("train", "it may train again", (INVENTORY, replace(NODE, help="which; default: all")), rest="NODE"),
    "wake": Verb(
        "train",
        "switch machines on over the network; who does not wake within a minute is named",
        (INVENTORY, replace(NODE, help="which; default: all")),
        rest="NODE",
    ),
    "runs": Verb("train", "every run on every node", (INVENTORY, JSON)),
    "fetch": Verb(
        "results", "bring adapter or model and event logs of a run to results/RUN", (INVENTORY, RUN, RESULTS)
    ),
    "report": Verb("results", "a fetched run on one page: results/RUN/report.html", (RUN, RESULTS)),
    "ask": Verb(
        "results",
        "your questions, answered before and after training",
        (
            INVENTORY,
            RUN,
            Option("question", "one question (otherwise you type them), a picture, or - for your input", "TEXT|FILE|-"),
            Option("tokens", "longest answer (default: 200)", "N", also=("answer-tokens",)),
        ),
    ),
    "eval": Verb("results", "loss and answers on the held-out part, before and after", (INVENTORY, RUN)),
    "export": Verb(
        "results",
        "the adapter or model as other programs load it, on the head",
        (
            INVENTORY,
            RUN,
            Option("to", "for Ollama, transformers or PEFT", "FORM", ("gguf", "merged", "adapter"), "gguf"),
        ),
    ),
    "tensorboard": Verb(
        "results",
        "the curves of a run in a browser, also while it is running",
        (INVENTORY, RUN, RESULTS, Option("port", "where the browser finds it", "N", default=6006)),
    ),
    "clean": Verb("results", "delete the checkpoints of finished runs, after asking", (INVENTORY, RUN, YES)),
    "rent": Verb(
        "rent",
        "rent one machine: a plan with its price, asked, proven, given back by itself",
        (
            Option("gpu", "its card, as the market calls it", "'RTX 4090'"),
            Option("hours", "how long at most", "N", default=0.0),
            Option("max", "the most for an hour, in dollars, with the fee", "N", default=0.0, goes_as="usd_h"),
            Option("model", "what is to be trained there: a card that is too small is left out", "NAME"),
            Option("keeper", "a node of inventory/homelab that gives it back if this machine sleeps", "NODE"),
            Option(
                "timer", "a timer of your systemd gives it back after a sleep or restart; it keeps the key in a file"
            ),
            Option("set", "other variables of that launch", "NAME=VALUE", default=[], also=("e",), goes_as="settings"),
            VAULT,
            YES,
            Option("inventory", "where rented machines are", "FOLDER", default="inventory/rented"),
        ),
    ),
    "rented": Verb("rent", "what is rented, until when, and what it has cost", (VAULT, JSON)),
    "give-back": Verb("rent", "give the rented machine back now; the bill", (VAULT, YES)),
    "doctor": Verb(
        "trouble",
        "what is wrong with the cluster, each with its cause and fix",
        (
            INVENTORY,
            NODES,
            FIX,
            Option("quick", "leave out what loads the machines for a moment"),
            Option("full", "read every file of environment, models and data; minutes"),
            JSON,
        ),
    ),
    "slurm-conf": Verb(
        "start",
        "slurm.conf for these machines, from what they say of themselves; installs nothing",
        (INVENTORY, Option("to", "write the files there, instead of showing them", "FOLDER")),
    ),
    "check-versions": Verb(
        "trouble", "what must agree between the nodes, and whether it does", (INVENTORY, NODES, FIX, JSON)
    ),
    "undo": Verb(
        "trouble",
        "put back what a phase found: --phase static_ip, or --phase all",
        (INVENTORY, Option("phase", f"{', '.join(PHASES)}, or all", "NAME"), NODES),
    ),
}
for _name, _verb in VERBS.items():
    if INVENTORY in _verb.options:
        VERBS[_name] = replace(_verb, options=(*_verb.options, INFRA))


class Joined(argparse.Action):
    """Names that stand alone, beside those behind --nodes."""

    def __call__(self, _: Any, namespace: argparse.Namespace, values: Any, __: str | None = None) -> None:
        names = values if isinstance(values, list) else []
        setattr(namespace, self.dest, " ".join(filter(None, [getattr(namespace, self.dest, ""), *names])))


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A word that it does not know gets the nearest that it does."""
        wrong = [word.partition("=")[0] for word in message.rpartition(": ")[2].split() if word.startswith("-")]
        known = [flag for action in self._actions for flag in action.option_strings]
        close = [nearest(word, known, otherwise="") for word in wrong if "unrecognized" in message]
        more = " ".join(filter(None, close)) or f"see: {self.prog} --help"
        self.exit(2, f"{self.prog}: {message}\n{more}\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Options may stand behind the nodes as well; behind a script all is the script's."""
        takes_nodes = any(action.nargs == "*" for action in self._actions)
        return (self.parse_intermixed_args if takes_nodes else super().parse_args)(args, namespace)


def parser(name: str, prog: str = "./motley") -> Parser:
    """The parser of one verb."""
    verb = VERBS[name]
    made = Parser(prog=f"{prog} {name}", description=verb.help, allow_abbrev=False)
    for option in verb.options:
        kind: dict[str, Any] = {"help": option.help, "dest": option.goes_as or option.name.replace("-", "_")}
        if not option.value:
            kind |= {"action": "store_true"}
        else:
            kind |= {
                "metavar": option.value,
                "default": option.default,
                "choices": None if option.other else option.choices or None,
            }
            kind |= {"action": "append"} if isinstance(option.default, list) else {"type": type(option.default)}
        made.add_argument(*option.flags, **kind)
    if verb.rest == "NODE":
        made.add_argument("limit", nargs="*", metavar=verb.rest, help="which", default="", action=Joined)
    elif verb.rest:
        made.add_argument("words", nargs=argparse.REMAINDER, metavar=verb.rest, help="and its own arguments")
    return made


def help_lines(form: str) -> list[str]:
    """All verbs by group; `form` is what stands before one."""
    lines = []
    for group, meaning in GROUPS.items():
        lines += [f"{group}: {meaning}"]
        for name, verb in VERBS.items():
            if verb.group == group:
                shows = [shown(form, option) for option in verb.options if option not in (INVENTORY, INFRA)]
                names = " ".join([*shows, *([verb.rest] if verb.rest and form != "make" else [])])
                lines += [
                    f"  {form} {name:<15} {verb.help}",
                    *([f"  {'':{len(form)}} {'':<15} {names}"] if names else []),
                ]
        lines += [""]
    return lines


def shown(form: str, option: Option) -> str:
    if form == "make":
        return f"{option.variables[0]}={option.value or 1}"
    return f"{option.flags[0]} {option.value}".rstrip()
