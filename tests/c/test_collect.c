/* From logs to a profile: trees, ids, exclusive totals, columns, and what each collection takes. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "core/innermost.h"
#include "core/registry.h"

static int64_t exclusive(const sp_profile *profile, const char *region)
{
    return row_of(profile, region)->exclusive_total;
}

static void nested_calls_make_a_tree(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call outer = enter(of, "outer", 100), first = enter(of, "inner", 110);
    leave(&first, 130);
    call second = enter(of, "inner", 140), leaf = enter(of, "leaf", 150);
    leave(&leaf, 155);
    leave(&second, 170);
    leave(&outer, 200);
    call after = enter(of, "outer", 200); /* starts where the other ends: beside it */
    leave(&after, 201);
    sp_profile *profile = collect(of);
    assert_true(profile->nested);
    assert_call(profile, "outer", 0, 100, 200, 0, -1);
    assert_call(profile, "inner", 0, 110, 130, 1, 0);
    assert_call(profile, "inner", 1, 140, 170, 2, 0);
    assert_call(profile, "leaf", 0, 150, 155, 3, 2);
    assert_call(profile, "outer", 1, 200, 201, 4, -1);
    assert_int_equal(exclusive(profile, "outer"), 100 - 20 - 30 + 1);
    assert_int_equal(exclusive(profile, "inner"), 20 + 30 - 5);
    assert_int_equal(exclusive(profile, "leaf"), 5);
    const sp_row *row = row_of(profile, "inner");
    assert_true(row->has_statistics);
    assert_int_equal(row->statistics.total, 50);
    assert_int_equal(row->statistics.minimum, 20);
    assert_int_equal(row->statistics.maximum, 30);
    assert_int_equal(row->statistics.start_minimum, 110);
    assert_int_equal(row->statistics.end_maximum, 170);
    sp_profile_release(profile);
    record_end(of);
}

static void recursion_nests_in_itself(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call open[50];
    for (int i = 0; i < 50; i++) open[i] = enter(of, "f", 100 + (sp_ticks)i);
    for (int i = 50; i-- > 0;) leave(&open[i], 300 - (sp_ticks)i);
    sp_profile *profile = collect(of);
    for (int i = 0; i < 50; i++) assert_call(profile, "f", (size_t)i, 100 + i, 300 - i, i, i - 1);
    assert_int_equal(exclusive(profile, "f"), 200); /* the outermost call's time, counted once */
    sp_profile_release(profile);
    record_end(of);
}

static void calls_of_no_length_nest_where_they_lie(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call outer = enter(of, "outer", 100), at_start = enter(of, "start", 100);
    leave(&at_start, 100);
    leave(&outer, 110);
    call at_end = enter(of, "end", 110);
    leave(&at_end, 110);
    sp_profile *profile = collect(of);
    assert_call(profile, "start", 0, 100, 100, 1, 0);
    assert_call(profile, "end", 0, 110, 110, 2, -1);
    assert_int_equal(exclusive(profile, "outer"), 10);
    assert_int_equal(exclusive(profile, "start"), 0);
    sp_profile_release(profile);
    record_end(of);
}

/* Ids count starts over all threads; parents are of the same thread only. */
static void threads_interleave_without_nesting_in_each_other(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    call a = enter(of, "a", 100), b = enter_on(thread, of, "a", 110), c = enter(of, "b", 120),
         d = enter_on(thread, of, "b", 130);
    leave(&c, 140);
    leave_on(thread, &d, 150);
    leave(&a, 160);
    leave_on(thread, &b, 170);
    sp_profile *profile = collect(of);
    assert_true(profile->nested);
    assert_call(profile, "a", 0, 100, 160, 0, -1);
    assert_call(profile, "a", 1, 110, 170, 1, -1);
    assert_call(profile, "b", 0, 120, 140, 2, 0);
    assert_call(profile, "b", 1, 130, 150, 3, 1);
    assert_int_equal(seen_call(profile, "a", 1).thread, 1);
    assert_int_equal(seen_call(profile, "b", 0).thread, 0);
    assert_int_equal(exclusive(profile, "a"), 60 - 20 + 60 - 20);
    assert_int_equal(profile->thread_count, 2);
    assert_true(profile->has_threads);
    assert_null(profile->columns[SP_COLUMN_TASK]);
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
}

