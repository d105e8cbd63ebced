"""use_gpu_timing: the device's time of each call. The devices are simulated behind the interfaces of torch and CuPy
(tests/fakes), so that every time is known; a backend of one's own may be anything."""

from __future__ import annotations

import ctypes
import importlib
import sys
import threading
import time
import warnings
from pathlib import Path

import h5py
import pytest

import scope_profiler as sp
from scope_profiler.gpu_timing import CuPyCUDATimingBackend, TorchCUDATimingBackend, resolve_gpu_timing_backend

FAKES = str(Path(__file__).parents[1] / "fakes")
MODULES = ("torch", "cupy", "simulated_device")


@pytest.fixture
def device(monkeypatch):
    """The simulated device; torch and cupy are the modules over it."""
    monkeypatch.syspath_prepend(FAKES)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("simulated_device")
    for name in MODULES:
        sys.modules.pop(name, None)


class Backend:
    """A backend of one's own: device time goes on by ``work``."""

    def __init__(self):
        self.now = 0
        self.waited = 0

    def work(self, ns):
        self.now += ns

    def record_event(self):
        return self.now

    def elapsed_time_ns(self, start, end):
        return end - start


def finish(pm):
    return pm.finalize(verbose=False, return_results=True)


def gpu(results, region, rank=0):
    found = results[region][rank].gpu_durations_ns
    return None if found is None else found.tolist()


@pytest.mark.parametrize("name", ["torch", "pytorch", "cupy", "auto", " Torch "])
def test_each_call_has_the_time_that_the_device_worked_for_it(pm, device, name):
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=name)
    for milliseconds in (5, 7.25, 0):
        with pm.region("kernel"):
            device.stream.submit(milliseconds)
    device.stream.submit(100)  # outside
    with pm.region("outer"):
        device.stream.submit(1)
        with pm.region("kernel"):
            device.stream.submit(2)
    results = finish(pm)
    assert gpu(results, "kernel") == [5_000_000, 7_250_000, 0, 2_000_000]
    assert gpu(results, "outer") == [3_000_000]
    assert results["kernel"].gpu_total_duration == pytest.approx(0.01425)
    assert device.waits.count("device") == 0  # the host goes on while the device works


def test_recursive_calls_and_decorated_functions(pm):
    backend = Backend()
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=backend)

    @pm.profile
    def down(n):
        backend.work(100)
        if n:
            down(n - 1)

    down(2)
    assert gpu(finish(pm), "down") == [300, 200, 100]


@pytest.mark.filterwarnings("ignore:calls overlap:RuntimeWarning")
def test_calls_that_interleave_keep_their_own_events(pm):
    backend = Backend()
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=backend)

    def generator(work):
        with pm.region("g"):
            backend.work(work)
            yield

    first, second = generator(10), generator(200)
    next(first), next(second)
    first.close()
    backend.work(3000)
    second.close()
    assert gpu(finish(pm), "g") == [210, 3200]


def test_calls_of_many_threads_have_their_times(pm):
    class PerThread(threading.local):
        now = 0

        def record_event(self):
            return self.now

        def elapsed_time_ns(self, start, end):
            return end - start

    backend = PerThread()
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=backend)

    def work(number):
        for call in range(200):
            with pm.region(f"r{number}"):
                backend.now += 1000 * number + call

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = finish(pm)
    for number in range(1, 5):
        assert gpu(results, f"r{number}") == [1000 * number + call for call in range(200)]


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_sync_on_exit_waits_for_the_device_inside_of_the_call(pm, device, name):
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=name, gpu_sync_on_exit=True)
    with pm.region("kernel"):
        device.stream.submit(1)
    results = finish(pm)
    assert device.waits.count("device") == 1 and gpu(results, "kernel") == [1_000_000]
    assert results["kernel"].total_duration >= 0.002  # the simulated device keeps whoever waits for it so long


def test_without_sync_the_cost_of_events_is_not_in_the_call(pm):
    class Slow(Backend):
        def record_event(self):
            time.sleep(0.005)
            return 0

    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=Slow())
    with pm.region("r"):
        pass
    assert finish(pm)["r"].total_duration < 0.004


