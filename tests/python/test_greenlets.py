"""Greenlets as lanes: in every thread, with their target's name, their split of time and their end."""

import gc
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest

from scope_profiler import _core

greenlet = pytest.importorskip("greenlet")


class Recording:
    """A recorder with track_async, and its profile by names."""

    def __init__(self):
        self.recorder = _core.Recorder()
        self.run = self.recorder.open(track_async=True)
        self.region = self.recorder.region

    def finish(self):
        self.recorder.close()
        profile = self.run.collect()
        self.profile = profile
        tasks = profile.tasks or {}
        self.tasks = [
            dict(zip(tasks, row, strict=True))
            for row in zip(*(list(column) for column in tasks.values()), strict=True)
        ]
        self.threads = dict(zip(profile.threads["name"], profile.threads["index"], strict=True))
        return self

    def calls(self, name):
        """Rows (task, thread, duration, await) of a region, ns, in order of entry."""
        columns = [
            numpy.asarray(self.profile.column(c)) for c in ("task_ids", "thread_ids", "start_ns", "end_ns", "await_ns")
        ]
        for row in self.profile.rows:
            if self.profile.names[row[0]] == name:
                part = [c[row[2] : row[2] + row[3]] for c in columns]
                return [(int(t), int(h), int(e - s), int(a)) for t, h, s, e, a in zip(*part, strict=True)]
        return []


@pytest.fixture
def recording():
    greenlet.settrace(None)  # that of a run which another test of this process left
    made = Recording()
    yield made
    made.recorder.forget()
    assert greenlet.gettrace() is None


def in_thread(function, name="worker"):
    thread = threading.Thread(target=function, name=name)
    thread.start()
    thread.join()


def test_interleaved_greenlets_of_a_worker_thread_are_lanes_with_their_own_times(recording):
    def body():
        with recording.region("fiber"):
            time.sleep(0.02)
            greenlet.getcurrent().parent.switch()
            time.sleep(0.02)

    def worker():
        first, second = greenlet.greenlet(body), greenlet.greenlet(body)
        for fiber in (first, second, first, second):
            fiber.switch()

    in_thread(worker, "gw")
    recording.finish()
    calls = recording.calls("fiber")
    assert [call[0] for call in calls] == [0, 1]
    for _, thread, duration, awaited in calls:
        assert thread == recording.threads["gw"]
        assert duration >= 58_000_000
        assert 18_000_000 <= awaited <= duration - 38_000_000
    for task in recording.tasks:
        assert task["kind"] == "greenlet"
        assert task["thread_index"] == recording.threads["gw"]
        assert task["steps"] == 2
        assert task["done_ns"] > task["created_ns"] >= 0
        assert task["running_ns"] >= 38_000_000
        assert task["coro_name"].endswith("body")


def test_a_region_open_on_the_main_greenlet_survives_switches(recording):
    def body():
        with recording.region("inside"):
            greenlet.getcurrent().parent.switch()

    with recording.region("outer"):
        fiber = greenlet.greenlet(body)
        fiber.switch()
        with recording.region("between"):
            pass
        fiber.switch()
    recording.finish()
    assert [call[0] for call in recording.calls("outer")] == [-1]
    assert [call[0] for call in recording.calls("between")] == [-1]
    assert [call[0] for call in recording.calls("inside")] == [0]
    assert len(recording.tasks) == 1


def target_that_never_switches():
    pass


def test_a_greenlet_that_never_switches_has_its_targets_name(recording):
    greenlet.greenlet(target_that_never_switches).switch()
    recording.finish()
    assert [task["coro_name"] for task in recording.tasks] == ["target_that_never_switches"]
    assert recording.tasks[0]["steps"] == 1
    assert recording.tasks[0]["suspended_ns"] == 0


def test_name_attribute_is_the_lanes_name(recording):
    class Named(greenlet.greenlet):
        name = "fetcher"

        def run(self):
            pass

    Named().switch()
    plain = greenlet.greenlet(target_that_never_switches)
    plain.switch()
    recording.finish()
    assert [task["name"] for task in recording.tasks] == ["fetcher", f"greenlet-{id(plain):x}"]
    assert recording.tasks[0]["coro_name"].endswith("Named.run")


