"""Only its page: what it does is plugins/action/remember_nics.py, on the controller."""

DOCUMENTATION = """
module: remember_nics
short_description: Remember which network card leads to each node
author: Motley
description:
  - Notes it on the controller, where ./motley wake reads it, since a machine that is off tells nobody.
options:
  state_folder:
    type: path
    required: true
    description: The controller's folder for its key, receipts and what it launched.
"""

EXAMPLES = """
- name: Remember which network card leads to it
  remember_nics:
    state_folder: .motley
  run_once: true
"""

RETURN = """
changed: {type: bool, returned: always, description: "Never: it is a note of the controller's own"}
"""
