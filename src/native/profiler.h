/*
 * profiler.h - sp_profiler: the front end for native code (include/scope_profiler.h). What it owns, and who writes what.
 *
 *   sp_profiler ── head            what the inlined functions test (any thread reads, under `lock` it is written)
 *     ├── pages ── regions         by handle; handles and their texts stay for as long as the profiler
 *     └── run                      its own (sp_init, sp_create), or the one of Python that it has joined
 *
 * Handles are the profiler's; a run has ids of its own. Each region remembers the id of the run that it was used in last, so
 * a handle is good in every run, and a static of the program can keep it.
 *
 * Locks: fork gate (sp_fork_hold) > lock of a profiler > list of profilers > lock of one that shares its run >
 * run->collecting > registry > run->lock. Recording takes none.
 */
#ifndef SP_NATIVE_PROFILER_H
#define SP_NATIVE_PROFILER_H

#include "analysis/profile.h"
#include "core/run.h"

#define SP_PAGE_REGIONS 1024u
#define SP_PAGES 16384u /* 16 M regions */

typedef struct sp_native_region {
    char *name, *file; /* owned; file may be NULL */
    int line;          /* -1: none */
    int64_t entries;        /* of runs that are over */
    sp_region_stats stats;  /* of calls that are in a finished file */
} sp_native_region;

typedef struct sp_region_page {
    _Atomic(uint64_t) bindings[SP_PAGE_REGIONS]; /* token of a run << 32 | the region's id in it */
    sp_native_region regions[SP_PAGE_REGIONS];
} sp_region_page;

typedef struct sp_text_pair {
    char *key, *value;
} sp_text_pair;

struct sp_profiler {
    sp_profiler_head head;
    _Atomic(uint32_t) region_count; /* published after the region is whole */
    _Atomic(int) last_error;
    _Atomic(sp_region_page *) *pages; /* SP_PAGES of them, made with the first region */
    pthread_mutex_t lock;             /* all below */
    sp_index index;  /* of regions by name */
    sp_run *run;     /* a reference; NULL: none */
    bool joined;     /* the run is Python's */
    bool inherited;  /* a forked child: the run is the parent's */
    sp_switch gate;  /* of a run of its own */
    sp_store *spool; /* a reference, or NULL */
    char *output;    /* path without its suffix */
    char *path;      /* with it */
    int rank;
    sp_output_format format;
    sp_text_pair *metadata;
    size_t metadata_count;
    char message[1000]; /* of the last error that had more to say than its status */
    int message_status;
    sp_profiler *shared; /* of another copy's default profiler: the one here that has the run and the file; else NULL */
    sp_profiler *next;   /* of all profilers */
};

/* The default profiler of this copy of the library. Those that stand for the default profilers of other copies share its run. */
extern sp_profiler sp_native_default;

extern const sp_host_calls sp_native_calls;

/* A new profiler without a run; NULL when out of memory. */
sp_profiler *sp_native_new(void);

/* Without writing what it holds. */
void sp_native_free(sp_profiler *profiler);

/* Lock order and forks: no child sees a profiler half changed. */
void sp_native_lock(sp_profiler *profiler);
void sp_native_unlock(sp_profiler *profiler);

/* Keep the outcome of a call, with its sentence. Returns the status. */
int sp_native_fail(sp_profiler *profiler, sp_status status, const sp_error *error);

/* ---- regions ---- */

#define SP_NATIVE_OFF UINT32_MAX

/* The region's id in the run with this token, made if new; SP_NATIVE_OFF when that cannot be. */
SP_NOINLINE uint32_t sp_native_bind(sp_profiler *profiler, int handle, uint64_t token);

static inline uint32_t sp_native_region_id(sp_profiler *profiler, int handle, uint64_t token)
{
    const uint32_t at = (uint32_t)handle;
    if (SP_UNLIKELY(at >= atomic_load_explicit(&profiler->region_count, memory_order_acquire))) return SP_NATIVE_OFF;
    sp_region_page *page = atomic_load_explicit(&profiler->pages[at / SP_PAGE_REGIONS], memory_order_relaxed);
    const uint64_t binding = atomic_load_explicit(&page->bindings[at % SP_PAGE_REGIONS], memory_order_acquire);
    return SP_LIKELY(binding >> 32 == token) ? (uint32_t)binding : sp_native_bind(profiler, handle, token);
}

/* Of a handle that is there. */
sp_native_region *sp_native_region_at(const sp_profiler *profiler, uint32_t handle);

/* The handle of a name, SP_INVALID_REGION if there is none. With the lock held. */
int sp_native_find_region(const sp_profiler *profiler, const char *name);

int sp_native_region_of(sp_profiler *profiler, const char *name, const char *file, int line);

/* ---- calls ---- */

void sp_native_begin(sp_profiler *profiler, int handle);
void sp_native_end(sp_profiler *profiler, int handle);
int sp_native_end_status(sp_profiler *profiler, int handle); /* SP_ERR_UNMATCHED_END, SP_ERR_INACTIVE */
void sp_native_scope_begin(sp_profiler *profiler, int handle, sp_scope *scope);
int sp_native_scope_end(sp_scope *scope);
void sp_native_scope_close(sp_scope *scope);
int sp_native_end_last(sp_profiler *profiler);

/* Calls of this profiler that the calling thread has open. */
int sp_native_count_open(const sp_profiler *profiler);
bool sp_native_has_open(const sp_profiler *profiler);

/* ---- lanes ---- */

sp_lane *sp_native_lane_create(sp_profiler *profiler, const char *name);
sp_lane *sp_native_lane_switch(sp_lane *lane);
void sp_native_lane_end(sp_lane *lane);

/* ---- runs and files ---- */

int sp_native_init(sp_profiler *profiler, const char *prefix, int rank);
int sp_native_finalize(sp_profiler *profiler);
int sp_native_finalize_ranks(sp_profiler *profiler, sp_link *link);
int sp_native_flush(sp_profiler *profiler);
int sp_native_reset(sp_profiler *profiler);
int sp_native_region_stats(sp_profiler *profiler, int handle, sp_region_stats *stats);
int64_t sp_native_num_calls(sp_profiler *profiler, int handle);
int sp_native_set_output_format(sp_profiler *profiler, int format);
/* Copies of an entry, to be freed; false: there are no more (or there is no memory). */
bool sp_native_copy_metadata(sp_profiler *profiler, size_t at, char **key, char **value);
void sp_native_clear_metadata(sp_profiler *profiler);
int sp_native_set_metadata(sp_profiler *profiler, const char *key, const char *value);

/*
 * A run of another front end (Python's default manager): the default profiler and all that share with it record into it
 * while they have no run of their own.
 */
void sp_native_outer_begin(sp_run *run);
void sp_native_outer_pause(const sp_run *run, bool paused);
void sp_native_outer_end(const sp_run *run);

/* With its lock held: those that share with the default profiler have its run from now on, or none. */
void sp_native_share(const sp_profiler *profiler);

/* With its lock held: it has no run of its own any more, and goes back to the one of another front end. */
void sp_native_rejoin(sp_profiler *profiler);

/* A profiler that stands for the default one of another copy, whose regions these are, in order of their handles. */
sp_profiler *sp_native_join(const char *const *names, const char *const *files, const int *lines, int count);

/* With the lock held: give up the run, with what is in it. */
void sp_native_drop_run(sp_profiler *profiler);

/* ---- sampling ---- */

int sp_native_start_sampling(sp_profiler *profiler, int hz);
int sp_native_stop_sampling(sp_profiler *profiler);

#endif
