"""Ways to change the training program from outside, by what they change. broken.py runs it with them."""

import os


def own_rank() -> int:
    """Asked when it is needed: a worker that was started while the others train learns it later."""
    return int(os.environ.get("RANK", "0"))
