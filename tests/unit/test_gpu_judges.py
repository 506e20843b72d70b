"""What the judges of the kit for graphics cards say: yes to what is right, no to whatever one figure spoils. And which
lines are judged on recorded figures, because no CPU can measure them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu import __main__ as kit
from tests.gpu import results
from tests.gpu.lines import LINES

SIMULATED = {
    *"triton exact-unsloth-8bit memory-7b-hf memory-7b-unsloth memory-7b-streamed memory-8b-hf".split(),
    *"memory-8b-unsloth trial card-and-cpu two-cards adamw8bit export-gguf speed-unsloth".split(),
    *"pair-adapters pair-nccl pair-kill pair-cable pair-suspend pair-cuda-after-suspend pair-hour".split(),
}
"""No CPU can measure these. Everything else runs in `make test`; nothing may come here to be green."""


def test_only_these_lines_are_simulated() -> None:
    assert {line.name for line in LINES.values() if line.simulated} == SIMULATED
    assert {file.stem for file in results.RECORDED.glob("*.json")} == SIMULATED


RECORDED = {name: results.recorded(LINES[name]) for name in sorted(SIMULATED)}
GOOD_LOSSES = [6.9, 6.8, 6.7, 6.6, 6.5, 6.4, 6.3, 6.2, 6.1, 6.0]
LARGE = ("stream-16bit", "stream-4bit", "stream-part-4bit", "pipe-two", "pipe-beside-whole")
PROOF = {"1": "a", "10": "b"}
SAME = {"losses": GOOD_LOSSES, "truth": GOOD_LOSSES}
STAYED = {"stayed": True, "card": True, "again_s": 0.6, "known_s": 0.2, "joined_s": 0.3, **SAME}
CURVE = {**SAME, "adapters": [PROOF, PROOF]}
EXACT = {
    "precision": "fp32", "load_in": "16bit", "held_in": "16bit", "losses": {"1": 2000.0, "2": 2000.0, "4": 2000.0},
    "alone": 2000.0, "without_resets": 2020.0, "gradients_off": [1e-7, 1e-7], "tokens": {"in": 293, "trained": 293.0},
    "reference": 2000.0,
}  # fmt: skip
OOM = {
    "codes": [0], "warnings": ["node-0: out of memory, continuing with 2 rows at a time"], "failed": [], "cause": None,
    "starts": [0], "micro_batches": [4] * 5 + [2] * 5, **SAME,
}  # fmt: skip
DIED = {
    "part": "optimizer", "codes": [1], "failed": ["CUDA out of memory"], "cause": {"kind": "own"}, "starts": [0, 4],
    "warnings": [], "micro_batches": [4] * 16, **SAME,
}  # fmt: skip
SIGTERM = {"codes": [143], "seconds": 2.0, "kept_s": 0.3, "finished": 3, "saved": [3], "starts": [0, 3], **SAME}
WARM = {"codes": [0, 0], "warm_s": 1.0, "cold_s": 6.0, "opened": [], "losses": [6.9], "truth": [6.9]}
SPEED = {**results.recorded(LINES["speed-unsloth"]), "hf_tokens_per_s": None}
EXPORT = {"base": 214.0, "exported": 200.0, "trained": 200.0}
GOOD = {
    **RECORDED,
    "names": {"hf": ["a", "b"], "unsloth": ["b", "a"], "shapes_alike": True},
    **{name: {**EXACT, "load_in": form, "held_in": form} for name in LINES if name.startswith("exact-")
       for form in [name.rpartition("-")[2]] if name not in SIMULATED},
    "oom-forward": {**OOM, "part": "forward"},
    "oom-backward": {**OOM, "part": "backward"},
    "oom-optimizer": DIED,
    "card-error": {**DIED, "part": "card", "failed": ["CUDA error: device-side assert triggered"]},
    **dict.fromkeys(("two-ddp", "two-flat", "two-share-0", "two-wire-bf16"), CURVE),
    **dict.fromkeys(LARGE, CURVE),
    "two-resume": {**CURVE, "codes": [[143, 143], [143]], "starts": [0, 3, 7]},
    "sigterm": SIGTERM,
    "save-heavy": {"codes": [143], "seconds": 4.0, "weights": 92_000_000, "limit_s": 7.4, "saved": 6, "last": 6},
    "exchange-fails": {"before": False, "after": True, "sum": 1.0},
    **dict.fromkeys(("stays", "stays-1gb"), STAYED),
    "warm": WARM,
    "fp16-bf16": {"steps": 3, "fp16": [6.9, 6.5, 6.2], "bf16": [6.91, 6.5, 6.21]},
    "ask": {"wanted": "blue red", "before": "the the", "after": "blue red"},
    "eval": {"base": 6.9, "adapter": 4.4, "run": 4.41},
    "export-adapter": EXPORT,
    "export-merged": EXPORT,
    "speed-hf": SPEED,
}  # fmt: skip


def changed(name: str, node: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> dict[str, Any]:
    """The recorded logs of a pair, with a node's events changed; None drops one."""
    logs = RECORDED[name]["logs"]
    events = [new for event in logs[node]["events"] if (new := change(event)) is not None]
    return {"logs": {**logs, node: {**logs[node], "events": events}}}


