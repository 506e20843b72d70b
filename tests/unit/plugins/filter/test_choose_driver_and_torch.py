"""One driver for all cards: the plans that people will meet, and what holds for every cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plugins.filter import choose_driver_and_torch as planner

ROLE = Path(__file__).resolve().parents[4] / "roles/motley_gpu_driver"
VARS = yaml.safe_load((ROLE / "vars/main/driver_and_torch_catalogue.yml").read_text())
CATALOGUE: dict[str, Any] = VARS["__motley_gpu_driver_catalogue"]
RTX_5070_TI, RTX_4070, RTX_3070_TI, GTX_1080 = "2c05", "2820", "2482", "1b80"
BOTH = {"open", "closed"}


def node(
    *chips: str,
    has: str = "",
    is_open: bool = False,
    offers: tuple[str, ...] = ("580.95.05", "570.195.03"),
    **more: Any,
) -> dict[str, Any]:
    installed = {"version": has, "open": is_open, "packaged": True, "complete": True} if has else {}
    return {
        "cards": [{"bus": f"0000:0{place}:00.0", "device": chip} for place, chip in enumerate(chips, 1)],
        "installed": installed,
        "offered": {version.split(".")[0]: dict.fromkeys(sorted(BOTH), version) for version in offers},
        "source": "Ubuntu's packages",
        "secure_boot": False,
        "title": "",
        **more,
    }


def plan(branch: str = "auto", agreed: str = "", **nodes: dict[str, Any]) -> dict[str, Any]:
    return planner.plan(nodes, CATALOGUE, branch, agreed)


def test_the_trio_gets_580_with_open_modules() -> None:
    made = plan(
        master=node(RTX_5070_TI, title="RTX 5070 Ti"),
        w1=node(RTX_4070, title="RTX 4070"),
        w2=node(RTX_3070_TI, has="570.195.03", title="RTX 3070 Ti"),
    )
    assert (made["branch"], made["set"], made["cuda"]) == ("580", "node-gpu", "13.0")
    assert {one["do"] for one in made["nodes"].values()} == {"install"}
    assert all(one["open"] for one in made["nodes"].values())
    assert made["reason"] == (
        "RTX 3070 Ti + RTX 4070 + RTX 5070 Ti → 580-open on all nodes"
        " (RTX 50 (Blackwell) needs the open modules; torch 2.13.0 needs ≥ 580.65.06)"
    )


def test_a_570_that_works_alone_is_left_alone() -> None:
    made = plan(only=node(RTX_3070_TI, has="570.195.03"))
    assert (made["branch"], made["set"]) == ("570", "node-gpu-r570")
    assert made["nodes"]["only"]["do"] == "keep"
    assert "570.195.03 is there and works" in made["reason"]
    assert "motley_gpu_driver_branch=580" in made["reason"]


def test_what_all_have_is_settled_before_the_package_sources_are_asked() -> None:
    has_570, has_580 = (node(RTX_3070_TI, has=version, offers=()) for version in ("570.195.03", "580.95.05"))
    alike, unlike = plan(a=has_570, b=has_570), plan(a=has_570, b=has_580)
    assert alike["settled"] and "570.195.03 is there and works" in alike["reason"]
    assert not unlike["settled"] and not plan(a=node(RTX_3070_TI, offers=())).get("settled")


def test_where_only_570_can_be_had_the_other_torch_is_chosen_and_the_reason_told() -> None:
    made = plan(a=node(RTX_5070_TI), b=node(RTX_3070_TI, offers=("570.195.03",)))
    assert (made["branch"], made["set"]) == ("570", "node-gpu-r570")
    assert "because b is offered no driver 580" in made["reason"]


@pytest.mark.parametrize(
    ("branch", "alone"),
    [
        ("580", node(RTX_3070_TI, has="570.195.03")),
        ("auto", node(RTX_4070, has="580.64.01")),
        ("auto", node(RTX_5070_TI, has="580.95.05", is_open=False)),
        ("auto", node("3a00")),
    ],
    ids=["a 570, where 580 is asked for", "a 580 too old for the torch", "closed modules", "a card not known yet"],
)
def test_580_with_open_modules_is_installed_where_what_is_there_does_not_do(branch: str, alone: dict[str, Any]) -> None:
    made = plan(branch, a=alone)
    assert made["set"] == "node-gpu"
    assert made["nodes"]["a"] | {"say": ""} == {"do": "install", "open": True, "version": "580.95.05", "say": ""}


def test_a_newer_driver_is_kept_among_nodes_of_the_branch() -> None:
    made = plan(a=node(RTX_5070_TI, has="590.48.01", is_open=True), b=node(RTX_4070))
    assert made["branch"] == "580"
    assert "newer drivers serve as well" in made["nodes"]["a"]["say"]


@pytest.mark.parametrize(
    ("nodes", "said", "fix"),
    [
        ({"a": node(RTX_5070_TI), "b": node(GTX_1080)}, "b: its GTX 10 (Pascal) card (10de:1b80) has compute 6.1", "b"),
        (
            {"a": node(RTX_5070_TI, offers=("580.95.05",)), "b": node(RTX_3070_TI, offers=("570.195.03",))},
            "no driver 580 or 570 serves all cards: b is offered no driver 580, Ubuntu's packages have 570",
            "give b a package source",
        ),
        (
            {"a": node(RTX_3070_TI, offers=("550.163.01",), source="Debian's packages")},
            "a is offered no driver 580, Debian's packages have 550",
            "docs/cards.md",
        ),
        ({"a": node(RTX_3070_TI, offers=())}, "a is offered no driver 580", "docs/cards.md"),
        (
            {"a": node(RTX_4070, installed={"version": "535.1", "open": False, "packaged": False, "complete": True})},
            "a has driver 535.1 from NVIDIA's .run file",
            "sudo nvidia-uninstall",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence_and_a_mend(nodes: dict[str, Any], said: str, fix: str) -> None:
    made = plan(**nodes)
    assert said in made["error"]
    assert fix in made["fix"]
    assert "\n" not in made["error"] + made["fix"]


def test_no_card_no_driver() -> None:
    made = plan(a=node(), b=node())
    assert (made["set"], made["nodes"]) == ("node-cpu", {})


def test_a_run_for_one_node_does_not_leave_the_others() -> None:
    recorded = {"set": "node-gpu", "nodes": {"a": "580", "b": "580"}}
    assert planner.agreed_set(recorded, ["a", "b"]) == ""
    agreed = planner.agreed_set(recorded, ["b"])
    assert plan(agreed=agreed, b=node(RTX_3070_TI, has="570.195.03"))["branch"] == "580"
    assert "all nodes" in plan("570", agreed=agreed, b=node(RTX_3070_TI))["fix"]


# -- a branch that is only a name ------------------------------------------------------------------------------


def led(*chips: str, **more: Any) -> dict[str, Any]:
    """A machine of Ubuntu's after 570 is no longer made: packages of that name lead to 580."""
    return node(*chips, offers=("580.95.05",), leads={"570": "580"}, **more)


