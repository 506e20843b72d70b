"""The lines of a run on Kubernetes, as start_stop_status.report writes those of a machine: from a pod that lives, from
another where that is gone, and at the end what the pods have left.

    python -m console.infra.kubernetes.report '{"kubectl": ["kubectl"], "run": "qa"}'
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import time

from console.infra.kubernetes import waiting
from console.infra.kubernetes.node import KubernetesNode, PodNode
from console.infra.kubernetes.shown import Object, is_active, is_running, last_words, why_ended
from console.infra.node import Silent
from console.processes import each_line, end_group
from plugins.module_utils.motley.node_replies import NowLine
from train.runlog.state import Event

LOOK_S = 2.0
GONE_LOOKS = 2


class Report:
    def __init__(self, node: KubernetesNode, run: str) -> None:
        self.node, self.run = node, run
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.stream: subprocess.Popen[bytes] | None = None
        self.read_from, self.lost, self.over = "", "", 0
        self.mute: PodNode | None = None
        """One whose lines are read, and have not come yet."""

    def forever(self) -> None:
        next_look = 0.0
        while True:
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + LOOK_S
                try:
                    self.look()
                except Silent:
                    next_look += LOOK_S  # the API server is away for a moment; the run is not
            try:
                self.hand_on(self.lines.get(timeout=0.2))
            except queue.Empty:
                continue

    def look(self) -> None:
        job = self.node.jobs().get(self.run)
        pods = self.node.pods(job) if job else []
        active = job is not None and is_active(job)
        running = [pod for pod in pods if is_running(pod)]
        self.say_lost(pods if running else [])
        if self.stream is None and running:
            self.read(job or {}, next((pod for pod in running if name_of(pod) != self.read_from), running[0]))
        elif self.stream is None and active and job:
            why = self.node.waits_for(job, pods) or waiting.NOT_YET
            say("now", {"time": time.time(), "on": True, "wanted": True, "now": waiting.facts(why)})
        elif self.stream is None:
            self.over += 1
            if self.over == 1:
                for kind, event in sorted(last_words(pods), key=lambda word: float(word[1].get("time", 0))):
                    say(kind, event)
            words = {"words": why_ended(job, pods)} if job and self.over >= GONE_LOOKS else {}
            say("now", {"time": time.time(), "on": False, "wanted": False, "now": {}, **words})

    def say_lost(self, pods: list[Object]) -> None:
        """Warns once of lost pods, while others train: agents see they are away, the API server what ends that."""
        before, self.lost = self.lost, self.node.lost(pods)
        if self.lost and self.lost != before:
            say("event", {"event": "warning", "time": time.time(), "step": 0, "message": self.lost})

    def read(self, job: Object, pod: Object) -> None:
        self.read_from = name_of(pod)
        self.mute = self.node.node_of(job, pod)
        self.stream = self.mute.events(self.run)
        each_line(self.stream, self.lines.put)

    def hand_on(self, line: bytes) -> None:
        if not line:
            if self.stream:
                end_group(self.stream)
            self.stream = None
            return self.say_unseen()
        self.mute = None
        kind, _, text = line.partition(b" ")
        if kind == b"now":  # whether the run is over, its Job knows
            say("now", json.loads(text) | {"on": True, "wanted": True})
        else:
            write(line.rstrip(b"\n"))

    def say_unseen(self) -> None:
        """Tells whoever may not ask a pod that the run is not seen; the run continues."""
        try:
            if self.mute:
                self.mute.status()
        except Silent as why:
            now = waiting.facts(str(why)) | {"state": "not seen"}
            say("now", {"time": time.time(), "on": True, "wanted": True, "now": now})


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def say(kind: str, facts: NowLine | Event) -> None:
    write(f"{kind} {json.dumps(facts)}".encode())


def write(line: bytes) -> None:
    try:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(0)


def main() -> None:
    about = json.loads(sys.argv[1])
    report = Report(KubernetesNode(name="kubernetes", home="", kubectl=tuple(about["kubectl"])), about["run"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        report.forever()
    finally:
        if report.stream:
            end_group(report.stream, patience_s=2)  # whoever ends this waits longer


if __name__ == "__main__":
    main()
