/*
 * Allocations that fail: every one in turn, and then all of them from there on. Nothing crashes or leaks; what was recorded is
 * reported once memory is there again, and what was not is counted.
 */
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* Run `what` with the n-th allocation failing, for every n that it gets to. */
static void with_every_failure(void (*what)(void))
{
    for (int all = 0; all < 2; all++) {
        for (int64_t n = 0;; n++) {
            clock_at(100);
            memory_fail(n, all);
            what();
            const bool reached = memory_requests() > n;
            memory_fail(-1, false);
            record_end(record(false, false)); /* looks after what dropped runs left */
            assert_int_equal(memory_blocks(), 0);
            assert_int_equal(memory_mapped(), 0);
            if (!reached) break;
        }
    }
}

static void start(void)
{
    clock_at(100);
    record_end(record(true, true)); /* what is made once is made, */
    assert_non_null(sp_thread_current()); /* and what lives as long as its thread */
    memory_reset();
}

static void open_and_drop(void)
{
    sp_switch gate = {0};
    sp_run *run = NULL;
    sp_error error = {0};
    const sp_status status = sp_run_open(&(sp_run_options){.tracks_tasks = true}, &gate, &run, &error);
    if (status == SP_OK) {
        assert_int_equal(atomic_load(&gate.token), run->token);
        sp_run_drop(run);
    } else {
        assert_int_equal(status, SP_ERR_NO_MEMORY);
        assert_true(error.message[0] != '\0');
    }
    assert_int_equal(atomic_load(&gate.token), 0);
}

static void opening(void **state)
{
    start();
    with_every_failure(open_and_drop);
}

static sp_switch gate;
static sp_run *run;

static bool reopen(void)
{
    return sp_run_open(&(sp_run_options){.tracks_threads = true, .tracks_tasks = true, .first_block = 4}, &gate, &run, NULL) ==
        SP_OK;
}

static void add_regions(void)
{
    if (!reopen()) return;
    char name[16] = "region 000";
    size_t added = 0;
    for (int i = 0; i < 150; i++) {
        name[7] = (char)('0' + i / 100);
        name[8] = (char)('0' + i / 10 % 10);
        name[9] = (char)('0' + i % 10);
        uint32_t id = 12345;
        const sp_status status = sp_run_region(run, name, "file", 1, "text", "tags", &id, NULL);
        assert_true(status == SP_OK || status == SP_ERR_NO_MEMORY);
        if (status == SP_OK) assert_int_equal(id, added++); /* dense, whatever failed before */
    }
    memory_fail(-1, false);
    for (size_t i = 0; i < added; i++) {
        uint32_t id;
        assert_int_equal(sp_run_region(run, run->regions[i]->name, NULL, 0, NULL, NULL, &id, NULL), SP_OK);
        assert_int_equal(id, i);
    }
    assert_int_equal(run->region_count, added);
    sp_run_drop(run);
}

static void adding_regions(void **state)
{
    start();
    /* memory_requests counts from memory_fail, so the loop in with_every_failure cannot be used as it is */
    for (int all = 0; all < 2; all++) {
        for (int64_t n = 0; n < 150 * 5 + 30; n += n < 40 ? 1 : 7) {
            clock_at(100);
            memory_fail(n, all);
            add_regions();
            memory_fail(-1, false);
            assert_int_equal(memory_blocks(), 0);
        }
    }
}

