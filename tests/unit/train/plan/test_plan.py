"""The plan of a run: pure decisions about nodes, memory, versions and names, and the files written from it."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from console import hub, launch_records, plan_view, playbook_receipt, render
from console.infra.machines import files as machine_files
from tests.support.plans import (
    GB,
    VERSIONS,
    card,
    decided,
    files_of,
    handed_on,
    launch_facts,
    look,
    node_facts,
    ran,
)
from tests.unit.train.plan.test_decide import SHAPE
from train.errors import BadInput
from train.plan.estimate.predict_and_cut import machines, predict
from train.plan.launch import new_or_resumed, what_blocks_a_launch
from train.plan.launch.cluster_config import read_cluster
from train.plan.launch.decide import Decided
from train.plan.launch.launch_plan import LaunchPlan
from train.plan.machines.nodes import PlanNode, Speeds, link, nodes_of, speeds
from train.plan.model.catalogue import resolve_model
from train.plan.model.memory import memory
from train.plan.model.sources import BaseModel
from train.plan.placement.first_way_that_fits import choose
from train.plan.placement.fit import Fit, setup_for
from train.plan.placement.hold_or_stream import on_node
from train.plan.settings import request
from train.plan.settings.read_settings import load_config
from train.plan.speed.prediction import remedies_as_text

REQUEST = request.read({"model": "tiny", "max_steps": 40})
PRICES = {"n0": {"motley_kwh_price": 0.3, "motley_idle_watts": 60}}


def nodes(*looks: dict[str, Any], cuda: bool = False, unsloth: str | None = None, **more: Any) -> list[PlanNode]:
    versions = {"cuda": "13.0" if cuda else None, "unsloth": unsloth}
    return nodes_of(launch_facts(looks, versions, names=[f"n{place}" for place in range(9)], **more))


def fitted(found: list[PlanNode], values: dict[str, Any] | None = None, mbit: float = 1000.0) -> Fit:
    values = {"model": "tiny"} | (values or {})
    config, model = load_config(values), resolve_model(values["model"])
    devices = [node.device for node in found]
    return choose(config, devices, model.facts, model=model.name, mbit=mbit)


def made(found: list[PlanNode], values: dict[str, Any] | None = None, *, mbit: float = 1000.0, **more: Any) -> Decided:
    wanted = request.read({"model": "tiny", "max_steps": 40, "run": "qa"} | (values or {}))
    return Decided(
        request=wanted,
        nodes=found,
        settings=wanted.settings,
        model=replace(BaseModel.of(wanted.model), folder_name="tiny"),
        fit=fitted(found, wanted.given, mbit),
        **{"model_bytes": 0, "lacking": [], "old_code": [], "link_why": "as said"} | more,
    )


def launch_plan(found: Decided) -> LaunchPlan:
    return handed_on(found, "stdlib-qa-1", PRICES)


def test_a_process_for_each_card_and_memory_of_the_smallest():
    def seen(found):
        return [(node.device.processes, node.device.memory_bytes // GB, node.device.device) for node in found]

    found = nodes(look(cards=[card("RTX 4070", 12), card("RTX 4070", 8)]), look(cards=[card("RTX 3070", 8)]), cuda=True)
    assert seen(found) == [(2, 8, "cuda"), (1, 8, "cuda")] and found[0].computes_on == "2 × RTX 4070"
    assert seen(nodes(look(), look(), processes={"n0": 2})) == [(2, 16, "cpu"), (1, 32, "cpu")]
    assert nodes(look(cards=[card("RTX 4070", 12)]))[0].device.device == "cpu", "its environment cannot use the card"


def test_cards_that_do_not_train_decide_nothing():
    large, small = card("RTX 3090", 24) | {"capability": "8.6"}, card("GT 1030", 2) | {"capability": "6.1"}
    found = nodes(look(cards=[large, small]), cuda=True, processes={"n0": 1})
    assert (found[0].device.memory_bytes // GB, found[0].device.bf16, found[0].computes_on) == (24, True, "RTX 3090")
    assert not what_blocks_a_launch.larger_card_idle(found)
    first_on_the_bus = nodes(look(cards=[small, large]), cuda=True, processes={"n0": 1})
    assert first_on_the_bus[0].device.memory_bytes // GB == 2
    (said,) = what_blocks_a_launch.larger_card_idle(first_on_the_bus)
    assert said.startswith("n0 trains on its GT 1030, the first on the bus, while its RTX 3090 has more memory")


def test_a_card_too_old_for_bf16_is_known_before_the_launch():
    rtx, gtx, unknown = (card("x", 8) | {"capability": number} for number in ("8.6", "7.5", ""))
    found = nodes(look(cards=[rtx, gtx]), look(cards=[rtx]), look(cards=[unknown]), cuda=True)
    assert [node.device.bf16 for node in found] == [False, True, True]


def test_processes_of_a_node_share_its_main_memory_and_unsloth_is_where_it_is_installed():
    found = nodes(look(cards=[card("x", 8), card("y", 8)]), look(cards=[card("x", 8)]), cuda=True)
    assert found[0].device.main_bytes * 2 == found[1].device.main_bytes == found[1].facts.memory_bytes
    assert not found[0].device.unsloth
    assert nodes(look(cards=[card("x", 8)]), cuda=True, unsloth="2026.9")[0].device.unsloth


def test_a_card_whose_memory_is_the_main_memory_has_none_beside_it():
    """A GB10: what is streamed there from main memory would be in it twice."""
    gb10 = card("GB10", 32) | {"capability": "12.1"}
    (node,) = nodes(look(cards=[gb10]), cuda=True)
    assert (node.device.memory_bytes, node.device.main_bytes) == (32 * GB, 0)
    held = fitted([node], {"model": "qwen2.5-14b", "load_in": "16bit", "gradient_checkpointing": "unsloth"}).nodes[0]
    assert held.place.why.endswith("of layers come from its files"), "in 0.8 of the same 32 GB they would"
    config, facts = load_config({"model": "qwen2.5-14b"}), resolve_model("qwen2.5-14b").facts
    waits = setup_for(config, "unsloth")
    beside = replace(node.device, main_bytes=32 * GB)
    assert memory(facts, on_node(waits, node.device)).total > memory(facts, on_node(waits, beside)).total


def test_unequal_versions_name_cause_and_mend_once():
    told: dict[str, dict[str, str | None]] = {name: dict(VERSIONS) for name in ("a", "b", "c")}
    assert what_blocks_a_launch.unequal(told) == []
    told["b"] |= {"environment": "def456", "torch": "2.10.0", "train": "2", "model tiny": "x"}
    [finding] = what_blocks_a_launch.unequal(told)
    assert finding.startswith(
        "b: environment is def456, the others abc123\nfix: ./motley bootstrap --phase python_env --nodes b"
    )
    told = {name: {"python": "3.11.2"} for name in ("a", "b")}
    [finding] = what_blocks_a_launch.unequal(told)
    assert finding.startswith("a,b: there is no environment yet\nfix: ./motley bootstrap --phase python_env   (")


@pytest.mark.parametrize(
    ("able", "fixes", "fix"),
    [
        (0, [{"load_in": "4bit"}, {"micro_batch": 4}, {"micro_batch": 2}], "--set load_in=4bit --set micro_batch=2"),
        (1, [None, {"micro_batch": 2}, None], "--nodes n0"),
    ],
)
def test_the_fix_is_enough_for_each_node_that_lacks_memory(able, fixes, fix):
    found = nodes(look(), look(), look())
    fit = fitted(found)
    entries = [replace(entry, fits=at < able, fix=fixes[at]) for at, entry in enumerate(fit.nodes)]
    [finding] = what_blocks_a_launch.does_not_fit(found, replace(fit, nodes=entries))
    assert finding.endswith(f"fix: {fix}")


def test_a_port_that_is_taken_is_reported():
    [finding] = what_blocks_a_launch.blocking(nodes(look(), look(port_taken=29400)))
    assert finding.startswith("n1: port 29400 is taken there") and "motley_render_presence_port=29401" in finding


def test_a_node_that_others_do_not_reach_is_the_one_to_fix():
    def told(*missed):
        return what_blocks_a_launch.blocking(nodes(*(look(missed=some) for some in missed)))

    [finding] = told(["n1"], [], ["n1"])
    assert finding.startswith("n1: it does not answer n0, n2 on the ports of runs: a firewall there")
    assert "fix: ./motley bootstrap --phase firewall --nodes n1" in finding and finding.endswith("--nodes n0,n2")
    assert [said[:3] for said in told(["n1"], ["n0", "n2"], ["n1"])] == ["n1:"], "cut off both ways"
    isolated = told(["n1", "n2"], ["n0", "n2"], ["n0", "n1"])
    assert len(isolated) == 3 and all("it reaches no other node on the ports of runs" in said for said in isolated)
    assert [said[:3] for said in told(["n1"], [])] == ["n1:"] and told([], [], []) == []


def test_a_small_disk_and_a_lost_route_are_reported():
    found = nodes(look(), look(free_bytes=3 * 10**9, route={"why": "it has no route to n0"}))
    lost, small = what_blocks_a_launch.blocking(found, {"n1": 5 * 10**9})
    assert "n1: it has no route to n0\nfix: ./motley bootstrap --phase static_ip --nodes n1" in lost
    assert "n1: 3.0 GB are free, 7.0 GB are needed" in small
    [finding] = what_blocks_a_launch.blocking(nodes(look(), look(free_bytes=10**9)), {"n0": 5 * 10**9})
    assert "n1: 1.0 GB are free, 2.0 GB are needed (2.0 GB for checkpoints)" in finding, "it has the model already"


def foreseen(rates: dict[str, float], looks: list[dict[str, Any]], mbit: float, **settings: Any) -> Decided:
    known, found = Speeds(rates, why="measured in earlier"), nodes(*looks)
    config = load_config({"rows_per_step": settings.get("rows_per_step", 16)})
    group = machines(found, known, mbit)
    prediction = predict(fitted(found, {"model": "llama2-7b"}, mbit), group, config)
    return made(found, settings, mbit=mbit, speeds=known, prediction=prediction)


def test_on_a_quick_link_nothing_is_said_of_it():
    quick = foreseen({"n0": 10.0, "n1": 9.0}, [look(), look()], 100_000, rows_per_step=48)
    assert quick.prediction and quick.prediction.sentences == remedies_as_text(quick.prediction) == []


@pytest.mark.parametrize("count", [3, 7])
def test_no_group_of_nodes_is_looked_at_twice(count):
    names = [f"n{at}" for at in range(count)]
    found = foreseen({name: 10.0 for name in names}, [look() for _ in names], 1000, rows_per_step=48).prediction
    groups = [tuple(group.shares) for group in found.groups]
    assert len(set(groups)) == len(groups) and {(name,) for name in names} <= set(groups)


def test_speeds_come_from_the_newest_run_that_computed_the_same():
    same = {"launched": {"all": REQUEST.settings}, "run": "earlier", "speeds": {"n0": 4.0, "n1:0": 2.0}}
    other = {"launched": {"all": REQUEST.settings | {"lora_r": 4}}, "run": "other", "speeds": {"n0": 9.0, "n1": 9.0}}
    found = nodes(look(measured=[other, same]), look())
    assert speeds(found, REQUEST.settings) == Speeds({"n0": 4.0, "n1": 2.0}, why="measured in earlier")


def test_a_node_that_streamed_does_not_tell_how_fast_it_is_with_the_base_on_its_card():
    settings = REQUEST.settings
    streamed = {"launched": {"all": settings, "streams": ["n1"]}, "run": "b", "speeds": {"n0": 4.0, "n1": 2.0}}
    held = {"launched": {"all": settings}, "run": "a", "speeds": {"n0": 5.0, "n1": 6.0}}
    found = nodes(look(measured=[streamed, held]), look(measured=[streamed, held]))
    assert speeds(found, settings).rows_per_s == {"n0": 4.0, "n1": 6.0}
    assert speeds(found, settings, streams=["n1"]).rows_per_s == {"n0": 4.0, "n1": 2.0}


def test_the_network_is_what_the_proof_measured_else_what_the_slowest_card_says(tmp_path):
    proof = {"nodes": {"a": {"phases": {"proof": {"measured": {"link_mbit": 1000.0, "percent_of_link": 92}}}}}}
    (tmp_path / "2026-11-21-bootstrap.json").write_text(json.dumps(proof))
    older = json.dumps(proof).replace("92", "50")
    (tmp_path / "2026-11-20-bootstrap.json").write_text(older)
    (tmp_path / "2026-11-22-bootstrap.json").write_text(json.dumps({"nodes": {"a": {"phases": {}}}}))
    assert playbook_receipt.link_mbit(tmp_path) == pytest.approx(1000)
    assert playbook_receipt.link_mbit(tmp_path / "none") == 0
    for text in ("", "[]", "{}", '{"nodes": {"a": {"phases": {"proof": {"measured": {}}}}}}', '{"nodes": {"a": 1}}'):
        (tmp_path / "2099-01-01-000000-bootstrap.json").write_text(text)
        assert playbook_receipt.link_mbit(tmp_path) == pytest.approx(1000), "the newest that can be read"
    found = nodes(look(), look(route={"why": "", "nic": "wlan0", "mbit": 0}), look(route={"why": "", "mbit": 100}))
    assert link(found, 900) == (900, "measured by bootstrap's proof")
    assert link(found, 0) == (100, "as n2's network card says")


KNOWN = new_or_resumed.Known({"given": {"model": "tiny", "max_steps": 40}, "all": REQUEST.settings}, 12, False)


def run_of(known: dict[str, new_or_resumed.Known], **values: Any) -> request.Request:
    return new_or_resumed.choose_run(request.read({"model": "tiny", "max_steps": 40} | values), known)


def refusal(known: dict[str, new_or_resumed.Known], **values: Any) -> str:
    with pytest.raises(BadInput) as refused:
        run_of(known, **values)
    return str(refused.value)


@pytest.mark.parametrize(
    ("values", "name", "step"),
    [
        ({"max_steps": 50}, "tiny-stdlib-qa-2", 0),
        ({"resume": "never"}, "tiny-stdlib-qa-2", 0),
        ({"run": "new"}, "new", 0),
    ],
)
def test_the_run_that_is_meant(values, name, step):
    run = run_of({"tiny-stdlib-qa": KNOWN}, **values)
    assert (run.config.run, run.step) == (name, step)


def test_what_was_decided_for_a_run_is_asked_for_again():
    """Its CPU node may be gone by now: what is left would compute in bf16, and be refused."""
    decided = {"backend": "hf", "precision": "fp32", "load_in": "16bit", "gradient_checkpointing": "false"}
    before = new_or_resumed.Known(KNOWN.launched | {"all": REQUEST.settings | decided}, 12, False)
    for values in ({"run": "qa"}, {"resume": "qa"}, {"resume": "qa", "run": "branch"}):
        run = run_of({"qa": before}, **values)
        assert {name: run.given[name] for name in decided} == decided
    assert not decided.keys() & run_of({"qa": before}, run="other").given.keys()


def test_a_run_that_is_done_is_not_launched_again_by_its_name():
    done = new_or_resumed.Known(KNOWN.launched, 40, True)
    assert run_of({"tiny-stdlib-qa": done}).config.run == "tiny-stdlib-qa-2"
    assert "'qa' is done\nfix: --run qa-2, or begin it again: --resume never" in refusal({"qa": done}, run="qa")
    run = run_of({"qa": done}, run="qa", resume="never")
    assert run.from_start and run.given["resume"] == "auto"  # else every restart within the run would begin again


def test_who_was_away_when_a_run_was_begun_again_has_the_one_before(tmp_path):
    wanted = {"model": "tiny", "run": "qa", "max_steps": 40}
    before = ran(decided(wanted, look()))
    before["runs"]["qa"] |= {"step": 40, "done": True}
    wanted["max_steps"] = 50
    second = decided(wanted | {"resume": "never"}, before)
    assert launch_plan(second).older_on == ["a"]
    goes_on = decided(wanted, before, ran(second), look())
    assert (goes_on.request.step, launch_plan(goes_on).older_on) == (12, ["a"])
    args = {"plan": launch_plan(goes_on).to_json(), "token": "5f", "state_folder": tmp_path}
    args["ports"] = {"presence_port": 29400, "group_ports": [29410, 29489]}
    known = {"hostvars": {"a": {}, "b": {}}}
    moved = [machine_files.files(known | {"inventory_hostname": name}, args).params["aside"] for name in "ab"]
    assert moved == [["models/checkpoints/qa", "logs/runs/qa", "results/qa"], []]
    assert launch_plan(decided(wanted, ran(second), ran(goes_on))).older_on == []
    here = {"qa": ran(second)["runs"]["qa"]["launched"]}
    lost = decided(wanted, before, launched=here)
    assert (lost.request.step, launch_plan(lost).older_on) == (0, ["a"]), "known to this computer alone"
    with pytest.raises(BadInput, match="max_steps: the run was launched with 50, 40 is asked for"):
        decided(wanted | {"max_steps": 40}, before, launched=here)


def test_a_run_that_no_node_knows_is_not_resumed():
    assert refusal({"first": KNOWN}, resume="fist") == ("resume: no node knows a run 'fist'\nfix: did you mean first?")
    assert "fix: known are: none yet" in refusal({}, resume="fist")


def test_what_is_done_in_pieces_has_no_branch(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "Where?"}\n')
    asks = {"model": "tiny", "recipe": "generate", "dataset": str(tmp_path / "a.jsonl"), "max_seq_length": 512}
    found = ran(decided(asks | {"run": "qa"}, look()))
    assert decided(asks | {"resume": "qa"}, found).request.step == 12
    with pytest.raises(BadInput, match=r"qa is done in pieces, .*\nfix: --resume qa alone, or --run b alone"):
        decided(asks | {"resume": "qa", "run": "b"}, found)


@pytest.mark.parametrize("branch", [{}, {"run": "qa-2"}])
def test_settings_of_a_run_that_is_resumed_cannot_change(branch):
    said = refusal({"qa": KNOWN}, resume="qa", max_steps=50, **branch)
    assert "max_steps: the run was launched with 40, 50 is asked for" in said
    assert said.endswith("a new run: --run qa-2 in place of --resume qa")


@pytest.mark.parametrize("what", ["pretrain", "tokenizer", "images", "own", "model"])
def test_no_link_in_a_folder_sends_a_file_from_outside(what, tmp_path):
    folder, private, recipe = tmp_path / "downloaded", tmp_path / "private", tmp_path / "mine.py"
    for name in ("cat/a.jpg", "dog/b.jpg", "cat/a.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text")
    (folder / "config.json").write_text("{}" if what != "tokenizer" else json.dumps(SHAPE))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("text")
    recipe.write_text("def rows(settings): ...\ndef model(settings): ...\ndef loss(model, batch): ...\n")
    private.write_text("secret")
    values: dict[str, Any] = {
        "pretrain": {"recipe": "pretrain", "dataset": str(folder)},
        "tokenizer": {"recipe": "pretrain", "dataset": str(tmp_path / "texts"), "tokenizer": str(folder)},
        "images": {"recipe": "images", "dataset": str(folder)},
        "own": {"recipe": str(recipe), "dataset": str(folder)},
        "model": {"model": str(folder)},
    }[what]
    (folder / "cat/inside.txt").symlink_to("a.txt")
    (folder / "cat/inside.jpg").symlink_to(folder / "dog/b.jpg")
    request.read(values)
    link = folder / ("cat/out.jpg" if what == "images" else "cat/out.txt")
    link.symlink_to(private)
    with pytest.raises(BadInput, match=f"(?s)leads out of this folder.*{private}.*link: {link}.*cp -rL"):
        request.read(values)


def test_a_model_in_the_hubs_cache_is_made_of_links(tmp_path):
    folder, blob = tmp_path / "models--a--b/snapshots/5f", tmp_path / "models--a--b/blobs/1"
    for path in (folder, blob.parent):
        path.mkdir(parents=True)
    blob.write_text("{}")
    (folder / "config.json").symlink_to("../../blobs/1")
    assert request.read({"model": str(folder)}).model.folder == folder
    (folder / "notes").symlink_to("../../private")
    (folder / "../../private").write_text("secret")
    with pytest.raises(BadInput, match="leads out of this folder"):
        request.read({"model": str(folder)})


@pytest.mark.parametrize("values", [{"resume": "qa"}, {"run": "qa"}, {"resume": "qa", "run": "branch"}])
def test_a_node_does_not_choose_a_file_of_this_computer(values, tmp_path):
    """Typed without the data set, it would be taken from what the node says, and sent to it."""
    private = tmp_path / "private.jsonl"
    private.write_text("{}")
    given = {"model": "tiny", "dataset": str(private)}
    of_node = {"given": given, "all": REQUEST.settings | {"dataset": str(private)}}
    seen = node_facts("a", [look(runs={"qa": {"launched": of_node, "step": 12, "done": False}})])

    def dataset(from_here, **more):
        asked = request.read({"model": "tiny", **values, **more})
        return new_or_resumed.choose_run(asked, new_or_resumed.known_runs(seen, from_here)).dataset.file

    for from_here in ({}, {"other": of_node}, {"qa": {"given": {"dataset": str(tmp_path / "public.jsonl")}}}):
        with pytest.raises(BadInput, match=f"this computer did not launch it so.*\n.*--set dataset={private}"):
            dataset(from_here)
    assert dataset({"qa": of_node}) == dataset({}, dataset=str(private)) == private


def test_nor_another_setting_of_a_run_that_was_launched_here():
    given = {"model": "tiny", "dataset": "stdlib-qa", "save_every": 7}
    of_node = {"given": given | {"save_every": 1}, "all": REQUEST.settings | {"save_every": 1}}
    seen = node_facts("a", [look(runs={"qa": {"launched": of_node, "step": 12, "done": False}})])
    asked = request.read({"resume": "qa"})

    def save_every(from_here):
        return new_or_resumed.choose_run(asked, new_or_resumed.known_runs(seen, from_here)).config.save_every

    assert save_every({}) == 1 and save_every({"qa": {"given": given}}) == 7


def test_what_was_launched_from_here_is_kept(tmp_path):
    file = render.launched(launch_plan(made(nodes(look()))), "now")
    launch_records.keep([file, render.File("config/other.json", "{}", 0o644)], tmp_path)
    (tmp_path / "runs/half.json").write_text("{")
    assert launch_records.known(tmp_path) == {"qa": json.loads(file.content)}


def test_the_token_never_becomes_part_of_a_plan():
    assert hub.token({"motley_hub_token": "hf_secret"}) == {"HF_TOKEN": "hf_secret"}
    assert "hf_secret" not in json.dumps(launch_plan(made(nodes(look()))).to_json())


def files(found: list[PlanNode], node: str, **more: str) -> dict[str, str]:
    return files_of(launch_plan(made(found)), node, more)


def test_a_run_keeps_the_price_for_its_report_and_the_plan_shows_it():
    launched = json.loads(files(nodes(look(), look()), "n0")["logs/runs/qa/launch.json"])
    assert launched["electricity"] == {"kwh_price": 0.3, "currency": "", "idle_watts": {"n0": 60.0, "n1": None}}
    found = made(nodes(look()))
    assert plan_view.lines(found, "up to 0.12 an hour")[-1] == "  cost      up to 0.12 an hour"
    assert not any("cost" in line for line in plan_view.lines(found))


def test_a_node_keeps_to_what_it_computes_on():
    """A card that is gone one morning must not make a slow processor take its part: the node is skipped instead."""
    found = launch_plan(made(nodes(look())))
    own = replace(found.nodes[0], device="cuda")
    assert render.settings_of(found, own)["device"] == "cuda"
    assert render.settings_of(found, replace(own, device="cpu"))["device"] == "cpu"
    chosen = replace(found, settings=found.settings | {"device": "cpu"})
    assert render.settings_of(chosen, own)["device"] == "cpu", "as set"


def test_the_cluster_file_is_the_same_everywhere_but_for_the_node():
    found = nodes(look(), look(route={"why": "", "nic": "wlp2s0"}), look(), processes={"n0": 2})
    told = [yaml.safe_load(files(found, node.name)["config/cluster_config.yaml"]) for node in found]
    assert [entry["processes"] for entry in told[0]["nodes"]] == [2, 1, 1]
    assert [entry.pop("node") for entry in told] == ["n0", "n1", "n2"]
    assert [entry.pop("interface") for entry in told] == ["enp3s0", "wlp2s0", "enp3s0"]
    assert told[0] == told[1] == told[2]
    assert told[0]["group_ports"] == [29410, 29489] and told[0]["run"] == "qa" and "token" not in told[0]


def test_of_a_model_that_is_cut_the_agents_know_who_holds_how_much(tmp_path):
    found = made(nodes(look(), look(), look()), {"pipes": "n0+n1"})
    text = "\n".join(plan_view.lines(found))
    assert "pipes     n0+n1" in text
    rows = {line.split()[0]: line.split("  ")[-1].strip() for line in text.splitlines()[2:5]}
    assert rows["n1"] == "n0's, layers 3-4" and rows["n0"] == rows["n2"] == "found while it runs"
    made_files = files_of(launch_plan(found), "n1")
    file = tmp_path / "cluster.yaml"
    file.write_text(made_files["config/cluster_config.yaml"])
    file.with_name("secret.json").write_text(made_files["config/secret.json"])
    room = read_cluster(file).room
    assert room and room.layers == 4 and room.holds == {"n0": 4, "n1": 4, "n2": 4}
    assert yaml.safe_load(made_files["config/training_config.yaml"])["pipes"] == "n0+n1"
    own = [node.calibrate for node in launch_plan(found).nodes]
    assert ["--part=0-2" in own[0], "--part=2-4" in own[1], any("part" in word for word in own[2])] == [1, 1, 0]


def test_a_calibration_is_told_what_decides_the_micro_batch():
    cards = look(cards=[card("RTX 4070", 12), card("RTX 4070", 12)]), look(cards=[card("RTX 4070", 12)])
    found = made(nodes(*cards, cuda=True), {"rows_per_step": 10, "memory_ceiling": 0.8})
    told = launch_plan(found)
    assert {"--rows-per-step=10", "--memory-ceiling=0.8", "--optimizer=adamw"} <= set(told.calibrate)
    assert not any("rows" in word for node in told.nodes for word in node.calibrate)
    streaming = made(nodes(*cards, cuda=True), {"rows_per_step": 10, "weights": "stream"})
    for node in launch_plan(streaming).nodes:
        assert "--rows-per-step=4" in node.calibrate, "an even share of three processes: no run takes more at a time"


def test_the_training_file_is_taken_back_by_the_training_package(tmp_path):
    text = files(nodes(look()), "n0")["config/training_config.yaml"]
    values = yaml.safe_load(text)
    assert values["dataset"] == "/home/user/ai-cluster/data/processed/stdlib-qa-1" and values["model"] == "tiny"
    home = values.pop("home")
    assert home == "/home/user/ai-cluster"
    assert request.read(values | {"dataset": "stdlib-qa"}).config.run == "qa"


def test_the_script_is_clean_and_says_why(tmp_path):
    script = tmp_path / "launch_cluster.sh"
    script.write_text(files(nodes(look(), look()), "n1", NCCL_ALGO="Ring; rm -rf /")["scripts/launch_cluster.sh"])
    shellcheck = Path(sys.executable).parent / "shellcheck"
    assert subprocess.run([shellcheck, script], capture_output=True, check=False, text=True).stdout == ""
    text = script.read_text()
    assert "export NCCL_ALGO='Ring; rm -rf /'" in text and "OMP_NUM_THREADS=8 " in text
    assert "export CUDA_DEVICE_ORDER=PCI_BUS_ID " in text, "cards are counted as nvidia-smi does"
    assert "export PYTORCH_ALLOC_CONF=expandable_segments:True " in text, "before the first card is opened"
    for name in re.findall(r"export (?:GLOO|NCCL|TORCH)_\w+=\S+(.*)", text)[:3]:
        assert name.strip().startswith("# "), name
