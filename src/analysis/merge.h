/* merge.h - one profile out of several. */
#ifndef SP_ANALYSIS_MERGE_H
#define SP_ANALYSIS_MERGE_H

#include "analysis/profile.h"

/*
 * Put parts of the same run together: a row's calls follow each other in part order, rows meet by rank and name. Thread
 * and task tables are those of the last part that has threads, metadata and auxiliary groups those of the last part; what a
 * row says about its source and tags comes from the first part that says it. A column that only some parts have is
 * filled with its default elsewhere.
 *
 * Ids and exclusive totals are left out (`nested` is false): the parts' trees are pieces of one that
 * sp_profile_resolve makes. One reference; at least one part.
 */
sp_status sp_profile_merge(const sp_profile *const *parts, size_t count, sp_profile **out, sp_error *error);

/*
 * Put different runs side by side, keeping everything. Regions must differ: SP_ERR_INVALID names one that two sets
 * have on the same rank.
 *
 *   metadata   the earlier set wins key by key, but mpi_size is the largest
 *   lanes      threads and tasks of a rank that an earlier set has too get new numbers after its own, so that lanes of
 *              different processes stay apart; their tables' times are moved to the start of the first run
 *   tree       kept for ranks of one set; where several sets have calls on a rank it is made again over all of them,
 *              since calls of one set may lie inside another's (ids and totals are unknown if they do not nest)
 *   paths      stored sums by call path are those of all sets side by side; none where a tree is made again
 *   aux        groups of a rank side by side; line profiles are numbered on
 *
 * Sets that were read without their calls go together with such sets only (SP_ERR_UNSUPPORTED).
 */
sp_status sp_profile_union(const sp_profile *const *sets, size_t count, sp_profile **out, sp_error *error);

/*
 * Put the ranks of one run together: each rank is in one set only (SP_ERR_INVALID names one that is not), and regions meet by
 * name. Metadata, lanes, their times and auxiliary groups as above; ids, trees and sums by call path stay each rank's own.
 * Works on sets without calls as well: their rows, tables and sums are then all there is.
 */
sp_status sp_profile_join(const sp_profile *const *sets, size_t count, sp_profile **out, sp_error *error);

/* The auxiliary groups of `from` (copied) beside those of a profile that nobody else has yet; false without memory. */
bool sp_profile_add_aux(sp_profile *profile, const sp_profile *from);

#endif
