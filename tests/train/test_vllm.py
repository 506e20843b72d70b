"""Answers by a server of vLLM: started, asked, given each step's adapter, and gone with who started it. The server is
played by tests/support/fake_vllm.py; with the real one in an environment of its own: test_vllm_itself.py."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pace
from tests.support.pids import is_alive
from tests.support.stand_ins import program
from tests.train import cluster, rewarded
from tests.train.test_grpo import OPTIONS
from train.models import hf
from train.models.backends import ModelSpec
from train.models.model_files import model_folder
from train.models.sample_tokens import Draw
from train.models.vllm import PYTHON, Server, ServerFailed, Serving, python_of

FAKE = Path(__file__).parents[1] / "support/fake_vllm.py"
DRAW = Draw(seed=1, rollout=0)
ASK = {"end_ids": (2,), "most": 8}


LOG = "adapters.jsonl"
"""What a played server was given, in its home."""
PLAYED = f'FAKE_VLLM_LOG=$(dirname $0)/../../../{LOG} exec {sys.executable} {FAKE} "$@"'


def install(home: Path, does: str = PLAYED) -> Path:
    program(home / PYTHON, f"#!/bin/sh\n{does}\n")
    return home


def given(home: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (home / LOG).read_text().splitlines()]


def serving(home: Path, **own) -> Serving:
    usual = {"python": python_of(home), "base": "tiny", "precision": "fp32", "device": "cpu", "lora_r": 4}
    usual |= {"row_length": 64, "at_once": 4, "cache_bytes": 1 << 20, "log": home / "vllm.log"}
    return Serving(**{**usual, **own})


@pytest.fixture
def server(tmp_path):
    found = Server(serving(install(tmp_path / "home")))
    yield found
    found.close()


def test_a_server_that_is_up_but_not_ready_is_asked_with_pauses(server, monkeypatch):
    answers, pauses = [503, 503, 200], []
    monkeypatch.setattr(server, "talk", lambda *_: (answers.pop(0), b""))
    monkeypatch.setattr("time.sleep", pauses.append)
    server.started()
    assert (answers, pauses) == ([], [0.2, 0.2])


@pytest.fixture(scope="module")
def model():
    return hf.build(ModelSpec(folder=str(model_folder("tiny")), lora_r=4))


def test_an_answer_depends_on_its_row_alone(server, model):
    server.take(model, 0)
    prompts, rows = [[5, 6], [7], [8, 9, 10], [4], [3]], [0, 1, 2, 3, 4]
    together = server.answers(prompts, rows, DRAW, **ASK)
    alone = [server.answers([prompt], [row], DRAW, **ASK)[0] for prompt, row in zip(prompts, rows, strict=True)]
    assert together == alone and len({tuple(one.tokens) for one in together}) == len(rows)
    other = server.answers(prompts, rows, Draw(seed=1, rollout=1), **ASK)
    assert all(one != then for one, then in zip(together, other, strict=True)), "other steps have other answers"
    greedy = Draw(seed=1, rollout=None)
    assert server.answers(prompts, rows, greedy, **ASK) == server.answers(prompts, rows[::-1], greedy, **ASK)


def test_each_step_has_its_adapter(server, model, tmp_path):
    for step in (0, 0, 1):
        server.take(model, step)
    assert [one["loaded"] for one in given(tmp_path / "home")] == ["step-0", "step-1"]


def test_only_this_user_reaches_it(server):
    server.started()
    assert server.folder.stat().st_mode & 0o777 == 0o700


def test_a_server_that_does_not_start_or_ends_or_refuses_says_where_its_words_are(tmp_path, model, monkeypatch):
    broken = Server(serving(install(tmp_path / "broken", "echo no such device; exit 3")))
    with pytest.raises(ServerFailed, match=r"(?s)vLLM ended while it started.*vllm.log.*engine=transformers"):
        broken.started()
    assert "no such device" in (tmp_path / "broken/vllm.log").read_text()
    home = install(tmp_path / "home")
    ends = Server(serving(home))
    ends.take(model, 0)
    ends.process.kill()
    with pytest.raises(ServerFailed, match="vLLM ended"):
        ends.answers([[1]], [0], DRAW, **ASK)
    monkeypatch.setenv("FAKE_VLLM_REFUSES", "1")
    refuses = Server(serving(home))
    refuses.take(model, 0)
    with pytest.raises(ServerFailed, match="vLLM refused /v1/completions"):
        refuses.answers([[1]], [0], DRAW, **ASK)
    refuses.close()


STARTS = """
import sys, time
from pathlib import Path
from tests.train.test_vllm import Server, serving
server = Server(serving(Path(sys.argv[1])))
server.started()
print(server.process.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_with_the_process_that_started_it(tmp_path):
    home = install(tmp_path / "home")
    with subprocess.Popen([sys.executable, "-c", STARTS, str(home)], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
    pace.until(lambda: not is_alive(pid), pace.HANG_S, "the server lives on")


def test_a_server_gets_its_own_card_and_nothing_that_is_meant_for_training(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", "/code")
    home = install(tmp_path / "home")
    own = serving(home, device="cuda:1", precision="bf16", lora_r=24)
    environment = own.environment(tmp_path)
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert not {"OMP_NUM_THREADS", "PYTHONPATH"} & environment.keys()
    command = own.command(tmp_path / "socket")
    assert {"--dtype=bfloat16", "--max-lora-rank=32", "--kv-cache-memory-bytes=1048576"} <= set(command)
    assert "--enforce-eager" not in command


def test_a_run_of_three_unequal_ones_is_that_of_one(tmp_path):
    data = rewarded.make_data(tmp_path / "data")
    settings = {**OPTIONS, "engine": "vllm", "max_steps": 3, "dataset": data, "rewards": data.parent / "rewards.py"}
    steps = {}
    for name, size, shares in (("one", 1, {}), ("three", 3, {"shares": "5,2,1"})):
        for rank in range(size):
            install(tmp_path / name / f"node-{rank}")
        run = cluster.train(tmp_path / name, settings | shares, size)
        steps[name] = [run.steps(rank) for rank in range(size)]
        for rank in range(size):
            events = [event for event in run.events(rank) if event["event"] in ("doing", "start")]
            told = [(event.get("node"), event.get("what", "starts")[:10]) for event in events]
            assert told == [(f"node-{rank}", "vLLM loads"), (f"node-{rank}", "vLLM is re"), (None, "starts")]
    truth = steps["one"][0]
    for found in steps["three"]:
        for step, one in zip(found, truth, strict=True):
            assert step["rollout"]["answers_crc"] == one["rollout"]["answers_crc"]
            assert step["rollout"]["reward"] == pytest.approx(one["rollout"]["reward"], abs=1e-12)
            assert step["grad_norm"] == pytest.approx(one["grad_norm"], rel=2e-5)
    loaded = [one for rank in range(3) for one in given(tmp_path / f"three/node-{rank}")]
    adapters = {(one["loaded"], one["sha256"]) for one in loaded}
    assert sorted(name for name, _ in adapters) == ["step-0", "step-1", "step-2", "step-3"], "the same everywhere"
