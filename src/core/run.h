/*
 * run.h - a run: its regions, logs, thread and task tables; what a front end opens and a collector reads.
 *
 * Locks, outermost first: run->collecting (one collection at a time) > registry (threads, active runs) > run->lock
 * (everything else). The recording path takes none of them. A fork waits until nobody holds it off (sp_fork_hold), so that
 * a child never sees half a collection; then it takes the registry's lock and those of all runs.
 */
#ifndef SP_CORE_RUN_H
#define SP_CORE_RUN_H

#include "core/hot.h"
#include "core/index.h"

/* One region of a run. Strings are owned. `entries` counts what the scanner has seen. */
typedef struct sp_region_info {
    char *name;
    char *source_file, *source_text; /* NULL: none */
    int64_t source_line;             /* -1: none */
    char *tags;                      /* JSON list, NULL: none */
    bool function; /* a function of the language that is traced: no scope that the program entered */
    uint64_t entries;
    uint64_t taken; /* of a run that keeps sums: calls that were collected */
} sp_region_info;

/* A call that was opened without a handle of its own: found again by region and lane (run->lock). */
typedef struct sp_loose_call {
    sp_log *log;
    sp_slot *slot;
    uint32_t region;
    int32_t task;
} sp_loose_call;

#define SP_TASKS_PER_PAGE 4096

typedef struct sp_values_chunk sp_values_chunk;

struct sp_run {
    _Atomic(int) references; /* its owner, and one for each log */
    size_t held; /* front end: how often it holds the one reference that stands for all of these */
    uint64_t token;
    bool tracks_threads, tracks_tasks;
    bool sums; /* it keeps sums of regions, not calls: totals.h */
    uint32_t stride;
    size_t first_block; /* slots of a log's first block */
    sp_ticks started;
    int64_t start_ns;
    sp_sync_point started_at; /* what the calendar clock showed then */
    bool against_rank_0;      /* or rank 0's clock, where ranks compared them at the start */
    int64_t opener; /* the system's id of the thread that opened it, until that has a row */
    int64_t opener_cpu_ns; /* what that thread had burned then; -1: not known */
    struct sp_probe *probe; /* what else is done at every call (probe.h), or NULL; owned */
    sp_switch *gate; /* set to the token while the run records */
    _Atomic(bool) follows; /* the front end's hooks are in place: threads and tasks are to be followed */

    pthread_mutex_t collecting;
    pthread_mutex_t lock; /* all below */
    bool dropped;  /* nobody will collect it again */
    bool inherited; /* by a forked child */
    sp_timeline timeline;
    sp_store *store;        /* or NULL; the run holds a reference */
    size_t anchors_noted;   /* of the timeline: what the store knows */
    size_t regions_noted, rows_noted; /* the same, of regions and rows */
    uint64_t scanned;       /* entries seen by the scanner */
    uint64_t collected;     /* calls that were collected */
    uint32_t collection;    /* number of the last one, for the store */
    sp_ticks ended;         /* of a run that a store kept: the last moment that is known; 0: the run is of this process */
    bool reported;          /* a collection was confirmed */
    bool chosen;            /* one is under way that has chosen its calls, and reads them without the lock */
    bool kept;              /* one has calls that a store keeps until they are confirmed */
    uint64_t dropped_calls; /* that went to keep newer ones (window.h) */
    sp_ticks dropped_until; /* none of them ended later */
    struct sp_totals *taken_totals;   /* of a run that keeps sums: collected, and not confirmed yet */
    struct sp_total_page *spare_pages;
    struct sp_summed *given_back;     /* by region: taken by a collection that could not report it */
    size_t given_back_count;
    _Atomic(bool) limited;  /* the store's limit was reached, and recording stopped */
    sp_region_info **regions;
    size_t region_count, region_size;
    sp_index region_index; /* by name */
    sp_log *logs;
    sp_thread_row **rows;
    size_t row_count, row_size, rows_made; /* rows beyond the count are there for the next threads */
    size_t hidden_rows, hidden_tasks; /* how many were there at the fork that made this process: not listed */
    sp_task **task_pages;
    bool *task_page_stored; /* by page: the store's memory, not ours */
    size_t task_count, task_page_count;
    char **strings; /* interned (coroutine names) */
    size_t string_count, string_size;
    sp_index string_index;
    sp_loose_call *loose;
    size_t loose_count, loose_size;
    sp_values_chunk *values, *last_values; /* values.h: what the store has of single calls' metadata, the oldest first */
    uint32_t values_chunks, values_scopes; /* made so far */
    bool values_marked;                    /* the next value begins a chunk */
    size_t values_bytes;                   /* of all chunks */
    _Atomic(uint64_t) unmatched; /* exits that belonged to no open call */
    _Atomic(uint64_t) lost;      /* calls for which there was no memory, of logs that are gone */
    _Atomic(uint64_t) vanished;  /* calls that went with pages of the store, as far as a collection has met with them */
    sp_run *next_active;         /* registry */
};

