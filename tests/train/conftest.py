import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: on a busy machine its threads wait for each other

from tests.train import cluster


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test():
    yield
    while cluster.STARTED:
        process = cluster.STARTED.pop()
        process.kill()
        process.wait()
