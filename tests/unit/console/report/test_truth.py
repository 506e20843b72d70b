"""What the report says is what the nodes wrote: no figure that was not measured, nothing twice, nobody forgotten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from console.report import run_charts, svg_charts
from console.report.machines import node_table
from console.report.page import figures, outcome
from console.report.read_run import History, read_history
from console.report.what_happened import numbered
from console.report.where_time_goes import part_table
from tests.support.run_files import HEAD, WORKER, Event, done, gpu, held_out, member, start, step, write

KEPT = Path(__file__).parents[3] / "kept/run-67676e9"
THIRD = "gpu-worker-2"


def made(
    folder: Path, rows: list[dict[str, int]], members: dict[str, list[Event]], evals: Sequence[Event] = ()
) -> Path:
    """Steps of two seconds each; who is in one is in `rows`."""
    steps = [step(102 + 2 * n, n + 1, by) for n, by in enumerate(rows)]
    write(folder / "nodes" / HEAD, "events.jsonl", [start(100, 0, list(rows[0]), len(rows)), *steps, *evals])
    for node, events in members.items():
        write(folder / "nodes" / node, "members.jsonl", events)
    return folder


def figure(history: History, name: str) -> tuple[str, str]:
    return {name: (value, beside) for name, value, beside in figures(history)}[name]


def told(folder: Path) -> list[str]:
    return [word["what"] for word in numbered(read_history(folder)) if not word.get("quiet")]


# -- losses ------------------------------------------------------------------------------------------------------------


def test_held_out_begins_with_the_base_that_was_asked(fetched: Path) -> None:
    answers = {"base": {"loss": 6.61}, "adapter": {"loss": 0.502}, "questions": []}
    (fetched / "answers.json").write_text(json.dumps(answers))
    history = read_history(fetched)
    assert figure(history, "held-out loss, before → after")[0] == "6.610 → 0.502"
    points = run_charts.held_out_points(history)
    assert points == [(0.0, 6.61), (4.0, 1.2), (12.0, 0.5)], "measured on the same rows: it belongs on the chart"
    answers["adapter"]["loss"] = 0.9
    (fetched / "answers.json").write_text(json.dumps(answers))
    points = run_charts.held_out_points(read_history(fetched))
    assert points == [(4.0, 1.2), (12.0, 0.5)], "the base was asked about other rows than the run"


def test_without_the_base_held_out_says_from_which_step_to_which(fetched: Path) -> None:
    loss, beside = figure(read_history(fetched), "held-out loss")
    assert loss == "1.200 → 0.500" and beside.startswith("step 4 → 12; ")


def test_with_patience_the_held_out_loss_is_that_of_the_result(fetched: Path) -> None:
    """Which is the best step, as in the result's model card; also where the run reached its last one."""
    evals = [held_out(108, 4, 1.2), held_out(130, 8, 0.4), held_out(146, 12, 0.5)]
    folder = made(fetched.parent / "patient", [{HEAD: 8}] * 12, {}, [*evals, done(150, 12)])
    (folder / "nodes" / HEAD / "launch.json").write_text(json.dumps({"all": {"patience": 3}}))
    loss, beside = figure(read_history(folder), "held-out loss")
    assert loss == "1.200 → 0.400" and beside.startswith("step 4 → 8; ")


def test_an_early_end_is_told(tmp_path: Path) -> None:
    early = {"event": "early_stop", "time": 114.5, "step": 6, "best": 4, "loss": 0.4, "reason": "no gain"}
    words = told(made(tmp_path, [{HEAD: 8}] * 6, {}, [early]))
    assert words == ["ends early at step 6: no gain · the result is step 4"]


def test_the_trend_has_no_spike_at_its_end() -> None:
    noisy = [(float(n), 5.0) for n in range(1, 200)] + [(200.0, 9.0)]
    trend = svg_charts.smoothed(noisy)
    assert max(y for _, y in trend) < 6, "one step is not the trend"


# -- who, and how often ------------------------------------------------------------------------------------------------


def test_one_loss_is_told_once_and_not_by_the_machine_that_was_cut_off(tmp_path: Path) -> None:
    both, alone = {HEAD: 5, WORKER: 3}, {HEAD: 8}
    waits = "no answer from gpu-master; of two halves the one with gpu-master continues, this one waits"
    members = {
        HEAD: [
            member("lost", 114.0, HEAD, [WORKER], "silent"),
            member("joined", 121.0, HEAD, [WORKER], f"{WORKER} can take part") | {"epoch": 2},
        ],
        WORKER: [
            member("waiting", 113.3, WORKER, [HEAD], waits),
            member("waiting", 120.0, WORKER, [], "waiting for gpu-master to take this node in"),
        ],
        THIRD: [member("lost", 115.0, THIRD, [WORKER], f"{WORKER} dropped by {HEAD}") | {"epoch": 2}],
    }
    folder = made(tmp_path, [both] * 6 + [alone] * 3 + [both] * 3, members)
    assert told(folder) == [f"{WORKER} lost (silent)", f"{WORKER} back"]


