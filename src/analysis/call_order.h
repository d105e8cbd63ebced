/*
 * call_order.h - the order of calls that the call tree is built in: start ascending, end descending, then input order.
 *
 * A parent comes before its children in it, and of identical intervals the one given first encloses the others.
 *
 * The sort is linear. An entry packs the call's start, relative to the earliest, above the call's index:
 *
 *     63                      bits         0
 *     [ start - minimum        | index       ]      one 8-byte word a call, two buffers of them
 *
 * so that a sort over the upper part moves everything it needs and is stable by itself. Regions whose calls come in the order of their
 * starts, as they are recorded, are merged in pairs; others take a radix sort, which costs more than twice as much (2 M calls of 8 regions: 8 ms and
 * 21). Where both do not fit into 64 bits, the low bits of the start are left out, and groups of equal words are sorted again by what
 * was left out; groups of equal starts are sorted by their ends in the same way. Calls that were numbered in this order before (call ids
 * of a recorded run) are only put in their places, and whoever walks the order sees whether that was right. Tried and slower: sorting an index
 * with the columns read behind it (a cache miss a call and pass), and merging with a jump for each comparison.
 */
#ifndef SP_ANALYSIS_CALL_ORDER_H
#define SP_ANALYSIS_CALL_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* A call's number in a rank is 32 bits wide: 4,294,967,295 calls are more than 100 GB of recording. */
#define SP_CALLS_MAX (UINT32_MAX - 1)
#define SP_NO_CALL UINT32_MAX

/*
 * The calls of one region: columns of `count` values. `thread`, `task` and `id` may be NULL; `task` counts only with
 * `thread`. Ids are a hint: where all regions have them and they number the calls without gaps, the calls are expected in
 * that order. The columns are the caller's, and are only read.
 */
typedef struct sp_calls {
    const int64_t *start_ns, *end_ns;
    const int64_t *thread, *task, *id;
    uint64_t count;
} sp_calls;

/* All calls of a rank, numbered through its regions. Regions without calls take no part in it. */
typedef struct sp_call_index {
    const sp_calls *regions; /* the caller's, all of them */
    uint32_t count;          /* calls */
    uint32_t used;           /* regions that have calls */
    uint32_t *region;        /* [used] their place in `regions` */
    uint32_t *base;          /* [used + 1] number of their first call */
    uint32_t *block;         /* [count / 64 + 1] which of the used ones holds call 64 * b */
} sp_call_index;

/* SP_ERR_UNSUPPORTED: more than SP_CALLS_MAX calls. */
sp_status sp_call_index_make(sp_call_index *index, const sp_calls *regions, size_t region_count, sp_error *error);
void sp_call_index_free(sp_call_index *index);

/* Which used region holds a call. Constant time: a block of 64 calls touches at most 64 of them. */
static inline uint32_t sp_call_index_find(const sp_call_index *index, uint32_t call)
{
    uint32_t used = index->block[call >> 6];
    while (index->base[used + 1] <= call) used++;
    return used;
}

/* The call at position i of the order is entries[i] & mask; entries is NULL when the input is in order already. */
typedef struct sp_call_order {
    const uint64_t *entries;
    uint64_t mask;
} sp_call_order;

static inline uint32_t sp_call_order_at(const sp_call_order *order, uint64_t position)
{
    return (uint32_t)(order->entries ? order->entries[position] & order->mask : position);
}

/* Whether a call may follow another in the order; `call` and `last` are their numbers. */
static inline bool sp_call_comes_after(int64_t last_start, int64_t last_end, uint32_t last, int64_t start, int64_t end,
                                       uint32_t call)
{
    if (start != last_start) return start > last_start;
    return end != last_end ? end < last_end : call > last;
}

/*
 * The order that recorded calls have by their ids, one region's turn after the other:
 *
 *     turns   [ 0 1 2 3 0 1 2 3 ... ]     whose next call it is, 2 bytes a call
 *
 * Whether each call may follow the one before it is looked at by sp_call_turns_next, not by sp_call_turns_take.
 */
typedef uint16_t sp_turn;
#define SP_NO_TURN UINT16_MAX
#define SP_CALLS_AHEAD 32 /* calls of a region, fetched early: each region is a stream of its own, too many for the processor to see */

typedef struct sp_call_turns {
    const sp_call_index *index;
    const sp_turn *turns;
    int64_t first_id;
    struct sp_call_queue { /* [index->used] the calls of a region that wait for their turn */
        const int64_t *start_ns, *end_ns;
        uint32_t next, region;
    } *queues;
    int64_t last_start, last_end;
    uint32_t last, at;
} sp_call_turns;

/* `turns` has room for index->count. False: the ids do not count the calls, or not those of a region in order; or no memory. */
bool sp_call_turns_make(sp_call_turns *walk, const sp_call_index *index, sp_turn *turns);
void sp_call_turns_free(sp_call_turns *walk);

/* The next call is call `own` of a used region; at most index->count times. False: two calls have one id. */
static inline bool sp_call_turns_take(sp_call_turns *walk, uint32_t *used, uint32_t *own)
{
    const sp_turn turn = walk->turns[walk->at];
    if (turn == SP_NO_TURN) return false;
    struct sp_call_queue *const queue = &walk->queues[turn];
    __builtin_prefetch(queue->start_ns + queue->next + SP_CALLS_AHEAD);
    __builtin_prefetch(queue->end_ns + queue->next + SP_CALLS_AHEAD);
    *used = turn;
    *own = queue->next++;
    walk->at++;
    return true;
}

/* The same with its times. False also if it cannot follow the one before it. */
static inline bool sp_call_turns_next(sp_call_turns *walk, uint32_t *used, uint32_t *own, int64_t *start, int64_t *end)
{
    const bool first = walk->at == 0;
    if (!sp_call_turns_take(walk, used, own)) return false;
    *start = walk->queues[*used].start_ns[*own];
    *end = walk->queues[*used].end_ns[*own];
    const uint32_t call = walk->index->base[*used] + *own;
    if (!first && !sp_call_comes_after(walk->last_start, walk->last_end, walk->last, *start, *end, call)) return false;
    walk->last_start = *start;
    walk->last_end = *end;
    walk->last = call;
    return true;
}

/* Sort. `a` and `b` are scratch of index->count words each; the entries end up in one of them. Cannot fail. */
void sp_call_order_sort(const sp_call_index *index, uint64_t *a, uint64_t *b, sp_call_order *order);

#endif
