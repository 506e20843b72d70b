"""Only its page: what it does is plugins/action/check_variables.py, on the controller."""

DOCUMENTATION = """
module: check_variables
short_description: Check every variable of several roles before any of them begins
author: Motley
description:
  - Holds what the inventory and the command set on each node against the argument specs of the roles. Changes nothing.
options:
  roles:
    type: list
    elements: str
    required: true
    description: The roles that are going to run.
"""

EXAMPLES = """
- name: Check every variable, before anything is changed
  check_variables:
    roles: [motley_contact, motley_hostname]
  run_once: true
"""

RETURN = """
variables: {type: int, returned: success, description: "How many were held against their specs"}
"""
