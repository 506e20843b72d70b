"""`python -m train serve`: answers requests with what a run has made, as long as its standard input is open.

    python -m train serve --run qa

A line of JSON is a request or takes one back; lines of JSON are the answers (console/serve/machine.py speaks with it):

    {"ask": 7, "messages": […] or "prompt": "…", "most": 200, "temperature": 0, "top_p": 1, "seed": 1, "stop": [],
     "begun": [tokens], "sent": 0}       begun, sent: what another machine has made and sent of its answer
    {"drop": 7}
    {"ready": "transformers", "slots": 8, "context": 2048, "seconds": 0.02}
    {"to": 7, "tokens": […], "text": "…"}   … {"to": 7, "end": "stop" or "length", "asked": tokens of the prompt}
    {"to": 7, "wrong": "…"}                 the request itself cannot be answered; "failed": this machine could not
    {"well": true}                          every two seconds; {"cannot": "…"}: why it does not serve
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.cache import home_dir
from train.errors import BadInput
from train.results import finished_run
from train.results.finished_run import FinishedRun

if TYPE_CHECKING:
    from train.results.before_and_after import Trained
    from train.serve.memory import Room
    from train.serve.request import Engine

WELL_S = 2.0
END_S = 10.0
"""For what is going on, once the input has ended."""

Order = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    finished_run.add_arguments(parser, required=True)


def main(args: argparse.Namespace) -> int:
    write = lines_alone()
    orders: queue.Queue[Order | None] = queue.Queue()
    threading.Thread(target=read, args=(orders,), daemon=True).start()
    threading.Thread(target=report_well, args=(write,), daemon=True).start()
    try:
        run = finished_run.find(args)
        refuse(run)
        serve(run, orders, write)
    except BadInput as why:
        write({"cannot": " · ".join(str(why).splitlines())})
        raise
    return 0


def lines_alone() -> Callable[[Order], None]:
    """What writes a line. Whatever a library prints goes where errors go."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lock = threading.Lock()

    def write(line: Order) -> None:
        try:
            with lock:
                out.write(json.dumps(line) + "\n")
                out.flush()
        except OSError:  # nobody reads: it ends
            os._exit(0)

    return write


def read(orders: queue.Queue[Order | None]) -> None:
    for line in sys.stdin.buffer:
        orders.put(json.loads(line))
    orders.put(None)
    time.sleep(END_S)
    os._exit(0)  # it loads, or a pass of the model takes longer than anybody waits


def report_well(write: Callable[[Order], None]) -> None:
    while True:
        write({"well": True})
        time.sleep(WELL_S)


def end_if_it_hangs(hangs: Callable[[], bool], write: Callable[[Order], None]) -> None:
    """A card or a server that hangs: whoever waits goes to another machine, and this one is asked again later."""
    while not hangs():
        time.sleep(WELL_S)
    write({"cannot": "its model makes no more tokens, and hangs"})
    os._exit(1)


def refuse(run: FinishedRun) -> None:
    what = ""
    if run.is_own:
        what = "is of a recipe of your own: it has no words to answer with"
    elif run.scores:
        what = "made a reward model: it gives an answer a score and writes none"
    elif run.recipe == "images":
        what = "made a model of pictures: ./motley ask --question PICTURE shows it one"
    if what:
        raise BadInput(f"run '{run.run}' {what}")


def serve(run: FinishedRun, orders: queue.Queue[Order | None], write: Callable[[Order], None]) -> None:
    from train.plan.model.catalogue import model_facts, positions, read_config, resolve_model, text_config
    from train.results.before_and_after import Trained
    from train.serve.conversation import Conversations, seconds_for_a_token
    from train.serve.memory import free_bytes, room

    trained = Trained.of(run)
    longest = positions(text_config(read_config(Path(trained.shape))))
    facts = model_facts(resolve_model(trained.shape))
    free, device = free_bytes(trained.spec.device), trained.spec.device
    space = room(facts, device=device, load_in=trained.spec.load_in, positions=longest, free=free)
    with contextlib.closing(engine_of(run, trained, space)) as engine:
        seconds = seconds_for_a_token(engine, trained.chat)
        write({"ready": engine.name, "slots": space.slots, "context": space.context, "seconds": seconds})
        conversations = Conversations(engine, trained.chat, space.context, write)
        threading.Thread(
            target=end_if_it_hangs, args=(lambda: conversations.hangs(seconds), write), daemon=True
        ).start()
        conversations.hold(orders)


def engine_of(run: FinishedRun, trained: Trained, space: Room) -> Engine:
    """vLLM where it is, else transformers. In fp32 the adapter is added to its base: half as many products, and the
    same numbers but for their last digits."""
    from train.models import backends
    from train.serve.batch import Batch
    from train.serve.by_vllm import ByVllm, can_serve, serving

    spec = trained.spec
    if can_serve(run, home_dir()):
        return ByVllm(run, serving(run, home_dir(), space, precision=spec.precision, device=spec.device))
    model: Any = backends.get("hf").build(spec)
    if run.is_adapter and (spec.precision, spec.load_in) == ("fp32", "16bit"):
        model = model.merge_and_unload()
    return Batch(model, spec.device)
