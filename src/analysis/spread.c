#include "analysis/spread.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/percentile.h"

#define RANKS ((size_t)2 * SP_PERCENTILE_COUNT) /* of each percentile the calls below and above it */
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

typedef struct part {
    uint64_t count, seen;
    int64_t *kept;      /* rows of few calls: all of them */
    uint64_t *exact;    /* one count a ns, below the limit */
    uint64_t **octaves; /* by power of two from the limit on, each of 2^sub counts; made when needed */
    target targets[RANKS];
    bool open;          /* some target is not known yet */
} part;

struct sp_spread {
    size_t first, count;
    unsigned limit_bits, sub_bits;
    part *parts;
    bool failed; /* out of memory somewhere */
};

#define OCTAVES 64

sp_spread *sp_spread_new(const sp_profile *profile, size_t first, size_t last)
{
    sp_spread *spread = calloc(1, sizeof *spread);
    if (spread == NULL) return NULL;
    size_t large = 0;
    for (size_t i = first; i < last; i++) large += profile->rows[i].count > SP_SPREAD_KEPT;
    spread->first = first;
    spread->count = last - first;
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

static void free_fine(part *p)
{
    for (size_t i = 0; i < RANKS; i++) {
        if (p->targets[i].owner) free(p->targets[i].fine);
        p->targets[i].fine = NULL;
        p->targets[i].owner = false;
    }
}

static void free_bins(part *p)
{
    for (size_t i = 0; p->octaves && i < OCTAVES; i++) free(p->octaves[i]);
    free(p->octaves);
    free(p->exact);
    p->octaves = NULL;
    p->exact = NULL;
}

void sp_spread_free(sp_spread *spread)
{
    if (spread == NULL) return;
    for (size_t i = 0; i < spread->count; i++) {
        part *p = &spread->parts[i];
        free_bins(p);
        free_fine(p);
        free(p->kept);
    }
    free(spread->parts);
    free(spread);
}

/* ---- the first pass ---- */

static void keep(sp_spread *spread, part *p, const int64_t *durations, size_t count)
{
    if (p->kept == NULL) p->kept = malloc(p->count * sizeof *p->kept);
    if (p->kept == NULL) spread->failed = true;
    else memcpy(p->kept + p->seen, durations, count * sizeof *durations);
    p->seen += count;
}

static uint64_t *octave_of(sp_spread *spread, part *p, unsigned octave)
{
    if (p->octaves[octave] == NULL) p->octaves[octave] = calloc((size_t)1 << spread->sub_bits, sizeof(uint64_t));
    return p->octaves[octave];
}

static bool make_bins(sp_spread *spread, part *p)
{
    if (p->exact == NULL) p->exact = calloc((size_t)1 << spread->limit_bits, sizeof *p->exact);
    if (p->octaves == NULL) p->octaves = calloc(OCTAVES, sizeof *p->octaves);
    return p->exact && p->octaves;
}

static bool count_all(sp_spread *spread, part *p, const int64_t *durations, size_t count)
{
    if (!make_bins(spread, p)) return false;
    const uint64_t limit = UINT64_C(1) << spread->limit_bits;
    for (size_t i = 0; i < count; i++) {
        const uint64_t value = (uint64_t)durations[i];
        if (value < limit) {
            p->exact[value]++;
            continue;
        }
        const unsigned octave = 63 - (unsigned)__builtin_clzll(value);
        uint64_t *bins = octave_of(spread, p, octave);
        if (bins == NULL) return false;
        bins[(value >> (octave - spread->sub_bits)) - (UINT64_C(1) << spread->sub_bits)]++;
    }
    return true;
}

void sp_spread_add(sp_spread *spread, size_t row, const int64_t *durations, size_t count)
{
    part *p = &spread->parts[row - spread->first];
    if (p->count <= SP_SPREAD_KEPT) keep(spread, p, durations, count);
    else if (!count_all(spread, p, durations, count)) spread->failed = true;
}

/* ---- ranks ---- */

static void wanted_ranks(uint64_t count, uint64_t ranks[RANKS])
{
    for (size_t i = 0; i < SP_PERCENTILE_COUNT; i++) {
        const uint64_t below = (uint64_t)(sp_percentile_ranks[i] / 100.0 * (double)(count - 1));
        ranks[2 * i] = below;
        ranks[2 * i + 1] = below + 1 < count ? below + 1 : below;
    }
}

/* The bin of the first pass that holds the rank-th duration. */
static target find_bin(const sp_spread *spread, const part *p, uint64_t rank)
{
    const size_t limit = (size_t)1 << spread->limit_bits, sub = (size_t)1 << spread->sub_bits;
    for (size_t value = 0; value < limit; value++) {
        if (rank < p->exact[value]) return (target){.low = value};
        rank -= p->exact[value];
    }
    for (unsigned octave = spread->limit_bits; octave < OCTAVES; octave++) {
        const uint64_t *bins = p->octaves[octave];
        for (size_t i = 0; bins && i < sub; i++) {
            const unsigned bits = octave - spread->sub_bits;
            if (rank < bins[i]) return (target){.low = (uint64_t)(sub + i) << bits, .bits = bits, .rank = rank};
            rank -= bins[i];
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
static bool open_targets(part *p)
{
    p->open = false;
    for (size_t i = 0; i < RANKS; i++) {
        target *t = &p->targets[i];
        if (t->bits == 0) continue;
        p->open = true;
        for (size_t k = 0; k < i && t->fine == NULL; k++) {
            const target *other = &p->targets[k];
            if (other->fine && other->low == t->low && other->bits == t->bits) t->fine = other->fine;
        }
        if (t->fine) continue;
        t->fine = calloc(FINE, sizeof *t->fine);
        if (t->fine == NULL) return false;
        t->owner = true;
    }
    return true;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool close_part(const sp_spread *spread, part *p)
{
    uint64_t ranks[RANKS];
    wanted_ranks(p->count, ranks);
    if (p->kept) {
        qsort(p->kept, p->count, sizeof *p->kept, compare);
        for (size_t i = 0; i < RANKS; i++) p->targets[i] = (target){.low = (uint64_t)p->kept[ranks[i]]};
        free(p->kept);
        p->kept = NULL;
        return true;
    }
    if (p->exact) {
        for (size_t i = 0; i < RANKS; i++) p->targets[i] = find_bin(spread, p, ranks[i]);
        free_bins(p);
    } else if (p->open) {
        for (size_t i = 0; i < RANKS; i++) {
            if (p->targets[i].fine) narrow(&p->targets[i]);
        }
        free_fine(p);
    }
    return open_targets(p);
}

sp_status sp_spread_close(sp_spread *spread, bool *again)
{
    *again = false;
    for (size_t i = 0; i < spread->count && !spread->failed; i++) {
        part *p = &spread->parts[i];
        if (p->count == 0) continue;
        if (!close_part(spread, p)) spread->failed = true;
        *again = *again || p->open;
    }
    return spread->failed ? SP_ERR_NO_MEMORY : SP_OK;
}

bool sp_spread_wants(const sp_spread *spread, size_t row)
{
    return row >= spread->first && row - spread->first < spread->count && spread->parts[row - spread->first].open;
}

void sp_spread_add_again(sp_spread *spread, size_t row, int64_t duration)
{
    part *p = &spread->parts[row - spread->first];
    for (size_t i = 0; i < RANKS; i++) {
        target *t = &p->targets[i];
        const uint64_t offset = (uint64_t)duration - t->low;
        if (t->owner && offset >> t->bits == 0) t->fine[offset >> fine_shift(t)]++;
    }
}

void sp_spread_get(const sp_spread *spread, size_t row, double out[SP_PERCENTILE_COUNT])
{
    const part *p = &spread->parts[row - spread->first];
    for (size_t i = 0; i < SP_PERCENTILE_COUNT; i++) {
        out[i] = 0;
        if (p->count == 0) continue;
        const double position = sp_percentile_ranks[i] / 100.0 * (double)(p->count - 1);
        const double share = position - (double)(uint64_t)position;
        out[i] = sp_percentile_between((double)p->targets[2 * i].low, (double)p->targets[2 * i + 1].low, share);
    }
}
