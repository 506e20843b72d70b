"""Only its page: what it does is plugins/action/read_extra_vars.py, on the controller."""

DOCUMENTATION = """
module: read_extra_vars
short_description: Read and check what a person asked for
author: Motley
description:
  - Reads the extra variables (-e) of the play itself, where a misspelled name still shows. Changes nothing.
options: {}
"""

EXAMPLES = """
- name: Check what is asked for
  read_extra_vars:
  run_once: true
  register: checked
"""

RETURN = """
asked: {type: dict, returned: success, description: "Values, nodes, and how it is to be launched"}
"""
