"""Where a run runs, and how the controller gets there: ssh.py, local.py (folders of this machine), slurm/, kubernetes/.

Each has a node (node.py says what one must answer); choose.py takes the one that an inventory names.
"""
