/* collect.h - from the logs of a run to a profile, while other threads go on recording. */
#ifndef SP_ANALYSIS_COLLECT_H
#define SP_ANALYSIS_COLLECT_H

#include "analysis/profile.h"
#include "core/run.h"

/*
 * Every call that is closed and was not collected before, as one profile: rows in order of the regions' creation (regions
 * without a call have none), call ids from `first_call_id` in start order over all threads, parents, exclusive totals,
 * statistics, and the lane tables as they are now. Each closed call is in exactly one collection; a call that is open now
 * is in the first collection after it closes. On failure nothing is taken: the calls are in the next collection.
 *
 * `lane_keys`, if not NULL, receives the lane of each call in column order (the task's index, else -2 - the thread's row
 * index), also for runs that carry no lane columns; to be freed with sp_column_free.
 *
 * Cost: one counting pass over the new slots, then one merging pass over the logs in start order, which gives the memory
 * of each full block back as soon as it is behind; so the peak is the larger of the log and the columns, not their sum.
 */
sp_status sp_run_collect(sp_run *run, uint32_t rank, int64_t first_call_id, sp_profile **out, int64_t **lane_keys,
                         sp_error *error);

/*
 * What was collected is in a file. A run with a store keeps every call until then, so that a kill between the two loses
 * nothing; for others there is nothing to do.
 */
void sp_run_confirm(sp_run *run);

/* Fill in the lane tables of a profile that has none, as they are now. Calls are not looked at. */
sp_status sp_run_tables(sp_run *run, uint32_t rank, sp_profile *profile, sp_error *error);

#endif
