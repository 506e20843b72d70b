"""A training script of one's own over all nodes, by plain torchrun: what is asked for, its plan, and its lines."""
