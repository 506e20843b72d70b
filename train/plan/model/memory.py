"""How much memory a training takes. Pure functions of Facts and Setup.

The parts: the frozen base, the adapter with its gradients and optimizer, the activations of one micro-batch, and
what the GPU's runtime keeps for itself. Weights are counted (counts.py; tests compare them with what a process holds);
activations follow the usual accounting of what a backward pass keeps, within 7 % of what a card was seen to take
(docs/inside/proven.md). On a CPU they are those that torch was seen to keep, with the holes that its allocator leaves
between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.counts import counts_of, linear_shapes
from train.plan.model.picture_facts import PictureFacts

GIB = 1 << 30
RUNTIME_BYTES = {"cuda": int(0.8 * GIB), "cpu": int(0.6 * GIB)}
"""CUDA's context, cuBLAS workspaces and the allocator's slack; the Python process on a CPU."""
SERVER_BYTES = {"cuda": int(2 * GIB), "cpu": int(1.2 * GIB)}
"""CUDA's context, graphs and one batch of a server's; its two Python processes on a CPU (1.1 GiB were seen)."""
USABLE = 0.92
"""The part of a card's memory that training may use: the desktop and fragmentation take the rest."""
BYTES_PER_WEIGHT = {"4bit": 0.5 + (1 + 4 / 256) / 64, "8bit": 1 + 4 / 4096, "16bit": 2.0, "32bit": 4.0}
"""4-bit blocks of 64 carry their scale in a byte, and 256 of these one in fp32; 8-bit rows carry one fp32 each."""
ALL_LINEAR = ("all-linear",)
LOSS_CHUNK_TOKENS = 512
"""Tokens whose scores over the vocabulary are there at a time."""
CPU_HOLES = 1.65
"""What a backward pass keeps on a CPU lies between pieces that came and went: glibc gives these back to nobody (with a
fixed MALLOC_MMAP_THRESHOLD_ SmolLM2 took 3.8 GiB instead of 5.9, and the pages' return its time)."""
SCORE_BYTES = 56
"""What a score takes while a token is drawn: in fp32, ordered, in fp64, its noise and the numbers that become it."""
STREAMED_LAYERS = 2
"""The layers that are there at a time: one is computed with, the next one comes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """The knobs that memory depends on."""

    load_in: str = "4bit"
    lora_r: int = 16
    lora_targets: tuple[str, ...] = ALL_LINEAR
    row_length: int = 512
    micro_batch: int = 1
    checkpointing: bool | None = True
    """None: as `run` chooses by itself, with on a GPU and without on a CPU."""
    offloads: bool = False
    """unsloth's checkpointing: what goes into each block waits in main memory."""
    optimizer_bytes: int = 8
    """Per trained weight: AdamW keeps two fp32 numbers, its 8-bit form about two bytes."""
    device: str = "cuda"
    full: bool = False
    dora: bool = False
    first: bool = False
    """The adapter begins as parts of the base, which are kept beside it."""
    dropped: bool = False
    """A mask for what goes into each adapter."""
    drawn: bool = False
    """Something is drawn for each row."""
    answers: int = 0
    """Answers that are made side by side, between two steps; 0: none."""
    has_server: bool = False
    """Whether a server beside the training makes them (models/vllm.py)."""
    lines: int = 1
    """Sequences of row_length tokens that a row is, side by side."""
    trains: bool = True
    """Whether anything is trained: else the model only answers."""
    weights: str = "gpu"
    """stream: of the base's layers only two are there at a time, and its embeddings stay in its files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes by what takes them."""

    base: int
    """The frozen weights; none are frozen in full fine-tuning."""
    adapter: int
    """What is trained, in fp32."""
    gradients: int
    optimizer: int
    activations: int
    logits: int
    """Beyond the parts of a block, where these come after them."""
    runtime: int

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in Memory.__slots__)


def linear_parameters(facts: Facts) -> int:
    """The weights that quantization shrinks: the linear layers of all blocks."""
    return counts_of(facts).linear


def parameters(facts: AnyFacts) -> int:
    """All of the model's parameters, each once."""
    return facts.parameters if isinstance(facts, PictureFacts) else counts_of(facts).all


def lora_parameters(facts: Facts, r: int, targets: tuple[str, ...]) -> int:
    adapters = counts_of(facts).adapters
    names = adapters if targets == ALL_LINEAR else [last_name(target) for target in targets]
    return r * sum(adapters.get(name, 0) for name in names)


def memory(facts: AnyFacts, setup: Setup) -> Memory:
    trained = trained_parameters(facts, setup)
    moving = trained if setup.trains else 0
    kept = activations(facts, setup) + expert_copies(facts, setup) + passing(facts, setup) if setup.trains else 0
    return Memory(
        base=base_bytes(facts, setup) + (4 * moving if setup.first else 0),
        adapter=4 * trained,
        gradients=4 * moving,
        optimizer=setup.optimizer_bytes * moving,
        activations=max(kept, answering(facts, setup)),
        logits=logits(facts, setup) if setup.trains else 0,
        runtime=RUNTIME_BYTES[setup.device] + server_bytes(facts, setup),
    )


