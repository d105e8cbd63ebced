/*
 * types.h - the structures of a recording, who owns each field and which thread may write it.
 *
 *   sp_run ─ regions (id -> name, source)            one per active configuration; several share nothing
 *     │ ├── rows: sp_thread_row, dense index           the run's thread table
 *     │ └── tasks: sp_task, dense index                the run's task table
 *     └── logs ── sp_log ── sp_log ── ...            one per (run, thread); one thread appends to it, ever
 *                  │  ▲
 *                  │  └ sp_thread.hot                the log the thread used last: found without a look-up
 *                  ▼
 *                 block ─> block ─> block(tail)      blocks never move
 *                 [slot slot slot|slot slot slot|slot slot .... ]
 *                                                ▲ next        ▲ limit
 *
 * A slot is taken at entry, so a log is in start order, which is the pre-order of the call tree. Its `end` is written
 * once, by whoever runs the exit, as the last access of that call; 0 means still open. After that the slot belongs to the
 * collector, which frees a block when all of its slots are collected, and marks them in `region` where some are not.
 *
 * Tokens: every run has a number that is never used again. A region, a log and the switch of a configuration each
 * carry the token they were made for; equality is checked before anything behind them is touched, so a run that is gone
 * is never dereferenced. Tokens fit 32 bits, so that a region can hold its token and its id in one word.
 *
 * Memory of a closed run: only the owner of a log frees the log (when it next enters a region of another run, or when it
 * ends), because it alone may be about to append. Others may take full blocks, and empty the tail in place.
 */
#ifndef SP_CORE_TYPES_H
#define SP_CORE_TYPES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/store.h"

typedef struct sp_run sp_run;
typedef struct sp_log sp_log;
typedef struct sp_thread sp_thread;
typedef struct sp_tally sp_tally;

#define SP_NO_TASK (-1)

/* One call. 24 bytes; runs that follow tasks use sp_async_slot. */
typedef struct sp_slot {
    _Atomic(sp_ticks) start;  /* owner, before the slot is published */
    _Atomic(sp_ticks) end;    /* whoever exits, once; SP_SLOT_OPEN until then */
    _Atomic(uint32_t) region; /* owner at entry; the collector once `end` is set */
    int32_t task;             /* owner: index of the lane's task, or SP_NO_TASK */
} sp_slot;

/* The same, with the ticks the call spent awaiting: the lane's suspended total at entry until the exit turns it into the
 * difference. */
typedef struct sp_async_slot {
    sp_slot call;
    uint64_t await;
} sp_async_slot;

_Static_assert(sizeof(sp_slot) == 24, "a call takes 24 bytes");
_Static_assert(sizeof(sp_async_slot) == 32, "a call in an async run takes 32 bytes");

#define SP_SLOT_OPEN ((sp_ticks)0)
#define SP_SLOT_ABANDONED UINT64_MAX /* entered by an object that died without an exit: never reported */
#define SP_REGION_KEPT 0x40000000u   /* in sp_slot.region: collected, but not in a file yet: a store keeps such calls */
#define SP_REGION_ID 0x3fffffffu     /* the rest is the region's id */
#define SP_REGION_DONE 0xffffffffu   /* already reported */

/*
 * Whether the call of a published slot still waits for its exit. Pages that a collector or a dropped run has given back read
 * as zero, and no call starts at 0: those slots are not open.
 */
static inline bool sp_slot_is_open(const sp_slot *slot)
{
    return atomic_load_explicit(&slot->end, memory_order_acquire) == SP_SLOT_OPEN &&
        atomic_load_explicit(&slot->start, memory_order_relaxed) != 0;
}

typedef enum sp_block_memory {
    SP_BLOCK_HEAP,
    SP_BLOCK_MAPPED,
    SP_BLOCK_STORED,
    SP_BLOCK_BORROWED /* somebody else's, who outlives the block */
} sp_block_memory;

/* A piece of a log. The header lives apart from the slots, so that slots can fill whole (huge) pages. */
typedef struct sp_block {
    _Atomic(struct sp_block *) next; /* owner of the log, when it grows */
    char *begin, *end;
    size_t bytes;  /* of the mapping or allocation at begin */
    uint8_t memory; /* sp_block_memory */
    sp_store *store; /* of SP_BLOCK_STORED; the block holds a reference */
    sp_slot **kept; /* of a block that was dropped but for these, NULL behind them; else NULL (run->lock) */
    bool finished; /* collector: every slot was collected; its marks are not in the slots */
    sp_log *buried_from;           /* registry: its log, when it is in the graveyard */
    struct sp_block *next_buried;
} sp_block;

/*
 * A lane that is not a bare thread: an asyncio or trio task, or a greenlet. Times are ticks. The running lane's thread
 * writes it; a collector reads while it runs, hence the atomics (relaxed: one writer).
 */
typedef struct sp_task {
    int32_t index;
    _Atomic(int32_t) thread_index; /* the last thread it ran on */
    sp_ticks created;
    _Atomic(sp_ticks) done; /* 0: not finished */
    _Atomic(uint64_t) steps;
    _Atomic(uint64_t) running, suspended;
    _Atomic(sp_ticks) step_started; /* != 0 while it holds its thread */
    _Atomic(sp_ticks) last_step_end;
    uint32_t coro_name;  /* index into the run's interned strings */
    int32_t creator_thread; /* the lane that made it: thread, -1: not known */
    uint8_t kind;        /* sp_task_kind */
    uint8_t name_kind;   /* sp_name_kind: how `name` is stored */
    int32_t creator_task; /* and task, SP_NO_TASK: the thread's own lane */
    union {
        uint64_t number; /* "Task-<number>": the default name costs no allocation */
        char *text;      /* owned */
    } name;
} sp_task;