typedef struct sp_run_options {
    bool tracks_threads, tracks_tasks;
    bool sums; /* keep sums instead of calls: neither of the two above then */
    size_t first_block; /* slots of a thread's first block; 0: the default; at most 2^24 are believed */
    sp_store *store; /* where what is recorded is kept, or NULL; the run takes a reference of its own */
    struct sp_probe *probe; /* or NULL; the run's own from here on, even if it cannot be opened */
} sp_run_options;

/* A new run that records for every region reading `gate`, until sp_run_close. */
sp_status sp_run_open(const sp_run_options *options, sp_switch *gate, sp_run **out, sp_error *error);

/* Let another gate open and close the run, and open it. */
void sp_run_attach(sp_run *run, sp_switch *gate);

/* Stop recording; calls stay and can be collected. `gate` is not touched afterwards. Idempotent. */
void sp_run_close(sp_run *run);

/* Set the gate to 0 and back; for pause. Only while the run is open. */
void sp_run_set_paused(sp_run *run, bool paused);

/* Give up the owner's reference. What was not collected is gone; memory that a thread may still write stays until it is safe. */
void sp_run_drop(sp_run *run);

/*
 * The id of the region `name` (copied), made if new. Source and tags of a new region are taken over (copied; each may be
 * NULL); those of a known one stay. Ids are dense from 0. SP_ERR_NO_MEMORY, or SP_ERR_INVALID past 2^31 - 2 regions.
 */
sp_status sp_run_region(sp_run *run, const char *name, const char *source_file, int64_t source_line,
                        const char *source_text, const char *tags, uint32_t *id, sp_error *error);

/* The id of the region `name`, if the run has one. */
bool sp_run_find_region(sp_run *run, const char *name, uint32_t *id);

/* ---- threads ---- */

/* The calling thread's record, made on first use; NULL when out of memory. */
sp_thread *sp_thread_current(void);

/* The calling thread's log of an open run, made on first use (this registers the thread); NULL when the run is gone. */
sp_log *sp_run_log(sp_run *run);

/* What the front end knows of a thread that is just starting. */
typedef struct sp_thread_start {
    const char *name; /* copied */
    int64_t native_id; /* -1: not known */
    bool daemon;
} sp_thread_start;

/*
 * The same for a thread that is just starting: all the CPU time of its life belongs to the run. It is described already, so the front end
 * is not called to do it. False: it has a row there, or the run is gone.
 */
bool sp_run_thread_starts(sp_run *run, const sp_thread_start *start);

/* Name and kind of a row as the front end knows them. `name` is copied; NULL keeps the old one. */
void sp_run_describe_thread(sp_run *run, sp_thread_row *row, const char *name, int64_t ident, bool daemon);

/*
 * The calling thread is about to end: its rows of every run get end and CPU time now. It may still record. Others wait for it, and reading
 * CPU time is most of what there is to do: of a thread that began in a run it is left for later, and is there for whoever asks.
 */
void sp_thread_finish(void);

/* CPU time of a row's thread, as it is now or was in the end; -1: not known. With run->lock held. */
int64_t sp_thread_row_cpu_ns(sp_thread_row *row);

/*
 * Called on a thread when it gets a row in a run, with no lock held, so that the front end can describe it, be the run one
 * that tracks threads or not. May be NULL. And when a thread ends, to free what it keeps in sp_thread.front_end; no interpreter may be assumed.
 */
typedef struct sp_front_end {
    void (*thread_registered)(sp_run *run, sp_thread_row *row);
    void (*thread_ended)(void *front_end);
} sp_front_end;
void sp_front_end_set(const sp_front_end *front_end);

/* The same for the native front end, beside the one of a language: called on the ending thread, with its record still whole. */
void sp_native_front_end_set(void (*thread_ended)(sp_thread *thread));

/* The living thread with this serial, or NULL. With the registry's lock held, which keeps it living. */
sp_thread *sp_thread_of_serial(uint64_t serial);

/* ---- calls without a handle ---- */

/* Remember an open call so that sp_run_close_loose finds it. Without memory it stays open. */
void sp_run_add_loose(sp_log *log, sp_slot *slot);

