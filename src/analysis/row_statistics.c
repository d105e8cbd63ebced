/* row_statistics.c - what a file keeps of a row beside its calls: sums, extremes and percentiles of its durations. */
#include "analysis/profile.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/percentile.h"
#include "analysis/wrap.h"
#include "core/sort.h"

/* Sums in this function are exact: int64 ns hold 292 years. */
void sp_row_statistics_compute(const sp_profile *profile, const sp_row *row, sp_row_statistics *out)
{
    memset(out, 0, sizeof *out);
    if (row->count == 0) return;
    const int64_t *start = profile->columns[SP_COLUMN_START] + row->first;
    const int64_t *end = profile->columns[SP_COLUMN_END] + row->first;
    const uint64_t count = row->count;
    int64_t total = 0, minimum = INT64_MAX, maximum = INT64_MIN, earliest = INT64_MAX, latest = INT64_MIN;
    for (uint64_t i = 0; i < count; i++) {
        const int64_t duration = sp_minus(end[i], start[i]);
        total = sp_plus(total, duration);
        if (duration < minimum) minimum = duration;
        if (duration > maximum) maximum = duration;
        if (start[i] < earliest) earliest = start[i];
        if (end[i] > latest) latest = end[i];
    }
    const double mean = (double)total / (double)count;
    double m2 = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double off = (double)sp_minus(end[i], start[i]) - mean;
        m2 += off * off;
    }
    *out = (sp_row_statistics){
        .total = total, .minimum = minimum, .maximum = maximum,
        .first = sp_minus(end[0], start[0]), .last = sp_minus(end[count - 1], start[count - 1]),
        .start_minimum = earliest, .end_maximum = latest, .mean = mean, .m2 = m2,
    };
    if (profile->columns[SP_COLUMN_GPU] == NULL) return;
    const int64_t *gpu = profile->columns[SP_COLUMN_GPU] + row->first;
    for (uint64_t i = 0; i < count; i++) {
        if (gpu[i] < 0) continue;
        out->gpu_count++;
        out->gpu_total = sp_plus(out->gpu_total, gpu[i]);
    }
}

void sp_row_statistics_pool(sp_row_statistics *into, uint64_t calls, const sp_row_statistics *from, uint64_t more)
{
    if (more == 0) return;
    if (calls == 0) {
        *into = *from;
        return;
    }
    const double a = (double)calls, b = (double)more, apart = from->mean - into->mean;
    into->m2 += from->m2 + apart * apart * a * b / (a + b);
    into->mean += apart * b / (a + b);
    into->total = sp_plus(into->total, from->total);
    if (from->minimum < into->minimum) into->minimum = from->minimum;
    if (from->maximum > into->maximum) into->maximum = from->maximum;
    if (from->start_minimum < into->start_minimum) {
        into->start_minimum = from->start_minimum;
        into->first = from->first;
    }
    if (from->end_maximum > into->end_maximum) {
        into->end_maximum = from->end_maximum;
        into->last = from->last;
    }
    into->gpu_count += from->gpu_count;
    into->gpu_total = sp_plus(into->gpu_total, from->gpu_total);
}

/*
 * Order statistics without a copy of the durations. They are counted into bins of a range, the bin that holds the wanted
 * rank becomes the range, and so on until the bin is one value wide or holds few enough calls to be sorted. The first
 * round is shared by all ranks. Three or four passes over the row in all; a sort of 2 M durations takes 20 times longer.
 */
#define BIN_BITS 13
#define BINS ((size_t)1 << BIN_BITS)
#define FEW 4096

typedef struct durations {
    const int64_t *start, *end;
    uint64_t count;
} durations;

/* Values in [low, low + 2^bits), which hold the `before`-th smallest and those after it. */
typedef struct range {
    uint64_t low;
    unsigned bits; /* 0..64 */
    uint64_t before, count;
} range;

/* Durations as unsigned numbers in the same order, so that damaged (negative) ones sort too. */
static inline uint64_t ordered(const durations *d, uint64_t i)
{
    return ((uint64_t)d->end[i] - (uint64_t)d->start[i]) ^ UINT64_C(0x8000000000000000);
}

static inline unsigned shift_of(const range *r)
{
    return r->bits > BIN_BITS ? r->bits - BIN_BITS : 0;
}

static inline bool inside(const range *r, uint64_t value)
{
    return r->bits >= 64 || (value - r->low) >> r->bits == 0;
}

