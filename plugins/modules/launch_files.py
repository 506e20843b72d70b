"""Only its page: what it does is plugins/action/launch_files.py, on the controller."""

DOCUMENTATION = """
module: launch_files
short_description: Write down what a run runs by
author: Motley
description:
  - Renders the node's files from the plan, on the controller, and writes them by node_files.
options:
  plan:
    type: dict
    required: true
    description: The plan of the run.
  state_folder:
    type: path
    required: true
    description: The controller's folder for its key, receipts and what it launched.
  token:
    type: str
    required: true
    description: The secret that the agents of this run share.
  ports:
    type: dict
    required: true
    description: The presence_port, and the group_ports.
  environment:
    type: dict
    default: {}
    description: Further environment variables of the run.
  not_before:
    type: float
    default: 0
    description: When it may begin, in seconds since 1970; 0 means at once.
  then:
    type: str
    default: ""
    description: What the machine does at the end, suspend or poweroff; empty, nothing.
  queue:
    type: bool
    default: false
    description: Whether it waits in the queue; then its files lie in config/queue/RUN until its turn has come.
  start:
    type: bool
    default: true
    description: Whether it is started next; otherwise the task may say how that is done by hand.
"""

EXAMPLES = """
- name: Write down for every node what it runs
  launch_files:
    state_folder: .motley
    plan: "{{ decided.plan }}"
    token: "{{ token }}"
    ports: {presence_port: 29400, group_ports: [29410, 29489]}
"""

RETURN = """
launch: {type: str, returned: on machines, description: The name of this launch in the queue}
changed: {type: bool, returned: always, description: Whether something was written}
"""
