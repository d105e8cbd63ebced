/* Sums by call path in C: what Python cannot reach - summaries that a file stores, damage, and memory that runs out. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/path_summary.h"
#include "analysis/percentile.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

typedef struct interval {
    const char *name;
    uint32_t rank;
    int64_t start, end, thread;
} interval;

static uint32_t name_index(sp_profile *profile, const char *name)
{
    for (size_t i = 0; i < profile->name_count; i++) {
        if (strcmp(profile->names[i], name) == 0) return (uint32_t)i;
    }
    profile->names = realloc(profile->names, (profile->name_count + 1) * sizeof *profile->names);
    profile->names[profile->name_count] = strdup(name);
    return (uint32_t)profile->name_count++;
}

/* Calls sorted by rank and name make the rows; names are numbered as they come. */
static sp_profile *profile_of(const interval *calls, size_t count)
{
    sp_profile *profile = sp_profile_new();
    profile->call_count = count;
    profile->nested = true;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (c != SP_COLUMN_START && c != SP_COLUMN_END && c != SP_COLUMN_THREAD) continue;
        profile->columns[c] = sp_column_alloc(count);
    }
    profile->rows = calloc(count, sizeof *profile->rows);
    for (size_t i = 0; i < count; i++) {
        profile->columns[SP_COLUMN_START][i] = calls[i].start;
        profile->columns[SP_COLUMN_END][i] = calls[i].end;
        profile->columns[SP_COLUMN_THREAD][i] = calls[i].thread;
        const uint32_t name = name_index(profile, calls[i].name);
        sp_row *row = profile->row_count ? &profile->rows[profile->row_count - 1] : NULL;
        if (row == NULL || row->name != name || row->rank != calls[i].rank) {
            row = &profile->rows[profile->row_count++];
            *row = (sp_row){.name = name, .rank = calls[i].rank, .first = i, .source_line = -1, .exclusive_total = -1};
        }
        row->count++;
    }
    return profile;
}

/* main (0..100) with a (10..40) with x (15..35) with a (20..30), and a (50..60); on rank 1 main (0..50) with a (5..15) */
static const interval some[] = {
    {"main", 0, 0, 100, 0}, {"a", 0, 10, 40, 0}, {"a", 0, 20, 30, 0}, {"a", 0, 50, 60, 0}, {"x", 0, 15, 35, 0},
    {"main", 1, 0, 50, 0},  {"a", 1, 5, 15, 0},
};

/* The same run as a summary without its calls: the paths stored as a file stores them. */
static sp_profile *stored_of(const sp_profile *whole)
{
    sp_profile *profile = sp_profile_new();
    for (size_t i = 0; i < whole->name_count; i++) name_index(profile, whole->names[i]);
    profile->summary_only = true;
    assert_int_equal(sp_path_summary_make(whole, NULL, &profile->stored_paths, NULL), SP_OK);
    return profile;
}

static const sp_path_row *row_at(const sp_path_summary *summary, const sp_profile *profile, uint32_t rank,
                                 const char *const *path, size_t depth)
{
    for (size_t r = 0; r < summary->row_count; r++) {
        int64_t node = summary->rows[r].node;
        size_t level = depth;
        while (node >= 0 && level && strcmp(profile->names[summary->nodes[node].name], path[level - 1]) == 0) {
            node = summary->nodes[node].parent;
            level--;
        }
        if (node < 0 && level == 0 && summary->rows[r].rank == rank) return &summary->rows[r];
    }
    return NULL;
}

#define PATH(...) (const char *const[]){__VA_ARGS__}, LENGTH(((const char *const[]){__VA_ARGS__}))

static void assert_row(const sp_path_row *row, uint64_t count, int64_t inclusive, int64_t exclusive, bool recursive)
{
    assert_non_null(row);
    assert_int_equal(row->count, count);
    assert_int_equal(row->inclusive, inclusive);
    assert_int_equal(row->exclusive, exclusive);
    assert_int_equal(row->recursive, recursive);
}

