"""What controller and nodes agree on without asking: the cluster's folder on a node, and the ports of runs.

The roles' defaults give a person the same values to change.
"""

HOME = "~/ai-cluster"
HEARTBEAT_PORT = 29400
GROUP_PORTS = (29410, 29489)
"""Another one for each generation."""
PORTS = (29400, 29899)
"""All that the nodes open to each other."""
PORTS_IN_USE = (29400, 29893)
"""From the heartbeat's to the last probe's."""
