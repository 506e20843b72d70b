"""./motley serve over three folders that hold a real, tiny model: one machine's answers, whoever gives them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import served
from tests.support.finished_homes import RUN, homes_of, server_of
from tests.support.served import Served, ask, stream

CACHE = Path(os.environ.get("MOTLEY_CACHE") or Path.home() / ".cache/motley")
PYTHON = CACHE / "envs/train/bin/python"
NODES, MOST = ("one", "two", "three"), 60

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON.exists(), reason="NOT RUN: no node's environment here (make test makes it)"),
]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("serve")
    found = {name: folder / name for name in NODES}
    homes_of(PYTHON, "tiny", found)
    return found


@pytest.fixture(scope="module")
def here(homes: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = served.inventory(tmp_path_factory.mktemp("inventory"), homes)
    with served.served(folder, RUN) as found:
        for name in NODES:
            found.says(f"✓ {name}: ")
        yield found


def body(number: int, **more: Any) -> dict[str, Any]:
    question = {"role": "user", "content": f"What does function {number} of the library do?"}
    return {"messages": [question], "max_tokens": MOST, "temperature": 0, "seed": number, **more}


def test_eight_at_once_get_the_answers_of_one_machine(here: Served, homes: dict[str, Path], tmp_path: Path) -> None:
    asked = [body(number, temperature=number % 2) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = [*pool.map(lambda one: ask(here.port, one), asked)]
    assert [status for status, _ in together] == [200] * 8
    with served.served(served.inventory(tmp_path, {"one": homes["one"]}), RUN) as alone:
        alone_found = [ask(alone.port, one)[1]["choices"] for one in asked]
    assert [answer["choices"] for _, answer in together] == alone_found
    assert len({choices[0]["message"]["content"] for choices in alone_found}) == 8, "each question has its own answer"


@pytest.mark.parametrize("temperature", [pytest.param(0, marks=pytest.mark.long), 1])  # a certain choice is the easier
def test_a_machine_killed_in_the_middle_of_a_stream_changes_no_letter(
    here: Served, homes: dict[str, Path], temperature: int
) -> None:
    asked = body(3, temperature=temperature)
    whole = ask(here.port, asked)[1]["choices"][0]["message"]["content"]
    before = here.said().count(" is out: ")
    killed: list[int] = []

    def kill_who_answers(parts: int) -> None:
        if parts == MOST // 3 and not killed:
            pids = {name: server_of(home) for name, home in homes.items()}
            busiest = max(pids, key=lambda name: seconds_of(pids[name]) - started[name])
            killed.append(pids[busiest])
            os.kill(pids[busiest], signal.SIGKILL)

    started = {name: seconds_of(server_of(home)) for name, home in homes.items()}
    text, _ = stream(here.port, asked, kill_who_answers)
    assert killed and text == whole
    here.says(" is out: ", times=before + 1)
    for name, home in homes.items():
        here.says(f"✓ {name}: ", times=1 + here.said().count(f"✗ {name} is out"))
        assert server_of(home)


def seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return float(fields[11]) + float(fields[12])
