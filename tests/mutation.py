"""Random faults in the product, one at a time: which test finds each? (Those of tests/sim are chosen.)

python -m tests.mutation SEED N   draw until N faults are kept in docs/benchmarks/mutations.json; try what is new
python -m tests.mutation again    try all that are kept again, where their lines still are
"""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
KEPT = REPOSITORY / "docs/benchmarks/mutations.json"
ENVS = {"tests/unit/": REPOSITORY / ".venv", ("tests/train/", "tests/sim/"): Path.home() / ".cache/motley/envs/train"}
PRODUCT = [f"{folder}/**.py" for folder in ("train", "console", "plugins", "lab")]
PYTEST = "-m pytest -qx -p no:cacheprovider --timeout=300 -m".split()
PAIRS = "Eq NotEq,Lt LtE,Lt GtE,Gt LtE,Gt GtE,In NotIn,Is IsNot,And Or,Add Sub,Mult Div,FloorDiv Mult,Mod Add"


@dataclass(kw_only=True)
class Mutation:
    file: str
    line: int
    what: str
    old: str
    new: str
    caught_by: str = ""
    lives_because: str = ""

    def applied(self, text: str) -> str:
        """Where the old lines stand, the nearest to where they stood; unchanged if nowhere."""
        places = [found.start() for found in re.finditer(re.escape(self.old), text)]
        at = min(places, key=lambda place: abs(text.count("\n", 0, place) + 1 - self.line), default=None)
        return text if at is None else text[:at] + self.new + text[at + len(self.old) :]


def walked(node: ast.AST) -> Iterator[ast.AST]:
    """What runs: no docstring, annotation or decorator, nor f-strings, whose places Python 3.11 does not know."""
    match node:
        case ast.JoinedStr() | ast.pattern() | ast.Expr(ast.Constant()):
            return
        case ast.Assign([ast.Name("DOCUMENTATION" | "EXAMPLES" | "RETURN")]):
            return
    yield node
    unread = [getattr(node, name, None) for name in ("annotation", "returns")] + getattr(node, "decorator_list", [])
    for child in ast.iter_child_nodes(node):
        yield from () if child in unread else walked(child)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """What is done, to which node, and what stands there then."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.Compare(ops=[op]):
            for pair in map(str.split, PAIRS.split(",")):
                if type(op).__name__ in pair:
                    other = getattr(ast, pair[pair[0] == type(op).__name__])()
                    turned = type(node)(**{**vars(node), "op": other, "ops": [other]})
                    yield type(node).__name__, node, f"({ast.unparse(turned)})"
        case ast.Constant(value=bool() | int() | float() | str() as value):
            other = not value if isinstance(value, bool) else value + ("x" if isinstance(value, str) else 1)
            yield "constant", node, f"({other!r})"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "not", test, f"(not ({ast.unparse(test)}))"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None", node, "return None"
        case ast.Expr(value=ast.Call()):
            yield "call deleted", node, "pass"


def drawn(rng: random.Random, texts: dict[str, str]) -> Mutation:
    """A file by its length, then a kind of fault, then a place."""
    found: list[tuple[str, ast.AST, str]] = []
    while not found:
        (file,) = rng.choices(list(texts), [text.count("\n") for text in texts.values()])
        found = [change for node in walked(ast.parse(texts[file])) for change in changes(node)]
    kind = rng.choice(sorted({what for what, _, _ in found}))
    _, node, new = rng.choice([change for change in found if change[0] == kind])
    lines = texts[file].encode().splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
    new = lines[0][: node.col_offset].decode() + new + lines[-1][node.end_col_offset :].decode()
    return Mutation(file=file, line=node.lineno, what=kind, old=b"".join(lines).decode(), new=new)


def tests_of(changed: str, tree: Path) -> list[list[str]]:
    """Its own tests, those that import it, those beside its own."""
    path = Path(changed)
    beside = [str(file.relative_to(tree)) for file in sorted((tree / "tests/unit" / path.parent).glob("test_*.py"))]
    imports = rf"(from|import) .*\b{path.stem}\b|^    {path.stem},$|\b{path.parent.name}[./]{path.stem}\b"
    command = ["git", "grep", "-lP", imports, "--", *(f"tests/{part}/**test_*.py" for part in ("unit", "train", "sim"))]
    found = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True, check=False)
    return [[file for file in beside if f"test_{path.stem}" in file], found.stdout.split(), beside]


def failed(tree: Path, tests: list[str], *options: str) -> str:
    """The first test that fails. In a process space of its own: what a fault kills or leaves is there too."""
    for places, env in ENVS.items():
        if chosen := [test for test in tests if test.startswith(places)]:
            space = "unshare --pid --fork --mount-proc --kill-child".split()
            command = [*space, env / "bin/python", *PYTEST, "not long", *options, *chosen]
            done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
            if found := re.search(r"^(?:FAILED|ERROR) ([^\s[]+)", done.stdout, re.MULTILINE):
                return found[1]
            if done.returncode not in (0, 5):
                return f"ended with {done.returncode}: {done.stdout[-300:]}"
    return ""


def tried(tree: Path, mutation: Mutation, red: set[str]) -> str:
    """The test that catches it; `red` are those that fail without it too."""
    file = tree / mutation.file
    whole = file.read_text()
    for tests in tests_of(mutation.file, tree):
        while tests and mutation.applied(whole) != whole:
            file.write_text(mutation.applied(whole))
            found = failed(tree, tests, *(f"--deselect={name}" for name in red))
            file.write_text(whole)
            if not found:
                break
            if not found.startswith("tests/") or not failed(tree, [found]):
                return found
            red.add(found)
    return ""


def main(words: list[str]) -> int:
    again, red = words == ["again"], set[str]()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"mutations": []}
    mutations = [Mutation(**{**facts, "caught_by": facts["caught_by"] * (not again)}) for facts in kept["mutations"]]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "clone", "-q", "--shared", REPOSITORY, tree], check=True)
        (tree / ".venv").symlink_to(REPOSITORY / ".venv")
        if not again:
            commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=tree, text=True).strip()
            kept = {"seed": words[0], "commit": commit, **kept}
            listed = subprocess.check_output(["git", "ls-files", *PRODUCT], cwd=tree, text=True).split()
            texts = {file: (tree / file).read_text() for file in listed}
            more = range(len(mutations), int(words[1]))
            mutations += [drawn(random.Random(f"{kept['seed']}/{number}"), texts) for number in more]
        for one in mutations:
            if not one.caught_by and (again or not one.lives_because):
                one.caught_by = tried(tree, one, red)
                print(f"{one.file}:{one.line} {one.what}: {one.caught_by or 'lives'}", flush=True)
                KEPT.write_text(json.dumps({**kept, "mutations": [asdict(m) for m in mutations]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
