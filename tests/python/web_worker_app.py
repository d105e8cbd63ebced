"""Applications that the server processes of the tests load: each of their workers records itself."""

from __future__ import annotations

import asyncio
import os
import time

import scope_profiler as sp
from scope_profiler.middleware import ASGIMiddleware, WSGIMiddleware

OUTPUT = os.environ.get("WEB_OUTPUT")  # None: a parent follows its workers


async def _asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    with sp.region("work"):
        await asyncio.sleep(0.005)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


def _wsgi(environ, start_response):
    with sp.region("work"):
        time.sleep(0.005)
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]


def _name(_):
    return "GET /pid"


asgi = ASGIMiddleware(_asgi, name_of=_name, output=OUTPUT)
wsgi = WSGIMiddleware(_wsgi, name_of=_name, output=OUTPUT)
