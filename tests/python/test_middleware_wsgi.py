"""Requests of WSGI applications as regions: under real servers, and call by call where it is about one call."""

from __future__ import annotations

import io
import threading
import time
import traceback
from wsgiref.util import FileWrapper, setup_testing_defaults

import pytest

import scope_profiler as sp
from scope_profiler.middleware import WSGIMiddleware, request_id
from web_servers import begin_run, one, waitress_server, wsgiref_server


@pytest.fixture
def run(clean_manager):
    return begin_run(track_threads=True)


def environment(path="/", method="GET", **more):
    environ = {"PATH_INFO": path, "REQUEST_METHOD": method, **more}
    setup_testing_defaults(environ)
    return environ


class Started(list):
    """A start_response that remembers."""

    def __call__(self, status, headers, exc_info=None):
        self[:] = [status, headers]
        return self.append


def drive(app, environ, started=None):
    """As a server does it: the body of the response."""
    body = app(environ, Started() if started is None else started)
    try:
        return b"".join(body)
    finally:
        if hasattr(body, "close"):
            body.close()


def plain(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


def by_path(environ):
    return environ["PATH_INFO"]


def test_a_request_is_one_call_with_its_status(run):
    started = Started()
    assert drive(WSGIMiddleware(plain, name_of=by_path), environment("/x"), started) == b"/x"
    assert started == ["200 OK", [("Content-Type", "text/plain")]]
    region = one(run(), "/x")
    assert region.num_calls == 1 and region.event_metadata == ({"status": 200},)


def test_without_a_run_the_application_gets_what_the_server_gave(clean_manager):
    seen = []

    def app(environ, start_response):
        seen.append(start_response)
        return seen

    started = Started()
    assert WSGIMiddleware(app)(environment(), started) is seen and seen == [started]


def test_the_call_ends_when_the_server_closes_the_response(run):
    closed = []

    class Body:
        def __iter__(self):
            with sp.region("chunk"):
                yield b"a"

        def close(self):
            closed.append(sp.region("GET (open)").get_durations_numpy().size)

    def app(environ, start_response):
        start_response("200 OK", [])
        return Body()

    body = WSGIMiddleware(app)(environment(), Started())
    assert list(body) == [b"a"]
    assert closed == []
    body.close()
    assert closed == [0]
    body.close()
    results = run()
    request, chunk = one(results, "GET (unmatched)"), one(results, "chunk")
    assert request.num_calls == 1 and chunk.parent_ids[0] == request.call_ids[0]


def test_the_application_as_a_generator_is_named_by_what_it_found_late(run):
    def app(environ, start_response):
        environ["scope_profiler.route"] = "/late/{x}"
        start_response("201 Created", [])
        yield b"x"

    assert drive(WSGIMiddleware(app), environment("/late/4")) == b"x"
    region = one(run(), "GET /late/{x}")
    assert region.event_metadata == ({"status": 201},)


def test_exceptions_pass_as_they_are(run):
    error = ValueError("mine")

    def at_once(environ, start_response):
        raise error

    def later(environ, start_response):
        start_response("200 OK", [])
        yield b"x"
        raise error

    for app in (at_once, later):
        error.__traceback__ = None
        with pytest.raises(ValueError) as raised:
            drive(WSGIMiddleware(app, name_of=lambda environ: "boom"), environment())
        assert raised.value is error and error.__context__ is None
        assert traceback.extract_tb(error.__traceback__)[-1].name == app.__name__
    assert one(run(), "boom").event_metadata == ({"exception": "ValueError"}, {"status": 200, "exception": "ValueError"})


def test_a_list_keeps_its_length_and_a_file_its_kind(run):
    def listed(environ, start_response):
        start_response("200 OK", [])
        return [b"abc"]

    def file(environ, start_response):
        start_response("200 OK", [])
        return FileWrapper(io.BytesIO(b"abc"))

    body = WSGIMiddleware(listed, name_of=lambda environ: "listed")(environment(), Started())
    assert len(body) == 1
    body.close()
    body = WSGIMiddleware(file, name_of=lambda environ: "file")(environment(**{"wsgi.file_wrapper": FileWrapper}), Started())
    assert type(body) is FileWrapper and b"".join(body) == b"abc"
    assert sp.region("file").get_durations_numpy().size == 0
    body.close()
    assert body.filelike.closed
    generated = WSGIMiddleware(lambda environ, start: iter(()))(environment(), Started())
    assert not hasattr(generated, "__len__")
    generated.close()
    assert one(run(), "file").num_calls == 1


def test_a_response_that_is_dropped_is_no_call(run):
    WSGIMiddleware(plain)(environment(), Started())  # no server does that
    assert run().region_names == []


def test_an_id_comes_with_the_request_or_is_made(run):
    inside = []

    def app(environ, start_response):
        inside.append(request_id())
        start_response("200 OK", [])
        return []

    middleware = WSGIMiddleware(app, request_id="x-request-id")
    started = Started()
    drive(middleware, environment(HTTP_X_REQUEST_ID="from-outside"), started)
    assert started[1] == [("x-request-id", "from-outside")]
    drive(middleware, environment())
    assert request_id() is None
    assert inside[0] == "from-outside" and len(inside[1]) == 16
    assert [values["request_id"] for values in one(run(), "GET (unmatched)").event_metadata] == inside


def flask_app():
    flask = pytest.importorskip("flask")
    app = flask.Flask(__name__)
    blueprint = flask.Blueprint("parts", __name__, url_prefix="/parts")

    @app.route("/users/<int:number>", methods=["GET", "PUT"])
    def user(number):
        with sp.region("work"):
            time.sleep(number / 1000)
        return request_id() or "-"

    @app.route("/stream")
    def stream():
        def chunks():
            for letter in "abc":
                with sp.region("chunk"):
                    yield letter

        return flask.Response(chunks())

    @app.route("/boom")
    def boom():
        raise RuntimeError("boom")

    @blueprint.route("/<name>")
    def part(name):
        return name

    app.register_blueprint(blueprint)
    return app


FLASK_NAMES = {
    ("/users/0", "GET"): "GET /users/<int:number>",
    ("/users/0", "PUT"): "PUT /users/<int:number>",
    ("/users/0", "DELETE"): "DELETE (unmatched)",
    ("/parts/a", "GET"): "GET /parts/<name>",
    ("/none", "GET"): "GET (unmatched)",
    ("/boom", "GET"): "GET /boom",
    ("/static/none.css", "GET"): "GET /static/<path:filename>",
}


def test_flask_requests_are_named_by_rule(run):
    app = flask_app()
    app.wsgi_app = WSGIMiddleware(app.wsgi_app)
    client = app.test_client()
    for path, method in FLASK_NAMES:
        client.open(path, method=method, buffered=True)
    results = run()
    assert set(results.region_names) == {*FLASK_NAMES.values(), "work"}
    assert one(results, "GET /boom").event_metadata == ({"status": 500},)


def test_applications_below_others_have_their_prefix(run):
    app = flask_app()
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    both = WSGIMiddleware(DispatcherMiddleware(app.wsgi_app, {"/inner": flask_app().wsgi_app}))
    for path in ("/parts/a", "/inner/parts/b", "/inner/parts/c"):
        drive(both, environment(path))
    drive(both, environment("/parts/a", SCRIPT_NAME="/deployed"))
    results = run()
    assert {name: one(results, name).num_calls for name in results.region_names} == {
        "GET /parts/<name>": 2, "GET /inner/parts/<name>": 2
    }  # fmt: skip


def test_django_requests_are_named_by_route(run):
    django_app = pytest.importorskip("web_django")
    app = WSGIMiddleware(django_app.wsgi_application())
    with waitress_server(app) as client:
        assert client.get("/users/3/")[1] == b"user 3"
        assert client.get("/stream/")[1] == b"abc"
        assert client.get("/part/leaf/x/")[1] == b"leaf x"
        assert client.get("/none/")[0] == 404
        assert client.get("/boom/")[0] == 500
    results = run()
    assert {name: one(results, name).num_calls for name in results.region_names} == {
        "GET /users/<int:pk>/": 1, "GET /stream/": 1, "GET /part/leaf/<slug:name>/": 1, "GET (unmatched)": 1, "GET /boom/": 1
    }  # fmt: skip


@pytest.mark.parametrize("serve", [wsgiref_server, waitress_server], ids=["wsgiref", "waitress"])
def test_many_requests_at_once_are_told_apart(run, serve, soak):
    """What each handler slept, what the client saw, and what was recorded, request by request."""
    count = 1000 if soak else 100
    app = flask_app()
    app.wsgi_app = WSGIMiddleware(app.wsgi_app, request_id="x-request-id")
    with serve(app) as client:
        answers = client.many([f"/users/{number % 30}" for number in range(count)], at_once=16)
        streamed = client.get("/stream")
    results = run()
    assert streamed[1] == b"abc"
    stream, chunks = one(results, "GET /stream"), one(results, "chunk")
    assert chunks.num_calls == 3 and set(chunks.parent_ids.tolist()) == {stream.call_ids[0]}
    region, work = one(results, "GET /users/<int:number>"), one(results, "work")
    assert region.num_calls == work.num_calls == count
    recorded = {
        values["request_id"]: (region.start_times[i], region.durations[i], region.call_ids[i], region.thread_ids[i])
        for i, values in enumerate(region.event_metadata)
    }
    inside = {
        parent: (duration, thread) for parent, duration, thread in zip(work.parent_ids, work.durations, work.thread_ids, strict=True)
    }
    for number, ((status, body, headers), (asked, answered)) in enumerate(answers):
        start, duration, call, thread = recorded[headers["x-request-id"]]
        assert status == 200 and body.decode() == headers["x-request-id"]
        slept = (number % 30) / 1000
        assert asked <= start <= answered and slept <= inside[call][0] <= duration
        assert inside[call][1] == thread
    names = {thread.index: thread.name for thread in results.threads[0]}
    assert threading.current_thread().name not in {names[index] for index in region.thread_ids.tolist()}
