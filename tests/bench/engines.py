"""Five losses on the trio, under our agent, torchrun elastic and torchft: the same hosts, model, rows and settings.

    make bench PARTS=engines
    python -m tests.bench.engines motley torchrun torchft --repeats 1

torchrun is what its pages advise, at its best: systemd starts it again, `is_host` is given, time-outs are short,
and TORCH_DISABLE_SHARE_RDZV_TCP_STORE, without which a node that returns hangs. `train run` resumes from its
checkpoints under both. torchft has a loop of its own (plain_torchft.py), and its lighthouse on the head. What does not
happen within a limit is a hang: if the host's return does not end it, all start again, as by hand.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from lab import faults
from lab.host import Host
from tests.bench.faults import STAYS_S
from tests.bench.page import Figures, Found, bench
from tests.bench.trainer import PYTHON
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of
from tests.support.training import HOME, Training, training_on
from train.cache import build_once, cache_dir

NAME = "engines"
LOSSES = {
    "a worker's power": ("power-cut", "gpu-worker-1"),
    "the head's power": ("power-cut", "gpu-master"),
    "a worker hangs, its kernel answers": ("freeze", "gpu-worker-2"),
    "the head's cable": ("cable-pull", "gpu-master"),
    "a worker is rebooted": ("reboot", "gpu-worker-1"),
}
HANG_S = 60
SILENT_S = 15
"""With torchrun: until a collective gives up, as it has no heartbeat of nodes."""
TORCHFT_SILENT_S = 5
"""The same, as in torchft's train_ddp.py; only then does it ask its lighthouse, whose heartbeats take as long."""
UNIT = f"""[Unit]
StartLimitIntervalSec=0
[Service]
User=user
WorkingDirectory={HOME}/scripts
Environment=OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
Environment=MOTLEY_NODE=%(node)s GLOO_SOCKET_IFNAME=%(nic)s
Environment=PYTHONPATH={HOME}/scripts:{HOME}/scripts/peer TORCHFT_LIGHTHOUSE=http://%(head)s:29510
ExecStart={HOME}/env/bin/python -m %(what)s
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
CONFIG = f"{HOME}/config/training_config.yaml"
TORCHRUN = (
    "torch.distributed.run --nnodes=2:3 --nproc-per-node=1 --max-restarts=1000 --rdzv-backend=c10d --rdzv-id=run"
    " --rdzv-endpoint=%(head)s:29500 --local-addr=%(own)s"
    f" --rdzv-conf=is_host=%(is_head)d,last_call_timeout=5,read_timeout={SILENT_S} -m train run --config {CONFIG}"
)
TORCHFT = f"tests.bench.plain_torchft {CONFIG} %(own)s"
LIGHTHOUSE = "tests.bench.plain_torchft lighthouse"
TORCHFT_WHEELS = (
    "torchft==0.2.0", "opentelemetry-api==1.45.2", "opentelemetry-sdk==1.45.2", "opentelemetry-proto==1.45.2",
    "opentelemetry-semantic-conventions==0.66b2", "opentelemetry-exporter-otlp-proto-http==1.45.2",
    "opentelemetry-exporter-otlp-proto-common==1.45.2", "opentelemetry-exporter-otlp-common==0.66b2",
    "opentelemetry-exporter-http-transport==0.66b2", "googleapis-common-protos==1.76.0", "protobuf==7.36.2",
    "requests==2.34.2", "urllib3==2.8.0", "certifi==2026.10.18", "charset-normalizer==3.5.2", "idna==3.20",
)  # fmt: skip


class Torchrun(Training):
    what = TORCHRUN

    def _install(self, host: Host) -> None:
        super()._install(host)
        self.put_unit(host, "motley-run", self.what)

    def put_unit(self, host: Host, name: str, what: str) -> None:
        head = self.lab.hosts[0]
        facts = {"node": host.name, "nic": host.cable.nic, "is_head": host.name == head.name}
        facts |= {"own": host.spec.installed_address, "head": head.spec.installed_address}
        unit = UNIT % (facts | {"what": what % facts})
        (host.disk.root / f"etc/systemd/system/{name}.service").write_text(unit)
        host.run("systemctl", "daemon-reload")


class Torchft(Torchrun):
    what = TORCHFT

    def _install(self, host: Host) -> None:
        super()._install(host)
        scripts = host.disk.root / HOME.lstrip("/") / "scripts"
        (scripts / "tests/bench").mkdir()
        shutil.copy(REPOSITORY / "tests/bench/plain_torchft.py", scripts / "tests/bench")
        shutil.copytree(torchft(), scripts / "peer")
        if host.name == self.lab.hosts[0].name:
            self.put_unit(host, "lighthouse", LIGHTHOUSE)
            host.run("systemctl", "enable", "--quiet", "--now", "lighthouse")


def torchft() -> Path:
    """Without torch: the hosts have ours."""

    def build(folder: Path) -> None:
        words = ["install", "--quiet", "--no-deps", "--only-binary=:all:", f"--target={folder}", *TORCHFT_WHEELS]
        subprocess.run([str(PYTHON), "-m", "pip", *words], check=True)

    return build_once(cache_dir() / "bench-torchft-0.2.0", build)


ENGINES: dict[str, tuple[str, type[Training], dict[str, Any]]] = {
    "motley": ("Motley's agent", Training, {}),
    "torchrun": ("torchrun elastic", Torchrun, {"run": NAME, "timeout_s": SILENT_S}),
    "torchft": ("torchft", Torchft, {"run": NAME, "timeout_s": TORCHFT_SILENT_S}),
}


def losses(_: None, engine: str) -> Figures:
    kind, settings = ENGINES[engine][1:]
    with training_on(f"engines{os.getpid()}", kind=kind) as training:
        began = time.time()
        training.launch(NAME, max_steps=1_000_000, **settings)
        if not within(partial(all_at, training, began), 120):
            raise SystemExit(f"{engine}: they do not begin")
        time.sleep(5)
        found, back_at = {}, dict.fromkeys(training.names, 0.0)
        for what, (fault, victim) in LOSSES.items():
            time.sleep(max(0.0, back_at[victim] + STAYS_S - time.time()))
            found[what] = one_loss(training, fault, victim)
            back_at[victim] = time.time()
            print(f"{engine}: {what}: {found[what]}", flush=True)
        return found


def one_loss(training: Training, fault: str, victim: str) -> Figures:
    """Seconds until a step is trained after the loss, and until all train after the return; None is a hang."""
    host, rest = training.host(victim), [name for name in training.names if name != victim]
    began = time.time()
    with ThreadPoolExecutor(1) as pool:
        broken = pool.submit(faults.inject, training.lab, host, fault)
        again = within(partial(resumed_at, training, rest[0], began))
        broken.result()
    repeated = training.repeated(rest[0], began) if again else 0
    if faults.FAULTS[fault].fix:
        faults.fix(training.lab, host, fault)
    host.wait_until_up(60)
    returned = time.time()
    back = within(partial(all_at, training, returned))
    if not back:
        training.stop()
        training.start(*training.names)
        if not within(partial(all_at, training, time.time()), 120):
            raise SystemExit(f"{fault} of {victim}: they do not train after a new start\n{training.tell()}")
    return {
        "again_s": again and round(again - began, 1),
        "repeated": repeated,
        "back_s": back and round(back - returned, 1),
    }


def within(found: Callable[[], float], limit_s: float = HANG_S) -> float | None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if at := found():
            return at
        time.sleep(0.2)
    return None


def resumed_at(training: Training, name: str, since: float) -> float:
    """When it had trained its first step after it began again."""
    began = 0.0
    for event in training.events(name):
        if event["event"] == "start" and event["time"] > since:
            began = event["time"]
        elif event["event"] == "step" and began:
            return float(event["time"])
    return 0.0


def all_at(training: Training, since: float) -> float:
    """When all had trained a step together."""
    last = [training.last_step(name) for name in training.names]
    together = all(event["time"] > since and len(event["nodes"]) == len(training.names) for event in last)
    return max(float(event["time"]) for event in last) if together else 0.0


def table(found: Found) -> list[str]:
    rows = ((what, *(cell([run[what] for run in found[engine]]) for engine in ENGINES)) for what in LOSSES)
    return table_of(("loss", *(title for title, _, _ in ENGINES.values())), rows)


def cell(runs: list[Figures]) -> str:
    again, back = (in_words([run[key] for run in runs]) for key in ("again_s", "back_s"))
    repeated = [run["repeated"] for run in runs if run["again_s"] is not None]
    return f"{again}; all after its return {back}" + (f"; repeated {max(repeated)}" if repeated else "")


def in_words(seconds: list[float | None]) -> str:
    some = [one for one in seconds if one is not None]
    hung = f"**not in {HANG_S} s** ({len(seconds) - len(some)} of {len(seconds)})" if len(some) < len(seconds) else ""
    spread = f" ({min(some):.1f}–{max(some):.1f}, {len(some)} runs)" if len(some) > 1 else ""
    return ", ".join(filter(None, [f"{statistics.median(some):.1f} s{spread}" if some else "", hung]))


PARTS = {engine: partial(losses, engine=engine) for engine in ENGINES}


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, nullcontext(), PARTS, table))