static void a_stored_summary_gives_what_the_calls_gave(void **state)
{
    sp_profile *whole = profile_of(some, LENGTH(some)), *stored = stored_of(whole);
    sp_path_summary *a, *b;
    assert_int_equal(sp_path_summary_make(whole, NULL, &a, NULL), SP_OK);
    assert_int_equal(sp_path_summary_make(stored, NULL, &b, NULL), SP_OK);
    assert_int_equal(a->node_count, b->node_count);
    assert_memory_equal(a->nodes, b->nodes, a->node_count * sizeof *a->nodes);
    assert_int_equal(a->row_count, b->row_count);
    for (size_t i = 0; i < a->row_count; i++) {
        assert_row(&b->rows[i], a->rows[i].count, a->rows[i].inclusive, a->rows[i].exclusive, a->rows[i].recursive);
        assert_int_equal(a->rows[i].covered, b->rows[i].covered);
        assert_memory_equal(&a->rows[i].statistics, &b->rows[i].statistics, sizeof a->rows[i].statistics);
    }
    assert_int_equal(b->thread_count, 2);
    assert_int_equal(b->threads[0].covered, 100);
    assert_true(b->nested && !b->clamped);
    sp_path_summary_free(a);
    sp_path_summary_free(b);
    sp_profile_release(whole);
    sp_profile_release(stored);
}

static void regions_left_out_of_a_stored_summary_disappear_like_from_calls(void **state)
{
    sp_profile *whole = profile_of(some, LENGTH(some)), *stored = stored_of(whole);
    const bool visible[] = {true, true, false}; /* main, a, x */
    const sp_path_options options = {.visible = visible};
    const sp_profile *profiles[] = {whole, stored};
    for (size_t i = 0; i < 2; i++) {
        sp_path_summary *summary;
        assert_int_equal(sp_path_summary_make(profiles[i], &options, &summary, NULL), SP_OK);
        assert_int_equal(summary->node_count, 2);
        /* a's own time: 30 - 20 in x, 10 inside of x, 10 */
        const sp_path_row *a = row_at(summary, whole, 0, PATH("main", "a"));
        assert_row(a, 3, 40, 30, true);
        assert_int_equal(a->statistics.total, 50);
        assert_int_equal(a->statistics.minimum, 10);
        assert_int_equal(a->statistics.maximum, 30);
        assert_int_equal(a->statistics.first, 30);
        assert_int_equal(a->statistics.last, 10);
        assert_true(fabs(a->statistics.mean - 50.0 / 3) < 1e-9);
        assert_true(fabs(a->statistics.m2 - (1100 - 2500.0 / 3)) < 1e-6);
        assert_row(row_at(summary, whole, 1, PATH("main", "a")), 1, 10, 10, false);
        assert_int_equal(summary->thread_count, i == 0 ? 2 : 0); /* a file's threads are those of all regions */
        sp_path_summary_free(summary);
    }
    sp_profile_release(whole);
    sp_profile_release(stored);
}

static void ranks_of_a_stored_summary_are_chosen(void **state)
{
    sp_profile *whole = profile_of(some, LENGTH(some)), *stored = stored_of(whole);
    const uint32_t ranks[] = {1};
    const sp_path_options options = {.ranks = ranks, .rank_count = 1};
    sp_path_summary *summary;
    assert_int_equal(sp_path_summary_make(stored, &options, &summary, NULL), SP_OK);
    assert_int_equal(summary->row_count, 2);
    assert_int_equal(summary->node_count, 2); /* no path that only other ranks have */
    assert_row(row_at(summary, whole, 1, PATH("main")), 1, 50, 40, false);
    assert_int_equal(summary->thread_count, 1);
    sp_path_summary_free(summary);
    sp_profile_release(whole);
    sp_profile_release(stored);
}

static void a_damaged_stored_summary_is_refused(void **state)
{
    for (int damage = 0; damage < 3; damage++) {
        sp_profile *whole = profile_of(some, LENGTH(some)), *stored = stored_of(whole);
        sp_path_summary *paths = stored->stored_paths;
        if (damage == 0) paths->nodes[1].parent = 1;
        if (damage == 1) paths->nodes[1].name = 77;
        if (damage == 2) paths->rows[1].node = 77;
        sp_path_summary *summary;
        sp_error error;
        assert_int_equal(sp_path_summary_make(stored, NULL, &summary, &error), SP_ERR_CORRUPT);
        assert_null(summary);
        assert_non_null(strstr(error.message, "damaged"));
        sp_profile_release(whole);
        sp_profile_release(stored);
    }
}

static void calls_without_length_and_before_zero_are_counted(void **state)
{
    const interval calls[] = {{"a", 0, -10, 0, 0}, {"z", 0, -10, -10, 0}, {"z", 0, -5, -5, 0}};
    sp_profile *profile = profile_of(calls, LENGTH(calls));
    sp_path_summary *summary;
    assert_int_equal(sp_path_summary_make(profile, NULL, &summary, NULL), SP_OK);
    assert_row(row_at(summary, profile, 0, PATH("a")), 1, 10, 10, false);
    const sp_path_row *z = row_at(summary, profile, 0, PATH("a", "z"));
    assert_row(z, 2, 0, 0, false);
    assert_int_equal(z->covered, 0);
    assert_int_equal(z->statistics.start_minimum, -10);
    sp_path_summary_free(summary);
    sp_profile_release(profile);
}

