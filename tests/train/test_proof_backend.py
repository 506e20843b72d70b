"""The proof's all-reduce where not every machine has a card: all ranks agree, and none waits for another kind."""

import json

from tests.support import pace
from tests.train import cluster

SCRIPT = cluster.ROOT / "roles/motley_proof/files/all_reduce.py"
PRETEND = """
import runpy, torch
torch.cuda.is_available = lambda: {card}
runpy.run_path({script!r}, run_name="__main__")
"""
KNOWN = {"MOTLEY_FLOATS": "4096", "MOTLEY_ADDRESS": "127.0.0.1", "MOTLEY_LASTS_S": "0.01"}


def test_one_machine_without_a_card_makes_all_use_gloo(tmp_path):
    port, said = cluster.free_port(), tmp_path / "said-0"
    for number in range(2):
        program = tmp_path / f"rank-{number}.py"
        program.write_text(PRETEND.format(card=number == 0, script=str(SCRIPT)))
        env = cluster.rank_environment(number, (0, 1), port) | KNOWN
        with (tmp_path / f"said-{number}").open("w") as out:
            cluster.STARTED.append(cluster.warm().start([str(program)], env, out.fileno()))
    assert [pace.ended(process, trouble=said.read_text) for process in cluster.STARTED] == [0, 0]
    (line,) = [line for line in said.read_text().splitlines() if line.startswith("MOTLEY ")]
    told = json.loads(line.removeprefix("MOTLEY "))
    assert (told["backend"], told["world"]) == ("gloo", 2)
    assert "1 of 2 nodes has no card" in told["why"]