/* Without tracking all threads are one stack, as the guide says; nothing of either is lost. */
static void an_untracked_run_has_one_lane_and_no_tables(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    puppet *thread = puppet_new();
    call a = enter(of, "a", 100), b = enter_on(thread, of, "b", 110);
    leave_on(thread, &b, 120);
    leave(&a, 130);
    sp_profile *profile = collect(of);
    assert_true(profile->nested);
    assert_call(profile, "b", 0, 110, 120, 1, 0);
    assert_false(profile->has_threads);
    assert_null(profile->columns[SP_COLUMN_THREAD]);
    sp_profile_release(profile);
    a = enter(of, "a", 200);
    b = enter_on(thread, of, "b", 210);
    leave(&a, 220);
    leave_on(thread, &b, 230);
    profile = collect(of);
    assert_false(profile->nested);
    assert_call(profile, "a", 0, 200, 220, 0, -1);
    assert_call(profile, "b", 0, 210, 230, 0, -1);
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
}

static void lane_keys_are_given_on_request(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    puppet *thread = puppet_new();
    call b = enter_on(thread, of, "b", 110);
    leave_on(thread, &b, 120);
    calls(of, "a", 2, 200);
    sp_profile *profile;
    int64_t *lanes;
    assert_int_equal(sp_run_collect(of->run, 0, 0, &profile, &lanes, NULL), SP_OK);
    assert_int_equal(lanes[row_of(profile, "b")->first], -2);
    assert_int_equal(lanes[row_of(profile, "a")->first], -3);
    sp_column_free(lanes, profile->call_count);
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
}

static void every_call_is_in_the_first_collection_after_its_end(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    call a = enter(of, "a", 100), b = enter(of, "b", 110), c = enter(of, "c", 120);
    leave(&c, 130);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 1);
    assert_call(profile, "c", 0, 120, 130, 0, -1); /* its parents are not told yet */
    sp_profile_release(profile);
    profile = collect(of);
    assert_int_equal(profile->call_count, 0);
    assert_int_equal(profile->row_count, 0);
    sp_profile_release(profile);
    leave(&b, 140);
    calls(of, "d", 1, 150);
    profile = collect(of);
    assert_int_equal(profile->call_count, 2);
    assert_call(profile, "b", 0, 110, 140, 0, -1);
    assert_call(profile, "d", 0, 150, 151, 1, -1);
    sp_profile_release(profile);
    leave(&a, 160);
    profile = collect(of);
    assert_int_equal(profile->call_count, 1);
    assert_call(profile, "a", 0, 100, 160, 0, -1);
    sp_profile_release(profile);
    assert_int_equal(sp_run_entries(of->run, region_id(of, "a")), 1);
    record_end(of);
}

static void ids_go_on_where_they_are_told_to(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call a = enter(of, "a", 100);
    calls(of, "b", 2, 110);
    leave(&a, 120);
    sp_profile *profile;
    assert_int_equal(sp_run_collect(of->run, 7, 1000, &profile, NULL, NULL), SP_OK);
    assert_call(profile, "b", 1, 112, 113, 1002, 1000);
    assert_int_equal(row_of(profile, "b")->rank, 7);
    sp_profile_release(profile);
    record_end(of);
}

static void rows_are_in_order_of_creation_and_carry_the_source(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    uint32_t id;
    assert_int_equal(sp_run_region(of->run, "z", "file.py", 12, "with z:", "[\"t\"]", &id, NULL), SP_OK);
    region_id(of, "never called");
    calls(of, "a", 1, 110);
    calls(of, "z", 1, 120);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->row_count, 2);
    assert_string_equal(profile->names[profile->rows[0].name], "z");
    assert_string_equal(profile->names[profile->rows[1].name], "a");
    assert_string_equal(profile->rows[0].source_file, "file.py");
    assert_int_equal(profile->rows[0].source_line, 12);
    assert_string_equal(profile->rows[0].source_text, "with z:");
    assert_string_equal(profile->rows[0].tags, "[\"t\"]");
    assert_null(profile->rows[1].source_file);
    assert_int_equal(profile->rows[1].source_line, SP_UNKNOWN);
    sp_profile_release(profile);
    record_end(of);
}

static void an_empty_run_is_an_empty_profile(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 0);
    assert_true(profile->nested);
    assert_true(profile->has_threads);
    sp_profile_release(profile);
    record_end(of);
}

