/* The call tree in C: order, stacks, overlaps, and the ids of a profile. Expected values are worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/resolve.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static void assert_column(const int64_t *column, const int64_t *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (column[i] != expected[i]) print_error("value %zu\n", i);
        assert_int_equal(column[i], expected[i]);
    }
}

#define ASSERT_COLUMN(column, ...)                                                                                     \
    do {                                                                                                               \
        const int64_t expected_[] = {__VA_ARGS__};                                                                     \
        assert_column((column), expected_, LENGTH(expected_));                                                         \
    } while (0)

/* -- lanes ------------------------------------------------------------------------------------------------------------ */

static void lanes_of_threads_and_tasks_never_meet(void **state)
{
    assert_int_equal(sp_lane_of(0, -1), -2);
    assert_int_equal(sp_lane_of(5, -1), -7);
    assert_int_equal(sp_lane_of(5, 0), 0);
    assert_int_equal(sp_lane_of(-1, -1), SP_LANE_UNKNOWN);
    assert_int_equal(sp_lane_of(INT64_MAX, -1), INT64_MAX); /* wraps without undefined behaviour */
}

static void every_lane_has_a_top_of_its_own(void **state)
{
    const int64_t spreads[] = {1, INT64_C(1) << 40};
    for (size_t s = 0; s < LENGTH(spreads); s++) {
        sp_lane_tops tops;
        const int64_t lanes = 10000;
        assert_int_equal(sp_lane_tops_make(&tops, -lanes * spreads[s], lanes * spreads[s], 3, NULL), SP_OK);
        for (int64_t i = -lanes; i <= lanes; i++) {
            uint32_t *top = sp_lane_tops_find(&tops, i * spreads[s]);
            assert_int_equal(*top, SP_NO_CALL);
            *top = (uint32_t)(i + lanes);
        }
        for (int64_t i = -lanes; i <= lanes; i++) {
            assert_int_equal(*sp_lane_tops_find(&tops, i * spreads[s]), i + lanes);
        }
        sp_lane_tops_free(&tops);
    }
}

static void the_extremes_of_int64_are_lanes_too(void **state)
{
    sp_lane_tops tops;
    assert_int_equal(sp_lane_tops_make(&tops, INT64_MIN, INT64_MAX, UINT32_MAX, NULL), SP_OK);
    *sp_lane_tops_find(&tops, INT64_MIN) = 1;
    *sp_lane_tops_find(&tops, INT64_MAX) = 2;
    assert_int_equal(*sp_lane_tops_find(&tops, INT64_MIN), 1);
    assert_int_equal(*sp_lane_tops_find(&tops, 0), SP_NO_CALL);
    sp_lane_tops_free(&tops);
}

/* -- trees ------------------------------------------------------------------------------------------------------------ */

static void a_tree_over_two_regions_and_two_lanes(void **state)
{
    /* thread 0: a 0..100 [ b 10..40 [ a 20..30 ] ]   thread 1: b 5..50 */
    const int64_t a_start[] = {20, 0}, a_end[] = {30, 100}, a_thread[] = {0, 0};
    const int64_t b_start[] = {10, 5}, b_end[] = {40, 50}, b_thread[] = {0, 1};
    const sp_calls regions[] = {{a_start, a_end, a_thread, NULL, NULL, 2}, {0}, {b_start, b_end, b_thread, NULL, NULL, 2}};
    sp_call_tree tree;
    assert_int_equal(sp_call_tree_build(&tree, regions, LENGTH(regions), SP_NEST_STRICT, NULL, NULL), SP_OK);
    assert_int_equal(tree.count, 4);
    ASSERT_COLUMN(tree.region, 0, 2, 2, 0);
    ASSERT_COLUMN(tree.call, 1, 1, 0, 0);
    ASSERT_COLUMN(tree.start_ns, 0, 5, 10, 20);
    ASSERT_COLUMN(tree.lane, -2, -3, -2, -2);
    ASSERT_COLUMN(tree.parent, -1, -1, 0, 2);
    ASSERT_COLUMN(tree.depth, 0, 0, 1, 2);
    ASSERT_COLUMN(tree.exclusive_ns, 70, 45, 20, 10);
    sp_call_tree_free(&tree);
}

