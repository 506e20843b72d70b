"""The shape of a new language model: the sizes that have a name, what follows from what is given, and what does not fit
together. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from train.errors import BadInput
from train.plan.model.catalogue import Facts
from train.plan.model.memory import parameters

HEAD_WIDTH = 64
LEAST_LAYERS = 4
VOCABULARY = 8192
BYTES, SPECIAL = 256, 1
"""The bytes that a byte-level tokenizer knows; and its one special token, the mark that ends a text."""
MOST_CHARACTERS = 1024
PEAK_RATE, PEAK_AT, MOST_RATE = 6e-4, 768, 3e-3
"""GPT-3's peak rate for 124 M weights; narrower models take more, in proportion, and none of them more than this."""


@dataclass(frozen=True, slots=True)
class Shape:
    hidden_size: int
    layers: int
    heads: int
    vocab_size: int
    intermediate_size: int = 0
    kv_heads: int = 0

    def facts(self, *, tied: bool, positions: int) -> Facts:
        return Facts(
            family="llama",
            hidden=self.hidden_size,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.hidden_size // self.heads,
            intermediate=self.intermediate_size,
            vocab=self.vocab_size,
            tied=tied,
            positions=positions,
        )


SIZES = {
    "10m": Shape(256, 10, 4, 8192),
    "50m": Shape(512, 13, 8, 16384),
    "124m": Shape(768, 12, 12, 50304),
    "350m": Shape(1024, 24, 16, 50304),
}
DEFAULT_SIZE = "10m"


def complete(given: Shape, size: str, tokenizer: str) -> Shape:
    """What is 0 becomes what the named size has; where a width is given without a size, what is usual for that width.
    BadInput where the numbers do not fit together."""
    usual = SIZES[size or DEFAULT_SIZE]
    width = given.hidden_size or usual.hidden_size
    by_width = bool(given.hidden_size and given.hidden_size != usual.hidden_size)
    layers = given.layers or (max(LEAST_LAYERS, width // HEAD_WIDTH) if by_width and not size else usual.layers)
    heads = given.heads or (usual_heads(width) if by_width else usual.heads)
    require_dividing(width, heads)
    kv_heads = given.kv_heads or heads
    if heads % kv_heads:
        raise BadInput(
            f"kv_heads: {kv_heads} do not divide {heads} heads",
            fix=f"nearest that do: {joined('kv_heads', near(kv_heads, divisors(heads)))}",
        )
    vocabulary = given.vocab_size or (VOCABULARY if by_width and not size else usual.vocab_size)
    intermediate = given.intermediate_size or (width * 8 // 3 + HEAD_WIDTH - 1) // HEAD_WIDTH * HEAD_WIDTH
    return Shape(width, layers, heads, vocabulary_of(tokenizer, given.vocab_size, vocabulary), intermediate, kv_heads)


def vocabulary_of(tokenizer: str, given: int, usual: int) -> int:
    """The size of the vocabulary; 0 where an existing tokenizer brings its own."""
    if tokenizer == "bytes":
        if given not in (0, BYTES + SPECIAL):
            raise BadInput(f"vocab_size: tokenizer=bytes has {BYTES + SPECIAL}, not {given}", fix="leave it out")
        return BYTES + SPECIAL
    if tokenizer == "chars":
        return given or MOST_CHARACTERS
    if tokenizer == "bpe":
        if given and given < BYTES + SPECIAL:
            raise BadInput(f"vocab_size: {given} is below {BYTES + SPECIAL}, bytes and a mark", fix="8192 is usual")
        return usual
    if given:
        raise BadInput(f"vocab_size: the tokenizer '{tokenizer}' brings its own", fix="leave vocab_size out")
    return 0


def usual_heads(width: int) -> int:
    """The usual number of heads: each is about 64 wide."""
    return near(max(1, width // HEAD_WIDTH), heads_of(width))[0]


def require_dividing(width: int, heads: int) -> None:
    """Each head is as wide as the others, by an even number (positions turn pairs of numbers)."""
    if heads in heads_of(width):
        return
    fitting = near(heads, heads_of(width))
    step = 2 * heads
    below = width // step * step
    widths = [wide for wide in (below, below + step) if wide]
    raise BadInput(
        f"heads: {heads} do not divide hidden_size {width} into even parts",
        fix=f"nearest that do: {joined('heads', fitting)}; or {joined('hidden_size', widths)}",
    )


def heads_of(width: int) -> list[int]:
    return [count for count in divisors(width) if width // count % 2 == 0]


def divisors(number: int) -> list[int]:
    return [count for count in range(1, number + 1) if number % count == 0]


def near(wanted: int, choices: list[int]) -> list[int]:
    """The nearest of the choices, and the nearest on the other side."""
    if not choices:
        raise BadInput(f"hidden_size: no heads fit {wanted}", fix="use an even hidden_size, such as 256")
    first = min(choices, key=lambda choice: abs(choice - wanted))
    other = [choice for choice in choices if (choice > wanted) != (first > wanted) and choice != first]
    return [first, *sorted(other, key=lambda choice: abs(choice - wanted))[:1]]


def joined(name: str, values: list[int]) -> str:
    return " or ".join(f"{name}={value}" for value in sorted(values))


def peak_rate(width: int) -> float:
    return float(f"{min(MOST_RATE, PEAK_RATE * PEAK_AT / width):.2g}")


def title(facts: Facts, size: str) -> str:
    """llama-10m, or by its weights where the numbers are not those of the name."""
    if size and all(
        getattr(SIZES[size], name) == value
        for name, value in (("hidden_size", facts.hidden), ("layers", facts.layers), ("heads", facts.heads))
    ):
        return f"llama-{size}"
    millions = parameters(facts) / 1e6
    return f"llama-{millions:.0f}m" if millions >= 10 else f"llama-{millions:.1f}m"
