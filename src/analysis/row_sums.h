/* row_sums.h - statistics of calls that come one after the other and are not kept. */
#ifndef SP_ANALYSIS_ROW_SUMS_H
#define SP_ANALYSIS_ROW_SUMS_H

#include "analysis/profile.h"

/* The sum of squared durations is exact (at most the square of the total, so it fits): m2 comes from it without cancellation. */
typedef unsigned __int128 sp_squares;

static inline sp_squares sp_square(int64_t duration)
{
    const sp_squares size = duration < 0 ? -(uint64_t)duration : (uint64_t)duration;
    return size * size;
}

/* Mean and m2 of `count` durations, at least one: sum of squared deviations = squares - total^2 / count, in integers as far as they go. */
void sp_moments(int64_t total, uint64_t count, sp_squares squares, double *mean, double *m2);

/* Durations of calls of one row, in any order. */
typedef struct sp_row_sums {
    uint64_t count;
    int64_t total, minimum, maximum;
    sp_squares squares;
} sp_row_sums;

void sp_row_sums_add(sp_row_sums *sums, const int64_t *durations, uint64_t count);

/* What else is said of a row: the durations of its first and its last call, in the order of their starts, the first start, the latest end. */
typedef struct sp_row_ends {
    int64_t first, last, earliest, latest;
} sp_row_ends;

#define SP_ROW_ENDS_NONE ((sp_row_ends){.latest = INT64_MIN})

sp_row_statistics sp_row_sums_statistics(const sp_row_sums *sums, const sp_row_ends *ends);

#endif