/* Blocks whose calls are all collected are given back, those around them stay; the tail always stays. */
static void collected_blocks_are_freed(void **state)
{
    clock_at(100);
    memory_reset();
    recording *of = record(false, false);
    calls(of, "a", 128 + 1024 + 8192 + 10 * 87381 + 5, 200);
    assert_true(memory_mapped() >= 11 << 21);
    sp_profile *profile = collect(of);
    sp_profile_release(profile);
    const sp_log *log = sp_log_current(of->run->token);
    assert_ptr_equal(log->head, log->tail);
    assert_int_equal(memory_mapped(), 1 << 21);

    call open = enter(of, "open", 10000000);
    calls(of, "a", 5 * 87381, 10000001);
    profile = collect(of);
    assert_calls(profile, "a", 5 * 87381);
    sp_profile_release(profile);
    assert_int_equal(memory_mapped(), 2 << 21); /* that of the open call, and the tail */
    leave(&open, 20000000);
    profile = collect(of);
    assert_call(profile, "open", 0, 10000000, 20000000, 0, -1);
    sp_profile_release(profile);
    assert_int_equal(memory_mapped(), 1 << 21);
    record_end(of);
    assert_int_equal(memory_mapped(), 0);
    assert_int_equal(memory_blocks(), 0);
}

/* Open calls in the first, a middle and the last block, through ten collections. */
static void open_calls_survive_collections_in_any_block(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call open[6];
    sp_ticks at = 200;
    for (size_t i = 0; i < 6; i++) {
        open[i] = enter(of, "open", at);
        calls(of, "a", 40000, at + 1);
        at += 100000;
    }
    for (size_t i = 0; i < 10; i++) {
        if (i % 2 == 1 && i / 2 < 6) leave(&open[5 - i / 2], 2000000 + i);
        sp_profile *profile = collect(of);
        assert_calls(profile, "a", i == 0 ? 240000 : 1);
        assert_calls(profile, "open", i % 2);
        if (i % 2) {
            assert_call(profile, "open", 0, (int64_t)(200 + 100000 * (5 - i / 2)), (int64_t)(2000000 + i), 0, -1);
        }
        sp_profile_release(profile);
        calls(of, "a", 1, 3000000 + 10 * i);
    }
    record_end(of);
}

/*
 * 40 threads with 3 regions, calls at random, exits in order, against a model that knows every interval and every parent. In three
 * collections, so that ids, parents and totals of each are those of its own calls.
 */
enum { THREADS = 40, DEPTH = 12 };

typedef struct model_call {
    int64_t start, end, parent, child_time;
    int region, thread;
    bool open, told;
} model_call;

static model_call model[40000];
static size_t model_count;

static void check_against_model(recording *of)
{
    static const char *const names[] = {"x", "y", "z"};
    sp_profile *profile = collect(of);
    int64_t totals[3] = {0}, next_id = 0, id_of[40000];
    size_t count[3] = {0}, seen_of[3] = {0};
    /* Calls are numbered by start; the parent is the innermost call of the thread in the same collection that encloses it. */
    for (size_t i = 0; i < model_count; i++) {
        id_of[i] = model[i].open || model[i].told ? -1 : next_id++;
        model[i].child_time = 0;
    }
    for (size_t i = 0; i < model_count; i++) {
        if (id_of[i] < 0) continue;
        int64_t parent = model[i].parent;
        while (parent >= 0 && id_of[parent] < 0) parent = model[parent].parent;
        if (parent >= 0) model[parent].child_time += model[i].end - model[i].start;
        const int r = model[i].region;
        const seen got = seen_call(profile, names[r], seen_of[r]++);
        assert_int_equal(got.start, model[i].start);
        assert_int_equal(got.end, model[i].end);
        assert_int_equal(got.id, id_of[i]);
        assert_int_equal(got.parent, parent < 0 ? -1 : id_of[parent]);
        assert_int_equal(got.thread, model[i].thread);
        count[r]++;
    }
    for (size_t i = 0; i < model_count; i++) {
        if (id_of[i] < 0) continue;
        totals[model[i].region] += model[i].end - model[i].start - model[i].child_time;
        model[i].told = true;
    }
    for (int r = 0; r < 3; r++) {
        assert_calls(profile, names[r], count[r]);
        if (count[r]) assert_int_equal(exclusive(profile, names[r]), totals[r]);
    }
    sp_profile_release(profile);
}

