"""The rewards in their process: what they give, and what becomes of a run where they do not do what a reward does."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, pace
from tests.support.pids import is_alive
from train.errors import BadInput
from train.rewards.judge import Judge, RewardFailed, Scored, valid
from train.rewards.process import Lost

Make = Callable[..., Judge]


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Make]:
    """Makes a judge of a file's text; `said` has what goes to the log."""
    made: list[Judge] = []

    def make(text: str, rewards: str = "./r.py", *, seconds: float = 20, on_error: Any = "stop", **more: Any) -> Judge:
        (tmp_path / "r.py").write_text(text)
        said: list[str] = []
        one = Judge(rewards, seconds, on_error, tmp_path, say=said.append, **more)
        one.said = said
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def score(judge: Judge, completions: list[Any], **columns: list[Any]) -> Scored:
    return judge.score(["?"] * len(completions), completions, columns)


def pid(judge: Judge) -> int:
    return judge.process.process.pid


TWO = """
def brevity(completions, **columns): return [1 / len(c) for c in completions]
def levels(prompts, completions, level): return [len(p) + x for p, x in zip(prompts, level)]
"""


def test_each_function_gives_a_number_and_the_total_is_their_weighted_sum(judge):
    both = judge(TWO, "2@./r.py:brevity,0.5@./r.py:levels,exact")
    found = score(both, ["ab", "abcd"], level=[3, 5], answer=["ab", "x"], prompt=["dropped", "too"])
    assert found.by_function == {"brevity": [0.5, 0.25], "levels": [4, 6], "exact": [1, 0]}
    assert found.total == [2 * 0.5 + 0.5 * 4 + 1, 2 * 0.25 + 0.5 * 6]
    assert score(both, [], level=[], answer=[]) == Scored([], {"brevity": [], "levels": [], "exact": []})


def test_the_prompt_is_no_column_as_in_trl(judge):
    one = judge("def f(completions, **columns): return ['prompt' in columns, sorted(columns) == ['level', 'prompts']]")
    assert score(one, ["a", "b"], level=[1, 1], prompt=["?", "?"], completion=["", ""]).total == [0, 1]


def test_a_chat_gives_messages_as_in_trl(judge):
    text = """
def f(prompts, completions):
    return [p[-1]["content"] == c[0]["content"] and c[0]["role"] == "assistant" for p, c in zip(prompts, completions)]
"""
    prompt = [{"role": "system", "content": "b"}, {"role": "user", "content": "a"}]
    same, other = ([{"role": "assistant", "content": word}] for word in "ab")
    found = judge(text, "./r.py,exact").score([prompt, prompt], [same, other], {"answer": ["a", "a"]})
    assert found.by_function == {"f": [1, 0], "exact": [1, 0]}


def test_none_does_not_apply_and_counts_for_nothing(judge):
    some = judge("def f(completions): return [None, 2]\ndef g(completions): return [None, True]")
    found = score(some, ["a", "b"])
    assert found == Scored([0, 3], {"f": [None, 2], "g": [None, 1]})


def test_it_is_one_process_and_each_call_gets_lists_of_its_own(judge):
    text = """
import os
def f(completions): completions.clear(); return [os.getpid()]
def g(completions): return map(len, completions)
"""
    one = judge(text)
    assert [score(one, ["abc"]).by_function for _ in range(2)] == [{"f": [pid(one)], "g": [3]}] * 2
    assert pid(one) != os.getpid()