static void overlaps_are_told_in_call_order(void **state)
{
    const int64_t start[] = {200, 0, 5, 150}, end[] = {260, 10, 12, 220};
    const sp_calls regions[] = {{start, end, NULL, NULL, NULL, 4}};
    sp_call_tree tree;
    sp_overlap overlap;
    sp_error error;
    assert_int_equal(sp_call_tree_build(&tree, regions, 1, SP_NEST_STRICT, &overlap, &error), SP_ERR_NESTING);
    assert_false(overlap.reversed);
    assert_int_equal(overlap.outer_call, 1);
    assert_int_equal(overlap.inner_call, 2);
    assert_null(tree.parent);
    assert_int_equal(sp_nesting_fail(&error, &overlap, regions, "outer", "inner"), SP_ERR_NESTING);
    assert_non_null(strstr(error.message, "call 2 of 'inner' [5, 12] ns"));
    assert_non_null(strstr(error.message, "call 1 of 'outer' [0, 10] ns"));
}

static void clamped_time_goes_to_the_call_that_started_last(void **state)
{
    /* p 0..30 [ a 1..9, b 5..15 [ c 6..8 ], d 14..20 ], and a call that ends before it starts */
    const int64_t start[] = {0, 1, 5, 6, 14, 25}, end[] = {30, 9, 15, 8, 20, 24};
    const sp_calls regions[] = {{start, end, NULL, NULL, NULL, 6}};
    sp_call_tree tree;
    assert_int_equal(sp_call_tree_build(&tree, regions, 1, SP_NEST_CLAMP, NULL, NULL), SP_OK);
    ASSERT_COLUMN(tree.parent, -1, 0, 0, 2, 0, 0);
    ASSERT_COLUMN(tree.exclusive_ns, 11, 4, 7, 2, 6, 0); /* 0-1, 20-30; 1-5; 5-6, 8-14; 6-8; 14-20: 30 in all */
    sp_call_tree_free(&tree);
}

static void more_calls_than_numbers_are_refused(void **state)
{
    const int64_t some[1] = {0};
    const sp_calls regions[] = {{some, some, NULL, NULL, NULL, UINT64_C(1) << 32}};
    sp_call_index index;
    sp_error error;
    assert_int_equal(sp_call_index_make(&index, regions, 1, &error), SP_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "4294967294 calls"));
}

typedef struct order_case {
    size_t regions;
    uint64_t largest; /* calls of a region */
    int64_t apart;    /* at most, from a call of a region to its next */
    bool ascending;   /* the calls of a region */
} order_case;

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Each call may follow the one before it, and none is missing: that is the order. */
static void assert_order(const sp_call_index *index, const sp_call_order *order, bool *seen)
{
    int64_t last_start = 0, last_end = 0;
    uint32_t last = 0;
    memset(seen, 0, index->count);
    for (uint32_t i = 0; i < index->count; i++) {
        const uint32_t call = sp_call_order_at(order, i), used = sp_call_index_find(index, call), own = call - index->base[used];
        const sp_calls *calls = &index->regions[index->region[used]];
        assert_false(seen[call]);
        seen[call] = true;
        if (i) assert_true(sp_call_comes_after(last_start, last_end, last, calls->start_ns[own], calls->end_ns[own], call));
        last_start = calls->start_ns[own];
        last_end = calls->end_ns[own];
        last = call;
    }
}

/* The case's regions, whose columns go into `times`. */
static uint64_t make_regions(const order_case *one, uint64_t random, sp_calls *regions, int64_t *times)
{
    uint64_t count = 0;
    for (size_t r = 0; r < one->regions; r++) {
        const uint64_t own = next_random(&random) % 5 ? next_random(&random) % one->largest + 1 : r % 2;
        int64_t *starts = times, *ends = times + own, at = INT64_MIN / 2;
        times += 2 * own;
        count += own;
        for (uint64_t i = 0; i < own; i++) {
            at += (int64_t)(next_random(&random) << 25 | next_random(&random)) % (one->apart + 1);
            starts[one->ascending ? i : own - 1 - i] = at;
        }
        for (uint64_t i = 0; i < own; i++) ends[i] = starts[i] + (int64_t)(next_random(&random) % 3);
        regions[r] = (sp_calls){.start_ns = starts, .end_ns = ends, .count = own};
    }
    return count;
}

