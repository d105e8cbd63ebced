/* Profiles in memory: life, copies, metadata; statistics and percentiles of rows against slow, obvious ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "analysis/profile.h"

static sp_profile *profile_of(const int64_t *durations, uint64_t count)
{
    sp_profile *profile = sp_profile_new();
    assert_non_null(profile);
    profile->call_count = count;
    profile->columns[SP_COLUMN_START] = sp_column_alloc(count);
    profile->columns[SP_COLUMN_END] = sp_column_alloc(count);
    for (uint64_t i = 0; i < count; i++) {
        profile->columns[SP_COLUMN_START][i] = 1000 + (int64_t)i;
        profile->columns[SP_COLUMN_END][i] = 1000 + (int64_t)i + durations[i];
    }
    profile->rows = calloc(1, sizeof *profile->rows);
    profile->row_count = 1;
    profile->rows[0].count = count;
    return profile;
}

static void statistics_are_those_of_the_calls(void **state)
{
    const int64_t durations[] = {5, 30, 10, 3};
    sp_profile *profile = profile_of(durations, 4);
    sp_row_statistics s;
    sp_row_statistics_compute(profile, &profile->rows[0], &s);
    assert_int_equal(s.total, 48);
    assert_int_equal(s.minimum, 3);
    assert_int_equal(s.maximum, 30);
    assert_int_equal(s.first, 5);
    assert_int_equal(s.last, 3);
    assert_int_equal(s.start_minimum, 1000);
    assert_int_equal(s.end_maximum, 1031);
    assert_int_equal(s.gpu_count, 0);
    assert_true(s.mean == 12.0);
    assert_true(s.m2 == 49.0 + 324.0 + 4.0 + 81.0);
    profile->columns[SP_COLUMN_GPU] = sp_column_alloc(4);
    memcpy(profile->columns[SP_COLUMN_GPU], (int64_t[]){-1, 7, 0, -1}, 4 * sizeof(int64_t));
    sp_row_statistics_compute(profile, &profile->rows[0], &s);
    assert_int_equal(s.gpu_count, 2);
    assert_int_equal(s.gpu_total, 7);
    profile->rows[0].count = 0;
    sp_row_statistics_compute(profile, &profile->rows[0], &s);
    assert_int_equal(s.total, 0);
    assert_int_equal(s.minimum, 0);
    sp_profile_release(profile);
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* By the definition: sort, and interpolate between neighbours. */
static double slow_percentile(const int64_t *sorted, uint64_t count, double rank)
{
    const double position = rank / 100.0 * (double)(count - 1);
    const uint64_t below = (uint64_t)floor(position), above = (uint64_t)ceil(position);
    return (double)sorted[below] + (position - (double)below) * (double)(sorted[above] - sorted[below]);
}

static uint64_t random_state = 12345;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Durations of many shapes: few values, long tails, equal ones, huge ones. */
static int64_t random_duration(int shape)
{
    switch (shape) {
    case 0: return (int64_t)(random_number() % 10);
    case 1: return (int64_t)(1000 + random_number() % 100);
    case 2: return (int64_t)(random_number() >> (8 + random_number() % 56)); /* from ns to years */
    case 3: return 42;
    case 4: return random_number() % 1000 ? 2000 : INT64_C(3000000000);
    default: return (int64_t)(random_number() >> 2);
    }
}

static void percentiles_are_those_of_the_sorted_calls(void **state)
{
    static const double ranks[] = {0, 1, 25, 50, 75, 95, 99, 99.9, 100};
    static const uint64_t counts[] = {1, 2, 3, 100, 4096, 4097, 50000};
    const size_t rank_count = sizeof ranks / sizeof *ranks;
    for (int shape = 0; shape < 6; shape++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const uint64_t count = counts[c];
            int64_t *durations = malloc(count * sizeof *durations);
            for (uint64_t i = 0; i < count; i++) durations[i] = random_duration(shape);
            sp_profile *profile = profile_of(durations, count);
            double found[9];
            assert_int_equal(sp_row_percentiles_compute(profile, &profile->rows[0], ranks, rank_count, found), SP_OK);
            qsort(durations, count, sizeof *durations, compare);
            for (size_t r = 0; r < rank_count; r++) {
                const double expected = slow_percentile(durations, count, ranks[r]);
                assert_true(fabs(found[r] - expected) <= 1e-12 * fabs(expected));
            }
            sp_profile_release(profile);
            free(durations);
        }
    }
}

static void a_row_without_calls_has_percentiles_of_zero(void **state)
{
    sp_profile *profile = profile_of((int64_t[]){5}, 1);
    double found = 1;
    profile->rows[0].count = 0;
    assert_int_equal(sp_row_percentiles_compute(profile, &profile->rows[0], sp_percentile_ranks, 1, &found), SP_OK);
    assert_true(found == 0);
    sp_profile_release(profile);
}

