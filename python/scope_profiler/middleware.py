"""Middleware for web applications: one region for the requests of a route.

``ASGIMiddleware`` for Starlette, FastAPI, Django and anything else that is an ASGI application, ``WSGIMiddleware`` for Flask,
Django and anything else that is a WSGI application. docs/web.md has the one line for each framework.

A request's call begins before the application sees the request and ends when the last byte of its response was handed to the
server. It is named when it ends, by what the application routed it to.
"""

from __future__ import annotations

import os

from ._core import begin_call
from ._web_routes import ROUTE, StarletteRoutes, flask_route, root_of, watch_django
from .profile_manager import ProfileManager
from .recording import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
    from contextvars import ContextVar
    from typing import Any, TypeAlias

    from typing_extensions import Unpack

    from ._core import OpenCall, Region
    from ._web_run import OwnRun
    from .options import SetupOptions

    Scope: TypeAlias = MutableMapping[str, Any]
    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    ASGIApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
    Environment: TypeAlias = dict[str, Any]
    WSGIApplication: TypeAlias = Callable[[Environment, Callable[..., Any]], Iterable[bytes]]
    _Outcome: TypeAlias = tuple[int | None, str | None, bool | None, int | None]  # None: there is nothing to say

__all__ = ["ASGIMiddleware", "WSGIMiddleware", "request_id"]

# A client may send any word as the method of its request; the others are one.
METHODS = frozenset("CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT QUERY TRACE".split())
OTHER_METHOD = "OTHER"
WEBSOCKET = "WEBSOCKET"
UNMATCHED = "(unmatched)"  # in the place of the route of requests that no route takes
OPEN = "(open)"  # in the place of the route of requests that have not ended: only their end tells it
OTHER_ROUTES = "(other routes)"  # region of those beyond max_names
METADATA = ("all", "errors", "none")
REQUEST_ID = "scope_profiler.request_id"
_VALUES_KEPT = 1000  # different outcomes that calls share
_QUICK_KEPT = 10_000
_LONGEST_ID = 128
_OUTCOME = ("status", "exception", "incomplete", "close_code")

_request_id: ContextVar[str | None] | None = None


def request_id() -> str | None:
    """The id of the request that the caller serves; None outside of requests, and where the middleware gives none."""
    return None if _request_id is None else _request_id.get()


class _Names:
    """The regions of one middleware: one for each method and route, up to a number of them."""

    def __init__(self, manager: type[ProfileManager], most: int, tags: Iterable[str] | None) -> None:
        if isinstance(most, bool) or not isinstance(most, int):
            raise TypeError(f"max_names must be an integer, got {most!r}")
        if most < 1:
            raise ValueError(f"max_names must be positive, got {most}")
        self._manager = manager
        self._most = most
        self._tags = None if tags is None else (tags,) if isinstance(tags, str) else tuple(tags)
        self._routes: dict[tuple[str, str], Region] = {}
        self._named: dict[str, Region] = {}
        self._unmatched: dict[str, Region] = {}
        self._open: dict[str, Region] = {}
        self._told = False

    def unmatched(self, method: str) -> Region:
        return self._unrouted(self._unmatched, method, UNMATCHED)

    def unended(self, method: str) -> Region:
        return self._unrouted(self._open, method, OPEN)

    def _unrouted(self, regions: dict[str, Region], method: str, what: str) -> Region:
        region = regions.get(method)
        if region is not None:
            return region
        known = method if method in METHODS or method == WEBSOCKET else OTHER_METHOD
        if known != method and known in regions:
            return regions[known]
        region = regions[known] = self._make(f"{known} {what}")
        return region

    def route(self, method: str, route: str) -> Region:
        region = self._routes.get((method, route))
        if region is not None:
            return region
        key = (method if method in METHODS or method == WEBSOCKET else OTHER_METHOD, route)
        region = self._routes.get(key)
        if region is None:
            if self._is_full():
                return self._make(OTHER_ROUTES)
            region = self._routes[key] = self._make(f"{key[0]} {route}")
        return region

    def named(self, name: str) -> Region:
        region = self._named.get(name)
        if region is None:
            if self._is_full():
                return self._make(OTHER_ROUTES)
            region = self._named[name] = self._make(name)
        return region

    def _is_full(self) -> bool:
        if len(self._routes) + len(self._named) < self._most:
            return False
        if not self._told:
            self._told = True
            warn(f"requests have more than max_names={self._most} names; the others are in the region {OTHER_ROUTES!r}")
        return True

    def _make(self, name: str) -> Region:
        # Unicode that no file can hold comes from the client: it is shown as it was sent.
        text = name.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
        return self._manager._state.recorder.add(text, self._tags)


