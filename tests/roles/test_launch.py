"""From `ansible-playbook launch.yml -e model=…` to files on three nodes that can train; and every reason not to."""

import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab import hub as hubs
from lab.host import Host
from lab.hub import Hub
from lab.profile import USER
from tests.support import pace
from tests.support.bootstrap import Person, Said
from tests.support.secrets import traces
from train.runlog.secret import Secret

HOME = f"/home/{USER}/ai-cluster"
REPOSITORY = "meta-llama/Llama-2-7b-hf"
TOKEN = "hf_" + "TokenThatStaysHere"
NODES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")


@pytest.fixture(scope="module")
def tiny(ready_trio: Person) -> Person:
    """After a first launch of the smallest model, which is built on the head and handed on, and trained to its end."""
    ready_trio.writes(motley_render_environment={"OMP_NUM_THREADS": 1})  # three machines share these cores
    said = ready_trio.launches("-vvv", model="tiny", max_steps=4, rows_per_step=6, run="first", starts=True).went_well()
    (ready_trio.folder / "launch.txt").write_text(said.out)  # as somebody keeps it who asks for help
    return ready_trio


@pytest.fixture(scope="module")
def hub(tiny: Person) -> Hub:
    """It serves what the head has built as if it were Llama 2."""
    folder = tiny.folder / "hub"
    model = tiny.cluster["gpu-master"].disk.root / f"{HOME.lstrip('/')}/models/base/tiny"
    shutil.copytree(model, folder / REPOSITORY, ignore=shutil.ignore_patterns(".*"))
    return hubs.start(tiny.cluster.lab.place, folder)


def on(host: Host, command: str) -> str:
    return host.run("su", "-", USER, "-c", command)


def launches_llama(person: Person, hub: Hub, *words: str, token: str = "") -> Said:
    asked = {"model": "llama2-7b", "dataset": "stdlib-qa", "max_steps": 4, "rows_per_step": 6}
    return person.launches(*words, **asked, env={"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": token})


def test_everything_lies_on_every_node_alike(tiny: Person) -> None:
    seen = set()
    for host in tiny.cluster.hosts:
        rows = on(host, f"cd {HOME}/data/processed && find . -name '*.bin' | sort | xargs sha256sum")
        model = on(host, f"cd {HOME}/models/base/tiny && sha256sum *")
        seen.add((rows, model))
        script = f"{HOME}/scripts/launch_cluster.sh"
        assert host.run("stat", "-c", "%U %a", script).split() == [USER, "700"]
        assert f"GLOO_SOCKET_IFNAME={host.spec.nics[0]} " in host.run("cat", script)
        cluster = host.run("cat", f"{HOME}/config/cluster_config.yaml")
        assert f'node: "{host.name}"' in cluster and f'interface: "{host.spec.nics[0]}"' in cluster
        assert host.run("stat", "-c", "%a", f"{HOME}/config/secret.json").strip() == "600"
    assert len(seen) == 1 and "model.safetensors" in next(iter(seen))[1]


def test_a_launch_in_check_mode_ends_with_the_plan_and_asks_who_takes_part(tiny: Person) -> None:
    look = f"cd {HOME}; find . -printf '%p %T@\\n' | sort"
    before = {host.name: host.run("sh", "-c", look) for host in tiny.cluster.hosts}
    asked = {"model": "tiny", "max_steps": 5, "rows_per_step": 6, "run": "never", "nodes": "gpu-master,gpu-worker-1"}
    said = tiny.launches("--check", "--diff", "-v", **asked)
    assert said.rc == 0 and "plan  never" in said.out, said.out
    assert "check only: nothing was brought to a node, nothing was started" in said.out
    assert said.out.count("changed=0 ") == 2, said.out
    contacts = said.out.split("contacts:")[1].split("controller_key:")[0]
    assert "gpu-worker-1:" in contacts and "gpu-worker-2:" not in contacts, "who takes no part is not waited for"
    assert {host.name: host.run("sh", "-c", look) for host in tiny.cluster.hosts} == before


def test_the_runs_token_is_in_its_file_alone(tiny: Person) -> None:
    tiny.types("fetch", "--run", "first", "--results", str(tiny.folder / "results")).went_well()
    token = Secret.from_json(tiny.cluster["gpu-master"].run("cat", f"{HOME}/config/secret.json")).token
    assert len(token) == 32
    kept = [f"{host.name}: {HOME}/config/secret.json" for host in tiny.cluster.hosts]
    assert traces(tiny.cluster.hosts, token, tiny.folder) == kept


