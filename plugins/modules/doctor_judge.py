"""Only its page: what it does is plugins/action/doctor_judge.py, on the controller."""

DOCUMENTATION = """
module: doctor_judge
short_description: Judge what every node reported to the doctor
author: Motley
description:
  - Prints what is wrong, each with its fix; fails where something is. Changes nothing.
  - Reads what the tasks of the role motley_doctor registered.
options:
  load:
    type: bool
    required: true
    description: Whether the machines were loaded for a moment.
  full:
    type: bool
    required: true
    description: Whether every file was read.
  no_collective:
    type: str
    required: true
    description: Why no all-reduce was tried; empty where it was.
"""

EXAMPLES = """
- name: Judge what was found
  doctor_judge:
    load: true
    full: false
    no_collective: ""
  delegate_to: localhost
  run_once: true
"""

RETURN = """
doctor: {type: dict, returned: always, description: The findings as data}
"""
