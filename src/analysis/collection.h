/*
 * collection.h - a collection under way: which calls of a run it has, and walks over them in start order.
 *
 *   begin   chooses: every call that is closed and was not collected before. Nothing is written into the logs; the calls that
 *           were open are remembered instead, so a page of a spool that is only read stays clean.
 *   walk    hands every chosen call to a sink, parents before their children. May be repeated: as long as the collection is
 *           not ended, the run keeps everything.
 *   end     keep: the calls are collected, and a store keeps them until sp_run_confirm. confirm: they are in a file.
 *           Neither: nothing happened, the next collection has them.
 *
 * Memory is a few words for each thread, task, region and open call; blocks of a store leave memory as a walk leaves them.
 */
#ifndef SP_ANALYSIS_COLLECTION_H
#define SP_ANALYSIS_COLLECTION_H

#include "analysis/profile.h"
#include "core/run.h"

typedef struct sp_collection sp_collection;

/* One call of a walk: a cache line. */
typedef struct sp_collected {
    uint32_t row;   /* of the collection's profile */
    uint32_t place; /* which of the calls that are open on any lane it is: its own until it ends, then another's; SP_NO_PLACE: a walk without a tree */
    uint32_t above; /* the place of the call around it; SP_NO_PLACE: a root, or a walk without a tree */
    bool open;      /* it had not ended: in a collection that ends such calls itself */
    int64_t start_ns, end_ns;
    int64_t call_id, parent_id; /* SP_UNKNOWN in a walk without a tree, or without a parent */
    int32_t thread, task;
    int64_t await_ns;
} sp_collected;

_Static_assert(sizeof(sp_collected) == 64, "a call of a walk is a cache line");

#define SP_NO_PLACE UINT32_MAX

/*
 * Gets all calls, some at a time. What a sink makes of a call it keeps by its place, until that is given to a later call; `places` is
 * above all that there were so far.
 */
typedef void (*sp_collected_sink)(void *context, const sp_collected *calls, size_t count, uint32_t places);

typedef enum sp_walk_flags {
    SP_WALK_TREE = 1,  /* with ids, parents and the rows' exclusive totals */
    SP_WALK_EMPTY = 2, /* the last one: blocks of anonymous memory are emptied behind it, so the collection must not fail after it */
} sp_walk_flags;

/* Choose. SP_ERR_NO_MEMORY is the only failure. One at a time in a run: another waits until this one has ended. */
sp_status sp_collection_begin(sp_run *run, uint32_t rank, int64_t first_call_id, sp_collection **out, sp_error *error);

/* The same for a run that is over, with the calls that are open: they end now. Their slots are only read. */
sp_status sp_collection_begin_last(sp_run *run, uint32_t rank, int64_t first_call_id, sp_collection **out, sp_error *error);

/* Put {"open":true} into the event metadata of the calls that a last collection has ended. SP_ERR_NO_MEMORY. */
sp_status sp_collection_mark_open(sp_collection *collection, sp_error *error);

/* The rows (in order of the regions' creation; none without a call) and names; call_count; lane tables; no columns. */
sp_profile *sp_collection_profile(const sp_collection *collection);

sp_run *sp_collection_run(const sp_collection *collection);

/* After a walk: SP_ERR_IO if calls went with pages of the run's store since they were chosen. The next collection has what is left. */
sp_status sp_collection_check(const sp_collection *collection, sp_error *error);

/* The number under which the run's store knows it. */
uint32_t sp_collection_number(const sp_collection *collection);

/*
 * Hand out the calls in start order over all threads. Within a row that is the order of the row. With SP_WALK_TREE, false
 * says that calls of a lane overlap without nesting: their ids and parents are not to be used, and exclusive totals are unknown.
 */
bool sp_collection_walk(sp_collection *collection, unsigned how, sp_collected_sink sink, void *context);

/*
 * Walk into columns of the collection's profile, with `how` besides SP_WALK_TREE; without the ids where calls overlap. `lane_keys` (may be NULL) as
 * sp_run_collect has it. SP_ERR_NO_MEMORY.
 */
sp_status sp_collection_columns(sp_collection *collection, unsigned how, int64_t **lane_keys, sp_error *error);

/* The durations of the calls of rows for which `wanted` is true, in no order: what a second look at them needs. */
typedef void (*sp_duration_sink)(void *context, uint32_t row, int64_t duration);
void sp_collection_durations(sp_collection *collection, const bool *wanted, sp_duration_sink sink, void *context);

/* End it, one way or another; the profile is the caller's if it took a reference. */
void sp_collection_keep(sp_collection *collection);
void sp_collection_confirm(sp_collection *collection);
void sp_collection_abandon(sp_collection *collection); /* NULL is allowed */

#endif
