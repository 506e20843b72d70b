"""What a real API server judges by labels and namespaces, for those that stand in for one; in the words of 1.36."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from console.infra.kubernetes.check import WORD, containers

Object = Mapping[str, Any]
END_OF = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
REQUIREMENT = re.compile(r"(?P<not>!?)(?P<key>[^!=,\s]+)(?:(?P<op>==|=|!=)(?P<value>[^!=,\s]*))?")


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """All of its requirements: key=value, key==value, key!=value (also where there is no such key), key, !key."""
    return all(_fits(part, labels) for part in selector.split(",") if selector)


def _fits(part: str, labels: Mapping[str, str]) -> bool:
    found = REQUIREMENT.fullmatch(part)
    if not found or (found["not"] and found["op"]) or (found["value"] and not WORD.fullmatch(found["value"])):
        raise ValueError(f'Error from server (BadRequest): unable to parse requirement: "{part}"')
    if not found["op"]:
        return (found["key"] in labels) is not bool(found["not"])
    return (labels.get(found["key"]) == found["value"]) is (found["op"] != "!=")


def judge(job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    """One round of the controller of Jobs: a pod that has done its work counts a round later, the end of the Job is
    seen coming before it is there, and it waits for the pods that go on."""
    spec, conditions = job["spec"], job["status"]["conditions"]
    done = [pod for pod in pods if pod["status"]["phase"] == "Succeeded" and pod["status"].get("counted")]
    failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
    ended = [pod for pod in pods if pod["status"]["phase"] in ("Failed", "Succeeded")]
    for pod in ended:
        pod["status"]["counted"] = True
    if conditions:
        last = conditions[-1]
        if last["type"] in END_OF and len(ended) == len(pods):
            conditions.append(last | {"type": END_OF[last["type"]]})
        return
    rules = [(pod, _rule(spec, pod)) for pod in failed]
    enough = [rule["succeededCount"] for rule in spec.get("successPolicy", {}).get("rules", [])]
    if verdicts := [pod for pod, action in rules if action == "FailJob"]:
        name, code = verdicts[0]["metadata"]["name"], verdicts[0]["status"]["code"]
        why = f"pod {name} failed with exit code {code} matching FailJob rule"
        conditions.append({"type": "FailureTarget", "status": "True", "message": why})
    elif sum(not action for _, action in rules) > spec.get("backoffLimit", float("inf")):
        why = "Job has reached the specified backoff limit"
        conditions.append({"type": "FailureTarget", "status": "True", "message": why})
    elif len(done) >= min([*enough, spec.get("completions", 1)]):
        conditions.append({"type": "SuccessCriteriaMet", "status": "True"})


def _rule(spec: Object, pod: Object) -> str:
    """The action of the first rule that fits its end."""
    code, types = pod["status"]["code"], [one["type"] for one in pod["status"].get("conditions", [])]
    for rule in spec.get("podFailurePolicy", {}).get("rules", []):
        codes = code in rule.get("onExitCodes", {}).get("values", [])
        if codes or any(one["type"] in types for one in rule.get("onPodConditions", [])):
            return str(rule["action"])
    return ""


def refused(pod: Object, namespace: Object) -> str:
    """By what the namespace allows: `quota`, names of resources such as limits.cpu, and the level of pod `security`."""
    name = pod["metadata"]["name"]
    lacking = [
        f"{what} for: {','.join(names)}" for what in namespace.get("quota", []) if (names := _without(pod, what))
    ]
    if lacking:
        return f'pods "{name}" is forbidden: failed quota: q: must specify {"; ".join(lacking)}'
    level = namespace.get("security", "privileged")
    if level != "privileged" and (wrong := _insecure(pod, level)):
        return f'pods "{name}" is forbidden: violates PodSecurity "{level}:latest": {", ".join(wrong)}'
    return ""


def _without(pod: Object, what: str) -> list[str]:
    kind, _, resource = what.partition(".")
    return [one["name"] for one in containers(pod) if resource not in one.get("resources", {}).get(kind, {})]


def _insecure(pod: Object, level: str) -> list[str]:
    spec = pod["spec"]
    own = [one["name"] for one in spec.get("volumes", []) if "hostPath" in one]
    found = [f'hostPath volumes (volume "{name}")' for name in own]
    if level == "restricted":
        kind = 'uses restricted volume type "hostPath"'
        found = [f'restricted volume types (volume "{name}" {kind})' for name in own]
        for one in containers(pod):
            own = one.get("securityContext", {})
            if own.get("allowPrivilegeEscalation") is not False or own.get("capabilities", {}).get("drop") != ["ALL"]:
                found.append(f'container "{one["name"]}" must set securityContext')
        found += [] if spec["securityContext"].get("runAsNonRoot") else ["runAsNonRoot != true"]
    return found
