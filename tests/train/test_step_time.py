"""What machines would do together, predicted from speeds and links."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.plan.launch.plan_cards import what_if
from train.plan.speed.prediction import predict
from train.plan.speed.row_split import dealt_seconds
from train.plan.speed.step_time import (
    LOST_TOGETHER,
    ROOM,
    TOO_MUCH,
    Machine,
    Traffic,
    advice,
    best,
    break_even_rows,
    delta_seconds,
    gain,
    remedies_for,
    ring_bytes,
    together,
    together_local,
)

MB = 1_000_000
TRIO = [Machine("a", 11.3, 1000), Machine("b", 6.1, 1000), Machine("c", 2.8, 1000)]
machines = st.lists(st.tuples(st.floats(0.5, 50), st.floats(10, 2500)), min_size=1, max_size=5).map(
    lambda found: [Machine(f"n{i}", *facts) for i, facts in enumerate(found)]
)
several = machines.filter(lambda group: len(group) > 1)


def shared(seconds: float) -> float:
    """What as many seconds of computing take where several share a step."""
    return seconds / (1 - LOST_TOGETHER)


def test_one_machine_loses_nothing_and_two_the_same_part_however_they_share():
    alone, other = Machine("a", 10, 1000), Machine("b", 10, 1000)
    assert together([alone], 20, 0).compute_s == pytest.approx(2.0)
    lone = together([alone, Machine("b", 0.1, 1000)], 4, 0)
    assert lone.compute_s == pytest.approx(0.4), "who has no row is no partner"
    assert gain(other, [alone], 20, 0) == pytest.approx(2 * (1 - LOST_TOGETHER))
    even = predict([alone, Machine("b", 5, 1000)], 30, Traffic(0))
    assert even.over_even_split == pytest.approx(1.5, abs=1e-3)


def test_a_step_is_the_slowest_computing_and_the_ring():
    found = together(TRIO, 24, 47 * MB)
    assert found.shares == {"a": 14, "b": 7, "c": 3}
    assert found.compute_s == pytest.approx(shared(14 / 11.3))
    assert found.sync_s == pytest.approx(2 * 2 / 3 * 47 * 8 / 920)
    assert found.rows_per_s == pytest.approx(24 / (found.compute_s + found.sync_s))


@given(st.integers(1, 10**9), st.integers(1, 16))
def test_traffic_of_a_ring(size, nodes):
    assert ring_bytes(size, nodes) == 0 if nodes == 1 else size <= ring_bytes(size, nodes) < 2 * size


def test_a_node_behind_a_slow_link_makes_the_run_slower_and_is_left_out():
    slow = [*TRIO[:2], Machine("c", 2.8, 20)]
    assert gain(slow[2], TRIO[:2], 24, 10 * MB) < 1 < gain(TRIO[2], TRIO[:2], 24, 10 * MB)
    assert list(best(slow, 24, 10 * MB).shares) == ["a", "b"]
    assert predict(slow, 24, Traffic(10 * MB // 4)).slower_with == ["c"]
    assert list(best(TRIO, 24, 10 * MB).shares) == ["a", "b", "c"]


@given(machines, st.integers(1, 48), st.integers(0, 200 * MB))
def test_the_best_group_is_no_slower_than_all_or_than_any_one(group, rows, size):
    found = best(group, rows, size)
    assert found.rows_per_s >= together(group, rows, size).rows_per_s
    assert all(found.rows_per_s >= together([machine], rows, size).rows_per_s for machine in group)
    assert sum(found.shares.values()) == rows


@given(several, st.integers(1, 48))
def test_without_traffic_nobody_makes_a_run_slower_by_more_than_sharing_costs(group, rows):
    found = predict(group, rows, Traffic(0))
    assert all(node.gain >= 1 - LOST_TOGETHER - 1e-3 for node in found.nodes)
    assert found.best.rows_per_s * (1 - LOST_TOGETHER) <= found.together.rows_per_s * (1 + 1e-3)


def test_of_many_machines_the_weakest_are_left_out_one_by_one_and_one_alone_may_be_best():
    crowd = [Machine(f"n{i}", 4.0 + i, 1000) for i in range(7)]
    slow = Machine("slow", 2.0, 10)
    assert list(best([*crowd[:3], slow, *crowd[3:]], 64, 10 * MB).shares) == [m.name for m in reversed(crowd)]
    strong = Machine("strong", 200.0, 10)
    assert list(best([*crowd, strong], 64, 100 * MB).shares) == ["strong"]


def test_the_figures_of_a_plan_are_those_of_its_machines():
    found = predict(TRIO, 24, Traffic(47 * MB // 4))
    whole = together(TRIO, 24, 47 * MB)
    even_s = shared(8 / 2.8) + whole.sync_s
    assert found.over_even_split == pytest.approx(even_s / whole.step_s, abs=1e-3)
    assert found.of_the_sum == pytest.approx(whole.rows_per_s / 20.2, abs=1e-3)
    assert found.over_fastest_alone == pytest.approx(whole.rows_per_s / 11.3, abs=1e-3)
    assert found.sync_part == pytest.approx(whole.sync_s / whole.step_s, abs=1e-4)


def test_remedies_are_worth_what_they_say():
    group, traffic = [Machine("a", 10, 100), Machine("b", 10, 100)], Traffic(100 * MB, "fp32", {"q_proj": 10 * MB})
    now = together(group, 24, traffic.bytes)
    rows, wire, targets, local = remedies_for(group, 24, traffic)
    assert rows.settings == {"rows_per_step": 4 * 24} and not rows.enough, "none is enough: a moderate one is named"
    assert wire.estimate.sync_s == pytest.approx(now.sync_s / 2)
    assert targets.estimate.sync_s == pytest.approx(now.sync_s / 10)
    assert local.estimate.sync_s < now.sync_s / 20
    assert remedies_for(group, 24, Traffic(100 * MB, "bf16"))[1].settings == {"sync": "local"}, "it is halved already"


WIFI = Machine("laptop", 3.0, 120, wireless=True)


def test_the_sentence_says_what_it_is_now_on_a_cable_and_from_how_many_rows():
    group, size = [*TRIO[:2], WIFI], 48 * MB
    now = gain(WIFI, TRIO[:2], 24, size)
    cable = gain(Machine("laptop", 3.0, 1000), TRIO[:2], 24, size)
    rows = break_even_rows(WIFI, TRIO[:2], 24, size)
    said = advice(WIFI, group, 24, Traffic(12 * MB))
    assert now < 1 <= cable
    assert said.startswith(f"adding laptop over Wi-Fi (120 Mbit/s) makes it {now:.1f}×; on a cable {cable:.1f}×")
    assert f"it pays from {rows} rows a step; with sync=local" in said
    assert predict(group, 24, Traffic(12 * MB)).sentences == [said]
    assert predict(TRIO, 24, Traffic(MB)).sentences == []


def test_one_that_helps_is_told_of_only_where_a_cable_would_help_much_more():
    size, traffic = 2 * MB, Traffic(MB // 2)
    helps = gain(WIFI, TRIO[:2], 24, size)
    assert helps >= 1 and gain(Machine("laptop", 3.0, 1000), TRIO[:2], 24, size) > 1.1 * helps
    said = advice(WIFI, [*TRIO[:2], WIFI], 24, traffic)
    assert said.startswith("adding laptop over Wi-Fi") and "; on a cable" in said and "pays" not in said
    near = Machine("laptop", 3.0, 800, wireless=True)
    assert advice(near, [*TRIO[:2], near], 24, traffic) == ""
    wired = Machine("laptop", 3.0, 120)
    assert advice(wired, [*TRIO[:2], wired], 24, traffic) == ""


def test_local_steps_are_not_recommended_where_they_do_not_pay():
    hopeless = Machine("laptop", 3.0, 0.5)
    said = advice(hopeless, [*TRIO[:2], hopeless], 24, Traffic(12 * MB))
    assert "no number of rows makes it pay" in said and "sync=local" not in said


@given(several, st.integers(1, 48), st.integers(0, 200 * MB))
def test_break_even_is_where_a_node_stops_slowing_the_run(group, rows, size):
    machine, *others = group
    even = break_even_rows(machine, others, rows, size)
    if even is None:
        assert gain(machine, others, 64 * rows, size) < 1
    else:
        assert gain(machine, others, even, size) >= 1
        assert even == 1 or gain(machine, others, even - 1, size) < 1


@given(several, st.integers(1, 48), st.integers(1, 50 * MB))
def test_remedies_come_in_order_where_the_network_holds_the_run_up(group, rows, weights):
    traffic = Traffic(weights, "fp32", {"q_proj,v_proj": weights // 5})
    now, remedies = together(group, rows, traffic.bytes), remedies_for(group, rows, traffic)
    assert bool(remedies) == (now.sync_part > TOO_MUCH)
    order = [next(iter(remedy.settings)) for remedy in remedies]
    assert order == [name for name in ("rows_per_step", "wire", "lora_targets", "sync") if name in order]
    for remedy in remedies:
        assert remedy.estimate.sync_part < now.sync_part
        assert remedy.enough == (remedy.estimate.sync_part <= TOO_MUCH + 1e-9)


@given(several, st.integers(1, 48), st.integers(1, 50 * MB))
def test_local_steps_are_as_few_as_let_the_deltas_arrive_meanwhile(group, rows, weights):
    found, steps = together_local(group, rows, Traffic(weights))
    travels_s = delta_seconds(group, weights)
    if steps < 64:
        assert found.sync_s == 0 and steps * found.compute_s >= ROOM * travels_s * (1 - 1e-6)
    if steps > 1:
        assert (steps - 1) * found.compute_s < ROOM * travels_s
    if travels_s > 64 * found.compute_s:
        assert found.sync_s == pytest.approx(travels_s / 64 - found.compute_s)


def test_what_is_waited_for_in_a_short_run_counts():
    """After the first round and after the last step all wait for the deltas."""
    whole, _ = together_local(TRIO, 24, Traffic(MB))
    short, _ = together_local(TRIO, 24, Traffic(MB, run_steps=100))
    assert short.sync_s - whole.sync_s == pytest.approx(0.02 * delta_seconds(TRIO, MB), rel=1e-6)


ASKED = {"model": "tiny", "speeds": "a=11.3,b=6.1,c=2.8", "rows_per_step": 24, "links": "c=0.5"}


def test_what_local_steps_give_is_predicted_too():
    exact, local = (what_if("a=8,b=8,c=8", ASKED | {"sync": sync}).data for sync in ("auto", "local"))
    by_way = next(way for way in exact["ways"] if way["settings"] == {"sync": "local"})
    assert local["together"]["step_s"] == by_way["step_s"] < exact["together"]["step_s"]
    assert local["ways"] == local["sentences"] == []


def test_seconds_that_do_not_depend_on_rows_count_for_each_step():
    slow_start = [Machine("a", 10, 1000, step_s=1.0), Machine("b", 10, 1000)]
    found = together(slow_start, 30, 0)
    assert found.shares == {"a": 10, "b": 20} and found.compute_s == pytest.approx(shared(2.0))


def test_plan_predicts():
    answer = what_if("a=8,b=8,c=8", ASKED)
    found, said = answer.data, "\n".join(answer.lines)
    assert answer.fits and found["together"]["shares"] == {"a": 14, "b": 7, "c": 3}
    assert found["slower_with"] == ["c"] and list(found["best"]["shares"]) == ["a", "b"]
    assert "faster: a, b alone" in said and "makes the run slower" in said
    assert "adding c over 0 Mbit/s makes it 0." in said and "sync=local" in said


def test_where_samples_are_dealt_out_nobody_waits_for_another_s_last_row():
    whole, dealt = (together(TRIO, 8, 0, dealt=dealt) for dealt in (False, True))
    assert whole.shares == dealt.shares == {"a": 5, "b": 2, "c": 1}
    assert whole.compute_s == pytest.approx(shared(5 / 11.3)) and dealt.compute_s == pytest.approx(shared(8 / 20.2))
    assert dealt.sync_s == together(TRIO, 8, 0).sync_s == 0


def test_the_rows_that_each_keeps_and_what_a_step_costs_beside_them_are_dealt_to_nobody():
    slow_start = [Machine("a", 10, 1000, step_s=1.0), Machine("b", 10, 1000)]
    assert together(slow_start, 25, 0, dealt=True).compute_s == pytest.approx(shared((25 + 10 * 1.0) / 20))
    assert dealt_seconds([3, 1], [1.0, 1.0]) == pytest.approx(2.0), "half of four, which is what the first keeps"
    assert dealt_seconds([4, 1], [1.0, 1.0]) == pytest.approx(3.0), "three rows stay with the first"
    assert dealt_seconds([4, 0], [1.0, 9.0]) == pytest.approx(4.0), "who has no row is dealt nothing"


@given(machines, st.integers(1, 48))
def test_dealing_is_never_slower_and_no_faster_than_the_sum_of_the_speeds(group, rows):
    whole, dealt = (together(group, rows, 0, dealt=dealt) for dealt in (False, True))
    assert dealt.compute_s <= whole.compute_s * (1 + 1e-9)
    assert dealt.rows_per_s <= sum(machine.rows_per_s for machine in group) * (1 + 1e-9)


def test_a_plan_reckons_as_the_run_will_share():
    """Packed rows are dealt out; with dropout, a row a sample or shares that are set they stay whole."""
    few = ASKED | {"rows_per_step": 8, "links": ""}
    dealt, *whole = (
        what_if("a=8,b=8,c=8", few | more).data["together"]["compute_s"]
        for more in ({}, {"lora_dropout": 0.1}, {"pack": False}, {"balance": "even"})
    )
    assert dealt == pytest.approx(shared(8 / 20.2), abs=1e-3)
    assert whole == pytest.approx([shared(5 / 11.3)] * 3, abs=1e-3)


@given(several, st.integers(1, 48), st.integers(0, 50 * MB))
def test_what_is_advised_reckons_so_too(group, rows, weights):
    found = predict(group, rows, Traffic(weights), dealt=True)
    whole = together(group, rows, 4 * weights, dealt=True)
    assert found.together.compute_s == pytest.approx(whole.compute_s, abs=1e-4)
    for way, remedy in zip(found.ways, remedies_for(group, rows, Traffic(weights), dealt=True), strict=True):
        assert way.step_s == pytest.approx(remedy.estimate.step_s, abs=1e-4)
        assert remedy.estimate.compute_s <= whole.compute_s * 8 * (1 + 1e-9)
