"""An event loop that has nothing of asyncio's BaseEventLoop: what instrument_loop() is for."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from asyncio import events
from collections import deque
from typing import Any


class OwnLoop(asyncio.AbstractEventLoop):
    """Timers, callbacks and tasks; enough for asyncio.sleep, gather and futures."""

    def __init__(self) -> None:
        self._ready: deque[Any] = deque()
        self._timers: list[Any] = []
        self._order = itertools.count()
        self._stopped = False
        self._factory: Any = None

    def time(self) -> float:
        return time.monotonic()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: Any) -> None:
        pass

    def create_future(self) -> Any:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **keywords: Any) -> Any:
        if self._factory is not None:
            return self._factory(self, coro, **keywords)
        return asyncio.Task(coro, loop=self, **keywords)

    def set_task_factory(self, factory: Any) -> None:
        self._factory = factory

    def get_task_factory(self) -> Any:
        return self._factory

    def call_exception_handler(self, context: Any) -> None:
        raise AssertionError(context)

    def run_until_complete(self, future: Any) -> Any:
        events._set_running_loop(self)
        try:
            future = asyncio.ensure_future(future, loop=self)
            future.add_done_callback(lambda _: setattr(self, "_stopped", True))
            self._stopped = False
            while not self._stopped:
                self._turn()
        finally:
            events._set_running_loop(None)
        return future.result()

    def _turn(self) -> None:
        if not self._ready and self._timers:
            time.sleep(max(0.0, self._timers[0][0] - self.time()))
        while self._timers and self._timers[0][0] <= self.time():
            self._ready.append(heapq.heappop(self._timers)[2])
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()


class SealedLoop(OwnLoop):
    """The same, and no attribute of it can be set from outside: only a task factory is left."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(name)
        super().__setattr__(name, value)