def without(name: str, node: str, **facts: object) -> dict[str, Any]:
    return changed(name, node, lambda event: None if facts.items() <= event.items() else event)


def bad_loss(name: str) -> list[dict[str, Any]]:
    at = RECORDED[name]["at"]
    slow = {"limit_s": 5}
    alone = changed(
        name, HEAD, lambda e: None if e["event"] == "step" and e["time"] > at and LAPTOP in e["nodes"] else e
    )
    silent = changed(name, HEAD, lambda e: e if e["time"] <= at else None)
    gap = {"logs": {HEAD: without(name, HEAD, event="step", step=7)["logs"][HEAD],
                    LAPTOP: without(name, LAPTOP, event="step", step=7)["logs"][LAPTOP]}}  # fmt: skip
    far = changed(name, HEAD, lambda e: {**e, "step": 0} if e["event"] == "start" else e)
    return [slow, alone, silent, gap, {**far, "save_every": 10}]


HEAD, LAPTOP = "gpu-master", "gpu-worker-1"
HOUR = RECORDED["pair-hour"]["logs"]
OTHER_CARD = """NCCL INFO NCCL_SOCKET_IFNAME set by environment to =enp3s0
NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>"""
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
BAD_DEATH: list[dict[str, object]] = [
    {"codes": [0]}, {"failed": []}, {"cause": {"kind": "peer"}}, {"cause": None}, {"starts": [0]}, {"starts": [0, 6]},
    {"losses": WORSE},
]  # fmt: skip
BAD_STAY: list[dict[str, object]] = [{"stayed": False}, {"known_s": 1.2}, {"joined_s": 2.0}, {"losses": []}]
SPOILED: dict[str, list[dict[str, object]]] = {
    "triton": [{"compile_s": 45.0}],
    "names": [{"hf": []}, {"unsloth": ["a"]}, {"shapes_alike": False}],
    **{name: BAD_EXACT for name in LINES if name.startswith("exact-")},
    **{name: BAD_MEMORY for name in LINES if name.startswith("memory-")},
    "trial": [{"tried": [16, 16]}, {"tried": [2, 1]}, {"warned": 1}, {"warnings": []}, {"forced": [16, 16, 16]},
              {"reason": "micro-batch 2: as set"}, {"losses": [1.0, 1.0, 1.0]}],
    "oom-forward": BAD_OOM,
    "oom-backward": BAD_OOM,
    "oom-optimizer": [*BAD_DEATH, {"starts": [0, 5]}],
    "card-error": BAD_DEATH,
    **dict.fromkeys(("stays", "stays-1gb"), BAD_STAY),
    **dict.fromkeys(("two-ddp", "two-flat", "two-share-0", "two-wire-bf16", "card-and-cpu", "two-cards"), BAD_CURVE),
    **dict.fromkeys(LARGE, BAD_CURVE),
    "two-resume": [*BAD_CURVE, {"codes": [[143, 1], [143]]}, {"starts": [0, 0, 7]}],
    "exchange-fails": [{"before": True}, {"after": False}],
    "save-heavy": [{"codes": [-9]}, {"seconds": 8.0}, {"saved": 5}],
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
    "pair-adapters": [
        without("pair-adapters", LAPTOP, event="proof", step=25),
        changed("pair-adapters", LAPTOP, lambda e: {**e, "adapter": "other"} if e["step"] == 200 else e),
        without("pair-adapters", HEAD, event="proof", step=1),
        changed("pair-adapters", LAPTOP, lambda e: {**e, "nodes": {LAPTOP: 16}} if e["event"] == "step" else e),
        {"logs": {HEAD: RECORDED["pair-adapters"]["logs"][HEAD]}},
    ],
    **{name: bad_loss(name) for name in ("pair-kill", "pair-cable", "pair-suspend")},
    "pair-nccl": [
        {"journals": {**RECORDED["pair-nccl"]["journals"], LAPTOP: OTHER_CARD}},
        {"journals": {**RECORDED["pair-nccl"]["journals"], LAPTOP: ""}},
        {"journals": {HEAD: RECORDED["pair-nccl"]["journals"][HEAD]}},
        {"logs": {HEAD: {"events": [], "members": []}, LAPTOP: {"events": [], "members": []}}},
    ],
    "pair-cuda-after-suspend": [{"slept_s": 9.0}, {"selftest": {"ok": False, "failures": ["CUDA"]}}, {"selftest": {}}],
    "pair-hour": [
        {"minutes": 90},
        {"alone": HOUR},
        {"alone": {HEAD: {"events": [], "members": []}}},
        {"logs": {**HOUR, HEAD: {**HOUR[HEAD], "members": [{"event": "lost"}]}}},
    ],
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