def test_asking_for_a_branch_that_is_only_a_name_gives_what_it_leads_to_and_the_wheels_for_that() -> None:
    made = plan("570", a=led(RTX_5070_TI), b=led(RTX_3070_TI))
    assert (made["branch"], made["set"], made["torch"]) == ("580", "node-gpu", "2.13.0")
    assert {one["version"] for one in made["nodes"].values()} == {"580.95.05"}
    assert "570 only leads to 580 in Ubuntu's packages" in made["reason"]


def test_beside_a_real_570_it_serves_the_older_torch() -> None:
    made = plan(a=led(RTX_4070), b=node(RTX_3070_TI, offers=("570.195.03",)))
    assert (made["branch"], made["set"]) == ("570", "node-gpu-r570")
    assert made["nodes"]["a"]["version"] == "580.95.05"
    assert "570 only leads to 580" in made["nodes"]["a"]["say"]


def test_a_570_that_works_stays_and_what_an_upgrade_would_bring_is_said() -> None:
    made = plan(a=led(RTX_3070_TI, has="570.195.03"))
    assert (made["nodes"]["a"]["do"], made["set"]) == ("keep", "node-gpu-r570")
    assert "570 only leads to 580" in made["nodes"]["a"]["say"]


# -- what the inventory says of the cards ------------------------------------------------------------------------