def test_who_waits_is_named_and_not_whom_it_waits_for(tmp_path: Path) -> None:
    waits = member("waiting", 113.0, HEAD, [WORKER, THIRD], f"no answer from {WORKER}, {THIRD}; 1 of 3 are no majority")
    folder = made(tmp_path, [{HEAD: 3, WORKER: 3, THIRD: 2}] * 6, {HEAD: [waits]})
    assert told(folder) == [f"{HEAD} waits: no answer from {WORKER}, {THIRD}; 1 of 3 are no majority"]


def test_unfit_failed_and_woken_machines_are_named(tmp_path: Path) -> None:
    killed = "its worker was ended by SIGKILL (out of memory?)"
    members = {
        HEAD: [member("failed", 108.1, HEAD, [WORKER], f"{WORKER}: {killed}")],
        WORKER: [
            member("failed", 108.0, WORKER, [WORKER], killed, whose="own"),
            member("unfit", 109.0, WORKER, [WORKER], f"its workers cannot run here: {killed}"),
        ],
        THIRD: [member("woke", 111.0, THIRD, [], "this machine was away for over 8 s; its old generation is void")],
    }
    folder = made(tmp_path, [{HEAD: 3, WORKER: 3, THIRD: 2}] * 6, members)
    assert told(folder) == [
        f"{WORKER} failed: {killed}",
        f"{WORKER} unfit: its workers cannot run here: {killed}",
        f"{THIRD} woke: this machine was away for over 8 s; its old generation is void",
    ]


def test_the_echo_of_a_loss_in_the_others_trainers_is_no_news() -> None:
    words = told(KEPT)
    assert words == ["node-2 lost (silent)", "node-2 back"], words


def test_the_agents_verdict_is_the_outcome_where_no_trainer_wrote_one(tmp_path: Path) -> None:
    ended = member("ended", 120.0, HEAD, [], f"{HEAD}: no memory is left", done=False)
    folder = made(tmp_path, [{HEAD: 8}] * 6, {HEAD: [ended]})
    assert outcome(read_history(folder)) == f"failed: {HEAD}: no memory is left"


def test_when_it_began_is_looked_for_once_however_much_happened() -> None:
    """It is found among all steps: of a long run with many changes of shares that took minutes."""
    asked: list[int] = []

    class Long:
        def __init__(self) -> None:
            self.news: list[Event] = [{"time": float(at), "mark": at % 2 == 0, "what": ""} for at in range(6)]

        @property
        def began(self) -> float:
            asked.append(1)
            return 1.0

    items = numbered(Long())
    assert [(item["label"], item["after_s"]) for item in items] == [("", 0), ("1", 1), ("", 2), ("2", 3), ("", 4)]
    assert len(asked) == 1


def test_labels_of_things_at_one_moment_are_printed_as_one() -> None:
    marks = [svg_charts.Mark(x=x, label=label) for x, label in ((10.0, "1"), (10.1, "2"), (10.2, "3"), (50.0, "4"))]
    line = svg_charts.Line(name="a", points=[(0.0, 1.0), (100.0, 2.0)], colour="red")
    svg = svg_charts.line_chart("a", [line], svg_charts.Axes(x_name="step", y_name="y"), marks)
    assert svg.count('<text class="mark') == 2 and ">1–3</text>" in svg


