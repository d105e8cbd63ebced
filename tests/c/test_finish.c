/*
 * test_finish.c - from the logs into a file without columns in memory: collection.h, spread.h, call_stream.h and finish.h.
 * What is written is compared with the same run collected into columns, and percentiles with sorted durations.
 */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/collection.h"
#include "analysis/percentile.h"
#include "analysis/spread.h"
#include "formats/finish.h"

static char path[] = "/tmp/scope-profiler-finish-XXXXXX";

static int set_up(void **state)
{
    const int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int tear_down(void **state)
{
    return unlink(path);
}

/* -- percentiles of what passes by -- */

static uint64_t chance = 88172645463325252u;

static uint64_t next_random(void)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance;
}

static int64_t duration_of(int kind, size_t i)
{
    switch (kind) {
    case 0: return 7;
    case 1: return (int64_t)(next_random() % 100);
    case 2: return (int64_t)(next_random() % 1000000000);
    case 3: return (int64_t)1 << next_random() % 62; /* from a ns to a century */
    case 4: return i % 2 ? 5 : INT64_MAX / 2;
    default: return (int64_t)(next_random() % 3 ? 1000003 + next_random() % 2 : next_random() % 50);
    }
}

static void percentiles_are_those_of_sorted_durations(void **state)
{
    const size_t counts[] = {1, 2, 3, 100, SP_SPREAD_KEPT, SP_SPREAD_KEPT + 1, 50000};
    for (int kind = 0; kind < 6; kind++) {
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
            const size_t count = counts[n];
            sp_row row = {.count = count};
            const sp_profile profile = {.rows = &row, .row_count = 1, .call_count = count};
            int64_t *values = malloc(count * sizeof *values);
            double found[SP_PERCENTILE_COUNT], wanted[SP_PERCENTILE_COUNT];
            for (size_t i = 0; i < count; i++) values[i] = duration_of(kind, i);
            sp_spread *spread = sp_spread_new(&profile, 0, 1, found);
            assert_non_null(spread);
            for (size_t i = 0; i < count; i += 1000) sp_spread_add(spread, 0, values + i, count - i < 1000 ? count - i : 1000);
            bool again = false;
            int looks = 0;
            assert_int_equal(sp_spread_close(spread, &again), SP_OK);
            for (; again; looks++) {
                assert_true(looks < 8);
                if (sp_spread_wants(spread, 0)) {
                    for (size_t i = 0; i < count; i++) sp_spread_add_again(spread, 0, values[i]);
                }
                assert_int_equal(sp_spread_close(spread, &again), SP_OK);
            }
            sp_spread_free(spread);
            sp_percentiles(values, count, sp_percentile_ranks, SP_PERCENTILE_COUNT, wanted);
            for (size_t p = 0; p < SP_PERCENTILE_COUNT; p++) {
                if (found[p] != wanted[p]) fail_msg("kind %d, %zu durations: %g is not %g", kind, count, found[p], wanted[p]);
            }
            free(values);
        }
    }
}

/* -- collections -- */

typedef struct tally {
    uint64_t calls, open, roots;
    int64_t last_start;
} tally;

static void count_calls(void *context, const sp_collected *some, size_t count, uint32_t places)
{
    tally *t = context;
    for (size_t i = 0; i < count; i++) {
        assert_true(some[i].start_ns >= t->last_start);
        assert_true(some[i].place < places);
        t->last_start = some[i].start_ns;
        t->open += some[i].open;
        t->roots += some[i].above == SP_NO_PLACE;
    }
    t->calls += count;
}

static void a_collection_that_is_given_up_has_taken_nothing(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    call open = enter(of, "outer", 110);
    calls(of, "inner", 5000, 200);
    for (int i = 0; i < 2; i++) {
        sp_collection *collection;
        tally counted = {0};
        assert_int_equal(sp_collection_begin(of->run, 0, 0, &collection, NULL), SP_OK);
        assert_int_equal(sp_collection_profile(collection)->call_count, 5000);
        assert_true(sp_collection_walk(collection, SP_WALK_TREE, count_calls, &counted));
        assert_int_equal(counted.calls, 5000);
        assert_int_equal(counted.roots, 5000); /* what encloses them is open, and not in it */
        assert_int_equal(counted.open, 0);
        sp_collection_abandon(collection);
    }
    leave(&open, 20000);
    sp_profile *profile = collect(of);
    assert_calls(profile, "inner", 5000);
    assert_call(profile, "inner", 0, 200, 201, 1, 0);
    sp_profile_release(profile);
    record_end(of);
}

