"""A real browser that a test drives: Chromium by its own protocol, over a pipe; no further program, no port."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ANSWER_S = 60.0
FAR = 50
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OVERLAPS = """[...document.querySelectorAll('svg')].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll('text')].map((t) => [t.textContent, t.getBoundingClientRect()]);
  const meet = (p, q) => p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3;
  const seen = boxes.filter(([, box]) => box.width);
  return seen.flatMap(([a, p], i) => seen.slice(i + 1).filter(([, q]) => meet(p, q)).map(([b]) => `${a} / ${b}`));
})"""
"""Labels of charts that lie on one another."""
BRIGHTNESS = """["color", "backgroundColor"].map((name) =>
  getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3).reduce((a, b) => +a + +b) / 3)"""
"""Of the ink and of the paper."""


def program() -> str:
    return next(filter(None, map(shutil.which, PROGRAMS)), "")


class Browser:
    def __init__(self, program: str, folder: Path) -> None:
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()
        # The program finds the two pipes as its descriptors 3 and 4: from numbers that are neither.
        far_read, far_write = (fcntl.fcntl(pipe, fcntl.F_DUPFD, FAR) for pipe in (theirs_read, theirs_write))
        self.read_from, self.write_to, self.unread, self.number = ours_read, ours_write, b"", 0
        self.events: list[dict[str, Any]] = []
        self.context: dict[str, str] = {}
        words = [
            *("bash", "-c", f'exec "$@" 3<&{far_read} 4>&{far_write}', "bash", program, "--headless", "--no-sandbox"),
            *("--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"),
        ]
        folder.mkdir()
        with (folder.parent / "browser.txt").open("wb") as log:
            self.process = subprocess.Popen(words, pass_fds=(far_read, far_write), stdout=log, stderr=log)
        for pipe in (theirs_read, theirs_write, far_read, far_write):
            os.close(pipe)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.close(self.write_to)
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        os.close(self.read_from)

    @contextlib.contextmanager
    def as_if_new(self) -> Iterator[None]:
        """With cookies and a cache of its own; at the end its tabs are closed."""
        self.context = {"browserContextId": self.call("Target.createBrowserContext")["browserContextId"]}
        yield
        self.call("Target.disposeBrowserContext", **self.context)
        self.context, self.events = {}, []

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            found = self._message(deadline)
            if found.get("id") == self.number:
                assert "error" not in found, f"{method}: {found['error']}"
                return dict(found["result"])
            self.events.append(found)

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.unread:
            assert select.select([self.read_from], [], [], max(0.0, deadline - time.monotonic()))[0], "it is silent"
            piece = os.read(self.read_from, 1 << 16)
            assert piece, "the browser is gone"
            self.unread += piece
        line, _, self.unread = self.unread.partition(b"\0")
        return dict(json.loads(line))

    def tab(self, url: str, *, width: int = 1280, dark: bool = False) -> Tab:
        target = self.call("Target.createTarget", url="about:blank", **self.context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, target, session)
        for domain in ("Page", "Network", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        tab.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.call("Page.navigate", url=url)
        return tab


class Tab:
    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self.browser, self.target, self.session = browser, target, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def value(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, what: str = "body") -> str:
        """Empty while the tab is on its way to another page."""
        try:
            return str(self.value(f"(document.querySelector({json.dumps(what)}) || {{}}).textContent || ''"))
        except AssertionError as error:
            if "Inspected target navigated" not in str(error):
                raise
            return ""

    def photograph(self, file: Path) -> None:
        whole = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(whole["data"]))

    def asked_for(self) -> list[str]:
        """Every address that this tab wanted."""
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [e["params"]["request"]["url"] for e in mine if e["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Of the page's own script, and what its policy forbade."""
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        wrong = [e["params"]["entry"]["text"] for e in mine if e["method"] == "Log.entryAdded"]
        return wrong + [str(e["params"]) for e in mine if e["method"] == "Runtime.exceptionThrown"]

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)
