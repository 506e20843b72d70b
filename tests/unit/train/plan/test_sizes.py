"""The sizes that a plan shows, and what it says of exchanging all weights."""

import pytest

from train.plan.estimate import sizes
from train.plan.estimate.predict_and_cut import predict
from train.plan.machines.nodes import Device
from train.plan.model.memory import GIB
from train.plan.placement.first_way_that_fits import choose
from train.plan.placement.fit import Fit
from train.plan.settings.read_settings import PretrainConfig, RunConfig, SftConfig
from train.plan.speed import step_time

NODES = [Device("desktop", "cuda", 24 * GIB), Device("laptop", "cuda", 4 * GIB)]
MACHINES = [step_time.Machine("desktop", 400.0, 1000.0), step_time.Machine("laptop", 200.0, 1000.0)]


def fitted(config: RunConfig, nodes: list[Device] = NODES) -> Fit:
    model = config.start_model()
    return choose(config, nodes, model.facts, model=model.name, mbit=1000)


def test_each_size_has_its_memory_and_exchange():
    config = PretrainConfig()
    found = sizes.sizes(config, fitted(config), (), None)
    assert [row.size for row in found] == ["10m", "50m", "124m", "350m"]
    assert [row.fits for row in found] == [True, True, True, False], "350m needs more than 4 GB"
    needs, exchanges = ([getattr(row, name) for row in found] for name in ("needs_bytes", "sync_s"))
    assert needs == sorted(needs) and exchanges == sorted(exchanges) and found[0].step_s is None
    text = sizes.as_text(found, "-e ")
    assert text[1].startswith("  -e size=10m") and "too large for a node here" in text[4]


def test_a_known_speed_gives_each_its_time():
    config = PretrainConfig(size="50m", sync="flat")
    found = fitted(config)
    prediction = predict(found, MACHINES, config)
    rows = {row.size: row for row in sizes.sizes(config, found, MACHINES, prediction)}
    assert rows["50m"].step_s == pytest.approx(prediction.together.step_s, rel=1e-3), "its own is the plan's"
    computes = {name: row.step_s - row.sync_s for name, row in rows.items()}
    assert 3 < computes["50m"] / computes["10m"] < 6 and 5 < computes["350m"] / computes["50m"] < 9


def test_fine_tuning_has_no_sizes_and_one_node_sends_nothing():
    config = SftConfig(model="smollm2-135m")
    found = fitted(config)
    assert sizes.sizes(config, found, (), None) == [] and sizes.as_text([]) == []
    assert sizes.cost_of_exchange(found, "fp32", None, config) == ""
    new = PretrainConfig(size="124m")
    assert sizes.cost_of_exchange(fitted(new, NODES[:1]), "bf16", None, new) == ""
