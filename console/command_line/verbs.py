"""Every verb of `./motley` with its options: the parser, the help, make's variables and the completion are made of it.

Standard library only: a fresh checkout can show its help before anything is installed.
"""

from __future__ import annotations

from dataclasses import replace

from console.command_line.options import Option, Parser, Verb, add, parser_of
from console.command_line.rarer_verbs import RARER
from console.command_line.shared_options import (
    AS_FILE,
    ASKED,
    CARDS,
    FORMS,
    INFRA,
    INVENTORY,
    JSON,
    LASTS,
    NODE,
    NODES,
    NOT_OF_A_SWEEP,
    ON_SLURM,
    PHASE,
    PORT,
    QUANT,
    RESULTS,
    RUN,
    SET,
    TO,
    VERBOSE,
    YES,
)  # fmt: skip

GROUPS = {"start": "Start", "train": "Train", "results": "Use it", "trouble": "Trouble", "more": "More"}

VERBS = {
    "demo": Verb(
        "start",
        "try it on this machine; no graphics card needed",
        (
            Option(
                "recipe",
                "fine-tune, train by preferences or rewards, or a new model",
                "NAME",
                ("sft", "preference", "grpo", "pretrain"),
                usual="sft",
            ),
            Option("fast", "a tiny model instead of a real one", also=("demo-fast",)),
            Option("folders", "three folders instead of three simulated machines, as without root"),
            Option("infra", "slurm: on a simulated Slurm cluster", "NAME", ("machines", "slurm")),
            Option("rent", "on a rented machine of a simulated market, without money", "fake", choices=("fake",)),
            Option("base", "the simulated machines' Debian or Ubuntu, such as trixie", "SUITE"),
        ),
        example="--fast",
        page="docs/getting-started.md",
    ),
    "inventory": Verb(
        "start",
        "describe your machines: asks a few questions",
        (
            INVENTORY,
            Option("hosts", "your machines, instead of questions", "'USER@ADDRESS …'"),
            Option("add", "add this machine to those that are described", "USER@ADDRESS"),
            Option("remove", "remove this machine; shows first how to undo what Motley set up on it", "NAME"),
        ),
        example='--hosts "anna@192.168.1.23 anna@192.168.1.31"',
        page="docs/machines.md",
    ),
    "check": Verb(
        "start", "look for mistakes in hosts.yml; connects to nothing", (INVENTORY,), page="docs/machines.md"
    ),
    "bootstrap": Verb(
        "start",
        "set up your machines and test them together",
        (
            INVENTORY,
            PHASE,
            NODES,
            Option("check", "show what would change; change nothing"),
            Option("reboot", "machines may restart for a new driver", "yes", choices=("yes",)),
            Option("repin", "forget the host keys of these machines: they were reinstalled", "NAME[,NAME]"),
            Option("rollback", "with --phase python_env: go back to the environment before this one"),
            Option("sudo-password", "ask for the sudo password too: it differs from the one of SSH", "ask", ("ask",)),
            VERBOSE,
        ),
        example="--check",
        page="docs/machines.md",
    ),
    "plan": Verb(
        "train",
        "show whether it fits and what a run would do",
        (*ASKED, CARDS, *ON_SLURM),
        example="--model qwen3-8b --cards 24,8",
        page="docs/training.md",
    ),
    "sweep": Verb(
        "train",
        "find the best settings by many trials, one a machine",
        (
            *(option for option in ASKED if option.name not in NOT_OF_A_SWEEP),
            Option("trials", "how many", "N", usual="20"),
            Option("grid", "every combination of what is listed, instead of --trials"),
            Option("prune", "what ends a trial that falls behind", "NAME", ("asha", "hyperband", "off"), usual="asha"),
            Option("then", "train the best one over all machines, if you watch to the end", "train", ("train",)),
            RESULTS,
        ),
        example="--model qwen3-0.6b --dataset ./notes.jsonl --set learning_rate=1e-5..1e-3:log --set lora_r=8,16,32",
        page="docs/training.md#the-best-settings-a-sweep",
    ),
    "check-model": Verb(
        "train",
        "show in seconds whether a model trains exactly",
        (Option("model", "a name of docs/training.md#models, a hub id or a folder", "NAME"), JSON),
        rest="MODEL",
        example="qwen3-4b",
        page="docs/training.md#models",
    ),
    "check-rewards": Verb(
        "train",
        "try the rewards of recipe=grpo on rows of a file",
        (
            Option("rewards", "./rewards.py, exact, number, … with commas between them; runs its functions", "REWARDS"),
            Option("dataset", "a file of prompts", "FILE", usual="three made-up rows"),
            Option("rows", "how many rows to try", "N", default=0, usual="4", least=1),
            JSON,
        ),
        rest="REWARDS [DATASET]",
        example="./rewards.py,exact sums.jsonl",
        page="docs/rewards.md",
    ),
    "launch": Verb(
        "train",
        "train on all machines, and watch",
        (
            *ASKED,
            YES,
            Option("queue", "begin by itself when the runs before it have ended", "TRUE|FALSE", variable="queue"),
            Option("detach", "do not stay to watch", also=("d",), gives="false", variable="follow"),
            Option("dashboard", "also show the run as a web page while you watch", goes_as="page"),
            Option("wake", "switch on machines that are off first", goes_as="wake_up"),
            Option(
                "follow",
                "with --json: print each event of the run as a line until it ends, as ./motley follow --json does",
            ),
            *ON_SLURM,
        ),
        example="--model qwen3-0.6b --dataset ./my-notes.jsonl",
        page="docs/training.md",
    ),
    "status": Verb("train", "show what is running, and how far it is", (INVENTORY, JSON), page="docs/training.md"),
    "follow": Verb("train", "watch the run; Ctrl-C leaves it running", (INVENTORY, JSON), page="docs/training.md"),
    "dashboard": Verb(
        "train",
        "watch the run in a browser; Ctrl-C leaves it running",
        (INVENTORY, RUN, PORT, Option("lan", "let others in your network watch; they can also stop the run")),
        example="--lan",
        page="docs/at-home.md",
    ),
    "logs": Verb(
        "train",
        "print the messages of each machine",
        (
            INVENTORY,
            NODE,
            Option("lines", "how many earlier lines of each machine", "N", default=200),
            Option("no-follow", "only the earlier lines"),
            Option("f", "also print new lines as they come (this is the default)", goes_as="no_follow", gives=False),
        ),
        rest="NODE",
        example="gpu-worker-1",
        page="docs/training.md",
    ),
    "stop": Verb(
        "train",
        "save the run and stop it on every machine",
        (INVENTORY, Option("all", "also take all other runs out of the queue", goes_as="whole_queue")),
        page="docs/training.md",
    ),
    "queue": Verb(
        "train",
        "show the runs that wait, or change their order",
        (
            INVENTORY,
            Option("move", "give this run another place", "RUN", usual=""),
            Option("to", "with --move: its place, counted from 1", "N", default=0, usual="", least=1),
            Option("remove", "take this run out", "RUN", usual=""),
            JSON,
        ),
        example="--move notes --to 1",
        page="docs/training.md#several-runs-one-after-another",
    ),
    "pause": Verb(
        "train",
        "free a machine for yourself; the others continue",
        (INVENTORY, replace(NODE, usual=""), LASTS),
        rest="NODE",
        example="gpu-worker-1 --for 2h",
        page="docs/at-home.md",
    ),
    "unpause": Verb(
        "train",
        "let paused machines train again",
        (INVENTORY, NODE),
        rest="NODE",
        example="gpu-worker-1",
        page="docs/at-home.md",
    ),
    "wake": Verb(
        "train",
        "switch machines on over the network",
        (INVENTORY, NODE),
        rest="NODE",
        example="gpu-worker-1",
        page="docs/at-home.md",
    ),
    "runs": Verb("train", "list every run on every machine", (INVENTORY, AS_FILE, JSON), page="docs/results.md"),
    "ask": Verb(
        "results",
        "ask the model your questions, before and after training",
        (
            INVENTORY,
            RUN,
            Option("question", "a question, a picture, or - for standard input", "TEXT|FILE|-", usual="you type them"),
            Option("tokens", "the longest answer", "N", default=0, usual="200", least=1, also=("answer-tokens",)),
        ),
        rest="QUESTION",
        example='"When does the library close?"',
        page="docs/results.md",
    ),
    "generate": Verb(
        "results",
        "answer many prompts with all machines, into one file",
        (
            INVENTORY,
            Option(
                "prompts", "what is to be answered: a file, a folder, a hub id or a name from the catalogue", "FILE"
            ),
            replace(RUN, help="whose model answers: a run that has made an adapter"),
            Option("model", "a model as it is, instead of a run's", "NAME"),
            Option("as", "what to call it", "NAME", usual="RUN-answers", goes_as="name"),
            Option("resume", "go on with one that was stopped", "NAME"),
            Option("max-new-tokens", "the longest answer", "N", usual="256", goes_as="max_new_tokens"),
            Option("temperature", "how boldly it is drawn; 0: the likeliest answer", "X", usual="0"),
            Option("answers", "answers to each prompt", "N", usual="1"),
            Option("out", "also write them to this file", "FILE"),
            replace(NODES, goes_as="nodes"),
            SET,
            RESULTS,
        ),
        rest="PROMPTS",
        example="--prompts ./questions.jsonl --run notes",
        page="docs/results.md",
    ),
    "chat": Verb(
        "results",
        "talk with the model in this terminal",
        (
            INVENTORY,
            RUN,
            Option("temperature", "0: always the likeliest word; above 1: bolder", "X", usual="0.7"),
            Option("tokens", "the longest answer", "N", default=0, usual="as the model ends it", least=1),
            Option("system", "a system message that opens the conversation", "TEXT"),
            replace(PORT, help="the port of ./motley serve, if it is running", default=7070),
        ),
        rest="RUN",
        example="notes",
        page="docs/results.md#talk-with-it",
    ),
    "serve": Verb(
        "results",
        "offer the model to programs, as OpenAI's API",
        (INVENTORY, RUN, replace(PORT, default=7070), Option("lan", "also for others in your network, by a token")),
        rest="RUN",
        example="notes",
        page="docs/results.md#for-other-programs",
    ),
    "eval": Verb(
        "results",
        "compare before and after: answers and loss, or tasks",
        (
            INVENTORY,
            RUN,
            Option("tasks", "ask these by all machines: lm-evaluation-harness's, or files", "arc_easy,./mine.yaml"),
            Option("documents", "questions of each task, at most", "N", usual="all"),
            Option("shots", "examples before each question", "N", usual="as the task has it"),
            Option("as", "what to call it", "NAME", usual="RUN-tasks", goes_as="name"),
            Option("resume", "go on with one that was stopped", "NAME"),
            replace(NODES, goes_as="nodes"),
            SET,
            RESULTS,
        ),
        rest="RUN",
        example="notes --tasks arc_easy,./mine.yaml",
        page="docs/results.md",
    ),
    "fetch": Verb(
        "results",
        "copy a run's result and logs to results/RUN",
        (INVENTORY, RUN, RESULTS),
        rest="RUN",
        example="notes",
        page="docs/results.md",
    ),
    "report": Verb(
        "results",
        "write one page about a fetched run",
        (RUN, RESULTS, TO),
        rest="RUN",
        example="notes",
        page="docs/results.md",
    ),
    "export": Verb(
        "results",
        "make the file for Ollama, transformers or PEFT",
        (INVENTORY, RUN, Option("to", "the form", "FORM", FORMS, "gguf"), QUANT, RESULTS, YES),
        rest="FORM",
        example="--run notes --to gguf",
        page="docs/results.md",
    ),
    "tensorboard": Verb(
        "results",
        "show a run's curves in TensorBoard, also while it runs",
        (INVENTORY, RUN, RESULTS, replace(PORT, default=6006)),
        rest="RUN",
        page="docs/results.md",
    ),
    "clean": Verb(
        "results",
        "delete checkpoints of finished runs; asks first",
        (INVENTORY, replace(RUN, usual="all that are finished"), YES),
        rest="RUN",
        page="docs/results.md",
    ),
    **RARER,
}
for _name, _verb in VERBS.items():
    if INVENTORY in _verb.options:
        VERBS[_name] = replace(_verb, options=(*_verb.options, INFRA))


