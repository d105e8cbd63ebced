#include "analysis/percentile.h"

#include <math.h>

static void swap(int64_t *values, size_t a, size_t b)
{
    const int64_t value = values[a];
    values[a] = values[b];
    values[b] = value;
}

static void insertion_sort(int64_t *values, size_t low, size_t high)
{
    for (size_t i = low + 1; i < high; i++) {
        const int64_t value = values[i];
        size_t at = i;
        for (; at > low && values[at - 1] > value; at--) values[at] = values[at - 1];
        values[at] = value;
    }
}

/* A pivot that no input can be arranged against: the median of three places drawn from a generator of our own. */
static int64_t choose_pivot(const int64_t *values, size_t low, size_t high, uint64_t *random)
{
    int64_t v[3];
    for (int i = 0; i < 3; i++) {
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        v[i] = values[low + (size_t)((*random >> 16) % (high - low))];
    }
    const int64_t least = v[0] < v[1] ? v[0] : v[1], most = v[0] < v[1] ? v[1] : v[0];
    return v[2] < least ? least : v[2] > most ? most : v[2];
}

/* Put into place k what a sort would, smaller values before it and larger behind. Everything before `low` is in place. */
static void select_place(int64_t *values, size_t low, size_t high, size_t k)
{
    uint64_t random = 0x5bd1e995u + high;
    while (high - low > 24) {
        const int64_t pivot = choose_pivot(values, low, high, &random);
        /* three parts, so that many equal durations (a coarse clock) stay linear: [less | equal | greater] */
        size_t less = low, at = low, greater = high;
        while (at < greater) {
            if (values[at] < pivot) swap(values, at++, less++);
            else if (values[at] > pivot) swap(values, at, --greater);
            else at++;
        }
        if (k < less) high = less;
        else if (k >= greater) low = greater;
        else return;
    }
    insertion_sort(values, low, high);
}

void sp_percentiles(int64_t *values, size_t count, const double *ranks, size_t rank_count, double *out)
{
    size_t placed = 0; /* values[0 .. placed) are not larger than any behind them */
    for (size_t i = 0; i < rank_count; i++) {
        if (count == 0) {
            out[i] = 0;
            continue;
        }
        const double place = ranks[i] / 100 * (double)(count - 1);
        const size_t below = (size_t)place;
        const double weight = place - (double)below;
        select_place(values, below >= placed ? placed : 0, count, below);
        placed = below;
        const double a = (double)values[below];
        if (weight <= 0 || below + 1 >= count) {
            out[i] = a;
            continue;
        }
        size_t next = below + 1;
        for (size_t k = next + 1; k < count; k++) {
            if (values[k] < values[next]) next = k;
        }
        swap(values, below + 1, next);
        const double step = (double)values[below + 1] - a;
        /* from the nearer end, as numpy does: equal neighbours give exactly that value */
        out[i] = weight < 0.5 ? a + step * weight : (double)values[below + 1] - step * (1 - weight);
    }
}
