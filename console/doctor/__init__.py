"""`./motley doctor`: what is wrong with the cluster, each with its cause and the command that fixes it."""
