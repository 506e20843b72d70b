"""Only its page: what it does is plugins/action/kubernetes_plan.py, on the controller."""

DOCUMENTATION = """
module: kubernetes_plan
short_description: Decide a run on an existing Kubernetes
author: Motley
description:
  - Decides by the same rules as launch_plan, from what the pods are to get.
  - Tries the objects out on the API server; changes nothing.
options:
  asked:
    type: dict
    required: true
    description: What read_extra_vars returned as asked.
  environment:
    type: dict
    required: true
    description: Further environment variables of the pods.
  tell_in:
    type: path
    default: ""
    description: A file of the controller that gets the plan as JSON; empty, it is only printed.
"""

EXAMPLES = """
- name: Decide the run
  kubernetes_plan:
    asked: "{{ checked.asked }}"
    environment: {NCCL_DEBUG: INFO}
  register: decided
"""

RETURN = """
plan: {type: dict, returned: success, description: What will run}
"""