def parser(name: str, prog: str = "./motley") -> Parser:
    """The parser of one verb. A launch takes each of its variables as an option; the help shows the common ones."""
    made = parser_of(VERBS[name], f"{prog} {name}")
    if VERBS[name].options[: len(ASKED)] == ASKED:
        made.epilog = f"{MORE_SETTINGS}\n\n{made.epilog}"
        known = {flag for action in made._actions for flag in action.option_strings}
        for variable, takes in launch_variables().items():
            forms = {variable.replace("_", "-"), variable} - {flag.lstrip("-") for flag in known}
            if forms:
                first, *others = sorted(forms)
                option = Option(first, "", takes, also=tuple(others), variable=variable)
                add(made, option, hidden=True)
    return made


MORE_SETTINGS = """Every other launch variable is an option as well, such as --save-every 20:
docs/reference.md#launch-variables lists them."""


def launch_variables() -> dict[str, str]:
    """Each with what it takes."""
    from train.plan.settings import read_settings, request  # noqa: PLC0415  a fifth of a second, for plan and launch alone

    specs = {name: read_settings.SETTINGS[name] for name in request.settings()}
    takes = {name: "TRUE|FALSE" if str(spec.type) == "bool" else "VALUE" for name, spec in specs.items()}
    return takes | {"queue": "TRUE|FALSE", "slurm_gpu_gb": "GB", "report_to": "NAME"}
