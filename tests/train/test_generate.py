"""Many answers by pieces: the same whoever makes them, each once, whatever happens to machines and groups."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.train.agents import Agents
from tests.train.cluster import Cluster, flags
from train.__main__ import main
from train.runlog.paths import PIECES

OPTIONS = {"recipe": "generate", "model": "tiny", "max_new_tokens": 12, "max_seq_length": 96, "run": "run"}
DRAWN = OPTIONS | {"temperature": 0.9, "top_p": 0.95, "answers": 2}


@pytest.fixture(scope="module")
def prompts(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("prompts") / "sums.jsonl"
    lines = [{"prompt": f"What is {i} plus {3 * i}?{' Please.' * (i % 4)}", "level": i, "answer": str(4 * i)}
             for i in range(75)]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def answers(home: Path) -> list[dict]:
    return [json.loads(line) for line in (home / "results/run/answers/answers.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(prompts, tmp_path_factory) -> list[dict]:
    """By one process, in pieces of another size."""
    home = tmp_path_factory.mktemp("alone")
    assert main(["run", *flags(DRAWN | {"dataset": prompts, "home": home, "piece": 50})]) == 0
    return answers(home)


def test_every_prompt_is_answered_in_its_order_with_what_stood_beside_it(alone):
    assert [line["level"] for line in alone] == [i for i in range(75) for _ in range(2)]
    assert all(alone[2 * i]["answer"] != alone[2 * i + 1]["answer"] for i in range(75))
    assert alone[2]["prompt"] == "What is 1 plus 3? Please."
    assert (alone[2]["data_answer"], list(alone[2])[-2:]) == ("4", ["answer", "cut"])


def test_three_processes_make_the_answers_of_one(alone, prompts, tmp_path):
    cluster = Cluster(tmp_path, DRAWN | {"dataset": prompts, "piece": 4}, size=3)
    cluster.wait()
    for rank in range(3):
        assert answers(cluster.node_home(rank)) == alone
    lines = pieces(cluster.node_home(0))
    assert sorted(line["piece"]["number"] for line in lines) == list(range(38))
    assert len({line["node"] for line in lines}) > 1


def pieces(home: Path) -> list[dict]:
    return [json.loads(line) for line in (home / "models/checkpoints/run" / PIECES).read_text().splitlines()]


def done(agents: Agents, name: str) -> int:
    return len(agents.events(name, "piece"))


def newest(agents: Agents, name: str) -> set[str]:
    """Who has done the last pieces that it knows of."""
    return {event["node"] for event in agents.events(name)[-8:] if event["event"] == "piece"}


@pytest.fixture
def agents(prompts, tmp_path):
    return Agents(tmp_path, DRAWN | {"dataset": str(prompts), "piece": 1})


SLOW = "tests/train/broken.py slow_pieces=100"


def test_a_machine_that_is_lost_loses_nothing_and_comes_back(alone, agents):
    agents.start(program=SLOW)
    agents.wait(lambda: done(agents, "node-1") > 5, 60, "nothing is done")
    agents.kill("node-0")
    before = done(agents, "node-1")
    agents.wait(lambda: done(agents, "node-1") > before + 10, 60, "the others do not go on")
    stays = agents.workers("node-1") + agents.workers("node-2")
    agents.start("node-0", program=SLOW)
    agents.wait(lambda: "node-0" in newest(agents, "node-1"), 60, "it is not taken in")
    assert agents.workers("node-1") + agents.workers("node-2") == stays
    assert agents.ended() == [0, 0, 0]
    for name in agents.names:
        assert answers(agents.folder(name)) == alone
        numbers = [line["piece"]["number"] for line in pieces(agents.folder(name))]
        # The killed one may have kept a piece that it could tell nobody: then another's of it comes behind.
        assert len(numbers) - len({*numbers}) <= (name == "node-0"), name


def test_who_is_frozen_is_replaced_and_a_stopped_run_goes_on_where_it_was(alone, agents):
    agents.start(program=SLOW)
    agents.wait(lambda: done(agents, "node-1") > 5, 60, "nothing is done")
    frozen = [agents.running["node-0"].pid, *agents.workers("node-0")]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    before = done(agents, "node-2")
    agents.wait(lambda: done(agents, "node-2") > before + 10, 60, "the others do not go on")
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    assert set(agents.stop()) == {128 + signal.SIGTERM}
    kept = {line["piece"]["number"] for line in pieces(agents.folder("node-2"))}
    assert 15 < len(kept) < 150
    agents.start()
    assert agents.ended() == [0, 0, 0]
    for name in agents.names:
        assert answers(agents.folder(name)) == alone
    again = [event["piece"] for event in agents.events("node-2", "piece")]
    assert len(again) == len({*again})


@pytest.mark.parametrize(("wrong", "words"), [
    ({"answers": 2}, "would be the same"),
    ({"temperature": -1}, "temperature: -1"),
    ({"max_new_tokens": 2000}, "leave a prompt 0"),
    ({"eval_fraction": 0.1}, "none held out"),
    ({"method": "full"}, "nothing is trained"),
])  # fmt: skip
def test_bad_settings_are_refused(wrong, words, prompts, tmp_path, capsys):
    assert main(["run", *flags(OPTIONS | {"dataset": prompts, "home": tmp_path} | wrong)]) == 2
    assert words in capsys.readouterr().err


def test_answers_of_other_prompts_are_not_taken_for_those_of_these(tmp_path, capsys, monkeypatch):
    """A piece is a number: with a prompt more at the top, each answer would stand at the one behind its own."""
    monkeypatch.setattr("train.engine.run.Leaver", lambda: None)  # of a process that answers and ends
    file, options = tmp_path / "prompts.jsonl", OPTIONS | {"home": tmp_path, "piece": 2}
    lines = [json.dumps({"prompt": f"What is {i}?"}) + "\n" for i in range(4)]
    file.write_text("".join(lines))
    assert main(["run", *flags(options | {"dataset": file})]) == 0
    first, kept = answers(tmp_path), tmp_path / "models/checkpoints/run" / PIECES
    kept.write_text(kept.read_text().splitlines(keepends=True)[0])
    file.write_text("".join([json.dumps({"prompt": "Who?"}) + "\n", *lines]))
    assert main(["run", *flags(options | {"dataset": file})]) == 2
    assert "run 'run' cannot continue: its data has changed since it began" in capsys.readouterr().err
    assert main(["run", *flags(options | {"dataset": file, "resume": "never"})]) == 0
    assert answers(tmp_path)[1:] == first and len(pieces(tmp_path)) == 3
