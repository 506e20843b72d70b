"""What keeper.py sends: one process, in whose memory the key is, waits for the time and then gives back until nothing
is left."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

from console.rent.clore import Clore
from console.rent.market import Declined, Unanswered


def on_node(facts: dict[str, Any]) -> None:
    market = Clore(key=facts["key"], url=facts["url"])
    why = ""
    try:
        market.orders()
    except (Unanswered, Declined) as error:
        why = f"the market: {error}"
    if facts["mark"] and not why and os.fork() == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        keep(market, facts)
        os._exit(0)
    print(json.dumps({"why": why}))
    sys.stdout.flush()


def keep(market: Clore, facts: dict[str, Any]) -> None:
    end = time.clock_gettime(time.CLOCK_BOOTTIME) + facts["left_s"] + facts["after_s"]
    while (left := end - time.clock_gettime(time.CLOCK_BOOTTIME)) > 0:
        time.sleep(min(60.0, left))
    while True:
        with contextlib.suppress(Unanswered, Declined):
            ours = [one.number for one in market.orders() if one.mark == facts["mark"] or one.number == facts["order"]]
            if not ours:
                return
            for number in ours:
                market.cancel(number)
        time.sleep(facts["every_s"])
