"""A script by plain torchrun: what each node runs, from the facts that a launch looks at, and what blocks it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.plans import VERSIONS, card, launch_facts, look
from train.errors import BadInput
from train.plan.launch.torchrun import Script, decide
from train.plan.machines.nodes import LaunchFacts

CARD = card("RTX 3060", 12)
SCRIPT = Script(name="train.py", arguments=["--lr", "0.1"], folder="/here", files={"train.py": {"size": 1}})


def facts(*looks: dict[str, Any], **more: Any) -> LaunchFacts:
    return launch_facts(looks, VERSIONS | {"cuda": "13.0"}, **more)


def test_each_node_gets_its_own_line_with_as_many_processes_as_it_has_cards():
    found = decide(SCRIPT, facts(look(cards=[CARD, CARD]), look(cards=[CARD]), look()))
    assert [node.processes for node in found.nodes] == [2, 1, 1]
    assert found.nodes[1].words == [
        *("--nnodes=3", "--node-rank=1", "--nproc-per-node=1", "--local-addr=10.0.0.2"),
        *("--master-addr=10.0.0.1", "--master-port=29400", "train.py", "--lr", "0.1"),
    ]
    assert found.run == "train" and found.folder == "scripts/torchrun/train"


def test_the_inventory_may_set_the_processes_and_their_lines_bear_the_rank():
    found = decide(SCRIPT, facts(look(), look(), processes={"a": 3}))
    assert [node.processes for node in found.nodes] == [3, 1]
    assert ["--tee=3" in node.words for node in found.nodes] == [True, False]


def test_a_module_of_the_nodes_is_not_brought():
    found = decide(Script(name="train", arguments=["bench", "collectives"], is_module=True), facts(look(), look()))
    assert found.folder == "" and found.nodes[0].words[-4:] == ["--module", "train", "bench", "collectives"]


def test_each_start_has_a_name_of_its_own_unless_one_is_given():
    known = look(runs={"train": {"launched": {}}, "qa": {"launched": {"model": "tiny"}}})
    assert decide(SCRIPT, facts(known, look())).run == "train-2"
    again = Script(name="train.py", run="train")
    assert decide(again, facts(known, look())).run == "train"
    with pytest.raises(BadInput, match="'qa' is a run of launch"):
        decide(Script(name="train.py", run="qa"), facts(known, look()))


def test_what_blocks_it_is_named_with_its_fix():
    with pytest.raises(BadInput, match=r"'qa' is running on b\nfix: ./motley stop, or wait for its end$"):
        decide(SCRIPT, facts(look(), look(run_on="qa")))
    alike = facts(look(), look(), look())
    with pytest.raises(BadInput, match=r"b: torch is 2.12.0, the others 2.13.0\nfix: "):
        decide(SCRIPT, replace(alike, versions={**alike.versions, "b": alike.versions["b"] | {"torch": "2.12.0"}}))
    cut = look(route={"why": "it has no route to a", "wireless": False})
    with pytest.raises(BadInput, match=r"no route to a\nfix: .* or leave it out: --nodes a"):
        decide(SCRIPT, facts(look(), cut))
