"""Asks each machine for its facts, its runs and its versions; and the head whether the model that is meant is exact."""

from __future__ import annotations

from typing import Any

from console import hub
from console.infra import Facts, OnNode
from train.errors import BadInput
from train.plan.model.catalogue import read_config
from train.plan.model.sources import BaseModel
from train.plan.settings import request


def look(known: Facts, args: Facts) -> OnNode:
    is_head = known["inventory_hostname"] == known["ansible_play_hosts"][0]
    asked = known.get("motley_request_checked", {}).get("asked", {}).get("values")  # a script of one's own has none
    if not (is_head and asked):
        return OnNode("launch_info", args)
    hub_asked = hub.Asked(hub.token(known["hostvars"][known["inventory_hostname"]]))
    params = args | {"prove": config_to_prove(asked, hub_asked)}
    return OnNode("launch_info", params, beside={"hub": hub_asked.answers})


def config_to_prove(values: dict[str, Any], hub_asked: hub.Asked) -> dict[str, Any]:
    """The config.json of the model; empty where none is fine-tuned, and where it comes with Motley, whose tests do it.
    What is wrong with a request is the plan's to say."""
    try:
        asked = request.read(values, hub.FETCHED)
        if asked.config.RESULT != "adapter" or asked.model.embedded:
            return {}
        if asked.model.folder:
            return dict(read_config(asked.model.folder))
        return hub_asked.files(BaseModel.of(asked.model))[0]
    except (BadInput, OSError):
        return {}
