"""What one backend computes of the cases, into FOLDER/BACKEND.pt:

    python -m tests.unsloth.measured hf|unsloth FOLDER llama-fp32 qwen3-nf4 …

A process for each backend: unsloth changes transformers' classes for all that follows it. All cases in one, because
reading unsloth takes longer than any of them. hf comes first: it makes the models.
"""

# ruff: noqa: E402, PLC0415 -- what is imported before unsloth escapes it

import gc
import os
import shutil
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

name, folder = sys.argv[1], Path(sys.argv[2])
asked = [(family, precision) for family, _, precision in (case.partition("-") for case in sys.argv[3:])]
if name == "unsloth":
    os.environ["UNSLOTH_COMPILE_LOCATION"] = str(folder / "compiled")
    from tests.unsloth import pretend_gpu

    pretend_gpu.start()

import torch

from tests.unsloth import cases
from train.errors import BadInput
from train.models import backends, tiny
from train.models.backends import ModelSpec
from train.models.weights import trained_weights

PRECISIONS = cases.PRECISIONS | {"nf4 in fp32": {"load_in": "4bit"}}
SIZES = {
    "vocab_size": 1032,  # transformers adds a token for qwen2
    "intermediate_size": 128,  # on a CPU, bitsandbytes reads 4-bit rows wrongly that are no multiple of 64
}
backend = backends.get(name)
torch.set_num_threads(1)


def make_models() -> None:
    """Of stock transformers; unsloth reads a tokenizer with each."""
    from tests.train import families

    tiny.build(folder / "tiny")
    for family in (*cases.FAMILIES, "gemma2"):
        families.make(family, folder / family, **SIZES)
        for file in (folder / "tiny").glob("tokenizer*"):
            shutil.copy(file, folder / family)


def spec(family: str, precision: str = "fp32", **more: Any) -> ModelSpec:
    return ModelSpec(folder=str(folder / family), **(cases.LORA | PRECISIONS[precision] | more))


def module_of(model: Any, precision: str = "fp32") -> backends.LossModule:
    """With an adapter that is the same for both backends, and not nothing as a fresh one is."""
    random = torch.Generator().manual_seed(2)
    for _, weight in sorted(trained_weights(model).items()):
        weight.data = torch.randn(weight.shape, generator=random) * 0.1
    return backends.loss_module(backend, model, PRECISIONS[precision].get("precision", "fp32"), "cpu")


def loss(module: Any, batch: cases.Batch) -> float:
    with torch.no_grad():
        return float(module(batch))


def trained(module: Any) -> dict[str, Any]:
    """One step's loss and gradient, and the kernels that computed them."""
    module.zero_grad()
    with pretend_gpu.kernels() if name == "unsloth" else nullcontext({}) as kernels:
        total = module(cases.PACKED)
        total.backward()
    gradient = {key: weight.grad.clone() for key, weight in trained_weights(module.model).items()}
    return {"loss": float(total.detach()), "gradient": gradient, "kernels": dict(kernels)}


def of_case(family: str, precision: str) -> dict[str, Any]:
    module = module_of(backend.build(spec(family, precision)), precision)
    found = trained(module)
    if name == "unsloth":
        found["alone"] = sum(loss(module, one) for one in cases.ALONE)
    if name == "unsloth" and precision == "fp32":
        found["mixed"] = loss(module, cases.without_resets(cases.PACKED))
    return found


def of_unsloth_alone() -> dict[str, Any]:
    """What hf has no part in."""
    model = backend.build(spec("llama", gradient_checkpointing="unsloth"))
    module = module_of(model)
    found = {"checkpointed": trained(module)}
    with torch.no_grad():
        found["not joined"] = float(model(**cases.PACKED, num_items_in_batch=torch.ones(())).loss)
        one = cases.ALONE[2]
        found["items"] = [float(model(**one, num_items_in_batch=torch.tensor(n)).loss) for n in (1.0, 8.0)]
    found["too long"] = said_by(lambda: loss(module, cases.TOO_LONG))
    module.eval()
    found["held out"] = loss(module, cases.PACKED)
    return found


def of_gemma2() -> dict[str, Any]:
    module = module_of(backend.load(spec("gemma2")))
    packed = cases.row(*cases.SAMPLES[:2])
    return {
        "refused": said_by(lambda: backend.build(spec("gemma2"))),
        "packed": loss(module, packed),
        "alone": sum(loss(module, one) for one in cases.ALONE[:2]),
    }


def said_by(attempt: Any) -> Any:
    try:
        return attempt()
    except BadInput as error:
        return str(error)


def safely(measure: Any, *values: Any) -> dict[str, Any]:
    """What fails says so in its own test, and leaves the others theirs."""
    try:
        return measure(*values)
    except Exception:
        return {"error": traceback.format_exc()}


def main() -> None:
    if name == "hf":
        make_models()
    gc.freeze()  # unsloth collects after each model, through all that was read
    exact = {(family, cases.EXACT[precision]) for family, precision in asked} if name == "hf" else set()
    found = {case: safely(of_case, *case) for case in sorted({*asked, *exact})}
    if name == "unsloth" and ("llama", "fp32") in asked:
        found |= {"llama": safely(of_unsloth_alone), "gemma2": safely(of_gemma2)}
    torch.save(found, folder / f"{name}.pt")


main()
