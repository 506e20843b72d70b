"""Samples packed into a row do not see each other: each has the scores and the loss that it has alone."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.train import cluster, families, reference
from tests.train.bases import FORMS
from train.data.rows import open_rows
from train.engine.micro_batch_search import chunks
from train.errors import BadInput
from train.models import dropout
from train.models.backends import ModelSpec, get, to_tensors
from train.models.model_files import model_folder


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("checkpointing", ["false", "true"])
def test_a_packed_row_equals_its_samples_alone(checkpointing, form, tmp_path):
    rows = open_rows(cluster.make_rows(tmp_path / "data", 12, 0))
    backend = get("hf")
    spec = ModelSpec(folder=model_folder("tiny"), gradient_checkpointing=checkpointing, load_in=form)
    model = backend.build(spec)
    indices = [int(i) for i in np.argsort(np.diff(rows.rows))[-4:]]  # the rows of the most samples, of unequal length
    batch = to_tensors(rows.batch(indices), "cpu")
    together = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    alone_loss = torch.zeros(())
    for place, index in enumerate(indices):
        bounds = rows.samples[rows.rows[index] : rows.rows[index + 1] + 1] - rows.samples[rows.rows[index]]
        assert len(bounds) > 2
        for start, end in pairwise(bounds):
            sample = {name: values[place : place + 1, start:end] for name, values in batch.items()}
            alone = model(input_ids=sample["input_ids"], use_cache=False).logits[0]
            torch.testing.assert_close(together[place, start:end], alone, rtol=0, atol=5e-6)
            alone_loss = alone_loss + backend.loss_sum(model, sample)
    torch.testing.assert_close(backend.loss_sum(model, batch), alone_loss, rtol=1e-5, atol=0)


@pytest.mark.parametrize("weights", ["gpu", "stream"])
def test_a_base_with_dropout_in_its_config_is_trained_without(weights, tmp_path):
    """A random mask would be another for each micro-batch and each node."""
    folder = families.make("llama", tmp_path / "base", attention_dropout=0.5)
    backend, ids = get("hf"), torch.arange(3, 40)[None]
    model = backend.build(ModelSpec(folder=str(folder), weights=weights))
    batch = {"input_ids": ids, "labels": ids, "position_ids": torch.arange(ids.shape[1])[None]}
    assert model.training and backend.loss_sum(model, batch) == backend.loss_sum(model, batch)
    said = "dropout: the base's attention_dropout 0.5 is set to 0: the curve would depend on the cluster"
    assert dropout.why(model) == [said]
    if weights == "gpu":
        settings = {"dataset": cluster.make_rows(tmp_path / "data", 12, 0), "model": folder, "max_steps": 1}
        run = cluster.train(tmp_path / "run", {**settings, "eval_fraction": 0, "rows_per_step": 2})
        assert said in run.events()[0]["reasons"] and said in run.said()


LONG = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 512}


@pytest.mark.parametrize(
    ("rope", "config"),
    [({"rope_type": "default"}, {}), ({"rope_type": "dynamic"}, {}),
     ({"rope_type": "longrope", **LONG}, {"max_position_embeddings": 2048})],
    ids=["default", "dynamic", "longrope"],
)  # fmt: skip
def test_rows_beyond_the_positions_of_the_model_are_refused(rope, config, tmp_path):
    """And of longrope those beyond the first ones: the curve would depend on which rows are computed together."""
    rope = {"factor": 2.0, "rope_theta": 1e4} | rope
    folder = families.make("llama", tmp_path / "base", rope_parameters=rope, **config)
    get("hf").build(ModelSpec(folder=str(folder), max_seq_length=512))
    with pytest.raises(BadInput, match="was made for 512"):
        get("hf").build(ModelSpec(folder=str(folder), max_seq_length=513))
    get("hf").build(ModelSpec(folder=str(folder), max_seq_length=513, method="base"))


@pytest.mark.parametrize("form", FORMS)
def test_rows_count_the_same_however_many_are_taken_at_a_time(form, tmp_path):
    rows = open_rows(cluster.make_rows(tmp_path / "data", 8, 0))
    backend = get("hf")
    model = backend.build(ModelSpec(folder=model_folder("tiny"), load_in=form))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)  # zero at the beginning: no gradient would reach the other half

    def trained_by(micro_batch):
        model.zero_grad()
        loss = 0.0
        for some in chunks(list(range(8)), micro_batch):
            part = backend.loss_sum(model, to_tensors(rows.batch(some), "cpu"))
            part.backward()
            loss += part.item()
        return loss, torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])

    loss, gradient = trained_by(1)
    for micro_batch in (2, 4):
        again, found = trained_by(micro_batch)
        assert again == pytest.approx(loss, rel=1e-5)
        assert (found - gradient).norm() < 1e-5 * gradient.norm()


def test_without_their_own_positions_samples_would_see_each_other(tmp_path):
    """The check above can fail: one long sequence of the same tokens scores otherwise."""
    rows = open_rows(cluster.make_rows(tmp_path / "data", 12, 0))
    model = get("hf").build(ModelSpec(folder=model_folder("tiny")))
    batch = to_tensors(rows.batch([int(np.argmax(np.diff(rows.rows)))]), "cpu")
    packed = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    mixed = model(input_ids=batch["input_ids"], use_cache=False).logits
    assert (packed - mixed).abs().max() > 0.1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gemma2"])
def test_every_family_keeps_packed_samples_apart_and_loses_none_of_its_attention(family, form, tmp_path):
    """gemma2 caps its attention's scores; transformers' sdpa leaves that out without a word."""
    folder = families.make(family, tmp_path / family)
    backend = get("hf")
    model = backend.build(ModelSpec(folder=str(folder), load_in=form))
    rows = open_rows(cluster.make_rows(tmp_path / "data", 12, 0))
    place = int(np.argmax(np.diff(rows.rows)))
    batch = to_tensors(rows.batch([place]), "cpu")
    bounds = rows.samples[rows.rows[place] : rows.rows[place + 1] + 1] - rows.samples[rows.rows[place]]
    alone = sum(
        backend.loss_sum(model, {name: values[:, start:end] for name, values in batch.items()})
        for start, end in pairwise(bounds)
    )
    torch.testing.assert_close(backend.loss_sum(model, batch), alone, rtol=2e-6, atol=0)
    eager = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if form == "4bit":
        reference.round_to_nf4(eager)
    start, end = bounds[0], bounds[1]
    sample = {name: values[:, start:end] for name, values in batch.items()}
    torch.testing.assert_close(backend.loss_sum(model, sample), backend.loss_sum(eager, sample), rtol=2e-6, atol=0)
