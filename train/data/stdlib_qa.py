"""The data set stdlib-qa: what each function and class of Python's standard library does, in its own words.

It needs no download, and a model that learned it visibly answers otherwise. Importing the whole standard library leaves
traces in a process, so this file runs by itself, isolated: python -I -S train/data/stdlib_qa.py OUT.jsonl
"""

import importlib
import inspect
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

# open a window or a browser, are packages of tests, or are gone in later versions
LEFT_OUT = {"antigravity", "distutils", "ensurepip", "idlelib", "lib2to3", "msilib", "nt", "test", "this", "tkinter"}
LEFT_OUT |= {"turtle", "turtledemo", "winreg", "winsound"}


def pairs() -> Iterator[dict[str, str]]:
    seen: set[str] = set()
    for module_name in sorted(sys.stdlib_module_names - LEFT_OUT):
        if module_name.startswith("_"):
            continue
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        for name, thing in members(module_name, module):
            answer = first_paragraph(thing)
            if 30 <= len(answer) <= 400 and name not in seen:
                seen.add(name)
                yield {"instruction": f"What does Python's {name} do?", "output": answer}


def members(module_name: str, module: ModuleType) -> Iterator[tuple[str, object]]:
    """The module's own public functions and classes, and the methods of these."""
    for name, thing in vars(module).items():
        is_code = inspect.isfunction(thing) or inspect.isbuiltin(thing) or inspect.isclass(thing)
        if name.startswith("_") or not is_code or getattr(thing, "__module__", module_name) != module_name:
            continue
        yield f"{module_name}.{name}", thing
        if inspect.isclass(thing):
            for method_name, method in vars(thing).items():
                if not method_name.startswith("_") and callable(method):
                    yield f"{module_name}.{name}.{method_name}", method


def first_paragraph(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with Path(sys.argv[1]).open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(pair) + "\n" for pair in pairs())
