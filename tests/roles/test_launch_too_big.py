"""Models that no machine holds alone, from `launch.yml`: each family of the catalogue cut over three hosts, how long a
plan says that a step takes, and what a plan says of 13 and 32 billion parameters on 16 + 8 + 8 GB, with the hub's files
at their full size.

The hosts compute on CPUs. Their cards are an nvidia-smi that names them and a torch that claims CUDA: for plans.
"""

import json
import shutil
from pathlib import Path

import pytest

from lab import gpu
from lab import hub as hubs
from lab.host import Host
from lab.hub import Hub
from lab.profile import USER
from tests.support.bootstrap import Person
from train.plan.model.catalogue import Facts, resolve_model
from train.plan.model.memory import parameters
from train.plan.model.weight_files import FAMILIES, wanted

HOME = f"/home/{USER}/ai-cluster"
NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
CLAIM = """
import re, sys
from pathlib import Path
env = Path(sys.argv[1])
site = next(env.glob("lib/python*/site-packages"))
record = next(site.glob("torch-*.dist-info/RECORD"))
for file, old, new in ((site / "torch/version.py", "^cuda.*", "cuda = '13.0'"),
                       (record, "^torch/version.py,.*", "torch/version.py,,")):
    text = file.read_text()
    file.write_text(re.sub(f"(?m){old}", new, text))
(env / "motley-files.json").unlink(missing_ok=True)
"""
SMI = """#!/bin/sh
echo "NVIDIA GeForce {name}, {mib}, 10, 12.0, 250.00"
"""
MODELS = {
    "llama2-13b": "unsloth/llama-2-13b-bnb-4bit",
    "qwen2.5-32b": "unsloth/Qwen2.5-32B-Instruct-bnb-4bit",
}
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def ready(ready_trio: Person) -> Person:
    """After a launch of the smallest model, whose tokenizer the others take."""
    ready_trio.writes(motley_render_environment={"OMP_NUM_THREADS": 1})
    ready_trio.launches(model="tiny", max_steps=4, rows_per_step=6, run="first").went_well()
    return ready_trio


def on(host: Host, command: str) -> str:
    return host.run("su", "-", USER, "-c", command)


def events(host: Host, run: str) -> list[dict]:
    return [json.loads(line) for line in host.run("cat", f"{HOME}/logs/runs/{run}/events.jsonl").splitlines()]


