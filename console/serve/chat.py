"""`./motley chat`: a conversation in the terminal with what a run has made, over the endpoint of ./motley serve.

What was said before is sent along. A paste of several lines is one message; /new forgets all; Ctrl-C stops an answer,
Ctrl-D ends. Where nobody types, each line of the input is a message.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Generator
from typing import TypedDict

from console.inventory.read import Inventory
from console.serve.client import Client, Messages, NotAnswered, endpoint
from console.text_layout import say
from console.use_result import NowhereToAsk
from train.errors import BadInput

HELP = "a paste of several lines is one message · /new forgets · Ctrl-C stops an answer · Ctrl-D ends"
PROMPT = "> "
HOTTEST = 2.0


def chat(
    inventory: Inventory, *, run: str = "", temperature: str = "", tokens: int = 0, system: str = "", port: int = 0
) -> int:
    how = options(temperature, tokens)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with endpoint(inventory, run, port, say) as client:
            typed = sys.stdin.isatty() and sys.stdout.isatty()
            if typed:
                say(HELP)
            converse(client, read_typed if typed else read_line, system, how)
    except (NowhereToAsk, NotAnswered) as why:
        say(str(why))
        return 1
    return 0


class Options(TypedDict, total=False):
    temperature: float
    max_tokens: int


def options(temperature: str, tokens: int) -> Options:
    options: Options = {}
    with contextlib.suppress(ValueError):
        options["temperature"] = float(temperature or 0.7)
    if not 0 <= options.get("temperature", -1) <= HOTTEST:
        raise BadInput(
            f"temperature: {temperature} is no number from 0 to {HOTTEST:g}", fix="such as --temperature 0.7"
        )
    if tokens:
        options["max_tokens"] = tokens
    return options


def converse(client: Client, read: Callable[[], str], system: str, how: Options) -> None:
    """Answers each message until the end of the input."""
    opening: Messages = [{"role": "system", "content": system}] if system else []
    messages = [*opening]
    while True:
        try:
            text = read().strip()
            if text == "/new":
                messages = [*opening]
                say("forgotten: a new conversation")
            elif text:
                messages = answered(client, [*messages, {"role": "user", "content": text}], how)
        except EOFError:
            say()
            return
        except KeyboardInterrupt:
            say()


def answered(client: Client, messages: Messages, how: Options) -> Messages:
    """The conversation with the answer, as far as it came; without the question where it got none."""
    answer, stopped = "", False
    try:
        with contextlib.closing(client.stream(messages, **how)) as parts:
            for part in shown(parts):
                answer += part
    except KeyboardInterrupt:
        stopped = True
    except NotAnswered as why:
        say(f"{chr(10) if answer else ''}! {why}")
    say("\n(stopped)" if stopped else "")
    return [*messages, {"role": "assistant", "content": answer}] if answer else messages[:-1]


def shown(parts: Generator[str, None, None]) -> Generator[str, None, None]:
    for part in parts:
        print(part, end="", flush=True)
        yield part


def read_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def read_typed() -> str:
    """A line with the keys of a shell. The terminal marks a paste, so its line ends end nothing."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: PLC0415  it changes how a terminal is read

        readline.parse_and_bind("set enable-bracketed-paste on")
    return input(PROMPT)
