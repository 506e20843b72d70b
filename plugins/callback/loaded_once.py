"""Loads all filters once, before the tasks: each task on each host is a fork that would load them for itself."""

from __future__ import annotations

from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader, test_loader

DOCUMENTATION = """
name: loaded_once
type: aggregate
short_description: Loads all filters once, before the tasks
description: Nothing is shown; the forks inherit what is loaded.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "loaded_once"

    def v2_playbook_on_start(self, playbook: Any) -> None:
        for plugins in (filter_loader, test_loader):
            list(plugins.all())
