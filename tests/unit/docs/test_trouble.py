"""docs/trouble.md has a line for every sentence with which a bootstrap, an undo or a first contact can fail."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
import yaml

from console.playbook.ansible_errors import KNOWN
from tests.support import ROOT

PAGE = (ROOT / "docs/trouble.md").read_text()
MODULES = (
    "artifacts collective_probe mesh_probe netplan_change preflight_info undoable_state apt_packages node_undo "
    "python_env workspace"
)
PYTHON = (
    *(f"plugins/modules/{name}.py" for name in MODULES.split()),
    "plugins/action/first_contact.py",
    "plugins/module_utils/motley/preflight.py",
    "plugins/filter/plan_netplan.py",
    "plugins/filter/choose_python_env.py",
)
ROLES = "artifacts clock contact firewall hostname power preflight proof python_env ssh_trust static_ip workspace run"
NAMES = {"what", "error", "reason"}  # of the values that end in a message
FUNCTIONS = {"fault_of", "write_and_generate"}  # that return one


def fragments(node: ast.expr) -> list[str]:
    """The constant parts of a text in the source; what stands between them is known only when it is said."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return [str(part.value) for part in node.values if isinstance(part, ast.Constant)]
    if isinstance(node, ast.BoolOp):
        return fragments(node.values[-1])
    if isinstance(node, ast.IfExp):
        return [*fragments(node.body), *fragments(node.orelse)]
    if isinstance(node, ast.BinOp):
        return [*fragments(node.left), *fragments(node.right)]
    return []


def in_python(source: str) -> Iterator[list[str]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="fail_json")):
                yield from (fragments(word.value) for word in node.keywords if word.arg == "msg")
            case ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id="findings")), args=[said]):
                yield fragments(said)
            case ast.Raise(exc=ast.Call(func=ast.Name(id="ModuleError"), args=[said, *_])):
                yield fragments(said)
            case ast.FunctionDef(name=name) if name in FUNCTIONS:
                yield from (fragments(n.value) for n in ast.walk(node) if isinstance(n, ast.Return) and n.value)
            case ast.Dict():
                named = zip(node.keys, node.values, strict=True)
                yield from (fragments(v) for k, v in named if isinstance(k, ast.Constant) and k.value in NAMES)
            case ast.Assign(targets=[ast.Name(id=name)]) if name in NAMES:
                yield fragments(node.value)


def in_role(text: str) -> Iterator[list[str]]:
    for task in tasks_of(yaml.safe_load(text)):
        said = task.get("fail_msg") or task.get("msg")
        if said:
            yield re.split(r"{{.*?}}|{%.*?%}", str(said))


def tasks_of(tasks: object) -> Iterator[dict[str, object]]:
    """The arguments of every `assert` and `fail`, within blocks and rescues as well."""
    for task in tasks if isinstance(tasks, list) else []:
        for name, value in task.items():
            if name in ("block", "rescue", "always"):
                yield from tasks_of(value)
            elif name in ("ansible.builtin.assert", "ansible.builtin.fail"):
                yield value


def all_sentences() -> dict[str, str]:
    """The longest constant part of each sentence's first line -> where it is said."""
    said = {path: list(in_python((ROOT / path).read_text())) for path in PYTHON}
    for role in ROLES.split():
        for file in sorted((ROOT / f"roles/motley_{role}/tasks").glob("*.yml")):
            said[str(file.relative_to(ROOT))] = list(in_role(file.read_text()))
    said["console/playbook/ansible_errors.py"] = [[what] for _, what, _ in KNOWN]
    found = {}
    for path, sentences in said.items():
        for parts in sentences:
            line = [
                part.split("\n")[0] for part in parts[: 1 + next((i for i, p in enumerate(parts) if "\n" in p), 99)]
            ]
            longest = max((part.strip(" :;,.()'") for part in line), key=len, default="")
            if len(longest) > 3:
                found[longest] = path
    return found


@pytest.mark.parametrize(("sentence", "where"), all_sentences().items())
def test_every_sentence_stands_on_the_page(sentence: str, where: str) -> None:
    assert sentence in PAGE, f"{where} says it"


def test_sentences_are_found() -> None:
    found = all_sentences()
    assert len(found) > 40
    assert "after the change" in found and "a model and its checkpoints want" in found
    for known in (
        "an earlier change of the network, which nobody has confirmed, is being taken back",
        "it has no Python 3",
    ):
        assert known in found