typedef enum sp_task_kind { SP_TASK_TASK, SP_TASK_GREENLET } sp_task_kind;
typedef enum sp_name_kind { SP_NAME_NONE, SP_NAME_NUMBERED, SP_NAME_TEXT } sp_name_kind;

/* One row of a run's thread table. Written by its thread, under the run's lock for anything a collector reads. */
typedef struct sp_thread_row {
    int32_t index;
    bool daemon;
    bool named;    /* the front end knows a better name than the system's */
    bool released; /* its thread is gone: end and cpu are final */
    bool cpu_due;  /* but cpu: its thread reads it when nothing waits for it any more, or before that whoever asks */
    int64_t ident, native_id;
    sp_ticks start, end; /* end == 0: alive */
    int64_t cpu_ns;      /* of the thread's whole life: final once released, else as last sampled */
    int64_t cpu_before_ns; /* that part of it which was burned before `start` */
    char *name;          /* UTF-8; `short_name`, or its own */
    char short_name[24];
} sp_thread_row;

struct sp_log {
    /* hot: read and written by the owner at every call, in one cache line */
    _Atomic(char *) next; /* the next free slot; published with release after the slot is filled */
    char *limit;          /* end of the tail block */
    uint64_t token;       /* of its run */
    sp_task *lane;        /* the task that holds the thread, or NULL: the thread's own lane */
    int32_t lane_index;   /* its index, or SP_NO_TASK */
    uint32_t stride;      /* sizeof(sp_slot) or sizeof(sp_async_slot) */
    sp_ticks anchor_due;  /* when the clock wants its next anchor */
    sp_tally *tally;      /* of a run that keeps sums instead of calls (totals.h); else NULL */

    /* cold */
    sp_run *run; /* the log holds a reference */
    _Atomic(sp_thread *) thread; /* NULL once it has ended */
    sp_thread_row *row;
    sp_block *head; /* the collector frees from here (run->lock) */
    sp_block *tail; /* owner */
    _Atomic(uint64_t) lost; /* calls that found no memory; told at collection */
    struct sp_log *next_of_thread; /* owner */
    struct sp_log *next_of_run;    /* run->lock */
    /* the scanner (run->lock): everything before scan_next is counted; those found open are remembered */
    sp_block *scan_block;
    char *scan_next;
    sp_slot **scan_open;
    size_t scan_open_count, scan_open_size;
    bool orphaned;      /* run->lock: its thread ended */
    char *finished_at;  /* owner: `next` when its thread announced its end */
    sp_ticks left_at;   /* owner: when it last closed a call of its own after that */
    const char *quiet_at; /* owner: `next` when no call was found open, in the tail block; else NULL */
    struct sp_log_probe *probe; /* of a run that has one (probe.h), else NULL */
    size_t buried;      /* registry: blocks that wait for an open call to end */
    bool released;      /* registry: goes with its last buried block */
};

/* A call that was opened by its region's handle, and will be closed by it (native code has no object for each call). */
typedef struct sp_named_call {
    sp_slot *slot;
    sp_log *log; /* stays as long as the call is open */
    const void *owner; /* whose handle it is */
    uint32_t handle : 31;
    uint32_t scoped : 1; /* it is ended by its token; an end of its region on another thread leaves it alone */
    int32_t lane;        /* log->lane_index at entry */
} sp_named_call;

/* Those of one lane, or of a thread with the tasks on it, innermost last. Only the thread that it is on touches it. */
typedef struct sp_call_stack {
    sp_named_call *top, *base, *limit; /* base <= top <= limit: the innermost is top[-1] */
} sp_call_stack;

/* One OS thread, from its first region (or its first bytecode) to its end. */
struct sp_thread {
    sp_log *hot;     /* the log used last, or NULL */
    void *front_end; /* whatever the language front end keeps per thread */
    void *frames;    /* language front end: one piece of malloc'ed memory, which goes with the thread */
    sp_call_stack named;    /* native front end: of the lane that holds the thread */
    _Atomic(void *) mail;   /* native front end: ends of its calls that other threads sent */
    void *fiber;            /* native front end: the lane that holds the thread, or NULL */
    uint64_t serial;        /* never used again in the process */
    bool met_at_start;      /* it began in a run, and its record is told of its very end */
    sp_log *logs;    /* all of them (this thread only) */
    int64_t native_id;
    pthread_t handle;
    sp_thread *next, *previous; /* registry (its lock) */
};

/* `next` and `limit` of a log that keeps sums: no slot is ever taken, and its blocks are readable to their ends. */
#define SP_NO_BLOCK ((char *)UINTPTR_MAX)

/* The one thread-local of the hot path. NULL until the thread's first region. */
#if defined(__GLIBC__)
/* initial-exec: one load instead of a call. 8 bytes of the static TLS that glibc keeps for libraries opened late. */
extern _Thread_local sp_thread *sp_this_thread __attribute__((tls_model("initial-exec")));
#else
extern _Thread_local sp_thread *sp_this_thread;
#endif

#endif
