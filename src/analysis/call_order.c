#include "analysis/call_order.h"

#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 11 /* 2048 counters: the write streams of a pass still fit into the second-level cache */
#define PASSES_MAX 5 /* 2^12 calls leave 52 bits for the key; fewer calls have narrower digits */
#define SMALL 24 /* below this, insertion sort */

sp_status sp_call_index_make(sp_call_index *index, const sp_calls *regions, size_t region_count, sp_error *error)
{
    *index = (sp_call_index){.regions = regions};
    uint64_t count = 0;
    size_t used = 0;
    for (size_t r = 0; r < region_count; r++) {
        count += regions[r].count;
        used += regions[r].count > 0;
        if (count > SP_CALLS_MAX) {
            return sp_fail(error, SP_ERR_UNSUPPORTED, "more than %u calls in one rank", (unsigned)SP_CALLS_MAX);
        }
    }
    index->count = (uint32_t)count;
    index->region = malloc((used + 1) * sizeof *index->region);
    index->base = malloc((used + 1) * sizeof *index->base);
    index->block = malloc((count / 64 + 1) * sizeof *index->block);
    if (!index->region || !index->base || !index->block) {
        sp_call_index_free(index);
        return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %llu calls", (unsigned long long)count);
    }
    uint64_t base = 0, block = 0;
    for (size_t r = 0; r < region_count; r++) {
        if (regions[r].count == 0) continue;
        index->region[index->used] = (uint32_t)r;
        index->base[index->used] = (uint32_t)base;
        base += regions[r].count;
        for (; block * 64 < base; block++) index->block[block] = index->used;
        index->used++;
    }
    index->base[index->used] = (uint32_t)base;
    return SP_OK;
}

void sp_call_index_free(sp_call_index *index)
{
    free(index->region);
    free(index->base);
    free(index->block);
    *index = (sp_call_index){0};
}

typedef enum key_kind { BY_START, BY_END } key_kind;

typedef struct sorter {
    const sp_call_index *index;
    uint64_t *a, *b; /* a holds the entries, b is scratch */
    unsigned index_bits;
    uint64_t mask;
} sorter;

static unsigned bit_width(uint64_t value)
{
    return value ? 64u - (unsigned)__builtin_clzll(value) : 0;
}

static int64_t time_of(const sp_call_index *index, uint32_t call, key_kind kind)
{
    const uint32_t used = sp_call_index_find(index, call);
    const sp_calls *calls = &index->regions[index->region[used]];
    const uint32_t own = call - index->base[used];
    return kind == BY_START ? calls->start_ns[own] : calls->end_ns[own];
}

/* Distance from the value that comes first. Unsigned, so that the extremes of int64 are no overflow. */
static uint64_t key_of(int64_t value, int64_t origin, key_kind kind)
{
    return kind == BY_START ? (uint64_t)value - (uint64_t)origin : (uint64_t)origin - (uint64_t)value;
}

/* Input order needs no comparison: it is the index, and the index is in the word. */
static bool comes_before(const sorter *s, uint64_t x, uint64_t y)
{
    const uint32_t i = (uint32_t)(x & s->mask), j = (uint32_t)(y & s->mask);
    const int64_t start_i = time_of(s->index, i, BY_START), start_j = time_of(s->index, j, BY_START);
    if (start_i != start_j) return start_i < start_j;
    const int64_t end_i = time_of(s->index, i, BY_END), end_j = time_of(s->index, j, BY_END);
    if (end_i != end_j) return end_i > end_j;
    return i < j;
}

static void insertion_sort(const sorter *s, uint64_t *entries, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++) {
        const uint64_t entry = entries[i];
        uint64_t at = i;
        for (; at > 0 && comes_before(s, entry, entries[at - 1]); at--) entries[at] = entries[at - 1];
        entries[at] = entry;
    }
}

