"""What `ansible-doc` shows of our modules is there, and is what they take."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible.module_utils
import pytest
import yaml
from ansible.plugins.loader import become_loader, callback_loader, fragment_loader, inventory_loader
from ansible.utils.plugin_docs import get_docstring

from plugins.module_utils.motley import documented
from tests.support import ROOT, pace

MODULES = sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))


@pytest.fixture(scope="module")
def docs() -> dict[str, dict[str, Any]]:
    found = {}
    for name in MODULES:
        doc, examples, returned, _ = get_docstring(f"{ROOT}/plugins/modules/{name}.py", fragment_loader)
        found[name] = {"doc": doc, "examples": examples, "return": returned}
    return found


def test_every_module_has_a_page_to_read() -> None:
    program = Path(sys.executable).with_name("ansible-doc")
    words = [program, "-t", "module", "-M", "plugins/modules", *MODULES]
    done = pace.does(*words, cwd=ROOT)
    assert done.stdout.count("> MODULE ") == len(MODULES)


def lacks(page: dict[str, Any]) -> list[str]:
    found = [key for key in ("author", "short_description", "description") if not page["doc"].get(key)]
    found += [name for name, option in page["doc"].get("options", {}).items() if not option.get("description")]
    return found + [key for key in ("examples", "return") if not page.get(key)]


def test_every_page_is_whole(docs: dict[str, Any]) -> None:
    assert not {name: missing for name in MODULES if (missing := lacks(docs[name]))}


@pytest.mark.parametrize("name", MODULES)
def test_a_page_lists_what_its_module_takes(docs: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [*ansible.module_utils.__path__, str(ROOT / "plugins/module_utils")]
    monkeypatch.setattr(ansible.module_utils, "__path__", places)
    module = importlib.import_module(f"plugins.modules.{name}")
    monkeypatch.setattr(documented, "AnsibleModule", lambda **taken: taken)
    taken = documented.module_of(module.DOCUMENTATION)["argument_spec"]
    assert docs[name]["doc"]["options"].keys() == taken.keys()


def test_our_own_tasks_take_what_is_documented(docs: dict[str, Any]) -> None:
    for file in (ROOT / "roles").glob("*/tasks/*.yml"):
        for task in within(yaml.safe_load(file.read_text())):
            for name in {*task} & {*MODULES}:
                said = task[name] if isinstance(task[name], dict) else {}
                options = docs[name]["doc"].get("options", {})
                needed = {option for option, page in options.items() if page.get("required") and said}
                assert needed <= {*said} <= {*options}, f"{file}: {task['name']}"


def within(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        yield task
        yield from within([*task.get("block", []), *task.get("rescue", [])])


@pytest.mark.parametrize("name", MODULES)
def test_an_example_says_what_is_documented(docs: dict[str, Any], name: str) -> None:
    for task in yaml.safe_load(docs[name]["examples"]):
        options = docs[name]["doc"].get("options", {})
        needed = {option for option, page in options.items() if page.get("required")}
        assert needed <= {*(task[name] or {})} <= {*options}


def test_the_other_plugins_have_a_page() -> None:
    for kind, name in ((callback_loader, "calm"), (become_loader, "any_sudo"), (inventory_loader, "motley_rented")):
        assert get_docstring(kind.find_plugin(name), fragment_loader)[0]["description"]
