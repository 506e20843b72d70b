"""What a launch is going to do, decided from what was asked and what the nodes tell, before anything is changed. Pure.

Numbers about memory and traffic come from `python -m train plan`, whether versions agree from console/versions.py.
A Plan with findings is never acted upon; one without holds all that the later steps need.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from console import versions

GIB = 1 << 30
KEPT_FREE_BYTES = 2_000_000_000
"""What checkpoints, rows and logs of a run may take beside the model."""
COUNTED_ALIKE = ("model", "max_seq_length", "method", "lora_r", "lora_targets", "load_in", "gradient_checkpointing")
"""Settings in which two runs must agree for one's speeds to foretell the other's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One machine that takes part."""

    name: str
    address: str
    look: dict[str, Any]
    device: str
    """cuda, or cpu: as the environment of the node can compute."""
    processes: int
    bytes: int
    """Memory that one process may count on."""

    @property
    def computes_on(self) -> str:
        if self.device == "cpu":
            return f"CPU, {self.look['cores']} cores"
        names = [card["name"].removeprefix("NVIDIA GeForce ").removeprefix("NVIDIA ") for card in self.look["cards"]]
        return " + ".join(f"{len(list(same))} × {name}" for name, same in itertools.groupby(names)).replace("1 × ", "")


@dataclass(kw_only=True, slots=True)
class Run:
    """The run that is meant: its name, its settings, and whether it goes on."""

    name: str
    values: dict[str, Any]
    why: str
    step: int = 0
    anew: bool = False
    """Whether files of an earlier run of this name are to be moved aside first."""


def nodes_of(
    addresses: Mapping[str, str],
    looks: Mapping[str, Any],
    told: Mapping[str, Any],
    processes: Mapping[str, int],
    device: str = "auto",
) -> list[Node]:
    """Each by its name, in the cluster's order."""
    found = []
    for name, address in addresses.items():
        look = looks[name]
        cuda = device != "cpu" and bool(told[name].get("cuda")) and bool(look["cards"])
        count = int(processes.get(name) or (len(look["cards"]) if cuda else 1))
        memory = min(card["bytes"] for card in look["cards"]) if cuda else look["memory_bytes"] // count
        found.append(
            Node(
                name=name,
                address=address,
                look=look,
                device="cuda" if cuda else "cpu",
                processes=count,
                bytes=memory,
            )
        )
    return found


# -- what stands in the way ------------------------------------------------------------------------------------


def unequal(told: dict[str, dict[str, str | None]]) -> list[str]:
    """Versions that must agree and do not. Code, models and data are not among them: a launch brings them."""
    verdict = versions.judge(told)
    odd = [entry for entry in verdict.odd if entry.key.partition(" ")[0] not in ("train", "model", "data")]
    causes = [entry for entry in odd if entry.cause == entry.key]
    findings = []
    for key, same in itertools.groupby(causes, key=lambda entry: entry.key):
        entries = list(same)
        where = ",".join(entry.node for entry in entries)
        has = entries[0].value or "none"
        usual = f", the others {entries[0].expected}" if len(entries) < len(told) and entries[0].expected else ""
        fix = re.sub(rf"(?<![\w-]){re.escape(entries[0].node)}(?![\w-])", where, entries[0].fix)
        fix = fix if len(entries) < len(told) else fix.replace(f" LIMIT={where}", "")
        what = f"{where}: {entries[0].what}" if entries[0].value is None else f"{where}: {key} is {has}{usual}"
        findings.append(f"{what}\nfix: {fix}   (make check-versions shows all)")
    return findings


def closed(nodes: list[Node]) -> list[str]:
    """One finding for each node that others do not reach; who reaches nobody is to blame himself."""
    apart = {node.name: set(node.look["missed"]) for node in nodes}
    cut_off = {name for name, missed in apart.items() if len(nodes) > 2 and len(missed) == len(nodes) - 1}
    findings = []
    for node in nodes:
        callers = [name for name, missed in apart.items() if node.name in missed and name not in cut_off - {node.name}]
        if node.name in cut_off or callers:
            what = f"it does not answer {', '.join(callers)}" if callers else "it reaches no other node"
            fix = f"make bootstrap PHASE=firewall LIMIT={node.name}; a rule of your own: sudo nft list ruleset on it"
            findings.append(
                f"{node.name}: {what} on the ports of runs: a firewall there, or a router that isolates Wi-Fi clients\n"
                f"fix: {fix}; or leave it out: -e nodes={others(nodes, node)}"
            )
    return findings


