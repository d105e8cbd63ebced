"""Real servers for the tests of the middleware: each serves an application on a free port of the loopback until its block ends.

And the run that what they serve is recorded in.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import scope_profiler as sp


def begin_run(**settings):
    """Begin a run of the default manager. What is returned ends it, and returns its results."""
    sp.setup(output=None, **settings)
    return lambda: sp.finalize(verbose=False, return_results=True)


def one(results, name):
    return results[name][0]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds=60.0):
    """Wait for something that other threads or processes do."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Client:
    """Requests to one port, one connection each."""

    def __init__(self, port):
        self.port = port

    def get(self, path, method="GET", headers=None):
        """(status, body, headers)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def many(self, paths, at_once=32):
        """The answers to all paths, in their order, and when each was asked for and there."""

        def timed(path):
            start = time.perf_counter()
            answer = self.get(path)
            return answer, (start, time.perf_counter())

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(timed, paths))


@contextmanager
def uvicorn_server(app, **options):
    import uvicorn

    options.setdefault("loop", "asyncio")  # uvloop's sleeps can be shorter than they were asked for
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", **options))
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        yield Client(port)
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def hypercorn_server(app):
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    port = free_port()
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = config.accesslog = None
    loop = asyncio.new_event_loop()
    end = asyncio.Event()

    def run():
        loop.run_until_complete(serve(app, config, shutdown_trigger=end.wait))
        loop.close()

    thread = threading.Thread(target=run, name="hypercorn")
    thread.start()
    try:
        wait_until(lambda: accepts(port))
        yield Client(port)
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()


@contextmanager
def wsgiref_server(app):
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = False
        request_queue_size = 128

    class Quiet(WSGIRequestHandler):
        def log_message(self, *args):
            pass

    with Server(("127.0.0.1", 0), Quiet) as server:
        server.set_app(app)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="wsgiref")
        thread.start()
        try:
            yield Client(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def waitress_server(app):
    from waitress.server import create_server

    server = create_server(app, host="127.0.0.1", port=0, threads=8)
    stop = threading.Event()

    def run():
        while not stop.is_set():
            server.asyncore.loop(timeout=0.02, map=server._map, count=1)

    thread = threading.Thread(target=run, name="waitress")
    thread.start()
    try:
        yield Client(server.effective_port)
    finally:
        stop.set()
        thread.join()
        server.task_dispatcher.shutdown()
        server.asyncore.close_all(server._map)


@contextmanager
def server_process(command, port, cwd, environment=None):
    """A server of several processes, ended with SIGTERM; yields its Popen and a client."""
    process = subprocess.Popen(
        [sys.executable, *command], cwd=cwd, env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        wait_until(lambda: accepts(port) or process.poll() is not None)
        assert process.poll() is None, process.stdout.read()
        yield process, Client(port)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