def test_gpu_times_are_in_the_file(pm, tmp_path):
    backend = Backend()
    path = tmp_path / "p.h5"
    with pm.session(output=path, verbose=False, return_results=True, use_gpu_timing=True, gpu_timing_backend=backend) as run:
        for work in (5, 6, 7):
            with pm.region("kernel"):
                backend.work(work)
    for results in (run.results, sp.load(path), sp.read_h5_summary(path)):
        assert results["kernel"].gpu_total_duration == pytest.approx(18e-9)
        assert results["kernel"].gpu_average_duration == pytest.approx(6e-9)
    assert gpu(sp.load(path), "kernel") == [5, 6, 7] and gpu(sp.load(path), "scope_profiler.session") == [18]
    with h5py.File(path) as file:
        assert file["events/gpu_durations"].dtype == "int64"
        assert sorted(file["events/gpu_durations"][:].tolist()) == [5, 6, 7, 18]
        names = [name.decode() for name in file["region_table/names"][:]]
        rows = dict(zip(file["rank_region_index/region_ids"][:].tolist(), file["rank_region_index/summary_statistics"][:], strict=True))
        row = rows[names.index("kernel")]
        assert (row["gpu_count"], row["gpu_total"]) == (3, 18)


def test_the_summary_and_other_formats_show_them(pm, tmp_path):
    backend = Backend()
    path = tmp_path / "p.json"
    with pm.session(output=path, verbose=False, return_results=True, use_gpu_timing=True, gpu_timing_backend=backend) as run:
        with pm.region("kernel"):
            backend.work(2_000_000_000)
    import io

    text = io.StringIO()
    run.results.print_summary(columns=["region", "gpu_total"], stream=text)
    [row] = [line for line in text.getvalue().splitlines() if "kernel" in line]
    assert "2.000" in row
    assert gpu(sp.load(path), "kernel") == [2_000_000_000]


def test_each_checkpoint_has_the_times_of_its_own_calls(pm, tmp_path):
    backend = Backend()
    pm.setup(output=tmp_path / "p.h5", use_gpu_timing=True, gpu_timing_backend=backend)
    for times in ([1, 2], [30], []):
        for work in times:
            with pm.region("kernel"):
                backend.work(work)
        results = finish(pm)
        assert (gpu(results, "kernel") if times else []) == times


def test_a_failed_write_keeps_the_times_and_without_a_file_they_come_again(pm, tmp_path):
    backend = Backend()
    path = tmp_path / "gone" / "p.h5"
    path.parent.mkdir()
    pm.setup(output=path, use_gpu_timing=True, gpu_timing_backend=backend)
    with pm.region("kernel"):
        backend.work(9)
    import shutil

    shutil.rmtree(path.parent)
    with pytest.raises(OSError):
        finish(pm)
    path.parent.mkdir()
    assert gpu(finish(pm), "kernel") == [9]
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=backend)
    for total in (1, 2):
        with pm.region("kernel"):
            backend.work(4)
        assert gpu(finish(pm), "kernel") == [4] * total


def test_a_call_that_is_open_at_a_checkpoint_has_its_time_in_the_next(pm, tmp_path):
    backend = Backend()
    pm.setup(output=tmp_path / "p.h5", use_gpu_timing=True, gpu_timing_backend=backend)
    with pm.region("open"):
        backend.work(1)
        with pm.region("over"):
            backend.work(10)
        assert gpu(finish(pm), "over") == [10]
    assert gpu(finish(pm), "open") == [11]


class Failing(Backend):
    def __init__(self, where):
        super().__init__()
        self.where = where
        self.calls = 0

    def record_event(self):
        self.calls += 1
        if self.where == "enter" and self.calls == 3 or self.where == "leave" and self.calls == 4:
            raise RuntimeError("the device is gone")
        return super().record_event()

    def elapsed_time_ns(self, start, end):
        if self.where == "elapsed" and start == 5:
            raise RuntimeError("the device is gone")
        return super().elapsed_time_ns(start, end)


@pytest.mark.parametrize("where", ["enter", "leave", "elapsed"])
def test_a_backend_that_fails_costs_the_program_nothing_and_is_told_at_the_end(pm, where):
    backend = Failing(where)
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=backend)
    for _ in range(3):
        with pm.region("kernel"):
            backend.work(5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        results = finish(pm)
    assert gpu(results, "kernel") == [5, -1, 5]
    [message] = [str(warning.message) for warning in told]
    assert "1 " in message and "the device is gone" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finish(pm) if where != "elapsed" else None  # told once


def test_an_exception_of_the_program_goes_past_a_failing_backend(pm):
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=Failing("leave"))
    with pm.region("first"):
        pass
    with pytest.raises(KeyError, match="mine"):
        with pm.region("kernel"):
            raise KeyError("mine")
    with pytest.warns(RuntimeWarning, match="the device is gone"):
        finish(pm)


