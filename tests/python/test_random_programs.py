"""Random programs of tasks, threads, greenlets and generators, run for real and compared with a plain model.

The clock stands still unless a program moves it on. So what a program notes at its own statements - when a lane got its thread,
gave it up, entered a region, left it - is exact, and the model is the arithmetic of the concurrency page over those notes. How the
event loop orders its tasks need not be foretold.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import scope_profiler as sp
from scope_profiler import _core

try:
    import greenlet
except ImportError:
    greenlet = None  # type: ignore[assignment]


class Boom(Exception):
    """What programs raise."""


# -- the model ---------------------------------------------------------------------------------------------------------------


class Lane:
    """A task or greenlet: steps, and how its time splits."""

    def __init__(self, kind: str, name: str, now: int) -> None:
        self.kind, self.name, self.created = kind, name, now
        self.steps = self.running = self.suspended = 0
        self.started: int | None = None
        self.last_end: int | None = None
        self.done: int | None = None
        self.thread = -1
        self.before: Lane | None = None  # what held the thread when the step began

    def resume(self, now: int) -> None:
        self.steps += 1
        if self.last_end is not None:
            self.suspended += now - self.last_end
        self.started = now

    def suspend(self, now: int) -> None:
        assert self.started is not None
        self.running += now - self.started
        self.started, self.last_end = None, now

    def suspended_until(self, now: int) -> int:
        waiting = self.started is None and self.last_end is not None and self.done is None
        return self.suspended + (now - self.last_end if waiting else 0)  # type: ignore[operator]


class Call:
    def __init__(self, region: str, lane: Lane | None, thread: int, now: int) -> None:
        self.region, self.lane, self.thread, self.start = region, lane, thread, now
        self.suspended = lane.suspended_until(now) if lane else 0
        self.end = self.awaited = -1

    def close(self, now: int) -> None:
        self.end = now
        self.awaited = self.lane.suspended_until(now) - self.suspended if self.lane else 0


class World:
    """One program's run: the recorder, the notes, and one thread at a time that may act."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.recorder = _core.Recorder()
        self.run = self.recorder.open(track_async=True)
        self.lanes: list[Lane] = []
        self.calls: list[Call] = []
        self.current: dict[int, Lane | None] = {}
        self.threads: list[list[Any]] = []  # [name, start, end] by row
        self.thread_rows: dict[int, int] = {}  # ident -> row, of the latest thread with it
        self.waiting: list[Any] = []  # threads that wait for their turn
        self.ended: list[threading.Thread] = []
        self.generators: list[Any] = []
        self.budget = 300
        self.add_thread("MainThread")

    def now(self) -> int:
        return _core.now_ns()

    def work(self) -> None:
        if self.random.random() < 0.8:
            _core._advance_clock(self.random.randrange(1, 1000))

    # lanes

    def add_thread(self, name: str) -> list[Any]:
        row = [name, self.now(), -1]
        self.thread_rows[threading.get_ident()] = len(self.threads)
        self.threads.append(row)
        self.current[threading.get_ident()] = None
        return row

    def add_lane(self, kind: str) -> Lane:
        lane = Lane(kind, f"{kind} number {len(self.lanes)}", self.now())
        self.lanes.append(lane)
        return lane

    def resume(self, lane: Lane) -> None:
        me = threading.get_ident()
        lane.before, self.current[me] = self.current[me], lane
        lane.thread = self.thread_rows[me]
        lane.resume(self.now())

    def suspend(self, lane: Lane) -> None:
        assert self.current[threading.get_ident()] is lane
        lane.suspend(self.now())
        self.current[threading.get_ident()] = lane.before

    def finish(self, lane: Lane) -> None:
        self.suspend(lane)
        lane.done = self.now()

    def region(self) -> Iterator[None]:
        """One call, as a generator that ends with it."""
        name = self.random.choice("abcde")
        me = threading.get_ident()
        with self.recorder.region(name):
            call = Call(name, self.current[me], self.thread_rows[me], self.now())
            self.calls.append(call)
            try:
                yield
            finally:
                call.close(self.now())

    # threads: one acts, until it hands over

    def start_thread(self, body: Any) -> threading.Thread:
        turn = threading.Semaphore(0)
        ready = threading.Event()
        name = f"thread number {len(self.threads)}"

        def main() -> None:
            row = self.add_thread(name)
            ready.set()
            turn.acquire()
            self.collect_ended()
            try:
                body()
            except Boom:
                pass
            finally:
                row[2] = self.now()
                self.ended.append(thread)
                self.waiting.pop(self.random.randrange(len(self.waiting))).release()

        thread = threading.Thread(target=main, name=name)
        thread.start()
        ready.wait()
        self.waiting.append(turn)
        return thread

    def collect_ended(self) -> None:
        while self.ended:
            self.ended.pop().join()  # it ends at the time that it noted

    def hand_over(self) -> None:
        if not self.waiting:
            return
        turn = threading.Semaphore(0)
        other = self.waiting.pop(self.random.randrange(len(self.waiting)))
        self.waiting.append(turn)
        other.release()
        turn.acquire()
        self.collect_ended()

    def spend(self) -> bool:
        self.budget -= 1
        return self.budget > 0


