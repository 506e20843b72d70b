"""The paths of the endpoint: /v1/models, /v1/chat/completions and /v1/completions, as programs for OpenAI ask them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from console.dashboard.server import unread
from console.serve.machine import Answer, Wrong
from console.serve.openai_form import Form, Refused, Wanted, wanted
from console.serve.router import Nobody, Router

LONGEST_BODY = 1 << 22
MOST_WAITING = 256


class Endpoint:
    def __init__(self, router: Router, run: str) -> None:
        self.router, self.run, self.since = router, run, int(time.time())

    def app(self) -> Starlette:
        routes = [
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
        ]
        handlers: Any = {Refused: refused, Wrong: refused, Nobody: refused, HTTPException: no_such_path}
        handlers[ClientDisconnect] = unread
        return Starlette(routes=routes, exception_handlers=handlers)

    async def models(self, request: Request) -> Response:
        own = {"id": self.run, "object": "model", "created": self.since, "owned_by": "motley"}
        name = request.path_params.get("name")
        if name is None:
            return JSONResponse({"object": "list", "data": [own]})
        if name != self.run:
            what = f"there is no model '{name}' here; there is '{self.run}'"
            raise Refused(what, "model", status=404, code="model_not_found")
        return JSONResponse(own)

    async def chat(self, request: Request) -> Response:
        return await self.answered(request, wanted(await body_of(request), self.run, chat=True))

    async def completions(self, request: Request) -> Response:
        return await self.answered(request, wanted(await body_of(request), self.run, chat=False))

    async def answered(self, request: Request, asked: Wanted) -> Response:
        if len(self.router.waiting) >= MOST_WAITING:
            raise Refused(f"{MOST_WAITING} requests wait already; ask again later", status=429, kind="rate_limit_error")
        answer, form = Answer(), Form.new(self.run, chat=asked.chat)
        parts = self.router.answer(asked.request, answer)
        first = await unless_gone(request, anext(parts, ""))  # what is wrong shows before a stream begins
        if asked.stream:
            return StreamingResponse(streamed(parts, first, answer, form, usage=asked.usage), media_type=EVENTS)
        await unless_gone(request, all_of(parts))
        return JSONResponse(form.whole(answer))


EVENTS = "text/event-stream"


async def streamed(
    parts: AsyncGenerator[str, None], first: str, answer: Answer, form: Form, *, usage: bool
) -> AsyncGenerator[str, None]:
    async with contextlib.aclosing(parts):
        yield event(form.part(first, first=True))
        try:
            async for part in parts:
                yield event(form.part(part))
        except (Wrong, Nobody) as why:
            yield event(as_refused(why).body)
            return
    yield event(form.last(answer))
    if usage:
        yield event(form.used(answer))
    yield "data: [DONE]\n\n"


def event(facts: object) -> str:
    return f"data: {json.dumps(facts)}\n\n"


async def all_of(parts: AsyncGenerator[str, None]) -> str:
    return "".join([part async for part in parts])


async def unless_gone(request: Request, work: Any) -> str:
    """The work's result. Where who asked has left, nobody goes on for it."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone(request))
    try:
        await asyncio.wait([doing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientDisconnect
        return str(doing.result())
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def body_of(request: Request) -> object:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_BODY:
            raise Refused(f"the request is longer than {LONGEST_BODY >> 20} MiB", status=413)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}") from None


def as_refused(why: Exception) -> Refused:
    if isinstance(why, Refused):
        return why
    if isinstance(why, Wrong):
        return Refused(str(why), "messages")
    return Refused(str(why), status=503, kind="server_error")


async def refused(_: Request, why: Exception) -> Response:
    refusal = as_refused(why)
    return JSONResponse(refusal.body, refusal.status)


async def no_such_path(request: Request, why: Exception) -> Response:
    status = why.status_code if isinstance(why, HTTPException) else 404
    what = f"{request.method} {request.url.path} is not answered here; POST /v1/chat/completions is"
    return JSONResponse(Refused(what).body, status)