class _Middleware:
    """What both kinds have in common."""

    _lanes: str  # the setting that makes requests lanes, which runs of its own have by default

    def __init__(
        self,
        manager: type[ProfileManager] | None,
        name_of: Callable[[Any], str | None] | None,
        max_names: int,
        metadata: str,
        request_id: str | None,
        tags: Iterable[str] | None,
        output: str | os.PathLike[str] | None,
        settings: dict[str, Any],
    ) -> None:
        self._manager = ProfileManager if manager is None else manager
        if name_of is not None and not callable(name_of):
            raise TypeError(f"name_of must be callable, got {name_of!r}")
        if metadata not in METADATA:
            raise ValueError(f"metadata must be one of {', '.join(map(repr, METADATA))}, got {metadata!r}")
        if request_id is not None and not (isinstance(request_id, str) and _is_header(request_id)):
            raise ValueError(f"request_id must be the name of a header or None, got {request_id!r}")
        self._names = _Names(self._manager, max_names, tags)
        self._name_of = name_of
        self._told_bad_name = False
        self._notes = metadata != "none" or request_id is not None
        self._only_errors = metadata == "errors"
        self._status_noted = metadata != "none"
        self._header = None if request_id is None else request_id.lower()
        self._values: dict[_Outcome, dict[str, Any]] = {}
        self._own: OwnRun | None = None
        if self._notes:
            self._manager._state.annotate()
        if self._header is not None:
            _use_request_id()
        if output is not None:
            from ._web_run import OwnRun

            if not settings.get("aggregation_mode"):
                settings.setdefault(self._lanes, True)
            self._own = OwnRun(self._manager, output, settings)
        elif settings:
            raise TypeError(f"{sorted(settings)[0]} is a setting of the run, which needs output")

    def _custom_region(self, what: Any, method: str) -> Region:
        assert self._name_of is not None
        try:
            name = self._name_of(what)
        except Exception as error:  # the request is the application's, and must not fail for its name
            if not self._told_bad_name:
                self._told_bad_name = True
                warn(f"name_of raised {type(error).__name__}: {error}; such requests are unmatched")
            name = None
        return self._names.unmatched(method) if name is None else self._names.named(str(name))

    def _note(self, region: Region, call: OpenCall, outcome: _Outcome, ident: str | None) -> None:
        """Keep the outcome of a request as metadata of its call."""
        wanted = self._status_noted and (not self._only_errors or _failed(outcome))
        if not wanted and (ident is None or self._only_errors):
            return
        recording = self._manager._state.recording
        if recording is None or recording.config.aggregation_mode:
            return
        values = self._shared_values(outcome) if wanted else {}
        if ident is not None:
            values = {**values, "request_id": ident}
        recording.events.add_outcome(region.region_name, call.lane, call.start, values)

    def _shared_values(self, outcome: _Outcome) -> dict[str, Any]:
        """Millions of requests have a few different outcomes."""
        values = self._values.get(outcome)
        if values is None:
            values = {key: value for key, value in zip(_OUTCOME, outcome) if value is not None}
            if len(self._values) < _VALUES_KEPT:
                self._values[outcome] = values
        return values


def _failed(outcome: _Outcome) -> bool:
    status, exception, incomplete, _ = outcome
    return exception is not None or incomplete is not None or status is None or status >= 500


def _is_header(name: str) -> bool:
    return name != "" and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)


def _use_request_id() -> ContextVar[str | None]:
    global _request_id
    if _request_id is None:
        from contextvars import ContextVar

        _request_id = ContextVar("scope_profiler_request_id", default=None)
    return _request_id


def _reset_id(token: Any) -> None:
    try:
        _use_request_id().reset(token)
    except ValueError:
        pass  # ended in another context than begun, as an application that nobody waits for any more


def _accepted_id(given: str | None) -> str:
    """The id that came with a request, if it is one; else a new one."""
    if given and len(given) <= _LONGEST_ID and given.isascii() and given.isprintable() and " " not in given:
        return given
    return os.urandom(8).hex()


