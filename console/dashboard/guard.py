"""Who may read the live page: a browser on this machine that was given the token. Everything else is refused before any
page is looked at: another host name (rebinding), another site's request, a wrong token, too many streams.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "motley"
# With no referrer at all a form of its own page would name no origin either.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOST = "open the address that ./motley dashboard printed\n"


class Guard:
    """`folder`: below it are all pages. A browser sends a cookie to all ports of a machine, and another user's server
    there would be given the token: the cookie is of this folder alone, which no one else knows."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], folder: str, token: str) -> None:
        self.app, self.hosts, self.folder, self.token = app, {host.lower() for host in hosts}, folder, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = self.refusal(scope)
        await (answer or self.app)({**scope, "root_path": self.folder}, receive, guarded(send))

    def refusal(self, scope: Scope) -> PlainTextResponse | RedirectResponse | None:
        headers, changes = Headers(scope=scope), scope["method"] not in ("GET", "HEAD")
        if headers.get("host", "").lower() not in self.hosts:
            return PlainTextResponse("this is another host's page\n", 421)
        if changes and headers.get("origin", "").lower() not in {f"http://{host}" for host in self.hosts}:
            return PlainTextResponse("only its own page may do that\n", 403)
        below = scope["path"].startswith(f"{self.folder}/")
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        from_elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if given and not changes and below and self.is_token(given):
            moved = RedirectResponse(f"{self.folder}/{scope['path'].removeprefix(self.folder).lstrip('/')}", 303)
            moved.set_cookie(COOKIE, self.token, httponly=True, samesite="strict", path=f"{self.folder}/")
            return moved
        if from_elsewhere:
            return PlainTextResponse("not from another site\n", 403)
        if not below or not self.is_token(cookie(headers.get("cookie", ""))):
            return PlainTextResponse(LOST, 401)
        return None

    def is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())


def cookie(text: str) -> str:
    """The token among a browser's cookies: that of the nearest folder comes first. Python's own reader of cookies takes
    seconds for a long one, in which nobody else is answered."""
    cookies = (part.strip().partition("=") for part in text.split(";"))
    return next((value for name, _, value in cookies if name == COOKIE), "")


def guarded(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            message["headers"] = [*message["headers"], *own]
        await send(message)

    return send_with_headers
