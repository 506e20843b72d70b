"""Only its page: what it does is plugins/action/run_follow.py, on the controller."""

DOCUMENTATION = """
module: run_follow
short_description: Show a run until it ends
author: Motley
description:
  - Shows the run that was just started, in calm lines; Ctrl-C leaves the run alone.
  - Where ./motley launch has started the playbook, it shows the run itself, and this only says which.
  - Reads motley_start_done of every node, which run_start gave.
options:
  run:
    type: str
    required: true
    description: Its name.
  follow:
    type: bool
    required: true
    description: Whether it is shown at all.
  every_s:
    type: float
    required: true
    description: Seconds between two lines where the output is no terminal.
"""

EXAMPLES = """
- name: Show it until it ends
  run_follow:
    run: my-run
    follow: true
    every_s: 10
  run_once: true
"""

RETURN = """
run: {type: str, returned: success, description: Its name}
launched: {type: dict, returned: where ./motley launch shows it, description: "Its run, nodes, and since when"}
"""