/*
 * Sort `count` words from *from to *to by the `bits` bits above the index, the lowest digit first. Returns with the
 * result in *from: the pointers are swapped after every pass.
 */
static void radix_sort(uint64_t **from, uint64_t **to, uint64_t count, unsigned low_bit, unsigned bits)
{
    const unsigned digit_limit = count < 4096 ? 8 : DIGIT_BITS;
    const unsigned passes = (bits + digit_limit - 1) / digit_limit;
    const unsigned width = (bits + passes - 1) / passes;
    const uint32_t digit_mask = (1u << width) - 1;
    uint32_t counts[PASSES_MAX << DIGIT_BITS];
    memset(counts, 0, ((size_t)passes << width) * sizeof *counts);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t key = (*from)[i] >> low_bit;
        for (unsigned p = 0; p < passes; p++, key >>= width) counts[(p << width) + (key & digit_mask)]++;
    }
    for (unsigned p = 0; p < passes; p++) {
        uint32_t *const count_of = counts + (p << width);
        const unsigned shift = low_bit + p * width;
        if (count_of[(*from)[0] >> shift & digit_mask] == count) continue; /* all words share this digit */
        uint32_t position = 0;
        for (uint32_t d = 0; d <= digit_mask; d++) {
            const uint32_t size = count_of[d];
            count_of[d] = position;
            position += size;
        }
        const uint64_t *const source = *from;
        uint64_t *const target = *to;
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t entry = source[i];
            target[count_of[entry >> shift & digit_mask]++] = entry;
        }
        *from = target;
        *to = (uint64_t *)source;
    }
}

/*
 * Merging: a step waits for the one before it, which has to tell where the next words are. So the result is cut into as many parts of one
 * length as the processor can work on side by side.
 */
#define PARTS 4
#define RUNS_MAX 256 /* eight rounds; sorting anew costs more up to here */

/* A part of a merge: words of two runs, both ascending, into one. */
typedef struct part {
    const uint64_t *a, *a_end, *b, *b_end;
    uint64_t *out;
} part;

static inline void merge_steps(part *parts, const size_t count, uint64_t steps)
{
    for (; steps > 0; steps--) {
        for (size_t i = 0; i < count; i++) {
            part *p = &parts[i];
            const uint64_t x = *p->a, y = *p->b;
            const bool first = x < y;
            *p->out++ = first ? x : y;
            p->a += first;
            p->b += !first;
        }
    }
}

/* Steps in which no run of the part can end. */
static uint64_t safe_steps(const part *p)
{
    const uint64_t a = (uint64_t)(p->a_end - p->a), b = (uint64_t)(p->b_end - p->b);
    return a < b ? a : b;
}

