"""cluster_config.yaml: what is wrong is said, with the nearest right word."""

import json

import pytest

from train.errors import BadInput
from train.plan.launch.cluster_config import read_cluster

GOOD = {
    "run": "qa",
    "node": "b",
    "nodes": [{"name": "a", "address": "10.77.0.11"}, {"name": "b", "address": "10.77.0.12", "processes": 2}],
}


def written(tmp_path, **changes):
    (tmp_path / "secret.json").write_text('{"token": "5f"}')
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps({key: value for key, value in (GOOD | changes).items() if value is not None}))
    return file


def test_a_good_one(tmp_path):
    config = read_cluster(written(tmp_path))
    assert config.order == ("a", "b") and config.token == "5f" and [node.processes for node in config.nodes] == [1, 2]
    assert (config.presence_port, config.group_ports) == (29400, (29410, 29489))


@pytest.mark.parametrize("text", [None, "{torn", "[]", '{"messages": "https://me"}'])
def test_without_a_token_it_says_which_file_is_to_have_it(tmp_path, text):
    file, secret = written(tmp_path), tmp_path / "secret.json"
    secret.unlink() if text is None else secret.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_cluster(file)
    assert str(caught.value).splitlines()[:2] == ["token: a word is missing", f"file: {secret}"]


@pytest.mark.parametrize(
    ("address", "good"),
    [("qa-0.qa", True), ("gpu", True), ("fd00::1", True), ("10.0.0.999", False), ("-a.b", False), ("a..b", False)],
)
def test_an_address_may_be_a_name(tmp_path, address, good):
    file = written(tmp_path, nodes=[{"name": "b", "address": address}])
    if good:
        assert read_cluster(file).of("b").address == address
    else:
        with pytest.raises(BadInput, match="neither an address nor a name"):
            read_cluster(file)


def test_what_each_node_holds_of_a_model_that_is_cut(tmp_path):
    assert read_cluster(written(tmp_path)).room is None
    found = read_cluster(written(tmp_path, pipe={"layers": 4, "layer_bytes": 10, "holds": {"a": 3, "b": 1}}))
    assert found.room and found.pipe
    assert found.room.holds == {"a": 3, "b": 2} and found.pipe.holds["b"] == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"presense_port": 1}, "unknown key 'presense_port', did you mean 'presence_port'?"),
        ({"nodes": [{"name": "b", "adress": "10.0.0.1"}]}, "unknown key 'adress', did you mean 'address'?"),
        ({"nodes": [{"name": "b", "address": "GPU"}]}, "'GPU' is neither an address nor a name"),
        ({"nodes": []}, "nodes: a list"),
        ({"node": "aa"}, "did you mean 'a'?"),
        ({"token": "5f"}, "unknown key 'token'"),
        (
            {"nodes": [*GOOD["nodes"], {"name": "c", "address": "10.77.0.11"}]},
            "the address 10.77.0.11 stands there twice",
        ),
        ({"nodes": [{"name": "b", "address": "10.0.0.1", "processes": 0}]}, "processes must be 1 or more"),
        ({"group_ports": [29489, 29410]}, "29489 is above 29410"),
        ({"presence_port": "x"}, "'x' is not a port"),
        ({"run": "../x"}, "cannot name a run"),
        ({"pipe": {"layers": 4}}, "pipe: it is not {layers, layer_bytes, holds"),
        (
            {"pipe": {"layers": 4, "layer_bytes": 1, "holds": {"bb": 1}}},
            "pipe: 'bb' is none of nodes, did you mean 'b'?",
        ),
    ],
)
def test_mistakes_are_named(changes, said, tmp_path):
    file = written(tmp_path, **changes)
    with pytest.raises(BadInput) as caught:
        read_cluster(file)
    lines = str(caught.value).splitlines()
    assert said in lines[0] and len(lines) <= 3 and str(file) in lines[1]
