"""Cases of the middleware: what a request costs more than without it, the client and the server left out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from itertools import repeat
from statistics import median
from typing import Any

from calls import recording
from timing import timed

REQUESTS = 5_000
PAIRS = 9

Application = Callable[..., Any]


async def bare(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    scope["scope_profiler.route"] = "/users/{id}"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b""}


async def send(message: Any) -> None:
    pass


def scope_of(path: str) -> dict[str, Any]:
    return {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"", "root_path": ""}


async def serve(app: Application) -> None:
    for _ in repeat(None, REQUESTS):
        await app(scope_of("/users/7"), receive, send)


def asgi_time(app: Application) -> int:
    return timed(lambda: asyncio.run(serve(app)))


def added(measure: Callable[[Application], int], app: Application, wrapped: Application, **settings: bool) -> float:
    """ns that a request takes longer: the median of pairs."""

    def pair() -> int:
        with recording(**settings):
            return measure(wrapped) - measure(app)

    pair()
    return median(pair() for _ in range(PAIRS)) / REQUESTS


def asgi_request() -> float:
    """ns added to a request of the smallest ASGI application, its call with status included."""
    from scope_profiler.middleware import ASGIMiddleware

    return added(asgi_time, bare, ASGIMiddleware(bare), track_async=True)


def asgi_request_off() -> float:
    """The same while nothing records."""
    from scope_profiler.middleware import ASGIMiddleware

    app = ASGIMiddleware(bare)
    asgi_time(app)
    return median(asgi_time(app) - asgi_time(bare) for _ in range(PAIRS)) / REQUESTS


def starlette_application() -> Application:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def user(request: Any) -> PlainTextResponse:
        return PlainTextResponse("ok")

    return Starlette(routes=[Route("/users/{id}", user)])


def starlette_request() -> float:
    """% that a request to a Starlette application takes longer, routing and response included, server and network not."""
    from scope_profiler.middleware import ASGIMiddleware

    app = starlette_application()
    wrapped = ASGIMiddleware(app)
    with recording(track_async=True):
        asgi_time(wrapped)
        asgi_time(app)
        return median(100 * (asgi_time(wrapped) / asgi_time(app) - 1) for _ in range(PAIRS))


def wsgi_bare(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    environ["scope_profiler.route"] = "/users/<id>"
    start_response("200 OK", [])
    return [b"ok"]


def start_response(status: str, headers: Any, exc_info: Any = None) -> None:
    pass


def wsgi_time(app: Application) -> int:
    def serve() -> None:
        for _ in repeat(None, REQUESTS):
            body = app({"REQUEST_METHOD": "GET", "PATH_INFO": "/users/7", "SCRIPT_NAME": ""}, start_response)
            for _ in body:
                pass
            if hasattr(body, "close"):
                body.close()

    return timed(serve)


def wsgi_request() -> float:
    """ns added to a request of the smallest WSGI application."""
    from scope_profiler.middleware import WSGIMiddleware

    return added(wsgi_time, wsgi_bare, WSGIMiddleware(wsgi_bare), track_threads=True)