/*
 * Close the newest remembered call of `region` on the calling thread's current lane, else on any lane. False: there is
 * none; whether that is amiss, and to be counted in run->unmatched, the caller knows.
 */
bool sp_run_close_loose(sp_run *run, uint32_t region);

/* ---- calls that are named late ---- */

/* An open call becomes one of another region; what counts entries by region knows. */
void sp_log_rename(sp_log *log, sp_slot *slot, uint32_t region);

/*
 * Whether a call of the same lane that began after this open one is still open. False in a run that does not follow tasks
 * but where the thread is the lane of them all: what is open there tells nothing of one task.
 */
bool sp_log_has_inner(sp_log *log, const sp_slot *slot);

/* ---- reading ---- */

/* Bring counts and open calls up to date. With run->lock held. */
void sp_run_scan(sp_run *run);
void sp_log_scan(sp_log *log); /* of one log */

/* Of the open calls that the scanner remembers, keep those that are still open. With run->lock held. */
void sp_log_forget_closed(sp_log *log);

/* The region is that of a function which is traced. */
void sp_run_mark_function(sp_run *run, uint32_t id);

/* Ids of the regions of the calls that are open now. *ids is malloc'ed; *count entries. */
sp_status sp_run_open_calls(sp_run *run, uint32_t **ids, size_t *count, sp_error *error);

/*
 * Every closed call of the region that was not collected yet, in order of entry by thread: absolute ns. A sink that returns false ends
 * it, and the result is false. It must not call back into the run.
 */
typedef bool (*sp_call_sink)(void *context, int64_t start_ns, int64_t end_ns);
bool sp_run_each_call(sp_run *run, uint32_t region, sp_call_sink sink, void *context);

/*
 * Starts and ends (absolute ns, in order of entry by thread) of the region's closed calls that were not collected yet.
 * Both arrays are malloc'ed.
 */
sp_status sp_run_peek(sp_run *run, uint32_t region, int64_t **starts, int64_t **ends, size_t *count, sp_error *error);

/* Entries that no collection has taken, those of open calls included. */
uint64_t sp_run_uncollected(sp_run *run);

/*
 * Whether calls would be lost if the run went now: one that has ended and is not confirmed, or, as long as nothing was ever
 * confirmed, one that is open. (A call that is still open after a report is usually a thread's main loop.)
 */
bool sp_run_has_unreported(sp_run *run);

/* Entries of a region so far. */
uint64_t sp_run_entries(sp_run *run, uint32_t region);

/* Those of all *count regions by id, malloc'ed; NULL without memory. */
uint64_t *sp_run_all_entries(sp_run *run, size_t *count);

/* CPU and end of every row up to date; with run->lock held. */
void sp_run_sample_threads(sp_run *run);

/* A tick in ns, on this run's timeline. Takes an anchor when the last one is old. */
int64_t sp_run_to_ns(sp_run *run, sp_ticks ticks);

/*
 * The end of a block's published part, given the log's next pointer: NULL before the first call, and otherwise behind a
 * slot, so it is never a block's begin, which may be the end of the block that was mapped below.
 */
static inline char *sp_block_readable(const sp_block *block, const char *next)
{
    if (next == NULL) return block->begin;
    return next > block->begin && next <= block->end ? (char *)next : block->end;
}

/*
 * Calls that have ended, are in no file, and would not be found in the run's store if the process went now, because it had no room
 * for them or for what they refer to. 0 for a run without a store.
 */
uint64_t sp_run_unsaved(sp_run *run);

/* Pages that the run's store has lost (store.h). */
uint64_t sp_run_lost_pages(const sp_run *run);

/* Calls that found no memory, or vanished with it. With run->lock held. */
uint64_t sp_run_lost(const sp_run *run);

/* Hold forks off while something is half done that a child could not finish. Nests; hold it for no longer than needed. */
void sp_fork_hold(void);
/* The same for who has what others that hold forks off may wait for (run->collecting): who waits to fork does not go first. */
void sp_fork_hold_first(void);
void sp_fork_release(void);

/* A full block has been read or written: what is in it stays, but, if a store has it, not in memory. */
static inline void sp_block_park(const sp_block *block)
{
    if (block->memory == SP_BLOCK_STORED) block->store->operations->park(block->store, block->begin, block->bytes);
}

void sp_block_free(sp_block *block);
void sp_log_free(sp_log *log); /* off every list; gives up its run reference */

/* ---- tasks ---- see task.h */

#endif
