"""Only its page: what it does is plugins/action/launch_plan.py, on the controller."""

DOCUMENTATION = """
module: launch_plan
short_description: Decide a run from what every node reported
author: Motley
description:
  - Decides by train/plan/launch/decide.py and prints the plan; changes nothing.
  - Reads motley_plan_look of every node, which launch_info gave.
options:
  asked:
    type: dict
    required: true
    description: What read_extra_vars returned as asked.
  state_folder:
    type: path
    required: true
    description: The controller's folder for its key, receipts and what it launched.
"""

EXAMPLES = """
- name: Decide the run
  launch_plan:
    asked: "{{ checked.asked }}"
    state_folder: .motley
  run_once: true
  register: decided
"""

RETURN = """
plan: {type: dict, returned: success, description: What will run where}
"""