def in_the_way(nodes: list[Node], free_needed: Mapping[str, int]) -> list[str]:
    findings = [
        f"{node.name}: {node.look['way']['why']}\n"
        f"fix: make bootstrap PHASE=static_ip LIMIT={node.name}, or leave it out: -e nodes={others(nodes, node)}"
        for node in nodes
        if node.look["way"]["why"]
    ]
    findings += [
        f"{node.name}: port {taken} is taken there, by another program or by a run that lost its files\n"
        f"fix: make stop; if it is another program (sudo ss -ltnp 'sport = :{taken}'): end it, or "
        f"-e motley_render_presence_port={taken + 1}"
        for node in nodes
        if (taken := node.look["port_taken"])
    ]
    findings += closed(nodes)
    for node in nodes:
        needed = free_needed[node.name] + KEPT_FREE_BYTES
        if node.look["free_bytes"] < needed:
            findings.append(
                f"{node.name}: {gb(node.look['free_bytes'])} are free, {gb(needed)} are needed "
                f"(the base model, and {gb(KEPT_FREE_BYTES)} for checkpoints)\n"
                f"fix: make room on it (sudo du -xhd1 / | sort -h), or leave it out: -e nodes={others(nodes, node)}"
            )
    return findings


def does_not_fit(nodes: list[Node], memory: dict[str, Any]) -> list[str]:
    """Each node that lacks memory with its numbers; the mildest setting that helps, or the nodes that would do."""
    small = [entry for entry in memory["nodes"] if not entry["fits"]]
    findings = []
    for entry in small:
        needs = f"{gb(entry['needs_bytes'])} are needed, it has {gb(entry['has_bytes'])} (92 % of it is counted on)"
        findings.append(f"{entry['name']} has too little memory for {memory['model']}: {needs}")
    if findings:
        fitting = [node.name for node in nodes if node.name not in {entry["name"] for entry in small}]
        ways = [f"-e nodes={','.join(fitting)}"] if fitting else []
        fixes = [entry["fix"] for entry in small]
        if all(fixes):
            together = {name: value for fix in fixes for name, value in fix.items()}
            ways.insert(0, " ".join(f"-e {name}={str(value).lower()}" for name, value in together.items()))
        findings.append(f"fix: {', or '.join(ways) or 'choose a smaller model; no setting makes it fit here'}")
    return ["\n".join(findings)] if findings else []


def who_has(key: str, told: Mapping[str, Mapping[str, str | None]]) -> dict[str, bool]:
    """Which nodes have a model or rows, whole and alike: by the hashes that the relay left there."""
    values = [facts.get(key) for facts in told.values()]
    usual = next((value for value in values if value and " " not in value), None)
    return {name: usual is not None and facts.get(key) == usual for name, facts in told.items()}


def others(nodes: list[Node], left_out: Node) -> str:
    return ",".join(node.name for node in nodes if node is not left_out) or "OTHERS"


# -- which run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """A run that some node knows."""

    launched: dict[str, Any]
    step: int
    done: bool


def known_runs(looks: Mapping[str, Any]) -> dict[str, Known]:
    """By name, from all nodes: the furthest step, and the settings wherever they are written."""
    found: dict[str, Known] = {}
    for look in looks.values():
        for name, run in look["runs"].items():
            was = found.get(name, Known({}, 0, False))
            found[name] = Known(was.launched or run["launched"], max(was.step, run["step"]), was.done or run["done"])
    return dict(sorted(found.items()))


Chosen = tuple["Run | None", list[str]]
"""A run, or what stands against it."""


def choose_run(values: dict[str, Any], about: dict[str, Any], runs: dict[str, Known]) -> Chosen:
    """`resume: NAME` takes that run's settings; a run without a name gets that of model and data, with a number."""
    resume = str(values.get("resume", "auto"))
    if resume not in ("auto", "never"):
        return resumed(resume, values, about, runs)
    anew = resume == "never"
    name = str(values.get("run") or free_name(values, about, runs, anew=anew))
    known = None if anew else runs.get(name)
    if known and known.done:
        return None, [f"run: '{name}' is done\nfix: -e run={unused(name, runs)}, or begin it anew: -e resume=never"]
    if known and (changed := conflicts(values, about, known)):
        return None, [f"{changed}\nfix: leave that out, or begin a new run: -e run={unused(name, runs)}"]
    before, step = (known.launched.get("given", {}), known.step) if known else ({}, 0)
    # A restart within the run must go on, not begin anew: nodes are told `auto` in any case.
    merged = {**before, **values, "run": name, "resume": "auto"}
    return Run(name=name, values=merged, why=start_of(step), step=step, anew=anew), []