class region_of:
    """``with region_of(world):`` one call."""

    def __init__(self, world: World) -> None:
        self.call = world.region()

    def __enter__(self) -> None:
        next(self.call)

    def __exit__(self, *error: Any) -> None:
        self.call.close()


@types.coroutine
def watched(world: World, awaitable: Any) -> Any:
    """Await, noting each time the task gives its thread up and gets it back."""
    lane = world.current[threading.get_ident()]
    assert lane is not None
    inner = awaitable.__await__()
    value, error = None, None
    while True:
        try:
            given = inner.send(value) if error is None else inner.throw(error)
        except StopIteration as stop:
            return stop.value
        world.suspend(lane)
        value, error = None, None
        try:
            value = yield given
        except BaseException as raised:
            error = raised
        world.resume(lane)


# -- what programs do ----------------------------------------------------------------------------------------------------------


class Fibers:
    """The greenlets of one thread."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ready: list[Any] = []  # those that wait to be resumed

    def spawn(self, depth: int) -> None:
        fiber = greenlet.greenlet(self.body)
        fiber.depth, fiber.lane = depth, None
        self.resume(fiber)

    def body(self) -> None:
        fiber = greenlet.getcurrent()
        lane = fiber.lane = self.world.add_lane("greenlet")
        fiber.name = lane.name
        self.world.resume(lane)
        try:
            actions(self.world, self, fiber.depth, fiber)
        except (Boom, greenlet.GreenletExit):
            pass
        finally:
            self.world.finish(lane)

    def resume(self, fiber: Any, error: bool = False) -> None:
        """Run a greenlet until it pauses or ends. Who resumes it is suspended meanwhile, if it is a greenlet itself."""
        world, me = self.world, threading.get_ident()
        held = world.current[me]
        mine = getattr(greenlet.getcurrent(), "lane", None)
        if mine is not None:
            mine.suspend(world.now())
        world.current[me] = None
        fiber.parent = greenlet.getcurrent()
        try:
            if error and fiber.lane is not None:
                fiber.throw(Boom) if world.random.random() < 0.5 else fiber.throw()
            else:
                fiber.switch()
        finally:
            if mine is not None:
                mine.resume(world.now())
                mine.thread = world.thread_rows[me]
            world.current[me] = held

    def pause(self, fiber: Any) -> None:
        world, me = self.world, threading.get_ident()
        held = world.current[me]
        fiber.lane.suspend(world.now())
        self.ready.append(fiber)
        try:
            fiber.parent.switch()
        finally:
            fiber.lane.resume(world.now())
            world.current[me] = held

    def end_all(self) -> None:
        while self.ready:
            self.resume(self.ready.pop(), error=self.world.random.random() < 0.5)


def generator(world: World, depth: int) -> Iterator[None]:
    with region_of(world):
        for _ in range(world.random.randrange(1, 4)):
            world.work()
            yield
            if world.random.random() < 0.3:
                with region_of(world):
                    yield
            world.work()


class Stepped:
    """A generator that any lane may advance, if nobody does."""

    def __init__(self, world: World, depth: int) -> None:
        self.inner, self.busy = generator(world, depth), False
        world.generators.append(self)

    def step(self, world: World) -> None:
        if self.busy:
            return
        self.busy = True
        try:
            choice = world.random.random()
            if choice < 0.7:
                next(self.inner, None)
            elif choice < 0.85:
                self.inner.close()
            else:
                self.inner.throw(Boom)
        except Boom:
            pass
        finally:
            self.busy = False


def actions(world: World, fibers: Fibers | None, depth: int, fiber: Any = None, threads: Any = ()) -> None:
    """A few random actions of a thread or greenlet, or of a task between two awaits."""
    for _ in range(world.random.randrange(1, 7)):
        if not world.spend():
            return
        choice = world.random.randrange(100)
        if choice < 25:
            world.work()
        elif choice < 50 and depth:
            with region_of(world):
                world.work()
                actions(world, fibers, depth - 1, fiber)
        elif choice < 58 and fibers is not None and depth:
            fibers.spawn(depth - 1)
        elif choice < 66 and fibers is not None and fibers.ready:
            fibers.resume(fibers.ready.pop(world.random.randrange(len(fibers.ready))), world.random.random() < 0.2)
        elif choice < 74 and fiber is not None:
            fibers.pause(fiber)  # type: ignore[union-attr]
        elif choice < 78:
            Stepped(world, depth)
        elif choice < 86 and world.generators:
            world.random.choice(world.generators).step(world)
        elif choice < 89:
            world.hand_over()
        elif choice < 94 and depth:
            world.start_thread(lambda: thread_body(world, depth - 1))
        elif choice < 96:
            raise Boom
        else:
            try:
                actions(world, fibers, depth - 1 if depth else 0, fiber)
            except Boom:
                pass


def thread_body(world: World, depth: int) -> None:
    fibers = Fibers(world) if greenlet is not None else None
    try:
        if world.random.random() < 0.5:
            run_loop(world, fibers, depth)
        else:
            actions(world, fibers, depth)
    finally:
        if fibers is not None:
            fibers.end_all()


class Loop:
    """The tasks and asynchronous generators of one event loop."""

    def __init__(self, world: World, fibers: Fibers | None, loop: Any) -> None:
        self.world, self.fibers, self.loop = world, fibers, loop
        self.tasks: list[Any] = []
        self.agens: list[Any] = []
        self.closer: Any = None

    def spawn(self, depth: int) -> Any:
        lane = self.world.add_lane("task")
        task = self.loop.create_task(self.task(lane, depth), name=lane.name)
        self.tasks.append(task)
        return task

    async def task(self, lane: Lane, depth: int) -> None:
        self.world.resume(lane)
        try:
            await self.body(depth)
        except (Boom, asyncio.CancelledError):
            if self.world.random.random() < 0.5:
                raise
        finally:
            if self.world.random.random() < 0.2:
                with region_of(self.world):
                    self.world.work()
            self.world.finish(lane)

    async def agen(self) -> Any:
        with region_of(self.world):
            for _ in range(self.world.random.randrange(1, 3)):
                self.world.work()
                await asyncio.sleep(0)
                self.world.work()
                yield
                if self.world.random.random() < 0.3:
                    with region_of(self.world):
                        await asyncio.sleep(0)
                        yield

    async def step_agen(self, agen: Any, close: bool) -> None:
        if agen.busy:
            return
        agen.busy = True
        try:
            await watched(self.world, agen.inner.aclose() if close else Awaited(agen.inner.__anext__()))
        except StopAsyncIteration:
            pass
        finally:
            agen.busy = False

    async def body(self, depth: int) -> None:
        world = self.world
        for _ in range(world.random.randrange(2, 9)):
            if not world.spend():
                return
            choice = world.random.randrange(100)
            if choice < 20:
                await watched(world, Awaited(asyncio.sleep(0)))
            elif choice < 40 and depth:
                with region_of(world):
                    world.work()
                    await self.body(depth - 1)
            elif choice < 52 and depth:
                self.spawn(depth - 1)
            elif choice < 60 and depth:
                children = [self.spawn(depth - 1) for _ in range(world.random.randrange(1, 4))]
                await watched(world, asyncio.gather(*children, return_exceptions=world.random.random() < 0.5))
            elif choice < 66 and self.tasks:
                world.random.choice(self.tasks).cancel()
            elif choice < 70 and depth:
                await watched(world, Awaited(asyncio.wait_for(self.spawn(depth - 1), 1000)))
            elif choice < 74:
                agen = types.SimpleNamespace(inner=self.agen(), busy=False)
                self.agens.append(agen)
                await self.step_agen(agen, False)
            elif choice < 80 and self.agens:
                await self.step_agen(world.random.choice(self.agens), world.random.random() < 0.3)
            elif choice < 84:
                try:
                    await self.body(depth - 1 if depth else 0)
                except (Boom, asyncio.CancelledError):
                    pass
            else:
                actions(world, self.fibers, depth - 1 if depth else 0)

    async def close_agens(self) -> None:
        lane = self.closer
        self.world.resume(lane)
        try:
            for agen in self.agens:
                try:
                    await watched(self.world, agen.inner.aclose())
                except (Boom, RuntimeError):
                    pass
        finally:
            self.world.finish(lane)


class Awaited:
    """A coroutine as an awaitable whose ``__await__`` may be driven by hand."""

    def __init__(self, coroutine: Any) -> None:
        self.coroutine = coroutine

    def __await__(self) -> Any:
        return self.coroutine.__await__()


def run_loop(world: World, fibers: Fibers | None, depth: int) -> None:
    loop = asyncio.new_event_loop()
    try:
        mine = Loop(world, fibers, loop)
        first = mine.spawn(depth)
        if sys.version_info >= (3, 12) and world.random.random() < 0.4:
            loop.set_task_factory(asyncio.eager_task_factory)  # for those that the first one makes
        loop.run_until_complete(settle(first))
        for _ in range(20):
            left = [task for task in mine.tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            loop.run_until_complete(settle(left[0]))
        assert all(task.done() for task in mine.tasks)
        for task in mine.tasks:
            if not task.cancelled():
                task.exception()
        loop.set_task_factory(None)
        mine.closer = world.add_lane("task")
        loop.run_until_complete(loop.create_task(mine.close_agens(), name=mine.closer.name))
    finally:
        loop.close()


def settle(task: Any) -> Any:
    """A future of the task's loop that is done when the task is, however it ended."""
    future = task.get_loop().create_future()
    if task.done():
        future.set_result(None)
    else:
        task.add_done_callback(lambda _: future.done() or future.set_result(None))
    return future


