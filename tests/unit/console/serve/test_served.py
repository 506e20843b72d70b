"""./motley serve over three machines, played: answers are whole whatever becomes of one, and nothing is left over."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from console.serve.command import MOST_CONNECTIONS
from tests.support import pace, served
from tests.support.pids import is_alive
from tests.support.played_answers import RUN, install, orders, whole
from tests.support.served import Served, ask, stream

SECONDS = {"fast": 0.005, "middle": 0.01, "slow": 0.02}


def body(number: int = 0, most: int = 40, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Hi {number}"}], "max_tokens": most, "seed": number, **more}


def right(asked: dict[str, Any]) -> str:
    return whole({"messages": asked["messages"], "seed": asked["seed"]}, asked["max_tokens"])


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {name: tmp_path_factory.mktemp("homes") / name for name in SECONDS}
    for name, home in found.items():
        install(home, SECONDS[name])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, homes: dict[str, Path]) -> Path:
    return served.inventory(tmp_path_factory.mktemp("served"), homes)


@pytest.fixture(scope="module")
def here(folder: Path) -> Iterator[Served]:
    """All machines that a test of it loses are there again at its end."""
    with all_of_it(folder) as found:
        yield found


@contextlib.contextmanager
def all_of_it(folder: Path) -> Iterator[Served]:
    with served.served(folder, RUN) as found:
        for name in SECONDS:
            found.says(f"✓ {name}: ")
        yield found


def pid_of(home: Path) -> int:
    return int((home / "pid").read_text())


def test_eight_at_once_are_answered_by_all_and_each_rightly(here: Served, homes: dict[str, Path]) -> None:
    port, asked = here.port, [body(number) for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda one: ask(port, one), asked)]
    assert [status for status, _ in answers] == [200] * 24
    assert [answer["choices"][0]["message"]["content"] for _, answer in answers] == [right(one) for one in asked]
    assert all(answer["usage"]["completion_tokens"] == 40 for _, answer in answers)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_machine_that_is_lost_in_the_middle_of_a_stream_tears_and_doubles_nothing(
    here: Served, homes: dict[str, Path], number: signal.Signals
) -> None:
    """Killed, it is seen at once; frozen, once it has been silent for too long."""
    lost, before = [], here.said().count("✓ fast: ")

    def lose(parts: int) -> None:
        if parts == 20 and not lost:
            lost.append(pid_of(homes["fast"]))
            os.kill(lost[0], number)

    asked = body(5, 80)
    text, parts = stream(here.port, asked | {"stream_options": {"include_usage": True}}, lose)
    assert lost and text == right(asked)
    assert parts[-2]["choices"][0]["finish_reason"] == "length" and parts[-1]["usage"]["completion_tokens"] == 80
    here.says("✓ fast: ", times=before + 1)
    assert here.said().count("✗ fast is out: ") == before
    assert pid_of(homes["fast"]) != lost[0]
    assert stream(here.port, asked)[0] == right(asked), "it is used again"


def test_what_goes_on_without_its_asker_is_stopped(here: Served, homes: dict[str, Path]) -> None:
    for count, streams in enumerate((True, False), 1):
        before = len(orders(homes["fast"]))
        connection = http.client.HTTPConnection("127.0.0.1", here.port)
        connection.request("POST", served.PATH, json.dumps(body(1, 100_000, stream=streams)))
        if streams:
            connection.getresponse().readline()
        pace.until(lambda: len(orders(homes["fast"])) > before, 60, here.said)  # noqa: B023
        connection.close()
        pace.until(lambda: sum("drop" in one for one in orders(homes["fast"])) == count, 60, here.said)  # noqa: B023
    with socket.create_connection(("127.0.0.1", here.port)) as line:
        line.sendall(
            f"POST {served.PATH} HTTP/1.1\r\nHost: localhost:{here.port}\r\nContent-Length: 99\r\n\r\n{{".encode()
        )
    assert ask(here.port, body())[0] == 200
    assert "Traceback" not in here.said(), "it is no fault to be told at the terminal"


def test_strangers_who_hold_lines_open_keep_nobody_out(here: Served) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(MOST_CONNECTIONS + 20):
            held.enter_context(socket.create_connection(("127.0.0.1", here.port), 60))
        assert ask(here.port, body())[0] == 200


def test_what_is_wrong_is_said_in_openais_form(here: Served) -> None:
    port = here.port
    status, answer = ask(port, {"prompt": "too long", "stream": True}, "/v1/completions")
    assert status == 400 and answer["error"]["message"] == "the request is too long"
    status, answer = ask(port, body(n=2))
    assert (status, answer["error"]["param"]) == (400, "n")
    status, answer = ask(port, {}, "/v1/embeddings")
    assert status == 404 and "is not answered here" in answer["error"]["message"]
    status, answer = ask(port, body(), origin="https://evil.example")
    assert status == 403
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for odd in ("{", "[" * 100_000):
        connection.request("POST", served.PATH, odd)
        answered = connection.getresponse()
        assert answered.status == 400 and "no JSON" in json.loads(answered.read())["error"]["message"]
    connection.request("GET", "/v1/models")
    assert json.loads(connection.getresponse().read())["data"][0]["id"] == RUN
    connection.request("GET", "/v1/models/other")
    assert connection.getresponse().status == 404
    connection.close()


def test_a_request_that_ends_every_machine_is_not_tried_for_ever(here: Served) -> None:
    before = here.said().count("✓ ")
    status, answer = ask(here.port, {"prompt": "breaks it", "max_tokens": 3}, "/v1/completions")
    assert status == 503 and "times a machine was lost with this request" in answer["error"]["message"]
    here.says("✓ ", times=before + len(SECONDS))


def test_a_machine_that_fails_with_a_request_is_not_the_last(tmp_path: Path) -> None:
    homes = {name: tmp_path / name for name in ("a", "b")}
    install(homes["a"], 0.001, fails=True)
    install(homes["b"], 0.01)
    with served.served(served.inventory(tmp_path, homes), RUN) as here:
        here.says("✓ a: ")
        here.says("✓ b: ")
        status, answer = ask(here.port, {"prompt": "fails", "max_tokens": 3, "seed": 1}, "/v1/completions")
        assert status == 200, answer
        assert answer["choices"][0]["text"] == whole({"prompt": "fails", "seed": 1}, 3)


def test_in_the_network_only_who_has_the_token_may_ask(homes: dict[str, Path], tmp_path: Path) -> None:
    folder = served.inventory(tmp_path, homes)
    with served.served(folder, RUN, "--lan") as here:
        port = here.port
        here.says("token (API key), shown only now: ")
        token = here.said().partition("shown only now: ")[2].split()[0]
        assert ask(port, body())[0] == 401
        assert ask(port, body(), authorization="Bearer wrong")[0] == 401
        assert ask(port, body(), authorization=f"Bearer {token}")[0] == 200
    assert (tmp_path / "state/serve.token").stat().st_mode & 0o777 == 0o600
    with served.served(folder, RUN, "--lan") as here:
        here.says("as it was shown; in ")
        assert token not in here.said()
        assert ask(here.port, body(), authorization=f"Bearer {token}")[0] == 200


def test_at_the_end_no_process_is_left(tmp_path: Path) -> None:
    homes = {name: tmp_path / name for name in SECONDS}
    for home in homes.values():
        install(home)
    with all_of_it(served.inventory(tmp_path, homes)) as here:
        pids = [pid_of(home) for home in homes.values()]
        here.process.kill()
        here.process.wait()
    pace.until(lambda: not any(map(is_alive, pids)), 60)


def serve_in_vain(folder: Path) -> str:
    words = ["serve", "--inventory", str(folder), "--run", RUN, "--port", "0"]
    done = pace.run(sys.executable, "-m", "console", *words, cwd=served.REPOSITORY)
    assert done.returncode == 1, done.stderr
    return done.stdout


def test_where_nobody_can_it_says_why_of_each(tmp_path: Path) -> None:
    homes = {name: tmp_path / name for name in ("small", "old", "bare")}
    install(homes["small"], cannot="the model needs 16.4 GB, and 7.9 GB of its memory are free")
    install(homes["old"], unknown="unknown command 'serve'\nsee: python -m train --help")
    homes["bare"].mkdir()
    said = serve_in_vain(served.inventory(tmp_path, homes))
    assert "✗ bare is left out: it has not what this run has made: ./motley launch" in said
    assert "✗ small is out: the model needs 16.4 GB, and 7.9 GB of its memory are free" in said
    assert "✗ old is out: what a launch has put there is older than this command: it comes with the next launch" in said
    assert said.endswith("no machine can serve notes now\n")


def test_a_machine_that_is_paused_or_trains_is_left_alone(tmp_path: Path) -> None:
    homes = {name: tmp_path / name for name in ("paused", "busy")}
    for home in homes.values():
        install(home)
    (homes["paused"] / "pause").write_text("\n")
    (homes["busy"] / "config").mkdir()
    (homes["busy"] / "config/run-wanted").write_text("other\n")
    said = serve_in_vain(served.inventory(tmp_path, homes))
    assert "✗ paused is out: it is paused for its owner: ./motley unpause" in said
    assert "✗ busy is out: a run begins there and needs the memory" in said
