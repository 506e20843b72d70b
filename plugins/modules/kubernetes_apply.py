"""Only its page: what it does is plugins/action/kubernetes_apply.py, on the controller."""

DOCUMENTATION = """
module: kubernetes_apply
short_description: Write the objects of a run on Kubernetes, and apply them
author: Motley
description:
  - Writes them to one file of the controller and applies it by kubectl; without kubectl it says how that is done.
options:
  plan:
    type: dict
    required: true
    description: The plan of the run.
  environment:
    type: dict
    required: true
    description: Further environment variables of the pods.
  start:
    type: bool
    required: true
    description: Whether they are applied.
"""

EXAMPLES = """
- name: Apply its objects
  kubernetes_apply:
    plan: "{{ decided.plan }}"
    environment: {}
    start: true
  register: done
"""

RETURN = """
started: {type: dict, returned: when they were applied, description: How the run is known}
"""
