"""Whoever has no machine beside the nodes types on one of them: its own address, too, changes under its feet."""

from dataclasses import replace
from pathlib import Path

from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

HEAD = "gpu-master"


def test_from_three_machines_to_an_adapter_at_the_keyboard_of_one(trio_to_train_on: Cluster, tmp_path: Path) -> None:
    person = Person(replace(trio_to_train_on, seat=HEAD), tmp_path)
    person.writes(motley_render_environment={"OMP_NUM_THREADS": 1})  # three machines share these cores
    said = person.bootstraps()
    for host in person.cluster.hosts:
        addresses = host.run("ip", "-br", "-4", "address")
        assert f" {host.spec.address}/24 " in addresses and host.spec.installed_address not in addresses, said.out
    # The phase that knows where it sits; of all of them test_bootstrap.py shows that a second time changes nothing.
    again = person.bootstraps(phase="static_ip")
    assert set(again.changed().values()) == {0}
    assert {"hostname", "static_ip", "firewall"} & {*again.receipt["nodes"][HEAD]["phases"]} == {"static_ip"}
    settings = ["model=tiny", "rows_per_step=6", "max_seq_length=64", "max_steps=6", "run=mine"]
    launched = person.types("launch", *(word for setting in settings for word in ("-e", setting)))
    assert launched.rc == 0 and "3 of 3" in launched.out, launched.out
    fetched = person.types("fetch", "--run", "mine", "--results", str(tmp_path / "results"))
    assert fetched.rc == 0 and (tmp_path / "results/mine/adapter/adapter_model.safetensors").exists(), fetched.out
