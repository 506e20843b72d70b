"""Motley's training package: one loop that gives the same loss curve on any cluster. `python -m train --help`."""
