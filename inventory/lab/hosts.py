#!/usr/bin/env python3
"""The running lab as an inventory, with the keys of inventory/homelab/hosts.yml. Answers inside the lab only."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.__main__ import main

sys.argv[1:] = ["inventory"]
sys.exit(main())
