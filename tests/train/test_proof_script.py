"""The proof's all-reduce: where not every machine has a card all ranks agree, and nothing is unpickled."""

import json

import pytest

from tests.support import pace
from tests.train import cluster

PROOF = "train.measure.compute_together"
PRETEND = """
import pickle, runpy, sys, torch
import torch.distributed.distributed_c10d as c10d
def refuse(*_, **__): raise SystemExit("something was unpickled")
pickle.loads = pickle.load = pickle.Unpickler = c10d._unpickler = refuse
torch.cuda.is_available = lambda: {card}
runpy.run_module({proof!r}, run_name="__main__")
"""
STRANGER = """
import os, pathlib, pickle, torch.distributed as dist
class Payload:
    def __reduce__(self): return pathlib.Path.touch, (pathlib.Path({mark!r}),)
store, rank, world = next(dist.rendezvous("env://"))
store.set("card/1", "0")
for turn in range(4):
    store.set(f"{{turn}}/1", pickle.dumps(Payload()))
dist.init_process_group("gloo", store=dist.PrefixStore("group", store), rank=rank, world_size=world)
dist.all_gather_object([None] * world, Payload())
"""
KNOWN = {"MOTLEY_FLOATS": "4096", "MOTLEY_ADDRESS": "127.0.0.1", "MOTLEY_LASTS_S": "0.01"}


def start(folder, programs, **settings):
    port = cluster.free_port()
    for number, text in enumerate(programs):
        program = folder / f"rank-{number}.py"
        program.write_text(text)
        env = cluster.rank_environment(number, range(len(programs)), port) | KNOWN | settings
        with (folder / f"said-{number}").open("w") as out:
            cluster.STARTED.append(cluster.warm().start([str(program)], env, out.fileno()))
    return [pace.ended(process, trouble=(folder / "said-0").read_text) for process in cluster.STARTED]


def measured(folder):
    (line,) = [line for line in (folder / "said-0").read_text().splitlines() if line.startswith("MOTLEY ")]
    return json.loads(line.removeprefix("MOTLEY "))


def honest(card=False):
    return PRETEND.format(card=card, proof=PROOF)


def test_with_and_without_a_card_they_measure_what_a_run_between_machines_uses(tmp_path):
    assert start(tmp_path, [honest(card=True), honest()]) == [0, 0]
    told = measured(tmp_path)
    assert (told["backend"], told["world"]) == ("gloo", 2)


@pytest.mark.parametrize("pairs", [{}, {"MOTLEY_PAIRS": "1"}], ids=["bootstrap", "doctor"])
def test_it_measures_and_nobody_unpickles(tmp_path, pairs):
    assert start(tmp_path, [honest()] * 3, **pairs) == [0, 0, 0]
    told = measured(tmp_path)
    assert told["world"] == 3
    assert told["link_mbit"] > 0
    assert sorted(told["pairs"]) == (["0-1", "0-2", "1-2"] if pairs else [])


def test_a_stranger_who_comes_first_has_nothing_executed(tmp_path):
    mark = tmp_path / "executed"
    head, _ = start(tmp_path, [honest(), STRANGER.format(mark=str(mark))])
    assert head != 0
    assert not mark.exists()
