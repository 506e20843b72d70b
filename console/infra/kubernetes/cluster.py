"""The API server that a launch goes to."""

from __future__ import annotations

import os
import shutil

from console.infra.kubernetes import kubectl
from console.infra.kubernetes.node import KubernetesNode
from console.infra.kubernetes.objects import RUN, Object, name_of
from console.infra.node import Silent
from train.errors import BadInput

APPLY_S = 60.0


class Cluster:
    """The API server that kubectl leads to, if there is one."""

    def __init__(self, kubectl: tuple[str, ...]) -> None:
        self.kubectl = kubectl
        self.node = KubernetesNode(name="kubernetes", home="", kubectl=kubectl)

    @property
    def is_there(self) -> bool:
        """A kubectl that leads nowhere is as good as none."""
        if shutil.which(self.kubectl[0]) is None:
            return False
        if len(self.kubectl) > 1 or "KUBERNETES_SERVICE_HOST" in os.environ:
            return True
        try:
            return bool(self.node.kube("config", "current-context").strip())
        except Silent:
            return False

    def kube(self, *words: str, given: str = "", timeout_s: float = APPLY_S) -> str:
        try:
            return self.node.kube(*words, given=given, timeout_s=timeout_s)
        except Silent as why:
            raise self.refused(why, *([] if given else words)) from None

    def refused(self, why: Silent, *words: str) -> BadInput:
        command = [*self.kubectl, *words] if words else []
        return BadInput(f"kubectl: {why}", fix=kubectl.fix(str(why), command, self.kubectl))

    def job(self, run: str) -> Object | None:
        try:
            return self.node.jobs().get(run)
        except Silent as why:
            raise self.refused(why) from None

    def refuse_lost(self, run: str) -> None:
        """A pod of a machine that is gone keeps its Job from being deleted."""
        try:
            words = self.node.lost(self.node.listed("pods", f"{RUN}={name_of(run)}"))
        except Silent as why:
            raise self.refused(why) from None
        if words:
            raise BadInput(f"run '{run}' has pods there that cannot end", fix=f"fix: {words}")
