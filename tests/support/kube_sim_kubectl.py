"""What kubectl is to a run, on the folder of kube_sim.py: get, apply, delete, exec, logs and wait, as verbs use it,
with the rights of examples/kubernetes-role.yml.

python -m tests.support.kube_sim_kubectl FOLDER get jobs -l … -o json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import yaml

from tests.support import kube_choices
from tests.support.kube_rights import lacking
from tests.support.kube_rules import refused, selects
from tests.support.kube_sim import Folder, Object, first_process, new, told_to_go, variables

KINDS = {"job": "Job", "jobs": "Job", "pod": "Pod", "pods": "Pod", "service": "Service", "secret": "Secret"}
KINDS |= {"event": "Event", "events": "Event", "configmap": "ConfigMap", "networkpolicy": "NetworkPolicy"}


def fail(words: str) -> None:
    sys.exit(f"Error from server: {words}")


def parsed(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    for flag in "-l -o --field-selector -c --dry-run --cascade --wait --for --timeout --tail".split():
        parser.add_argument(flag, default="")
    for flag in ("-i", "--ignore-not-found", "--prefix", "--force", "--ignore-errors"):
        parser.add_argument(flag, action="store_true")
    if words[0] == "logs":
        parser.add_argument("-f", action="store_true")
    else:
        parser.add_argument("-f", default="")
    parser.add_argument("--max-log-requests")
    before, _, behind = " ".join(words).partition(" -- ")
    return parser.parse_known_args(words[: len(before.split())] if behind else words)


def kubectl(folder: Folder, words: list[str]) -> int:
    args, rest = parsed(words)
    text = (sys.stdin.read() if args.f == "-" else Path(args.f).read_text()) if args.verb == "apply" else ""
    if refused := lacking(words, text):
        sys.exit(refused)
    if args.verb == "config":
        print("sim")
    elif args.verb == "get":
        with folder.locked() as objects:
            kinds = [KINDS[kind] for kind in rest[0].split(",")]
            found = [one for kind in kinds for one in objects.values() if matches(one, kind, args.l)]
            names = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in found]
            print("\n".join(names) if args.o == "name" else json.dumps({"items": found}))
    elif args.verb == "apply":
        apply(folder, text, dry=bool(args.dry_run))
    elif args.verb == "delete":
        delete(folder, rest, args)
    elif args.verb == "exec":
        execute(folder, rest[0], words[words.index("--") + 1 :])
    elif args.verb == "logs":
        logs(folder, args)
    elif args.verb == "wait":
        name = rest[0].partition("/")[2]
        while folder.pods()[name]["status"]["phase"] != "Running":
            time.sleep(0.1)
    else:
        return 1
    return 0


def matches(entry: Object, kind: str, selector: str) -> bool:
    try:
        return entry["kind"] == kind and selects(selector, entry["metadata"].get("labels", {}))
    except ValueError as wrong:
        sys.exit(str(wrong))


def apply(folder: Folder, text: str, *, dry: bool) -> None:
    entries = list(yaml.safe_load_all(text))
    if findings := [finding for entry in entries for finding in kube_choices.wrong(entry)]:
        fail("\n".join(findings))
    judged = [refused(entry, folder.namespace()) for entry in entries if entry["kind"] == "Pod"]
    if any(judged):
        why = 'Error from server (Forbidden): error when creating "STDIN": '
        sys.exit("\n".join(f"{why}{one}" for one in judged if one))
    with folder.locked() as objects:
        for entry in entries:
            key = f"{entry['kind']}/{entry['metadata']['name']}"
            old = objects.get(key)
            if old and entry["kind"] == "Job" and old["spec"]["template"] != entry["spec"]["template"]:
                fail(f"Job {entry['metadata']['name']} is invalid: spec.template: field is immutable")
            if not dry and old:
                old |= entry | {"metadata": {**old["metadata"], **entry["metadata"]}}
            elif not dry:
                objects[key] = new(entry)
            print(f"{key} {'created (server dry run)' if dry else 'created'}")


def delete(folder: Folder, rest: list[str], args: argparse.Namespace) -> None:
    kinds = [KINDS[kind] for kind in rest[0].split(",")]
    with folder.locked() as objects:
        found = [
            key
            for key, one in objects.items()
            for kind in kinds
            if matches(one, kind, args.l) and (args.l or one["metadata"]["name"] in rest[1:])
        ]
        if not found and not args.ignore_not_found:
            fail(f"{rest} not found")
        for key in found:
            if objects[key]["kind"] in ("Job", "Pod") and not args.force:
                told_to_go(objects[key])
            else:
                del objects[key]
    while args.wait != "false":
        with folder.locked() as objects:
            if not any(key in objects for key in found):
                return
        time.sleep(0.1)


def logs(folder: Folder, args: argparse.Namespace) -> None:
    """Ends with what runs in the pods."""

    def live() -> set[str]:
        return {name for name, pod in folder.pods().items() if pod["status"]["phase"] in ("Pending", "Running")}

    chosen = [name for name, pod in folder.pods().items() if matches(pod, "Pod", args.l)]
    said = {name: (folder.path / f"pods/{name}.log").open() for name in chosen}
    lines = [(name, line) for name, file in said.items() for line in file.readlines()[-int(args.tail or 10) :]]
    goes_on = args.f
    while lines or goes_on:
        for name, line in lines:
            print(f"[pod/{name}/{args.c}] {line}" if args.prefix else line, end="", flush=True)
        time.sleep(0.1)
        goes_on = args.f and bool(set(chosen) & live())
        lines = [(name, line) for name, file in said.items() for line in file] if args.f else []


def execute(folder: Folder, name: str, words: list[str]) -> None:
    with folder.locked() as objects:
        pod = objects.get(f"Pod/{name}")
        first = first_process(pod) if pod else 0
        if not pod:
            sys.exit(f'Error from server (NotFound): pods "{name}" not found')
        if (phase := pod["status"]["phase"]) in ("Succeeded", "Failed"):
            sys.exit(f"error: cannot exec into a container in a completed pod; current phase is {phase}")
        if not first:
            sys.exit('error: Internal error occurred: unable to upgrade connection: container not found ("agent")')
        known = variables(pod, pod["spec"]["containers"][0], objects)
    enter = ["nsenter", "-t", str(first), "-m", "-p", "--", "env", "-i"]
    os.execvp("nsenter", [*enter, *(f"{key}={value}" for key, value in known.items()), *words])


if __name__ == "__main__":
    sys.exit(kubectl(Folder(Path(sys.argv[1])), sys.argv[2:]))
