"""Modes in runs that trace Python functions: they act at every call of these, and their own functions are none of the program's."""

from __future__ import annotations

import pytest


class Backend:
    """A GPU timing backend whose own functions could be traced too."""

    now = 0

    def record_event(self):
        return self.read()

    def read(self):
        return self.now

    def elapsed_time_ns(self, start, end):
        return end - start


def leaf(work):
    total = 0
    for _ in range(work):
        total += 1
    Backend.now += work
    return total


def root():
    return leaf(3) + leaf(2)


def trace(pm, **settings):
    pm.setup(output=None, **settings)
    pm.profile("main", recursive=True)(root)()
    results = pm.finalize(verbose=False, return_results=True)
    return results, {name.rsplit(".", 1)[-1]: results[name].num_calls for name in results.region_names}


def test_traced_functions_have_gpu_times(pm):
    results, calls = trace(pm, use_gpu_timing=True, gpu_timing_backend=Backend())
    assert calls == {"main": 1, "leaf": 2}
    [name] = [name for name in results.region_names if name.endswith("leaf")]
    assert results[name][0].gpu_durations_ns.tolist() == [3, 2] and results["main"][0].gpu_durations_ns.tolist() == [5]


@pytest.mark.usefixtures("line_profiler")
def test_traced_functions_have_their_lines(pm):
    results, calls = trace(pm, use_line_profiler=True)
    assert calls == {"main": 1, "leaf": 2}
    hits = {record["function"]: record["hits"].tolist() for record in results.line_profile[0]}
    assert hits["leaf"] == [2, 7, 5, 2, 2] and hits["root"] == [1]


def test_traced_functions_have_ranges(pm):
    pytest.importorskip("nvtx")
    assert trace(pm, use_nvtx=True)[1] == {"main": 1, "leaf": 2}


def test_traced_functions_are_counted(pm):
    from scope_profiler import _core

    if _core.perf_event_problems()["task-clock"]:
        pytest.skip("the kernel lets nobody count here")
    results, calls = trace(pm, perf_events=["task-clock"])
    assert {name.rsplit(".", 1)[-1]: totals.calls for name, totals in results.get_perf_events(0).items()} == calls == {"main": 1, "leaf": 2}