def made(person: Person, family: str) -> Path:
    """A folder of this family with random weights, on the controller."""
    head = person.cluster["gpu-master"]
    home = head.disk.root / f"home/{USER}"
    shutil.copy(Path(__file__).parents[1] / "train/families.py", home)
    program = f"import families; families.make('{family}', '{family}', num_hidden_layers=5)"
    on(head, f'{HOME}/env/bin/python -c "{program}"')
    folder = person.folder / f"small-{family}"
    shutil.copytree(home / family, folder)
    for file in (head.disk.root / f"{HOME.lstrip('/')}/models/base/tiny").glob("*token*"):
        shutil.copy(file, folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_of_the_catalogue_is_launched_over_machines_that_hold_it_together(
    ready: Person, family: str
) -> None:
    asked = {
        "model": made(ready, family),
        "dataset": "stdlib-qa",
        "max_steps": 4,
        "rows_per_step": 6,
        "max_seq_length": 64,
        "starts": True,
    }
    whole = ready.launches(**asked, run=f"{family}-whole", pipes="off")
    cut = ready.launches(**asked, run=f"{family}-cut", pipes="+".join(NODES))
    assert whole.rc == 0 and cut.rc == 0, whole.out + cut.out
    assert "gpu-master's, layer" in cut.out and "gpu-master's, layer" not in whole.out
    hosts = ready.cluster.hosts
    curves = [
        [event["loss"] for event in events(host, f"{family}-{how}") if event["event"] == "step"]
        for host in hosts
        for how in ("whole", "cut")
    ]
    assert len(curves[0]) == 4 and all(curve == pytest.approx(curves[0], rel=1e-6) for curve in curves)
    last = [event for event in events(hosts[2], f"{family}-cut") if event["event"] == "step"][-1]["nodes"]
    assert last[NODES[0]]["layers"][0] == 0 and last[NODES[2]]["layers"][1] == 5
    adapter = f"{HOME}/results/{family}-cut/adapter/adapter_model.safetensors"
    assert len({host.run("sha256sum", adapter) for host in hosts}) == 1


def test_a_plan_measures_each_part_and_says_what_a_step_will_take(ready: Person) -> None:
    asked = {"model": "tiny", "max_steps": 12, "rows_per_step": 24, "run": "foreseen", "pipes": "+".join(NODES)}
    blind = ready.plans(**asked)
    assert blind.rc == 0 and "predicted" not in blind.out, blind.out
    measured = ready.plans(**asked, motley_plan_calibrate="true")
    assert measured.rc == 0 and "s a step (measured in a calibration)" in measured.out, measured.out
    assert ready.launches(**asked, starts=True).rc == 0
    then = ready.plans(**{**asked, "run": "after"})
    assert then.rc == 0 and "s a step (measured in foreseen)" in then.out, then.out


@pytest.fixture(scope="module")
def cards(ready: Person) -> Person:
    """16 + 8 + 8 GB. From here on nothing trains."""
    for host in ready.cluster.hosts:
        card = gpu.card(host.spec)
        smi = host.disk.root / "usr/local/bin/nvidia-smi"
        smi.write_text(SMI.format(name=card.title, mib=card.memory_mib))
        smi.chmod(0o755)
        host.run(f"{HOME}/env/bin/python", "-c", CLAIM, f"{HOME}/env")
    return ready


@pytest.fixture(scope="module")
def hub(cards: Person) -> Hub:
    """Weights of their real size, in files that take no disk."""
    folder = cards.folder / "hub"
    for name, repository in MODELS.items():
        facts = resolve_model(name).facts
        assert isinstance(facts, Facts)
        place = folder / repository
        place.mkdir(parents=True)
        with (place / "model.safetensors").open("wb") as file:
            file.write(header_of(facts))
            file.truncate(size_of(facts))
        (place / "config.json").write_text(json.dumps(config_of(facts)))
        shutil.copy(
            cards.cluster["gpu-master"].disk.root / f"{HOME.lstrip('/')}/models/base/tiny/tokenizer.json", place
        )
    return hubs.start(cards.cluster.lab.place, folder)


def size_of(facts: Facts) -> int:
    return int(0.58 * parameters(facts))


def header_of(facts: Facts) -> bytes:
    """Names every weight of the model, in 4 bit."""
    names = wanted(facts, config_of(facts))
    held = {name: {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n, name in enumerate(names)}
    header = json.dumps(held).encode()
    return len(header).to_bytes(8, "little") + header


def config_of(facts: Facts) -> dict:
    return {
        "model_type": facts.family, "hidden_size": facts.hidden, "num_hidden_layers": facts.layers,
        "num_attention_heads": facts.heads, "num_key_value_heads": facts.kv_heads, "head_dim": facts.head_dim,
        "intermediate_size": facts.intermediate, "vocab_size": facts.vocab, "tie_word_embeddings": facts.tied,
        "max_position_embeddings": facts.positions,
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    }  # fmt: skip


def planned(person: Person, hub: Hub, **asked: object) -> tuple[int, str]:
    said = person.plans(
        **asked, dataset="stdlib-qa", max_steps=4, max_seq_length=1024, env={"HF_ENDPOINT": hub.endpoint}
    )
    return said.rc, said.out


def test_a_13b_is_held_by_the_large_card_and_streamed_to_the_small_ones(cards: Person, hub: Hub) -> None:
    rc, out = planned(cards, hub, model="llama2-13b")
    assert rc == 0, out
    assert "of 16 GB  " in out and out.count("of 8 GB, streams") == 2, out
    assert "RTX 5070 Ti" in out and "do not fit its 8 GB" in out and "come from main memory" in out
    assert f"GB to {', '.join(NODES)}" in out, "each node keeps the whole file"


def test_a_13b_is_handed_on_whole_to_each_node(cards: Person, hub: Hub) -> None:
    """All its bytes, most of them zeros: each node keeps the whole file, whatever part of it it computes with."""
    asked = {"model": "llama2-13b", "dataset": "stdlib-qa", "max_steps": 4, "max_seq_length": 1024, "run": "handed"}
    cards.launches(**asked, env={"HF_ENDPOINT": hub.endpoint}).went_well()
    facts = resolve_model("llama2-13b").facts
    assert isinstance(facts, Facts)
    for host in cards.cluster.hosts:
        size = on(host, f"stat -Lc %s {HOME}/models/base/llama2-13b-4bit/model.safetensors")
        assert int(size) == size_of(facts), host.name
    again = cards.plans(**{**asked, "run": "again"}, env={"HF_ENDPOINT": hub.endpoint})
    assert "on every node" in again.out, again.out


def test_a_32b_on_16_and_8_and_8_gb_is_streamed_cut_or_refused_in_words(cards: Person, hub: Hub) -> None:
    rc, out = planned(cards, hub, model="qwen2.5-32b")
    assert rc == 0 and out.count("GB, streams") == 3, out
    rc, out = planned(cards, hub, model="qwen2.5-32b", pipes="+".join(NODES))
    assert rc == 0 and out.count("of 64 layers") == 3 and out.count("gpu-master's, layers ") == 2, out
    rc, out = planned(cards, hub, model="qwen2.5-32b", pipes="+".join(NODES[1:]), nodes=",".join(NODES[1:]))
    assert rc != 0 and "gpu-worker-1 and gpu-worker-2 hold" in out and "GB are missing" in out, out
    rc, out = planned(cards, hub, model="qwen2.5-32b", weights="gpu")
    assert rc != 0 and "gpu-master has too little memory" in out, out
    with cards.cluster.suffers("gpu-worker-2", "disk-full"):
        rc, out = planned(cards, hub, model="qwen2.5-32b")
    assert rc != 0 and "gpu-worker-2: " in out and "are free" in out, out