static void a_last_collection_ends_what_is_open(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    puppet *thread = puppet_new();
    call first = enter(of, "outer", 110), second = enter(of, "outer", 120), other = enter_on(thread, of, "other", 125);
    calls(of, "inner", 3, 130);
    calls_on(thread, of, "outer", 2, 140);
    clock_at(500);
    for (int i = 0; i < 2; i++) { /* it takes nothing either */
        sp_collection *collection;
        tally counted = {0};
        assert_int_equal(sp_collection_begin_last(of->run, 0, 0, &collection, NULL), SP_OK);
        assert_int_equal(sp_collection_mark_open(collection, NULL), SP_OK);
        assert_true(sp_collection_walk(collection, SP_WALK_TREE, count_calls, &counted));
        assert_int_equal(counted.calls, 8);
        assert_int_equal(counted.open, 3);
        assert_int_equal(counted.roots, 2); /* one a thread */
        const sp_profile *profile = sp_collection_profile(collection);
        assert_string_equal(row_of(profile, "outer")->event_metadata, "[{\"open\":true},{\"open\":true},{},{}]");
        assert_string_equal(row_of(profile, "other")->event_metadata, "[{\"open\":true}]");
        assert_null(row_of(profile, "inner")->event_metadata);
        assert_int_equal(sp_collection_columns(collection, 0, NULL, NULL), SP_OK);
        assert_call(profile, "outer", 0, 110, 500, 0, -1);
        assert_call(profile, "outer", 1, 120, 500, 1, 0);
        assert_call(profile, "other", 0, 125, 500, 2, -1);
        sp_collection_abandon(collection);
    }
    leave(&second, 600);
    leave(&first, 700);
    leave_on(thread, &other, 800);
    sp_profile *profile = collect(of);
    assert_call(profile, "outer", 0, 110, 700, 0, -1); /* whoever held them has ended them */
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
}

/* -- files -- */

/* Three threads' worth of calls, nested, of many regions, some with a few calls and some with many. */
static recording *record_much(size_t regions, size_t rounds, puppet *thread)
{
    char name[32];
    clock_at(100);
    recording *of = record(true, true);
    for (size_t i = 0; i < rounds; i++) {
        const sp_ticks at = 1000 + i * 100;
        snprintf(name, sizeof name, "region %zu", i * i % regions);
        call outer = enter(of, "outer", at), inner = enter(of, name, at + 1 + i % 7);
        call other = enter_on(thread, of, name, at + 10);
        leave(&inner, at + 20 + i % 11);
        leave(&outer, at + 50 + i % 13);
        leave_on(thread, &other, at + 60);
    }
    return of;
}

static void assert_same(const sp_profile *file, const sp_profile *columns)
{
    assert_int_equal(file->row_count, columns->row_count);
    assert_int_equal(file->call_count, columns->call_count);
    for (size_t i = 0; i < file->row_count; i++) {
        const sp_row *a = &file->rows[i], *b = row_of(columns, file->names[a->name]);
        assert_non_null(b);
        assert_int_equal(a->count, b->count);
        assert_int_equal(a->exclusive_total, b->exclusive_total);
        for (int c = 0; c < SP_COLUMN_COUNT; c++) {
            if (file->columns[c] == NULL || columns->columns[c] == NULL) continue;
            assert_memory_equal(file->columns[c] + a->first, columns->columns[c] + b->first, a->count * sizeof(int64_t));
        }
    }
}

static sp_profile *read_back(void)
{
    sp_profile *profile;
    sp_error error;
    if (sp_hdf5_read(path, NULL, &profile, &error) != SP_OK) fail_msg("%s", error.message);
    return profile;
}

