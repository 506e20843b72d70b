"""The verdict on a model, from the cache or by a new proof; and the gate of a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from train.cache import build_once
from train.data.rows import PackedRows, Rows
from train.errors import BadInput
from train.plan.model import verdict
from train.plan.model.catalogue import HubConfig, read_config
from train.plan.model.verdict import Verdict
from train.plan.placement.decisions import Decisions
from train.plan.settings.read_settings import RunConfig, SftConfig
from train.proof import exact, reasons


def require_exact(config: RunConfig, decisions: Decisions, base: Path, rows: Iterable[Rows]) -> list[str]:
    """The verdict in words; BadInput where the model cannot be trained on these rows. unsloth changes a model, and
    looks itself at what it has made of it; the models that come with Motley are proven by its tests."""
    if not isinstance(config, SftConfig) or decisions.backend != "hf" or config.start_model().embedded:
        return []
    proof = verdict_of(read_config(base))
    replace(config, precision=decisions.precision).proven(proof)
    if proof.unpacked and any(isinstance(part, PackedRows) and part.packs for part in rows):
        raise BadInput(
            f"the rows hold several samples each, and with this model {proof.unpacked}",
            f"model: {base}",
            "prepare the data set again with pack=false",
        )
    return [f"proof: {proof.line}"]


def verdict_of(config: HubConfig) -> Verdict:
    """The verdict that is kept on this machine, or a new one; several processes share one proof."""
    folder = build_once(verdict.folder_of(config), lambda unfinished: verdict.keep(unfinished, prove(config)))
    return verdict.kept(folder)


def prove(config: HubConfig) -> Verdict:
    """Tries a miniature made by the config as transformers knows it; no code that comes with a model is run."""
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        try:
            known = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # transformers reads such a file in many places
            why = reasons.with_cause("transformers cannot read its config.json", error)
            return Verdict(family=str(config.get("model_type", "?")), refused=why)
        return exact.prove(known)
