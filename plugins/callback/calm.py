"""Ansible's own output, but for the playbooks that say everything in their own lines: launch, plan and the like.

A playbook asks for it by the variable `motley_calm: true` of its play. There, a task shows only what it returns as
motley_lines or motley_say, or says by debug, and a failure only its message. With -v all is as usual.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
from typing import Any

from ansible.constants import COLOR_ERROR
from ansible.errors import AnsibleError
from ansible.plugins.callback.default import CallbackModule as Default
from ansible.release import __version__

try:
    from console.command_line.commands_as_typed import as_typed
    from console.playbook import ansible_errors, playbook_answer
    from console.text_layout import detached
    from train.safe_stdio import plain
except ImportError:  # only .venv has the path to it (make_env.sh): unfit() says what to type
    ansible_errors = None  # type: ignore[assignment]

DOCUMENTATION = """
name: calm
type: stdout
short_description: Ansible's own output, or only what a play says itself
description:
  - Like the default callback, except in a play with the variable motley_calm set to true.
  - There it shows what tasks return as motley_lines or motley_say, and failures.
  - With -v everything is shown as usual.
  - Whoever started the playbook may ask for what one task returns (console/playbook/playbook_answer.py).
extends_documentation_fragment: [default_callback, result_format_callback]
"""
# "Task failed: …" is an exception; a sentence of ours may follow it, with its fix.
WITH_A_FIX = r"(?!(?s:.)*\nfix: )"
GENERIC = "Task failed: |non-zero return code$|Assertion failed$|One or more items|MODULE FAILURE|Module result"
MADE_BY_ANSIBLE = re.compile(f"{WITH_A_FIX}({GENERIC})")
FAILED = {"color": COLOR_ERROR, "stderr": True}
LEAST = (2, 19)


class CallbackModule(Default):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "calm"

    def __init__(self) -> None:
        if why := unfit(__version__, whole=ansible_errors is not None):
            raise AnsibleError(why)
        super().__init__()
        self.calm = False
        self.failures: dict[str, list[str]] = {}
        self.before_looking: Any = None

    def _say(self, words: str, **how: Any) -> None:
        self._display.display(plain(as_typed(words)), **how)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self.calm = bool(play.get_vars().get("motley_calm")) and self._display.verbosity == 0
        if not self.calm:
            super().v2_playbook_on_play_start(play)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._tell_failures()
        if self.before_looking:
            signal.signal(signal.SIGINT, self.before_looking)
            self.before_looking = None
        if self.calm and task.action == "launch_look":
            self.before_looking = signal.signal(signal.SIGINT, self._give_up)
        if self.calm and task.action == "run_follow":
            signal.signal(signal.SIGINT, self._detach)
        if not self.calm:
            super().v2_playbook_on_task_start(task, is_conditional)

    def v2_runner_on_ok(self, result: Any) -> None:
        playbook_answer.give(result.result)
        if not self.calm:
            super().v2_runner_on_ok(result)
            return
        answer = result.result
        for line in answer.get("motley_lines") or []:
            self._say(line)
        if result.task.action.endswith("debug"):
            self._say(str(answer.get("msg", "")))
        if answer.get("changed") and answer.get("motley_say"):
            self._say(f"{result.host.get_name()}  {answer['motley_say']}")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not self.calm:
            super().v2_runner_on_failed(result, ignore_errors)
        elif not ignore_errors:
            about_a_node = not result.task.run_once
            words = findings(result.result) or spoken(result.task, result.result)
            self.failures.setdefault(words, []).extend([result.host.get_name()] * about_a_node)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        if not self.calm:
            super().v2_runner_on_unreachable(result)
        else:
            words = spoken(result.task, result.result, unreachable=True)
            self.failures.setdefault(words, []).append(result.host.get_name())

    def _detach(self, *_: Any) -> None:
        """Ctrl-C while a run is shown ends the showing, and is no failure."""
        self._leave(f"\n{detached('run')}", 0)

    def _leave(self, words: str, code: int) -> None:
        self._say(words)
        for child in multiprocessing.active_children():
            child.terminate()
        os._exit(code)

    def _tell_failures(self) -> None:
        """Tells each failure once for all nodes that failed alike; no name where it is about no node in particular."""
        for words, nodes in self.failures.items():
            who = f"{', '.join(nodes)}: " if nodes else ""
            self._say(f"✗ {who}{words.replace('{host}', ','.join(nodes))}", **FAILED)
        self.failures = {}

    def v2_runner_on_skipped(self, result: Any) -> None:
        if not self.calm:
            super().v2_runner_on_skipped(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        if not self.calm:
            super().v2_runner_item_on_ok(result)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        if not self.calm:
            super().v2_runner_item_on_skipped(result)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        if not self.calm:
            super().v2_runner_item_on_failed(result)

    def v2_runner_retry(self, result: Any) -> None:
        if not self.calm:
            super().v2_runner_retry(result)

    def _give_up(self, *_: Any) -> None:
        self._leave("\nstopped: nothing was started or changed", 130)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        if not self.calm:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        if not self.calm:
            super().v2_playbook_on_no_hosts_remaining()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._tell_failures()
        if not self.calm:
            super().v2_playbook_on_stats(stats)


def unfit(version: str, *, whole: bool) -> str:
    """Why this Ansible cannot run our playbooks, or nothing. `whole`: what we import besides is there too."""
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST:
        what = f"this is ansible-core {version}; Motley needs {LEAST[0]}.{LEAST[1]} or newer"
    elif not whole:
        what = f"this is the system's ansible-core {version}; what Motley needs besides is not there"
    else:
        return ""
    return f"{what}\nfix: make env; then .venv/bin/ansible-playbook in its place"


def spoken(task: Any, result: Any, *, unreachable: bool = False) -> str:
    """A message that was written for a person as it is; of all else the task, what is known of it, and what to do."""
    message = str(result.get("msg") or "")
    ours = "." not in task.action or task.action in ("ansible.builtin.fail", "ansible.builtin.assert")
    if message and ours and not unreachable and not MADE_BY_ANSIBLE.match(message):
        return ansible_errors.PREFIX.sub("", message)
    cause = ansible_errors.explain(result, unreachable=unreachable, otherwise=ansible_errors.UNKNOWN_IN_A_LAUNCH)
    own = [cause.what, *([f"its output: {cause.output}"] if cause.output else []), f"fix: {cause.fix}"]
    return "\n  ".join([task.get_name().replace(" : ", ": "), *own])


def findings(result: Any) -> str:
    """What `python -m train … --json` names as the cause."""
    try:
        return "\n".join(json.loads(str(result["stdout"]).splitlines()[-1])["failures"])
    except (KeyError, IndexError, ValueError, TypeError):
        return ""
