"""Between the lines of requests and the engine: prompts become tokens, tokens become text, and answers end."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from train.data.convert_record import BadRecord
from train.data.to_tokens import Chat, asked_text, end_ids
from train.errors import CheckFailed
from train.serve.request import Asked, Engine, Made
from train.serve.written import Written

WARM, TRIAL = 4, 8
"""Tokens of an answer of its own, before the first request: by the later ones this machine's speed is measured."""
HANGS_S = 120.0
"""Without a token, beside the time in which requests are read."""

Order = dict[str, Any]


@dataclass(slots=True)
class Answering:
    asked: Asked
    written: Written
    most: int
    """Tokens of its answer."""


class Conversations:
    def __init__(self, engine: Engine, chat: Chat, context: int, write: Callable[[Order], None]) -> None:
        self.engine, self.chat, self.context, self.write = engine, chat, context, write
        self.ends = frozenset(end_ids(chat))
        self.live: dict[int, Answering] = {}
        self.heard = 0.0
        """When the engine made its last token; when it was asked, where nothing else was going on."""

    def hold(self, orders: queue.Queue[Order | None]) -> None:
        """Until the input has ended."""
        while True:
            while not self.live or not orders.empty():
                order = orders.get()
                if order is None:
                    return
                self.take(order)
            self.step()

    def take(self, order: Order) -> None:
        if "drop" in order:
            self.live.pop(order["drop"], None)
            self.engine.drop([order["drop"]])
            return
        number = order["ask"]
        try:
            prompt = self.prompt_of(order)
            if not prompt:
                raise BadRecord("the request is empty: there is nothing to continue")
            room = self.context - len(prompt)
            if room < 1:
                raise BadRecord(
                    f"the request has {len(prompt)} tokens, and {self.context} with the answer are what fits here"
                )
        except BadRecord as why:
            self.write({"to": number, "wrong": str(why)})
            return
        begun = order.get("begun") or []
        chance = {name: order[name] for name in ("temperature", "top_p", "seed")}
        asked = Asked(number=number, prompt=tuple(prompt), begun=tuple(begun), **chance)
        written = Written.begun(self.decode, order["stop"], begun, order.get("sent", 0))
        self.heard = self.heard if self.live else time.monotonic()
        self.live[number] = Answering(asked, written, min(order.get("most") or room, room))
        if not self.is_over(self.live[number]):
            self.engine.begin(asked)

    def prompt_of(self, order: Order) -> list[int]:
        if "prompt" in order:
            return list(self.chat.tokenizer(order["prompt"]).input_ids)
        text = asked_text(self.chat, order["messages"])
        return list(self.chat.tokenizer(text, add_special_tokens=False).input_ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.chat.tokenizer.decode(tokens, skip_special_tokens=True))

    def step(self) -> None:
        over = []
        news = self.engine.step()
        self.heard = time.monotonic() if news else self.heard
        for made in news:
            answering = self.live.get(made.number)
            if answering is None:
                continue
            if made.failed:
                self.write({"to": made.number, "failed": made.failed})
            elif self.goes_on(answering, made):
                continue
            over.append(made.number)
            del self.live[made.number]  # a stream may have brought tokens behind its end already
        self.engine.drop(over)

    def hangs(self, token_s: float) -> bool:
        """Whether the engine has made nothing for longer than it takes to read all requests. To read a token never
        takes longer than to make one (`token_s`), but for the attention of long requests."""
        read = sum(len(one.asked.prompt) + len(one.asked.begun) for one in list(self.live.values()))
        return bool(read) and time.monotonic() - self.heard > HANGS_S + 2 * token_s * read

    def goes_on(self, answering: Answering, made: Made) -> bool:
        """Takes the tokens up to its end and sends what may be sent of them."""
        taken = []
        for token in made.tokens:
            taken.append(token)
            if token not in self.ends:
                answering.written.add(token)
            if token in self.ends or answering.written.stopped or len(answering.written.tokens) >= answering.most:
                ended = "length" if token not in self.ends and not answering.written.stopped else "stop"
                self.send(answering, taken, ended)
                return False
        self.send(answering, taken, "")
        return True

    def is_over(self, answering: Answering) -> bool:
        """Whether what another machine has made was all of it, but for the news of its end."""
        tokens = answering.asked.begun
        ended = "stop" if answering.written.stopped or (tokens and tokens[-1] in self.ends) else ""
        ended = ended or ("length" if len(answering.written.tokens) >= answering.most else "")
        if ended:
            self.send(answering, [], ended)
            del self.live[answering.asked.number]
        return bool(ended)

    def send(self, answering: Answering, tokens: list[int], ended: str) -> None:
        number = answering.asked.number
        text = answering.written.take(ended=bool(ended))
        if tokens or text:
            self.write({"to": number, "tokens": tokens, "text": text})
        if ended:
            self.write({"to": number, "end": ended, "asked": len(answering.asked.prompt)})


def seconds_for_a_token(engine: Engine, chat: Chat) -> float:
    """Measured on an answer alone."""
    prompt = tuple(chat.tokenizer("What is it that you can do?", add_special_tokens=False).input_ids)
    engine.begin(Asked(number=-1, prompt=prompt))
    made_in(engine, WARM)
    since = time.perf_counter()
    made = made_in(engine, TRIAL)
    seconds = time.perf_counter() - since
    engine.drop([-1])
    return seconds / made


def made_in(engine: Engine, least: int) -> int:
    """How many tokens were made, at least so many."""
    tokens = 0
    while tokens < least:
        for made in engine.step():
            if made.failed:
                raise CheckFailed(f"the model gives no answer: {made.failed}")
            tokens += len(made.tokens)
    return tokens
