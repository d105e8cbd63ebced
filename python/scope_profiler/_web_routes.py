"""What the route of a request is called: the template that a framework matched, never the path.

Nothing is matched a second time: the frameworks leave in the scope or environment what they found. Starlette and FastAPI leave
the endpoint only, which belongs to one route almost always; where it belongs to several, the path decides among those.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, MutableMapping
    from typing import Any

    Environment = MutableMapping[str, Any]

__all__ = ["ROUTE", "StarletteRoutes", "flask_route", "root_of", "watch_django"]

ROUTE = "scope_profiler.route"  # in a scope or environment: the route's template, for those who know it
_UNKNOWN_KEPT = 1000  # endpoints of no route that are remembered, so that the routes are not listed anew for each request
_DEEPEST = 32  # levels of mounted applications


class _Template:
    """One route: how it is shown, and, if that is ever needed, what paths it takes."""

    __slots__ = ("_pattern", "_written", "text")

    def __init__(self, written: str) -> None:
        self._written = written
        self._pattern: re.Pattern[str] | None = None
        self.text = _without_convertors(written)

    def takes(self, path: str) -> bool:
        if self._pattern is None:
            from starlette.routing import compile_path

            self._pattern = compile_path(self._written)[0]
        return self._pattern.match(path) is not None


def _without_convertors(written: str) -> str:
    """``/users/{id:int}`` as ``/users/{id}``."""
    import re

    return re.sub(r"\{([^}:]+):[^}]*\}", r"{\1}", written) or "/"


class StarletteRoutes:
    """The routes of an application made with Starlette or FastAPI, by endpoint."""

    __slots__ = ("_all", "_by_endpoint", "_root", "_unknown")

    def __init__(self, root: Any) -> None:
        self._root = root
        self._unknown: set[int] = set()
        self._list()

    def _list(self) -> None:
        self._all: list[_Template] = []
        self._by_endpoint: dict[int, list[_Template]] = {}
        for written, endpoint, hosted in _walk(self._root, "", 0):
            template = _Template(written)
            if not hosted:
                self._all.append(template)
            self._by_endpoint.setdefault(id(endpoint), []).append(template)

    def find(self, endpoint: Any, path: str) -> tuple[str | None, bool]:
        """The template of the route that leads to ``endpoint`` (None: not known) and takes ``path``; whether it is its only route."""
        if endpoint is None:
            return _first(self._all, path), False
        templates = self._by_endpoint.get(id(endpoint))
        if templates is None and id(endpoint) not in self._unknown:
            self._list()  # routes were added meanwhile
            templates = self._by_endpoint.get(id(endpoint))
            if templates is None and len(self._unknown) < _UNKNOWN_KEPT:
                self._unknown.add(id(endpoint))
        if templates is None:
            return None, False
        return (templates[0].text, True) if len(templates) == 1 else (_first(templates, path), False)


def _first(templates: list[_Template], path: str) -> str | None:
    for template in templates:
        if template.takes(path):
            return template.text
    return None


def _walk(app: Any, prefix: str, depth: int, hosted: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """(template, endpoint, whether it depends on the host) of every route of an application, in the order in which they are tried."""
    for route in getattr(app, "routes", None) or ():
        contexts = getattr(route, "effective_route_contexts", None)
        for one in contexts() if contexts is not None else (route,):
            yield from _walk_route(one, prefix, depth, hosted)


def _walk_route(route: Any, prefix: str, depth: int, hosted: bool) -> Iterator[tuple[str, Any, bool]]:
    original = getattr(route, "starlette_route", None) or getattr(route, "original_route", None)
    inner = route if original is None or getattr(route, "endpoint", None) is not None else original
    path = getattr(inner, "path", None)
    endpoint = getattr(inner, "endpoint", None)
    if endpoint is not None:
        if isinstance(path, str):
            yield prefix + path, endpoint, hosted
        return
    mounted = getattr(inner, "app", None)
    if mounted is None or depth >= _DEEPEST:
        return
    hosted = hosted or not isinstance(path, str)
    below = prefix + path if isinstance(path, str) else prefix
    yield from _walk(inner, below, depth + 1, hosted)
    yield below + "/{path:path}", mounted, hosted  # what it does not route itself


def root_of(app: Any) -> Any:
    """The first application inside of others (``app``) that has routes; None if there is none."""
    for _ in range(_DEEPEST):
        if app is None or getattr(app, "routes", None) is not None:
            return app
        app = getattr(app, "app", None)
    return None


def watch_django(app: Any) -> None:
    """Have a Django handler leave the template of the route it resolves. Others are left alone."""
    resolve = getattr(app, "resolve_request", None)
    if resolve is None:
        return

    def resolve_request(request: Any) -> Any:
        match = resolve(request)
        where = getattr(request, "scope", None)
        (request.META if where is None else where)[ROUTE] = "/" + request.resolver_match.route
        return match

    app.resolve_request = resolve_request


def flask_route(environ: Environment, script_before: str) -> str | None:
    """The template of the route that Flask found; it takes it away from the environment when its part is done."""
    rule = getattr(environ.get("werkzeug.request"), "url_rule", None)
    if rule is None:
        return None
    # A dispatcher has moved the prefix of the application from the path to the script name.
    script = environ.get("SCRIPT_NAME", "")
    mounted = script[len(script_before) :] if script.startswith(script_before) else ""
    return f"{mounted}{rule.rule}"