/* Calls of three depths with failures in between: what a slot was given for is reported, the rest is counted as lost. */
static void record_and_collect(int64_t fail_recording, int64_t fail_collecting, bool all)
{
    clock_at(100);
    assert_true(reopen());
    uint32_t a, b;
    assert_int_equal(sp_run_region(run, "a", "f", 1, "t", "[]", &a, NULL), SP_OK);
    assert_int_equal(sp_run_region(run, "b", NULL, 1, NULL, NULL, &b, NULL), SP_OK);
    const uint64_t token = atomic_load(&gate.token);
    size_t recorded = 0, lost = 0, no_log = 0;
    sp_slot *open = NULL;
    memory_fail(fail_recording, all);
    sp_ticks now = 200;
    for (int i = 0; i < 3000; i++) {
        sp_log *log = sp_log_current(token);
        if (log == NULL) {
            no_log++;
            continue;
        }
        clock_at(now++);
        sp_slot *outer = sp_log_enter(log, a);
        clock_at(now++);
        sp_slot *inner = sp_log_enter(log, b);
        recorded += (outer != NULL) + (inner != NULL);
        lost += (outer == NULL) + (inner == NULL);
        clock_at(now++);
        if (inner) sp_log_exit(log, inner);
        if (outer && open == NULL) open = outer; /* the first stays open */
        else if (outer) sp_log_exit(log, outer);
    }
    pthread_mutex_lock(&run->lock);
    assert_int_equal(sp_run_lost(run), lost);
    pthread_mutex_unlock(&run->lock);
    if (fail_recording < 0) assert_int_equal(recorded, 6000);

    /* A collection that fails takes nothing. */
    memory_fail(fail_collecting, all);
    sp_profile *profile = NULL;
    int64_t *lanes = NULL;
    sp_error error = {0};
    sp_status status = sp_run_collect(run, 0, 0, &profile, &lanes, &error);
    if (status != SP_OK) {
        assert_int_equal(status, SP_ERR_NO_MEMORY);
        assert_string_not_equal(error.message, "");
        int64_t *starts, *ends;
        size_t count;
        memory_fail(-1, false);
        assert_int_equal(sp_run_peek(run, b, &starts, &ends, &count, NULL), SP_OK);
        assert_true(count <= 3000);
        free(starts);
        free(ends);
        status = sp_run_collect(run, 0, 0, &profile, &lanes, &error);
    }
    memory_fail(-1, false);
    assert_int_equal(status, SP_OK);
    assert_int_equal(profile->call_count, recorded - (open != NULL));
    int64_t start = 0;
    for (uint64_t i = 0; i < profile->call_count && profile->rows[0].count == profile->call_count; i++) {
        assert_true(profile->columns[SP_COLUMN_START][i] > start);
        start = profile->columns[SP_COLUMN_START][i];
    }
    sp_column_free(lanes, profile->call_count);
    sp_profile_release(profile);

    if (open) {
        clock_at(now);
        sp_log_exit(sp_log_current(token), open);
        assert_int_equal(sp_run_collect(run, 0, 0, &profile, NULL, NULL), SP_OK);
        assert_int_equal(profile->call_count, 1);
        sp_profile_release(profile);
    }
    sp_run_drop(run);
    assert_int_equal(memory_blocks(), 0);
    assert_int_equal(memory_mapped(), 0);
}

static void recording_calls(void **state)
{
    start();
    for (int all = 0; all < 2; all++) {
        for (int64_t n = 0; n < 40; n++) record_and_collect(n, -1, all);
    }
}

static void collecting(void **state)
{
    start();
    for (int all = 0; all < 2; all++) {
        for (int64_t n = 0; n < 60; n++) record_and_collect(-1, n, all);
    }
}

static void look_around(void)
{
    if (!reopen()) return;
    uint32_t a = 0;
    const sp_status known = sp_run_region(run, "a", NULL, 1, NULL, NULL, &a, NULL);
    sp_log *log = sp_run_log(run);
    sp_slot *open[100] = {NULL};
    for (int i = 0; known == SP_OK && log && i < 100; i++) {
        open[i] = sp_log_enter(log, a);
        if (open[i] && i % 2) {
            sp_run_add_loose(log, open[i]);
        }
    }
    uint32_t *ids = NULL;
    int64_t *starts = NULL, *ends = NULL;
    size_t count;
    if (sp_run_open_calls(run, &ids, &count, NULL) == SP_OK) assert_true(count <= 100);
    free(ids);
    if (known == SP_OK) assert_true(sp_run_entries(run, a) <= 100);
    for (int i = 0; log && i < 100; i += 2) {
        if (open[i]) sp_log_exit(log, open[i]);
    }
    if (known == SP_OK && sp_run_peek(run, a, &starts, &ends, &count, NULL) == SP_OK) {
        free(starts);
        free(ends);
    }
    for (int i = 0; known == SP_OK && i < 50; i++) sp_run_close_loose(run, a);
    /* Those that could not be remembered are still open, and their blocks are kept for them. */
    for (int i = 0; i < 100; i++) {
        if (open[i] && !sp_slot_is_open(open[i])) open[i] = NULL;
    }
    sp_run_drop(run);
    for (int i = 0; i < 100; i++) {
        if (open[i]) sp_log_exit(log, open[i]);
    }
}

