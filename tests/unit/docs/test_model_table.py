"""docs/training.md: its list of models is the catalogue."""

from tests.support.model_table import PAGE, page_with_table


def test_the_page_lists_the_catalogue_as_it_is() -> None:
    """When it does not: python -m tests.support.model_table writes it again."""
    assert PAGE.read_text() == page_with_table(PAGE.read_text())