@pytest.mark.long
def test_the_scripts_of_all_nodes_run_by_hand_train_together(tiny: Person) -> None:
    """As the guide has it: ./launch_cluster.sh on each machine, and no Ansible."""
    hosts = tiny.cluster.hosts
    assert tiny.launches(model="tiny", max_steps=4, rows_per_step=6, run="by-hand").rc == 0
    start = ["su", "-", USER, "-c", f"cd {HOME}/scripts && exec ./launch_cluster.sh"]
    with ThreadPoolExecutor() as each:
        done = list(each.map(lambda host: pace.run(*host.inside(*start)), hosts))
    assert [entry.returncode for entry in done] == [0, 0, 0], "\n".join(entry.stdout + entry.stderr for entry in done)
    adapters = set()
    for host in hosts:
        events = [json.loads(line) for line in host.run("cat", f"{HOME}/logs/runs/by-hand/events.jsonl").splitlines()]
        assert events[-1]["event"] == "done"
        assert sorted(next(e for e in events if e["event"] == "start")["nodes"]) == sorted(NODES)
        adapters.add(host.run("sha256sum", f"{HOME}/results/by-hand/adapter/adapter_model.safetensors"))
        on(host, f"rm -r {HOME}/results/by-hand {HOME}/models/checkpoints/by-hand {HOME}/logs/runs/by-hand/*.jsonl")
    assert len(adapters) == 1


@pytest.mark.long
def test_a_node_streams_by_its_inventory_and_the_curve_is_the_same(tiny: Person) -> None:
    hosts, settings = tiny.cluster.hosts, {"model": "tiny", "max_steps": 4, "rows_per_step": 6}
    held = tiny.launches(**settings, run="held", starts=True)
    tiny.writes({"gpu-worker-2": {"motley_weights": "stream"}}, motley_render_environment={"OMP_NUM_THREADS": 1})
    streamed = tiny.launches(**settings, run="streamed", starts=True)
    assert held.rc == 0 and "streams" not in held.out, held.out
    assert streamed.rc == 0 and "gpu-worker-2: as set; 3 MB of layers come from its files" in streamed.out, streamed.out
    for host, weights in zip(hosts, ("gpu", "gpu", "stream"), strict=True):
        assert f"weights: {weights} " in host.run("cat", f"{HOME}/config/training_config.yaml")
    curves = [losses_of(host, run) for host in hosts for run in ("held", "streamed")]
    assert all(curve == pytest.approx(curves[0], rel=1e-6) for curve in curves) and len(curves[0]) == 4
    adapter = f"{HOME}/results/streamed/adapter/adapter_model.safetensors"
    assert len({host.run("sha256sum", adapter) for host in hosts}) == 1
    assert "weights stream: as set" in hosts[2].run("cat", f"{HOME}/logs/runs/streamed/events.jsonl")


def losses_of(host: Host, run: str) -> list[float]:
    lines = host.run("cat", f"{HOME}/logs/runs/{run}/events.jsonl").splitlines()
    return [event["loss"] for event in map(json.loads, lines) if event["event"] == "step"]


@pytest.mark.long  # tests/train/test_fetch.py
def test_without_a_token_it_says_how_to_get_and_keep_one(tiny: Person, hub: Hub) -> None:
    hub.behave(gated=[REPOSITORY], token=TOKEN)
    said = launches_llama(tiny, hub)
    assert said.rc != 0
    assert f"accept its licence at https://huggingface.co/{REPOSITORY}" in said.out
    assert "ansible-vault encrypt_string --stdin-name motley_hub_token" in said.out
    said = launches_llama(tiny, hub, token="hf_of-somebody-else")
    assert said.rc != 0 and "the token that was given has no access to it" in said.out
    assert hub.bytes_sent("model.safetensors") == 0
    for host in tiny.cluster.hosts:
        assert host.outcome("test", "-e", f"{HOME}/models/base/llama2-7b").returncode


