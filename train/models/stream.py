"""weights: stream. The frozen base need not be on the graphics card: a layer's weights are read when it is computed,
forward and once more for the backward pass, and dropped after; a reader brings the next layer meanwhile. They are
frozen, so nothing is written back. The adapter stays, and as many layers as fit. The numbers are those of a base that
is held, bit for bit.

    LayerWeights   one layer's weights as one piece of memory
    Stream         brings them to where they are computed, one layer ahead, from main memory or from the mapped files
    StreamedLayer  what a decoder layer does instead of its forward
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.models import four_bit

if TYPE_CHECKING:
    from train.models.load_streamed import LayerFiles

Weights = dict[str, Tensor]
ALIGNED = 256
"""Bytes, as a graphics card likes its tensors to begin."""


@dataclass(frozen=True, slots=True)
class Piece:
    weight: str
    part: str
    """The name of the part of a 4-bit weight; else empty."""
    dtype: torch.dtype
    shape: torch.Size
    offset: int

    @property
    def end(self) -> int:
        count: int = self.shape.numel() * self.dtype.itemsize
        return self.offset + count

    def of(self, memory: Tensor) -> Tensor:
        return memory[self.offset : self.end].view(self.dtype).view(self.shape)


class LayerWeights:
    """Where in its piece of memory each weight of a layer lies: one copy brings them all."""

    def __init__(self, weights: Weights, dtypes: dict[str, torch.dtype]) -> None:
        """`dtypes`: the type that each weight which is not in 4 bit is computed with."""
        self.pieces: list[Piece] = []
        self.forms: Weights = {}
        self.bytes = 0
        for name, weight in weights.items():
            parts = four_bit.apart(weight) if four_bit.is_four_bit(weight) else {"": weight}
            if len(parts) > 1:
                self.forms[name] = four_bit.together({part: t.to("meta") for part, t in parts.items()}, weight)
            for part, tensor in parts.items():
                dtype = tensor.dtype if name in self.forms else dtypes[name]
                self.pieces.append(Piece(name, part, dtype, tensor.shape, self.bytes))
                self.bytes = -(-self.pieces[-1].end // ALIGNED) * ALIGNED

    def fill(self, memory: Tensor, weights: Weights) -> None:
        for name, weight in weights.items():
            parts = four_bit.apart(weight) if name in self.forms else {"": weight}
            for piece in self.pieces:
                if piece.weight == name:
                    piece.of(memory).copy_(parts[piece.part])

    def of(self, memory: Tensor) -> Weights:
        parts_of_weights: dict[str, dict[str, Tensor]] = {}
        for piece in self.pieces:
            parts_of_weights.setdefault(piece.weight, {})[piece.part] = piece.of(memory)
        return {
            name: four_bit.together(parts, self.forms[name]) if name in self.forms else parts[""]
            for name, parts in parts_of_weights.items()
        }


def main_memory(size: int, device: str) -> Tensor:
    """A graphics card copies from registered memory by itself. torch's own way to it (pin_memory) would take the next
    power of two, which is up to twice the base."""
    memory = torch.empty(size, dtype=torch.uint8)
    if device != "cpu":
        torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), size, 0)  # where it is refused, copies only wait
    return memory


class Place:
    """Room for one layer where it is computed; and, where it comes from files, for one on its way there."""

    def __init__(self, size: int, device: str, *, from_files: bool) -> None:
        on_gpu = device != "cpu"
        self.on_the_way: Any = main_memory(size, device) if from_files else None
        self.here: Any = torch.empty(size, dtype=torch.uint8, device=device) if on_gpu else self.on_the_way
        self.arrived: Any = torch.cuda.Event() if on_gpu else None


class Stream:
    def __init__(self, source: LayerFiles, device: str) -> None:
        self.source, self.device = source, device
        self.layers: list[LayerWeights] = []
        self.kept: list[Tensor] = []
        """All layers in main memory, unless they are read from the files each time."""
        self.held: dict[int, Weights] = {}
        """The layers that stay where they are computed: they are not read."""
        self.reader = ThreadPoolExecutor(1, "layers")
        self.copying: Any = torch.cuda.Stream(device) if device != "cpu" else None
        self.places: list[Place] = []
        self.used = 0
        """Which place is computed with."""
        self.ahead: tuple[int, int, Future[Weights]] | None = None
        """The next layer, where it will be, and that it is there."""

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    def add(self, layer: LayerWeights, kept: Weights | None) -> None:
        """`kept`: where the files do not have them so, and they stay in main memory."""
        self.layers.append(layer)
        if kept is not None:
            self._keep(layer, kept)

    def keep_all(self) -> None:
        for index, layer in enumerate(self.layers):
            self._keep(layer, self.source.read(index))
            self.source.drop(index)

    def _keep(self, layer: LayerWeights, weights: Weights) -> None:
        memory = main_memory(layer.bytes, self.device)
        layer.fill(memory, weights)
        self.kept.append(memory)

    def hold(self, room_bytes: int) -> int:
        """Keeps as many layers as fit where they are computed, and says how many. They are spread evenly: while one is
        computed, the next that is read may come."""
        layer_count = len(self.layers)
        count = min(layer_count, max(0, room_bytes) // max(layer.bytes for layer in self.layers))
        for index in ((2 * i + 1) * layer_count // (2 * count) for i in range(count)):
            layer = self.layers[index]
            if self.kept:
                memory = self.kept[index]
            else:
                memory = torch.empty(layer.bytes, dtype=torch.uint8)
                layer.fill(memory, self.source.read(index))
                self.source.drop(index)
            self.held[index] = layer.of(memory.to(self.device))
        return count

    def let_go(self) -> bool:
        """Whether there was something to let go of."""
        held, self.held = self.held, {}
        return bool(held)

    def needed(self, index: int, *, learns: bool, backward: bool) -> Weights:
        """Up, down again, and from the first layer up once more: at both ends the same one is needed twice."""
        if index in self.held:
            return self.held[index]
        read = [i for i in range(len(self.layers)) if i not in self.held]
        at = read.index(index)
        if backward:
            return self.layer(index, read[max(0, at - 1)])
        if at + 1 < len(read):
            return self.layer(index, read[at + 1])
        return self.layer(index, index if learns else read[0])

    def layer(self, index: int, follows: int) -> Weights:
        """The layer's weights, to be used until the next call; `follows` is the layer after it."""
        self.places = self.places or self._make_places()
        if self.ahead is None or self.ahead[0] != index:
            self.ahead = self._begin(index, 1 - self.used)
        _, self.used, coming = self.ahead
        weights = coming.result()
        if self.copying:
            torch.cuda.current_stream().wait_event(self.places[self.used].arrived)
        self.ahead = (index, self.used, coming) if follows == index else self._begin(follows, 1 - self.used)
        return weights

    def _make_places(self) -> list[Place]:
        largest = max(layer.bytes for layer in self.layers)
        return [Place(largest, self.device, from_files=not self.kept) for _ in range(2)]

    def _begin(self, index: int, place: int) -> tuple[int, int, Future[Weights]]:
        free = torch.cuda.current_stream().record_event() if self.copying else None
        return index, place, self.reader.submit(self._bring, index, self.places[place], free)

    def _bring(self, index: int, place: Place, free: Any) -> Weights:
        """Runs in the reader's thread. `free`: an event after which nothing computes with what lies there."""
        layer = self.layers[index]
        if place.on_the_way is not None:
            if place.arrived:
                place.arrived.synchronize()  # what lay on the way before
            layer.fill(place.on_the_way, self.source.read(index))
            self.source.drop(index)
        if not self.copying:
            return layer.of(self.kept[index] if self.kept else place.here)
        source = self.kept[index] if self.kept else place.on_the_way[: layer.bytes]
        with torch.cuda.stream(self.copying):
            self.copying.wait_event(free)
            place.here[: layer.bytes].copy_(source, non_blocking=True)
            place.arrived.record(self.copying)
        return layer.of(place.here)


