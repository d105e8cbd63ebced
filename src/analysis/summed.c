#include "analysis/summed.h"

#include <stdlib.h>

#include "analysis/collect.h"

/* Sum of squared deviations from the mean, ticks squared: n * sum(d^2) - sum(d)^2 is exact in integers, or in doubles where it is not small. */
static double deviations(const sp_summed *sum)
{
    unsigned __int128 scaled, square, difference;
    if (sum->count == 0) return 0.0;
    const bool exact = !__builtin_mul_overflow(sum->squares, (unsigned __int128)sum->count, &scaled) &&
        !__builtin_mul_overflow((unsigned __int128)sum->total, (unsigned __int128)sum->total, &square) &&
        !__builtin_sub_overflow(scaled, square, &difference);
    if (exact) return (double)difference / (double)sum->count;
    const double mean = (double)sum->total / (double)sum->count;
    const double about = (double)sum->squares - mean * (double)sum->total;
    return about > 0.0 ? about : 0.0;
}

typedef struct converting {
    sp_timeline_cursor cursor;
    const sp_timeline *timeline;
    double rate; /* ns a tick */
} converting;

static int64_t to_ns(const converting *c, uint64_t ticks)
{
    return c->rate == 1.0 ? (int64_t)ticks : (int64_t)((long double)ticks * (long double)c->rate + 0.5L);
}

/* Over the whole run: sums are of calls from all of it. */
static double rate_of(const sp_timeline *timeline)
{
    if (timeline->count < 2) return 1.0;
    const sp_anchor first = timeline->anchors[0], last = timeline->anchors[timeline->count - 1];
    return last.ticks > first.ticks ? (double)(last.ns - first.ns) / (double)(last.ticks - first.ticks) : 1.0;
}

static void fill(sp_row *row, const sp_summed *sum, converting *c)
{
    const double rate = c->rate;
    row->has_aggregate = row->has_statistics = true;
    row->aggregate_count = sum->count;
    row->aggregate_total = to_ns(c, sum->total);
    row->aggregate_minimum = to_ns(c, sum->minimum);
    row->aggregate_maximum = to_ns(c, sum->maximum);
    row->aggregate_exclusive = row->exclusive_total = to_ns(c, sum->own);
    row->statistics = (sp_row_statistics){
        .total = row->aggregate_total, .minimum = row->aggregate_minimum, .maximum = row->aggregate_maximum,
        .first = to_ns(c, sum->first), .last = to_ns(c, sum->last),
        .start_minimum = sp_timeline_to_ns(&c->cursor, sum->first_start),
        .end_maximum = sp_timeline_to_ns(&c->cursor, sum->last_end),
        .mean = (double)sum->total * rate / (double)sum->count,
        .m2 = deviations(sum) * rate * rate};
}

static bool row_new(sp_profile *profile, const sp_region_info *region, uint32_t rank, const sp_summed *sum, converting *c)
{
    sp_row *row = &profile->rows[profile->row_count++];
    row->name = (uint32_t)profile->name_count;
    row->rank = rank;
    row->source_line = region->source_line;
    row->source_file = sp_text_copy(region->source_file);
    row->source_text = sp_text_copy(region->source_text);
    row->tags = sp_text_copy(region->tags);
    profile->names[profile->name_count] = sp_text_copy(region->name);
    fill(row, sum, c);
    if (profile->names[profile->name_count] == NULL) return false;
    profile->name_count++;
    return (!region->source_file || row->source_file) && (!region->source_text || row->source_text) &&
        (!region->tags || row->tags);
}

sp_status sp_summed_profile(sp_run *run, uint32_t rank, const sp_summed *sums, size_t count, sp_profile **out, sp_error *error)
{
    sp_profile *profile = sp_profile_new();
    if (profile == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the totals of the run");
    profile->aggregate = profile->nested = true;
    profile->rows = calloc(count + 1, sizeof *profile->rows);
    profile->names = calloc(count + 1, sizeof *profile->names);
    bool made = profile->rows && profile->names;
    pthread_mutex_lock(&run->lock);
    converting c = {.cursor = {.timeline = &run->timeline}, .timeline = &run->timeline, .rate = rate_of(&run->timeline)};
    for (size_t id = 0; id < count && made; id++) {
        if (sums[id].count) made = row_new(profile, run->regions[id], rank, &sums[id], &c);
    }
    pthread_mutex_unlock(&run->lock);
    sp_status status = made ? sp_run_tables(run, rank, profile, error) : sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the totals of the run");
    if (status == SP_OK) *out = profile;
    else sp_profile_release(profile);
    return status;
}

sp_status sp_run_collect_totals(sp_run *run, uint32_t rank, sp_profile **out, sp_error *error)
{
    sp_summed *sums = NULL;
    size_t count = 0;
    pthread_mutex_lock(&run->collecting);
    sp_fork_hold_first();
    sp_status status = sp_run_take_totals(run, &sums, &count, error);
    if (status == SP_OK) status = sp_summed_profile(run, rank, sums, count, out, error);
    if (status != SP_OK && sums) sp_run_give_back(run, sums, count);
    else free(sums);
    sp_fork_release();
    pthread_mutex_unlock(&run->collecting);
    return status;
}
