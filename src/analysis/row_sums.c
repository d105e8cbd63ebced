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

void sp_row_sums_add(sp_row_sums *sums, const int64_t *steps, const int64_t *durations, uint64_t count)
{
    if (count == 0) return;
    if (sums->count == 0) {
        sums->first = sums->minimum = sums->maximum = durations[0];
        sums->earliest = steps[0];
        sums->latest = sp_plus(steps[0], durations[0]);
    }
    sp_row_sums s = *sums; /* a copy that is kept in registers */
    for (uint64_t i = 0; i < count; i++) {
        const int64_t duration = durations[i];
        s.start = sp_plus(s.start, steps[i]);
        s.total = sp_plus(s.total, duration);
        s.minimum = duration < s.minimum ? duration : s.minimum;
        s.maximum = duration > s.maximum ? duration : s.maximum;
        const int64_t end = sp_plus(s.start, duration);
        s.latest = end > s.latest ? end : s.latest;
        s.squares += sp_square(duration);
    }
    s.count += count;
    s.last = durations[count - 1];
    *sums = s;
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