@pytest.mark.long  # tests/train/test_fetch.py; the first launch here hands a model on
def test_a_gated_model_is_fetched_once_mended_and_fanned_out(tiny: Person, hub: Hub) -> None:
    size = (hub.folder / REPOSITORY / "model.safetensors").stat().st_size
    hub.behave(gated=[REPOSITORY], token=TOKEN, drop={"model.safetensors": size // 2}, damage={"tokenizer.json": 1})
    vault, variables = tiny.folder / "vault", tiny.folder / "token.yml"
    vault.write_text("a password for this test\n")
    lock = ("ansible-vault", "encrypt_string", "--vault-password-file", vault, "--name", "motley_hub_token", TOKEN)
    variables.write_text(tiny.cluster.controller(*lock).stdout)
    said = launches_llama(tiny, hub, "-e", f"@{variables}")
    assert said.rc != 0 and "--ask-vault-pass" in said.out, said.out
    said = launches_llama(tiny, hub, "-e", f"@{variables}", "--vault-password-file", str(vault)).went_well()
    assert "tokenizer.json arrived damaged: it is fetched again" in said.out
    assert size <= hub.bytes_sent("model.safetensors") < size + (2 << 20)  # it went on where it broke off
    assert [entry for entry in hub.requests() if str(entry["range"]).startswith("bytes=")]
    right = hashlib.sha256((hub.folder / REPOSITORY / "model.safetensors").read_bytes()).hexdigest()
    for host in tiny.cluster.hosts:
        assert on(host, f"sha256sum {HOME}/models/base/llama2-7b/model.safetensors").split()[0] == right
        assert host.outcome("grep", "-rlF", TOKEN, "/home", "/root", "/etc", "/tmp", "/var", "/run/user").stdout == ""
    hub.behave(gated=[REPOSITORY], token=TOKEN)
    assert launches_llama(tiny, hub).rc == 0
    assert hub.requests() == []  # nobody asks the hub for what is here


def test_all_that_blocks_a_launch_is_found_before_anything_starts(tiny: Person) -> None:
    """Another torch and a taken port on one node; on the head, a rule of its own that drops what comes to runs."""
    head, host = tiny.cluster["gpu-master"], tiny.cluster["gpu-worker-1"]
    packages = f"{HOME}/env/lib/python*/site-packages"
    host.run("sh", "-c", f"cd {packages} && mv torch-*.dist-info torch-2.10.0.dist-info")
    listen = "import socket, time; s = socket.create_server(('', 29400)); time.sleep(3600)"
    host.run("systemd-run", "--quiet", "--collect", "--unit=listens", "python3", "-c", listen)
    pace.until(lambda: ":29400 " in host.run("ss", "-ltn"), 60, "nobody listens")
    chain = "'add chain inet own guard { type filter hook input priority 0; }'"
    head.run("sh", "-c", f"nft add table inet own; nft {chain}; nft add rule inet own guard tcp dport 29400-29899 drop")
    before = host.run("sha256sum", f"{HOME}/config/cluster_config.yaml")
    said = tiny.launches(model="tiny", max_steps=4, starts=True)
    head.run("nft", "delete", "table", "inet", "own")
    host.run("systemctl", "stop", "listens")
    host.run("sh", "-c", f"cd {packages} && mv torch-2.10.0.dist-info torch-2.13.0+cpu.dist-info")
    assert said.rc == 2 and "gpu-worker-1: environment is" in said.out, said.out
    assert "fix: ./motley bootstrap --phase python_env --nodes gpu-worker-1" in said.out
    assert "gpu-worker-1: port 29400 is taken there" in said.out and "motley_render_presence_port=29401" in said.out
    assert "gpu-master: it does not answer gpu-worker-1, gpu-worker-2 on the ports of runs" in said.out
    closed = "fix: ./motley bootstrap --phase firewall --nodes gpu-master; your own rules: sudo nft list ruleset"
    assert closed in said.out and "--nodes gpu-worker-1,gpu-worker-2" in said.out, said.out
    assert "gpu-worker-1: it " not in said.out, "whoever calls the head is not to blame"
    assert host.run("sha256sum", f"{HOME}/config/cluster_config.yaml") == before


def test_a_node_that_is_off_is_left_out_unless_it_was_named_and_a_second_launch_brings_nothing(tiny: Person) -> None:
    tiny.cluster["gpu-worker-2"].power_cut()
    said = tiny.launches("-v", model="tiny", max_steps=4, rows_per_step=6, run="second")
    assert said.rc == 0 and "⚠ gpu-worker-2 is off: nobody answers" in said.out, said.out
    assert "Hand files from node to node" not in said.out
    said = tiny.plans(model="tiny", max_steps=4, nodes="gpu-master,gpu-worker-2")
    assert said.rc != 0 and "gpu-worker-2 is off" in said.out
    said = tiny.launches("-v", model="tiny", max_steps=4, nodes="gpu-worker-2")
    assert said.rc != 0 and "no machine that is meant answers\ngpu-worker-2  nobody answers at" in said.out, said.out
    assert "fix: wake or start one: ./motley wake" in said.out
    asked = said.out.split("contacts:")[1].split("controller_key:")[0]
    assert "gpu-worker-2:" in asked and "gpu-worker-1:" not in asked, "nobody waits for a machine that takes no part"