def resumed(name: str, values: dict[str, Any], about: dict[str, Any], runs: dict[str, Known]) -> Chosen:
    if name not in runs:
        near = difflib.get_close_matches(name, runs, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(runs) or 'none yet'}"
        return None, [f"resume: no node knows a run '{name}'\nfix: {hint}"]
    known = runs[name]
    own = {key: value for key, value in values.items() if key != "resume"}
    if changed := conflicts(own, about, known):
        return None, [f"{changed}\nfix: leave that out, or begin a new run: -e run={unused(name, runs)}"]
    merged = {**known.launched.get("given", {}), **own}
    if "model" not in merged:
        return None, [f"resume: how {name} was launched is not written down any more\nfix: give its settings again"]
    if values.get("run") not in (None, name):  # a branch: its own files, from the other one's last step on
        why = f"begins where {name} is, at step {known.step}"
        return Run(name=str(values["run"]), values={**merged, "resume": name}, why=why, step=known.step), []
    return Run(name=name, values={**merged, "run": name}, why=start_of(known.step), step=known.step), []


def start_of(step: int) -> str:
    return f"goes on after step {step}" if step else "from the start"


def conflicts(values: dict[str, Any], about: dict[str, Any], known: Known) -> str:
    """A setting that decides the loss curve and is not what the run began with."""
    before = known.launched.get("all", {})
    for name in (*about["math"], "model", "dataset"):
        if name in values and name in before and about["all"][name] not in (before[name], "auto"):
            return f"{name}: the run was launched with {before[name]}, {about['all'][name]} is asked for"
    return ""


def free_name(values: dict[str, Any], about: dict[str, Any], runs: dict[str, Known], *, anew: bool) -> str:
    """MODEL-DATA; the same again goes on where it stopped, anything else gets the next number."""
    stem = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{about['model']['name']}-{about['dataset']['name']}").strip("-.").lower()
    for count in itertools.count(1):
        name = stem if count == 1 else f"{stem}-{count}"
        known = runs.get(name)
        if known is None or (not anew and not known.done and not conflicts(about["all"], about, known)):
            return name
    raise AssertionError


def unused(name: str, runs: dict[str, Known]) -> str:
    stem = re.sub(r"-\d+$", "", name)
    return next(f"{stem}-{count}" for count in itertools.count(2) if f"{stem}-{count}" not in runs)


# -- how fast --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Speeds:
    """What is known of how fast the nodes compute."""

    rows_per_s: dict[str, float] = field(default_factory=dict)
    fixed_s: dict[str, float] = field(default_factory=dict)
    """Of a step, whatever its rows; only where that was measured."""
    why: str = "not measured yet"


def speeds(
    nodes: list[Node], settings: dict[str, Any], calibrated: Mapping[str, Mapping[str, float]] | None = None
) -> Speeds:
    """From the newest run that computed the same, else as `train calibrate` measured it on the node."""
    rates: dict[str, float] = {}
    fixed: dict[str, float] = {}
    sources: list[str] = []
    for node in nodes:
        for entry in node.look["measured"]:
            before = entry["launched"].get("all", {})
            if before and all(before.get(name) == settings.get(name) for name in COUNTED_ALIKE):
                for name, rate in entry["speeds"].items():
                    rates.setdefault(name.partition(":")[0], rate)
                sources.append(entry["run"])
                break
    for name, speed in (calibrated or {}).items():
        if name not in rates:
            rates[name], fixed[name] = speed["rows_per_s"], speed["fixed_s"]
            sources.append("a calibration")
    known = {node.name: rates[node.name] * node.processes for node in nodes if node.name in rates}
    return Speeds(known, fixed, f"measured in {', '.join(dict.fromkeys(sources))}") if known else Speeds()


def link(nodes: list[Node], proof_mbit: float) -> tuple[float, str]:
    """Mbit/s of the slowest way between two nodes, and how that is known."""
    if proof_mbit:
        return proof_mbit, "measured by bootstrap's proof"
    told = {node.name: node.look["way"]["mbit"] for node in nodes if node.look["way"].get("mbit")}
    if not told:
        return 1000.0, "taken for granted: no network card tells its speed"
    slowest = min(told, key=lambda name: told[name])
    return float(told[slowest]), f"as {slowest}'s network card says"


