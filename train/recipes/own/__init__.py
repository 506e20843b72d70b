"""A recipe of one's own, from a file."""