FORGED = """
import os
def f(completions):
    for end in range(3, 99):
        try: os.write(end, b"[1]\\n")
        except OSError: pass
    while True: pass
"""
FLOOD = """
import os
def f(completions):
    while True:
        for end in range(3, 99):
            try: os.write(end, b"x" * 9999)
            except OSError: pass
"""
WRONG = [
    ("def f(completions):\n  x = 1\n  raise KeyError('level')", r"f raised KeyError: 'level' \(line 3\)\nfile: .*r.py"),
    ("def f(completions):\n  exit()", r"f raised SystemExit: None \(line 2\)"),
    ("def f(completions): return [1]", r"f gave 1 values for 2 answers"),
    ("def f(completions): return 1.0", r"f gave 1.0 instead of a list of numbers"),
    ("def f(completions): return 'ab'", r"f gave 'ab' instead of a list"),
    ("def f(completions): pass", r"f gave None instead of a list"),
    ("def f(completions): return {0.5, 2.0}", r"f gave \{.*\} instead of a list"),
    ("def f(completions, level): return level", r"f takes level, and the data has no such column"),
    ("import os\ndef f(completions): os._exit(3)", r"f ended its process \(exit code 3\)"),
    ("import ctypes\ndef f(completions): ctypes.string_at(0)", r"f was ended by SIGSEGV"),
    ("def f(completions):\n  while True: pass", r"f had not answered after 1 seconds"),
    ("def f(completions): return [bytearray(10**9)]", r"f raised MemoryError: it may have 0.6 GB \(line 1\)"),
    (FLOOD, r"f wrote into what its process answers with"),
    (FORGED, r"f wrote into what its process answers with"),
    (FORGED.replace("[1]", "{"), r"f wrote into what its process answers with"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_what_went_wrong_is_worth_0_or_ends_the_run_with_a_sentence(text, message, judge):
    seconds = 1 if "had not answered" in message else 60
    one = judge(text, "exact,./r.py", seconds=seconds, on_error="zero", memory_bytes=6 * 10**8)
    assert score(one, ["a", "b"], answer=["a", "a"]) == Scored([1, 0], {"exact": [1, 0], "f": [0, 0]})
    [said] = one.said
    assert said.endswith("; 0 is given for such answers")
    one.on_error = "stop"
    with pytest.raises(RewardFailed, match=rf"^the reward {message}") as failed:
        score(one, ["a", "b"], answer=["a", "a"])
    assert str(failed.value).endswith("or set reward_errors=zero: such answers are worth 0 then")
    assert "./motley check-rewards 'exact,./r.py'" in str(failed.value)


@pytest.mark.parametrize(
    "values", [[1.0], [1.0, 2.0, 3.0], {"0": 1.0, "1": 2.0}, None, ["1", 1.0], [1, 1.0], [True, 1.0], [math.nan, 1.0]]
)
def test_what_the_process_answers_is_looked_at_again(values):
    """Code of others runs in it: what it writes there itself is no answer of a function."""
    good = [None, 1.0]
    assert valid(good, [0], 2) == (good, [0])
    for answer, rows in ((values, []), (good, 1)):
        with pytest.raises(Lost, match="wrote into what its process answers with"):
            valid(answer, rows, 2)


@pytest.mark.parametrize("value", ["float('inf')", "'1'"])
def test_a_value_that_is_no_number_is_the_fault_of_that_answer_alone(value, judge):
    one = judge(f"def f(completions): return [1, {value}]", on_error="zero")
    for _ in range(2):
        assert score(one, ["a", "b"]).by_function == {"f": [1, 0]}
    assert len(one.said) == 1
    one.on_error = "stop"
    with pytest.raises(RewardFailed, match=r"the reward f gave .*, which is no number"):
        score(one, ["a", "b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import none_such\ndef f(completions): ...", r"ModuleNotFoundError: .* 'none_such' \(line 1\)\nfile: "),
        ("def f(completions): ...\nexit(3)", r"could not be read: SystemExit: 3 \(line 2\)"),
        ("import os\ndef f(completions): ...\nos._exit(4)", r"ended its process \(exit code 4\) while it read them"),
        ("def f(completions): ...\ndel f", r"could not be read: AttributeError: .* no attribute 'f'"),
    ],
)
def test_a_file_that_cannot_be_read_starts_nothing(text, message, judge):
    with pytest.raises(BadInput, match=message):
        judge(text, on_error="zero")


def test_a_file_may_be_named_as_a_library_is(tmp_path):
    (tmp_path / "random.py").write_text("import random\ndef f(completions): return [random.Random(1).random() < 1]\n")
    with Judge("random.py", 20, "stop", tmp_path) as judge:
        assert judge.score(["a"], ["a"], {}).total == [1]


def test_one_that_died_between_two_calls_is_named(judge):
    one = judge("def f(completions): return [1]", on_error="zero")
    os.kill(pid(one), signal.SIGKILL)
    assert score(one, ["a"]).total == [0] and score(one, ["a"]).total == [1]
    said = one.said
    assert said == ["the reward f was ended by SIGKILL, most often for lack of memory; 0 is given for such answers"]


def test_prints_go_to_the_log_and_not_without_end(judge):
    text = """
import sys
print("read")
def f(completions):
    print("one\\ntwo")
    sys.stderr.write("three\\n")
    print("x" * 90 * 10**6)
    return [1]
"""
    one = judge(text)
    assert score(one, ["a"]).total == [1]
    said = one.said
    assert said[:4] == ["read", "one", "two", "three"]
    assert sum(map(len, said)) < 30_000 and "are not shown" in said[-1]


def test_half_a_character_of_an_answers_json_may_be_printed(judge):
    one = judge("import json\ndef f(completions):\n  print(*map(json.loads, completions))\n  return [1]")
    assert score(one, [r'"\ud83d"']).total == [1] and one.said == [r"\ud83d"]


def test_one_that_prints_without_end_is_ended_in_time(judge):
    one = judge("import os\ndef f(completions):\n  while True: os.write(1, b'x' * 10**6)", seconds=1)
    began = time.monotonic()
    with pytest.raises(RewardFailed, match="the reward f had not answered after 1 seconds"):
        score(one, ["a"])
    assert time.monotonic() - began < 30


def test_large_requests_pass(judge):
    long = ["x" * 10**6 for _ in range(8)]
    assert score(judge("def f(completions): return [len(c) for c in completions]"), long).total == [10**6] * 8


def test_sets_have_one_order_on_every_machine(judge):
    text = "def f(completions): return [hash('a') % 1000]"
    assert len({score(judge(text), ["a"]).total[0] for _ in range(2)}) == 1


def test_nothing_is_left_after_close(judge):
    one = judge("def f(completions): return [1]")
    number, before = pid(one), len([*Path("/proc/self/fd").iterdir()])
    assert is_alive(number)
    one.close()
    assert not is_alive(number) and len([*Path("/proc/self/fd").iterdir()]) == before - 3
    assert score(one, ["a"]).total == [1]


ORPHAN = """
import sys
from pathlib import Path
from train.rewards.judge import Judge
judge = Judge("./r.py", 60, "stop", Path(sys.argv[1]))
print(judge.process.process.pid, flush=True)
judge.score(["a"], ["a"], {})
"""


def test_it_ends_with_the_process_that_asked_also_in_a_call_without_end(tmp_path):
    (tmp_path / "r.py").write_text("def f(completions):\n  while True: pass\n")
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    number = int(parent.stdout.readline())
    time.sleep(0.2)
    assert is_alive(number)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    pace.until(lambda: not is_alive(number), 10, "it goes on without who asked")


def test_torch_is_not_needed():
    without = "sys.modules['torch'] = sys.modules['numpy'] = sys.modules['yaml'] = None"
    program = f"import sys; {without}; import train.rewards.judge, train.rewards.child"
    pace.does(sys.executable, "-S", "-c", program, cwd=ROOT)
