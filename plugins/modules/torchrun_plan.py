"""Only its page: what it does is plugins/action/torchrun_plan.py, on the controller."""

DOCUMENTATION = """
module: torchrun_plan
short_description: Decide what each node runs for a script of one's own
author: Motley
description:
  - Decides by train/plan/launch/torchrun.py and prints the plan; changes nothing.
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
  script:
    type: dict
    required: true
    description: The script, as console/torchrun/request.py has read it.
  port:
    type: int
    required: true
    description: Where torchrun's processes meet.
"""

EXAMPLES = """
- name: Decide what each runs
  torchrun_plan:
    asked: "{{ asked }}"
    state_folder: .motley
    script: "{{ script }}"
    port: 29400
  run_once: true
  register: decided
"""

RETURN = """
plan: {type: dict, returned: success, description: What will run where}
"""
