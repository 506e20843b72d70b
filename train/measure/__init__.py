"""What this machine and its network can do."""
