"""Ways to change the training program from outside, by what they change. broken.py runs it with them."""

import os

RANK = int(os.environ.get("RANK", "0"))
