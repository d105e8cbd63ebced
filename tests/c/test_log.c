/* One log: slots, blocks, who may close a call, and what recording leaves alone. */
#include "support.h"

#include <errno.h>
#include <string.h>

static size_t blocks_of(const sp_log *log)
{
    size_t count = 0;
    for (const sp_block *block = log->head; block; block = atomic_load(&block->next)) count++;
    return count;
}

static void a_call_has_the_times_of_its_entry_and_exit(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call a = enter(of, "a", 110);
    leave(&a, 117);
    sp_profile *profile = collect(of);
    assert_call(profile, "a", 0, 110, 117, 0, -1);
    assert_int_equal(of->run->start_ns, 100);
    sp_profile_release(profile);
    record_end(of);
}

static void a_closed_switch_records_nothing(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    sp_run_close(of->run);
    call a = enter(of, "a", 110);
    assert_null(a.slot);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 0);
    sp_profile_release(profile);
    record_end(of);
}

/* 128 slots, then eight times as many, then huge pages; nothing moves, nothing is skipped. */
static void blocks_grow_and_never_move(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    const uint64_t token = atomic_load(&of->gate.token);
    const uint32_t id = region_id(of, "a");
    enum { COUNT = 400000 };
    static sp_slot *slots[COUNT];
    for (sp_ticks i = 0; i < COUNT; i++) {
        clock_at(200 + 2 * i);
        sp_log *log = sp_log_current(token);
        slots[i] = sp_log_enter(log, id);
        clock_at(201 + 2 * i);
        sp_log_exit(log, slots[i]);
    }
    const sp_log *log = sp_log_current(token);
    assert_int_equal(log->head->bytes, 128 * 24);
    assert_int_equal(atomic_load(&log->head->next)->bytes, 8 * 128 * 24);
    assert_int_equal(blocks_of(log), 3 + 5); /* 128 + 1024 + 8192, then 87,381 a block of 2 MiB */
    for (sp_ticks i = 0; i < COUNT; i++) {
        assert_int_equal(atomic_load(&slots[i]->start), 200 + 2 * i);
        assert_int_equal(atomic_load(&slots[i]->end), 201 + 2 * i);
    }
    sp_profile *profile = collect(of);
    assert_calls(profile, "a", COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        const int64_t start = (int64_t)(200 + 2 * i);
        assert_call(profile, "a", i, start, start + 1, (int64_t)i, -1);
    }
    sp_profile_release(profile);
    record_end(of);
}

static void the_first_block_is_as_small_as_asked(void **state)
{
    clock_at(100);
    const size_t sizes[] = {1, 2, 7, SIZE_MAX / 16};
    for (size_t i = 0; i < 4; i++) {
        recording *of = record_with(&(sp_run_options){.first_block = sizes[i]});
        calls(of, "a", 20, 200);
        const sp_log *log = sp_log_current(of->run->token);
        assert_int_equal(log->head->bytes, sizes[i] < 8 ? sizes[i] * 24 : ((size_t)1 << 24) * 24);
        sp_profile *profile = collect(of);
        assert_calls(profile, "a", 20);
        sp_profile_release(profile);
        record_end(of);
    }
}

/*
 * Where the next block lies just below or just above, the end of one is the begin of the other. Blocks of 2 MiB are mapped
 * downwards and hold a whole number of 32-byte slots, so in async runs this is the rule.
 */
static void blocks_back_to_back_are_told_apart(void **state)
{
    static char memory[2 * 1024];
    for (int below = 0; below < 2; below++) {
        sp_block first = {.begin = memory + (below ? 1024 : 0)}, second = {.begin = memory + (below ? 0 : 1024)};
        first.end = first.begin + 1024;
        second.end = second.begin + 1024;
        assert_ptr_equal(sp_block_readable(&first, NULL), first.begin);
        assert_ptr_equal(sp_block_readable(&first, first.begin + 32), first.begin + 32);
        assert_ptr_equal(sp_block_readable(&first, first.end), first.end);
        for (char *next = second.begin + 32; next <= second.end; next += 32) {
            assert_ptr_equal(sp_block_readable(&first, next), first.end);
            assert_ptr_equal(sp_block_readable(&second, next), next);
        }
    }
}

static void an_async_run_of_many_blocks_is_whole(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    calls(of, "a", 128 + 1024 + 8192 + 3 * 65536, 200); /* the last block is exactly full */
    assert_int_equal(sp_run_entries(of->run, 0), 128 + 1024 + 8192 + 3 * 65536);
    sp_profile *profile = collect(of);
    assert_calls(profile, "a", 128 + 1024 + 8192 + 3 * 65536);
    sp_profile_release(profile);
    calls(of, "a", 1, 10000000);
    profile = collect(of);
    assert_calls(profile, "a", 1);
    sp_profile_release(profile);
    record_end(of);
}

