"""docs/too-big.md: its tables are the plan's own figures."""

import pytest

from tests.support import too_big
from tests.support.pages import ROOT

PAGE = (ROOT / "docs/too-big.md").read_text()


@pytest.mark.parametrize(
    ("name", "lines"),
    [("fits", too_big.what_fits()), ("takes", too_big.what_it_takes()), ("lan", too_big.over_a_lan())],
)
def test_a_table_is_what_the_plan_computes(name: str, lines: list[str]) -> None:
    """When it is not: python -m tests.support.too_big writes it again."""
    assert PAGE.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- /{name} -->")[0].splitlines() == lines


def test_a_small_card_streams_what_it_cannot_hold() -> None:
    assert too_big.cell("qwen2.5-32b", (16, 8, 8)) == "streams"
    assert too_big.cell("qwen2.5-14b", (16, 8)) == "16 held, 8 streams"
    assert too_big.cell("llama2-13b", (24, 24)) == "held"
