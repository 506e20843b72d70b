"""Several answers side by side by transformers, in this process.

Requests that come at the same time are read together, and then make a token each in one pass of the model. Who comes
later is read by itself and joins them, where the model keeps plain keys and values; with another kind of memory
(a sliding window, a state) each group goes on by itself, and they take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer

from train.errors import first_line
from train.models.hf import head_of, whole_of
from train.serve.request import Asked, Made, drawn, on_its_left


@dataclass(slots=True)
class Group:
    """Answers that advance together."""

    asked: list[Asked]
    places: list[int]
    """The place of each answer's next token."""
    ids: Tensor
    """What the model has not seen yet."""
    mask: Tensor
    positions: Tensor
    past: Any = None

    @property
    def is_plain(self) -> bool:
        return all(type(layer) is DynamicLayer for layer in self.past.layers)


class Batch:
    name = "transformers"

    def __init__(self, model: nn.Module, device: str) -> None:
        whole = whole_of(model)
        self.device, self.backbone, self.head = device, whole.get_decoder(), head_of(whole)
        self.waiting: list[Asked] = []
        self.groups: list[Group] = []
        model.eval()

    def begin(self, asked: Asked) -> None:
        self.waiting.append(asked)

    def drop(self, numbers: Sequence[int]) -> None:
        self.waiting = [asked for asked in self.waiting if asked.number not in numbers]
        self.groups = [group for group in self.groups if kept(group, numbers)]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> list[Made]:
        """A token of each. Where memory or anything else fails, all that was going on has failed."""
        try:
            if self.waiting:
                new, self.waiting = new_group(self.waiting, self.device), []
                self.groups.append(new)
            made = [answer for group in self.groups for answer in self.advance(group)]
            self.groups = joined(self.groups)
        except (RuntimeError, MemoryError) as error:  # torch's own out-of-memory among them
            going_on = [*self.waiting, *(asked for group in self.groups for asked in group.asked)]
            self.waiting, self.groups = [], []
            return [Made(asked.number, failed=first_line(error)) for asked in going_on]
        return made

    def advance(self, group: Group) -> list[Made]:
        seen = {"input_ids": group.ids, "attention_mask": group.mask, "position_ids": group.positions}
        out = self.backbone(**seen, past_key_values=group.past, use_cache=True)
        scores = self.head(inputs_embeds=out[0][:, -1:], use_cache=False).logits[:, 0].float()
        chosen = drawn(scores, group.asked, group.places)
        group.past, group.ids = out.past_key_values, torch.tensor(chosen, device=self.device)[:, None]
        group.positions = group.positions[:, -1:] + 1
        group.mask = torch.cat([group.mask, group.mask.new_ones(len(chosen), 1)], dim=1)
        group.places = [place + 1 for place in group.places]
        return [Made(asked.number, (token,)) for asked, token in zip(group.asked, chosen, strict=True)]

    def close(self) -> None:
        self.groups, self.waiting = [], []


def new_group(requests: Sequence[Asked], device: str) -> Group:
    ids, mask = on_its_left([(*asked.prompt, *asked.begun) for asked in requests], device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return Group([*requests], [len(asked.begun) for asked in requests], ids, mask, positions)


def kept(group: Group, without: Sequence[int]) -> bool:
    """Takes some answers out of the group; False where none is left."""
    rows = [row for row, asked in enumerate(group.asked) if asked.number not in without]
    if len(rows) < len(group.asked) and rows:
        chosen = torch.tensor(rows, device=group.ids.device)
        group.asked, group.places = [group.asked[row] for row in rows], [group.places[row] for row in rows]
        group.ids, group.positions, group.mask = group.ids[chosen], group.positions[chosen], group.mask[chosen]
        group.past.batch_select_indices(chosen)
        trim(group)
    return bool(rows)


def trim(group: Group) -> None:
    """Drops the columns that no answer has any more."""
    empty = int(group.mask.argmax(-1).min())
    if empty and group.is_plain:
        group.mask = group.mask[:, empty:]
        for layer in group.past.layers:
            layer.keys, layer.values = layer.keys[:, :, empty:], layer.values[:, :, empty:]


def joined(groups: Sequence[Group]) -> list[Group]:
    """All that have plain keys and values as one group."""
    plain = [group for group in groups if group.is_plain]
    others = [group for group in groups if not group.is_plain]
    if len(plain) < 2:
        return [*plain, *others]
    first, longest = plain[0], max(group.mask.shape[1] for group in plain)
    for at, layer in enumerate(first.past.layers):
        layers = [group.past.layers[at] for group in plain]
        layer.keys = torch.cat([padded(own.keys, longest - 1) for own in layers])
        layer.values = torch.cat([padded(own.values, longest - 1) for own in layers])
    masks = [nn.functional.pad(group.mask, (longest - group.mask.shape[1], 0)) for group in plain]
    whole = Group(
        [asked for group in plain for asked in group.asked],
        [place for group in plain for place in group.places],
        torch.cat([group.ids for group in plain]),
        torch.cat(masks),
        torch.cat([group.positions for group in plain]),
        first.past,
    )
    return [whole, *others]


def padded(keys: Tensor, length: int) -> Tensor:
    """Keys or values of that many tokens, filled up on the left."""
    return nn.functional.pad(keys, (0, 0, length - keys.shape[2], 0))
