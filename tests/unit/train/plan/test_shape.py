"""The shape of a new model: named sizes, what follows from what is given, and what is refused."""

from typing import Any

import pytest

from train.errors import BadInput
from train.plan.model.memory import parameters
from train.plan.model.shape import SIZES, heads_of, near, peak_rate
from train.plan.settings.read_settings import load_config


def of(**values: Any) -> Any:
    return load_config({"recipe": "pretrain", **values})


@pytest.mark.parametrize(("size", "millions"), [("10m", 10), ("50m", 50), ("124m", 124), ("350m", 350)])
def test_a_size_is_what_its_name_says(size, millions):
    assert parameters(of(size=size).facts()) / 1e6 == pytest.approx(millions, rel=0.02)
    assert of(size=size).start_model().name == f"llama-{size}"


def test_what_is_given_stays_and_the_rest_follows():
    assert of().shape == of(size="10m").shape
    wide = of(hidden_size=512, layers=6)
    assert (wide.hidden_size, wide.layers, wide.heads, wide.kv_heads) == (512, 6, 8, 8)
    assert wide.intermediate_size == 1408  # 8/3 of the width, up to a multiple of 64
    small = of(hidden_size=128, heads=4)
    assert (small.layers, small.heads, small.vocab_size) == (4, 4, 8192)
    assert of(size="124m", layers=6).heads == 12 and of(size="124m", layers=6).hidden_size == 768
    assert of(heads=8).hidden_size == SIZES["10m"].hidden_size, "heads alone never change the width"


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        ({"heads": 3}, "heads=2 or heads=4; or hidden_size=252 or hidden_size=258"),
        ({"hidden_size": 100, "heads": 8}, "heads=5 or heads=10; or hidden_size=96 or hidden_size=112"),
        ({"heads": 8, "kv_heads": 3}, "kv_heads=2 or kv_heads=4"),
        ({"tokens_per_step": 1000}, "tokens_per_step=512 or tokens_per_step=1024"),
        ({"tokens_per_step": 512, "rows_per_step": 2}, "keep one of them"),
        ({"tokenizer": "bytes", "vocab_size": 300}, "leave it out"),
        ({"tokenizer": "tiny", "vocab_size": 300}, "leave vocab_size out"),
        ({"hidden_size": 255}, "use an even hidden_size"),
    ],
)
def test_what_does_not_fit_together_is_refused_with_what_does(values, fix):
    with pytest.raises(BadInput) as refused:
        of(**values)
    assert fix in str(refused.value) and len(str(refused.value).splitlines()) <= 3


def test_every_width_has_heads_and_each_of_them_fits():
    for width in range(8, 520, 2):
        config = of(hidden_size=width)
        assert width % config.heads == 0 and (width // config.heads) % 2 == 0
        assert near(5, heads_of(width))[0] in heads_of(width)


def test_reading_it_again_changes_nothing():
    """A node reads what the launch has filled in."""
    for values in ({}, {"size": "50m"}, {"hidden_size": 96, "tokens_per_step": 2048}, {"tokenizer": "chars"}):
        filled = of(**values)
        assert load_config(filled.scoped("math", "agree", "node")) == filled


def test_a_step_is_so_many_tokens_of_the_whole_cluster():
    assert (of().rows_per_step, of().tokens_per_step) == (64, 32768)
    assert of(tokens_per_step=8192, max_seq_length=256).rows_per_step == 32
    assert of(rows_per_step=3, max_seq_length=100).tokens_per_step == 300
    assert of().larger_step(96) == {"tokens_per_step": 96 * 512}


def test_narrow_models_learn_faster_up_to_a_limit():
    assert [peak_rate(width) for width in (64, 128, 256, 768, 1024)] == [3e-3, 3e-3, 1.8e-3, 6e-4, 4.5e-4]
    assert of(size="124m").learning_rate == 6e-4 and of(learning_rate=1e-4).learning_rate == 1e-4


def test_the_tokenizer_says_how_many_tokens_there_are():
    assert of(tokenizer="bytes").facts().vocab == 257
    assert of(tokenizer="tiny").facts().vocab == 1024
    assert of(vocab_size=600).facts(555).vocab == 555, "the one that was made"


def test_memory_depends_on_all_weights():
    held = of().holding
    assert held.full and held.load_in == "16bit" and held.backend == "hf"
