"""A script that calls motley.fit as a person's own would: fits.py run --recipe=FILE --SETTING=VALUE …"""

import sys

import motley
from train.safe_stdio import may_be_unread

if __name__ == "__main__":
    with may_be_unread():
        words = [word.removeprefix("--").partition("=") for word in sys.argv[2:]]
        given = {name.replace("-", "_"): value for name, _, value in words}
        made = motley.fit(given.pop("recipe"), given | {"run": "run"})
        print("steps", made.steps)
