"""unsloth's path for GPUs on a machine without one: its Triton kernels run in Triton's interpreter, on a CPU's tensors.

    from tests.unsloth import pretend_gpu
    pretend_gpu.start()                    # before anything reads transformers, peft or unsloth
    with pretend_gpu.kernels() as names:   # which kernels were launched meanwhile
        ...

UNSLOTH_ALLOW_CPU is unsloth's own switch for tests; the rest stands in for a card's answers, and repairs bf16, which
Triton 3.7.1 interprets wrongly. What it cannot show: a kernel's compilation, its speed, its memory, NCCL.
"""

# ruff: noqa: PLC0415 -- Triton and unsloth look at the environment while they are read

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

SWITCHES = {
    "TRITON_INTERPRET": "1",
    "UNSLOTH_ALLOW_CPU": "1",
    "UNSLOTH_COMPILE_DISABLE": "1",  # what it would hand to torch.compile wants a compiler, and minutes
    "TORCHDYNAMO_DISABLE": "1",
}
MEMORY = 8 << 30
CARD = SimpleNamespace(
    name="interpreted", total_memory=MEMORY, major=9, minor=0, multi_processor_count=1, warp_size=32,
    max_threads_per_multi_processor=2048, is_integrated=False,
)  # fmt: skip


def start() -> None:
    os.environ.update(SWITCHES)
    import torch

    _answer_for_a_card(torch)
    _repair_bf16(torch)
    from train.models import backends

    backends.get("unsloth")
    _send_to_the_cpu()


def _answer_for_a_card(torch) -> None:
    cuda = torch.cuda
    cuda.get_device_properties = lambda *_: CARD
    cuda.get_device_capability = lambda *_: (CARD.major, CARD.minor)
    cuda.mem_get_info = lambda *_: (MEMORY, MEMORY)
    cuda.current_device = lambda: None  # the index of a CPU tensor's device, with which it is compared
    for name in ("custom_fwd", "custom_bwd"):
        setattr(torch.amp, name, _on_cpu(getattr(torch.amp, name)))


def _on_cpu(decorator):
    def of_cpu(function=None, *, device_type, **options):
        return decorator(function, device_type="cpu", **options)

    return of_cpu


def _repair_bf16(torch) -> None:
    """The interpreter computes with the bits of a bf16 as if they were an integer, and rounds towards zero."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    convert, builder = interpreter._convert_float, interpreter.InterpreterBuilder

    def converted(values, source, target, rounding):
        bits = torch.from_numpy(np.array(values))
        if (source, target) == (tl.bfloat16, tl.float32):
            return bits.view(torch.bfloat16).float().numpy().view(np.uint32).reshape(values.shape)
        if (source, target) == (tl.float32, tl.bfloat16):
            return bits.bfloat16().view(torch.uint16).numpy().reshape(values.shape)
        return convert(values, source, target, rounding)

    def is_bf16(value) -> bool:
        return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar == tl.bfloat16

    def in_fp32(operation):
        def computed(self, *values):
            if not any(map(is_bf16, values)):
                return operation(self, *values)
            found = operation(self, *(self.cast_impl(v, tl.float32) if is_bf16(v) else v for v in values))
            return found if found.data.dtype == bool else self.cast_impl(found, tl.bfloat16)

        return computed

    interpreter._convert_float = converted
    for name in ("unary_op", "binary_op", "ternary_op", "create_fma"):
        setattr(builder, name, in_fp32(getattr(builder, name)))


class _Cpu(str):
    """A device's name that can be used as its index, too."""

    def __index__(self) -> int:
        return 0


def _send_to_the_cpu() -> None:
    """unsloth has made up its mind about the device while it was read, in each of its files."""
    import triton.language as tl

    cpu = _Cpu("cpu:0")

    def cast(value, dtype):  # the interpreter replaces tl.cast, not copies of it
        return tl.cast(value, dtype)

    answers = {
        "DEVICE_TYPE_TORCH": "cpu",
        "DEVICE_COUNT": 1,
        "get_current_device": lambda: cpu,
        "SUPPORTS_BFLOAT16": True,
        "is_bfloat16_supported": lambda *_: True,
        "ALLOW_BITSANDBYTES": True,
        "_can_use_scratch": lambda _: False,
        "triton_cast": cast,
    }
    for module in [module for name, module in sys.modules.items() if name.startswith("unsloth")]:
        for name in answers.keys() & vars(module).keys():
            setattr(module, name, answers[name])


@contextmanager
def kernels() -> Iterator[Counter]:
    from triton.runtime.interpreter import GridExecutor

    launched, launch = Counter(), GridExecutor.__call__

    def counted(self, *values, **options):
        launched[self.fn.__name__] += 1
        return launch(self, *values, **options)

    GridExecutor.__call__ = counted
    try:
        yield launched
    finally:
        GridExecutor.__call__ = launch
