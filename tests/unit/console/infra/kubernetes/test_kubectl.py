"""What kubectl 1.32 says where it fails, and what becomes of it."""

from __future__ import annotations

import pytest

from console.infra.kubernetes import kubectl

LOG = (
    'E1127 03:26:44.883914   12008 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group list"'
)
REFUSED = "The connection to the server 127.0.0.1:9 was refused - did you specify the right host or port?"
NO_NAMESPACE = 'Error from server (NotFound): error when creating "STDIN": namespaces "ml" not found'
NO_CONTEXT = "Error in configuration: context was not found for specified context: nope"
POLICY = 'Error from server (Forbidden): error when creating "STDIN": pods "a" is forbidden: exceeded quota: q'
RIGHTS = 'User "anna" cannot create resource "pods/exec" in API group "" in the namespace "ml"'


def test_its_own_log_is_dropped_and_each_line_is_said_once() -> None:
    assert kubectl.why("\n".join([LOG, LOG, REFUSED])) == REFUSED
    assert kubectl.why("\n".join([NO_NAMESPACE] * 3)) == NO_NAMESPACE
    lines = [f"Error from server (Forbidden): {kind} is forbidden" for kind in ("jobs", "pods", "secrets", "services")]
    assert kubectl.why("\n".join(lines)).splitlines() == lines, "all of them, not the last three"
    assert kubectl.why(LOG) == LOG and kubectl.why("") == "", "its log where there is nothing else"


@pytest.mark.parametrize(
    ("why", "words", "fix"),
    [
        (RIGHTS, ["apply"], "examples/kubernetes-role.yml"),
        (POLICY, [], "what the namespace allows"),
        (NO_NAMESPACE, [], "fix: kubectl --context=lab create namespace ml"),
        (NO_CONTEXT, ["get", "jobs"], "motley_kubernetes_context in inventory/kubernetes/hosts.yml"),
        (REFUSED, [], "see: kubectl --context=lab cluster-info"),
        ("kubectl gave no answer within 60 s", ["kubectl", "apply", "-f", "/a/qa.yaml"], "kubectl apply -f /a/qa.yaml"),
    ],
)
def test_what_is_to_be_done_fits_why(why: str, words: list[str], fix: str) -> None:
    assert fix in kubectl.fix(why, words, ("kubectl", "--context=lab", "--namespace=ml"))
