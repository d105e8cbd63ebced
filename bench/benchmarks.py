"""The benchmarks of ./run bench, in the order of its table. budgets.toml says what is promised about them."""

from __future__ import annotations

from harness import Benchmark

NS, MICRO, MS, SECONDS, BYTES = "ns", "µs", "ms", "s", "B"

BENCHMARKS = [
    Benchmark(
        "reused", "calls:reused", NS, "`with` on a region object", limit="limits:context_manager",
        peers={"nvtx": "peers:nvtx_reused", "ittapi": "peers:ittapi_reused"},
    ),
    Benchmark("reused_memory", "calls:reused_memory", NS, "the same without an output file, hence without the spool"),
    Benchmark(
        "named", "calls:named", NS, "`with region(name)`", limit="limits:named_context_manager",
        peers={
            "viztracer": "peers:viztracer_named", "nvtx": "peers:nvtx_named", "ittapi": "peers:ittapi_named",
            "OpenTelemetry": "peers:telemetry_named",
        },
    ),
    Benchmark(
        "decorated", "calls:decorated_call", NS, "decorated call, above the plain one", limit="limits:decorator",
        peers={
            "viztracer": "peers:viztracer_call", "yappi": "peers:yappi_call", "cProfile": "peers:cprofile_call",
            "nvtx": "peers:nvtx_decorated", "ittapi": "peers:ittapi_decorated", "OpenTelemetry": "peers:telemetry_decorated",
        },
    ),
    Benchmark("reused_threads", "calls:reused_threads", NS, "`with` on a region object, threads tracked", rounds=5),
    Benchmark("named_threads", "calls:named_threads", NS, "`with region(name)`, threads tracked", rounds=5),
    Benchmark("decorated_threads", "calls:decorated_threads", NS, "decorated call, threads tracked", rounds=5),
    Benchmark("reused_async", "calls:reused_async", NS, "`with` on a region object, tasks tracked", rounds=5),
    Benchmark("reused_in_task", "calls:reused_in_task", NS, "the same inside a task", rounds=5),
    Benchmark("named_async", "calls:named_async", NS, "`with region(name)`, tasks tracked", rounds=5),
    Benchmark("decorated_async", "calls:decorated_async", NS, "decorated call, tasks tracked", rounds=5),
    Benchmark("reused_threads_added", "calls:reused_threads_added", NS, "`with`: what tracking threads adds", rounds=5, compared=False),
    Benchmark("reused_async_added", "calls:reused_async_added", NS, "`with`: what tracking tasks adds", rounds=5, compared=False),
    Benchmark("named_threads_added", "calls:named_threads_added", NS, "named: what tracking threads adds", rounds=5, compared=False),
    Benchmark("named_async_added", "calls:named_async_added", NS, "named: what tracking tasks adds", rounds=5, compared=False),
    Benchmark("decorated_threads_added", "calls:decorated_threads_added", NS, "decorated: what tracking threads adds", rounds=5, compared=False),
    Benchmark("decorated_async_added", "calls:decorated_async_added", NS, "decorated: what tracking tasks adds", rounds=5, compared=False),
    Benchmark("disabled_reused", "calls:disabled_reused", NS, "`with` on a region object while nothing records", limit="limits:idle_context_manager"),
    Benchmark("disabled_named", "calls:disabled_named", NS, "`with region(name)` while nothing records", rounds=5),
    Benchmark("disabled_decorated", "calls:disabled_decorated", NS, "decorated call while nothing records", limit="limits:idle_decorator"),
    Benchmark("generator_step", "calls:generator_step", NS, "step of a profiled generator, above the plain one", compared=False),
    Benchmark("asyncio_step", "lanes:asyncio_step", NS, "step of an asyncio task: what tracking adds", rounds=5),
    Benchmark("task_life", "lanes:task_life", NS, "life of an asyncio task: what tracking adds", rounds=5),
    Benchmark("task_kept", "lanes:task_kept", BYTES, "kept of a task that has ended", rounds=1, fresh=True),
    Benchmark("greenlet_switch", "lanes:greenlet_switch", NS, "whole switch of greenlets, tracked", limit="lanes:greenlet_empty_callback"),
    Benchmark("thread_life", "lanes:thread_life", MICRO, "start and end of a thread: what tracking adds", rounds=5),
    Benchmark("spool", "spool:spool_call", NS, "what the spool adds to a recorded call (CPU time)", rounds=3, compared=False),
    Benchmark("clock", "limits:counter_pair", NS, "two reads of the processor's counter", compared=False, limit="limits:kernel_pair"),
    Benchmark("clock_fresh", "limits:fresh_pair", NS, "the same, stored in fresh memory", compared=False),
    Benchmark("import", "whole:import_time", MS, "`import scope_profiler`, above the bare interpreter", rounds=3),
    Benchmark("import_used", "whole:import_used_time", MS, "the same with `ProfileManager, profile, region, session`", rounds=3),
    Benchmark("finalize", "whole:finalize_quiet", SECONDS, "finalize of 2 M calls", rounds=3, fresh=True),
    Benchmark("finalize_printed", "whole:finalize_printed", SECONDS, "the same with the summary", rounds=3, reference_rounds=1, fresh=True),
    Benchmark("finalize_threads", "whole:finalize_threads", SECONDS, "the same, threads tracked", rounds=3, reference_rounds=1, fresh=True),
    Benchmark("finalize_async", "whole:finalize_async", SECONDS, "the same, tasks tracked", rounds=3, reference_rounds=1, fresh=True),
    Benchmark("file_size", "whole:file_size", BYTES, "file of 2 M calls, a call", rounds=1, fresh=True),
    Benchmark("file_size_async", "whole:file_size_async", BYTES, "the same, tasks tracked", rounds=1, fresh=True),
    Benchmark("load", "whole:load", SECONDS, "load of a file of 2 M calls, and a sum of all calls of a region", rounds=5),
    Benchmark("load_summary", "whole:load_summary", MS, "load of a file of 10 M calls, and its printed summary", rounds=5, reference_rounds=1),
    Benchmark("read_summary", "whole:read_summary", MS, "`read_h5_summary` of it", rounds=5),
    Benchmark("tree", "call_tree:one_lane", NS, "call tree of columns of 2 M calls, a call", rounds=7),
    Benchmark("tree_recorded", "call_tree:recorded", NS, "the same of a recorded run", rounds=5, reference_rounds=2),
    Benchmark("tree_shuffled", "call_tree:one_lane_shuffled", NS, "the same of columns in random order", rounds=3, reference_rounds=1),
    Benchmark("tree_lanes", "call_tree:many_lanes", NS, "the same on 20,000 lanes", rounds=5, reference_rounds=1),
    Benchmark("tree_spread", "call_tree:spread", "", "slowest to fastest number of lanes, 1 to 100,000", rounds=1, compared=False),
    Benchmark("viewer_write", "viewer:write_page", SECONDS, "page of 1 M calls, 64 threads, 10,000 tasks", rounds=3, compared=False),
    Benchmark("viewer_open", "viewer:open_page", SECONDS, "the same opened in headless Chromium", rounds=5, compared=False),
    Benchmark("viewer_frame", "viewer:frame_median", MS, "frame of 20 s of zooming and panning in it", rounds=1, compared=False, fresh=True),
    Benchmark("viewer_frame_p95", "viewer:frame_p95", MS, "the same, 95 of 100 are faster", rounds=1, compared=False, fresh=True),
    Benchmark("viewer_draw", "viewer:draw_p95", MS, "drawing such a frame, 95 of 100 are faster", rounds=1, compared=False, fresh=True),
    Benchmark("memory_recording", "whole:memory_recording", BYTES, "memory a call, recording 10 M", rounds=1, compared=False, fresh=True),
    Benchmark("memory_finalize", "whole:memory_finalize", BYTES, "memory a call, peak of finalize", rounds=1, compared=False, fresh=True),
    Benchmark("memory_names", "whole:memory_names", "MB", "100,000 region names", rounds=1, compared=False, fresh=True),
    Benchmark("memory_threads", "whole:memory_threads", BYTES, "left of a short thread", rounds=1, compared=False, fresh=True),
]  # fmt: skip
