#include "analysis/spread.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/percentile.h"
#include "core/sort.h"

#define RANKS ((size_t)2 * SP_PERCENTILE_COUNT) /* of each percentile the calls below and above it */
#define OCTAVES 64
#define FINE_BITS 12
#define FINE ((size_t)1 << FINE_BITS)

/* Durations [low, low + 2^bits), the wanted one of which is the `rank`-th of them. */
typedef struct target {
    uint64_t low;
    unsigned bits;
    uint64_t rank;
    uint64_t *fine; /* FINE counts, while it is narrowed down; shared by targets of the same range */
    bool owner;
} target;

/* The durations of a row of many calls. */
typedef struct bins {
    uint64_t *exact;           /* one count a ns, below the limit */
    uint64_t *octaves[OCTAVES]; /* by power of two from the limit on, each of 2^sub counts; made when needed */
    target targets[RANKS];
    bool counted; /* the first pass is over */
    bool open;    /* some target is not known yet */
} bins;

typedef struct part {
    uint64_t count, seen;
    int64_t *kept; /* rows of few calls: all of them, until the last has come */
    bins *bins;    /* of other rows, until all ranks are known */
} part;

struct sp_spread {
    size_t first, count;
    unsigned limit_bits, sub_bits;
    part *parts;
    double *out; /* [percentile][stride], by row of the profile */
    size_t stride;
    bool failed; /* out of memory somewhere */
};

sp_spread *sp_spread_new(const sp_profile *profile, size_t first, size_t last, double *out)
{
    sp_spread *spread = calloc(1, sizeof *spread);
    if (spread == NULL) return NULL;
    size_t large = 0;
    for (size_t i = first; i < last; i++) large += profile->rows[i].count > SP_SPREAD_KEPT;
    spread->first = first;
    spread->count = last - first;
    spread->out = out;
    spread->stride = profile->row_count;
    spread->limit_bits = large <= 64 ? 14 : 11;
    spread->sub_bits = spread->limit_bits - 4;
    spread->parts = calloc(spread->count + 1, sizeof *spread->parts);
    if (spread->parts == NULL) {
        free(spread);
        return NULL;
    }
    for (size_t i = 0; i < spread->count; i++) spread->parts[i].count = profile->rows[first + i].count;
    return spread;
}

static void free_fine(bins *b)
{
    for (size_t i = 0; i < RANKS; i++) {
        if (b->targets[i].owner) free(b->targets[i].fine);
        b->targets[i].fine = NULL;
        b->targets[i].owner = false;
    }
}

static void free_counts(bins *b)
{
    for (size_t i = 0; i < OCTAVES; i++) free(b->octaves[i]);
    free(b->exact);
    memset(b->octaves, 0, sizeof b->octaves);
    b->exact = NULL;
}

static void free_bins(part *p)
{
    if (p->bins == NULL) return;
    free_counts(p->bins);
    free_fine(p->bins);
    free(p->bins);
    p->bins = NULL;
}

void sp_spread_free(sp_spread *spread)
{
    if (spread == NULL) return;
    for (size_t i = 0; i < spread->count; i++) {
        free_bins(&spread->parts[i]);
        free(spread->parts[i].kept);
    }
    free(spread->parts);
    free(spread);
}

/* ---- ranks ---- */

/* The ranks of the calls below and above each percentile, and how far between them it lies. */
static void wanted_ranks(uint64_t count, uint64_t ranks[RANKS], double shares[SP_PERCENTILE_COUNT])
{
    for (size_t i = 0; i < SP_PERCENTILE_COUNT; i++) {
        const double position = sp_percentile_ranks[i] / 100.0 * (double)(count - 1);
        const uint64_t below = (uint64_t)position;
        ranks[2 * i] = below;
        ranks[2 * i + 1] = below + 1 < count ? below + 1 : below;
        shares[i] = position - (double)below;
    }
}

/* The percentiles of part `at`, whose values of the wanted ranks are known. */
static void put_percentiles(const sp_spread *spread, size_t at, const int64_t values[RANKS])
{
    uint64_t ranks[RANKS];
    double shares[SP_PERCENTILE_COUNT];
    wanted_ranks(spread->parts[at].count, ranks, shares);
    for (size_t i = 0; i < SP_PERCENTILE_COUNT; i++) {
        spread->out[i * spread->stride + spread->first + at] =
            sp_percentile_between((double)values[2 * i], (double)values[2 * i + 1], shares[i]);
    }
}

/* ---- the first pass ---- */

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool keep(const sp_spread *spread, size_t at, const int64_t *durations, size_t count)
{
    part *p = &spread->parts[at];
    if (p->kept == NULL) p->kept = malloc(p->count * sizeof *p->kept);
    if (p->kept == NULL) return false;
    memcpy(p->kept + p->seen, durations, count * sizeof *durations);
    p->seen += count;
    if (p->seen < p->count) return true;
    uint64_t ranks[RANKS];
    double shares[SP_PERCENTILE_COUNT];
    int64_t values[RANKS];
    sp_sort(p->kept, p->count, sizeof *p->kept, compare);
    wanted_ranks(p->count, ranks, shares);
    for (size_t i = 0; i < RANKS; i++) values[i] = p->kept[ranks[i]];
    put_percentiles(spread, at, values);
    free(p->kept);
    p->kept = NULL;
    return true;
}

