"""The commands of the owner's pages, typed on a cluster in the order in which a person comes to them.

What stands for the reader's own (names, files, a model from the hub) is replaced by what a lab has. What no lab can do
is named at the end as not run; that it parses is tested in tests/unit/docs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bootstrap import Person
from tests.support.pages import Command, of

pytestmark = pytest.mark.long
PAGES = (
    "README.md",
    "getting-started.md",
    "machines.md",
    "training.md",
    "results.md",
    "trouble.md",
    "questions.md",
    "cards.md",
)
ORDER = (
    *("inventory", "check", "bootstrap", "check-versions", "doctor", "plan", "launch", "status", "follow", "logs"),
    *("queue", "pause", "runs", "eval", "ask", "export", "fetch", "report", "torchrun", "stop", "clean", "undo"),
)
FITS_A_LAB = {
    r"llama2-7b|qwen2\.5-(?:0\.5|7)b|qwen3-(?:0\.6|4)b|smollm2-135m": "tiny",
    r"\./my-notes\.jsonl|examples/household\.jsonl|HuggingFaceH4/no_robots": "{notes}",
    r"--run notes|--resume RUN": "",
    r"(launch .*)--epochs \d+": r"\1",
    r"--profile 20-23": "--profile 2-3",
    r"train\.py --lr 0\.1": "{script}",
}
ELSEWHERE = {
    r"motley inventory$": "asks questions: tests/unit/console/inventory/test_check.py",
    "--vault ask": "asks for ansible-vault's password: tests/unit/console/test_notice_address.py",
    "inventory/loopback": "the nodes are folders: tests/roles/test_loopback.py",
    "motley demo": "tests/roles/test_loopback.py, tests/lab/test_demo.py",
    "--resume": "wants a run that was stopped: tests/lab/test_run_life.py",
    "--rollback": "wants an older environment: tests/roles/test_python_env.py",
    "--to gguf": "wants llama.cpp's converter: tests/train/test_llama_cpp.py",
    "--to (?:hub|wandb)": "sends it to the internet: tests/unit/console/test_push.py, curves/test_trackers.py",
    "--report-to": "wants a tracker: tests/unit/console/curves/test_trackers.py",
    "--tasks": "wants lm-eval's tasks: tests/train/test_tasks.py",
    "motley chat": "wants a person: tests/unit/console/serve/test_chat.py",
    "motley serve": "runs until it is ended: tests/lab/test_serve.py",
    "motley generate": "tests/train/test_generate.py",
    "motley sweep": "trains for long: tests/train/test_sweep.py",
    "motley check-model": "wants the hub: tests/unit/console/test_check_model.py",
    "--queue|queue --": "wants a run that waits: tests/lab/test_queue.py",
    "-f examples/": "wants a model of the hub: tests/unit/examples",
    "make test": "the tests themselves",
    "make bench": "measures for hours",
    "make lab-": "the lab itself: tests/lab",
    "ansible-playbook": "tests/roles/test_launch.py",
}
MAY_FIND = ("doctor", "check-versions", "follow")
"""Exit code 1 is an answer of theirs: a lab's host is no perfect machine, and there may be no run to follow."""


SCRIPT = """\
import os
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print("one of", dist.get_world_size(), flush=True)
os._exit(0)
"""


def shown() -> list[Command]:
    """Each once."""
    found = {
        c.text: c
        for c in of("make", "./motley", "ansible-playbook")
        if c.page in PAGES and c.whole and "…" not in c.text
    }
    return sorted(found.values(), key=lambda c: ORDER.index(c.words[1]) if c.words[1] in ORDER else -1)


@pytest.fixture(scope="module")
def person(ready_trio: Person) -> Iterator[Person]:
    ready_trio.writes(motley_render_environment={"OMP_NUM_THREADS": 1})
    facts = [{"prompt": f"What is in box {n}?", "completion": f"In box {n} are {n} books."} for n in range(60)]
    (ready_trio.folder / "notes.jsonl").write_text("\n".join(map(json.dumps, facts)))
    (ready_trio.folder / "train.py").write_text(SCRIPT)
    yield ready_trio
    ready_trio.types("stop")


def typed(command: Command, person: Person) -> list[str]:
    text = " ".join(word if " " not in word else f"'{word}'" for word in command.words)
    for theirs, ours in FITS_A_LAB.items():
        text = re.sub(theirs, ours.format(notes=person.folder / "notes.jsonl", script=person.folder / "train.py"), text)
    words = Command(command.page, command.line, text).words
    if words[1] == "inventory":
        return [*words, "--inventory", str(person.folder / "described")]
    if words[1] == "launch":
        words += ["--steps", "4", "--set", "rows_per_step=6", "--set", "max_seq_length=64"]
    if words[1] == "clean":
        words += ["--yes"]
    if words[1] == "torchrun":  # what stands behind the script is the script's
        return [*words[:2], "--inventory", str(person.inventory), *words[2:]]
    if words[1] in ("fetch", "report"):
        words += ["--results", str(person.folder / "results")]
    if words[1] == "logs":
        words += ["--no-follow"]
    if words[1] == "report":
        return words
    return [*words, "--inventory", str(person.inventory)]


@pytest.mark.parametrize("command", shown(), ids=str)
def test_it_does_what_the_page_says(command: Command, person: Person, tmp_path: Path) -> None:
    if why := next((why for words, why in ELSEWHERE.items() if re.search(words, command.text)), ""):
        pytest.skip(f"NOT RUN here, only parsed: {command.text} ({why})")
    done = person.cluster.controller(
        *typed(command, person), env=person.environment() | {"MOTLEY_CACHE": str(person.folder / "cache")}
    )
    verb = command.words[1]
    assert done.returncode in ((0, 1) if verb in MAY_FIND else (0,)), done.stdout + done.stderr
    assert done.stdout.strip(), "it says nothing"
    assert "Traceback" not in done.stdout + done.stderr
