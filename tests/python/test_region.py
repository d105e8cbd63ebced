"""Region objects: what each ``with`` statement, explicit pair, thread and exception records."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from scope_profiler import _core


class Recorded:
    """A recorder with an open run; ``calls()`` gives (name, parent's name, thread) of the closed calls in start order."""

    def __init__(self, **options: Any) -> None:
        self.recorder = _core.Recorder()
        self.run = self.recorder.open(**options)
        self.region = self.recorder.region

    def columns(self) -> list[dict[str, Any]]:
        profile = self.run.collect()
        column = {
            name: memoryview(profile.column(name)).tolist() if profile.column(name) is not None else None
            for name in ("start_ns", "end_ns", "call_ids", "parent_ids", "thread_ids")
        }
        found = []
        for name_index, _rank, first, count, *_ in profile.rows:
            for i in range(first, first + count):
                values = {name: values[i] if values else None for name, values in column.items()}
                found.append({"name": profile.names[name_index], **values})
        return sorted(found, key=lambda call: call["start_ns"])

    def calls(self) -> list[tuple[str, str | None]]:
        found = self.columns()
        names = {call["call_ids"]: call["name"] for call in found}
        return [(call["name"], names.get(call["parent_ids"])) for call in found]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    made = Recorded()
    yield made
    assert made.run.unmatched == 0
    made.recorder.forget()


def in_thread(function: Any, *arguments: Any) -> None:
    failed = []

    def body() -> None:
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


# -- with statements ---------------------------------------------------------------------------------------------------


def test_a_with_statement_records_one_call_and_yields_the_region(recorded):
    a = recorded.region("a")
    with a as entered:
        assert entered is a
        with recorded.region("b"):
            pass
    assert recorded.calls() == [("a", None), ("b", "a")]
    assert a.num_calls == 1


def test_one_object_is_the_region_of_its_name(recorded):
    assert recorded.region("a") is recorded.region("a")
    assert recorded.region("a") is not recorded.region("b")
    assert [region.region_name for region in recorded.recorder.regions()] == ["a", "b"]


def test_recursion_nests(recorded):
    a = recorded.region("a")

    def f(depth):
        with a:
            if depth:
                f(depth - 1)

    f(4)
    assert recorded.calls() == [("a", None)] + [("a", "a")] * 4


def test_one_statement_may_enter_a_region_several_times(recorded):
    a = recorded.region("a")
    with a, a, recorded.region("b"), a:
        assert recorded.run.open_calls() == ["a", "a", "b", "a"]
    assert recorded.calls() == [("a", None), ("a", "a"), ("b", "a"), ("a", "b")]


def test_every_exception_closes_the_call_and_passes(recorded):
    a = recorded.region("a")
    for error in (ValueError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()):
        with pytest.raises(type(error)) as caught:
            with a:
                raise error
        assert caught.value is error
    for leave in ("return", "break", "continue"):
        exec(f"def f():\n for _ in range(1):\n  with a:\n   {leave}\nf()", {"a": a})
    assert recorded.run.open_calls() == []
    assert len(recorded.calls()) == 7


def test_generators_that_hold_one_region_close_their_own_calls(recorded):
    def g():
        with recorded.region("a"):
            yield
            yield

    one, two, three = g(), g(), g()
    for generator in (one, two, three):
        next(generator)
    starts = []
    for generator in (two, one, three):
        with recorded.region("end"):
            generator.close()
    calls = recorded.columns()
    starts = [call for call in calls if call["name"] == "a"]
    ends = [call for call in calls if call["name"] == "end"]
    for call, end in zip(starts, (ends[1], ends[0], ends[2])):
        assert end["start_ns"] <= call["end_ns"] <= end["end_ns"]


def test_a_generator_closed_by_another_thread_keeps_its_lane():
    recorded = Recorded(track_threads=True)

    def g():
        with recorded.region("a"):
            yield

    generator = g()
    next(generator)
    in_thread(generator.close)
    (call,) = recorded.columns()
    assert call["thread_ids"] == 0
    assert recorded.run.open_calls() == []


def test_a_generator_that_is_thrown_away_closes_its_call(recorded):
    def g():
        with recorded.region("a"):
            yield

    generator = g()
    next(generator)
    del generator
    gc.collect()
    assert recorded.calls() == [("a", None)]


# -- explicit calls ----------------------------------------------------------------------------------------------------


def test_explicit_pairs_close_the_newest_call(recorded):
    a, b = recorded.region("a"), recorded.region("b")
    assert a.__enter__() is a
    b.__enter__()
    a.__enter__()
    assert recorded.run.open_calls() == ["a", "b", "a"]
    assert a.__exit__(None, None, None) is None
    b.__exit__(None, None, None)
    a.__exit__(None, None, None)
    assert recorded.calls() == [("a", None), ("b", "a"), ("a", "b")]


@pytest.mark.parametrize("first", ["enter", "exit"])
def test_bound_methods_can_be_kept(recorded, first):
    a = recorded.region("a")
    if first == "enter":
        enter, exit = a.__enter__, a.__exit__
    else:
        exit, enter = a.__exit__, a.__enter__
    for _ in range(3):
        enter()
        exit(None, None, None)
    enter()
    enter()
    exit(None, None, None)
    exit(None, None, None)
    assert recorded.calls() == [("a", None)] * 4 + [("a", "a")]


def test_methods_of_the_class_take_the_region(recorded):
    a = recorded.region("a")
    type(a).__enter__(a)
    type(a).__exit__(a, None, None, None)
    assert recorded.calls() == [("a", None)]
    for method in (type(a).__enter__, type(a).__exit__):
        with pytest.raises(TypeError):
            method()
        with pytest.raises(TypeError):
            method(3)


def test_an_exit_stack_enters_and_exits(recorded):
    with contextlib.ExitStack() as stack:
        for name in ("a", "b", "a"):
            stack.enter_context(recorded.region(name))
        kept = stack.pop_all()
    assert recorded.run.open_calls() == ["a", "b", "a"]
    kept.close()
    assert recorded.calls() == [("a", None), ("b", "a"), ("a", "b")]


@pytest.mark.parametrize("names", [["__enter__"], ["__exit__"], ["__enter__", "__exit__"], ["__exit__", "__enter__"]])
def test_a_look_up_that_is_not_called_leaves_no_trace(recorded, names):
    a, b = recorded.region("a"), recorded.region("b")
    for name in names:
        assert hasattr(a, name)
    a.__enter__()
    for name in names:
        assert hasattr(a, name)
        assert hasattr(b, name)
    a.__exit__(None, None, None)
    for name in names:
        hasattr(a, name)
    with a:
        for name in names:
            hasattr(a, name)
        with b:
            pass
    assert recorded.calls() == [("a", None), ("a", None), ("b", "a")]
    assert recorded.run.open_calls() == []


def test_an_exit_too_many_is_counted():
    recorded = Recorded()
    a = recorded.region("a")
    a.__exit__(None, None, None)
    with a:
        a.__exit__(None, None, None)
    assert recorded.run.unmatched == 2
    assert recorded.calls() == [("a", None)]


def test_an_exit_of_an_entry_that_was_not_recorded_is_not_one_too_many(recorded):
    a = recorded.region("a")
    recorded.recorder.pause()
    a.__enter__()
    recorded.recorder.resume()
    a.__exit__(None, None, None)
    filtered = Recorded(enabled=lambda name, tags: name != "off")
    with contextlib.ExitStack() as stack:
        stack.enter_context(filtered.region("off"))
        stack.enter_context(filtered.region("on"))
    assert filtered.run.unmatched == 0
    assert filtered.calls() == [("on", None)]


def test_a_call_without_a_handle_is_found_after_the_filter_changed(recorded):
    a = recorded.region("a")
    a.__enter__()
    recorded.recorder.refilter(lambda name, tags: False)
    a.__exit__(None, None, None)
    assert recorded.calls() == [("a", None)]


def test_an_exit_on_another_thread_closes_the_call():
    recorded = Recorded(track_threads=True)
    a = recorded.region("a")
    a.__enter__()
    in_thread(a.__exit__, None, None, None)
    (call,) = recorded.columns()
    assert call["thread_ids"] == 0
    in_thread(a.__enter__)
    a.__exit__(None, None, None)
    assert recorded.run.open_calls() == []


# -- runs --------------------------------------------------------------------------------------------------------------


def test_without_a_run_nothing_is_recorded():
    recorder = _core.Recorder()
    a = recorder.region("a")
    with a:
        pass
    a.__enter__()
    a.__exit__(None, None, None)
    assert a.num_calls == 0
    assert a.get_durations_numpy().tolist() == []


def test_an_object_from_before_a_run_records_into_it():
    recorder = _core.Recorder()
    a = recorder.region("a", tags=["t"])
    for expected in (1, 2):
        run = recorder.open()
        for _ in range(expected):
            with a:
                pass
        assert run.call_counts() == {"a": expected}
        assert recorder.region("a") is a
        recorder.close()
        with a:
            pass
        assert run.call_counts() == {"a": expected}


def test_a_pause_leaves_open_calls_alone(recorded):
    a = recorded.region("a")
    with a:
        recorded.recorder.pause()
        assert recorded.recorder.paused and not recorded.recorder.recording
        with a:
            recorded.recorder.resume()
    with a:
        pass
    assert recorded.calls() == [("a", None)] * 2


def test_a_statement_that_outlives_its_run_closes_its_call():
    recorder = _core.Recorder()
    first = recorder.open()
    a = recorder.region("a")
    with a:
        second = recorder.open()
        with a:
            pass
    assert first.collect().call_count == 1
    assert second.collect().call_count == 1


def test_times_of_calls_that_are_in_no_file(recorded):
    a = recorded.region("a")
    for _ in range(3):
        with a:
            pass
    starts, ends, durations = a.get_start_times_numpy(), a.get_end_times_numpy(), a.get_durations_numpy()
    assert starts.dtype == ends.dtype == durations.dtype == "int64"
    assert (ends - starts).tolist() == durations.tolist()
    assert (starts >= 0).all() and (durations >= 0).all() and (starts[1:] >= ends[:-1]).all()
    assert len(starts) == 3


# -- names, tags, sources ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "/", "a/b", "é", "\U0001f600", "x" * 100_000, "\n\t", "."])
def test_any_text_is_a_name(recorded, name):
    with recorded.region(name):
        pass
    assert recorded.calls() == [(name, None)]


@pytest.mark.parametrize(
    ("name", "error"),
    [("a\0b", ValueError), ("\ud800", ValueError), (b"\xff", ValueError), (1, TypeError), (None, TypeError), ([], TypeError)],
)
def test_a_name_that_cannot_be_stored_is_refused_at_once(recorded, name, error):
    with pytest.raises(error):
        recorded.region(name)
    assert recorded.recorder.regions() == []


def test_bytes_and_subclasses_of_str_are_the_str_they_hold(recorded):
    class Name(str):
        def __eq__(self, other):
            raise RuntimeError

        __hash__ = str.__hash__

    a = recorded.region("é")
    assert recorded.region("é".encode()) is a
    assert recorded.region(Name("é")) is a
    assert type(recorded.region(Name("b")).region_name) is str


def test_tags_are_kept_and_must_agree(recorded):
    a = recorded.region("a", tags=["x", "y"])
    assert a.tags == ("x", "y")
    assert recorded.region("a") is a
    assert recorded.region("a", tags=("x", "y")) is a
    for other in (["x"], ["y", "x"], []):
        with pytest.raises(ValueError, match="tags"):
            recorded.region("a", tags=other)
    for bad in (["\0"], ["\ud800"], [1], 3):
        with pytest.raises((TypeError, ValueError)):
            recorded.region("b", tags=bad)
    assert len(recorded.recorder.regions()) == 1


def test_the_first_use_is_the_source(recorded):
    here = sys._getframe().f_lineno
    a = recorded.region("a")
    recorded.region("a")
    assert (a.source_file, a.source_lineno) == (__file__, here + 1)


# -- leaves alone ------------------------------------------------------------------------------------------------------


def test_a_pending_exception_passes_through_the_exit(recorded):
    try:
        raise ValueError("first")
    except ValueError as first:
        with recorded.region("a"):
            assert sys.exc_info()[1] is first
        assert sys.exc_info()[1] is first


def test_a_filter_that_fails_switches_the_region_off(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: told.append(hook.exc_type))

    def enabled(name, tags):
        raise OSError(errno.EIO, "x")

    recorded = Recorded(enabled=enabled)
    with recorded.region("a"):
        pass
    assert told == [OSError]
    assert recorded.calls() == []


# -- threads and memory ------------------------------------------------------------------------------------------------


def test_threads_share_regions_and_every_call_is_reported_once():
    recorded = Recorded(track_threads=True)
    shared = [recorded.region(f"r{i}") for i in range(4)]
    stop = threading.Event()
    got = [0]

    def collect():
        while not stop.is_set():
            got[0] += recorded.run.collect().call_count
            recorded.run.confirm()

    def work(index):
        own = recorded.region(f"own{index}")
        for i in range(3000):
            with own, shared[i % 4]:
                with contextlib.suppress(ValueError), recorded.region("early"):
                    if i % 3 == 0:
                        raise ValueError

    collector = threading.Thread(target=collect)
    collector.start()
    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    stop.set()
    collector.join()
    got[0] += recorded.run.collect().call_count
    assert got[0] == 8 * 3000 * 3
    assert recorded.run.call_counts()["early"] == 24000
    assert recorded.run.open_calls() == []


def test_nothing_is_left_of_a_recorder_that_is_let_go():
    recorder = _core.Recorder()
    run = recorder.open(track_threads=True)
    a = recorder.region("a")
    with a:
        pass
    hasattr(a, "__enter__")
    with recorder.region("b"):
        pass
    gone = weakref.ref(a), weakref.ref(recorder)
    recorder.close()
    del a, recorder, run
    with _core.Recorder().region("c"):
        pass
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_a_look_up_on_a_thread_that_ends_is_let_go():
    recorder = _core.Recorder()
    gone = []

    def look(opened):
        region = recorder.region(f"only here {opened}")
        gone.append(weakref.ref(region))
        hasattr(region, "__enter__")
        hasattr(region, "__exit__") if opened else None
        hasattr(region, "__enter__")

    in_thread(look, False)
    recorder.open()
    in_thread(look, True)
    recorder.forget()
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.uninstrumented
def test_entering_keeps_no_memory():
    recorded = Recorded()
    a = recorded.region("a")

    def use(count):
        for _ in range(count):
            with a:
                pass
            a.__enter__()
            a.__exit__(None, None, None)
            hasattr(a, "__enter__")
        recorded.run.collect()
        recorded.run.confirm()

    use(1000)
    tracemalloc.start()
    try:
        use(1000)
        before = tracemalloc.get_traced_memory()[0]
        references = sys.getrefcount(a)
        use(20000)
        assert tracemalloc.get_traced_memory()[0] - before < 20000
        assert sys.getrefcount(a) == references
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.uninstrumented
@pytest.mark.parametrize("options", [["-X", "dev"], ["-X", "tracemalloc"], []])
def test_under_debugging_allocators(options):
    environment = {**os.environ, "PYTHONMALLOC": "debug", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *options, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not uninstrumented", __file__]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