static void calls_of_any_regions_come_in_order(void **state)
{
    const order_case cases[] = {
        {2, 5000, 20, true}, {3, 1, 3, true}, {5, 3000, 2, true}, {7, 4000, 1000000, true}, {8, 20, 0, true},
        {5, 2000, INT64_C(1) << 51, true}, {256, 60, 40, true}, {257, 60, 40, true}, {5, 3000, 20, false}, {3, 2000, INT64_C(1) << 51, false},
    };
    for (size_t k = 0; k < LENGTH(cases); k++) {
        const order_case *one = &cases[k];
        sp_calls *regions = calloc(one->regions, sizeof *regions);
        int64_t *times = malloc(one->regions * one->largest * 2 * sizeof *times);
        const uint64_t count = make_regions(one, k + 1, regions, times);
        uint64_t *a = malloc((count + 1) * sizeof *a), *b = malloc((count + 1) * sizeof *b);
        bool *seen = malloc(count + 1);
        sp_call_index index;
        sp_call_order order;
        assert_int_equal(sp_call_index_make(&index, regions, one->regions, NULL), SP_OK);
        assert_int_equal(index.count, count);
        sp_call_order_sort(&index, a, b, &order);
        assert_order(&index, &order, seen);
        sp_call_index_free(&index);
        free(seen);
        free(a);
        free(b);
        free(times);
        free(regions);
    }
}

static void an_index_finds_the_region_of_every_call(void **state)
{
    sp_calls regions[400] = {0};
    const int64_t column[200] = {0};
    uint64_t total = 0;
    for (size_t r = 0; r < LENGTH(regions); r++) {
        regions[r] = (sp_calls){column, column, NULL, NULL, NULL, r % 3 == 0 ? 0 : r % 150};
        total += regions[r].count;
    }
    sp_call_index index;
    assert_int_equal(sp_call_index_make(&index, regions, LENGTH(regions), NULL), SP_OK);
    assert_int_equal(index.count, total);
    uint32_t call = 0;
    for (size_t r = 0; r < LENGTH(regions); r++) {
        for (uint64_t i = 0; i < regions[r].count; i++, call++) {
            const uint32_t used = sp_call_index_find(&index, call);
            assert_int_equal(index.region[used], r);
            assert_int_equal(call - index.base[used], i);
        }
    }
    sp_call_index_free(&index);
}

/* -- profiles --------------------------------------------------------------------------------------------------------- */

typedef struct row_spec {
    uint32_t name, rank;
    uint64_t count;
} row_spec;

/* A profile of regions "a", "b", ... with the rows' calls one after the other. */
static sp_profile *make_profile(const row_spec *rows, size_t row_count, const int64_t *start, const int64_t *end,
                                const int64_t *thread)
{
    sp_profile *profile = sp_profile_new();
    assert_non_null(profile);
    profile->names = calloc(3, sizeof *profile->names);
    profile->rows = calloc(row_count, sizeof *profile->rows);
    assert_non_null(profile->names);
    assert_non_null(profile->rows);
    for (char name[] = "a"; profile->name_count < 3; name[0]++) profile->names[profile->name_count++] = strdup(name);
    for (size_t i = 0; i < row_count; i++) {
        profile->rows[i] = (sp_row){.name = rows[i].name, .rank = rows[i].rank, .first = profile->call_count,
                                    .count = rows[i].count, .source_line = SP_UNKNOWN, .exclusive_total = SP_UNKNOWN};
        profile->call_count += rows[i].count;
    }
    profile->row_count = row_count;
    const int64_t *sources[SP_COLUMN_COUNT] = {[SP_COLUMN_START] = start, [SP_COLUMN_END] = end, [SP_COLUMN_THREAD] = thread};
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (sources[c] == NULL) continue;
        profile->columns[c] = sp_column_alloc(profile->call_count);
        assert_non_null(profile->columns[c]);
        memcpy(profile->columns[c], sources[c], profile->call_count * sizeof(int64_t));
    }
    return profile;
}