static void deviations_of_long_calls_are_exact(void **state)
{
    const interval calls[] = {{"a", 0, 0, INT64_C(1) << 60, 0}, {"a", 0, 0, INT64_C(1) << 61, 1}};
    sp_profile *profile = profile_of(calls, LENGTH(calls));
    sp_path_summary *summary;
    assert_int_equal(sp_path_summary_make(profile, NULL, &summary, NULL), SP_OK);
    assert_true(summary->rows[0].statistics.m2 == ldexp(1, 119)); /* 2 * (2^59)^2 */
    assert_true(summary->rows[0].statistics.mean == ldexp(1.5, 60));
    sp_path_summary_free(summary);
    sp_profile_release(profile);
}

static void times_that_no_clock_gives_do_no_harm(void **state)
{
    interval calls[20];
    for (size_t i = 0; i < LENGTH(calls); i++) calls[i] = (interval){"a", 0, INT64_MIN, INT64_MAX, (int64_t)i};
    calls[19].thread = INT64_MAX;
    sp_profile *profile = profile_of(calls, LENGTH(calls));
    const double percentiles[] = {50};
    const sp_path_options options = {.percentiles = percentiles, .percentile_count = 1};
    sp_path_summary *summary;
    assert_int_equal(sp_path_summary_make(profile, &options, &summary, NULL), SP_OK);
    assert_int_equal(summary->rows[0].count, 20);
    assert_int_equal(summary->thread_count, 20);
    sp_path_summary_free(summary);
    sp_profile_release(profile);
}

static void memory_that_runs_out_anywhere_is_an_error_and_leaks_nothing(void **state)
{
    const double percentiles[] = {50, 99};
    const sp_path_options options = {.percentiles = percentiles, .percentile_count = 2};
    interval overlapping[] = {{"a", 0, 0, 10, -1}, {"b", 0, 5, 15, -1}};
    sp_profile *profiles[3] = {profile_of(some, LENGTH(some)), profile_of(overlapping, LENGTH(overlapping))};
    profiles[2] = stored_of(profiles[0]);
    for (size_t p = 0; p < LENGTH(profiles); p++) {
        int64_t failures = 0;
        for (int all = 0; all < 2; all++) {
            for (int64_t n = 0;; n++) {
                sp_path_summary *summary;
                sp_error error;
                const int64_t before = memory_blocks();
                memory_fail(n, all);
                const sp_status status = sp_path_summary_make(profiles[p], &options, &summary, &error);
                const bool reached = memory_requests() > n;
                memory_fail(-1, false);
                if (!reached) {
                    assert_int_equal(status, SP_OK);
                    sp_path_summary_free(summary);
                    break;
                }
                if (status != SP_OK) {
                    assert_int_equal(status, SP_ERR_NO_MEMORY);
                    assert_null(summary);
                    failures++;
                } else {
                    sp_path_summary_free(summary); /* done without: qsort, for one, sorts in place then */
                }
                assert_int_equal(memory_blocks(), before);
            }
        }
        assert_true(failures > 4);
        sp_profile_release(profiles[p]);
    }
}

static void percentiles_interpolate(void **state)
{
    int64_t values[] = {80, 10, 40, 20};
    const double ranks[] = {0, 50, 95, 100};
    double out[4];
    sp_percentiles(values, LENGTH(values), ranks, LENGTH(ranks), out);
    assert_true(out[0] == 10 && out[1] == 30 && fabs(out[2] - 74) < 1e-9 && out[3] == 80);
    const double descending[] = {100, 0};
    sp_percentiles(values, LENGTH(values), descending, 2, out);
    assert_true(out[0] == 80 && out[1] == 10);
    sp_percentiles(NULL, 0, ranks, 1, out);
    assert_true(out[0] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stored_summary_gives_what_the_calls_gave),
        cmocka_unit_test(regions_left_out_of_a_stored_summary_disappear_like_from_calls),
        cmocka_unit_test(ranks_of_a_stored_summary_are_chosen),
        cmocka_unit_test(a_damaged_stored_summary_is_refused),
        cmocka_unit_test(calls_without_length_and_before_zero_are_counted),
        cmocka_unit_test(deviations_of_long_calls_are_exact),
        cmocka_unit_test(times_that_no_clock_gives_do_no_harm),
        cmocka_unit_test(memory_that_runs_out_anywhere_is_an_error_and_leaks_nothing),
        cmocka_unit_test(percentiles_interpolate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
