"""This node's part of a job of Slurm, from what Slurm and the nodes say."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.cluster import slurm_job_nodes
from train.cluster.job_home import furnish
from train.errors import BadInput
from train.plan.launch.cluster_config import Member, read_cluster
from train.runlog.secret import Secret, secret_of

ENV = {"SLURM_JOB_ID": "70412", "SLURM_NODEID": "1", "SLURMD_NODENAME": "b", "MOTLEY_RUN": "qa", "MOTLEY_TOKEN": "5f"}
TOLD = [
    {"id": 2, "name": "c", "address": "10.0.0.3", "processes": 1},
    {"id": 0, "name": "a", "address": "10.0.0.1", "processes": 1},
    {"id": 1, "name": "b", "address": "10.0.0.2", "processes": 2},
]


def test_a_node_tells_its_place_and_the_cards_that_the_job_has_there():
    told = slurm_job_nodes.about(ENV | {"SLURM_GPUS_ON_NODE": "2"}, "10.0.0.2")
    assert told == {"id": 1, "name": "b", "address": "10.0.0.2", "processes": 2}
    assert slurm_job_nodes.processes(ENV) == 1


def test_what_the_nodes_told_is_a_cluster_in_the_jobs_order(tmp_path):
    told = "a banner\n" + "".join(f"{json.dumps(node)}\n" for node in TOLD)
    nodes = slurm_job_nodes.nodes_of(told)
    assert list(nodes) == [0, 1, 2], "the place of each"
    cluster = slurm_job_nodes.cluster_of(ENV, nodes.values(), "eth0")
    assert cluster.order == ("a", "b", "c")
    assert (cluster.node, cluster.interface, cluster.of("b").processes) == ("b", "eth0", 2)


@given(st.integers(1, 10**9), st.integers(1, 80))
def test_jobs_that_follow_each_other_have_other_ports(job, later):
    first, (low, high) = slurm_job_nodes.ports(job)
    other = slurm_job_nodes.ports(job + later)
    assert slurm_job_nodes.PORTS[0] <= first < low <= high <= slurm_job_nodes.PORTS[1]
    assert other[0] > high or other[1][1] < first


def test_the_address_is_what_the_others_find_it_by(monkeypatch):
    found = [(2, 1, 6, "", ("127.0.1.1", 0)), (2, 1, 6, "", ("10.0.0.2", 0))]
    monkeypatch.setattr(slurm_job_nodes.socket, "getaddrinfo", lambda *_: found)
    assert slurm_job_nodes.address("b") == "10.0.0.2"
    monkeypatch.setattr(slurm_job_nodes.socket, "getaddrinfo", lambda *_: found[:1])
    with pytest.raises(BadInput, match="b has no address but loopback"):
        slurm_job_nodes.address("b")


def test_the_card_that_has_an_address_is_found_by_the_kernels_own_list():
    assert slurm_job_nodes.nic_of("127.0.0.1") == "lo"
    with pytest.raises(BadInput, match=r"no network card here has 203\.0\.113\.9"):
        slurm_job_nodes.nic_of("203.0.113.9")


@pytest.mark.parametrize(
    ("states", "expected"),
    [([], 3), (["training"], 3), (["done", "training"], 0), (["failed", "waiting"], 1), (["left", "done"], 0)],
)
def test_a_run_has_ended_where_any_place_says_so(tmp_path, states, expected):
    for place, state in enumerate(states):
        file = tmp_path / f"place-{place}/logs/runs/qa/agent.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"state": state, "time": time.time()}))
    assert slurm_job_nodes.over(tmp_path, "qa", since=time.time() - 60) == expected
    later = time.time() + 60
    assert slurm_job_nodes.over(tmp_path, "qa", since=later) == slurm_job_nodes.GOES_ON, "of an earlier start"


def test_starts_that_bring_it_no_further_are_counted():
    known: dict[str, object] = {}
    counts = []
    for job, step in [("7", 0), ("7", 0), ("7", 40), ("7", 40), ("7", 40), ("8", 40), ("8", 40), ("8", 40)]:
        known = slurm_job_nodes.next_start(known, job, step)
        counts.append(known["in_vain"])
    assert counts == [1, 2, 0, 1, 2, 1, 2, 3], "a job that a person starts begins to count anew"


def test_the_step_that_counts_is_the_newest_that_any_place_has_saved(tmp_path):
    assert slurm_job_nodes.saved_step(tmp_path, "qa") == 0
    for name in ("place-0/models/checkpoints/qa/step-9", "place-2/models/checkpoints/qa/step-0000010"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "place-1/models/checkpoints/qa/step-90.part").mkdir(parents=True)
    assert slurm_job_nodes.saved_step(tmp_path, "qa") == 10


def test_a_place_leads_to_what_all_of_them_read(tmp_path):
    job, home = tmp_path / "jobs/qa", tmp_path / "jobs/qa/place-0"
    job.mkdir(parents=True)
    (job / "launch.json").write_text("{}")
    for _ in range(2):
        cluster = slurm_job_nodes.cluster_of(ENV, [Member(name="b", address="10.0.0.2")], "eth0")
        furnish(home, cluster, tmp_path, ["models/base", "data"], launch=job / "launch.json", messages="https://me")
    assert (home / "models/base").readlink() == tmp_path / "models/base"
    assert read_cluster(home / "config/cluster_config.yaml") == cluster
    assert not (home / "models/checkpoints").is_symlink()
    assert secret_of(home / "config/secret.json") == Secret(token="5f", messages="https://me")
    assert (home / "config/secret.json").stat().st_mode & 0o777 == 0o600