static bool make_bins(const sp_spread *spread, part *p)
{
    if (p->bins) return true;
    p->bins = calloc(1, sizeof *p->bins);
    if (p->bins == NULL) return false;
    p->bins->exact = calloc((size_t)1 << spread->limit_bits, sizeof *p->bins->exact);
    return p->bins->exact != NULL;
}

static bool count_all(const sp_spread *spread, part *p, const int64_t *durations, size_t count)
{
    if (!make_bins(spread, p)) return false;
    bins *b = p->bins;
    const uint64_t limit = UINT64_C(1) << spread->limit_bits;
    for (size_t i = 0; i < count; i++) {
        const uint64_t value = (uint64_t)durations[i];
        if (value < limit) {
            b->exact[value]++;
            continue;
        }
        const unsigned octave = 63 - (unsigned)__builtin_clzll(value);
        uint64_t **counts = &b->octaves[octave];
        if (*counts == NULL) *counts = calloc((size_t)1 << spread->sub_bits, sizeof **counts);
        if (*counts == NULL) return false;
        (*counts)[(value >> (octave - spread->sub_bits)) - (UINT64_C(1) << spread->sub_bits)]++;
    }
    return true;
}

void sp_spread_add(sp_spread *spread, size_t row, const int64_t *durations, size_t count)
{
    const size_t at = row - spread->first;
    part *p = &spread->parts[at];
    const bool done = p->count <= SP_SPREAD_KEPT ? keep(spread, at, durations, count) : count_all(spread, p, durations, count);
    if (!done) spread->failed = true;
}

/* ---- until all are known ---- */

/* The bin of the first pass that holds the rank-th duration. */
static target find_bin(const sp_spread *spread, const bins *b, uint64_t rank)
{
    const size_t limit = (size_t)1 << spread->limit_bits, sub = (size_t)1 << spread->sub_bits;
    for (size_t value = 0; value < limit; value++) {
        if (rank < b->exact[value]) return (target){.low = value};
        rank -= b->exact[value];
    }
    for (unsigned octave = spread->limit_bits; octave < OCTAVES; octave++) {
        const uint64_t *counts = b->octaves[octave];
        for (size_t i = 0; counts && i < sub; i++) {
            const unsigned bits = octave - spread->sub_bits;
            if (rank < counts[i]) return (target){.low = (uint64_t)(sub + i) << bits, .bits = bits, .rank = rank};
            rank -= counts[i];
        }
    }
    return (target){0};
}

static unsigned fine_shift(const target *t)
{
    return t->bits > FINE_BITS ? t->bits - FINE_BITS : 0;
}

/* The fine bin of the target's range that holds it. */
static void narrow(target *t)
{
    uint64_t rank = t->rank;
    size_t bin = 0;
    while (bin + 1 < FINE && rank >= t->fine[bin]) rank -= t->fine[bin++];
    const unsigned shift = fine_shift(t);
    t->low += (uint64_t)bin << shift;
    t->bits = shift;
    t->rank = rank;
}

/* Bins for every target that is not known, shared by those of one range. False: out of memory. */
static bool open_targets(bins *b)
{
    b->open = false;
    for (size_t i = 0; i < RANKS; i++) {
        target *t = &b->targets[i];
        if (t->bits == 0) continue;
        b->open = true;
        for (size_t k = 0; k < i && t->fine == NULL; k++) {
            const target *other = &b->targets[k];
            if (other->fine && other->low == t->low && other->bits == t->bits) t->fine = other->fine;
        }
        if (t->fine) continue;
        t->fine = calloc(FINE, sizeof *t->fine);
        if (t->fine == NULL) return false;
        t->owner = true;
    }
    return true;
}

static bool close_part(const sp_spread *spread, size_t at)
{
    part *p = &spread->parts[at];
    bins *b = p->bins;
    if (b == NULL) return true;
    if (!b->counted) {
        uint64_t ranks[RANKS];
        double shares[SP_PERCENTILE_COUNT];
        wanted_ranks(p->count, ranks, shares);
        for (size_t i = 0; i < RANKS; i++) b->targets[i] = find_bin(spread, b, ranks[i]);
        free_counts(b);
        b->counted = true;
    } else {
        for (size_t i = 0; i < RANKS; i++) {
            if (b->targets[i].fine) narrow(&b->targets[i]);
        }
        free_fine(b);
    }
    if (!open_targets(b)) return false;
    if (b->open) return true;
    int64_t values[RANKS];
    for (size_t i = 0; i < RANKS; i++) values[i] = (int64_t)b->targets[i].low;
    put_percentiles(spread, at, values);
    free_bins(p);
    return true;
}

sp_status sp_spread_close(sp_spread *spread, bool *again)
{
    *again = false;
    for (size_t i = 0; i < spread->count && !spread->failed; i++) {
        if (!close_part(spread, i)) spread->failed = true;
        *again = *again || spread->parts[i].bins;
    }
    return spread->failed ? SP_ERR_NO_MEMORY : SP_OK;
}

bool sp_spread_wants(const sp_spread *spread, size_t row)
{
    return row >= spread->first && row - spread->first < spread->count && spread->parts[row - spread->first].bins;
}

void sp_spread_add_again(sp_spread *spread, size_t row, int64_t duration)
{
    bins *b = spread->parts[row - spread->first].bins;
    for (size_t i = 0; i < RANKS; i++) {
        target *t = &b->targets[i];
        const uint64_t offset = (uint64_t)duration - t->low;
        if (t->owner && offset >> t->bits == 0) t->fine[offset >> fine_shift(t)]++;
    }
}