static void a_file_has_what_columns_have(void **state)
{
    const struct { size_t regions, rounds; } shapes[] = {{1, 1}, {3, 400}, {2000, 6000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        puppet *thread = puppet_new();
        recording *of = record_much(shapes[i].regions, shapes[i].rounds, thread);
        sp_profile *written = NULL;
        for (int last = 0; last < 2; last++) {
            const sp_finish_options options = {.path = path, .keeps = true, .last = last};
            assert_int_equal(sp_run_finish(of->run, &options, &written, NULL), SP_OK);
            assert_int_equal(written->call_count, 3 * shapes[i].rounds);
            assert_null(written->columns[SP_COLUMN_START]);
            assert_true(written->rows[0].has_statistics);
            sp_profile_release(written);
        }
        sp_profile *file = read_back(), *columns = collect(of); /* it kept them all */
        assert_same(file, columns);
        sp_profile_release(file);
        sp_profile_release(columns);
        puppet_end(thread);
        record_end(of);
    }
}

static void what_is_in_a_file_is_taken_once(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    const sp_finish_options options = {.path = path}, nowhere = {.path = "/tmp/scope-profiler-no-such/x.h5"};
    sp_error error;
    calls(of, "a", 10, 200);
    assert_int_equal(sp_run_finish(of->run, &nowhere, NULL, &error), SP_ERR_IO);
    assert_non_null(strstr(error.message, "scope-profiler-no-such"));
    assert_int_equal(sp_run_finish(of->run, &options, NULL, &error), SP_OK);
    call open = enter(of, "b", 300);
    calls(of, "a", 4, 310);
    sp_profile *file = read_back();
    assert_calls(file, "a", 10);
    sp_profile_release(file);
    assert_int_equal(sp_run_finish(of->run, &options, NULL, &error), SP_OK);
    leave(&open, 400);
    file = read_back();
    assert_calls(file, "a", 4);
    assert_null(row_of(file, "b"));
    sp_profile_release(file);
    sp_profile *rest = collect(of);
    assert_int_equal(rest->call_count, 1);
    assert_calls(rest, "b", 1);
    sp_profile_release(rest);
    record_end(of);
}

static void calls_that_overlap_are_written_without_a_tree(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    call first = enter(of, "a", 110), second = enter(of, "b", 120);
    leave(&first, 130);
    leave(&second, 140);
    sp_profile *written = NULL;
    const sp_finish_options options = {.path = path, .keeps = true};
    assert_int_equal(sp_run_finish(of->run, &options, &written, NULL), SP_OK);
    assert_false(written->nested);
    sp_profile_release(written);
    sp_profile *file = read_back();
    assert_null(file->columns[SP_COLUMN_CALL_ID]);
    assert_int_equal(seen_call(file, "b", 0).end, 140);
    sp_profile_release(file);
    record_end(of);
}

static void without_memory_nothing_is_taken(void **state)
{
    puppet *thread = puppet_new();
    recording *of = record_much(5, 50, thread);
    const sp_finish_options options = {.path = path, .last = true, .keeps = true};
    bool done = false;
    for (int64_t n = 0; !done && n < 5000; n++) {
        memory_fail(n, false);
        const sp_status status = sp_run_finish(of->run, &options, NULL, NULL);
        memory_fail(-1, false);
        done = status == SP_OK;
    }
    assert_true(done);
    sp_profile *columns = collect(of);
    assert_int_equal(columns->call_count, 150);
    sp_profile_release(columns);
    puppet_end(thread);
    record_end(of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_those_of_sorted_durations),
        cmocka_unit_test(a_collection_that_is_given_up_has_taken_nothing),
        cmocka_unit_test(a_last_collection_ends_what_is_open),
        cmocka_unit_test(a_file_has_what_columns_have),
        cmocka_unit_test(what_is_in_a_file_is_taken_once),
        cmocka_unit_test(calls_that_overlap_are_written_without_a_tree),
        cmocka_unit_test(without_memory_nothing_is_taken),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
