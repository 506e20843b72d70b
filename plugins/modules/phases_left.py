"""Only its page: what it does is plugins/action/phases_left.py, on the controller."""

DOCUMENTATION = """
module: phases_left
short_description: See which phases left every node as it still is
author: Motley
description:
  - Judges what phases_info found on each node; a phase runs on all of them or on none. Changes nothing.
options:
  phases:
    type: list
    elements: str
    required: true
    description: Phases in their order.
  stands_on:
    type: dict
    required: true
    description: Phase to the one whose change makes its look worthless.
"""

EXAMPLES = """
- name: See which phases left every node as it still is
  phases_left:
    phases: [gpu_driver, python_env]
    stands_on: {python_env: gpu_driver}
  run_once: true
  register: judged
"""

RETURN = """
run: {type: list, returned: success, description: Phases that are to run}
because: {type: dict, returned: success, description: Phase to why it runs}
"""