def trained_parameters(facts: AnyFacts, setup: Setup) -> int:
    if setup.full or isinstance(facts, PictureFacts):
        return parameters(facts)
    magnitudes = sum(wide for _, wide in targeted(facts, setup)) * facts.layers if setup.dora else 0
    return lora_parameters(facts, setup.lora_r, setup.lora_targets) + magnitudes


def targeted(facts: Facts, setup: Setup) -> list[tuple[int, int]]:
    """(in, out) of each linear layer of a block that has an adapter, as most families have them."""
    names = None if setup.lora_targets == ALL_LINEAR else {last_name(target) for target in setup.lora_targets}
    return [shape for name, shape in linear_shapes(facts).items() if names is None or name in names]


def base_bytes(facts: AnyFacts, setup: Setup) -> int:
    """Bytes that the frozen weights take where they are computed with."""
    if setup.full or isinstance(facts, PictureFacts):
        return 0
    counts, wide = counts_of(facts), max(BYTES_PER_WEIGHT[setup.load_in], 2.0)
    if setup.weights == "stream":
        rest = (counts.output or counts.table) + counts.rest
        return int(STREAMED_LAYERS * layer_bytes(facts, setup) / facts.layers + rest * wide)
    return int(layer_bytes(facts, setup) + (counts.table + counts.output + counts.rest) * wide)


def layer_bytes(facts: Facts, setup: Setup) -> int:
    """Bytes of all layers of the base."""
    counts, per_weight = counts_of(facts), BYTES_PER_WEIGHT[setup.load_in]
    return int(counts.linear * per_weight + counts.others * max(per_weight, 2.0))


def activations(facts: AnyFacts, setup: Setup) -> int:
    """What the backward pass needs: every block's, or with checkpointing each block's input and one block's parts."""
    if isinstance(facts, PictureFacts):  # norms compute in fp32, whatever the run's precision
        return 4 * facts.kept * setup.micro_batch
    if not recomputes(setup):
        holes = CPU_HOLES if setup.device == "cpu" else 1.0
        return int(facts.layers * of_tokens(block(facts, setup), setup) * holes) + unpacked(facts, setup)
    inputs = 0 if setup.offloads else facts.layers * facts.hidden
    if setup.weights == "stream":
        inputs += facts.hidden  # a streamed layer is computed again to its end, others to the last number that is kept
    return of_tokens(inputs, setup) + again(facts, setup)


def expert_copies(facts: AnyFacts, setup: Setup) -> int:
    """PEFT adds an adapter to the experts of a layer before it computes with them: all of them once more until the
    backward pass has been there, and the gradient of a part of them. On a CPU 1.4 of a layer's experts were seen with
    checkpointing, else 1.07 of all."""
    if isinstance(facts, PictureFacts) or setup.full:
        return 0
    counts = counts_of(facts)
    names = counts.experts if setup.lora_targets == ALL_LINEAR else map(last_name, setup.lora_targets)
    layer = sum(counts.experts.get(name, 0) for name in names) / facts.layers
    copies = (1 if recomputes(setup) else facts.layers) + 0.5
    return int(layer * copies * (4 if setup.load_in == "32bit" else 2))


def last_name(target: str) -> str:
    return target.rpartition(".")[2]


def answering(facts: AnyFacts, setup: Setup) -> int:
    """What making answers takes, beside nothing that a step keeps, at most: keys and values of all their tokens with
    those of one layer twice while they grow, one block's parts, and scores with their noise."""
    if isinstance(facts, PictureFacts) or not setup.answers or setup.has_server:
        return 0
    while_answering = replace(setup, micro_batch=setup.answers, lines=1)
    keys = 2 * (facts.layers + 1) * facts.kv_heads * facts.head_dim
    return of_tokens(keys + block(facts, while_answering), while_answering) + setup.answers * facts.vocab * SCORE_BYTES


def server_bytes(facts: AnyFacts, setup: Setup) -> int:
    """What a server takes that makes the answers: the base once more, what it keeps of tokens, and its runtime."""
    if isinstance(facts, PictureFacts) or not setup.has_server:
        return 0
    return base_bytes(facts, setup) + cache_bytes(facts, setup) + SERVER_BYTES[setup.device]


