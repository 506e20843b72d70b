"""Tasks of lm-evaluation-harness, asked of a base and of an adapter in pieces (recipe=evaluate)."""
