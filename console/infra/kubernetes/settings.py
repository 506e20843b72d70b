"""What motley_kubernetes_… asks for: the pods of a run, and where its files lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any

from train.errors import BadInput
from train.layout import GROUP_PORTS, HEARTBEAT_PORT
from train.plan.machines import gpu_types
from train.plan.machines.facts import Card

PREFIX = "motley_kubernetes_"
WHERE = "where: inventory/kubernetes/hosts.yml, or -e {}=…"
QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]|[KMGTPE]i)?")
SCALE = {
    **{"": Decimal(1), "m": Decimal("0.001"), "k": Decimal(1000), "Ki": Decimal(1024)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("MGTPE", start=2)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("MGTPE", start=2)},
}
DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}")
QUEUE = "kueue.x-k8s.io/queue-name"


def amount(quantity: Any) -> Decimal | None:
    """A quantity of Kubernetes as a number, such as 500m or 16Gi; None where it is none."""
    match = QUANTITY.fullmatch(str(quantity))
    return Decimal(match[1]) * SCALE[match[2] or ""] if match else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    image: str = ""
    pods: int = 2
    gpus: int = 1
    """The number of GPUs of a pod: 1, or 0 for its processor."""
    gpu_resource: str = "nvidia.com/gpu"
    gpu_type: str = ""
    gpu_gb: float = 0.0
    cpu: str = "4"
    memory: str = "16Gi"
    limits: Mapping[str, Any] = field(default_factory=dict)
    host_path: str = ""
    claim: str = ""
    storage: str = ""
    storage_class: str = ""
    uid: int = 1000
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    pull_secret: str = ""
    namespace: str = ""
    context: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of the pods."""

    @property
    def shared(self) -> bool:
        """Whether all pods see one volume; else each machine has its own disk."""
        return not self.host_path

    @property
    def volume_claim(self) -> str:
        return self.claim or "motley"

    def card(self) -> Card:
        """The facts of a pod's GPU, named as nvidia-smi would name it."""
        return gpu_types.card(self.gpu_type or "GPU", self.gpu_gb or None)


def _type(name: str) -> type:
    default = getattr(Settings(), name)
    return type(default)


KEYS = {PREFIX + spec.name: _type(spec.name).__name__.replace("tuple", "list") for spec in fields(Settings)}
"""The settings as keys of an inventory, each with its type."""


def read(variables: Mapping[str, Any]) -> Settings:
    """Reads the settings out of all variables of a host; reports every finding at once."""
    given = {spec.name: variables[PREFIX + spec.name] for spec in fields(Settings) if PREFIX + spec.name in variables}
    settings, findings = {}, []
    for name, value in given.items():
        try:
            settings[name] = _as(name, value)
        except (TypeError, ValueError):
            findings.append(f"{PREFIX}{name}: {value!r} is not {_kind(name)}")
    findings += _wrong(Settings(**settings)) if not findings else []
    if findings:
        raise BadInput("\n".join(findings), fix=WHERE.format(findings[0].partition(":")[0]))
    return Settings(**settings)


def _kind(name: str) -> str:
    kinds = {int: "a whole number", float: "a number", tuple: "a list of mappings", dict: "a mapping"}
    return kinds.get(_type(name), "a text")


def _as(name: str, value: Any) -> Any:
    kind = _type(name)
    if kind is dict:
        if not isinstance(value, Mapping):
            raise TypeError
        return {str(key): entry if name == "limits" else str(entry) for key, entry in value.items()}
    if kind is tuple:
        if not isinstance(value, (list, tuple)) or not all(isinstance(entry, Mapping) for entry in value):
            raise TypeError
        return tuple(value)
    return kind(value)


def _wrong(settings: Settings) -> list[str]:
    homes = [name for name in ("host_path", "claim", "storage") if getattr(settings, name)]
    tests = [
        (
            DIGEST.fullmatch(settings.image),
            "image",
            "an image by its digest is needed, NAME@sha256:…: all pods run the same",
        ),
        (1 <= settings.pods <= 1000, "pods", "from 1 to 1000"),
        (settings.gpus in (0, 1), "gpus", "0 or 1: a pod is one process, a machine with two cards takes two pods"),
        (
            settings.gpus == 0 or settings.gpu_gb or _known(settings),
            "gpu_gb",
            "how many GB the smallest card has, such as 24",
        ),
        (amount(settings.cpu), "cpu", f"{settings.cpu!r} is no quantity such as 4 or 500m"),
        (amount(settings.memory), "memory", f"{settings.memory!r} is no quantity such as 16Gi"),
        (
            len(homes) == 1,
            homes[1] if homes[1:] else "storage",
            "one of host_path (machines that bootstrap prepared), claim (a volume that all pods write) or storage"
            " (a new one, such as 100Gi) is needed",
        ),
        (not settings.host_path or settings.host_path.startswith("/"), "host_path", "a path from the root is needed"),
        (
            not settings.storage or amount(settings.storage),
            "storage",
            f"{settings.storage!r} is no quantity such as 100Gi",
        ),
    ]
    return [f"{PREFIX}{name}: {what}" for right, name, what in tests if not right]


def _known(settings: Settings) -> bool:
    try:
        return bool(settings.gpu_type) and bool(settings.card())
    except BadInput:
        return False


def ports(values: Mapping[str, Any]) -> dict[str, int | list[int]]:
    first, last = values.get("motley_render_group_ports") or GROUP_PORTS
    heartbeat = values.get("motley_render_presence_port") or HEARTBEAT_PORT
    return {"presence_port": int(heartbeat), "group_ports": [int(first), int(last)]}
