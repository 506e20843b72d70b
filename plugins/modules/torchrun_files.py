"""Only its page: what it does is plugins/action/torchrun_files.py, on the controller."""

DOCUMENTATION = """
module: torchrun_files
short_description: Write down on a node what it runs for a script of one's own
author: Motley
description:
  - Renders the node's files from the plan, on the controller, and writes them by node_files.
options:
  plan:
    type: dict
    required: true
    description: The plan of the run.
  environment:
    type: dict
    default: {}
    description: Further environment variables of the run.
"""

EXAMPLES = """
- name: Write down for every node what it runs
  torchrun_files:
    plan: "{{ decided.plan }}"
"""

RETURN = """
changed: {type: bool, returned: always, description: Whether something was written}
"""