class StreamedLayer:
    """Forward without a graph, and again with one for the backward pass: in between only its input is kept. That is
    torch's reentrant checkpoint; the other kind would not do, as bitsandbytes' graph holds on to 4-bit weights."""

    def __init__(self, layer: nn.Module, index: int, stream: Stream, owners: dict[str, tuple[nn.Module, str]]) -> None:
        """`owners`: of each weight the module, which stays the same when an adapter is put around it."""
        self.compute, self.index, self.stream, self.owners = layer.forward, index, stream, owners
        self.placeholders = {name: module._parameters[kind] for name, (module, kind) in owners.items()}

    def __call__(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        learns = torch.is_grad_enabled()
        call = partial(self._compute, learns, args, kwargs)
        return checkpoint(call, hidden, use_reentrant=True, preserve_rng_state=False) if learns else call(hidden)

    def _compute(self, learns: bool, args: Any, kwargs: Any, hidden: Tensor) -> Any:
        backward = learns and torch.is_grad_enabled()
        self._put(self.stream.needed(self.index, learns=learns, backward=backward))
        try:
            return self.compute(hidden, *args, **kwargs)
        finally:
            self._put(self.placeholders)

    def _put(self, weights: Any) -> None:
        for name, (module, kind) in self.owners.items():
            module._parameters[kind] = as_parameter(weights[name])


def as_parameter(weight: Tensor) -> nn.Parameter:
    """PEFT adapts experts through torch's parametrizations, which take parameters alone, and count as a change of all
    that shares the memory."""
    return weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight.data, requires_grad=False)


def stream_of(model: Any) -> Stream | None:
    stream = getattr(model, "stream", None)
    return stream if isinstance(stream, Stream) else None
