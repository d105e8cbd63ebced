/*
 * totals.h - runs that keep sums instead of calls: how often a region was called, how long its calls took together, the
 * shortest and the longest, and what they spent outside of calls inside them. Memory does not grow with the calls.
 *
 *   sp_log ── sp_tally ── sp_stack (of the lane that holds the thread) ── top ─> sp_frame ─> sp_frame ...   open calls
 *                │  └──── stacks of lanes that wait, by their key
 *                └ totals ─> regions[id] ─> sp_total, 16 on a page                                          what is summed
 *
 * An open call is a frame, in a block of its log like any other call's slot; it goes back to the log's free ones when the call
 * ends. An entry puts it on its lane's stack, so the call around it is known, and is charged with its time: exclusive times need
 * no call tree. A lane is told from others by a key that the front end reads at each entry (region.c), not by hooks.
 *
 * A thread adds to totals of its own, without a lock. The sums of a region are there twice, and a version tells which ones
 * are valid: whoever reads, and whoever finds the store of a process that was killed, has every call wholly or not at all.
 * A collection takes the totals away and leaves empty ones. A thread says that it adds before it looks which totals there
 * are; the collector exchanges them, has every thread see that (membarrier), and waits until nobody adds to the old ones.
 *
 * A call that ends on another thread is added there. Its frame is only marked as ended, and taken off by the thread that has
 * the stack.
 */
#ifndef SP_CORE_TOTALS_H
#define SP_CORE_TOTALS_H

#include "core/run.h"

#define SP_SUMMED_TASK (-2) /* sp_slot.task of a frame: never a lane's index, so that hot.h sends its exit here */
#define SP_TOTALS_PER_PAGE 16

/* Ticks. `squares` of durations, 128 bits, so that their spread is exact however long a run is. What is not atomic is read when nobody adds. */
typedef struct sp_sums {
    _Atomic(uint64_t) count;
    uint64_t total;
    unsigned __int128 squares;
    uint64_t own, padding[3];
} sp_sums;

/* One region on one thread. One thread writes. `minimum` is the largest number until there was a call. */
typedef struct sp_total {
    _Atomic(uint64_t) version; /* grows by SP_VERSION_STEP; sums[version / SP_VERSION_STEP % 2] are valid */
    uint64_t minimum, maximum;
    sp_ticks first_start, last_start, last_end; /* of all calls: the earliest start, the latest start and end */
    uint64_t first, last;                       /* durations of the calls that started then */
    sp_sums sums[2];
} sp_total;

#define SP_VERSION_STEP sizeof(sp_sums) /* so that the place of the valid sums is a part of the version */

/* In a store, a page is found by its kind of chunk, and says itself which regions it is of. */
typedef struct sp_total_page {
    _Atomic(uint32_t) collection; /* that took it; 0: none did yet */
    _Atomic(uint32_t) index;      /* the first region's id / 16 */
    uint32_t stored;              /* the store's memory, not ours */
    uint32_t reserved;
    struct sp_total_page *next; /* of the run's spare ones; means nothing in a file */
    uint64_t padding[5];
    sp_total totals[SP_TOTALS_PER_PAGE];
} sp_total_page;

_Static_assert(sizeof(sp_sums) == 64 && sizeof(sp_total) == 192, "24 words a region and thread: docs/spool-format.md");
_Static_assert(sizeof(sp_total_page) == 64 + SP_TOTALS_PER_PAGE * sizeof(sp_total), "a page has a header of 64 bytes");

/* What a thread adds to between two collections. */
typedef struct sp_totals {
    sp_total **regions; /* by id, NULL: not called yet; in pages of 16. The owner adds pages, with run->lock */
    size_t limit;       /* a multiple of 16 */
    uint32_t collection;
    struct sp_totals *next;
} sp_totals;

typedef struct sp_stack sp_stack;

/* An open call. Its log's thread writes; `call.end` whoever ends it on another thread, or gives it up. */
typedef struct sp_frame {
    sp_slot call;           /* start 0: free; end: SP_SLOT_OPEN, then too, unless the call was ended from elsewhere */
    struct sp_frame *outer; /* the call around it, NULL: none; of a free one the next free one */
    struct sp_frame *above; /* the call on top of it, if it is not the topmost */
    sp_stack *stack;
    sp_ticks since;              /* `outer` is charged from here on */
    _Atomic(uint64_t) inner;     /* ticks of calls inside */
} sp_frame;

struct sp_stack {
    const void *key;
    sp_frame *top;
    sp_stack *next; /* of the same bucket, or of the spare ones */
};

