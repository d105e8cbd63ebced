"""A small Django project in one module, for the tests of the middleware."""

from __future__ import annotations

import asyncio

from django.conf import settings

if not settings.configured:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="for tests", DEBUG=False, LOGGING_CONFIG=None)

from django.http import HttpResponse, StreamingHttpResponse  # noqa: E402
from django.urls import include, path  # noqa: E402


def user(request, pk):
    return HttpResponse(f"user {pk}")


async def sleep(request, ms):
    await asyncio.sleep(ms / 1000)
    return HttpResponse("slept")


async def asynchronous_chunks():
    for letter in "abc":
        await asyncio.sleep(0)
        yield letter


def stream(request):
    chunks = asynchronous_chunks() if hasattr(request, "scope") else iter("abc")
    return StreamingHttpResponse(chunks)


def leaf(request, name):
    return HttpResponse(f"leaf {name}")


def boom(request):
    raise RuntimeError("boom")


urlpatterns = [
    path("users/<int:pk>/", user),
    path("async/<int:ms>/", sleep),
    path("stream/", stream),
    path("part/", include([path("leaf/<slug:name>/", leaf)])),
    path("boom/", boom),
]


def asgi_application():
    from django.core.asgi import get_asgi_application

    return get_asgi_application()


def wsgi_application():
    from django.core.wsgi import get_wsgi_application

    return get_wsgi_application()
