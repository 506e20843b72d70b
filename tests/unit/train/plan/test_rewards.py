"""`rewards=` as a person writes it: read without running anybody's code, and what is wrong with it in one sentence."""

from pathlib import Path

import pytest

from train.errors import BadInput
from train.plan.settings.rewards import Reward, file_of, parse, require_columns, rewards_hash, with_file

MINE = """
raise SystemExit("it was run")
def brevity(completions, **columns): ...
def polite(prompts, completions, level): ...
def words(text): ...
def _old(completions): ...
def any_name(**everything): ...
async def later(completions): ...
def by_place(completions, /): ...
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE.replace("async", "def helper(): ...\nasync"))
    usual = MINE.partition("async")[0]
    (tmp_path / "rewards.py").write_text(usual)
    return tmp_path


def names(text: str, home: Path) -> list[tuple[str, float]]:
    return [(reward.name, reward.weight) for reward in parse(text, home)]


def test_a_file_gives_every_function_that_takes_completions(home):
    file = str(home / "rewards.py")
    assert parse("./rewards.py", home) == (
        Reward("brevity", "file", file, "brevity"),
        Reward("polite", "file", file, "polite"),
    )
    assert names(f"{file}:any_name", Path("/")) == [("any_name", 1.0)]


def test_weights_stand_before_an_at_sign(home):
    given = "0.5@./rewards.py:brevity, 2@exact,-1@length:50,json"
    assert names(given, home) == [("brevity", 0.5), ("exact", 2.0), ("length:50", -1.0), ("json", 1.0)]
    assert names("3@./rewards.py", home) == [("brevity", 3.0), ("polite", 3.0)]


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        (r"format:\d{1,3},exact", [r"format:\d{1,3}", "exact"]),
        ("exact,0.5@format:a,b,c", ["exact", "format:a,b,c"]),
        ("format:[a@b],2@format:2@x", ["format:[a@b]", "format:2@x"]),
        ("format:a,length:9,format:b:c", ["format:a", "length:9", "format:b:c"]),
        ("format:a,,json", ["format:a,", "json"]),
    ],
)
def test_a_comma_in_a_pattern_parts_nothing_but_before_a_reward(text, patterns, home):
    assert [reward.name for reward in parse(text, home)] == patterns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"none is named; there are exact, number"),
        ("exact,,json", r"a comma too many"),
        ("exat", r"there is no 'exat'; did you mean exact\?\nname one of exact, .* or a file"),
        ("0@exact", r"exact has the weight 0, so it counts for nothing\nleave it out"),
        ("exact:5", r"exact takes nothing behind it\nwrite: exact"),
        ("length", r"length takes how many words .*\nwrite: length:50"),
        ("length:0", r"length takes how many words"),
        ("format", r"format takes a regular expression"),
        ("format:(a", r"the pattern '\(a' is no regular expression: missing \)"),
        ("exact,2@exact", r"exact is named 2 times\nname it once"),
        ("./none.py", r"rewards: there is no file .*none.py \(No such file or directory\)"),
        (
            "./rewards.py:brevty",
            r"it has no function brevty; did you mean brevity\?\nfile: .*\nname one that it has: br",
        ),
        ("./rewards.py:words", r"words does not take completions\n.*line 5\nwrite: def NAME\(prompts, completions"),
        ("./mine.py:later", r"later is async"),
        ("./mine.py:by_place", r"by_place is called by names"),
        ("./mine.py:brevity,./rewards.py:polite", r"two files are named, and one comes to the nodes"),
    ],
)
def test_what_is_wrong_is_one_sentence(text, message, home):
    with pytest.raises(BadInput, match=message):
        parse(text, home)


def test_a_file_stands_alone_and_is_python(home):
    (home / "helper.py").write_text("")
    (home / "a.py").write_text("from helper import f\ndef good(completions): ...\n")
    with pytest.raises(BadInput, match=r"rewards: it imports helper, which lies beside it: this one file alone"):
        parse("./a.py", home)
    (home / "a.py").write_text("def good(completions)\n")
    with pytest.raises(BadInput, match=r"rewards: this is not Python: expected ':'\nfile: .*a.py, line 1"):
        parse("./a.py", home)
    (home / "a.py").write_text("def good(text): ...\n")
    with pytest.raises(BadInput, match=r"no function of the file takes completions\nfile: .*\nwrite: def NAME"):
        parse("./a.py", home)


def test_the_file_may_lie_elsewhere_on_a_node(home):
    text = "exact,0.5@~/my rewards.py:brevity,format:./rewards.py.*"
    assert file_of(text) == "~/my rewards.py"
    assert with_file(text, "/n/rewards.py") == "exact,0.5@/n/rewards.py:brevity,format:./rewards.py.*"
    assert file_of("exact,json") == "" and with_file("exact,json", "/x.py") == "exact,json"
    assert with_file("./a.py:x,2@./a.py:y", "b.py") == "b.py:x,2@b.py:y"
    assert with_file("./a.py,exact,exact", "b.py") == "b.py,exact,exact", "named twice, which is refused"


def test_the_hash_is_of_what_scores_and_not_of_where_it_lies(home):
    there = home / "there"
    there.mkdir()
    (there / "r.py").write_bytes((home / "rewards.py").read_bytes())
    before = rewards_hash(parse("./rewards.py,exact", home))
    assert before == rewards_hash(parse("r.py,exact", there))
    others = ["2@./rewards.py,exact", "./rewards.py:brevity,exact", "./rewards.py,number", "./rewards.py,format:a"]
    assert len({before, *(rewards_hash(parse(text, home)) for text in others)}) == 5
    (home / "rewards.py").write_text(MINE.partition("async")[0] + "\nx = 1\n")
    assert rewards_hash(parse("./rewards.py,exact", home)) != before


def test_the_column_that_motleys_own_compare_with_is_asked_for(home):
    require_columns(parse("number,json", home), ["answer", "level"], "sums.jsonl")
    require_columns(parse("./rewards.py,json", home), [], "sums.jsonl")
    said = r"number compares with the column answer.*\nsums.jsonl has: level\nname that col"
    with pytest.raises(BadInput, match=said):
        require_columns(parse("json,number", home), ["level"], "sums.jsonl")