def named(title: str, *chips: str, name: str = "", **more: Any) -> dict[str, Any]:
    made = node(*chips, title=title, file="inventory/homelab/hosts.yml", **more)
    for card in made["cards"]:
        card["name"] = name
    return made


@pytest.mark.parametrize(
    ("title", "chip", "name"),
    [
        ("RTX 4070", RTX_4070, "NVIDIA GeForce RTX 4070 Laptop GPU"),
        ("RTX 4070 Laptop", RTX_4070, "AD106M [GeForce RTX 4070 Max-Q / Mobile]"),
        ("rtx4070", RTX_4070, ""),
        ("GeForce 3070Ti, 8 GB", RTX_3070_TI, "NVIDIA GeForce RTX 3070 Ti"),
        ("RTX A4000", "24b0", "GA104GL [RTX A4000]"),
        ("my old card", RTX_3070_TI, "NVIDIA GeForce RTX 3070 Ti"),
        ("RTX 6090", "3a00", ""),
        ("", RTX_3070_TI, "NVIDIA GeForce RTX 3070 Ti"),
    ],
)
def test_a_card_is_recognised_by_its_model(title: str, chip: str, name: str) -> None:
    assert "error" not in plan(a=named(title, chip, name=name))


@pytest.mark.parametrize(
    ("title", "chip", "name", "there"),
    [
        ("RTX 3070 Ti", RTX_4070, "NVIDIA GeForce RTX 4070 Laptop GPU", "RTX 4070 Laptop"),
        ("RTX 3070", RTX_3070_TI, "GA104 [GeForce RTX 3070 Ti]", "RTX 3070 Ti"),
        ("RTX 4070", RTX_3070_TI, "", "RTX 30 (Ampere)"),
    ],
)
def test_another_card_than_the_inventory_names_is_said_with_the_line_to_edit(
    title: str, chip: str, name: str, there: str
) -> None:
    made = plan(a=named(title, chip, name=name), b=node(RTX_3070_TI))
    assert made["error"] == f"a: the inventory says motley_gpu: {title}, on its bus is {there} (10de:{chip})"
    assert "inventory/homelab/hosts.yml" in made["fix"] and "motley_gpu" in made["fix"]
    if name:
        assert f"motley_gpu: {there}" in made["fix"]


def test_a_named_card_that_is_not_there_is_no_silent_training_on_the_processor() -> None:
    made = plan(a=named("RTX 3070 Ti"), b=node(RTX_3070_TI))
    assert made["error"] == "a: the inventory says motley_gpu: RTX 3070 Ti, no NVIDIA card is on its bus"
    assert "motley_gpu: none" in made["fix"]
    assert "error" not in plan(a=named("none"), b=node(RTX_3070_TI))


def test_one_of_two_cards_may_be_the_named_one() -> None:
    made = named("RTX 3070 Ti", RTX_3070_TI, RTX_4070)
    made["cards"][0]["name"], made["cards"][1]["name"] = "NVIDIA GeForce RTX 3070 Ti", "NVIDIA GeForce RTX 4070"
    assert "error" not in plan(a=made)


# -- graphics that are switched off ------------------------------------------------------------------------------


