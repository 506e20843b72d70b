"""Who may ask: programs of this machine, or with --lan whoever has the token. A page of another site, which a browser
here may have open, is refused before anything is looked at: by the host that it names, and by where it says it is from.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from console.serve.openai_form import Refused
from train.files import write_atomic

FILE = "serve.token"


class Guard:
    def __init__(self, app: ASGIApp, *, hosts: Collection[str], token: str = "") -> None:
        """`token`: empty where none is needed."""
        self.app, self.hosts, self.token = app, {host.lower() for host in hosts}, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refused = self.refusal(Headers(scope=scope))
        answer = JSONResponse(refused.body, refused.status) if refused else self.app
        await answer(scope, receive, send)

    def refusal(self, headers: Headers) -> Refused | None:
        if (host := headers.get("host", "").lower()) not in self.hosts:
            names = " or ".join(f"http://{name}/v1" for name in sorted(self.hosts))
            return Refused(f"this endpoint is asked at {names}, not at {host}; --lan is for others", status=421)
        own = {f"http://{host}" for host in self.hosts}
        from_elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if from_elsewhere or headers.get("origin", "").lower() not in {"", *own}:
            return Refused("a page of another site may not ask here", status=403)
        if self.token and not self.is_token(headers.get("authorization", "")):
            what = "the token is missing or wrong: it goes as the API key (Authorization: Bearer TOKEN)"
            return Refused(what, status=401, code="invalid_api_key")
        return None

    def is_token(self, given: str) -> bool:
        kind, _, token = given.partition(" ")
        return kind.lower() == "bearer" and secrets.compare_digest(token.strip().encode(), self.token.encode())


def token_of(state: Path) -> tuple[str, bool]:
    """The token of this cluster's endpoint, and whether it was made just now; nobody else may read its file."""
    file = state / FILE
    if file.is_file() and (known := file.read_text().strip()):
        return known, False
    token = secrets.token_urlsafe(32)
    write_atomic(file, f"{token}\n".encode(), mode=0o600)
    return token, True