def play(seed: int) -> World:
    """Run the program of a seed."""
    world = World(seed)
    fibers = Fibers(world) if greenlet is not None else None
    try:
        for _ in range(world.random.randrange(2, 6)):
            try:
                if world.random.random() < 0.6:
                    run_loop(world, fibers, 4)
                else:
                    actions(world, fibers, 4)
            except Boom:
                pass
        while world.waiting or (fibers is not None and fibers.ready):
            world.hand_over()
            if fibers is not None:
                fibers.end_all()  # what a greenlet does last may start a thread again
        world.collect_ended()
        for one in world.generators:
            one.inner.close()
    finally:
        world.recorder.close()
    return world


# -- comparison ------------------------------------------------------------------------------------------------------------------


def rows_of(table: Any) -> list[dict[str, Any]]:
    if not table:
        return []
    return [dict(zip(table, row, strict=True)) for row in zip(*map(list, table.values()), strict=True)]


def check(world: World) -> None:
    profile = world.run.collect()
    origin = world.run.start_ns
    check_threads(world, rows_of(profile.threads), origin)
    index_of = check_lanes(world, rows_of(profile.tasks), origin)
    check_calls(world, profile, index_of)
    assert world.run.open_calls() == [] and world.run.unmatched == 0 and world.run.lost == 0