def test_a_backend_that_uses_regions_itself_is_not_asked_about_them(pm):
    class Profiled(Backend):
        def record_event(self):
            with pm.region("backend"):
                return super().record_event()

    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=Profiled())
    with pm.region("kernel"):
        pass
    results = finish(pm)
    assert results["backend"].num_calls == 2 and gpu(results, "backend") is None and gpu(results, "kernel") == [0]


def test_ctrl_c_in_a_backend_reaches_the_program(pm):
    class Interrupted(Backend):
        def record_event(self):
            raise KeyboardInterrupt

    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        with pm.region("kernel"):
            for _ in range(1000):
                time.sleep(0.001)


def test_paused_calls_have_no_events(pm):
    backend = Failing("enter")
    pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=backend)
    pm.pause()
    with pm.region("kernel"):
        pass
    assert backend.calls == 0


def test_native_calls_have_times_where_the_interpreter_is_theirs(native_library, tmp_path):
    source = (
        "#include <scope_profiler.h>\nvoid work(void);\n"
        "void work(void) { int region = sp_region(\"native\"); sp_begin(region); sp_end(region); }\n"
    )
    path = str(native_library.compile(source, tmp_path / "work.so", "-shared", "-fPIC"))
    backend = Backend()
    sp.setup(output=None, use_gpu_timing=True, gpu_timing_backend=backend)
    try:
        ctypes.PyDLL(path).work()  # calls with the interpreter
        ctypes.CDLL(path).work()  # and without it
        assert gpu(finish(sp), "native") == [0, -1]
    finally:
        sp.reset()


# -- what is told at setup ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"gpu_timing_backend": "cuda"}, ValueError, "gpu_timing_backend must be one of 'auto', 'torch', 'pytorch', 'cupy'"),
        ({"gpu_timing_backend": object()}, TypeError, r"record_event\(\)"),
        ({"gpu_timing_backend": type("B", (), {"record_event": lambda self: 0})()}, TypeError, r"elapsed_time_ns\(\)"),
        ({"gpu_timing_backend": Backend(), "gpu_sync_on_exit": True}, TypeError, "gpu_sync_on_exit needs.*synchronize"),
        ({"gpu_timing_backend": "torch"}, ImportError, "torch"),
        ({"gpu_timing_backend": "cupy"}, ImportError, "cupy"),
        ({"gpu_timing_backend": "auto"}, RuntimeError, "use_gpu_timing: no backend works here: .*torch.*cupy"),
        ({}, RuntimeError, "use_gpu_timing: no backend works here"),
    ],
)
def test_what_is_missing_or_wrong_is_told_at_setup(pm, monkeypatch, settings, error, words):
    for name in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(error, match=words):
        pm.setup(output=None, use_gpu_timing=True, **settings)
    assert not pm.is_configured() and not pm.is_active()


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_missing_device_and_one_that_refuses_are_told_at_setup(pm, device, name):
    device.present = False
    with pytest.raises(RuntimeError, match=f"{name} finds no CUDA device"):
        pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=name)
    device.present, device.refuses = True, True
    with pytest.raises(RuntimeError, match="the device refuses an event.*out of memory"):
        pm.setup(output=None, use_gpu_timing=True, gpu_timing_backend=name)
    assert not pm.is_configured()


def test_auto_takes_the_first_that_works(device, monkeypatch):
    assert isinstance(resolve_gpu_timing_backend(), TorchCUDATimingBackend)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert isinstance(resolve_gpu_timing_backend("auto"), CuPyCUDATimingBackend)


def test_names_and_objects_resolve(device):
    own = Backend()
    assert resolve_gpu_timing_backend(own) is own
    assert resolve_gpu_timing_backend("pytorch").name == "torch" and resolve_gpu_timing_backend("cupy").name == "cupy"
    with pytest.raises(ValueError, match="cuda"):
        resolve_gpu_timing_backend("cuda")


def test_a_run_that_is_switched_off_needs_no_device(pm):
    pm.setup(output=None, use_gpu_timing=True, deactivate_profiling=True)
    with pm.region("r"):
        pass
