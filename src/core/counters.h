/*
 * counters.h - the probe that counts events of the kernel (perf_event_open) by region.
 *
 * Every thread has counters of its own, opened at its first call, which count all the time. They are read when a call begins
 * and when it ends; what they grew by is added to the region's totals, so nested and recursive calls count in each of them, as
 * their times do.
 */
#ifndef SP_CORE_COUNTERS_H
#define SP_CORE_COUNTERS_H

#include "core/probe.h"
#include "platform/perf_events.h"

typedef struct sp_counters sp_counters;

/* Totals of a region. Where enabled > running, the kernel counted only a part of the time. */
typedef struct sp_region_counters {
    uint64_t calls;                              /* that were counted */
    sp_perf_reading totals[SP_PERF_EVENTS];      /* by position in the list that was asked for */
} sp_region_counters;

/*
 * Count these events (numbers, each once). The calling thread tries whether that is possible: if not, the problem is returned
 * with one sentence in `error`.
 */
sp_perf_problem sp_counters_new(const uint8_t *events, size_t count, sp_counters **out, sp_error *error);

/* What a run is opened with. The run owns it then. */
sp_probe *sp_counters_probe(sp_counters *counters);

/* How many events were asked for. */
size_t sp_counters_event_count(const sp_counters *counters);

/* Those of a run, or NULL if it does not count. */
sp_counters *sp_run_counters(const sp_run *run);

/*
 * A copy of the totals, indexed by region id; *count entries, malloc'ed. NULL: no memory, or nothing counted (*count 0).
 * `uncounted`: calls that were not counted because their thread's counters could not be opened or read.
 */
sp_region_counters *sp_counters_totals(sp_counters *counters, size_t *count, uint64_t *uncounted);

#endif
