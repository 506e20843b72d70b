"""`python -m train` with pieces that take a while, so that something can happen to them."""

import os
import sys
import time

import train.__main__ as command
from train.recipes.generate.recipe import Generate

work = Generate.work


def slowly(self, piece, desk):
    time.sleep(0.1)
    return work(self, piece, desk)


Generate.work = slowly

if __name__ == "__main__":
    status = command.main(sys.argv[1:])
    os._exit(status)
