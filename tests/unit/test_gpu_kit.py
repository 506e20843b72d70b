"""The kit for graphics cards without one: what its judges say; what is skipped, kept, repeated and left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu import __main__ as kit
from tests.gpu import machine, process, results
from tests.gpu.line import Line, Place, Verdict
from tests.gpu.lines import LINES
from tests.gpu.machine import NEEDS, Machine
from tests.gpu.process import Processes
from tests.gpu.table import table
from train.errors import BadInput

SIMULATED = {
    "triton",
    "exact-unsloth-8bit",
    "memory-7b-hf",
    "memory-7b-unsloth",
    "memory-8b-hf",
    "memory-8b-unsloth",
    "trial",
    "card-and-cpu",
    "two-cards",
    "adamw8bit",
    "export-gguf",
    "speed-unsloth",
}
"""No CPU can measure these. Everything else runs in `make test`; nothing may come here to be green."""


def test_only_these_lines_are_simulated() -> None:
    assert {line.name for line in LINES.values() if line.simulated} == SIMULATED
    assert {file.stem for file in results.RECORDED.glob("*.json")} == SIMULATED


def test_every_need_is_known_and_every_line_is_short() -> None:
    for line in LINES.values():
        assert set(line.needs) <= NEEDS.keys(), line.name
        assert line.limit_s <= 60 or kit.is_of_pair(line)


# -- judges ----------------------------------------------------------------------------------------------------------

GOOD_LOSSES = [6.9, 6.8, 6.7, 6.6, 6.5, 6.4, 6.3, 6.2, 6.1, 6.0]
PROOF = {"1": "a", "10": "b"}
CURVE = {"losses": GOOD_LOSSES, "truth": GOOD_LOSSES, "adapters": [PROOF, PROOF]}
EXACT = {
    "precision": "fp32", "load_in": "16bit", "held_in": "16bit", "losses": {"1": 2000.0, "2": 2000.0, "4": 2000.0},
    "alone": 2000.0, "without_resets": 2020.0, "gradients_off": [1e-7, 1e-7], "tokens": {"in": 293, "trained": 293.0},
    "reference": 2000.0,
}  # fmt: skip
OOM = {
    "codes": [0], "warnings": ["node-0: out of memory, going on with 2 rows at a time"], "failed": [], "cause": None,
    "starts": [0], "micro_batches": [4] * 5 + [2] * 5, "losses": GOOD_LOSSES, "truth": GOOD_LOSSES,
}  # fmt: skip
DIED = {
    "part": "optimizer", "codes": [1], "failed": ["CUDA out of memory"], "cause": {"kind": "own"}, "starts": [0, 4],
    "warnings": [], "micro_batches": [4] * 16, "losses": GOOD_LOSSES, "truth": GOOD_LOSSES,
}  # fmt: skip
SIGTERM = {
    "codes": [143], "seconds": 2.0, "finished": 3, "saved": [3], "starts": [0, 3], "losses": GOOD_LOSSES,
    "truth": GOOD_LOSSES,
}  # fmt: skip
WARM = {"codes": [0, 0], "warm_s": 1.0, "cold_s": 6.0, "opened": [], "losses": [6.9], "truth": [6.9]}
SPEED = {**results.recorded(LINES["speed-unsloth"]), "hf_tokens_per_s": None}
EXPORT = {"base": 214.0, "exported": 200.0, "trained": 200.0}
GOOD = {
    **{name: results.recorded(LINES[name]) for name in SIMULATED},
    "names": {"hf": ["a", "b"], "unsloth": ["b", "a"], "shapes_alike": True},
    **{name: {**EXACT, "load_in": form, "held_in": form} for name in LINES if name.startswith("exact-")
       for form in [name.rpartition("-")[2]] if name not in SIMULATED},
    "oom-forward": {**OOM, "part": "forward"},
    "oom-backward": {**OOM, "part": "backward"},
    "oom-optimizer": DIED,
    **dict.fromkeys(("two-ddp", "two-flat", "two-share-0", "two-wire-bf16"), CURVE),
    "two-resume": {**CURVE, "codes": [[143, 143], [143]], "starts": [0, 3, 7]},
    "sigterm": SIGTERM,
    "warm": WARM,
    "fp16-bf16": {"steps": 3, "fp16": [6.9, 6.5, 6.2], "bf16": [6.91, 6.5, 6.21]},
    "ask": {"wanted": "blue red", "before": "the the", "after": "blue red"},
    "eval": {"base": 6.9, "adapter": 4.4, "run": 4.41},
    "export-adapter": EXPORT,
    "export-merged": EXPORT,
    "speed-hf": SPEED,
}  # fmt: skip
OTHER_PROOF = [PROOF, {"1": "a", "10": "c"}]
WORSE = [6.9, 6.8, 6.7, 6.6, 6.5, 6.4, 6.3, 6.2, 6.1, 6.2]
BAD_CURVE = [{"losses": WORSE}, {"adapters": OTHER_PROOF}, {"adapters": [{}, {}]}, {"losses": GOOD_LOSSES[:-1]}]
BAD_EXACT = [
    {"alone": 2010.0}, {"losses": {"1": 2000.0, "2": 2000.0, "4": 2050.0}}, {"gradients_off": [0.5, 0.5]},
    {"tokens": {"in": 293, "trained": 291.0}}, {"reference": 2060.0}, {"without_resets": 2000.0}, {"held_in": "other"},
    {"losses": {"1": float("nan"), "2": 2000.0, "4": 2000.0}},
]  # fmt: skip
BAD_OOM = [
    {"codes": [1]}, {"warnings": []}, {"losses": WORSE},
    {"micro_batches": [4] * 10}, {"micro_batches": [4] * 4 + [2] * 6},
]  # fmt: skip
BAD_MEMORY = [
    {"cards": []}, {"cards": [{"gb": 8, "rows": 2, "planned": 7_000_000_000, "peak": None, "outside": 0}]},
    {"cards": [{"gb": 8, "rows": 2, "planned": 7_000_000_000, "peak": 7_800_000_000, "outside": 0}]},
    {"cards": [{"gb": 8, "rows": 2, "planned": 7_000_000_000, "peak": 6_200_000_000, "outside": 0}]},
]  # fmt: skip
BAD_EXPORT = [{"exported": 215.0}, {"trained": 201.0}]
BAD_SPEED = [{"step_s": 0.001}, {"step_s": 60.0}]
SPOILED: dict[str, list[dict[str, object]]] = {
    "triton": [{"compile_s": 45.0}],
    "names": [{"hf": []}, {"unsloth": ["a"]}, {"shapes_alike": False}],
    **{name: BAD_EXACT for name in LINES if name.startswith("exact-")},
    **{name: BAD_MEMORY for name in LINES if name.startswith("memory-")},
    "trial": [{"tried": [16, 16]}, {"tried": [2, 1]}, {"warned": 1}, {"warnings": []}, {"forced": [16, 16, 16]},
              {"reason": "micro-batch 2: as set"}, {"losses": [1.0, 1.0, 1.0]}],
    "oom-forward": BAD_OOM,
    "oom-backward": BAD_OOM,
    "oom-optimizer": [{"codes": [0]}, {"failed": []}, {"cause": {"kind": "peer"}}, {"cause": None}, {"starts": [0]},
                      {"starts": [0, 5]}, {"losses": WORSE}],
    **dict.fromkeys(("two-ddp", "two-flat", "two-share-0", "two-wire-bf16", "card-and-cpu", "two-cards"), BAD_CURVE),
    "two-resume": [*BAD_CURVE, {"codes": [[143, 1], [143]]}, {"starts": [0, 0, 7]}],
    "sigterm": [{"codes": [-9]}, {"seconds": 9.0}, {"saved": []}, {"saved": [2]}, {"starts": [0, 0]},
                {"losses": WORSE}],
    "warm": [{"codes": [1, 0]}, {"opened": ["/dev/nvidia0"]}, {"losses": [6.8]}, {"warm_s": 7.0}],
    "fp16-bf16": [{"fp16": [6.9, 6.5]}, {"fp16": [6.9, 6.5, 6.9]}, {"fp16": [6.9, 9.5, 6.2]},
                  {"fp16": [6.9, 6.5, 5.9]},
                  {"bf16": [6.9, 6.5, float("nan")]}],
    "adamw8bit": [{"losses": [6.9, 6.5, 7.2]}, {"state_bytes": [3_000_000, 3_400_000]}, {"adapters": ["e5", "f6"]},
                  {"adapters": ["", ""]}, {"starts": [0]}],
    "ask": [{"after": "the the"}, {"before": "blue red"}],
    "eval": [{"adapter": 6.5}, {"run": 5.5}],
    "export-adapter": BAD_EXPORT,
    "export-merged": BAD_EXPORT,
    "export-gguf": [{"begins": "ABCD"}, {"files": {"smollm2-135m.gguf": 1}}],
    "speed-hf": BAD_SPEED,
    "speed-unsloth": [*BAD_SPEED, {"hf_tokens_per_s": 4000.0}],
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_judge_passes_what_is_right(name: str) -> None:
    verdict = LINES[name].judge(GOOD[name])
    assert verdict.passed, verdict.sentence


@pytest.mark.parametrize("name", LINES)
def test_a_judge_refuses_whatever_one_figure_spoils(name: str) -> None:
    for spoiled in SPOILED[name]:
        verdict = kit.judged(LINES[name].judge, {**GOOD[name], **spoiled})
        assert not verdict.passed, (spoiled, verdict.sentence)
        assert len(verdict.sentence) < 400


def test_figures_that_are_missing_are_a_failure_not_an_end() -> None:
    verdict = kit.judged(LINES["sigterm"].judge, {})
    assert not verdict.passed and "cannot be judged" in verdict.sentence


# -- what is run, and what is not ------------------------------------------------------------------------------------

CARD = {"name": "RTX 4070", "capability": [8, 9], "memory_bytes": 12 << 30, "cuda": "13.0"}
ALL = frozenset({*machine.PACKAGES, *machine.TRAINER})
HOME = Machine(
    device="cuda", cards=[CARD], driver="580.95.05", versions={"torch": "2.13.0"}, modules=ALL, compiler=True
)


def lacking(name: str, **other: object) -> list[str]:
    return replace(HOME, **other).lacks(LINES[name].needs)  # type: ignore[arg-type]


def test_a_line_is_skipped_by_what_is_not_there() -> None:
    assert not lacking("triton") and not lacking("exact-unsloth-4bit") and not lacking("memory-8b-unsloth")
    assert lacking("triton", compiler=False) == ["a C compiler"]
    assert lacking("exact-unsloth-4bit", modules=ALL - {"unsloth", "bitsandbytes"}) == ["unsloth", "bitsandbytes"]
    assert lacking("two-ddp", modules=frozenset({"torch"})) == ["transformers and peft"]
    assert lacking("memory-7b-hf", cards=[{**CARD, "memory_bytes": 6 << 30}]) == ["a card of 8 GB"]
    assert lacking("two-cards") == ["two cards"]
    assert not lacking("two-cards", cards=[CARD, CARD])
    assert lacking("adamw8bit", device="cpu") == ["a card"]


def test_a_line_that_does_not_exist_is_named_with_its_neighbour() -> None:
    with pytest.raises(BadInput, match="'sigtem', did you mean 'sigterm'"):
        kit.chosen("triton,sigtem", pair=False)
    assert [line.name for line in kit.chosen("sigterm,triton", pair=False)] == ["triton", "sigterm"]


def test_the_table_tells_what_it_was_found_on_and_marks_what_is_not_locked() -> None:
    machine_ = replace(HOME, versions={"python": "3.12.3", "torch": "2.9.1+cu130", "peft": machine.locked()["peft"]})
    found = [results.result(LINES["triton"], "passed", "2 s"), results.result(LINES["names"], "skipped", "needs a | b")]
    text = table(machine_, [{**found[0], "date": "2026-11-20"}, found[1]], "2026-11-22")
    assert text[0] == (
        f"RTX 4070, driver 580.95.05; 2026-11-22; python 3.12.3, torch 2.9.1+cu130 (not the locked one), "
        f"peft {machine_.versions['peft']}."
    )
    assert text[4] == "| triton | a Triton kernel compiles and runs | **passed** (2026-11-20): 2 s |"
    assert text[5].endswith("**skipped**: needs a ¦ b |") and text[-1] == "1 passed, 1 skipped."


def test_the_table_keeps_what_was_found_before(tmp_path: Path) -> None:
    results.keep(tmp_path, LINES["sigterm"], HOME, Verdict(True, "2 s"), values={}, seconds=9.0)
    now = [results.result(LINES["ask"], "passed", "right"), results.result(LINES["triton"], "passed", "2 s")]
    assert [one["line"] for one in kit.with_earlier(now, HOME, tmp_path)] == ["triton", "sigterm", "ask"]
    assert len(kit.with_earlier(now, replace(HOME, driver="570.1"), tmp_path)) == 2


# -- a line's process ------------------------------------------------------------------------------------------------


def line(judge: object = None) -> Line:
    def measure(place: Place) -> dict[str, object]:
        raise AssertionError("not here")

    judge = judge or (lambda values: Verdict(True, f"found {values['n']}"))
    return Line(name="made", about="made up", needs=(), measure=measure, judge=judge)  # type: ignore[arg-type]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "GRACE_S", 0.5)
    made = Processes(warm=False, device="cpu")
    yield made
    made.close()


def program(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "program.py"
    file.write_text(text)
    return [str(file)]


def test_what_a_line_leaves_behind_is_ended_and_told(processes: Processes, tmp_path: Path) -> None:
    sleeper = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
    words = program(tmp_path, f"import subprocess, sys\nprint({sleeper}.pid)\n")
    said = tmp_path / "said"
    assert processes.run(words, said, 30) == "it left 1 processes behind"
    assert not Path(f"/proc/{said.read_text().strip()}").exists()


def test_a_line_that_hangs_is_ended_with_all_that_it_started(processes: Processes, tmp_path: Path) -> None:
    sleeper = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
    words = program(tmp_path, f"import subprocess, sys, time\nprint({sleeper}.pid, flush=True)\ntime.sleep(600)\n")
    said = tmp_path / "said"
    began = time.monotonic()
    assert processes.run(words, said, 2).startswith("not done within 2 s")
    assert time.monotonic() - began < 15
    assert not Path(f"/proc/{said.read_text().split()[0]}").exists()


def test_an_error_is_told_by_its_last_words(processes: Processes, tmp_path: Path) -> None:
    words = program(tmp_path, "raise RuntimeError('the card has fallen off the bus')")
    said = processes.run(words, tmp_path / "said", 30)
    assert said == "it ended with 1: RuntimeError: the card has fallen off the bus"


def test_processes_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.2)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        made = Processes(warm=False, device="cpu")
        assert made.run(program(tmp_path, "pass"), tmp_path / "said", 30) == ""
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


# -- results ---------------------------------------------------------------------------------------------------------


def test_a_result_is_found_again_until_code_card_or_versions_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.keep(tmp_path, line(), HOME, Verdict(True, "found 1"), values={"n": 1}, seconds=2.0)
    found = results.known(tmp_path, line(), HOME)
    assert found and (found["state"], found["machine"], found["values"]) == ("passed", "RTX 4070", {"n": 1})
    assert not results.known(tmp_path, line(), replace(HOME, driver="580.126.09"))
    assert not results.known(tmp_path, line(), replace(HOME, versions={"torch": "2.14.0"}))
    assert not results.known(tmp_path, line(), replace(HOME, cards=[{**CARD, "name": "RTX 3070 Ti"}]))
    monkeypatch.setattr(results, "code_hash", lambda: "other")
    assert not results.known(tmp_path, line(), HOME)


def test_a_line_with_a_result_is_not_run_but_on_request(tmp_path: Path) -> None:
    args = Namespace(results=tmp_path, again=False)
    assert kit.without_measuring(line(), HOME, args) is None
    results.keep(tmp_path, line(), HOME, Verdict(False, "found 0"), values={"n": 0}, seconds=2.0)
    found = kit.without_measuring(line(), HOME, args)
    assert found and found["state"] == "failed"
    assert kit.without_measuring(line(), HOME, Namespace(results=tmp_path, again=True)) is None


def test_recorded_figures_must_say_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RECORDED", tmp_path)
    (tmp_path / "made.json").write_text(json.dumps({"n": 1}))
    with pytest.raises(ValueError, match="must say that they are simulated"):
        results.simulate(line())
    (tmp_path / "made.json").write_text(json.dumps({"n": 1, "simulated": True}))
    assert results.simulate(line())["state"] == "simulated"
    assert results.simulate(line(lambda _: Verdict(False, "no")))["state"] == "failed"


def test_a_python_without_torch_is_told_another(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tests.gpu", "--device", "cpu", "--results", str(tmp_path)],
        cwd=machine.ROOT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "has no torch" in done.stderr, done.stderr