def check_threads(world: World, rows: list[dict[str, Any]], origin: int) -> None:
    found = [(row["name"], row["start_ns"] + origin, row["end_ns"] + origin if row["end_ns"] >= 0 else -1) for row in rows]
    assert [row[:2] for row in found] == [tuple(row[:2]) for row in world.threads]
    for index, (row, (_, _, end)) in enumerate(zip(found, world.threads, strict=True)):
        # Until the system has ended the thread, an exit elsewhere of a call that it had open counts as its latest moment.
        later = {call.end for call in world.calls if call.thread == index and call.end > end >= 0}
        assert row[2] in {end, *later}, row


def check_lanes(world: World, rows: list[dict[str, Any]], origin: int) -> dict[str, int]:
    assert sorted(row["name"] for row in rows) == sorted(lane.name for lane in world.lanes)
    by_name = {row["name"]: row for row in rows}
    for lane in world.lanes:
        row = by_name[lane.name]
        assert row["kind"] == lane.kind and row["created_ns"] + origin == lane.created, lane.name
        if lane.steps == 0:  # cancelled before its first step: one throw, which no statement of the program can see
            assert (row["steps"], row["running_ns"], row["suspended_ns"]) == (1, 0, 0), lane.name
            assert row["done_ns"] + origin >= lane.created
            continue
        assert lane.done is not None, lane.name
        found = {
            "steps": row["steps"],
            "running": row["running_ns"],
            "suspended": row["suspended_ns"],
            "done": row["done_ns"] + origin,
            "thread": row["thread_index"],
        }
        expected = {name: getattr(lane, name) for name in found}
        assert found == expected, lane.name
    return {row["name"]: row["index"] for row in rows}


