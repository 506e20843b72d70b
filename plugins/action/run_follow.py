"""Shows the run that was just started, in calm lines, until it ends; Ctrl-C leaves the run alone."""

from __future__ import annotations

from console.controller_action import Facts, OnController
from console.infra import infra_of
from console.infra.node import from_hostvars
from console.playbook import playbook_answer
from console.watch import follow_view
from console.watch.run_in_words import RunView
from train.runlog.state import RunState
from train.safe_stdio import plain


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        if self._task.check_mode:
            return {"skipped": True}
        names, hostvars = list(known["ansible_play_hosts"]), known["hostvars"]
        started = {name: hostvars[name]["motley_start_done"]["started"] for name in names}
        ups = [node["up"] - node["time"] for node in started.values()]
        if infra_of(hostvars[names[0]]).ours:  # elsewhere it begins when its turn comes
            self._display.display(f"started on {len(names)} of {len(names)} nodes within {max(ups):.1f} s")
        since = {name: node["time"] for name, node in started.items()}
        if playbook_answer.wanted() == "launched":  # ./motley launch shows it itself, on its own terminal
            launched = {"run": str(args["run"]), "nodes": names, "since": since, "follow": bool(args["follow"])}
            return {"run": args["run"], "launched": launched}
        view = RunView(RunState(run=str(args["run"])), names, since)
        ended = follow_view.watch(
            from_hostvars(names, hostvars),
            view,
            lambda line: self._display.display(plain(line)),
            terminal=False,  # Ansible's workers have none
            every_s=float(args["every_s"]),
            until_proven=not args["follow"],
        )
        if ended and not ended.ok:
            return {"failed": True, "msg": "\n".join(ended.lines)}
        return {"run": view.state.run, "step": view.state.step}
