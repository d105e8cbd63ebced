/*
 * call_tree.h - which call encloses which: one linear pass over the calls of a rank, with one stack per lane.
 *
 * A lane is a scope stack: a task's, or that of a thread outside of tasks. Only calls of one lane can nest. The calls come
 * in the order of call_order.h, so that the innermost call of its lane that is still open encloses the next one:
 *
 *   - of calls that start together the longer encloses the shorter; identical intervals nest in input order;
 *   - calls that touch (one ends where the next starts) are siblings; a child may end with its parent;
 *   - a call of no length at the start of another is its child; at its end it is a sibling, or the child of what starts there;
 *   - several calls of no length at one instant nest in each other.
 *
 * A stack takes no memory of its own. Of each lane only the innermost open call is kept; the rest of the stack is
 * reached through the parents:
 *
 *     innermost[lane] ──> 7 ──parent──> 4 ──parent──> 0 ──parent──> none
 *
 * Where calls of a lane overlap without nesting, there is no tree (SP_NEST_STRICT), or one by this rule (SP_NEST_CLAMP): a
 * call that outlives the call it starts in ends that call's reign: it becomes a child of the innermost call that
 * encloses it whole, and every instant counts as the exclusive time of the open call that started last. So exclusive
 * times are never negative, their sum over a lane is the time in which any of its calls was open, and calls that do nest get
 * the numbers they get in a strict tree. A call that ends before it starts counts as a call of no length.
 */
#ifndef SP_ANALYSIS_CALL_TREE_H
#define SP_ANALYSIS_CALL_TREE_H

#include "analysis/call_order.h"

#define SP_LANE_UNKNOWN INT64_C(-1)

/* The lane of a call: its task, else its thread. The two never meet: threads are -2 - thread, -1 says that neither is known. */
static inline int64_t sp_lane_of(int64_t thread, int64_t task)
{
    return task >= 0 ? task : (int64_t)(UINT64_MAX - 1 - (uint64_t)thread);
}

typedef enum sp_nest_mode { SP_NEST_STRICT, SP_NEST_CLAMP } sp_nest_mode;

/* Two calls that do not nest; or, if `reversed`, one that ends before it starts (then only `inner` is set). */
typedef struct sp_overlap {
    bool reversed;
    size_t outer_region, inner_region;
    uint64_t outer_call, inner_call;
} sp_overlap;

/* The calls of a rank in order, one value a call in every column. */
typedef struct sp_call_tree {
    uint64_t count;
    int64_t *region;       /* index into the regions given */
    int64_t *call;         /* index into that region's columns */
    int64_t *start_ns, *end_ns;
    int64_t *depth;        /* 0: a root */
    int64_t *parent;       /* position in these columns, -1: a root */
    int64_t *exclusive_ns; /* duration less that of the direct children; they are all of the same lane */
    int64_t *lane;         /* NULL when no region has threads: all calls are one stack */
} sp_call_tree;

/*
 * Build the tree. SP_ERR_NESTING (strict) fills `overlap` (may be NULL) with the first pair in call order;
 * sp_nesting_fail makes the sentence of it. Columns that fail to build are freed.
 */
sp_status sp_call_tree_build(sp_call_tree *tree, const sp_calls *regions, size_t region_count, sp_nest_mode mode,
                             sp_overlap *overlap, sp_error *error);
void sp_call_tree_free(sp_call_tree *tree);

/* SP_ERR_NESTING with the sentence below, and what keeps such calls apart that these did not. */
sp_status sp_nesting_fail(sp_error *error, const sp_overlap *overlap, const sp_calls *regions, const char *outer_name,
                          const char *inner_name);

/* A lane of which calls overlap, and the first two that do. */
typedef struct sp_lane_overlap {
    int64_t lane;
    sp_overlap overlap;
} sp_lane_overlap;

/* The lanes of a clamped tree that have no strict one, in order of the first call that overlaps another. *out is malloc'ed. */
sp_status sp_call_tree_overlaps(const sp_call_tree *tree, sp_lane_overlap **out, size_t *count, sp_error *error);

/* The sentence that names both calls and their intervals. Names are UTF-8; long ones are cut. */
typedef struct sp_overlap_text {
    char text[640];
} sp_overlap_text;

sp_overlap_text sp_overlap_tell(const sp_overlap *overlap, const sp_calls *regions, const char *outer_name, const char *inner_name);

/*
 * The innermost open call of each lane, for passes over calls. Lanes are any int64: a table where their range allows
 * it, a hash table where not; constant time either way.
 */
typedef struct sp_lane_tops {
    int64_t low;
    uint64_t range;   /* of the table, 0: hashed */
    uint32_t *table;
    uint64_t size, used; /* of the hash table: a power of two */
    struct sp_lane_top {
        int64_t lane;
        uint32_t top;
        bool taken;
    } *hashed;
} sp_lane_tops;

/* For lanes low..high, of `count` calls. */
sp_status sp_lane_tops_make(sp_lane_tops *tops, int64_t low, int64_t high, uint64_t count, sp_error *error);
void sp_lane_tops_free(sp_lane_tops *tops);

/* Where the lane's innermost open call is kept; SP_NO_CALL at first. Valid until the next look-up. NULL: out of memory. */
uint32_t *sp_lane_tops_find_hashed(sp_lane_tops *tops, int64_t lane);

static inline uint32_t *sp_lane_tops_find(sp_lane_tops *tops, int64_t lane)
{
    const uint64_t offset = (uint64_t)lane - (uint64_t)tops->low;
    if (__builtin_expect(offset < tops->range, 1)) return &tops->table[offset];
    return sp_lane_tops_find_hashed(tops, lane);
}

#endif
