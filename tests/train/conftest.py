import os
from unittest.mock import patch

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: on a busy machine its threads wait for each other

import torch.distributed as dist

from tests.train import cluster
from train.data.to_tokens import load_chat
from train.plan.model.catalogue import resolve_model

settings.register_profile("no times", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("no times")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Sixty rows, and seven held out; nobody writes there."""
    return cluster.make_rows(tmp_path_factory.mktemp("data"), 60)


@pytest.fixture
def group_of_one():
    """A real one, over gloo."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    """The run of one process, with the settings of the module."""
    return cluster.train(tmp_path_factory.mktemp("alone"), settings)


@pytest.fixture
def form():
    """Of the base's parameters, where a test says no other."""
    return "16bit"


@pytest.fixture(scope="module")
def tiny():
    """How `tiny` is talked to."""
    return load_chat(resolve_model("tiny"))


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test():
    yield
    while cluster.STARTED:
        process = cluster.STARTED.pop()
        process.kill()
        process.wait()


def _environment():
    """A command sets variables for its process, as MOTLEY_HOME; the next test's is the same process."""
    with patch.dict(os.environ):
        yield


_environment_of_a_module = pytest.fixture(_environment, scope="module", autouse=True)
_environment_of_a_test = pytest.fixture(_environment, autouse=True)