/* How many of the first `count` words of the merged runs are of the first run. */
static uint64_t cut_at(const uint64_t *a, uint64_t a_count, const uint64_t *b, uint64_t b_count, uint64_t count)
{
    uint64_t low = count > b_count ? count - b_count : 0, high = count < a_count ? count : a_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (a[middle] < b[count - middle - 1]) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void merge(const uint64_t *a, uint64_t a_count, const uint64_t *b, uint64_t b_count, uint64_t *out)
{
    part parts[PARTS];
    const uint64_t count = a_count + b_count;
    uint64_t at = 0, a_at = 0;
    for (size_t i = 0; i < PARTS; i++) {
        const uint64_t end = count * (i + 1) / PARTS, a_end = cut_at(a, a_count, b, b_count, end);
        parts[i] = (part){.a = a + a_at, .a_end = a + a_end, .b = b + (at - a_at), .b_end = b + (end - a_end), .out = out + at};
        at = end;
        a_at = a_end;
    }
    for (uint64_t steps = 1; steps > 0;) {
        steps = safe_steps(&parts[0]);
        for (size_t i = 1; i < PARTS; i++) {
            const uint64_t own = safe_steps(&parts[i]);
            if (own < steps) steps = own;
        }
        merge_steps(parts, PARTS, steps);
    }
    for (part *p = parts; p < parts + PARTS; p++) {
        for (uint64_t steps; (steps = safe_steps(p)) > 0;) merge_steps(p, 1, steps);
        memcpy(p->out, p->a, (size_t)(p->a_end - p->a) * sizeof *p->a);
        memcpy(p->out + (p->a_end - p->a), p->b, (size_t)(p->b_end - p->b) * sizeof *p->b);
    }
}

/* Merge the runs that begin at runs[0 .. count) and end with runs[count], in pairs, then those in pairs ... From *from to *to, as radix_sort. */
static void merge_runs(uint64_t **from, uint64_t **to, uint32_t *runs, uint32_t count)
{
    while (count > 1) {
        uint64_t *const source = *from, *const target = *to;
        uint32_t merged = 0;
        for (uint32_t i = 0; i < count; i += 2) {
            const uint32_t first = runs[i], middle = runs[i + 1], last = runs[i + 2 <= count ? i + 2 : count];
            if (middle == last) memcpy(target + first, source + first, (size_t)(last - first) * sizeof *target);
            else merge(source + first, middle - first, source + middle, last - middle, target + first);
            runs[merged++] = first;
        }
        runs[merged] = runs[count];
        count = merged;
        *from = target;
        *to = source;
    }
}

static void sort_range(sorter *s, uint64_t first, uint64_t count, key_kind kind);

/* What the radix sort left equal: starts that lost their low bits, or calls that start together. */
static void sort_groups(sorter *s, uint64_t first, uint64_t count, bool cut, key_kind kind)
{
    if (!cut && kind == BY_END) return; /* identical intervals: the index has ordered them */
    const uint64_t *const a = s->a;
    const unsigned bits = s->index_bits;
    for (uint64_t i = first, last = first + count; i + 1 < last; i++) {
        if (a[i] >> bits != a[i + 1] >> bits) continue;
        uint64_t end = i + 2;
        while (end < last && a[end] >> bits == a[i] >> bits) end++;
        sort_range(s, i, end - i, cut ? kind : BY_END);
        i = end - 1;
    }
}

/* Order a[first .. first + count), whose words hold indices in ascending order, by one kind of key. */
static void sort_range(sorter *s, uint64_t first, uint64_t count, key_kind kind)
{
    uint64_t *from = s->a + first, *to = s->b + first;
    if (count <= SMALL) {
        insertion_sort(s, from, count);
        return;
    }
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint64_t i = 0; i < count; i++) {
        const int64_t value = time_of(s->index, (uint32_t)(from[i] & s->mask), kind);
        if (value < low) low = value;
        if (value > high) high = value;
    }
    if (low == high) {
        if (kind == BY_START) sort_range(s, first, count, BY_END);
        return;
    }
    const int64_t origin = kind == BY_START ? low : high;
    const unsigned width = bit_width((uint64_t)high - (uint64_t)low);
    const unsigned room = 64 - s->index_bits;
    const unsigned cut = width > room ? width - room : 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t call = from[i] & s->mask;
        from[i] = key_of(time_of(s->index, (uint32_t)call, kind), origin, kind) >> cut << s->index_bits | call;
    }
    radix_sort(&from, &to, count, s->index_bits, width - cut);
    if (from != s->a + first) memcpy(s->a + first, from, count * sizeof *from);
    sort_groups(s, first, count, cut > 0, kind);
}

typedef struct survey {
    bool ordered;
    bool ascending;    /* the starts of each region are */
    int64_t low, high; /* of the starts */
} survey;

