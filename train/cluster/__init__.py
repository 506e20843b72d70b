"""Who trains: the agent of each node, its heartbeat, its workers."""