def check_calls(world: World, profile: Any, index_of: dict[str, int]) -> None:
    names = ("start_ns", "end_ns", "task_ids", "thread_ids", "await_ns")
    columns = [profile.column(name).tolist() for name in names] if profile.call_count else []
    found = Counter(
        (profile.names[row[0]], *(column[i] for column in columns))
        for row in profile.rows
        for i in range(row[2], row[2] + row[3])
    )
    expected = Counter(
        (call.region, call.start, call.end, index_of[call.lane.name] if call.lane else -1, call.thread, call.awaited)
        for call in world.calls
    )
    assert found == expected, (found - expected, expected - found)


@pytest.fixture
def manual_clock() -> Iterator[None]:
    sp.reset()
    gc.collect()  # a run that an earlier test left in a cycle is still open
    _core._manual_clock(1_000_000)
    yield
    _core._manual_clock(None)


def test_programs(manual_clock: None, soak: bool) -> None:
    """Counts, intervals, await times, running and awaiting time, steps, lanes and threads are those of the model."""
    for seed in range(10_000 if soak else 300):
        try:
            check(play(seed))
        except BaseException as error:
            raise AssertionError(f"program {seed}") from error


def test_programs_do_what_they_are_made_for(manual_clock: None) -> None:
    """Enough of the programs have each kind of lane, several threads, await times, and calls that end elsewhere."""
    worlds = [play(seed) for seed in range(60)]
    lanes = [lane for world in worlds for lane in world.lanes]
    calls = [call for world in worlds for call in world.calls]
    assert sum(lane.kind == "task" for lane in lanes) > 200
    assert sum(len(world.threads) - 1 for world in worlds) > 20
    assert sum(lane.steps > 2 for lane in lanes) > 50
    assert sum(call.awaited > 0 for call in calls) > 50
    assert any(lane.steps == 0 for lane in lanes), "tasks that are cancelled before they start"
    if greenlet is not None:
        assert sum(lane.kind == "greenlet" for lane in lanes) > 50
