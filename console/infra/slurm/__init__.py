"""Runs as jobs of a Slurm that is there already: a node of it, a job's files and time, and slurm.conf of one's own."""
