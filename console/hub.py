"""The Hugging Face hub as a launch sees it: the token, which stays on the controller, and its refusals in words."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from console.command_line import commands_as_typed
from train.cache import cache_dir
from train.errors import BadInput
from train.plan.model import weight_files
from train.plan.model.catalogue import Dataset, read_config
from train.plan.model.sources import BaseModel, DataSource

ROOT = Path(__file__).parents[1]
FETCHED = cache_dir() / "fetched"
"""The controller's own home of `python -m train`: what it fetched for the nodes."""


def token(variables: Mapping[str, Any]) -> dict[str, str]:
    """The hub's token as an environment for programs on the controller; from ansible-vault, else from our own."""
    token_text = unlocked(variables, "motley_hub_token") or os.environ.get("HF_TOKEN", "")
    return {"HF_TOKEN": token_text} if token_text else {}


def unlocked(variables: Mapping[str, Any], name: str) -> str:
    """What ansible-vault has locked, inside Ansible, which has its password. BadInput where it has not."""
    try:
        return str(variables.get(name) or "").strip()
    except Exception as locked:
        if "vault" not in str(locked).lower():
            raise
        fix = "fix: ./motley launch --vault ask   (ansible-playbook: --ask-vault-pass)"
        raise BadInput(f"{name} is locked by ansible-vault", fix=fix) from None


ModelConfig = dict[str, Any]
"""A model's config.json: whatever its architecture needs."""


class Fetched(TypedDict, total=False):
    """What `python -m train fetch --json` says."""

    ok: bool
    gated: bool
    failures: list[str]
    config: str
    bytes: int
    folder: str
    files: dict[str, dict[str, str | int]]


class Held(TypedDict, total=False):
    """What the hub holds of a model; `failed` says why it could not be asked."""

    failed: str
    config: ModelConfig
    bytes: int


def files(model: BaseModel, token: dict[str, str]) -> tuple[ModelConfig, int]:
    """A model's config.json and the size of its files, in a folder here or at the hub."""
    if model.folder:
        folder = Path(model.folder)
        weight_files.require(folder)
        weight_files.require_tokens(folder)
        return dict(read_config(folder)), sum(f.stat().st_size for f in folder.rglob("*"))
    done = looked(fetch_words(model), token)
    seen = answer(done.stdout, done.stderr, model.repo, token)
    return json.loads(Path(seen["config"]).read_text()), int(seen["bytes"])


class Asked:
    """What the hub holds of the models of one launch: it is asked once for each, also where it does not answer."""

    def __init__(self, token: dict[str, str], before: Mapping[str, Any] | None = None) -> None:
        """`before`: the answers that a step before this one had; Ansible's values are types of its own."""
        self.token = token
        self.answers: dict[str, Held] = json.loads(json.dumps(before or {}))

    def files(self, model: BaseModel) -> tuple[ModelConfig, int]:
        if model.folder:
            return files(model, self.token)
        if model.repo not in self.answers:
            self.answers[model.repo] = self._ask(model)
        held = self.answers[model.repo]
        if "failed" in held:
            raise BadInput(held["failed"])
        return held["config"], held["bytes"]

    def _ask(self, model: BaseModel) -> Held:
        try:
            config, size = files(model, self.token)
        except BadInput as why:
            return {"failed": str(why)}
        return {"config": config, "bytes": size}


def require_data(data: Dataset, token: dict[str, str]) -> None:
    """BadInput where the hub has no such part of a data set. Where it cannot be asked, fetching will say why."""
    for part in data.each:
        if part.data.hub:
            done = looked(["fetch", "--dataset", DataSource.of(part.data).fetched_as], token)
            lines = done.stdout.strip().splitlines()
            if lines and (problem := json.loads(lines[-1]).get("problem")):
                raise BadInput(problem)


def looked(words: list[str], token: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What the training package says of that at the hub, without fetching it."""
    command, env = [sys.executable, "-m", "train", *words, "--look", "--json"], environment() | token
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=env)


def environment() -> dict[str, str]:
    """The environment of programs here, with the controller's cache as home: a node's ~/ai-cluster is not meant."""
    return dict(os.environ) | {"PYTHONPATH": str(ROOT), "MOTLEY_HOME": str(FETCHED), "PYTHONDONTWRITEBYTECODE": "1"}


def answer(stdout: str, stderr: str, repo: str, token: dict[str, str]) -> Fetched:
    """What `python -m train fetch … --json` answered; BadInput where it failed."""
    try:
        fetched: Fetched = json.loads(stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise BadInput(f"the training package did not answer: {(stderr.strip() or 'no message')[-300:]}") from None
    if not fetched.get("ok"):
        raise BadInput(gated(repo, bool(token)) if fetched.get("gated") else str(fetched["failures"][0]))
    return fetched


def fetch_words(model: BaseModel) -> list[str]:
    return ["fetch", "--model", model.fetched_as, *(["--in-4bit"] if model.in_4bit else [])]


def gated(repo: str, has_token: bool) -> str:
    """A gated model is the one refusal that a person can fix, so it shows how, from the licence to the vault."""
    vault = shlex.quote(f"{commands_as_typed.inventory()}/group_vars/all.yml")
    if has_token:
        return (
            f"{repo} is gated, and the token that was given has no access to it\n"
            f"accept its licence with that account: https://huggingface.co/{repo} (to be granted may take a while)\n"
            "fix: then run again; another token: https://huggingface.co/settings/tokens"
        )
    return (
        f"{repo} is gated, and there is no token: accept its licence at https://huggingface.co/{repo}\n"
        "and make a token of the type Read at https://huggingface.co/settings/tokens; it stays on this controller\n"
        f"fix: .venv/bin/ansible-vault encrypt_string --stdin-name motley_hub_token >> {vault}"
        " (type the token, Enter, Ctrl-D), then ./motley launch --vault ask; or once: HF_TOKEN=… before the command"
    )