def cache_bytes(facts: Facts, setup: Setup) -> int:
    """Keys and values of all tokens that are answered side by side; a CPU's server takes them in whole GiB."""
    keys = 2 * facts.layers * facts.kv_heads * facts.head_dim
    kept = of_tokens(keys, replace(setup, micro_batch=setup.answers))
    return kept if setup.device == "cuda" else -(-kept // GIB) * GIB


def logits(facts: AnyFacts, setup: Setup) -> int:
    """The output over the vocabulary as computed, in fp32, and its gradient: of a chunk of tokens at a time."""
    if isinstance(facts, PictureFacts):
        return setup.micro_batch * facts.classes * 12
    tokens = min(setup.row_length * setup.lines * setup.micro_batch, LOSS_CHUNK_TOKENS)
    size = tokens * facts.vocab * (12 if setup.load_in == "32bit" else 10)
    return max(0, size - again(facts, setup)) if recomputes(setup) else size


def recomputes(setup: Setup) -> bool:
    chosen = setup.device == "cuda" if setup.checkpointing is None else setup.checkpointing
    return chosen or setup.weights == "stream"


def again(facts: Facts, setup: Setup) -> int:
    """Bytes of one block's parts, which are computed again when its turn comes."""
    return of_tokens(block(facts, setup), setup) + unpacked(facts, setup)


def passing(facts: AnyFacts, setup: Setup) -> int:
    """What comes and goes: DoRA's whole matrices of a layer in fp32, the integers that a row's chance is made of."""
    if isinstance(facts, PictureFacts) or not (setup.dora or setup.drawn):
        return 0
    matrices = max((come * come + 3 * come * wide for come, wide in targeted(facts, setup)), default=0)
    numbers = setup.row_length * max(facts.hidden, facts.intermediate if setup.dropped else 0)
    return 4 * matrices * setup.dora + 4 * 8 * numbers * setup.drawn


def block(facts: Facts, setup: Setup) -> int:
    """Numbers that a block keeps of each token."""
    queries, keys = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    names = counts_of(facts).adapters if setup.lora_targets == ALL_LINEAR else setup.lora_targets
    lora = len(names) * setup.lora_r * (2 if setup.first else 1)
    shapes = targeted(facts, setup)
    lora += 2 * sum(wide for _, wide in shapes) if setup.dora else 0  # what DoRA scales, and what it becomes
    lora += 2 * sum(come for come, _ in shapes) if setup.dropped else 0  # what is left of it, and its mask
    if setup.device == "cpu":  # as saved_tensors_hooks showed: two norms and what they came from, the mask of a row
        return 4 * facts.hidden + 4 * queries + 4 * facts.intermediate + setup.row_length + lora
    # two norms with their fp32 copies; q, k turned, k and v repeated per head, attention's output; the MLP's four
    return 8 * facts.hidden + 4 * queries + 2 * keys + 4 * facts.intermediate + 2 * lora


def of_tokens(numbers: int, setup: Setup) -> int:
    """Bytes of so many numbers of each token of a micro-batch."""
    return setup.row_length * setup.lines * setup.micro_batch * numbers * (4 if setup.load_in == "32bit" else 2)


def unpacked(facts: Facts, setup: Setup) -> int:
    """Bytes of the largest layer, which is unpacked to 16 bit where it is used."""
    if setup.load_in not in ("4bit", "8bit"):
        return 0
    return 2 * counts_of(facts).largest


def gib(count: float) -> str:
    """Memory in words, as cards count it."""
    return f"{count / GIB:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"


def fits(facts: AnyFacts, setup: Setup, card_bytes: int) -> bool:
    return memory(facts, setup).total <= card_bytes * USABLE


def largest_micro_batch(facts: AnyFacts, setup: Setup, card_bytes: int, at_most: int = 64) -> int:
    """The most rows at a time that fit; 0 if not even one does."""
    sizes = range(at_most, 0, -1)
    return next((n for n in sizes if fits(facts, replace(setup, micro_batch=n), card_bytes)), 0)


class Change(TypedDict, total=False):
    """Other values of what memory depends on."""

    micro_batch: int
    answers: int
    checkpointing: bool
    load_in: str
    row_length: int
    lora_r: int
    lora_targets: tuple[str, ...]


def changes_that_fit(facts: AnyFacts, setup: Setup, card_bytes: int) -> Change | None:
    """Settings that make it fit: the mildest single one, else the mildest of them together; None if nothing helps."""
    together: Change = {}
    steps = fewer_rows(setup) if isinstance(facts, PictureFacts) else steps_down(facts, setup)
    for change in steps:
        if fits(facts, replace(setup, **change), card_bytes):
            return change
    for change in steps:
        together |= change
        if fits(facts, replace(setup, **together), card_bytes):
            return together
    return None


def fewer_rows(setup: Setup) -> list[Change]:
    return [{"micro_batch": n} for n in range(setup.micro_batch - 1, 0, -1)]


def steps_down(facts: Facts, setup: Setup) -> list[Change]:
    """The changes, from what costs nothing to what costs most."""
    steps = fewer_rows(setup)
    steps += [{"answers": count} for count in (8, 1) if count < setup.answers]
    if not setup.checkpointing:
        steps.append({"checkpointing": True})
    # What is in another form on disk, is taken apart or is held by a server as well stays as it is.
    may_be_quantised = not (setup.full or facts.on_disk or setup.first or setup.has_server)
    if setup.device == "cuda" and may_be_quantised and setup.load_in != "4bit":
        steps.append({"load_in": "4bit"})
    length = setup.row_length // 2
    while length >= 256:
        steps.append({"row_length": length})
        length //= 2
    if not setup.full and setup.lora_r > 8:
        steps.append({"lora_r": 8})
    counts = counts_of(facts)
    if not setup.full and counts.experts and setup.lora_targets == ALL_LINEAR:
        steps.append({"lora_targets": tuple(sorted(counts.adapters.keys() - counts.experts.keys()))})
    return steps
