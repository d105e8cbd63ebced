#include "core/counters.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/run.h"

struct sp_counters {
    sp_probe probe; /* first: the two are cast into each other */
    uint8_t events[SP_PERF_EVENTS];
    size_t event_count;
    pthread_mutex_t lock; /* of what follows */
    sp_region_counters *regions;
    size_t region_count;
    uint64_t uncounted;
};

/* A thread's. Another thread may end a call of it while it ends itself. */
typedef struct thread_counters {
    pthread_mutex_t lock;
    bool open;
    sp_perf_counters perf;
} thread_counters;

/* ---- a call's mark ---- */

typedef struct packed {
    uint64_t values[SP_PERF_EVENTS];
    /* Events of one group share these; hardware events come in up to six groups, software events in one. */
    uint64_t enabled[7], running[7];
} packed;

_Static_assert(sizeof(packed) <= sizeof(sp_call_mark), "a mark holds a reading");

static size_t time_of(uint8_t event)
{
    return event < 6 ? event : 6;
}

static void pack(const sp_perf_reading *readings, sp_call_mark *mark)
{
    packed *into = (packed *)mark->words;
    memset(mark, 0, sizeof *mark);
    for (uint8_t event = 0; event < SP_PERF_EVENTS; event++) {
        into->values[event] = readings[event].value;
        if (readings[event].enabled == 0) continue;
        into->enabled[time_of(event)] = readings[event].enabled;
        into->running[time_of(event)] = readings[event].running;
    }
}

/* ---- threads ---- */

static thread_counters *counters_of_thread(sp_counters *counters, sp_log *log)
{
    if (log->probe->state) return log->probe->state;
    thread_counters *own = calloc(1, sizeof *own);
    if (own == NULL) return NULL;
    uint8_t event;
    pthread_mutex_init(&own->lock, NULL);
    own->open = sp_perf_open(&own->perf, counters->events, counters->event_count, &event) == SP_PERF_OK;
    log->probe->state = own;
    return own;
}

static bool read_now(thread_counters *own, sp_perf_reading *readings)
{
    pthread_mutex_lock(&own->lock);
    const bool read = own->open && sp_perf_read(&own->perf, readings);
    pthread_mutex_unlock(&own->lock);
    return read;
}

static void thread_gone(sp_probe *probe, sp_log *log)
{
    (void)probe;
    thread_counters *own = log->probe->state;
    if (own == NULL) return;
    pthread_mutex_lock(&own->lock);
    if (own->open) sp_perf_close(&own->perf);
    own->open = false;
    pthread_mutex_unlock(&own->lock);
}

static void log_gone(sp_probe *probe, sp_log *log)
{
    thread_counters *own = log->probe->state;
    if (own == NULL) return;
    thread_gone(probe, log);
    pthread_mutex_destroy(&own->lock);
    free(own);
}

/* ---- calls ---- */

static void count_missed(sp_counters *counters)
{
    pthread_mutex_lock(&counters->lock);
    counters->uncounted++;
    pthread_mutex_unlock(&counters->lock);
}

static bool entered(sp_probe *probe, sp_log *log, uint32_t region, sp_call_mark *mark)
{
    (void)region;
    sp_counters *counters = (sp_counters *)probe;
    sp_perf_reading readings[SP_PERF_EVENTS] = {0};
    const int saved = errno;
    thread_counters *own = counters_of_thread(counters, log);
    const bool read = own && read_now(own, readings);
    if (read) pack(readings, mark);
    else count_missed(counters);
    errno = saved;
    return read;
}

/* With the lock. */
static sp_region_counters *totals_of(sp_counters *counters, uint32_t region)
{
    if (region < counters->region_count) return &counters->regions[region];
    const size_t size = (size_t)region * 2 + 16;
    sp_region_counters *regions = realloc(counters->regions, size * sizeof *regions);
    if (regions == NULL) return NULL;
    memset(regions + counters->region_count, 0, (size - counters->region_count) * sizeof *regions);
    counters->regions = regions;
    counters->region_count = size;
    return &regions[region];
}

static uint64_t grown(uint64_t before, uint64_t after)
{
    return after > before ? after - before : 0;
}

