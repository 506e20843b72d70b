"""Pictures into classes."""
