"""What a run will be: one rule for the plan of a launch and for the trainer. Pure, and without torch.

A launch decides for all nodes that are to take part, and writes it into the run's settings; the trainer then finds
nothing open, and checks. Where `train run` is started by hand, its first generation chooses (decided.py). From then on
it is obeyed, whoever leaves or comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from train.errors import BadInput
from train.plan.estimate import pipeline_prediction, sizes
from train.plan.launch import obstacles
from train.plan.launch.new_or_resumed import choose_run, known_runs
from train.plan.launch.plan import Plan
from train.plan.machines.nodes import Device, LaunchFacts, PlanNode, Speeds, link, machines, nodes_of, speeds
from train.plan.model import catalogue
from train.plan.model.memory import GIB, Setup, fits, parameters
from train.plan.placement import streaming
from train.plan.placement.fit import Decisions, Fit, cut_by_speed, fit, predict, setup_for, with_pipes
from train.plan.placement.pipeline_placement import bubbles, may_be_cut, staged
from train.plan.settings.config import RunConfig
from train.plan.settings.pipes import parse_pipes
from train.plan.settings.request import Request, about_model
from train.plan.speed import speedup

MIXES = "unsloth lets samples of a gemma2 model that are computed together see each other"
UNCOMPARED = "under unsloth nothing of this family is compared with the files, which may lack a weight"
EIGHT_BIT = "in 8 bit the loss depends a little on how rows are shared: LLM.int8 looks at the whole batch"
UNQUANTISED = "the model before it was quantised"
SLOW = "on a CPU it is slow, and meant for tests"


def decide(request: Request, facts: LaunchFacts) -> Plan:
    """The run that is launched, or BadInput with everything that blocks it."""
    refuse(obstacles.running(facts.looks))
    request = choose_run(request, known_runs(facts.looks, facts.launched))
    nodes = nodes_of(facts, request.config.device)
    refuse(obstacles.unequal(facts.versions) + obstacles.blocking(nodes))
    mbit, link_why = link(nodes, facts.proof_mbit)
    model, size, lacking, fitted = fit_base(request, facts, nodes, mbit)
    refuse(too_long(model["name"], request.config, fitted.facts))
    kept = checkpoint_bytes(fitted, request.config.keep)
    refuse(obstacles.does_not_fit(nodes, fitted) + obstacles.blocking(nodes, dict.fromkeys(lacking, size), kept))
    decided = {name: value for name, value in fitted.decisions.as_dict().items() if name in request.settings}
    settings = request.settings | decided  # once for all nodes, whoever leaves
    streams = [node.node.node for node in fitted.nodes if node.place.weights == "stream"]
    parts = staged(fitted.pipes, [node.node for node in fitted.nodes]) if fitted.cut else []
    known = speeds(nodes, settings, facts.calibrated, request.config.COUNTED, streams=streams, staged=parts)
    fitted, known, computing, prediction = foresee(request.config, nodes, fitted, known, mbit)
    if settings.get("pipes") == "auto":
        settings["pipes"] = fitted.pipes
    wireless = [node.name for node in nodes if node.look["route"]["wireless"]]
    return Plan(
        request=request,
        nodes=nodes,
        settings=settings,
        model=model,
        model_bytes=size,
        lacking=lacking,
        old_code=[name for name, versions in facts.versions.items() if versions["train"] != facts.code],
        fit=fitted,
        link_why=link_why,
        speeds=known,
        prediction=prediction,
        sizes=sizes.sizes(request.config, fitted, computing, prediction),
        warnings=[
            *(f"{why}; it is skipped" for why in facts.off.values()),
            *obstacles.larger_card_idle(nodes),
            *speedup.slows_the_run(prediction),
            *(bubbles(fitted.pipes, request.config.rows_per_step) if fitted.cut else []),
            *(f"{name} is on Wi-Fi: a cable would make every step quicker" for name in wireless),
        ],
    )


def too_long(model: str, config: RunConfig, facts: catalogue.AnyFacts | None) -> list[str]:
    """Rows beyond the positions that a model has seen."""
    rows = config.max_seq_length
    if not isinstance(facts, catalogue.Facts) or rows <= facts.positions:
        return []
    return [
        f"rows have up to {rows} tokens, {model} was made for {facts.positions}\n"
        f"fix: -e max_seq_length={facts.positions}, or a model that was made for longer texts"
    ]


def foresee(
    config: RunConfig, nodes: list[PlanNode], fitted: Fit, known: Speeds, mbit: float
) -> tuple[Fit, Speeds, list[speedup.Machine], dict[str, Any]]:
    """What the nodes do together, once all their speeds are known; by these the model is cut, or cut at all."""
    if len(known.rows_per_s) < len(nodes):
        return fitted, known, [], {}
    if not fitted.cut:
        computing = machines(nodes, known, mbit)
        prediction = predict(fitted, computing, config)
        faster = cut_instead(config, nodes, fitted, known, prediction)
        if not faster:
            return fitted, known, computing, prediction
        fitted, known = faster
    fitted = cut_by_speed(fitted, config, known.rows_per_s)
    return fitted, known, [], pipeline_prediction.predict(fitted, config, known.rows_per_s, known.fixed_s)


def cut_instead(
    config: RunConfig, nodes: list[PlanNode], streamed: Fit, known: Speeds, prediction: Mapping[str, Any]
) -> tuple[Fit, Speeds] | None:
    """A pipe of all nodes, where that is faster than to stream the base; for who has set neither."""
    all_stream = all(one.place.weights == "stream" and not one.node.weights for one in streamed.nodes)
    several = len(nodes) > 1 and all(node.processes == 1 for node in nodes)
    if not (all_stream and several and may_be_cut(config, streamed.setup)):
        return None
    own: dict[str, Any] = {"pipes": "+".join(node.name for node in nodes)}
    config, devices = replace(config, **own), [node.node for node in streamed.nodes]
    about: dict[str, Any] = {"model": streamed.model, "facts": streamed.facts, "mbit": streamed.link_mbit}
    cut = fit(config, streamed.decisions, devices, **about)
    step_s = prediction["together"]["step_s"]
    found = pipeline_prediction.faster_than_streamed(cut, config, known.rows_per_s, step_s)
    return found and (found[0], replace(known, rows_per_s=found[1]))


def checkpoint_bytes(fitted: Fit, keep: int) -> int:
    """Disk for all checkpoints kept, the best one and the one being written: much where all weights are trained."""
    each = (4 + fitted.setup.optimizer_bytes) * fitted.trained_weights if fitted.setup.full else 0
    return max(obstacles.KEPT_FREE_BYTES, (keep + 2) * each)


def refuse(findings: list[str]) -> None:
    if findings:
        raise BadInput("\n".join(findings))


def fit_base(
    request: Request, facts: LaunchFacts, nodes: list[PlanNode], mbit: float
) -> tuple[dict[str, Any], int, list[str], Fit]:
    """The model as it will be trained: where it comes from and its bytes, which nodes lack it, and whether it fits."""
    config, model, shape = request.config, about_model(request.model), request.model.facts
    if model["source"] == "new":
        return fit_new(request, facts, nodes, mbit)
    devices = [node.as_device(unsloth=bool(facts.versions[node.name].get("unsloth"))) for node in nodes]
    gpu = all(device.is_gpu for device in devices)
    if gpu and model["hub_4bit"] and config.holding.load_in in ("auto", "4bit"):
        settled: dict[str, Any] = {"load_in": choose(config, devices, shape).load_in}
        config = replace(config, **settled)
        model["in_4bit"] = settled["load_in"] == "4bit"
    model["folder_name"] = model["local_name"] + ("-4bit" if model.get("in_4bit") else "")
    lacking = who_lacks(f"model {model['folder_name']}", facts.versions)
    found, size = None, 0
    if not model["embedded"]:
        try:
            found, size = facts.files(model)
        except BadInput:
            if lacking or model["source"] != "catalogue":
                raise
    if found:
        shape = config.facts_of(found, model["folder"] or model["hub"])
    elif model.get("in_4bit") and isinstance(shape, catalogue.Facts):
        shape = replace(shape, on_disk="4bit")
    model["comes_from"] = ("folder" if model["folder"] else "hub") if found else "head"
    if model["folder"]:
        lacking = [node.name for node in nodes]  # it may have changed: the relay looks, file by file
    if model.get("in_4bit"):
        model["reason"] += f", {model['hub_4bit']} is its copy in 4 bit"
    assert shape
    config, why_cut = with_pipes(config, devices, shape)
    found_with = {"model": model["name"], "facts": shape, "mbit": mbit, "why_cut": why_cut}
    fitted = fit(config, choose(config, devices, shape), devices, **found_with)
    return model, size or 2 * parameters(shape), lacking, fitted


def fit_new(
    request: Request, facts: LaunchFacts, nodes: list[PlanNode], mbit: float
) -> tuple[dict[str, Any], int, list[str], Fit]:
    """A model that begins with random weights: nothing is brought."""
    config, model, shape = request.config, about_model(request.model), request.model.facts
    devices = [node.as_device(unsloth=bool(facts.versions[node.name].get("unsloth"))) for node in nodes]
    fitted = fit(config, choose(config, devices, shape), devices, model=model["name"], facts=shape, mbit=mbit)
    return model | {"folder_name": "", "comes_from": ""}, 0, [], fitted


def who_lacks(key: str, versions: Mapping[str, Mapping[str, str | None]]) -> list[str]:
    """Which nodes have not a model, whole and as most have it: by the hashes that the relay left there."""
    values = [facts.get(key) for facts in versions.values()]
    usual = next((value for value in values if value and " " not in value), None)
    return [name for name, facts in versions.items() if usual is None or facts.get(key) != usual]


def choose(config: RunConfig, devices: Sequence[Device], shape: catalogue.AnyFacts | None) -> Decisions:
    """What `auto` becomes on these devices; BadInput where what is set cannot be had there. Without the model's shape
    (a family whose memory is not known) the size of its files has to do."""
    gpu = all(device.is_gpu for device in devices)
    streams = streaming.who_streams(config, shape, setup_for(config, config.gradient_checkpointing), devices)
    if config.optimizer == "adamw8bit" and not gpu:
        without = _names(device for device in devices if not device.is_gpu)
        raise BadInput(f"optimizer: adamw8bit needs a GPU, which {without} has not", fix="use optimizer: adamw")
    backend, why_backend = _backend(config, devices, shape, gpu, streams)
    precision, why_precision = _precision(config, devices, gpu)
    checkpointing, why_checkpointing = _checkpointing(config, backend, gpu)
    setup = setup_for(config, checkpointing)
    load_in, why_load = _load_in(config, devices, shape, setup, gpu)
    reasons = (
        f"backend {backend}: {why_backend}",
        f"precision {precision}: {why_precision}",
        f"base {'not quantised' if load_in == '16bit' else 'in ' + load_in}: {why_load}",
        f"gradient checkpointing {checkpointing}: {why_checkpointing}",
    )
    return Decisions(backend, precision, load_in, checkpointing, reasons)


def _backend(
    config: RunConfig, devices: Sequence[Device], shape: catalogue.AnyFacts | None, gpu: bool, streams: list[str]
) -> tuple[str, str]:
    mixes = shape is not None and shape.family == "gemma2"
    wanted = config.holding.backend
    against = MIXES if mixes else UNCOMPARED if shape is None else ""
    if wanted == "unsloth" and against:
        raise BadInput(f"backend: {against}", fix="use backend: hf")
    without = _names(device for device in devices if not device.unsloth)
    if wanted == "unsloth" and without:
        raise BadInput(f"backend: it is unsloth, which {without} has not", fix="use backend: hf, or other nodes")
    if wanted != "auto":
        return wanted, "as set"
    if not gpu:
        return "hf", f"no GPU on {_names(device for device in devices if not device.is_gpu)}"
    if against:
        return "hf", against
    if without:
        return "hf", f"unsloth is not installed on {without}"
    if parse_pipes(config.holding.pipes) or streams:
        return "hf", f"unsloth cannot stream, and {', '.join(streams)} must" if streams else "unsloth cuts no model"
    return "unsloth", "a GPU and unsloth on every node"


def _precision(config: RunConfig, devices: Sequence[Device], gpu: bool) -> tuple[str, str]:
    if config.precision != "auto":
        return config.precision, "as set"
    if not gpu:
        return "fp32", "a CPU takes part"
    old = _names(device for device in devices if not device.bf16)
    return ("fp16", f"no bf16 on {old}") if old else ("bf16", "every GPU has it")


def _checkpointing(config: RunConfig, backend: str, gpu: bool) -> tuple[str, str]:
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing, "as set"
    if not gpu:
        return "false", "main memory is plenty"
    return ("unsloth", "its own needs least") if backend == "unsloth" else ("true", "saves GPU memory")


def _load_in(
    config: RunConfig, devices: Sequence[Device], shape: catalogue.AnyFacts | None, setup: Setup, gpu: bool
) -> tuple[str, str]:
    on_disk, wanted = shape.on_disk if shape else "", config.holding.load_in
    if on_disk and wanted not in ("auto", on_disk):
        raise BadInput(
            f"load_in: {wanted}, but the model's files are in {on_disk}",
            fix=f"use load_in: {on_disk}, or {UNQUANTISED}",
        )
    asked = on_disk or wanted
    if asked != "auto":
        _require_quantising(asked, devices, setup, instead=UNQUANTISED if on_disk else "load_in: 16bit")
        why = "so are the model's files" if on_disk and wanted == "auto" else "as set"
        more = EIGHT_BIT if asked == "8bit" else SLOW if asked == "4bit" and not gpu else ""
        return asked, f"{why}; {more}" if more else why
    if not gpu or setup.full:
        return "16bit", "all weights are trained" if setup.full else "a CPU takes part"
    small = next((device for device in devices if not _holds_16bit(device, shape, setup)), None)
    if small is None:
        return "16bit", "it fits every GPU"
    return "4bit", f"in 16 bit it does not fit {small.node}'s {small.memory_bytes / GIB:.0f} GB"


def _require_quantising(form: str, devices: Sequence[Device], setup: Setup, *, instead: str) -> None:
    if form == "16bit":
        return
    if setup.full:
        raise BadInput(f"load_in: {form} cannot be trained in full", fix=f"use {instead}")
    if without := _names(device for device in devices if not device.bitsandbytes):
        raise BadInput(
            f"load_in: {form} needs bitsandbytes, which {without} has not",
            fix=f"use {instead}, or only nodes with a GPU",
        )


def _holds_16bit(device: Device, shape: catalogue.AnyFacts | None, setup: Setup) -> bool:
    if shape is None:  # nothing but the size of its files is known: the rest of the memory is for training
        return device.base_bytes <= 0.5 * device.memory_bytes
    return fits(shape, setup, device.memory_bytes)


def _names(devices: Any) -> str:
    return ", ".join(sorted({device.node for device in devices}))
