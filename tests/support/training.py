"""A run in the lab: agents as a systemd unit on each host, over the lab's network, and what is needed to judge them.
The training environment comes as a layer; the package, the data and the settings are put on the hosts' disks."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab import base, network
from lab import lab as labs
from lab.host import Host
from lab.lab import Lab
from lab.network import Cable
from lab.shell import run
from tests.support import pace
from tests.support.cluster import REPOSITORY, hosts
from train.runlog.tail import Tail, read

HOME = "/home/user/ai-cluster"
ROWS_PER_STEP = 8
AGENT = f"{HOME}/env/bin/python -m train agent --wait-s 20"
UNIT = f"""[Unit]
StartLimitIntervalSec=0
[Service]
User=user
WorkingDirectory={HOME}/scripts
Environment=MOTLEY_HOME={HOME} OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
ExecStart={AGENT} --cluster {HOME}/config/cluster_config.yaml --config {HOME}/config/training_config.yaml
KillMode=mixed
TimeoutStopSec=60
OOMPolicy=continue
Restart=on-failure
RestartSec=0.5
RestartPreventExitStatus=1 2 143
SuccessExitStatus=143
[Install]
WantedBy=multi-user.target
"""
SETTINGS = {
    "model": "tiny",
    "dataset": f"{HOME}/data/processed/small",
    "rows_per_step": ROWS_PER_STEP,
    "lora_r": 8,
    "lora_alpha": 16,
    "learning_rate": 2e-3,
    "grad_clip": 0.3,
    "save_every": 10,
    "wire": "fp32",
    "sync": "flat",
    "home": HOME,
}


class Training:
    def __init__(self, lab: Lab, processes: dict[str, int] | None = None) -> None:
        self.lab = lab
        self.names = [host.name for host in lab.hosts]
        self.processes = processes or {}
        self.run_name = "run"
        labs.each(lab.hosts, self._install)
        first, *others = lab.hosts
        self._prepare(first)
        for host in others:  # data and model are made once and copied: importing torch on each of them takes longer
            for made in (".cache/motley", "ai-cluster/data"):
                source = first.disk.root / "home/user" / made
                shutil.copytree(source, host.disk.root / "home/user" / made, dirs_exist_ok=True)
            host.run("chown", "-R", "user:user", "/home/user/.cache", f"{HOME}/data")

    def _install(self, host: Host) -> None:
        home = host.disk.root / HOME.lstrip("/")
        for folder in ("scripts", "config", "data/processed"):
            (home / folder).mkdir(parents=True, exist_ok=True)
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / "train", home / "scripts/train", ignore=skip, dirs_exist_ok=True)
        for part in ("train", "support"):
            shutil.copytree(REPOSITORY / "tests" / part, home / "scripts/tests" / part, ignore=skip, dirs_exist_ok=True)
        (host.disk.root / "etc/systemd/system/motley-run.service").write_text(UNIT)
        host.run("chown", "user:user", *[f"{HOME}/{name}" for name in ("", "config", "data", "data/processed")])
        host.run("systemctl", "daemon-reload")

    def _prepare(self, host: Host) -> None:
        made = "from pathlib import Path; from tests.train.cluster import make_rows; "
        made += f"p = Path('{SETTINGS['dataset']}'); p.exists() or (p.mkdir(parents=True), make_rows(p, 60, 7)); "
        made += "from train.models.model_files import model_folder; model_folder('tiny')"
        self.python(host, "-c", made)

    def python(self, host: Host, *words: str) -> str:
        shell = f'cd {HOME}/scripts && OMP_NUM_THREADS=1 exec {HOME}/env/bin/python "$@"'
        return host.run("runuser", "-u", "user", "--", "sh", "-c", shell, "-", *words)

    # -- the run -------------------------------------------------------------------------------------------------

    def launch(
        self,
        name: str,
        *,
        nodes: list[str] | None = None,
        token: str = "",
        more: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """The same run again, or another one: settings, units, start. `more`: of the cluster's file."""
        self.run_name = name
        token = token or f"token-{name}-{time.time_ns()}"
        chosen = nodes or self.names
        listed = [
            {"name": n, "address": self.host(n).spec.installed_address, "processes": self.processes.get(n, 1)}
            for n in chosen
        ]
        for one in chosen:
            host = self.host(one)
            facts = {"run": name, "node": one, "nodes": listed, "interface": host.cable.nic} | (more or {})
            folder = host.disk.root / HOME.lstrip("/") / "config"
            (folder / "cluster_config.yaml").write_text(json.dumps(facts))
            (folder / "secret.json").write_text(json.dumps({"token": token}))
            (folder / "training_config.yaml").write_text(json.dumps(SETTINGS | settings))
            (folder / "run-wanted").touch()  # as a launch does: an agent of the unit that nobody wants ends
        self.start(*chosen)

    def start(self, *names: str) -> None:
        labs.each(
            [self.host(n) for n in names], lambda h: h.run("systemctl", "enable", "--quiet", "--now", "motley-run")
        )

    def stop(self, *names: str) -> float:
        """systemctl stop on all at once; seconds of an idle machine until the last is gone."""
        began = pace.now()
        hosts = [self.host(n) for n in names or self.names]
        labs.each(hosts, lambda h: h.run("systemctl", "disable", "--quiet", "--now", "motley-run"))
        return pace.now() - began

    def host(self, name: str) -> Host:
        return self.lab.host(name)

    def file(self, name: str, file: str) -> Path:
        return self.host(name).disk.root / HOME.lstrip("/") / "logs/runs" / self.run_name / file

    def now(self, name: str) -> dict[str, Any]:
        file = self.file(name, "agent.json")
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def members(self, name: str, kind: str = "") -> list[dict[str, Any]]:
        return [event for event in read(self.file(name, "members.jsonl")) if kind in ("", event["event"])]

    def events(self, name: str) -> list[dict[str, Any]]:
        return read(self.file(name, "events.jsonl"))

    def last_step(self, name: str) -> dict[str, Any]:
        events = Tail(self.file(name, "events.jsonl"), last_bytes=1 << 14).events()
        steps = [event for event in events if event["event"] == "step"]
        return steps[-1] if steps else {"step": 0, "nodes": {}, "time": 0.0}

    def worker_pids(self, name: str) -> list[str]:
        """As its host numbers them."""
        return self.host(name).outcome("pgrep", "-x", "motley-worker").stdout.split()

    # -- watching ------------------------------------------------------------------------------------------------

    def together(self, *names: str, since: float, within_s: float = 60) -> float:
        """Seconds from `since` until exactly these nodes have trained a step together."""
        found: list[float] = []

        def trained() -> bool:
            last = [self.last_step(name) for name in names]
            good = all(e["time"] > since and {n.split(":")[0] for n in e["nodes"]} == set(names) for e in last)
            if good:
                found.append(self._first_together(names, since) - since)
            return good

        self.wait(trained, within_s, f"{', '.join(names)} do not train together")
        return found[0]

    def _first_together(self, names: tuple[str, ...], since: float) -> float:
        """When the step after the last interruption was made on the slowest of them."""
        first = []
        for name in names:
            at = 0.0
            for event in Tail(self.file(name, "events.jsonl"), last_bytes=1 << 18).events():
                same = event["event"] == "step" and {n.split(":")[0] for n in event["nodes"]} == set(names)
                if event["event"] == "start" or (event["event"] == "step" and not same):
                    at = 0.0
                elif same and not at and event["time"] > since:
                    at = event["time"]
            first.append(at)
        return max(first)

    def repeated(self, name: str, since: float) -> int:
        """Steps that were trained again after what happened at `since`."""
        events = self.events(name)
        highest = max((e["step"] for e in events if e["event"] == "step" and e["time"] <= since + 1), default=0)
        began = [e["step"] for e in events if e["event"] == "start" and e["time"] > since]
        return max([0, *(int(highest - step) for step in began)])

    def wait(self, condition: Callable[[], object], within_s: float, trouble: str) -> None:
        pace.until(condition, within_s, lambda: f"{trouble}\n{self.tell()}")

    def tell(self) -> str:
        """What the agents said last, for a test that failed."""
        return "\n".join(
            f"{e['time']:.1f} {e['node']} {e['event']} {e['epoch']} {e['reason']}" for e in self.diary()[-30:]
        )

    def diary(self) -> list[dict[str, Any]]:
        return sorted((e for name in self.names for e in self.members(name)), key=lambda e: e["time"])

    def steps_between(self, name: str, start: float, end: float) -> int:
        return sum(1 for e in self.events(name) if e["event"] == "step" and start < e["time"] < end)

    def proof(self) -> dict[str, Any]:
        """proof_of_run over the logs of all nodes, computed on the first host that is up."""
        judge = next(host for host in self.lab.hosts if host.running)
        files = []
        for name in self.names:
            if self.file(name, "events.jsonl").exists():
                shutil.copy(self.file(name, "events.jsonl"), judge.disk.root / f"home/user/{name}.jsonl")
                files.append(f"/home/user/{name}.jsonl")
        words = ["-m", "tests.train.proof_of_run", SETTINGS["dataset"], str(ROWS_PER_STEP), *files]
        return dict(json.loads(self.python(judge, *map(str, words)).splitlines()[-1]))


@contextlib.contextmanager
def training_on(name: str, profile: str = "trio", kind: type[Training] = Training) -> Iterator[Training]:
    """Hosts that can train, which are gone afterwards."""
    with hosts(name, profile, base.default_suite(), ["train"]) as lab:
        yield kind(lab)


class Split:
    """The switch falls into two: these hosts hang together, the others too, nothing passes between them."""

    def __init__(self, lab: Lab, names: list[str]) -> None:
        self.cables: list[Cable] = [lab.host(name).cable for name in names]

    def __enter__(self) -> None:
        network.batch(self.cables[0].switch, "link add brcut type bridge", "link set brcut up")
        for cable in self.cables:
            run("ip", "-n", cable.switch, "link", "set", cable.port, "master", "brcut")

    def __exit__(self, *_: object) -> None:
        for cable in self.cables:
            run("ip", "-n", cable.switch, "link", "set", cable.port, "master", network.BRIDGE)
        run("ip", "-n", self.cables[0].switch, "link", "delete", "brcut")
