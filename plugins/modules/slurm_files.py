"""Only its page: what it does is plugins/action/slurm_files.py, on the controller."""

DOCUMENTATION = """
module: slurm_files
short_description: Write down what a job of Slurm runs by
author: Motley
description:
  - Renders the job's files from the plan, on the controller, and writes them by node_files.
options:
  plan:
    type: dict
    required: true
    description: The plan of the run.
  state_folder:
    type: path
    required: true
    description: The controller's folder for its key, receipts and what it launched.
  options:
    type: list
    elements: str
    required: true
    description: Options of sbatch, one each.
  environment:
    type: dict
    default: {}
    description: Further environment variables of the run.
"""

EXAMPLES = """
- name: Write down what the job runs
  slurm_files:
    state_folder: .motley
    plan: "{{ decided.plan }}"
    options: [--partition=gpu]
"""

RETURN = """
changed: {type: bool, returned: always, description: Whether something was written}
"""