def outlook_words(nodes: list[Node], known: Speeds, settings: Mapping[str, Any], mbit: float) -> list[str]:
    """What `python -m train plan` is asked to foretell the run from. Empty until every node's speed is known."""
    if len(known.rows_per_s) < len(nodes):
        return []
    rates = ",".join(f"{node.name}={known.rows_per_s[node.name]:.4f}" for node in nodes)
    fixed = ",".join(f"{name}={seconds:.4f}" for name, seconds in known.fixed_s.items() if seconds >= 1e-4)
    words = [
        "--speeds",
        rates,
        *(["--fixed", fixed] if fixed else []),
        "--rows-per-step",
        str(settings["rows_per_step"]),
        "--wire",
        settings["wire"],
    ]
    wired = {node.name: node.look["way"]["mbit"] for node in nodes if node.look["way"].get("mbit")}
    wireless = [node.name for node in nodes if node.look["way"].get("wireless")]
    words += ["--wireless", ",".join(wireless)] if wireless else []
    words += ["--sync", settings["sync"]]
    if 0 < len(wired) < len(nodes):  # what was measured is the others' link: Wi-Fi tells no speed of its own
        words += ["--links", ",".join(f"{name}={max(speed, mbit):.0f}" for name, speed in wired.items())]
    return words


def slows_the_run(outlook: Mapping[str, Any]) -> list[str]:
    """Nodes without which a step would be quicker, with both figures."""
    if not outlook or outlook["best"]["rows_per_s"] < 1.02 * outlook["together"]["rows_per_s"]:
        return []
    rest = list(outlook["best"]["shares"])
    slow = ", ".join(outlook["slower_with"])
    figures = (
        f"{outlook['together']['step_s']:.2f} s a step with it, "
        f"{outlook['best']['step_s']:.2f} s on {', '.join(rest)} alone: -e nodes={','.join(rest)}"
    )
    return [f"{slow} slows the run: {figures}"]


def advice(outlook: Mapping[str, Any]) -> list[str]:
    """What train/outlook.py says of each node and of a slow network, ready to be set."""
    if not outlook:
        return []
    said = list(outlook["sentences"])
    if outlook["ways"]:
        said.append(f"adding up takes {outlook['sync_part']:.0%} of a step; instead, in this order:")
    for way in outlook["ways"]:
        wish = " ".join(f"-e {name}={value}" for name, value in way["settings"].items())
        figures = f"{way['step_s']:.2f} s a step, {way['rows_per_s']:.2f} rows/s, {way['sync_part']:.0%} adding up"
        said.append(f"  {wish:<32} {figures} ({way['costs']})")
    return said


# -- what a person sees ----------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class Plan:
    run: Run
    nodes: list[Node]
    settings: dict[str, Any]
    """Every setting of the run, as it will be."""
    model: dict[str, Any]
    dataset: dict[str, Any]
    memory: dict[str, Any]
    link_mbit: float
    link_why: str = ""
    help: dict[str, str] = field(default_factory=dict)
    """Of each setting."""
    model_bytes: int = 0
    shape: str = ""
    """What `python -m train plan` knows the model's shape by."""
    here: dict[str, bool] = field(default_factory=dict)
    """Which nodes have the model already."""
    speeds: Speeds = field(default_factory=Speeds)
    outlook: dict[str, Any] = field(default_factory=dict)
    """What `python -m train plan --speeds` foretells; empty until every node's speed is known."""
    warnings: list[str] = field(default_factory=list)

    @property
    def sync_s(self) -> float:
        wire = self.settings.get("wire", "auto")
        seconds: dict[str, float] = self.memory["wire_seconds_per_step"]
        if wire in seconds:
            return seconds[wire]
        return seconds["fp32"] if seconds["fp32"] <= 0.5 else seconds["bf16"]  # as train/sync.py chooses


def lines(plan: Plan) -> list[str]:
    settings, memory = plan.settings, plan.memory
    way = "all weights" if settings["method"] == "full" else f"LoRA r{settings['lora_r']} {settings['lora_targets']}"
    weights = f"{memory['trained_weights'] / 1e6:.1f} M weights"
    steps = f"{settings['max_steps']} steps" if settings["max_steps"] else f"{settings['epochs'] or 1:g} epochs"
    rows = f"{settings['rows_per_step']} rows × {settings['max_seq_length']} tokens a step"
    head = f"plan  {plan.run.name} · {plan.model['name']} · {way} {weights} · {rows} · {steps}"
    table: list[tuple[str, ...]] = [("node", "computes on", "memory", "network", "free", "rows a step")]
    needs = {entry["name"]: entry for entry in memory["nodes"]}
    shares = shared_rows(plan)
    for node in plan.nodes:
        entry, card = needs[node.name], node.look["way"]
        speed = f"{card['mbit']} Mbit/s" if card.get("mbit") else "Wi-Fi" if card.get("wireless") else ""
        each = f" × {node.processes}" if node.processes > 1 else ""
        table.append(
            (
                node.name,
                node.computes_on,
                f"{entry['needs_bytes'] / GIB:.1f} of {node.bytes / GIB:.0f} GB{each}",
                f"{card.get('card', '?')} {speed}".strip(),
                gb(node.look["free_bytes"]),
                shares[node.name],
            )
        )
    lines_ = [head, *drawn(table)]
    lines_ += [f"  {word:<9} {text}" for word, text in summary(plan) if text]
    lines_ += [f"  {said}" for said in advice(plan.outlook)]
    return lines_ + [f"  ⚠ {warning}" for warning in plan.warnings]


