"""The training program with one thing changed from outside, most often broken on purpose: broken.py WHAT run …, or
WHAT=NUMBER, or several with a plus between them. breaks/ has what there is."""

import os
import sys

from tests.train.breaks import agents, cards, disks, pace, sums
from train import __main__

CHANGES = vars(agents) | vars(cards) | vars(disks) | vars(pace) | vars(sums)

if __name__ == "__main__":
    for change in sys.argv[1].split("+"):
        what, *numbers = change.split("=")
        CHANGES[what](*[int(number) for number in numbers])
    status = __main__.main(sys.argv[2:])
    sys.stdout.flush()
    os._exit(status)
