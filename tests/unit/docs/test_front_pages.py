"""README, the index of docs/ and the tree of files: what they must lead to."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT
from train import layout
from train.runlog import paths

DOCS = ROOT / "docs"
HERE = Path()


def test_the_index_leads_to_every_page() -> None:
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", (DOCS / "README.md").read_text())}
    pages = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md")} - {"README.md"}
    assert pages - linked == set()


@pytest.mark.parametrize(
    "folder",
    [
        *(layout.BASE_MODELS, layout.RAW_DATA, layout.ROWS, layout.TOKENIZERS),
        *(paths.checkpoints(HERE, "RUN"), paths.logs(HERE, "RUN")),
        *(paths.results(HERE, "RUN") / made for made in paths.MADE),
        *(f"{Path(file).parent}" for file in (paths.SETTINGS, "scripts/launch_cluster.sh")),
    ],
    ids=str,
)
def test_the_tree_of_files_has_what_a_run_writes(folder: Path | str) -> None:
    part = (DOCS / "questions.md").read_text().split("## Where are my files?")[1].split("\n## ")[0]
    assert f"{layout.HOME}/" in part and f"{folder}/" in part


@pytest.mark.parametrize(
    "command", ["sudo ./motley demo", "./motley plan --model qwen3-8b --cards 24,6", "sudo make test"]
)
def test_the_front_page_has_its_commands_with_how_long_they_take(command: str) -> None:
    (line,) = (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"    {command} "))
    assert re.search(r"# .*(minutes|seconds)", line)


@pytest.mark.parametrize("name", ["live.png", "report.png"])
def test_a_picture_of_the_front_page_is_small(name: str) -> None:
    """python -m tests.support.page_pictures makes them."""
    assert f"docs/{name}" in (ROOT / "README.md").read_text()
    content = (DOCS / name).read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) < 150_000


def test_the_issue_about_cards_asks_for_the_file_that_the_kit_writes() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/graphics-cards.yml").read_text())
    (file,) = (part for part in form["body"] if part.get("validations", {}).get("required"))
    assert file["attributes"]["label"].endswith("to-post.md")
