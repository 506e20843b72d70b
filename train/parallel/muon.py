"""Muon: the update of a matrix is its momentum with all directions made equally strong; everything else has AdamW.

Making them so is a chain of matrix products, whose last bits differ between unlike GPUs. So each matrix has an owner,
which computes the update and sends it: every rank then makes the same step. Momentum is kept by all, and a lost rank
takes nothing with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

MOMENTUM = 0.95
STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315
"""The coefficients of the polynomial that brings all singular values near 1: those of Muon's author."""
AS_ADAMW = 0.2
"""The factor that makes an update as large as AdamW's, so that one learning rate suits both."""


class Muon(torch.optim.AdamW):  # type: ignore[misc]
    """AdamW, with Muon for the groups that have `muon`: these are matrices."""

    def __init__(self, groups: Any, **options: Any) -> None:
        super().__init__(groups, **options)
        self.prepared: dict[nn.Parameter, Tensor] = {}

    def matrices(self) -> list[nn.Parameter]:
        return [p for group in self.param_groups if group.get("muon") for p in group["params"] if p.grad is not None]

    def exchange(self, scale: float, wire: torch.dtype) -> None:
        """Exchanges before a step the updates of all matrices, each from its owner. Nothing is changed yet. `scale`: by
        which gradients will be clipped."""
        count = dist.get_world_size() if dist.is_initialized() else 1
        rank = dist.get_rank() if count > 1 else 0
        matrices = self.matrices()
        self.prepared = {}
        for owner, owned in enumerate(owners([p.shape for p in matrices], count)):
            mine = [matrices[number] for number in owned]
            if not mine:
                continue
            if owner == rank:
                flat = torch.cat([self.update_of(p, scale).flatten() for p in mine]).to(wire)
            else:
                device = self.device_of(mine[0])
                flat = torch.empty(sum(p.numel() for p in mine), dtype=wire, device=device)
            if count > 1:
                dist.broadcast(flat, owner)
            parts = flat.float().split([p.numel() for p in mine])
            self.prepared |= {p: part.view_as(p) for p, part in zip(mine, parts, strict=True)}

    def device_of(self, parameter: nn.Parameter) -> Any:
        return getattr(self, "state_device", parameter.device)

    def momentum_of(self, parameter: nn.Parameter) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter, device=self.device_of(parameter))
        momentum: Tensor = state["momentum"]
        return momentum

    def update_of(self, parameter: nn.Parameter, scale: float = 1.0) -> Tensor:
        """The update of a matrix, Nesterov's: with the momentum that this step will leave."""
        assert parameter.grad is not None
        gradient = parameter.grad.to(self.device_of(parameter)) * scale
        return orthogonal(gradient + MOMENTUM * (MOMENTUM * self.momentum_of(parameter) + gradient))

    def step(self, closure: None = None) -> None:
        matrices = self.matrices()
        # A trial step exchanges nothing.
        updates = [self.prepared[p] if p in self.prepared else self.update_of(p) for p in matrices]
        gradients, self.prepared = [p.grad for p in matrices], {}
        for p in matrices:
            p.grad = None
        super().step(closure)
        for p, gradient in zip(matrices, gradients, strict=True):
            p.grad = gradient
        group_of = {p: group for group in self.param_groups if group.get("muon") for p in group["params"]}
        with torch.no_grad():
            for p, update in zip(matrices, updates, strict=True):
                self.momentum_of(p).mul_(MOMENTUM).add_(p.grad)
                rate, decay = group_of[p]["lr"], group_of[p]["weight_decay"]
                p.mul_(1 - rate * decay)
                p.add_(update, alpha=-rate * AS_ADAMW * max(p.shape) ** 0.5)


def owners(shapes: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Numbers of the matrices that each rank computes: the largest first, each to who has least to do."""
    work = [0] * count
    owned: list[list[int]] = [[] for _ in range(count)]
    costs = [max(shape) * min(shape) ** 2 for shape in shapes]
    for number in sorted(range(len(shapes)), key=lambda number: -costs[number]):
        owner = work.index(min(work))
        work[owner] += costs[number]
        owned[owner].append(number)
    return owned


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix with equally strong directions, about: singular values from 0.7 to 1.2."""
    x = matrix.float() / (matrix.norm() + 1e-7)
    high = x.shape[0] > x.shape[1]
    x = x.T if high else x
    for _ in range(STEPS):
        square = x @ x.T
        x = A * x + (B * square + C * square @ square) @ x
    return x.T if high else x