def test_throw_ends_a_greenlet_and_closes_its_region(recording):
    def body():
        with recording.region("thrown"):
            greenlet.getcurrent().parent.switch()

    fiber = greenlet.greenlet(body)
    fiber.switch()
    with pytest.raises(ValueError, match="stop"):
        fiber.throw(ValueError("stop"))
    recording.finish()
    assert len(recording.calls("thrown")) == 1
    assert recording.tasks[0]["done_ns"] != -1


def test_a_greenlet_that_is_collected_ends(recording):
    def body():
        with recording.region("dropped"):
            greenlet.getcurrent().parent.switch()

    fiber = greenlet.greenlet(body)
    fiber.switch()
    del fiber
    gc.collect()
    recording.finish()
    assert len(recording.calls("dropped")) == 1
    assert recording.tasks[0]["done_ns"] != -1


def test_a_greenlet_that_waits_is_not_done(recording):
    def body():
        greenlet.getcurrent().parent.switch()

    fiber = greenlet.greenlet(body)
    fiber.switch()
    recording.finish()
    assert recording.tasks[0]["done_ns"] == -1
    fiber.switch()


def test_an_address_that_is_used_again_is_another_lane(recording):
    for _ in range(200):
        greenlet.greenlet(target_that_never_switches).switch()
    recording.finish()
    assert [task["index"] for task in recording.tasks] == list(range(200))
    assert all(task["steps"] == 1 for task in recording.tasks)


def test_the_applications_trace_function_is_chained_and_found_again():
    events = []

    def application(event, pair):
        events.append(event)

    greenlet.settrace(application)
    try:
        made = Recording()
        greenlet.greenlet(target_that_never_switches).switch()
        made.finish()
        assert greenlet.gettrace() is application
    finally:
        greenlet.settrace(None)
    assert events == ["switch", "switch"]
    assert len(made.tasks) == 1


def test_a_trace_function_set_during_the_run_stays(recording):
    def application(event, pair):
        pass

    greenlet.settrace(application)
    recording.finish()
    assert greenlet.gettrace() is application
    greenlet.settrace(None)


def test_other_threads_lose_the_trace_at_their_next_switch(recording):
    ready, go = threading.Event(), threading.Event()
    seen = []

    def worker():
        greenlet.greenlet(target_that_never_switches).switch()
        ready.set()
        go.wait()
        greenlet.greenlet(target_that_never_switches).switch()
        seen.append(greenlet.gettrace())

    thread = threading.Thread(target=worker)
    thread.start()
    ready.wait()
    recording.finish()
    go.set()
    thread.join()
    assert seen == [None]
    assert len(recording.run.collect().tasks["index"]) == 1


def test_a_session_opened_inside_a_greenlet_makes_it_a_lane():
    made = []

    def body():
        recording = Recording()
        made.append(recording)
        with recording.region("inside"):
            greenlet.getcurrent().parent.switch()

    fiber = greenlet.greenlet(body)
    fiber.switch()
    with made[0].region("main"):
        pass
    fiber.switch()
    made[0].finish()
    assert [call[0] for call in made[0].calls("inside")] == [0]
    assert [call[0] for call in made[0].calls("main")] == [-1]
    assert made[0].tasks[0]["done_ns"] != -1


def test_gevent_greenlets_are_lanes_by_name():
    pytest.importorskip("gevent")
    program = textwrap.dedent(
        """
        import gevent
        from scope_profiler import _core
        recorder = _core.Recorder()
        run = recorder.open(track_async=True)
        def job(seconds):
            with recorder.region("job"):
                gevent.sleep(seconds)
        def main():
            with recorder.region("outer"):
                gevent.joinall([gevent.spawn(job, 0.02), gevent.spawn(job, 0.03)])
        main()
        recorder.close()
        profile = run.collect()
        jobs = [i for i, name in enumerate(profile.tasks["coro_name"]) if name == "job"]
        assert len(jobs) == 2, profile.tasks["coro_name"]
        assert all(profile.tasks["done_ns"][i] > 0 for i in jobs)
        assert all(profile.tasks["name"][i].startswith("Greenlet-") for i in jobs), profile.tasks["name"]
        counts = {profile.names[row[0]]: row[3] for row in profile.rows}
        assert counts == {"outer": 1, "job": 2}, counts
        awaited = list(profile.column("await_ns"))
        lanes = list(profile.column("task_ids"))
        assert lanes[0] == -1 and sorted(lanes[1:]) == jobs, lanes
        assert min(awaited[1:]) >= 19_000_000, awaited
        """
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
