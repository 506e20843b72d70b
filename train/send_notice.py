"""Tells somebody who does not watch: one message to ntfy, to another webhook, or to a command. Standard library alone.

The address is a secret: no message of this file has a part of it, and a command's own is in its environment, not among
its arguments.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 10.0
PAUSES_S = (1.0, 4.0)
"""The pauses between tries: a network may be away for a moment."""
AGAIN = (408, 429, 500, 502, 503, 504)
PRIORITIES = {"done": "default", "failed": "high", "lost": "high", "waiting": "high", "test": "default"}
TAGS = {"done": "white_check_mark", "failed": "x", "lost": "zap", "waiting": "hourglass", "test": "wave"}
NTFY = re.compile(r"(ntfy\+https?://|https?://([^/@]*@)?([^/]*\.)?ntfy[.:/])", re.IGNORECASE)
"""Knows ntfy by its name; a server of your own with another name says so: ntfy+https://push.example/secret."""
LONGEST = 1200
"""Letters of a text that goes out by HTTP: Discord refuses a message of 2000, and ntfy's ends at 4096 bytes."""
COMMAND = 'command=$MOTLEY_NOTIFY; unset MOTLEY_NOTIFY; eval "$command"'


@dataclass(frozen=True, slots=True)
class Notice:
    kind: str
    run: str
    text: str
    about: str = ""
    """What makes it another thing than the last of its kind: the generation, the node."""

    @property
    def key(self) -> str:
        """Each is told once; good as a file's name."""
        return "-".join(filter(None, (self.kind, self.about)))

    @property
    def title(self) -> str:
        words = {"lost": "a machine is lost", "waiting": "waiting for a majority", "test": "a test"}
        return f"{self.run}: {words.get(self.kind, self.kind)}"


def send(address: str, notice: Notice, *, pauses_s: Sequence[float] = PAUSES_S) -> str:
    """Empty when it went out, else why not; it never raises."""
    why = ""
    if not address.strip():
        return "the address is empty"
    for pause_s in (*pauses_s, None):
        try:
            again, why = _once(address, notice)
        except Exception as error:  # whatever it is, a run continues without its message
            again, why = False, type(error).__name__  # its text may have the address
        if not again or pause_s is None:
            break
        time.sleep(pause_s)
    return why


def _once(address: str, notice: Notice) -> tuple[bool, str]:
    """Whether another try may help, and what went wrong."""
    if not re.match(r"(ntfy\+)?https?://", address, re.IGNORECASE):
        return False, _run(address, notice)
    try:
        with urllib.request.build_opener(_NoRedirect).open(request(address, notice), timeout=TIMEOUT_S) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        where = " (it redirects: give the address that it leads to)" if 300 <= error.code < 400 else ""
        return error.code in AGAIN, f"it answered HTTP {error.code}{where}"
    except TimeoutError:
        return True, f"no answer within {TIMEOUT_S:.0f} s"
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, str):  # urllib's own, of https:///x
            return False, "the address names no host"
        slow = isinstance(cause, TimeoutError)
        why = f"no answer within {TIMEOUT_S:.0f} s" if slow else getattr(cause, "strerror", None)
        return isinstance(error, OSError), why or type(cause).__name__
    return False, ""


def request(address: str, notice: Notice) -> urllib.request.Request:
    url, login = without_login(re.sub(r"^ntfy\+", "", address, flags=re.IGNORECASE))
    text = notice.text if len(notice.text) <= LONGEST else f"{notice.text[:LONGEST]} …"
    if NTFY.match(address):
        headers = {"Title": notice.title, "Priority": PRIORITIES[notice.kind], "Tags": TAGS[notice.kind]}
        return urllib.request.Request(url, text.encode(), headers | login, method="POST")  # noqa: S310
    facts = _facts(notice)
    line = f"{notice.title}\n{text}"
    body = json.dumps(facts | {"message": text, "text": line, "content": line})  # Slack's name, and Discord's
    headers = {"Content-Type": "application/json", "User-Agent": "motley"}
    return urllib.request.Request(url, body.encode(), headers | login, method="POST")  # noqa: S310


def without_login(url: str) -> tuple[str, dict[str, str]]:
    """https://user:password@host without what urllib takes for a part of the host, and as the header that it is."""
    parts = urllib.parse.urlsplit(url)
    login, found, host = parts.netloc.rpartition("@")
    if not found:
        return url, {}
    name, _, password = login.partition(":")
    both = f"{urllib.parse.unquote(name)}:{urllib.parse.unquote(password)}"
    header = {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}
    return urllib.parse.urlunsplit(parts._replace(netloc=host)), header


def _facts(notice: Notice) -> dict[str, str]:
    return {"event": notice.kind, "run": notice.run, "title": notice.title}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected arrives as a GET, without the message."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _run(command: str, notice: Notice) -> str:
    own = {f"MOTLEY_{name.upper()}": value for name, value in _facts(notice).items()}
    with subprocess.Popen(
        ["sh", "-c", COMMAND],
        env=os.environ | own | {"MOTLEY_TEXT": notice.text, "MOTLEY_NOTIFY": command},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            process.communicate(f"{notice.text}\n".encode(), timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"the command had not ended after {TIMEOUT_S:.0f} s"
    return f"the command ended with exit code {process.returncode}" if process.returncode else ""
