"""What kubectl says where it fails: each line once, none of its own log, and what is to be done."""

from __future__ import annotations

import re
from collections.abc import Sequence

OWN_LOG = re.compile(r"[EWI]\d{4} \d\d:\d\d:\d\d")
RIGHTS = re.compile(r"cannot \w+ resource ")
NO_NAMESPACE = re.compile(r'namespaces "([^"]+)" not found')
NO_CONTEXT = re.compile(r"context was not found|no context exists|context .* does not exist")
HOSTS = "inventory/kubernetes/hosts.yml"


def why(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = dict.fromkeys(line for line in lines if not OWN_LOG.match(line) and not line.startswith("Warning: "))
    return "\n".join(said) or (lines[-1] if lines else "")


def fix(why: str, command: Sequence[str], program: Sequence[str]) -> str:
    """`command`: what a person may type instead; empty where it reads what only Motley has. `program`: kubectl with
    the options that lead to the namespace."""
    cluster = " ".join(word for word in program if not word.startswith("--namespace="))
    if RIGHTS.search(why):
        return "fix: examples/kubernetes-role.yml has the rights that a run takes"
    if "Forbidden" in why or "is forbidden" in why:
        return f"where: what the namespace allows, and motley_kubernetes_… in {HOSTS}"
    if missing := NO_NAMESPACE.search(why):
        return f"fix: {cluster} create namespace {missing[1]}, or motley_kubernetes_namespace in {HOSTS}"
    if NO_CONTEXT.search(why):
        return f"where: motley_kubernetes_context in {HOSTS}; there are: kubectl config get-contexts"
    return f"by hand: {' '.join(command)}" if command else f"see: {cluster} cluster-info"