# -- ASGI --------------------------------------------------------------------------------------------------------------


class ASGIMiddleware(_Middleware):
    """An ASGI application around another, with a region for the requests of each route.

    Regions are called ``GET /users/{id}``, ``WEBSOCKET /chat/{room}``, and ``GET (unmatched)`` for what no route takes. Starlette, FastAPI
    and Django are understood, with what is mounted and included in them. ``track_async=True`` in the run makes each request a lane
    of its own and gives await times.

    Parameters
    ----------
    app
        The application.
    manager
        Whose regions they are; None: ``ProfileManager``.
    name_of
        For other frameworks: from the scope of a request, as the application left it, the whole name of its region; None: it is unmatched.
    max_names
        How many different names there may be, besides those of unmatched requests; what comes later is in ``(other routes)``.
    metadata
        ``"all"``: each call has ``status`` and, if there was one, ``exception`` (its class name) as metadata, and ``incomplete`` if the
        response was not sent to its end. ``"errors"``: only calls with an exception, an incomplete response or a status of 500
        and more. ``"none"``: no outcome.
    request_id
        A header (``"x-request-id"``) from which each request takes an id; without it it gets one, and the response has it. It is in the
        metadata of the call (with ``metadata="errors"`` in that of failures), and :func:`request_id` returns it.
    tags
        Of the regions.
    output, **settings
        With ``output="requests.h5"`` each process that serves begins a run of its own, with these settings of ``setup()``
        (``track_async=True`` by default), at its first request; it ends with the application or the process, in ``requests.<pid>.h5``.
        Without it the program does this itself.

    Raises TypeError and ValueError for arguments that cannot be used.
    """

    _lanes = "track_async"

    def __init__(
        self,
        app: ASGIApplication,
        *,
        manager: type[ProfileManager] | None = None,
        name_of: Callable[[Scope], str | None] | None = None,
        max_names: int = 1000,
        metadata: str = "all",
        request_id: str | None = None,
        tags: Iterable[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        **settings: Unpack[SetupOptions],
    ) -> None:
        super().__init__(manager, name_of, max_names, metadata, request_id, tags, output, dict(settings))
        self.app = app
        self._root = root_of(app)
        self._routes: dict[int, StarletteRoutes] = {}
        self._quick: dict[tuple[str, Any], Region] = {}  # by method, and route or endpoint
        watch_django(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            method: str = scope["method"]
        elif kind == "websocket":
            method = WEBSOCKET
        else:
            await self._pass(scope, receive, send)
            return
        if self._own is not None:
            self._own.begin()
        call = begin_call(self._names.unended(method))
        if call is None:
            await self.app(scope, receive, send)
            return
        request = (_HTTPRequest if kind == "http" else _WebSocket)(self, call, method, scope, send)
        token = None
        try:
            if self._header is not None:
                token = _use_request_id().set(request.take_id(self._header))
            await self.app(scope, receive, request.send)
        except BaseException as error:
            request.error = type(error).__name__
            raise
        finally:
            request.end()
            if token is not None:
                _reset_id(token)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = self._own
        if own is None or scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        own.begin()

        async def sending(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                own.end()  # a server may end its process by a signal after this
            await send(message)

        await self.app(scope, receive, sending)

    def _region(self, request: _Request) -> Region:
        scope = request.scope
        found = scope.get(ROUTE) or scope.get("endpoint")
        try:
            region = self._quick.get((request.method, found))
        except TypeError:  # an endpoint without a hash
            region = None
        return self._find_region(request, found) if region is None else region

    def _find_region(self, request: _Request, found: Any) -> Region:
        scope, method = request.scope, request.method
        if self._name_of is not None:
            return self._custom_region(scope, method)
        route, lasting = (found, True) if isinstance(found, str) else self._find_route(request, found)
        if route is None:
            return self._names.unmatched(method)
        region = self._names.route(method, route)
        if lasting and len(self._quick) < _QUICK_KEPT:
            self._quick[method, found] = region
        return region

    def _find_route(self, request: _Request, endpoint: Any) -> tuple[str | None, bool]:
        """The template, and whether every request to this endpoint has it."""
        scope = request.scope
        if endpoint is None and "router" in scope:
            return None, False  # a router has left its name, and found nothing
        root = next((one for one in (self._root, request.root, scope.get("app")) if one is not None), None)
        if root is None:
            return None, False
        routes = self._routes.get(id(root))
        if routes is None:
            routes = self._routes[id(root)] = StarletteRoutes(root)
        route, only = routes.find(endpoint, request.path())
        return route, only and root is self._root and endpoint.__hash__ is not None


class _Request:
    """A request under way, or a connection. What most requests do not have are attributes of the class."""

    status: int | None = None
    error: str | None = None
    id: str | None = None

    def __init__(self, middleware: ASGIMiddleware, call: OpenCall, method: str, scope: Scope, send: Send) -> None:
        self._middleware = middleware
        self._call: OpenCall | None = call
        self._send = send
        self.method = method
        self.scope = scope
        self.root = scope.get("app")  # an application inside of it will put itself here
        self._root_path = scope.get("root_path")  # and add the place of what is mounted here

    def path(self) -> str:
        """The path without what the server has mounted the application at."""
        path: str = self.scope["path"]
        root = self._root_path
        return path[len(root) :] if root and path.startswith(root) else path

    def take_id(self, header: str) -> str:
        wanted = header.encode()
        given = next((value.decode("latin-1") for key, value in self.scope["headers"] if key == wanted), None)
        self.id = self.scope[REQUEST_ID] = _accepted_id(given)
        return self.id

    def with_id(self, message: Message) -> Message:
        """A message that begins a response, with the id among its headers."""
        name = (self._middleware._header or "").encode()
        headers = list(message.get("headers") or ())
        if self.id is None or any(key.lower() == name for key, _ in headers):
            return message
        return {**message, "headers": [*headers, (name, self.id.encode())]}

    def _outcome(self) -> _Outcome:
        return self.status, self.error, None, None

    def end(self, only_innermost: bool = False) -> None:
        """The call ends, if it has not; with ``only_innermost`` not while others are open inside of it."""
        call = self._call
        if call is None:
            return
        region = self._middleware._region(self)
        if not call.end(region, only_innermost):
            return
        self._call = None
        if self._middleware._notes:
            self._middleware._note(region, call, self._outcome(), self.id)


class _HTTPRequest(_Request):
    _complete = False
    _trailers = False

    def _outcome(self) -> _Outcome:
        return self.status, self.error, True if self.error is None and not self._complete else None, None

    def send(self, message: Message) -> Awaitable[None]:
        kind = message["type"]
        if kind == "http.response.body":
            if not (message.get("more_body") or self._trailers):
                return self._send_last(message)
        elif kind == "http.response.start":
            self.status = message["status"]
            if message.get("trailers"):
                self._trailers = True
            if self.id is not None:
                message = self.with_id(message)
        elif kind == "http.response.pathsend" or (kind == "http.response.trailers" and not message.get("more_trailers")):
            return self._send_last(message)
        return self._send(message)

    async def _send_last(self, message: Message) -> None:
        await self._send(message)
        self._complete = True
        # What the application does afterwards is not the request any more. But a region that encloses the sending must be
        # enclosed by the request: then it ends with the application.
        self.end(only_innermost=True)


class _WebSocket(_Request):
    """A connection: ``status`` is 101 once it is accepted, else that of the refusal."""

    _close_code: int | None = None

    def _outcome(self) -> _Outcome:
        return self.status, self.error, None, self._close_code

    def send(self, message: Message) -> Awaitable[None]:
        kind = message["type"]
        if kind == "websocket.accept":
            self.status = 101
            if self.id is not None:
                message = self.with_id(message)
        elif kind == "websocket.close":
            if self.status is None:
                self.status = 403
            else:
                self._close_code = message.get("code", 1000)
        elif kind == "websocket.http.response.start":
            self.status = message["status"]
        return self._send(message)


# -- WSGI --------------------------------------------------------------------------------------------------------------


class WSGIMiddleware(_Middleware):
    """A WSGI application around another, with a region for the requests of each route.

    As :class:`ASGIMiddleware`, for Flask, Django and others: ``name_of`` gets the environment of the request as the application left
    it. A request's call ends when the server closes the response. With ``output`` runs track threads by default.
    """

    _lanes = "track_threads"

    def __init__(
        self,
        app: WSGIApplication,
        *,
        manager: type[ProfileManager] | None = None,
        name_of: Callable[[Environment], str | None] | None = None,
        max_names: int = 1000,
        metadata: str = "all",
        request_id: str | None = None,
        tags: Iterable[str] | None = None,
        output: str | os.PathLike[str] | None = None,
        **settings: Unpack[SetupOptions],
    ) -> None:
        super().__init__(manager, name_of, max_names, metadata, request_id, tags, output, dict(settings))
        self.app = app
        watch_django(app)

    def __call__(self, environ: Environment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self._own is not None:
            self._own.begin()
        call = begin_call(self._names.unended(environ["REQUEST_METHOD"]))
        if call is None:
            return self.app(environ, start_response)
        request = _WSGIRequest(self, call, environ, start_response)
        try:
            if self._header is not None:
                request.take_id(self._header)
            body = self.app(environ, request.start)
        except BaseException as error:
            request.error = type(error).__name__
            request.end()
            raise
        return _watched(body, request)

    def _region(self, environ: Environment, found: str | None) -> Region:
        method = environ["REQUEST_METHOD"]
        if self._name_of is not None:
            return self._custom_region(environ, method)
        route = environ.get(ROUTE, found)
        return self._names.unmatched(method) if route is None else self._names.route(method, route)


class _WSGIRequest:
    __slots__ = ("_call", "_environ", "_middleware", "_route", "_script", "_start_response", "_token", "error", "id", "status")

    def __init__(
        self, middleware: WSGIMiddleware, call: OpenCall, environ: Environment, start_response: Callable[..., Any]
    ) -> None:
        self._middleware = middleware
        self._call: OpenCall | None = call
        self._environ = environ
        self._script = environ.get("SCRIPT_NAME", "")
        self._start_response = start_response
        self._route: str | None = None
        self._token: Any = None
        self.status: int | None = None
        self.error: str | None = None
        self.id: str | None = None

    def take_id(self, header: str) -> None:
        given = self._environ.get("HTTP_" + header.upper().replace("-", "_"))
        self.id = self._environ[REQUEST_ID] = _accepted_id(given)
        self._token = _use_request_id().set(self.id)

    def start(self, status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        self.status = int(status[:3]) if status[:3].isdecimal() else None
        self._route = flask_route(self._environ, self._script)
        name = self._middleware._header
        if self.id is not None and name is not None and not any(key.lower() == name for key, _ in headers):
            headers = [*headers, (name, self.id)]
        return self._start_response(status, headers, *exc_info)

    def end(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        region = self._middleware._region(self._environ, self._route)
        call.end(region)
        if self._middleware._notes:
            self._middleware._note(region, call, (self.status, self.error, None, None), self.id)
        if self._token is not None:
            _reset_id(self._token)


class _Body:
    """A response whose close is the end of its request."""

    __slots__ = ("_body", "_request")

    def __init__(self, body: Iterable[bytes], request: _WSGIRequest) -> None:
        self._body = body
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body) if type(self._body) in (list, tuple) else self._chunks()

    def _chunks(self) -> Iterator[bytes]:
        try:
            for chunk in self._body:  # noqa: UP028 - `yield from` would close the response a second time
                yield chunk
        except GeneratorExit:
            raise
        except BaseException as error:
            self._request.error = type(error).__name__
            raise

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        except BaseException as error:
            self._request.error = type(error).__name__
            raise
        finally:
            self._request.end()


class _SizedBody(_Body):
    """Servers take the length of the only block as that of the response."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self._body)  # type: ignore[arg-type]


def _watched(body: Iterable[bytes], request: _WSGIRequest) -> Iterable[bytes]:
    wrapper = request._environ.get("wsgi.file_wrapper")
    if isinstance(wrapper, type) and issubclass(type(body), wrapper):
        _watch_file(body, request)
        return body
    return (_SizedBody if hasattr(body, "__len__") else _Body)(body, request)


def _watch_file(body: Any, request: _WSGIRequest) -> None:
    """A server sends its own kind of file in a way of its own, if it gets that very object."""
    close = getattr(body, "close", None)

    def closing() -> None:
        try:
            if close is not None:
                close()
        finally:
            request.end()

    try:
        body.close = closing
    except AttributeError:
        request.end()
