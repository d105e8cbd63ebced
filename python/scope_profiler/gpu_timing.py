"""GPU time of calls, by events that are recorded on the device's stream when a call begins and when it ends.

A backend has ``record_event()``, which puts an event into the current stream and returns it, and ``elapsed_time_ns(start, end)``,
which waits until both have passed and returns the time between them; for ``gpu_sync_on_exit`` also ``synchronize()``.
"""

from __future__ import annotations

from .modes import Mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from ._core import Profile, Run

    class GPUTimingBackend(Protocol):
        """What times work on a device."""

        def record_event(self) -> Any:
            """Record an event on the current stream and return it."""

        def elapsed_time_ns(self, start_event: Any, end_event: Any) -> int:
            """The device's time between two events, in ns."""

__all__ = ["CuPyCUDATimingBackend", "GPUTiming", "TorchCUDATimingBackend", "resolve_gpu_timing_backend"]


class TorchCUDATimingBackend:
    """Events of PyTorch, on its current CUDA stream.

    Raises
    ------
    ImportError
        torch cannot be imported.
    RuntimeError
        It finds no CUDA device, or the device refuses an event.
    """

    name = "torch"

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise ImportError(f"GPU timing by PyTorch needs the package torch, which cannot be imported ({error})") from error
        if not torch.cuda.is_available():
            raise RuntimeError("GPU timing by PyTorch: torch finds no CUDA device (torch.cuda.is_available() is False)")
        self._cuda = torch.cuda
        _try(self)

    def record_event(self) -> Any:
        """An event on the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream())
        return event

    def elapsed_time_ns(self, start_event: Any, end_event: Any) -> int:
        """ns between two events, once the second has passed."""
        end_event.synchronize()
        milliseconds: float = start_event.elapsed_time(end_event)
        return round(milliseconds * 1e6)

    def synchronize(self) -> None:
        """Wait for all work of the current device."""
        self._cuda.synchronize()


class CuPyCUDATimingBackend:
    """Events of CuPy, on its current CUDA stream. Errors as of :class:`TorchCUDATimingBackend`."""

    name = "cupy"

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise ImportError(f"GPU timing by CuPy needs the package cupy, which cannot be imported ({error})") from error
        try:
            devices = cupy.cuda.runtime.getDeviceCount()
        except Exception as error:
            raise RuntimeError(f"GPU timing by CuPy: cupy finds no CUDA device ({error})") from error
        if devices <= 0:
            raise RuntimeError("GPU timing by CuPy: cupy finds no CUDA device")
        self._cuda = cupy.cuda
        _try(self)

    def record_event(self) -> Any:
        """An event on the current stream."""
        event = self._cuda.Event()
        event.record(self._cuda.get_current_stream())
        return event

    def elapsed_time_ns(self, start_event: Any, end_event: Any) -> int:
        """ns between two events, once the second has passed."""
        end_event.synchronize()
        milliseconds: float = self._cuda.get_elapsed_time(start_event, end_event)
        return round(milliseconds * 1e6)

    def synchronize(self) -> None:
        """Wait for all work of the current device."""
        self._cuda.Device().synchronize()


def _try(backend: Any) -> None:
    try:
        backend.record_event()
    except Exception as error:
        raise RuntimeError(f"GPU timing by {backend.name}: the device refuses an event ({error})") from error


_NAMED = {"torch": TorchCUDATimingBackend, "pytorch": TorchCUDATimingBackend, "cupy": CuPyCUDATimingBackend}


def resolve_gpu_timing_backend(backend: Any = "auto") -> Any:
    """The backend of a name, or ``backend`` itself.

    Parameters
    ----------
    backend
        ``"torch"`` (or ``"pytorch"``), ``"cupy"``, ``"auto"`` (the first of them that works here), or an object with the methods of a
        backend.

    Raises
    ------
    ValueError
        The name is none of these.
    TypeError
        The object lacks a method.
    ImportError, RuntimeError
        The package, or the device, is missing; for ``"auto"`` a RuntimeError.
    """
    from .settings import check_setting

    backend = check_setting("gpu_timing_backend", backend)
    if not isinstance(backend, str):
        return backend
    if backend != "auto":
        return _NAMED[backend]()
    reasons = []
    for kind in (TorchCUDATimingBackend, CuPyCUDATimingBackend):
        try:
            return kind()
        except (ImportError, RuntimeError) as error:
            reasons.append(f"{kind.name}: {_reason(error)}")
    raise RuntimeError(f"use_gpu_timing: no backend works here: {'; '.join(reasons)}")


def _reason(error: Exception) -> str:
    return "not installed" if isinstance(error.__cause__, ModuleNotFoundError) else str(error)


class GPUTiming(Mode):
    """GPU timing: the device's time of each call."""

    needs_columns = True
    acts = True

    def __init__(self, backend: Any, *, sync_on_exit: bool) -> None:
        self._backend = resolve_gpu_timing_backend(backend)
        self._sync = sync_on_exit
        self._record = self._backend.record_event
        self._run: Run | None = None
        # Per call: region, ticks of its start, and its two events, or the ns between them.
        self._calls: list[tuple[str, int, Any, Any]] = []
        self._collected = 0
        self._failures = 0
        self._first_failure: BaseException | None = None

    def opened(self, run: Run) -> None:
        """The run is open."""
        self._run = run

    def enter(self, region: str) -> object:
        """A call begins: its first event."""
        return self._record()

    def leave(self, region: str, mark: Any, start: int) -> object:
        """It has ended: its second event, and, if asked for, all work that the device still has to do."""
        self._calls.append((region, start, mark, self._record()))
        if self._sync:
            self._backend.synchronize()
        return self._sync

    def gpu_ns(self, profile: Profile) -> Any:
        """ns of each call of the profile; -1 where there are none. Waits for the device."""
        import numpy as np

        times = self._times()
        column = np.full(profile.call_count, -1, dtype=np.int64)
        starts = profile.column("start_ns")
        if starts is None or not times:
            return column
        all_starts = np.frombuffer(starts, dtype=np.int64)
        for row in profile.rows:
            of_region = times.get(profile.names[row[0]])
            if of_region is None:
                continue
            first, count = row[2], row[3]
            for call, start in enumerate(all_starts[first : first + count].tolist(), first):
                column[call] = _take(of_region, start)
        return column

    def _times(self) -> dict[str, dict[int, list[int]]]:
        """By region and start (ns): the device's ns of the calls that began then."""
        assert self._run is not None
        to_ns = self._run.to_ns
        self._collected = len(self._calls)
        times: dict[str, dict[int, list[int]]] = {}
        for index in range(self._collected):
            region, start, first, last = self._calls[index]
            elapsed = last
            if first is not None:  # measured once: events are let go, and the next collection may have this call again
                elapsed = self._elapsed(first, last)
                self._calls[index] = (region, start, None, elapsed)
            times.setdefault(region, {}).setdefault(to_ns(start), []).append(elapsed)
        return times

    def _elapsed(self, first: Any, last: Any) -> int:
        try:
            elapsed = int(self._backend.elapsed_time_ns(first, last))
        except Exception as error:  # whatever the device says: the calls and their times are safe
            self._failures += 1
            self._first_failure = self._first_failure or error
            return -1
        return max(elapsed, 0)

    def confirm(self) -> None:
        """Their times are in a file."""
        del self._calls[: self._collected]
        self._collected = 0

    def problems(self) -> list[str]:
        """Events that the device did not measure."""
        failures, self._failures = self._failures, 0
        if not failures:
            return []
        error, self._first_failure = self._first_failure, None
        calls = "1 call has" if failures == 1 else f"{failures} calls have"
        return [f"{calls} no GPU time: {type(error).__name__}: {error}"]


def _take(times: dict[int, list[int]], start: int) -> int:
    """The time of the call at ``start``, give or take the rounding of a tick; each is given once."""
    for shift in (0, 1, -1):
        found = times.get(start + shift)
        if found:
            return found.pop(0)
    return -1
