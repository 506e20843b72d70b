"""Only its page: what it does is plugins/action/first_contact.py, on the controller."""

DOCUMENTATION = """
module: first_contact
short_description: Find nodes by their pinned host keys
author: Motley
description:
  - Looks at every address a node may have and returns which one shows its pinned key.
  - Pins new nodes when O(accept=true), makes the controller's own key, and changes nothing on any node.
options:
  nodes:
    type: list
    elements: dict
    required: true
    description: name, addresses (the wanted one first), port
  state_folder:
    type: path
    required: true
    description: Holds known_hosts and the controller's key
  accept:
    type: bool
    default: false
    description: Pin the keys of nodes seen for the first time
  forget:
    type: list
    elements: str
    default: []
    description: Nodes whose pin is dropped first
  prefer_s:
    type: float
    default: 0
    description: Seconds to insist on the first address (one node only)
  wait_s:
    type: float
    default: 0
    description: Seconds to wait for any answer (one node only)
"""

EXAMPLES = """
- name: See who answers, and with which host key
  first_contact:
    nodes:
      - {name: gpu-master, addresses: [192.168.1.100, 192.168.1.23], port: 22}
    state_folder: .motley
  run_once: true
"""

RETURN = """
contacts: {type: dict, returned: always, description: "Node to state, address, fingerprint"}
strangers: {type: list, elements: str, returned: always, description: Nodes whose key is not pinned}
controller_key: {type: str, returned: always, description: The controller's own public key}
host_keys: {type: dict, returned: always, description: Node to its host key}
"""
