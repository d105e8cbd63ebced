/* resolve.h - the call tree of a profile: ids of calls and their parents, and exclusive times. */
#ifndef SP_ANALYSIS_RESOLVE_H
#define SP_ANALYSIS_RESOLVE_H

#include "analysis/call_tree.h"
#include "analysis/profile.h"

/*
 * Fill in what follows from a profile's calls, lanes and nothing else: the call_ids and parent_ids columns, exclusive_total
 * of every row, and `nested`. The profile must not be shared yet.
 *
 * Ids count the calls of a rank in the order of call_order.h, from first_call_id; a call without a parent in the profile has
 * parent -1. A rank whose calls overlap gets no tree: ids -1 (no id columns at all when no rank has a tree), exclusive
 * totals SP_UNKNOWN, and `nested` is false. That is no failure: the status is SP_OK and error->message has the sentence that
 * names the two calls. The message is empty when all calls nest.
 *
 * Needs no memory but the id columns and a few words a row. The calls of a rank must lie together, in the order of its
 * rows (SP_ERR_INVALID). Profiles without calls (aggregates, summaries) are left as they are.
 */
sp_status sp_profile_resolve(sp_profile *profile, int64_t first_call_id, sp_error *error);

/* The same for rows [first_row .. first_row + row_count), which are one rank's. SP_ERR_NESTING: ids and totals are unknown. */
sp_status sp_profile_resolve_rows(sp_profile *profile, size_t first_row, size_t row_count, int64_t first_call_id,
                                  sp_error *error);

/* The id columns, filled with -1 when they are made. */
sp_status sp_profile_need_ids(sp_profile *profile, sp_error *error);

/*
 * The calls of a rank as regions for sp_call_tree_build, one per row of the rank, in row order. `rows` gets the index of
 * each row. Both are malloc'ed; the columns stay the profile's.
 */
typedef struct sp_rank_calls {
    sp_calls *calls;
    size_t *rows;
    size_t count;
    uint64_t call_count;
} sp_rank_calls;

sp_status sp_rank_calls_make(sp_rank_calls *rank_calls, const sp_profile *profile, uint32_t rank, sp_error *error);
void sp_rank_calls_free(sp_rank_calls *rank_calls);

/* sp_call_tree_build over a rank, failing with the sentence. */
sp_status sp_rank_calls_tree(const sp_rank_calls *rank_calls, const sp_profile *profile, sp_nest_mode mode,
                             sp_call_tree *tree, sp_error *error);

/*
 * Exclusive ns of every call of a rank: a column of rank_calls->call_count values, the rows' calls back to back in row
 * order. Free it with sp_column_free.
 */
sp_status sp_rank_calls_exclusive(const sp_rank_calls *rank_calls, const sp_profile *profile, sp_nest_mode mode,
                                  int64_t **out, sp_error *error);

#endif
