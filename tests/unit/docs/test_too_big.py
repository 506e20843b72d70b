"""docs/too-big.md: its tables are the plan's own figures."""

import subprocess
import sys

import pytest

from tests.support import ROOT, too_big

PAGE = (ROOT / "docs/too-big.md").read_text()


def test_its_tables_are_what_the_plan_computes() -> None:
    """When they are not: python -m tests.support.too_big writes them again."""
    assert too_big.page_with_tables(PAGE) == PAGE


def test_a_small_card_streams_what_it_cannot_hold() -> None:
    assert too_big.cell("qwen2.5-32b", (16, 8, 8)).startswith("streams; ")
    assert too_big.cell("qwen2.5-14b", (16, 8)).startswith("16 held, 8 streams; ")
    assert too_big.cell("llama2-13b", (24, 24)) == "held"


@pytest.mark.parametrize("home", too_big.HOMES)
@pytest.mark.parametrize("model", too_big.MODELS)
def test_cards_that_share_a_base_hold_all_its_layers_or_too_few(model: str, home: tuple[int, ...]) -> None:
    word, _, counts = too_big.together(model, home).partition(" ")
    layers = [int(count) for count in counts.split(" + ")] if counts != "too small" else []
    assert word == "cut" and (not layers or sum(layers) == too_big.facts_of(model).layers)
    assert len(layers) in (0, len(home)), "a card without layers"


def test_more_cards_hold_more_and_the_larger_card_more_of_it() -> None:
    assert too_big.together("qwen2.5-32b", (16, 8)) == "cut too small"
    first, *others = map(int, too_big.together("qwen2.5-32b", (16, 8, 8)).removeprefix("cut ").split(" + "))
    assert first > max(others)


def test_the_table_of_the_ways_is_what_its_command_says() -> None:
    part = PAGE.split("What each option takes, before you launch or buy.")[1]
    command = next(line for line in part.splitlines() if line.startswith("    ./motley plan"))
    shown = [line.strip() for line in part.split("    option  ")[1].split("\n\n")[0].splitlines()]
    words = [sys.executable, "-m", "console", *command.split()[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    shown[0] = f"option  {shown[0]}"
    said = [" ".join(line.split()) for line in done.stdout.splitlines()]
    at = said.index(" ".join(shown[0].split()))
    assert said[at : at + 4] == [" ".join(line.split()) for line in shown]


def test_the_page_says_what_no_card_has_confirmed() -> None:
    assert "**Seconds and gigabytes on this page are predicted;" in " ".join(PAGE.split())