static void random_calls_match_a_model(void **state)
{
    static const char *const names[] = {"x", "y", "z"};
    srand(11);
    clock_at(100);
    recording *of = record(true, false);
    puppet *threads[THREADS];
    call stack[THREADS][DEPTH];
    size_t index[THREADS][DEPTH], depth[THREADS] = {0};
    for (int t = 0; t < THREADS; t++) {
        threads[t] = puppet_new();
        call first = enter_on(threads[t], of, "x", 101 + (sp_ticks)t); /* rows in order of the puppets */
        leave_on(threads[t], &first, 101 + (sp_ticks)t);
        model[model_count++] = (model_call){.start = 101 + t, .end = 101 + t, .parent = -1, .thread = t};
    }
    sp_ticks now = 200;
    for (int step = 0; step < 30000; step++) {
        const int t = rand() % THREADS;
        now += (sp_ticks)(rand() % 3 + 1);
        if (depth[t] < DEPTH && (depth[t] == 0 || rand() % 2)) {
            const int r = rand() % 3;
            stack[t][depth[t]] = enter_on(threads[t], of, names[r], now);
            const int64_t parent = depth[t] ? (int64_t)index[t][depth[t] - 1] : -1;
            index[t][depth[t]++] = model_count;
            model[model_count++] = (model_call){.start = (int64_t)now, .parent = parent, .region = r, .thread = t, .open = true};
        } else {
            depth[t]--;
            leave_on(threads[t], &stack[t][depth[t]], now);
            model[index[t][depth[t]]].end = (int64_t)now;
            model[index[t][depth[t]]].open = false;
        }
        if (step % 10000 == 9999) check_against_model(of);
    }
    for (int t = 0; t < THREADS; t++) {
        while (depth[t]) {
            depth[t]--;
            leave_on(threads[t], &stack[t][depth[t]], ++now);
            model[index[t][depth[t]]].end = (int64_t)now;
            model[index[t][depth[t]]].open = false;
        }
        puppet_end(threads[t]);
    }
    check_against_model(of);
    record_end(of);
}

/* ---- reading beside collections ---- */

static void entries_and_open_calls_are_counted(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    const uint32_t a = region_id(of, "a"), b = region_id(of, "b");
    call one = enter(of, "a", 110), two = enter_on(thread, of, "b", 120), three = enter(of, "a", 130);
    leave(&three, 140);
    assert_int_equal(sp_run_entries(of->run, a), 2);
    assert_int_equal(sp_run_entries(of->run, b), 1);
    assert_int_equal(sp_run_entries(of->run, 99), 0);
    uint32_t *ids;
    size_t count;
    assert_int_equal(sp_run_open_calls(of->run, &ids, &count, NULL), SP_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0] + ids[1], a + b);
    free(ids);
    sp_profile_release(collect(of));
    assert_int_equal(sp_run_entries(of->run, a), 2); /* collecting does not change what was entered */
    leave(&one, 150);
    leave_on(thread, &two, 160);
    assert_int_equal(sp_run_open_calls(of->run, &ids, &count, NULL), SP_OK);
    assert_int_equal(count, 0);
    free(ids);
    puppet_end(thread);
    record_end(of);
}

static void an_open_call_becomes_one_of_another_region(void **state)
{
    for (int scanned = 0; scanned < 2; scanned++) {
        clock_at(100);
        recording *of = record(true, false);
        const uint32_t a = region_id(of, "a"), b = region_id(of, "b");
        call one = enter(of, "a", 110), inner = enter(of, "a", 120);
        leave(&inner, 130);
        if (scanned) assert_int_equal(sp_run_entries(of->run, a), 2);
        sp_log_rename(one.log, one.slot, b);
        assert_int_equal(sp_run_entries(of->run, a), 1);
        assert_int_equal(sp_run_entries(of->run, b), 1);
        leave(&one, 140);
        sp_profile *profile = collect(of);
        assert_call(profile, "b", 0, 110, 140, 0, -1);
        assert_call(profile, "a", 0, 120, 130, 1, 0);
        sp_profile_release(profile);
        record_end(of);
    }
}