static void a_copy_shares_the_columns_and_outlives_the_original(void **state)
{
    sp_profile *profile = profile_of((int64_t[]){5, 6}, 2);
    profile->names = calloc(1, sizeof *profile->names);
    profile->names[0] = strdup("a");
    profile->name_count = 1;
    profile->rows[0].tags = strdup("[\"t\"]");
    assert_int_equal(sp_profile_set_int(profile, "n", 3), SP_OK);
    sp_profile *copy = sp_profile_copy(profile, true), *second = sp_profile_copy(copy, false);
    assert_ptr_equal(copy->columns[SP_COLUMN_END], profile->columns[SP_COLUMN_END]);
    assert_ptr_not_equal(copy->rows[0].tags, profile->rows[0].tags);
    assert_int_equal(sp_profile_set_int(copy, "n", 4), SP_OK);
    assert_int_equal(sp_profile_find_metadata(profile, "n")->integer, 3);
    sp_profile_release(profile);
    sp_profile_release(copy);
    assert_int_equal(second->columns[SP_COLUMN_END][1], 1007);
    assert_ptr_equal(second->columns[SP_COLUMN_START], second->owner->columns[SP_COLUMN_START]);
    assert_string_equal(second->rows[0].tags, "[\"t\"]");
    assert_string_equal(second->names[0], "a");
    sp_profile_release(second);
}

static void metadata_replace_what_has_the_same_key(void **state)
{
    sp_profile *profile = sp_profile_new();
    const char *list[] = {"x", "y"};
    assert_int_equal(sp_profile_set_strings(profile, "k", list, 2), SP_OK);
    assert_string_equal(sp_profile_find_metadata(profile, "k")->list[1], "y");
    assert_int_equal(sp_profile_set_string(profile, "k", "text"), SP_OK);
    assert_int_equal(sp_profile_set_float(profile, "f", 0.5), SP_OK);
    assert_int_equal(sp_profile_set_bool(profile, "b", true), SP_OK);
    assert_int_equal(profile->metadata_count, 3);
    assert_string_equal(sp_profile_find_metadata(profile, "k")->text, "text");
    assert_null(sp_profile_find_metadata(profile, "none"));
    sp_profile_clear_metadata(profile);
    assert_int_equal(profile->metadata_count, 0);
    sp_profile_release(profile);
}

static void columns_of_any_size_can_be_written_and_freed(void **state)
{
    static const uint64_t counts[] = {0, 1, 524287, 524288, 524289, 3000000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int64_t *column = sp_column_alloc(counts[i]);
        assert_non_null(column);
        for (uint64_t k = 0; k < counts[i]; k++) column[k] = (int64_t)k;
        sp_column_free(column, counts[i]);
    }
    assert_null(sp_column_alloc(UINT64_MAX / 4));
}

/* -- memory of columns -- */

#define LARGE ((uint64_t)1 << 20) /* 8 MB */

static void what_is_recycled_is_the_next_column(void **state)
{
    int64_t *first = sp_column_alloc(LARGE);
    first[0] = first[LARGE - 1] = 7;
    sp_column_recycle(first, LARGE);
    int64_t *half = sp_column_alloc(LARGE / 2), *other = sp_column_zeros(LARGE / 2);
    assert_true(half >= first && half < first + LARGE);
    assert_true(other >= first && other < first + LARGE && other != half);
    for (uint64_t i = 0; i < LARGE / 2; i++) assert_int_equal(other[i], 0);
    for (uint64_t i = 0; i < LARGE / 2; i++) half[i] = 1;
    assert_int_equal(other[0] + other[LARGE / 2 - 1], 0);
    sp_column_free(half, LARGE / 2);
    sp_column_free(other, LARGE / 2);
}

static void what_is_freed_is_not_kept_and_what_is_kept_is_bounded(void **state)
{
    int64_t *columns[40];
    for (int i = 0; i < 40; i++) {
        columns[i] = sp_column_alloc(LARGE);
        columns[i][0] = i;
    }
    for (int i = 0; i < 40; i++) sp_column_recycle(columns[i], LARGE);
    unsigned char resident;
    int mapped = 0;
    for (int i = 0; i < 40; i++) mapped += mincore(columns[i], 4096, &resident) == 0;
    assert_int_equal(mapped, 16); /* 128 MB */
    int64_t *last = sp_column_alloc(LARGE);
    sp_column_free(last, LARGE);
    assert_int_equal(mincore(last, 4096, &resident), -1);
    sp_column_recycle(NULL, LARGE);
    sp_column_recycle(sp_column_alloc(3), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_those_of_the_calls),
        cmocka_unit_test(percentiles_are_those_of_the_sorted_calls),
        cmocka_unit_test(a_row_without_calls_has_percentiles_of_zero),
        cmocka_unit_test(a_copy_shares_the_columns_and_outlives_the_original),
        cmocka_unit_test(metadata_replace_what_has_the_same_key),
        cmocka_unit_test(columns_of_any_size_can_be_written_and_freed),
        cmocka_unit_test(what_is_recycled_is_the_next_column),
        cmocka_unit_test(what_is_freed_is_not_kept_and_what_is_kept_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
