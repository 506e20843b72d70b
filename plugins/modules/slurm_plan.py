"""Only its page: what it does is plugins/action/slurm_plan.py, on the controller."""

DOCUMENTATION = """
module: slurm_plan
short_description: Decide a run on an existing Slurm
author: Motley
description:
  - Decides by the same rules as launch_plan, from what Slurm says; submits nothing.
options:
  asked:
    type: dict
    required: true
    description: What read_extra_vars returned as asked.
  options:
    type: list
    elements: str
    required: true
    description: Options of sbatch, one each.
  state_folder:
    type: path
    required: true
    description: The controller's folder for its key, receipts and what it launched.
  look:
    type: dict
    required: true
    description: What slurm_info returned as look.
  versions:
    type: dict
    required: true
    description: What versions_info returned as versions.
  tell_in:
    type: path
    default: ""
    description: A file of the controller that gets the plan as JSON; empty, it is only printed.
"""

EXAMPLES = """
- name: Decide the run
  slurm_plan:
    asked: "{{ checked.asked }}"
    options: ["--nodes=2", "--time=02:00:00"]
    state_folder: .motley
    look: "{{ seen.look }}"
    versions: "{{ read.versions }}"
  register: decided
"""

RETURN = """
plan: {type: dict, returned: success, description: "The plan; of a sweep that of its first run, and all runs"}
"""