@pytest.mark.parametrize("name", ["</script>", "<!--<script>", "<![CDATA["])
def test_a_name_does_not_leave_the_data_of_its_chart(name: str) -> None:
    """After `<!--<script>` a browser no longer takes `</script>` for the end."""
    line = svg_charts.Line(name=name, points=[(0.0, 1.0), (100.0, 2.0)], colour="red")
    _, _, rest = svg_charts.line_chart("a", [line], svg_charts.Axes(x_name="step", y_name="y")).partition('json">')
    data = rest.partition("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["series"][0]["name"] == name


# -- cards -------------------------------------------------------------------------------------------------------------


def test_cards_that_did_not_compute_are_named_and_have_no_heat(fetched: Path) -> None:
    processors(fetched)
    history = read_history(fetched)
    assert not history.cards and history.idle_cards == [HEAD, WORKER]
    assert all(row["energy"] is None and row["celsius"] is None for row in node_table(history))


def test_a_silence_of_the_readings_is_a_gap_and_no_slope() -> None:
    readings = [gpu(t, HEAD, watts=w) for t, w in ((0, 100), (5, 100), (600, 300), (605, 300))]
    points = run_charts.readings_over(readings, "watts", lambda time: time)
    assert [y for _, y in points] == [100, 100, None, 300, 300]
    line = svg_charts.Line(name=HEAD, points=points, colour="red")
    assert svg_charts.line_chart("power", [line], svg_charts.Axes(x_name="s", y_name="W")).count("M") == 2


def priced(folder: Path, **electricity: object) -> History:
    file = folder / "nodes" / HEAD / "launch.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"electricity": electricity}))
    return read_history(folder)


def processors(folder: Path) -> None:
    for file in folder.rglob("events.jsonl"):
        file.write_text(file.read_text().replace('"gpu_gb": 2.0', '"gpu_gb": 0.0'))


ONLY, REST = "graphics cards only", "the rest of each machine is not measured"
NONE, AS_SET = "no card that computed reported its power", "as you set it"
AT_REST = {HEAD: 3600, WORKER: 3600}
"""Watts: the head took part for 12 + 16 s; the worker for 12, and not while it was away."""


@pytest.mark.parametrize(
    ("computed", "electricity", "value", "beside"),
    [
        (True, {}, "8 Wh", f"{ONLY}: {REST}"),
        (
            *(True, {"kwh_price": 0.3, "currency": "€", "idle_watts": {HEAD: None, WORKER: None}}),
            *("8 Wh · €0.0024", f"{ONLY}: {REST}; €0.30 a kWh"),
        ),
        (
            *(True, {"kwh_price": 0.3, "idle_watts": AT_REST}, "40 Wh · 0.012"),
            f"graphics cards 8 Wh measured, idle power 32 Wh {AS_SET}; 0.30 a kWh",
        ),
        (
            *(True, {"kwh_price": None, "idle_watts": {HEAD: 3600}}, "32 Wh"),
            f"graphics cards 8 Wh measured, idle power 24 Wh {AS_SET} (not of {WORKER})",
        ),
        (False, {"kwh_price": 0.3}, "not measured", NONE),
        (
            *(False, {"kwh_price": 0.3, "idle_watts": AT_REST}, "not measured"),
            f"{NONE}; idle power {AS_SET}: 32 Wh, 0.0096; 0.30 a kWh",
        ),
    ],
)
def test_energy_is_that_of_cards_that_computed_and_what_was_set_is_named_so(
    fetched: Path, computed: bool, electricity: dict[str, Any], value: str, beside: str
) -> None:
    if not computed:
        processors(fetched)
    assert figure(priced(fetched, **electricity), "electricity") == (value, beside)


@pytest.mark.parametrize("of_worker", [[], [gpu(100.0, WORKER)]], ids=["no reading", "one reading"])
def test_a_machine_without_power_over_time_is_named(fetched: Path, of_worker: list[Event]) -> None:
    """One reading is that of a run of a few seconds."""
    write(fetched / "nodes" / WORKER, "gpu.jsonl", of_worker)
    beside = f"graphics cards only, nothing of {WORKER}: the rest of each machine is not measured"
    assert figure(read_history(fetched), "electricity") == ("4 Wh", beside)
    write(fetched / "nodes" / HEAD, "gpu.jsonl", [gpu(100.0, HEAD)])
    assert figure(read_history(fetched), "electricity") == ("not measured", "too few readings of the cards")


# -- the four figures --------------------------------------------------------------------------------------------------


def test_losses_and_returns_are_counted_with_the_steps_they_cost(fetched: Path) -> None:
    lost = figure(read_history(fetched), "machines")
    assert lost == ("1 lost, not back", "2 steps trained twice, none missing")


def test_machines_are_counted_and_who_comes_for_the_first_time_is_not_back(tmp_path: Path) -> None:
    members = [
        member("lost", 103.0, HEAD, [WORKER, THIRD], "silent"),
        member("joined", 105.0, HEAD, [WORKER], "it can take part") | {"epoch": 2},
        member("joined", 107.0, HEAD, [THIRD, "new"], "they can take part") | {"epoch": 3},
        member("lost", 109.0, HEAD, [WORKER], "silent") | {"epoch": 4},
    ]
    folder = made(tmp_path, [{HEAD: 4, WORKER: 2, THIRD: 2}] * 6, {HEAD: members})
    assert figure(read_history(folder), "machines")[0] == "3 lost, 2 back"


def test_who_was_paused_by_somebody_was_not_lost(tmp_path: Path) -> None:
    aside = {"how": {THIRD: "away"}, "why": {THIRD: "paused until 18:00"}}
    members = [
        member("lost", 103.0, HEAD, [WORKER], "silent"),
        member("lost", 105.0, HEAD, [THIRD], "") | aside | {"epoch": 2},
        member("joined", 107.0, HEAD, [WORKER, THIRD], "they can take part") | {"epoch": 3},
    ]
    folder = made(tmp_path, [{HEAD: 4, WORKER: 2, THIRD: 2}] * 6, {HEAD: members})
    assert figure(read_history(folder), "machines")[0] == "1 lost, 1 paused, both back"


def test_a_machine_that_stands_in_no_start_is_one_of_the_run(tmp_path: Path) -> None:
    """Its start is torn, or was taken for the one before it."""
    steps = [step(102 + 2 * n, n, {HEAD: 5, WORKER: 3}) for n in range(1, 5)]
    write(tmp_path / HEAD, "events.jsonl", [start(100, 0, [HEAD]), *steps])
    history = read_history(tmp_path)
    assert history.nodes == [HEAD, WORKER] and figure(history, "Was it worth it?")[1].startswith(
        f"as {HEAD} alone, 4.0 against"
    )


def test_speed_is_measured_against_the_machines_that_were_there(fetched: Path) -> None:
    """96 rows in 24 s; of machines that compute 4 rows/s there were two for four steps, and one for eight."""
    value, beside = figure(read_history(fetched), "Was it worth it?")
    assert value == "1.0 × as fast"
    assert beside == f"as {HEAD} alone, 4.0 against 4.0 rows/s; 75 % of their speeds added together"


def test_a_cluster_that_is_slower_than_one_of_its_machines_says_so(tmp_path: Path) -> None:
    both = step(102, 1, {HEAD: 6, WORKER: 2}) | {"step_s": 4.0}
    write(tmp_path / HEAD, "events.jsonl", [start(100, 0, [HEAD, WORKER]), both])
    value, beside = figure(read_history(tmp_path), "Was it worth it?")
    assert value.startswith("0.5 ×") and beside.endswith(f"{HEAD} alone is faster: --nodes {HEAD}")


def test_a_machine_alone_is_compared_with_nobody(tmp_path: Path) -> None:
    assert figure(read_history(made(tmp_path, [{HEAD: 8}] * 6, {})), "speed") == ("4.0 rows/s", "")


# -- shares and waiting ------------------------------------------------------------------------------------------------


def test_an_absent_machine_takes_no_rows_from_one_step_to_the_next_and_waits_for_nobody(fetched: Path) -> None:
    history = read_history(fetched)
    rows = run_charts.rows_by_step(history)[1].points
    assert (4.0, 3.0) in rows and (4.0, 0.0) in rows, "an edge, not a slope"
    waits = run_charts.waiting_by_step(history)[1].points
    assert [y for x, y in waits if x > 4] == [None] * 8
    assert [row["percent"] for row in part_table(history)] == [[90, 5, 5], [79, 11, 10]]


def test_nobody_trains_in_a_gap_however_many_steps_are_drawn(tmp_path: Path) -> None:
    steps = [step((100 if n <= 1000 else 900) + 2 * n, n, {HEAD: 8}) for n in range(1, 2001)]
    write(tmp_path / HEAD, "events.jsonl", [start(100, 0, [HEAD], 2000), start(2899, 1000, [HEAD], 2000), *steps])
    [line] = run_charts.tokens_by_minute(read_history(tmp_path))
    thin = svg_charts.thinned(line.points)
    edges = [(a, b) for a, b in pairwise(thin) if 0 in (a[1], b[1])]
    assert edges and all(a[0] == b[0] or a[1] == b[1] == 0 for a, b in edges)


def test_a_machine_that_trained_no_step_has_no_speed_and_no_waiting(tmp_path: Path) -> None:
    folder = made(tmp_path, [{HEAD: 8}] * 6, {})
    write(folder / "nodes" / WORKER, "events.jsonl", [start(90, 0, [HEAD, WORKER], 6)])
    table = {row["name"]: row for row in node_table(read_history(folder))}
    assert table[WORKER]["speed"] is None and [row["name"] for row in part_table(read_history(folder))] == [HEAD]


def test_parts_of_all_rows_add_up_to_a_hundred(tmp_path: Path) -> None:
    third = {HEAD: 1, WORKER: 1, THIRD: 1}
    assert [row["part"] for row in node_table(read_history(made(tmp_path, [third] * 4, {})))] == [34, 33, 33]


# -- axes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("high", [5, 10, 17, 20, 70, 2000])
def test_an_axis_of_steps_has_whole_steps(high: int) -> None:
    assert all(tick == int(tick) for tick in svg_charts.nice_ticks(0, high, 7, whole=True))


def test_a_thinned_run_keeps_whole_steps() -> None:
    points = [(float(n), 1.0) for n in range(1, 2001)]
    assert all(x == int(x) for x, _ in svg_charts.thinned(points))
