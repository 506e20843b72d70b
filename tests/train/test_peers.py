"""The end of a run without agents: each process says a last word, and waits for nobody who needs none."""

from tests.support import pace
from tests.train import cluster


def test_who_has_said_its_last_word_is_not_waited_for(data, tmp_path):
    """As where gloo forgets to say that a peer has gone; timeout_s is five minutes."""
    settings = {"model": "tiny", "max_steps": 2, "rows_per_step": 4, "wire": "fp32", "dataset": data}
    run = cluster.Cluster(tmp_path, settings, 3, changed="stays_after_its_last_word")
    pace.until(lambda: "staying" in run.said(1), pace.HANG_S, run.said)
    for rank in (0, 2):
        assert pace.ended(run.processes[rank], 30, run.said) == 0
    run.processes[1].kill()
