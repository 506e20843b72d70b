"""A loss of ours and TRL's, with their gradients, on one model with an adapter that has learned something."""

import pytest
import torch

from tests.train.reference import build
from train.models.model_files import model_folder
from train.models.weights import trained_weights

SAME = 1e-5


def base():
    return build(model_folder("tiny"), 7)


def learned(model):
    with torch.no_grad():
        for name, weight in sorted(trained_weights(model).items()):
            weight.add_(0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(name))))
    return model


def assert_alike(model, ours, theirs):
    found = []
    for loss_of in (ours, theirs):
        model.zero_grad()
        total = loss_of(model)
        total.backward()
        gradient = {name: weight.grad.clone() for name, weight in trained_weights(model).items()}
        found.append((float(total.detach()), gradient))
    (our_loss, our_gradient), (their_loss, their_gradient) = found
    largest = max(float(gradient.abs().max()) for gradient in their_gradient.values())
    assert our_loss == pytest.approx(their_loss, abs=SAME) and largest > 0
    for name, gradient in their_gradient.items():
        torch.testing.assert_close(our_gradient[name], gradient, rtol=0, atol=SAME * largest)