static void ids_follow_call_order_rank_by_rank(void **state)
{
    /* rank 0: a 0..50 [ b 10..20 ], a 60..70   rank 3: b 5..9, a 1..100 encloses it */
    const row_spec rows[] = {{0, 0, 2}, {1, 0, 1}, {2, 0, 0}, {1, 3, 1}, {0, 3, 1}};
    const int64_t start[] = {0, 60, 10, 5, 1}, end[] = {50, 70, 20, 9, 100};
    sp_profile *profile = make_profile(rows, LENGTH(rows), start, end, NULL);
    sp_error error;
    assert_int_equal(sp_profile_resolve(profile, 7, &error), SP_OK);
    assert_string_equal(error.message, "");
    assert_true(profile->nested);
    ASSERT_COLUMN(profile->columns[SP_COLUMN_CALL_ID], 7, 9, 8, 8, 7);
    ASSERT_COLUMN(profile->columns[SP_COLUMN_PARENT_ID], -1, -1, 7, 7, -1);
    const int64_t exclusive[] = {50, 10, 0, 4, 95};
    for (size_t i = 0; i < LENGTH(rows); i++) assert_int_equal(profile->rows[i].exclusive_total, exclusive[i]);
    sp_profile_release(profile);
}

static void calls_in_order_need_no_sort_and_get_their_own_places(void **state)
{
    const row_spec rows[] = {{0, 0, 3}};
    const int64_t start[] = {0, 1, 2}, end[] = {9, 8, 7};
    sp_profile *profile = make_profile(rows, 1, start, end, NULL);
    assert_int_equal(sp_profile_resolve(profile, 0, NULL), SP_OK);
    ASSERT_COLUMN(profile->columns[SP_COLUMN_CALL_ID], 0, 1, 2);
    ASSERT_COLUMN(profile->columns[SP_COLUMN_PARENT_ID], -1, 0, 1);
    assert_int_equal(profile->rows[0].exclusive_total, 2 + 2 + 5);
    sp_profile_release(profile);
}

static void lanes_of_a_profile_are_apart(void **state)
{
    const row_spec rows[] = {{0, 0, 1}, {1, 0, 1}};
    const int64_t start[] = {0, 5}, end[] = {10, 15}, thread[] = {0, 1};
    sp_profile *profile = make_profile(rows, 2, start, end, thread);
    assert_int_equal(sp_profile_resolve(profile, 0, NULL), SP_OK);
    assert_true(profile->nested);
    ASSERT_COLUMN(profile->columns[SP_COLUMN_PARENT_ID], -1, -1);
    sp_profile_release(profile);
}

static void an_overlap_leaves_the_rank_without_a_tree_and_says_why(void **state)
{
    /* rank 0 overlaps, rank 1 does not */
    const row_spec rows[] = {{0, 0, 1}, {1, 0, 1}, {2, 1, 1}};
    const int64_t start[] = {0, 5, 0}, end[] = {10, 15, 4};
    sp_profile *profile = make_profile(rows, LENGTH(rows), start, end, NULL);
    sp_error error;
    assert_int_equal(sp_profile_resolve(profile, 0, &error), SP_OK);
    assert_false(profile->nested);
    assert_non_null(strstr(error.message, "'b' [5, 15] ns starts inside call 0 of 'a' [0, 10] ns"));
    ASSERT_COLUMN(profile->columns[SP_COLUMN_CALL_ID], -1, -1, 0);
    assert_int_equal(profile->rows[0].exclusive_total, SP_UNKNOWN);
    assert_int_equal(profile->rows[2].exclusive_total, 4);
    /* on access: clamped, or refused */
    sp_rank_calls calls;
    assert_int_equal(sp_rank_calls_make(&calls, profile, 0, NULL), SP_OK);
    int64_t *exclusive;
    assert_int_equal(sp_rank_calls_exclusive(&calls, profile, SP_NEST_STRICT, &exclusive, &error), SP_ERR_NESTING);
    assert_non_null(strstr(error.message, "call 0 of 'a' [0, 10]"));
    assert_int_equal(sp_rank_calls_exclusive(&calls, profile, SP_NEST_CLAMP, &exclusive, &error), SP_OK);
    ASSERT_COLUMN(exclusive, 5, 10);
    sp_column_free(exclusive, calls.call_count);
    sp_rank_calls_free(&calls);
    sp_profile_release(profile);
}

static void without_any_tree_there_are_no_id_columns(void **state)
{
    const row_spec rows[] = {{0, 0, 2}};
    const int64_t start[] = {0, 5}, end[] = {10, 15};
    sp_profile *profile = make_profile(rows, 1, start, end, NULL);
    assert_int_equal(sp_profile_resolve(profile, 0, NULL), SP_OK);
    assert_null(profile->columns[SP_COLUMN_CALL_ID]);
    assert_null(profile->columns[SP_COLUMN_PARENT_ID]);
    sp_profile_release(profile);
}