static survey look(const sp_call_index *index)
{
    survey seen = {.ordered = true, .ascending = true, .low = INT64_MAX, .high = INT64_MIN};
    int64_t last_start = INT64_MIN, last_end = INT64_MAX;
    for (uint32_t used = 0; used < index->used; used++) {
        const sp_calls *calls = &index->regions[index->region[used]];
        bool ordered = true, ascending = true;
        int64_t before = calls->start_ns[0];
        for (uint64_t i = 0; i < calls->count; i++) {
            const int64_t start = calls->start_ns[i], end = calls->end_ns[i];
            ascending &= start >= before;
            before = start;
            if (start < seen.low) seen.low = start;
            if (start > seen.high) seen.high = start;
            ordered &= (start > last_start) | ((start == last_start) & (end <= last_end));
            last_start = start;
            last_end = end;
        }
        seen.ordered &= ordered;
        seen.ascending &= ascending;
    }
    return seen;
}

static bool fill_turns(const sp_call_index *index, sp_turn *turns, int64_t *first_id)
{
    if (index->used >= SP_NO_TURN) return false;
    int64_t low = INT64_MAX;
    for (uint32_t used = 0; used < index->used; used++) {
        const int64_t *id = index->regions[index->region[used]].id;
        if (id == NULL) return false;
        if (id[0] < low) low = id[0];
    }
    *first_id = low;
    memset(turns, 0xff, (size_t)index->count * sizeof *turns);
    for (uint32_t used = 0; used < index->used; used++) {
        const sp_calls *calls = &index->regions[index->region[used]];
        uint64_t next = 0;
        for (uint64_t i = 0; i < calls->count; i++) {
            const uint64_t place = (uint64_t)calls->id[i] - (uint64_t)low;
            if (place < next || place >= index->count) return false;
            turns[place] = (sp_turn)used;
            next = place + 1;
        }
    }
    return true;
}

bool sp_call_turns_make(sp_call_turns *walk, const sp_call_index *index, sp_turn *turns)
{
    *walk = (sp_call_turns){.index = index, .turns = turns};
    if (!fill_turns(index, turns, &walk->first_id)) return false;
    /* An id that is given twice leaves another's place without a turn: no region has more turns than calls. */
    walk->queues = malloc((index->used + 1) * sizeof *walk->queues);
    if (walk->queues == NULL) return false;
    for (uint32_t used = 0; used < index->used; used++) {
        const sp_calls *calls = &index->regions[index->region[used]];
        walk->queues[used] = (struct sp_call_queue){calls->start_ns, calls->end_ns, 0, index->region[used]};
    }
    return true;
}

void sp_call_turns_free(sp_call_turns *walk)
{
    free(walk->queues);
    walk->queues = NULL;
}

void sp_call_order_sort(const sp_call_index *index, uint64_t *a, uint64_t *b, sp_call_order *order)
{
    *order = (sp_call_order){0};
    const survey seen = look(index);
    if (seen.ordered) return;
    const uint64_t count = index->count;
    const unsigned index_bits = bit_width(count - 1);
    sorter s = {.index = index, .a = a, .b = b, .index_bits = index_bits, .mask = (UINT64_C(1) << index_bits) - 1};
    const unsigned width = bit_width((uint64_t)seen.high - (uint64_t)seen.low);
    const unsigned room = 64 - index_bits;
    const unsigned cut = width > room ? width - room : 0;
    uint64_t call = 0;
    for (uint32_t used = 0; used < index->used; used++) {
        const sp_calls *calls = &index->regions[index->region[used]];
        for (uint64_t i = 0; i < calls->count; i++, call++) {
            a[call] = key_of(calls->start_ns[i], seen.low, BY_START) >> cut << index_bits | call;
        }
    }
    if (seen.ascending && index->used <= RUNS_MAX) {
        uint32_t runs[RUNS_MAX + 1];
        memcpy(runs, index->base, (index->used + 1) * sizeof *runs);
        merge_runs(&s.a, &s.b, runs, index->used);
    } else if (width > 0) {
        radix_sort(&s.a, &s.b, count, index_bits, width - cut);
    }
    sort_groups(&s, 0, count, cut > 0, BY_START);
    *order = (sp_call_order){.entries = s.a, .mask = s.mask};
}