static void count_bins(const durations *d, const range *r, uint64_t *bins)
{
    const unsigned shift = shift_of(r);
    memset(bins, 0, BINS * sizeof *bins);
    for (uint64_t i = 0; i < d->count; i++) {
        const uint64_t value = ordered(d, i);
        if (inside(r, value)) bins[(value - r->low) >> shift]++;
    }
}

/* The bin of the range that holds the rank-th smallest value of all. */
static range narrow(const range *r, const uint64_t *bins, uint64_t rank)
{
    const unsigned shift = shift_of(r);
    uint64_t before = r->before;
    size_t bin = 0;
    while (before + bins[bin] <= rank) before += bins[bin++];
    return (range){.low = r->low + ((uint64_t)bin << shift), .bits = shift, .before = before, .count = bins[bin]};
}

static int compare_values(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The sorted values of the range; returns how many. */
static size_t gather(const durations *d, const range *r, uint64_t *values)
{
    size_t found = 0;
    for (uint64_t i = 0; i < d->count && found < r->count; i++) {
        const uint64_t value = ordered(d, i);
        if (inside(r, value)) values[found++] = value;
    }
    sp_sort(values, found, sizeof *values, compare_values);
    return found;
}

/* Kept from rank to rank: the wanted ones are often close together. */
typedef struct select_memory {
    uint64_t first[BINS];           /* of the whole range */
    uint64_t bins[BINS];
    range counted;                  /* what `bins` holds */
    uint64_t values[FEW];
    range gathered;                 /* what `values` holds */
} select_memory;

static bool same_range(const range *a, const range *b)
{
    return a->count == b->count && a->low == b->low && a->bits == b->bits;
}

static int64_t select_rank(const durations *d, const range *whole, select_memory *memory, uint64_t rank)
{
    range r = narrow(whole, memory->first, rank);
    while (r.bits > 0 && r.count > FEW) {
        if (!same_range(&memory->counted, &r)) count_bins(d, &r, memory->bins);
        memory->counted = r;
        r = narrow(&r, memory->bins, rank);
    }
    if (r.bits == 0) return (int64_t)(r.low ^ UINT64_C(0x8000000000000000));
    if (!same_range(&memory->gathered, &r)) gather(d, &r, memory->values);
    memory->gathered = r;
    return (int64_t)(memory->values[rank - r.before] ^ UINT64_C(0x8000000000000000));
}

/* The smallest range of whole bins around all durations. */
static range whole_range(const durations *d)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (uint64_t i = 0; i < d->count; i++) {
        const uint64_t value = ordered(d, i);
        if (value < low) low = value;
        if (value > high) high = value;
    }
    const uint64_t span = high - low;
    return (range){.low = low, .bits = span ? 64 - (unsigned)__builtin_clzll(span) : 0, .count = d->count};
}

sp_status sp_row_percentiles_compute(const sp_profile *profile, const sp_row *row, const double *ranks, size_t count,
                                     double *out)
{
    memset(out, 0, count * sizeof *out);
    if (row->count == 0) return SP_OK;
    const durations d = {profile->columns[SP_COLUMN_START] + row->first, profile->columns[SP_COLUMN_END] + row->first,
                         row->count};
    const range whole = whole_range(&d);
    if (whole.bits == 0) {
        for (size_t i = 0; i < count; i++) out[i] = (double)sp_minus(d.end[0], d.start[0]);
        return SP_OK;
    }
    select_memory *memory = malloc(sizeof *memory);
    if (memory == NULL) return SP_ERR_NO_MEMORY;
    memory->gathered = memory->counted = (range){0};
    if (d.count <= FEW) {
        gather(&d, &whole, memory->values);
    } else {
        count_bins(&d, &whole, memory->first);
    }
    for (size_t i = 0; i < count; i++) {
        const double position = ranks[i] / 100.0 * (double)(d.count - 1);
        const uint64_t below = (uint64_t)position, above = below + 1 < d.count ? below + 1 : below;
        double low, high;
        if (d.count <= FEW) {
            low = (double)(int64_t)(memory->values[below] ^ UINT64_C(0x8000000000000000));
            high = (double)(int64_t)(memory->values[above] ^ UINT64_C(0x8000000000000000));
        } else {
            low = (double)select_rank(&d, &whole, memory, below);
            high = (double)select_rank(&d, &whole, memory, above);
        }
        out[i] = sp_percentile_between(low, high, position - (double)below);
    }
    free(memory);
    return SP_OK;
}
