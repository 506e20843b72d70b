"""The text of one answer while its tokens come: whole letters alone, and nothing of a stop word.

It follows from the tokens alone, so whoever continues an answer goes on with the very next letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"
"""What the bytes of half a letter look like."""


class Written:
    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        self.decode, self.stop = decode, [word for word in stop if word]
        self.tokens: list[int] = []
        self.text = ""
        self.stopped = False
        self._sent = self._before = self._read = 0

    @classmethod
    def begun(
        cls, decode: Callable[[Sequence[int]], str], stop: Sequence[str], tokens: Sequence[int], sent: int
    ) -> Written:
        """An answer of which another machine has sent so many characters."""
        written = cls(decode, stop)
        for token in tokens:
            written.add(token)
        written._sent = sent
        return written

    def add(self, token: int) -> None:
        if self.stopped:
            return
        self.tokens.append(token)
        new = self._unread_text()
        if new and not new.endswith(BROKEN):
            self._before, self._read = self._read, len(self.tokens)
            self._append(new)

    def _unread_text(self) -> str:
        """The text of the newest tokens: decoded behind some older ones, as a first token may lose its space."""
        known, now = self.decode(self.tokens[self._before : self._read]), self.decode(self.tokens[self._before :])
        return now[len(known) :]

    def _append(self, part: str) -> None:
        old = len(self.text)
        self.text += part
        longest = max(map(len, self.stop), default=0)
        stops = [at for word in self.stop if (at := self.text.find(word, max(0, old - longest + 1))) >= 0]
        if stops:
            self.text, self.stopped = self.text[: min(stops)], True

    def take(self, *, ended: bool = False) -> str:
        """What may be sent and was not; at the end all of it, and half a letter as it is."""
        if ended and not self.stopped:
            new = self._unread_text()
            self._before = self._read = len(self.tokens)
            self._append(new)
        until = len(self.text) if ended or self.stopped else len(self.text) - self._held()
        part, self._sent = self.text[self._sent : until], max(until, self._sent)
        return part

    def _held(self) -> int:
        """How many characters at the end may be the begin of a stop word."""
        longest = max(map(len, self.stop), default=1) - 1
        sizes = range(min(longest, len(self.text)), 0, -1)
        return next((size for size in sizes if any(word.startswith(self.text[-size:]) for word in self.stop)), 0)
