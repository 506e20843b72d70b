import os

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: on a busy machine its threads wait for each other

from tests.train import cluster

settings.register_profile("no times", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("no times")


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test():
    yield
    while cluster.STARTED:
        process = cluster.STARTED.pop()
        process.kill()
        process.wait()