static void another_thread_may_close_a_call(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    call mine = enter(of, "a", 110), its = enter_on(thread, of, "b", 120);
    leave_on(thread, &mine, 130);
    leave(&its, 140);
    sp_profile *profile = collect(of);
    assert_call(profile, "a", 0, 110, 130, 0, -1);
    assert_call(profile, "b", 0, 120, 140, 1, -1);
    assert_int_equal(seen_call(profile, "a", 0).thread, 0); /* the call stays on the lane it was entered on */
    assert_int_equal(seen_call(profile, "b", 0).thread, 1);
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
}

/* Handles close their own calls in any order: nothing is popped. */
static void calls_close_in_any_order(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call a = enter(of, "r", 110), b = enter(of, "r", 120), c = enter(of, "r", 130);
    leave(&b, 140);
    leave(&a, 150);
    leave(&c, 160);
    sp_profile *profile = collect(of);
    assert_call(profile, "r", 0, 110, 150, 0, -1);
    assert_call(profile, "r", 1, 120, 140, 0, -1);
    assert_call(profile, "r", 2, 130, 160, 0, -1);
    assert_false(profile->nested);
    assert_null(profile->columns[SP_COLUMN_CALL_ID]);
    assert_null(profile->columns[SP_COLUMN_PARENT_ID]);
    assert_int_equal(row_of(profile, "r")->exclusive_total, SP_UNKNOWN);
    sp_profile_release(profile);
    record_end(of);
}

static void an_abandoned_call_is_never_reported(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call a = enter(of, "a", 110), b = enter(of, "b", 120);
    atomic_store(&b.slot->end, SP_SLOT_ABANDONED);
    leave(&a, 130);
    for (int i = 0; i < 2; i++) {
        sp_profile *profile = collect(of);
        assert_calls(profile, "a", i == 0);
        assert_calls(profile, "b", 0);
        if (i == 0) assert_int_equal(row_of(profile, "a")->exclusive_total, 20);
        sp_profile_release(profile);
    }
    uint32_t *ids;
    size_t count;
    assert_int_equal(sp_run_open_calls(of->run, &ids, &count, NULL), SP_OK);
    assert_int_equal(count, 0);
    free(ids);
    record_end(of);
}

static void errno_is_left_alone(void **state)
{
    sp_clock_inject(NULL, NULL); /* the real one, which takes anchors */
    sp_switch gate = {0};
    sp_run *run;
    assert_int_equal(sp_run_open(&(sp_run_options){.first_block = 1}, &gate, &run, NULL), SP_OK);
    uint32_t id;
    assert_int_equal(sp_run_region(run, "a", NULL, -1, NULL, NULL, &id, NULL), SP_OK);
    memory_fail(2, true); /* the log and its row are there, the block is not: malloc sets errno */
    for (int i = 0; i < 200; i++) {
        errno = 77;
        sp_log *log = sp_log_current(atomic_load(&gate.token));
        assert_int_equal(errno, 77);
        if (log) {
            sp_slot *slot = sp_log_enter(log, id);
            if (slot) sp_log_exit(log, slot);
        }
        assert_int_equal(errno, 77);
        if (i == 50) memory_fail(-1, false);
    }
    sp_run_drop(run);
    clock_at(100);
}

static void errno_is_left_alone_by_exits_elsewhere(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    puppet *thread = puppet_new();
    call a = enter_on(thread, of, "a", 110);
    errno = 78;
    leave(&a, 120);
    assert_int_equal(errno, 78);
    puppet_end(thread);
    record_end(of);
}

/* A handful of calls costs 3 kB; memory of collected blocks is given back. */
static void a_short_log_is_small(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    const int64_t before = memory_mapped();
    calls(of, "a", 5, 200);
    assert_int_equal(memory_mapped(), before);
    assert_int_equal(sp_log_current(of->run->token)->head->bytes, 3072);
    record_end(of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_has_the_times_of_its_entry_and_exit),
        cmocka_unit_test(a_closed_switch_records_nothing),
        cmocka_unit_test(blocks_grow_and_never_move),
        cmocka_unit_test(the_first_block_is_as_small_as_asked),
        cmocka_unit_test(blocks_back_to_back_are_told_apart),
        cmocka_unit_test(an_async_run_of_many_blocks_is_whole),
        cmocka_unit_test(another_thread_may_close_a_call),
        cmocka_unit_test(calls_close_in_any_order),
        cmocka_unit_test(an_abandoned_call_is_never_reported),
        cmocka_unit_test(errno_is_left_alone),
        cmocka_unit_test(errno_is_left_alone_by_exits_elsewhere),
        cmocka_unit_test(a_short_log_is_small),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
