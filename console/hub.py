"""The Hugging Face hub as a launch sees it: the token, which stays on the controller, and its refusals in words."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from console.launch_request import Refused

VAULT = "ansible-vault encrypt_string --stdin-name motley_hub_token >> inventory/homelab/group_vars/all.yml"


def token(variables: Mapping[str, Any]) -> dict[str, str]:
    """As an environment for programs here on the controller; from ansible-vault, else from this environment."""
    try:
        found = str(variables.get("motley_hub_token") or "").strip()
    except Exception as locked:
        if "vault" not in str(locked).lower():
            raise
        raise Refused(
            "motley_hub_token is locked by ansible-vault\nfix: add --ask-vault-pass (make launch: VAULT=ask)"
        ) from None
    found = found or os.environ.get("HF_TOKEN", "")
    return {"HF_TOKEN": found} if found else {}


def look_words(model: dict[str, Any]) -> list[str]:
    return [*fetch_words(model), "--look"]


def fetch_words(model: dict[str, Any]) -> list[str]:
    name = model["name"] if model["source"] == "catalogue" else model["hub"]
    return ["fetch", "--model", str(name), *(["--in-4bit"] if model.get("in_4bit") else [])]


def in_words(failure: str, about: dict[str, Any], has_token: bool) -> str:
    """A gated model is the one refusal that a person can mend, so it says how, from the licence to the vault."""
    if " is gated" not in failure:
        return failure
    repo = (about.get("hub_4bit") if about.get("in_4bit") else about.get("hub")) or about["name"]
    if has_token:
        return (
            f"{repo} is gated, and the token that was given has no access to it\n"
            f"accept its licence with that account: https://huggingface.co/{repo} (to be granted may take a while)\n"
            "fix: then run again; another token: https://huggingface.co/settings/tokens"
        )
    return (
        f"{repo} is gated, and there is no token: accept its licence at https://huggingface.co/{repo}\n"
        "and make a token of the type Read at https://huggingface.co/settings/tokens; it stays on this controller\n"
        f"fix: {VAULT}   then launch with --ask-vault-pass (or once: HF_TOKEN=… before the command)"
    )