static void add(const sp_counters *counters, sp_region_counters *region, const packed *before, const packed *after)
{
    region->calls++;
    for (size_t i = 0; i < counters->event_count; i++) {
        const uint8_t event = counters->events[i];
        const size_t time = time_of(event);
        sp_perf_reading *total = &region->totals[i];
        total->value += grown(before->values[event], after->values[event]);
        total->enabled += grown(before->enabled[time], after->enabled[time]);
        total->running += grown(before->running[time], after->running[time]);
    }
}

static bool left(sp_probe *probe, sp_log *log, uint32_t region, sp_ticks start, const sp_call_mark *mark)
{
    (void)start;
    sp_counters *counters = (sp_counters *)probe;
    sp_perf_reading readings[SP_PERF_EVENTS] = {0};
    sp_call_mark after;
    const int saved = errno;
    const bool read = read_now(log->probe->state, readings);
    pack(readings, &after);
    pthread_mutex_lock(&counters->lock);
    sp_region_counters *totals = read ? totals_of(counters, region) : NULL;
    if (totals) add(counters, totals, (const packed *)mark->words, (const packed *)after.words);
    else counters->uncounted++;
    pthread_mutex_unlock(&counters->lock);
    errno = saved;
    return false;
}

static void release(sp_probe *probe)
{
    sp_counters *counters = (sp_counters *)probe;
    pthread_mutex_destroy(&counters->lock);
    free(counters->regions);
    free(counters);
}

static const sp_probe_operations operations = {entered, left, thread_gone, log_gone, release};

/* ---- making ---- */

static void explain(sp_error *error, sp_perf_problem problem, uint8_t event)
{
    const char *name = sp_perf_event_names[event];
    switch (problem) {
    case SP_PERF_NO_PERMISSION:
        sp_fail(error, SP_ERR_UNSUPPORTED,
                "perf_events: the kernel does not let this process count %s (/proc/sys/kernel/perf_event_paranoid is %d; "
                "it takes %s, or the capability CAP_PERFMON)", name, sp_perf_paranoid(),
                event == SP_PERF_EVENTS - 1 ? "1 or less" : "2 or less");
        break;
    case SP_PERF_NO_COUNTER:
        sp_fail(error, SP_ERR_UNSUPPORTED,
                "perf_events: this machine has no counter of %s (virtual machines often have none of the hardware's)", name);
        break;
    case SP_PERF_NO_KERNEL:
        sp_fail(error, SP_ERR_UNSUPPORTED, "perf_events: this kernel has no perf_event_open");
        break;
    default: sp_fail_errno(error, SP_ERR_UNSUPPORTED, "perf_events: cannot open a counter of %s", name); break;
    }
}

sp_perf_problem sp_counters_new(const uint8_t *events, size_t count, sp_counters **out, sp_error *error)
{
    sp_perf_counters tried;
    uint8_t event = 0;
    *out = NULL;
    const sp_perf_problem problem = sp_perf_open(&tried, events, count, &event);
    if (problem != SP_PERF_OK) {
        explain(error, problem, event);
        return problem;
    }
    sp_perf_close(&tried);
    sp_counters *counters = calloc(1, sizeof *counters);
    if (counters == NULL) {
        sp_fail(error, SP_ERR_NO_MEMORY, "no memory for counters");
        return SP_PERF_OTHER;
    }
    counters->probe.operations = &operations;
    memcpy(counters->events, events, count);
    counters->event_count = count;
    pthread_mutex_init(&counters->lock, NULL);
    *out = counters;
    return SP_PERF_OK;
}

sp_probe *sp_counters_probe(sp_counters *counters)
{
    return &counters->probe;
}

size_t sp_counters_event_count(const sp_counters *counters)
{
    return counters->event_count;
}

sp_counters *sp_run_counters(const sp_run *run)
{
    return run->probe && run->probe->operations == &operations ? (sp_counters *)run->probe : NULL;
}

sp_region_counters *sp_counters_totals(sp_counters *counters, size_t *count, uint64_t *uncounted)
{
    pthread_mutex_lock(&counters->lock);
    const size_t used = counters->region_count;
    sp_region_counters *copy = used ? malloc(used * sizeof *copy) : NULL;
    if (copy) memcpy(copy, counters->regions, used * sizeof *copy);
    *count = copy ? used : 0;
    *uncounted = counters->uncounted;
    pthread_mutex_unlock(&counters->lock);
    return copy;
}
