"""A sweep: trials that each machine trains by itself, proposed and ended early by Optuna."""
