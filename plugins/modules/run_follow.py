"""Only its page: what it does is plugins/action/run_follow.py, on the controller."""

DOCUMENTATION = """
module: run_follow
short_description: Show a run until it ends
author: Motley
description:
  - Shows the run that was just started, in calm lines; Ctrl-C leaves the run alone.
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
  tell_in:
    type: path
    required: true
    description: A file of the controller that gets what was started, for whoever shows it; empty, it is shown here.
"""

EXAMPLES = """
- name: Show it until it ends
  run_follow:
    run: my-run
    follow: true
    every_s: 10
    tell_in: ""
  run_once: true
"""

RETURN = """
run: {type: str, returned: with tell_in, description: Its name}
"""
