"""A mixture and a wrapper as a launch has them, in plain processes: the plan with its proof, the rows that its words
prepare, the files that it writes to each of three nodes, the agents that read them, a power cut of all, the same files
again, and then an answer and an export of the run."""

import functools
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from console import hub, render
from tests.support.plans import handed_on, node_facts
from tests.train import cluster, families, reference
from tests.train.agents import Agents
from tests.train.test_mixtures import SIZES
from tests.train.test_wrappers import with_tokenizer, wrapper
from train.__main__ import main
from train.plan.launch.decide import decide
from train.plan.launch.launch_plan import LaunchPlan
from train.plan.machines.nodes import LaunchFacts
from train.plan.settings import request
from train.proof import admit_model
from train.runlog.secret import Secret

STEPS, CUT_AT = 14, 4
TOLERANCE = 5e-6
GB = 1 << 30
ASKED = {
    **{"max_steps": STEPS, "rows_per_step": 9, "lora_r": 4, "learning_rate": 2e-3, "save_every": 2, "wire": "fp32"},
    **{"max_seq_length": 64, "device": "cpu", "sync": "flat", "balance": "even", "run": "run", "eval_fraction": 0},
}
KINDS = {"gemma3": wrapper, "qwen3_moe": functools.partial(families.make, "qwen3_moe", **SIZES)}
LOADS = {"qwen3_moe": AutoModelForCausalLM, "gemma3": AutoModelForImageTextToText}


class Launched(Agents):
    """Nodes that have what a launch leaves on them."""

    def __init__(self, home: Path, plan: LaunchPlan, net: int) -> None:
        super().__init__(home, {}, size=3)
        self.net, self.plan = net, plan

    def write(self, name: str, **_) -> list[str]:
        ports = {"presence_port": self.port, "group_ports": [self.port + 1, self.port + 60]}
        for file in render.files(self.plan, name, Secret(token=self.token), ports, {}, time="now"):
            place = self.folder(name) / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(file.content)
        config = self.folder(name) / "config"
        return ["--cluster", str(config / "cluster_config.yaml"), "--config", str(config / "training_config.yaml")]


@dataclass
class Case:
    kind: str
    base: Path
    data: Path
    plan: LaunchPlan
    nodes: Launched
    head: Path

    @property
    def adapter(self) -> Path:
        return self.head / "results/run/adapter"


def planned(base: Path, data: Path, home: Path, net: int) -> LaunchPlan:
    """What three machines without a card would be told."""
    names = [f"node-{place}" for place in range(3)]
    look = {"cores": 2, "memory_bytes": 8 * GB, "cards": [], "free_bytes": 100 * GB, "run_on": "", "port_taken": 0}
    look |= {
        "route": {"why": "", "nic": "lo", "mbit": 1000, "wireless": False},
        "runs": {},
        "missed": [],
        "measured": [],
    }
    facts = LaunchFacts(
        addresses={name: f"127.0.{net}.{place + 1}" for place, name in enumerate(names)},
        nodes=node_facts(names, [look | {"home": str(home / name)} for name in names]),
        versions={name: {"python": "3.11", "environment": "1", "torch": "2", "train": "1"} for name in names},
        code="1",
        verdict=admit_model.verdict_of(json.loads((base / "config.json").read_text())),
        files=hub.Asked({}).files,
    )
    return handed_on(decide(request.read(ASKED | {"model": str(base), "dataset": str(data)}), facts), "rows")


@pytest.fixture(scope="module", params=["gemma3", pytest.param("qwen3_moe", marks=pytest.mark.long)])
def case(request, tmp_path_factory) -> Case:
    """Trained by three agents that lose their power in the middle."""
    folder = tmp_path_factory.mktemp(request.param)
    base, data = with_tokenizer(KINDS[request.param](folder / request.param)), folder / "mine.jsonl"
    rows = [{"prompt": f"What is {n}?", "completion": f"It is {n + 1} less one."} for n in range(60)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    net = 1 + os.getpid() % 250
    plan = planned(base, data, folder / "nodes", net)
    nodes = Launched(folder / "nodes", plan, net)
    for name in nodes.names:
        bring(nodes.folder(name), plan, base, data)
    nodes.start()
    nodes.wait(lambda: nodes.last_step("node-0")["step"] >= CUT_AT, 120, "no steps")
    for name in nodes.names:
        for worker in nodes.workers(name):
            os.kill(worker, 9)
    nodes.kill()
    nodes.start()
    assert nodes.ended(180) == [0, 0, 0]
    return Case(request.param, base, data, plan, nodes, nodes.folder("node-0"))


def bring(home: Path, plan: LaunchPlan, base: Path, data: Path) -> None:
    """What the relay brings, and the rows by the plan's own words."""
    (home / "models/base").mkdir(parents=True)
    shutil.copytree(base, home / "models/base" / plan.model.folder_name)
    words = [word for word in plan.prepare if not word.startswith(("--dataset", "--model", "--out", "--json"))]
    where = ["--dataset", str(data), "--model", str(base), "--out", str(home / "data/processed/rows")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTLEY_HOME", str(home))
        assert main([*words, *where]) == 0


def test_each_run_names_its_proof_before_it_begins(case):
    assert f"{case.kind}: exact in a miniature, packed" in case.nodes.said("node-0")


def test_it_goes_on_behind_a_power_cut_to_the_curve_of_one_process(case, tmp_path):
    settings = {name: value for name, value in case.plan.settings.items() if value is not None and name != "run"}
    options = settings | {"model": case.base, "dataset": case.head / "data/processed/rows", "save_every": STEPS}
    alone = cluster.train(tmp_path, options, 1)
    assert reference.largest_error(case.nodes.losses(*case.nodes.names), alone.losses()) < TOLERANCE
    said = case.nodes.said("node-0")
    assert "resumed at step" in said and alone.losses()[-1] < alone.losses()[0]


def test_the_run_is_asked(case, monkeypatch, capsys):
    monkeypatch.setenv("MOTLEY_HOME", str(case.head))
    words = ["--home", str(case.head), "--question", "What is 1?", "--answer-tokens", "4", "--json"]
    assert main(["ask", "--run", "run", *words]) == 0
    [answer] = json.loads(capsys.readouterr().out)["answers"]
    assert {"before", "after"} <= answer.keys()


def test_the_run_is_exported_as_a_model_of_its_own(case, monkeypatch, tmp_path):
    monkeypatch.setenv("MOTLEY_HOME", str(case.head))
    assert main(["export", "merged", "--run", "run", "--home", str(case.head), "--out", str(tmp_path / "m")]) == 0
    load = LOADS[case.kind].from_pretrained
    wanted = PeftModel.from_pretrained(load(case.base, dtype=torch.float32), str(case.adapter))
    found, before = load(tmp_path / "m", dtype=torch.float32), load(case.base, dtype=torch.float32)
    own, plain = scores(wanted), scores(before)
    assert (scores(found) - own).norm() <= 1e-2 * (plain - own).norm()
    assert AutoConfig.from_pretrained(tmp_path / "m").model_type == case.kind


def scores(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(3, 40)[None]).logits