static void scattered_rows_are_refused(void **state)
{
    const row_spec rows[] = {{0, 0, 1}, {1, 0, 1}};
    const int64_t start[] = {0, 5}, end[] = {10, 6};
    sp_profile *profile = make_profile(rows, 2, start, end, NULL);
    profile->rows[0].first = 1;
    profile->rows[1].first = 0;
    sp_error error;
    assert_int_equal(sp_profile_resolve(profile, 0, &error), SP_ERR_INVALID);
    sp_profile_release(profile);
}

/* Pseudo-random nested calls, against parents found by walking back. */
static void a_large_profile_agrees_with_a_search(void **state)
{
    enum { COUNT = 3000, ROWS = 3 };
    const row_spec rows[ROWS] = {{0, 0, COUNT}, {1, 0, COUNT}, {2, 0, COUNT}};
    static int64_t start[ROWS * COUNT], end[ROWS * COUNT], thread[ROWS * COUNT];
    uint64_t random = 12345;
    int64_t clocks[7] = {0};
    /* a spans b, b spans c; each triple on one of seven threads */
    for (int i = 0; i < COUNT; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const int lane = (int)(random >> 40) % 7;
        const int64_t at = clocks[lane];
        const int a = i, b = COUNT + (i * 7 + 1) % COUNT, c = 2 * COUNT + (i * 11 + 5) % COUNT; /* scattered in their rows */
        start[a] = at, end[a] = at + 90;
        start[b] = at + 10, end[b] = at + 50;
        start[c] = at + 10, end[c] = at + 30;
        thread[a] = thread[b] = thread[c] = lane;
        clocks[lane] += 90 + (int64_t)(random >> 60);
    }
    sp_profile *profile = make_profile(rows, ROWS, start, end, thread);
    assert_int_equal(sp_profile_resolve(profile, 0, NULL), SP_OK);
    const int64_t *id = profile->columns[SP_COLUMN_CALL_ID], *parent = profile->columns[SP_COLUMN_PARENT_ID];
    static int at_id[ROWS * COUNT];
    for (int i = 0; i < ROWS * COUNT; i++) at_id[id[i]] = i;
    for (int i = 1; i < ROWS * COUNT; i++) {
        const int before = at_id[i - 1], this = at_id[i];
        assert_true(start[before] < start[this] ||
                    (start[before] == start[this] && (end[before] > end[this] ||
                                                     (end[before] == end[this] && before < this))));
    }
    for (int i = 0; i < COUNT; i++) {
        const int a = i, b = COUNT + (i * 7 + 1) % COUNT, c = 2 * COUNT + (i * 11 + 5) % COUNT;
        assert_int_equal(parent[a], -1);
        assert_int_equal(parent[b], id[a]);
        assert_int_equal(parent[c], id[b]);
    }
    assert_int_equal(profile->rows[0].exclusive_total, 50 * COUNT);
    assert_int_equal(profile->rows[1].exclusive_total, 20 * COUNT);
    assert_int_equal(profile->rows[2].exclusive_total, 20 * COUNT);
    sp_profile_release(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_of_threads_and_tasks_never_meet),
        cmocka_unit_test(every_lane_has_a_top_of_its_own),
        cmocka_unit_test(the_extremes_of_int64_are_lanes_too),
        cmocka_unit_test(a_tree_over_two_regions_and_two_lanes),
        cmocka_unit_test(overlaps_are_told_in_call_order),
        cmocka_unit_test(clamped_time_goes_to_the_call_that_started_last),
        cmocka_unit_test(more_calls_than_numbers_are_refused),
        cmocka_unit_test(calls_of_any_regions_come_in_order),
        cmocka_unit_test(an_index_finds_the_region_of_every_call),
        cmocka_unit_test(ids_follow_call_order_rank_by_rank),
        cmocka_unit_test(calls_in_order_need_no_sort_and_get_their_own_places),
        cmocka_unit_test(lanes_of_a_profile_are_apart),
        cmocka_unit_test(an_overlap_leaves_the_rank_without_a_tree_and_says_why),
        cmocka_unit_test(without_any_tree_there_are_no_id_columns),
        cmocka_unit_test(scattered_rows_are_refused),
        cmocka_unit_test(a_large_profile_agrees_with_a_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
