/* percentile.h - exact percentiles by selection: linear time on average, no sort. */
#ifndef SP_ANALYSIS_PERCENTILE_H
#define SP_ANALYSIS_PERCENTILE_H

#include <stddef.h>
#include <stdint.h>

/*
 * The percentiles `ranks` (0..100, ascending) of `values`, which are reordered. Between two values it interpolates
 * linearly (definition 7 of Hyndman and Fan, the one numpy uses by default). All 0 when there are no values.
 */
void sp_percentiles(int64_t *values, size_t count, const double *ranks, size_t rank_count, double *out);

/* Linear interpolation between neighbours, from the nearer of the two, as numpy's default does. */
static inline double sp_percentile_between(double low, double high, double share)
{
    return share < 0.5 ? low + (high - low) * share : high - (high - low) * (1.0 - share);
}

#endif
