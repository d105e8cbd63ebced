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

#endif