/* Of the run's threads the one with this row. */
static sp_thread_now thread_now(recording *of, int32_t row)
{
    sp_thread_now threads[8];
    const size_t count = sp_run_threads_now(of->run, threads, 8);
    for (size_t i = 0; i < count; i++) {
        if (threads[i].row == row) return threads[i];
    }
    fail_msg("no thread has row %d", row);
    return (sp_thread_now){0};
}

static void the_innermost_open_call_of_each_thread_is_told(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    puppet *thread = puppet_new();
    const int32_t a = (int32_t)region_id(of, "a"), b = (int32_t)region_id(of, "b"), c = (int32_t)region_id(of, "c");
    call one = enter(of, "a", 110), two = enter_on(thread, of, "b", 120);
    assert_int_equal(thread_now(of, 0).region, a);
    assert_int_equal(thread_now(of, 1).region, b);
    assert_int_equal(sp_run_threads_now(of->run, NULL, 0), 2);
    call three = enter(of, "c", 130);
    assert_int_equal(thread_now(of, 0).region, c);
    leave(&one, 140); /* not the innermost */
    assert_int_equal(thread_now(of, 0).region, c);
    leave(&three, 150);
    assert_int_equal(thread_now(of, 0).region, SP_NO_REGION);
    leave_on(thread, &two, 160);
    puppet_end(thread);
    assert_int_equal(sp_run_threads_now(of->run, NULL, 0), 1);
    record_end(of);
}

static void calls_inside_are_those_of_the_lane(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    call outer = enter(of, "a", 110);
    assert_false(sp_log_has_inner(outer.log, outer.slot));
    call inner = enter(of, "b", 120);
    assert_true(sp_log_has_inner(outer.log, outer.slot));
    assert_false(sp_log_has_inner(inner.log, inner.slot));
    leave(&inner, 130);
    assert_false(sp_log_has_inner(outer.log, outer.slot));
    leave(&outer, 140);
    record_end(of);
}

static void peeking_takes_nothing(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    calls(of, "a", 3, 110);
    calls(of, "b", 1, 120);
    call open = enter(of, "a", 130);
    int64_t *starts, *ends;
    size_t count;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sp_run_peek(of->run, region_id(of, "a"), &starts, &ends, &count, NULL), SP_OK);
        assert_int_equal(count, 3);
        assert_int_equal(starts[0], 110);
        assert_int_equal(ends[0], 111);
        assert_int_equal(starts[2], 114);
        free(starts);
        free(ends);
    }
    sp_profile *profile = collect(of);
    assert_calls(profile, "a", 3);
    sp_profile_release(profile);
    assert_int_equal(sp_run_peek(of->run, region_id(of, "a"), &starts, &ends, &count, NULL), SP_OK);
    assert_int_equal(count, 0);
    free(starts);
    free(ends);
    leave(&open, 140);
    assert_int_equal(sp_run_peek(of->run, region_id(of, "a"), &starts, &ends, &count, NULL), SP_OK);
    assert_int_equal(count, 1);
    assert_int_equal(ends[0], 140);
    free(starts);
    free(ends);
    record_end(of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_calls_make_a_tree),
        cmocka_unit_test(recursion_nests_in_itself),
        cmocka_unit_test(calls_of_no_length_nest_where_they_lie),
        cmocka_unit_test(threads_interleave_without_nesting_in_each_other),
        cmocka_unit_test(an_untracked_run_has_one_lane_and_no_tables),
        cmocka_unit_test(lane_keys_are_given_on_request),
        cmocka_unit_test(every_call_is_in_the_first_collection_after_its_end),
        cmocka_unit_test(ids_go_on_where_they_are_told_to),
        cmocka_unit_test(rows_are_in_order_of_creation_and_carry_the_source),
        cmocka_unit_test(an_empty_run_is_an_empty_profile),
        cmocka_unit_test(collected_blocks_are_freed),
        cmocka_unit_test(open_calls_survive_collections_in_any_block),
        cmocka_unit_test(random_calls_match_a_model),
        cmocka_unit_test(entries_and_open_calls_are_counted),
        cmocka_unit_test(an_open_call_becomes_one_of_another_region),
        cmocka_unit_test(the_innermost_open_call_of_each_thread_is_told),
        cmocka_unit_test(calls_inside_are_those_of_the_lane),
        cmocka_unit_test(peeking_takes_nothing),
    };
    return cmocka_run_group_tests_name("collect", tests, NULL, NULL);
}
