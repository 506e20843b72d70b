"""How many weights a model has, by what becomes of them: as the model itself was counted
(train/proof/count_weights.py), else by the shape that most families have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from train.plan.model.catalogue import Facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    layers: int
    linear: int
    """Weights of all layers that quantization shrinks: those of linear layers."""
    others: int
    """Their other weights: norms, biases, and experts that are one weight, which stay in 16 bit."""
    table: int
    """The weights that tokens are looked up in."""
    output: int = 0
    """The weights of the scores over the vocabulary, where they are not those of the table."""
    rest: int = 0
    """All other weights outside of the layers: a last norm, positions, projections."""
    largest: int
    """Weights of the largest linear layer."""
    adapters: Mapping[str, int] = field(hash=False)
    """The weights that an adapter of rank 1 has on all linear layers of a name."""
    experts: Mapping[str, int] = field(hash=False, default_factory=dict)
    """The part of `others` that are experts, by the name that their adapter goes by."""

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        return cls(**{spec.name: found[spec.name] for spec in fields(cls) if spec.name in found})

    @property
    def all(self) -> int:
        return self.linear + self.others + self.table + self.output + self.rest

    def of_layers(self, layers: int) -> Counts:
        """A part of the model; its layers count as alike."""
        part = layers / self.layers
        return replace(
            self,
            layers=layers,
            linear=round(self.linear * part),
            others=round(self.others * part),
            adapters={name: round(count * part) for name, count in self.adapters.items()},
            experts={name: round(count * part) for name, count in self.experts.items()},
        )


def counts_of(facts: Facts) -> Counts:
    counts = facts.counts or of_shape(facts)
    return counts if counts.layers == facts.layers else counts.of_layers(facts.layers)


def of_shape(facts: Facts) -> Counts:
    """Exact for a llama. Others differ by biases and more norms: less than a thousandth of their weights."""
    shapes = linear_shapes(facts)
    table = facts.vocab * facts.hidden
    return Counts(
        layers=facts.layers,
        linear=facts.layers * sum(inward * outward for inward, outward in shapes.values()),
        others=facts.layers * 2 * facts.hidden,
        table=table,
        output=0 if facts.tied else table,
        rest=facts.hidden,
        largest=max(inward * outward for inward, outward in shapes.values()),
        adapters={name: facts.layers * sum(shape) for name, shape in shapes.items()},
    )


def linear_shapes(facts: Facts) -> dict[str, tuple[int, int]]:
    """(in, out) of each linear layer of a block."""
    queries, keys = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    return {
        "q_proj": (facts.hidden, queries),
        "k_proj": (facts.hidden, keys),
        "v_proj": (facts.hidden, keys),
        "o_proj": (queries, facts.hidden),
        "gate_proj": (facts.hidden, facts.intermediate),
        "up_proj": (facts.hidden, facts.intermediate),
        "down_proj": (facts.intermediate, facts.hidden),
    }
