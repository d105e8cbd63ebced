#include "analysis/row_sums.h"

void sp_moments(int64_t total, uint64_t count, sp_squares squares, double *mean, double *m2)
{
    *mean = (double)total / (double)count;
    const sp_squares size = total < 0 ? -(uint64_t)total : (uint64_t)total;
    const sp_squares quotient = size / count, rest = size % count;
    *m2 = (double)(squares - quotient * size) - (double)(rest * size) / (double)count;
    if (*m2 < 0) *m2 = 0;
}

sp_row_statistics sp_row_sums_statistics(const sp_row_sums *sums)
{
    sp_row_statistics out = {0};
    if (sums->count == 0) return out;
    out.total = sums->total;
    out.minimum = sums->minimum;
    out.maximum = sums->maximum;
    out.first = sums->first;
    out.last = sums->last;
    out.start_minimum = sums->earliest;
    out.end_maximum = sums->latest;
    sp_moments(sums->total, sums->count, sums->squares, &out.mean, &out.m2);
    return out;
}
