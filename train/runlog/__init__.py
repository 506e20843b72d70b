"""A run's files as others read them. Imports no torch."""
