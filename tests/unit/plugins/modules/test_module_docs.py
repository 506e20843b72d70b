"""What `ansible-doc` shows of our modules is there, and is what they take."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ansible.module_utils
import pytest
import yaml

from plugins.module_utils.motley import documented

ROOT = Path(__file__).parents[4]
MODULES = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))


def pages(kind: str, *names: str) -> dict[str, Any]:
    program = Path(sys.executable).with_name("ansible-doc")
    done = subprocess.run(
        [program, "--json", "-t", kind, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def docs() -> dict[str, Any]:
    return pages("module", *MODULES)


def test_every_module_has_a_page_to_read() -> None:
    program = Path(sys.executable).with_name("ansible-doc")
    words = [program, "-t", "module", "-M", "plugins/modules", *MODULES]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("> MODULE ") == len(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_page_says_what_its_module_does(docs: dict[str, Any], name: str) -> None:
    assert docs[name]["doc"]["short_description"] and docs[name]["doc"].get("description")


@pytest.mark.parametrize("name", MODULES)
def test_a_page_lists_what_its_module_takes(docs: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [*ansible.module_utils.__path__, str(ROOT / "plugins/module_utils")]
    monkeypatch.setattr(ansible.module_utils, "__path__", places)
    module = importlib.import_module(f"plugins.modules.{name}")
    monkeypatch.setattr(documented, "AnsibleModule", lambda **taken: taken)
    taken = documented.module_of(module.DOCUMENTATION)["argument_spec"]
    assert docs[name]["doc"]["options"].keys() == taken.keys()


@pytest.mark.parametrize("name", MODULES)
def test_an_example_says_what_is_documented(docs: dict[str, Any], name: str) -> None:
    for task in yaml.safe_load(docs[name]["examples"] or "[]"):
        options = docs[name]["doc"]["options"]
        assert set(task[name]) <= set(options)
        needed = {option for option, page in options.items() if page.get("required")}
        assert needed <= set(task[name])


def test_the_callback_has_a_page() -> None:
    assert pages("callback", "calm")["calm"]["doc"]["description"]
