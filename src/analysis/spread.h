/*
 * spread.h - exact percentiles of durations that pass by and are not kept.
 *
 * The durations of a row are counted into bins: one for each ns up to a limit, then ever wider ones of equal relative width. A
 * wanted rank is then in a known bin. Where that is one ns wide, or all of the bin are equal, the percentile is known; otherwise the
 * durations pass by again, and those of the few bins that matter are counted into finer bins, until all ranks are known. Rows of
 * few calls are kept and sorted instead. Between two calls it interpolates linearly, as sp_row_percentiles_compute does.
 *
 *   new, add ..., close, while (again) { add_again ..., close }
 *
 * Memory: 8 bytes a call for rows of up to SP_SPREAD_KEPT calls, about 20 to 150 kB for others, whatever their calls.
 */
#ifndef SP_ANALYSIS_SPREAD_H
#define SP_ANALYSIS_SPREAD_H

#include "analysis/profile.h"

#define SP_SPREAD_KEPT 8192

typedef struct sp_spread sp_spread;

/*
 * For rows [first, last) of the profile; the percentiles sp_percentile_ranks go to out[percentile * row_count + row]. NULL when out of memory.
 */
sp_spread *sp_spread_new(const sp_profile *profile, size_t first, size_t last, double *out);
void sp_spread_free(sp_spread *spread); /* NULL is allowed */

/* Durations of a row, all in all as many as it has calls. */
void sp_spread_add(sp_spread *spread, size_t row, const int64_t *durations, size_t count);

/* All have passed by. Whether they must do so again, to sp_spread_add_again, for rows that sp_spread_wants. SP_ERR_NO_MEMORY. */
sp_status sp_spread_close(sp_spread *spread, bool *again);
bool sp_spread_wants(const sp_spread *spread, size_t row);
void sp_spread_add_again(sp_spread *spread, size_t row, int64_t duration);

#endif
