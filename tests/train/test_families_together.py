"""The curve of one machine on three, family by family: three processes with shares of 5, 2 and 1 that exchange over
the network train each miniature to the losses of reference.py, which knows nothing of shares or packing."""

import pytest

from tests.train import cluster, reference
from tests.train.proven_families import MIXTURES, PACKED, UNPACKED, WRAPPERS, config_of
from train.models import hf
from train.models.backends import ModelSpec
from train.proof import miniature

TOLERANCE = 1e-5
STEPS, ROWS_PER_STEP = 5, 8
OPTIONS = reference.OPTIONS | {"max_steps": STEPS, "shares": "5,2,1", "sync": "flat", "proof_every": 1}
QUICK = ("gemma3_text", "gemma4_text", "phi3", "lfm2", "qwen3_5_text")
"""The least alike of today's models; the last two are trained unpacked. test_exactness.py has a Llama."""
OTHERS = tuple(name for name in (*PACKED, *UNPACKED) if name not in QUICK)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Packed, and a sample in each row."""
    folder, known = tmp_path_factory.mktemp("rows"), {"vocabulary": miniature.VOCABULARY}
    return {alone: cluster.make_rows(folder / str(alone), 40, 0, alone=alone, **known) for alone in (True, False)}


def built(name, base):
    """A wrapper's text part, or adapters around experts, as a run has them; tests/train/test_proof.py looks at both."""
    if name not in (*WRAPPERS, *MIXTURES):
        return None
    sizes = {"lora_r": OPTIONS["lora_r"], "lora_alpha": OPTIONS["lora_alpha"]}
    return hf.build(ModelSpec(folder=str(base), max_seq_length=128, **sizes))


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def test_three_with_unequal_shares_have_the_curve_of_one(name, rows, tmp_path):
    data, base = rows[name in UNPACKED], tmp_path / "base"
    miniature.write(config_of(name), base)
    truth = reference.losses(base, data, built=built(name, base), steps=STEPS, rows_per_step=ROWS_PER_STEP)
    assert max(truth) / min(truth) - 1 > 100 * TOLERANCE, "all steps are alike: any curve would do"
    run = cluster.train(tmp_path, OPTIONS | {"model": base, "dataset": data}, 3)
    for rank in range(3):
        assert [event["shares"] for event in run.steps(rank)] == [[5, 2, 1]] * STEPS
        assert reference.largest_error(run.losses(rank), truth) < TOLERANCE