@pytest.mark.parametrize("on_the_bus", [True, False], ids=["until its restart", "after its restart"])
def test_graphics_switched_to_the_processor_are_said_with_the_one_command(on_the_bus: bool) -> None:
    chips = (RTX_4070,) if on_the_bus else ()
    made = plan(a=named("RTX 4070", *chips, switched_off="prime-select"), b=node(RTX_3070_TI))
    assert made["error"].startswith("a: its graphics are switched to the processor's own (prime-select intel)")
    assert "on a: sudo prime-select on-demand && sudo reboot" in made["fix"]
    assert "desktop" in made["fix"]
    assert "echo ON | sudo tee /proc/acpi/bbswitch" in plan(a=node(*chips, switched_off="bbswitch"))["fix"]


def test_a_laptop_that_shall_train_on_its_processor_may_stay_so() -> None:
    assert "error" not in plan(a=named("none", switched_off="prime-select"), b=node(RTX_3070_TI))


# -- every cluster ---------------------------------------------------------------------------------------------

VERSIONS = ["550.163.01", "570.195.03", "580.65.05", "580.65.06", "580.95.05", "590.48.01"]
CHIPS = [RTX_5070_TI, RTX_4070, RTX_3070_TI, GTX_1080, "2d04", "1e04", "3a00", "1d81"]
NEED_OPEN = {RTX_5070_TI, "2d04", "3a00"}


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, Any]:
    made = node(
        *draw(st.lists(st.sampled_from(CHIPS), max_size=2)),
        has=draw(st.sampled_from(["", *VERSIONS])),
        is_open=draw(st.booleans()),
        offers=tuple(draw(st.lists(st.sampled_from(VERSIONS), max_size=3))),
    )
    if made["installed"]:
        made["installed"] |= {"packaged": draw(st.booleans()), "complete": draw(st.booleans())}
    for branch in made["offered"]:
        kinds = draw(st.sampled_from([["open", "closed"], ["open"], ["closed"]]))
        made["offered"][branch] = {kind: made["offered"][branch][kind] for kind in kinds}
    return made


clusters = st.dictionaries(st.sampled_from("abcde"), nodes(), min_size=1)
branches = st.sampled_from(["auto", "580", "570"])


@given(clusters, branches)
def test_a_plan_serves_every_card_or_says_why_not(cluster: dict[str, Any], branch: str) -> None:
    made = planner.plan(cluster, CATALOGUE, branch)
    if "error" in made:
        assert made["error"] and made["fix"]
        return
    assert set(made["nodes"]) == {name for name, one in cluster.items() if one["cards"]}
    chosen = {entry["branch"]: entry for entry in CATALOGUE["branches"]}.get(made["branch"])
    for name, one in made["nodes"].items():
        assert chosen is not None
        assert branch in ("auto", made["branch"])
        assert not planner.older(one["version"], chosen["least"])
        assert one["open"] or not NEED_OPEN & {card["device"] for card in cluster[name]["cards"]}
        if one["do"] == "install":
            assert cluster[name]["offered"][made["branch"]][planner.word(one["open"])] == one["version"]
            assert planner.major(one["version"]) == made["branch"]
        else:
            assert cluster[name]["installed"]["version"] == one["version"]


@given(clusters, branches)
def test_a_plan_that_was_carried_out_is_kept(cluster: dict[str, Any], branch: str) -> None:
    made = planner.plan(cluster, CATALOGUE, branch)
    if made.get("nodes"):
        for name, one in made["nodes"].items():
            if one["do"] == "install":  # one that is kept stays what it is, also where NVIDIA's .run file brought it
                has = {"version": one["version"], "open": one["open"], "packaged": True, "complete": True}
                cluster[name] |= {"installed": has}
        again = planner.plan(cluster, CATALOGUE, branch)
        assert {one["do"] for one in again["nodes"].values()} == {"keep"}
        assert again["set"] == made["set"]


@given(clusters, branches)
def test_neither_order_nor_nodes_without_cards_matter(cluster: dict[str, Any], branch: str) -> None:
    made = planner.plan(cluster, CATALOGUE, branch)
    other = planner.plan({**dict(reversed(cluster.items())), "z": node()}, CATALOGUE, branch)
    assert ("error" in made) == ("error" in other)
    assert made.get("branch") == other.get("branch")
