"""A language model from nothing."""
