/*
 * clock.h - the one clock. Everything recorded is in ticks; an sp_timeline turns ticks into ns of CLOCK_MONOTONIC.
 *
 * On x86_64 and aarch64 a tick is one of the processor's invariant counter, used where the kernel's own clock uses it
 * (else, and by SCOPE_PROFILER_CLOCK=monotonic, a tick is a nanosecond of clock_gettime). The counter's rate against
 * CLOCK_MONOTONIC drifts with time discipline, so pairs of both ("anchors") are taken along the run, and a tick is
 * interpolated between the two anchors around it: continuous, monotone, and off by the error of an anchor (tens of ns).
 */
#ifndef SP_CORE_CLOCK_H
#define SP_CORE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "platform/counter.h"

typedef uint64_t sp_ticks;

typedef enum sp_clock_source {
    SP_CLOCK_UNSET, /* before the first use */
    SP_CLOCK_COUNTER,
    SP_CLOCK_MONOTONIC,
    SP_CLOCK_INJECTED /* tests */
} sp_clock_source;

extern sp_clock_source sp_clock_current; /* written by sp_clock_choose and the injector only */

typedef struct sp_anchor {
    sp_ticks ticks;
    int64_t ns;
} sp_anchor;

/* How far apart anchors may be while calls are recorded. */
#define SP_ANCHOR_INTERVAL_NS INT64_C(100000000)

sp_ticks sp_clock_read_slow(void);

/* Whether sp_clock_read() is sp_clock_counter(), which is one instruction and no call. */
static inline bool sp_clock_is_counter(void)
{
    return sp_clock_current == SP_CLOCK_COUNTER;
}

static inline sp_ticks sp_clock_counter(void)
{
    return SP_HAS_COUNTER ? sp_processor_counter() : sp_clock_read_slow();
}

/* Now, in ticks. Never 0 and never UINT64_MAX, which mark slots. */
static inline sp_ticks sp_clock_read(void)
{
    return __builtin_expect(sp_clock_is_counter(), 1) ? sp_clock_counter() : sp_clock_read_slow();
}

/* Choose the source once, by SCOPE_PROFILER_CLOCK (auto, tsc, monotonic) and what the machine has. Thread-safe. */
void sp_clock_choose(void);

/*
 * The same by a name, "auto", "tsc" or "monotonic", instead of by the environment. The first choice of a process stands:
 * SP_ERR_INVALID if it was another, or the name is none of these.
 */
sp_status sp_clock_select(const char *name, sp_error *error);

/* "tsc" for the processor's counter, "monotonic", or "injected". */
const char *sp_clock_source_name(void);

/*
 * For tests: ticks come from `ticks`, and the ns that go with them from `ns`; without `ns` a tick is a ns. NULL for both
 * restores the machine's clock. Only while nothing records.
 */
void sp_clock_inject(sp_ticks (*ticks)(void), int64_t (*ns)(void));

/* An anchor from when this process chose its clock: with a later one, it gives the counter's rate. */
sp_anchor sp_clock_first_anchor(void);

/* ns of CLOCK_MONOTONIC, or of the injected clock. */
int64_t sp_clock_ns(void);

/*
 * The anchors of one run, ascending. The run's lock guards it. Anchors are only ever appended, and nothing is converted that
 * lies after the last of them, so a tick gives the same ns whenever it is converted.
 */
typedef struct sp_timeline {
    sp_anchor *anchors;
    size_t count, size;
    sp_ticks due; /* when the next anchor should be taken */
    bool restored;    /* of another process: no anchor can be taken, and `source` is that process's clock */
    sp_clock_source source;
} sp_timeline;

/*
 * Append an anchor taken now, unless the newest is younger than `minimum_ns`. Returns when the next one is due. After a
 * pause in which none was taken, one is put where it was due, by the rate before the pause: what was recorded just before
 * it does not depend on what the rate did during it. Where the counter went on while the kernel's clock stood still (a
 * suspended machine), one is put at the end of the time before.
 */
sp_ticks sp_timeline_anchor(sp_timeline *timeline, int64_t minimum_ns);
void sp_timeline_free(sp_timeline *timeline);

/* A cursor makes conversions of ascending ticks O(1). */
typedef struct sp_timeline_cursor {
    const sp_timeline *timeline;
    size_t segment;
    double rate; /* ns a tick in `segment`; 0: not computed yet */
    /* the segment, once a tick in it was converted */
    sp_ticks from;
    uint64_t length; /* ticks; 0: none yet */
    int64_t from_ns, until_ns;
} sp_timeline_cursor;

/* Any tick, and the cursor moves to its segment. */
int64_t sp_timeline_seek(sp_timeline_cursor *cursor, sp_ticks ticks);

static inline int64_t sp_timeline_to_ns(sp_timeline_cursor *cursor, sp_ticks ticks)
{
    const uint64_t offset = ticks - cursor->from;
    if (__builtin_expect(offset >= cursor->length, 0)) return sp_timeline_seek(cursor, ticks);
    const int64_t ns = cursor->from_ns + (int64_t)((double)(int64_t)offset * cursor->rate);
    /* Rounding must not carry a tick past the next anchor: conversions stay in order across segments. */
    return ns > cursor->until_ns ? cursor->until_ns : ns;
}

/* A duration near the end of the timeline, in ns (for counters of ticks, such as a task's running time). */
int64_t sp_timeline_duration(const sp_timeline *timeline, uint64_t ticks);

/*
 * What the calendar's clock (CLOCK_REALTIME) showed at a moment of ours: how clocks of different hosts are brought together.
 * `error_ns` is half of the time between the two readings of ours around it, the smallest of a few tries; -1: there is none.
 */
typedef struct sp_sync_point {
    int64_t local_ns, reference_ns, error_ns;
} sp_sync_point;

sp_sync_point sp_sync_with_calendar(void);

#endif