static void looking_around(void **state)
{
    start();
    with_every_failure(look_around);
}

static void run_tasks(void)
{
    if (!reopen()) return;
    sp_log *log = sp_run_log(run);
    char name[] = "name 00";
    for (int i = 0; i < 60; i++) {
        name[5] = (char)('0' + i / 10);
        name[6] = (char)('0' + i % 10);
        sp_task *task = sp_run_task_add(run, SP_TASK_TASK, name);
        if (task == NULL) continue;
        sp_run_task_name(run, task, name);
        if (log == NULL) continue;
        const sp_lane_before before = sp_log_enter_step(log, task);
        sp_log_leave_step(log, task, before);
    }
    sp_profile *profile;
    if (sp_run_collect(run, 0, 0, &profile, NULL, NULL) == SP_OK) {
        assert_int_equal(profile->task_count, run->task_count);
        sp_profile_release(profile);
    }
    sp_run_drop(run);
}

static void running_tasks(void **state)
{
    start();
    with_every_failure(run_tasks);
}

/* A thread whose record cannot be made records nothing and ends cleanly. */
static void do_record(void *with)
{
    sp_log *log = sp_run_log(run);
    if (log == NULL) return;
    sp_slot *slot = sp_log_enter(log, 0);
    if (slot) sp_log_exit(log, slot);
}

static void starting_threads(void **state)
{
    start();
    for (int64_t n = 0; n < 8; n++) {
        assert_true(reopen());
        uint32_t a;
        assert_int_equal(sp_run_region(run, "a", NULL, 1, NULL, NULL, &a, NULL), SP_OK);
        puppet *thread = puppet_new();
        memory_fail(n, true);
        puppet_do(thread, do_record, NULL);
        memory_fail(-1, false);
        puppet_do(thread, do_record, NULL); /* and with memory it is there */
        puppet_end(thread);
        sp_profile *profile;
        assert_int_equal(sp_run_collect(run, 0, 0, &profile, NULL, NULL), SP_OK);
        assert_in_range(profile->call_count, 1, 2);
        assert_int_equal(profile->thread_count, 1);
        sp_profile_release(profile);
        sp_run_drop(run);
        assert_int_equal(memory_blocks(), 0);
    }
}

/* A block of a dropped run that waits for its open call takes no memory to be kept. */
static void dropping_with_open_calls(void **state)
{
    start();
    clock_at(100);
    assert_true(reopen());
    uint32_t a;
    assert_int_equal(sp_run_region(run, "a", NULL, 1, NULL, NULL, &a, NULL), SP_OK);
    sp_log *log = sp_run_log(run);
    sp_slot *open = sp_log_enter(log, a);
    memory_fail(0, true);
    sp_run_drop(run);
    memory_fail(-1, false);
    sp_log_exit(log, open);
    record_end(record(false, false));
    assert_int_equal(memory_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),
        cmocka_unit_test(adding_regions),
        cmocka_unit_test(recording_calls),
        cmocka_unit_test(collecting),
        cmocka_unit_test(looking_around),
        cmocka_unit_test(running_tasks),
        cmocka_unit_test(starting_threads),
        cmocka_unit_test(dropping_with_open_calls),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
