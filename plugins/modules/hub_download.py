"""Only its page: what it does is plugins/action/hub_download.py, on the controller."""

DOCUMENTATION = """
module: hub_download
short_description: Bring a model, a data set or a tokenizer to the controller
author: Motley
description:
  - Fetches it once for all nodes, from the hub or a folder, and returns what artifacts can hand on.
  - Takes one of the options.
options:
  model:
    type: dict
    description: The model, as the plan names it.
  listed:
    type: dict
    description: A model of which only the files and their hashes are listed.
  tokenizer:
    type: dict
    description: A model of which only the tokenizer is brought.
  dataset:
    type: dict
    description: The data set, as the plan names it.
"""

EXAMPLES = """
- name: Fetch the base model on the controller
  hub_download:
    model: "{{ decided.plan.model }}"
  run_once: true
  register: fetched
"""

RETURN = """
folder: {type: str, returned: except with listed, description: Folder on the controller that holds it}
files: {type: dict, returned: except with listed, description: "Name to size and sha256; empty means all of the folder"}
"""
