"""Fine-tuning from Python: `motley.sft(model=…, dataset=…)` and `motley.fit(recipe, settings)`.

Beside a train.py of your own, too: Motley's package of that name is taken from this checkout, whatever the path says.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parent / "train"


def _package() -> ModuleType:
    file = PACKAGE / "__init__.py"
    if known := sys.modules.get("train"):
        if known.__file__ != str(file):
            raise ImportError(f"{known.__file__} is imported as 'train', which Motley's package is called too\n"
                              "fix: import motley before it")  # fmt: skip
        return known
    spec = importlib.util.spec_from_file_location("train", file, submodule_search_locations=[str(PACKAGE)])
    assert spec and spec.loader
    package = sys.modules["train"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


_package()

from train.engine.from_python import fit, sft  # noqa: E402

__all__ = ["fit", "sft"]
