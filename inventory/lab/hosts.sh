#!/bin/sh
# The running lab as an inventory, with the keys of examples/hosts.yml. Answers inside the lab only.
cd "$(dirname "$0")/../.." && exec .venv/bin/python -m lab inventory
