"""Shows the run that was just started, in calm lines, until it ends; Ctrl-C leaves the run alone."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from console import follow_view, playbook_answer
from console.infra import infra_of
from console.infra.choose import from_hostvars
from console.run_in_words import RunView
from train.runlog.state import RunState
from train.safe_stdio import plain


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        if self._task.check_mode:
            return result | {"skipped": True}
        known, args = task_vars or {}, self._task.args
        names = list(known["ansible_play_hosts"])
        hostvars = known["hostvars"]
        started = {name: hostvars[name]["motley_start_done"]["started"] for name in names}
        ups = [node["up"] - node["time"] for node in started.values()]
        if infra_of(hostvars[names[0]]).ours:  # elsewhere it begins when its turn comes
            self._display.display(f"started on {len(names)} of {len(names)} nodes within {max(ups):.1f} s")
        since = {name: node["time"] for name, node in started.items()}
        if playbook_answer.wanted() == "launched":  # ./motley launch shows it itself, on its own terminal
            launched = {"run": str(args["run"]), "nodes": names, "since": since, "follow": bool(args["follow"])}
            return result | {"changed": False, "run": args["run"], "launched": launched}
        view = RunView(RunState(run=str(args["run"])), names, since)
        nodes = from_hostvars(names, hostvars)

        def say(line: str) -> None:
            self._display.display(plain(line))

        ended = follow_view.watch(
            nodes,
            view,
            say,
            terminal=False,  # Ansible's workers have none
            every_s=float(args["every_s"]),
            until_proven=not args["follow"],
        )
        if ended and not ended.ok:
            return result | {"failed": True, "msg": "\n".join(ended.lines)}
        return result | {"changed": False, "run": view.state.run, "step": view.state.step}
