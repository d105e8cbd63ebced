#include "analysis/row_sums.h"
#include "analysis/wrap.h"

void sp_moments(int64_t total, uint64_t count, sp_squares squares, double *mean, double *m2)
{
    *mean = (double)total / (double)count;
    const sp_squares size = total < 0 ? -(uint64_t)total : (uint64_t)total;
    const sp_squares quotient = size / count, rest = size % count;
    *m2 = (double)(squares - quotient * size) - (double)(rest * size) / (double)count;
    if (*m2 < 0) *m2 = 0;
}

void sp_row_sums_add(sp_row_sums *sums, const int64_t *durations, uint64_t count)
{
    if (count == 0) return;
    if (sums->count == 0) sums->minimum = sums->maximum = durations[0];
    sp_row_sums s = *sums; /* a copy that is kept in registers */
    for (uint64_t i = 0; i < count; i++) {
        const int64_t duration = durations[i];
        s.total = sp_plus(s.total, duration);
        s.minimum = duration < s.minimum ? duration : s.minimum;
        s.maximum = duration > s.maximum ? duration : s.maximum;
        s.squares += sp_square(duration);
    }
    s.count += count;
    *sums = s;
}

sp_row_statistics sp_row_sums_statistics(const sp_row_sums *sums, const sp_row_ends *ends)
{
    sp_row_statistics out = {0};
    if (sums->count == 0) return out;
    out.total = sums->total;
    out.minimum = sums->minimum;
    out.maximum = sums->maximum;
    out.first = ends->first;
    out.last = ends->last;
    out.start_minimum = ends->earliest;
    out.end_maximum = ends->latest;
    sp_moments(sums->total, sums->count, sums->squares, &out.mean, &out.m2);
    return out;
}