struct sp_tally {
    _Atomic(int) adding; /* owner: 1 while it adds to `totals` */
    _Atomic(sp_totals *) totals;
    sp_frame *free;
    sp_stack *stack;     /* of the lane that holds the thread */
    const void *context; /* front end: what it saw when it last set the lane */
    sp_stack *spare;
    sp_stack **waiting; /* other lanes with open calls: by hash of the key */
    size_t waiting_count, waiting_size;
};

/* The sums of a region over all threads. Ticks. */
typedef struct sp_summed {
    uint64_t count, total, own;
    unsigned __int128 squares;
    uint64_t minimum, maximum, first, last;
    sp_ticks first_start, last_start, last_end;
} sp_summed;

/* The exit of a call that may be another thread's, or of a run that is not the thread's hot one. */
void sp_frame_exit_elsewhere(sp_log *log, sp_slot *slot, sp_ticks now);

/* The next free frame becomes a call on top of the stack. `counter`: sp_clock_is_counter() is known to be true. The start is read last. */
static inline sp_slot *sp_frame_put(sp_tally *tally, uint32_t region, bool counter)
{
    sp_stack *stack = tally->stack;
    sp_frame *frame = tally->free, *outer = stack->top;
    if (outer) outer->above = frame;
    tally->free = frame->outer;
    stack->top = frame;
    frame->outer = outer;
    frame->stack = stack;
    atomic_store_explicit(&frame->inner, 0, memory_order_relaxed);
    atomic_store_explicit(&frame->call.region, region, memory_order_relaxed);
    const sp_ticks now = counter ? sp_clock_counter() : sp_clock_read();
    frame->since = now;
    atomic_store_explicit(&frame->call.start, now, memory_order_release);
    return &frame->call;
}

/* sp_frame_push where there is no free frame, calls on top have ended, or the clock is another one. */
__attribute__((noinline)) sp_slot *sp_frame_push_otherwise(sp_log *log, uint32_t region);

/*
 * Open a call on the lane that the log's tally has. NULL: there is no memory (counted). Nothing but its own end is called here, so that
 * it saves no registers.
 */
static inline sp_slot *sp_frame_push(sp_log *log, uint32_t region)
{
    sp_tally *tally = log->tally;
    const sp_frame *outer = tally->stack->top;
    const bool ended = outer && atomic_load_explicit(&outer->call.end, memory_order_acquire) != SP_SLOT_OPEN;
    if (SP_UNLIKELY(tally->free == NULL || ended || !sp_clock_is_counter())) return sp_frame_push_otherwise(log, region);
    return sp_frame_put(tally, region, true);
}

/* Calls that the calling thread, whose log this is, enters from now on are on the lane `key` (NULL: the thread's own). */
void sp_tally_set_lane(sp_log *log, const void *key);

/* ---- a log's tally; with run->lock ---- */

bool sp_tally_new(sp_log *log);
void sp_tally_free(sp_log *log);
/* Another thread goes on with the log of one that has ended. False without memory. */
bool sp_tally_hand_over(sp_log *log);
/* In a forked child: the thread that wrote it is not there. */
void sp_tally_orphan(sp_log *log);

/* ---- reading ---- */

/* Of totals to which nobody adds. */
void sp_summed_add(sp_summed *sum, const sp_total *total);

/* Bring the regions' counts up to date, like sp_run_scan. With run->lock. */
void sp_run_count_totals(sp_run *run);

/* Open calls of one log: the regions of at most `room` of them into `ids`, if it is not NULL; how many. With run->lock. */
size_t sp_tally_open_calls(const sp_log *log, uint32_t *ids, size_t room);

/* Calls in totals that no collection has taken, or only in those that are no store's memory. With run->lock. */
uint64_t sp_run_totals_left(const sp_run *run, bool unstored_only);

/*
 * Take what was summed so far, as the run's next collection, by region: *sums is malloc'ed, *count of them. SP_ERR_NO_MEMORY:
 * nothing was taken. With run->collecting. The timeline reaches behind what was taken.
 */
sp_status sp_run_take_totals(sp_run *run, sp_summed **sums, size_t *count, sp_error *error);
/* It could not be reported: the next collection has it too. Takes the array over. */
void sp_run_give_back(sp_run *run, sp_summed *sums, size_t count);

/* What was taken up to now is not needed any more, in a store either. With run->lock. */
void sp_run_forget_totals(sp_run *run);

/* Of a run that goes. */
void sp_run_free_totals(sp_run *run);

/* Make a page of a store, of zeros, one to which nothing was added. In a signal handler. */
void sp_total_page_blank(sp_total_page *page);

#endif
