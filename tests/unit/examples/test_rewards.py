"""The rewards that the page shows are those that run, and give what it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.support import ROOT
from train.__main__ import main
from train.rewards.judge import Judge

PAGE = (ROOT / "docs/rewards.md").read_text()
FILE = ROOT / "examples/rewards.py"


def indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def test_the_page_shows_the_file_as_it_is() -> None:
    assert indented(FILE.read_text()) in PAGE


def test_the_page_shows_what_check_rewards_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = re.search(r"(?m)^    \./motley check-rewards (examples/\S+) (examples/\S+)$", PAGE)
    assert found and main(["check-rewards", "--rewards", found[1], "--dataset", found[2]]) == 0
    table, _, below = capsys.readouterr().out.partition("\n\n")
    assert len(table.splitlines()) == 9 and indented(table + "\n") in PAGE
    assert re.fullmatch(r"\S+ ms an answer\n", below)


@pytest.mark.parametrize(
    ("answer", "right", "form"),
    [
        ("17 + 25 is 42.\nAnswer: 42", 1, 1),
        ("Answer: 42", 1, 1),
        ("Answer: 421", 0, 1),
        ("It is 42.", 0, 0),
        ("Answer: 42 or\nAnswer: 43", 0, 0),
        ("Answer: 43\nAnswer: 42", 1, 0),
        ("", 0, 0),
    ],
)
def test_the_example_tells_right_from_wrong(answer: str, right: float, form: float) -> None:
    with Judge("rewards.py", 30, "stop", FILE.parent) as judge:
        for completion in (answer, [{"role": "assistant", "content": answer}]):
            found = judge.score(["?"], [completion], {"answer": [42]})
            assert found.by_function == {"right": [right], "form": [form]}


def test_what_a_model_finds_is_what_the_page_says(tmp_path: Path) -> None:
    """Of the two forms of `polite`: the first is worth most for a word alone."""
    naive, better = re.findall(r"(?m)^    def polite\(.*\n(?:        .*\n)+", PAGE)
    hacked, meant = "please please please", "Could you please send it by Friday?"
    for text, expected in ((naive, [3, 1]), (better, [0, 1])):
        (tmp_path / "r.py").write_text(re.sub("(?m)^    ", "", text))
        with Judge("r.py", 30, "stop", tmp_path) as judge:
            assert judge.score(["?", "?"], [hacked, meant], {}).total == expected


def test_what_the_demo_rewards_is_a_right_name_in_few_words_and_not_an_empty_answer() -> None:
    found = runpy.run_path(str(ROOT / "examples/brief.py"))
    answers = [
        [{"role": "assistant", "content": text}] for text in ("Oslo.", "It is Oslo, I am quite sure.", "", "Rome")
    ]
    assert found["right"](answers, ["Oslo"] * 4) == [1, 1, 0, 0]
    assert found["brief"](answers) == [1, 3 / 7, 0, 1]
