"""The lab: real hosts on one machine, to try playbooks and training on.

Each host is a systemd-nspawn container with its own network namespace, disk image, cgroup and boot; they hang on a
bridge that lives in a namespace of its own, so nothing they send can leave the machine. See docs/inside/lab.md.

    python -m lab up                       three hosts, as an installer leaves them
    python -m lab exec -- ansible all -m ping
    python -m lab fault power-cut gpu-worker-1
    python -m lab down
"""