def shared_rows(plan: Plan) -> dict[str, str]:
    if plan.settings["balance"] == "even":
        return {node.name: "even" for node in plan.nodes}
    if not plan.outlook:
        return {node.name: "found while it runs" for node in plan.nodes}
    shares = plan.outlook["together"]["shares"]
    return {name: f"{count}  ({plan.speeds.rows_per_s[name]:.2f} rows/s)" for name, count in shares.items()}


def summary(plan: Plan) -> list[tuple[str, str]]:
    sent, count = plan.memory["wire_bytes_per_step"], len(plan.nodes)
    network = f"{plan.link_mbit:.0f} Mbit/s, {plan.link_why}"
    if count > 1:
        network += f"; {sent['fp32'] / 1e6:.1f} MB a step and node: {plan.sync_s:.2f} s"
    missing = [name for name, here in plan.here.items() if not here]
    where = f"{gb(plan.model_bytes)} to {', '.join(missing)}" if missing else "on every node"
    model = f"{plan.model['reason']}; {where}"
    speed = ""
    if plan.outlook:
        step_s = foretold(plan)["step_s"]
        speed = f"{step_s:.2f} s a step ({plan.speeds.why})"
        if steps := plan.settings["max_steps"]:
            speed += f", {duration(step_s * max(0, steps - plan.run.step))} in all"
    return [
        ("model", model),
        ("data", plan.dataset["reason"]),
        ("network", network if count > 1 else ""),
        ("foretold", speed),
        ("run", plan.run.why if plan.run.why != "from the start" else ""),
    ]


def foretold(plan: Plan) -> dict[str, Any]:
    """Kept with the run, so that its report can hold it against what came. Empty until speeds are known."""
    if not plan.outlook:
        return {}
    together, rows = plan.outlook["together"], plan.settings["rows_per_step"]
    if plan.settings["balance"] == "even":
        even = {node.name: round(rows / len(plan.nodes), 1) for node in plan.nodes}
        return {"step_s": together["step_s"] * plan.outlook["over_even_split"], "shares": even}
    return {"step_s": together["step_s"], "shares": together["shares"]}


def drawn(table: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    ]


def gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def raw_folder(plan: Plan) -> str:
    """Where the head keeps a data set that was brought to it, as it came; empty where it makes the data itself."""
    if plan.dataset["embedded"]:
        return ""
    return f"{plan.nodes[0].look['home']}/data/raw/{plan.dataset['local_name']}"


def prepare_words(plan: Plan) -> list[str]:
    """How the head makes rows of the data: `python -m train` …"""
    settings, raw, file = plan.settings, raw_folder(plan), plan.dataset["file"]
    source = f"{raw}/{file.rpartition('/')[2]}" if file else raw or plan.dataset["name"]
    model = f"{plan.nodes[0].look['home']}/models/base/{plan.model['folder_name']}"
    words = ["prepare", "--json", f"--dataset={source}", f"--model={model}"]
    names = ("max_seq_length", "train_on", "eval_fraction")
    words += [f"--{name.replace('_', '-')}={settings[name]}" for name in names]
    return words if settings["pack"] else [*words, "--no-pack"]


def as_data(plan: Plan) -> dict[str, Any]:
    """For the steps that follow, and for `make plan JSON=1`."""
    return {
        "run": plan.run.name,
        "step": plan.run.step,
        "anew": plan.run.anew,
        "settings": plan.settings,
        "help": plan.help,
        "given": {name: plan.settings[name] for name in plan.run.values},
        "foretold": foretold(plan),
        "model": plan.model,
        "dataset": plan.dataset,
        "memory": plan.memory,
        "lack_model": [name for name, here in plan.here.items() if not here],
        "raw": raw_folder(plan),
        "prepare": prepare_words(plan),
        "link_mbit": plan.link_mbit,
        "speeds": plan.speeds.rows_per_s,
        "warnings": plan.warnings,
        "nodes": [
            {key: value for key, value in asdict(node).items() if key != "look"}
            | {"card": node.look["way"].get("card"), "home": node.look["home"], "cores": node.look["cores"]}
            for node in plan.nodes
        ],
    }
