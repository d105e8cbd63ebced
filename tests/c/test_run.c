/* Runs: regions, pause, calls without a handle, several runs at once, and what is left when a run is dropped. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void regions_are_found_by_name(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    char name[32];
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "region %u", i);
        assert_int_equal(region_id(of, name), i);
    }
    for (uint32_t i = 5000; i-- > 0;) {
        snprintf(name, sizeof name, "region %u", i);
        assert_int_equal(region_id(of, name), i);
    }
    assert_int_equal(region_id(of, ""), 5000);
    uint32_t id;
    assert_int_equal(sp_run_region(of->run, "region 7", "other.py", 3, NULL, NULL, &id, NULL), SP_OK);
    assert_int_equal(id, 7);
    assert_null(of->run->regions[7]->source_file); /* the first site stays */
    assert_int_equal(of->run->regions[7]->source_line, SP_UNKNOWN);
    record_end(of);
}

static void every_run_has_a_number_of_its_own(void **state)
{
    clock_at(100);
    recording *a = record(false, false), *b = record(false, false);
    const uint64_t first = a->run->token, second = b->run->token;
    assert_true(first != 0 && second > first);
    record_end(a);
    a = record(false, false);
    assert_true(a->run->token > second);
    record_end(a);
    record_end(b);
}

static void runs_alternate_on_one_thread(void **state)
{
    clock_at(100);
    recording *runs[5];
    call open[5];
    for (int r = 0; r < 5; r++) runs[r] = record(r % 2, false);
    for (sp_ticks i = 0; i < 3000; i++) {
        for (size_t r = 0; r < 5; r++) open[r] = enter(runs[r], "a", 1000 + 100 * i + r);
        for (size_t r = 5; r-- > 0;) leave(&open[r], 1000 + 100 * i + 50 - r);
    }
    for (int64_t r = 0; r < 5; r++) {
        sp_profile *profile = collect(runs[r]);
        assert_calls(profile, "a", 3000);
        for (int64_t i = 0; i < 3000; i++) {
            assert_call(profile, "a", (size_t)i, 1000 + 100 * i + r, 1000 + 100 * i + 50 - r, i, -1);
        }
        sp_profile_release(profile);
    }
    for (int r = 0; r < 5; r++) record_end(runs[r]);
}

/* An exit while another run is the thread's latest closes the call of its own run. */
static void exits_find_their_own_run(void **state)
{
    clock_at(100);
    recording *a = record(true, true), *b = record(false, false);
    call one = enter(a, "x", 110), two = enter(b, "x", 120);
    leave(&one, 130);
    leave(&two, 140);
    sp_profile *of_a = collect(a), *of_b = collect(b);
    assert_call(of_a, "x", 0, 110, 130, 0, -1);
    assert_call(of_b, "x", 0, 120, 140, 0, -1);
    sp_profile_release(of_a);
    sp_profile_release(of_b);
    record_end(a);
    record_end(b);
}

static void a_pause_records_nothing_new(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call before = enter(of, "a", 110);
    sp_run_set_paused(of->run, true);
    assert_null(enter(of, "a", 120).slot);
    leave(&before, 130); /* what is open is closed at its time */
    sp_run_set_paused(of->run, false);
    calls(of, "a", 1, 140);
    sp_profile *profile = collect(of);
    assert_calls(profile, "a", 2);
    assert_call(profile, "a", 0, 110, 130, 0, -1);
    assert_call(profile, "a", 1, 140, 141, 1, -1);
    sp_profile_release(profile);
    record_end(of);
}

static void a_closed_run_stays_collectable(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    call open = enter(of, "a", 110);
    calls(of, "b", 2, 120);
    sp_run_close(of->run);
    sp_run_close(of->run);
    sp_run_set_paused(of->run, false); /* does not open it again */
    assert_int_equal(atomic_load(&of->gate.token), 0);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 2);
    sp_profile_release(profile);
    leave(&open, 200);
    profile = collect(of);
    assert_call(profile, "a", 0, 110, 200, 0, -1);
    sp_profile_release(profile);
    record_end(of);
}

static void another_gate_can_take_over(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    sp_switch gate = {0};
    sp_run_attach(of->run, &gate);
    assert_int_equal(atomic_load(&gate.token), of->run->token);
    sp_run_close(of->run);
    assert_int_equal(atomic_load(&gate.token), 0);
    record_end(of);
}

/* ---- calls without a handle ---- */

static sp_slot *loose(recording *of, const char *region, sp_ticks at)
{
    call open = enter(of, region, at);
    sp_run_add_loose(open.log, open.slot);
    return open.slot;
}

static bool close_loose(recording *of, const char *region, sp_ticks at)
{
    clock_at(at);
    return sp_run_close_loose(of->run, region_id(of, region));
}

static void loose_calls_close_the_newest_first(void **state)
{
    clock_at(100);
    recording *of = record(false, false);
    loose(of, "a", 110);
    loose(of, "b", 120);
    loose(of, "a", 130);
    assert_true(close_loose(of, "a", 140));
    assert_true(close_loose(of, "b", 150));
    assert_true(close_loose(of, "a", 160));
    assert_false(close_loose(of, "a", 170));
    sp_profile *profile = collect(of);
    assert_call(profile, "a", 0, 110, 160, 0, -1);
    assert_call(profile, "b", 0, 120, 150, 1, 0);
    assert_call(profile, "a", 1, 130, 140, 2, 1);
    sp_profile_release(profile);
    record_end(of);
}

static void do_close_loose(void *with)
{
    recording *of = with;
    assert_true(close_loose(of, "a", 500));
}

typedef struct loose_move {
    recording *of;
    sp_ticks at;
} loose_move;

static void do_loose(void *with)
{
    const loose_move *m = with;
    loose(m->of, "a", m->at);
}

/* Both threads have one open: each closes its own, then the one that has none left closes the other's. */
static void a_loose_exit_prefers_its_own_lane(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    loose(of, "a", 110);
    puppet_do(thread, do_loose, &(loose_move){of, 120});
    assert_true(close_loose(of, "a", 130));
    loose(of, "a", 140);
    puppet_do(thread, do_close_loose, of);
    puppet_do(thread, do_close_loose, of);
    sp_profile *profile = collect(of);
    assert_int_equal(seen_call(profile, "a", 0).end, 130);
    assert_int_equal(seen_call(profile, "a", 1).end, 500);
    assert_int_equal(seen_call(profile, "a", 1).thread, 1);
    assert_int_equal(seen_call(profile, "a", 2).end, 500);
    assert_int_equal(seen_call(profile, "a", 2).thread, 0);
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
}

static void a_loose_exit_prefers_its_own_task(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_log *log = sp_run_log(of->run);
    sp_task *one = sp_run_task_add(of->run, SP_TASK_TASK, "f"), *two = sp_run_task_add(of->run, SP_TASK_TASK, "f");
    sp_lane_before before = sp_log_enter_step(log, one);
    loose(of, "a", 110);
    sp_log_leave_step(log, one, before);
    before = sp_log_enter_step(log, two);
    loose(of, "a", 120);
    sp_log_leave_step(log, two, before);
    before = sp_log_enter_step(log, one);
    assert_true(close_loose(of, "a", 130)); /* not the newest: that of this task */
    sp_log_leave_step(log, one, before);
    assert_true(close_loose(of, "a", 140)); /* none of this lane: any */
    sp_profile *profile = collect(of);
    assert_int_equal(seen_call(profile, "a", 0).end, 130);
    assert_int_equal(seen_call(profile, "a", 1).end, 140);
    sp_profile_release(profile);
    record_end(of);
}

/* ---- dropped runs ---- */

static void a_dropped_run_leaves_nothing(void **state)
{
    clock_at(100);
    record_end(record(true, true)); /* what is made once is made */
    memory_reset();
    for (int tasks = 0; tasks < 2; tasks++) {
        recording *of = record(true, tasks);
        calls(of, "a", 300000, 200);
        if (tasks) {
            sp_task *task = sp_run_task_add(of->run, SP_TASK_TASK, "f");
            sp_run_task_name(of->run, task, "a name");
        }
        loose(of, "b", 1000000);
        close_loose(of, "b", 1000001);
        record_end(of);
    }
    assert_int_equal(memory_blocks(), 0);
    assert_int_equal(memory_mapped(), 0);
}

/* Threads that live on keep only their tail, whose pages are given back; the rest goes when they next record or end. */
static void a_dropped_run_of_live_threads_goes_when_they_do(void **state)
{
    clock_at(100);
    record_end(record(true, false));
    memory_reset();
    for (int recorded = 0; recorded < 2; recorded++) {
        puppet *thread = puppet_new();
        recording *of = record(true, false), *other = record(false, false);
        calls_on(thread, of, "a", 20000, 200);
        assert_int_equal(memory_mapped(), 1 << 21);
        record_end(of);
        assert_int_equal(memory_mapped(), 1 << 21);
        if (recorded) {
            call one = enter_on(thread, other, "a", 1000000);
            leave_on(thread, &one, 1000001);
            assert_int_equal(memory_mapped(), 0);
        }
        puppet_end(thread);
        assert_int_equal(memory_mapped(), 0);
        record_end(other);
        assert_int_equal(memory_blocks(), 0);
    }
}

/* A call open in a dropped run, in a mapped block, ends later and on another thread: nothing crashes, nothing stays. */
static void a_call_may_end_after_its_run_was_dropped(void **state)
{
    clock_at(100);
    record_end(record(true, true));
    memory_reset();
    for (int own = 0; own < 2; own++) {
        for (int ends_first = 0; ends_first < 2; ends_first++) {
            puppet *thread = puppet_new();
            recording *of = record(true, own);
            call early = enter_on(thread, of, "a", 110);
            calls_on(thread, of, "a", 20000, 200);
            call late = enter_on(thread, of, "a", 1000000);
            record_end(of);
            if (ends_first) puppet_end(thread);
            if (own && !ends_first) {
                leave_on(thread, &late, 1000001);
                leave_on(thread, &early, 1000002);
            } else {
                leave(&late, 1000001);
                leave(&early, 1000002);
            }
            if (!ends_first) puppet_end(thread);
            record_end(record(false, false)); /* the next run looks after what was left */
            assert_int_equal(memory_mapped(), 0);
            assert_int_equal(memory_blocks(), 0);
        }
    }
}

static void a_thread_may_be_in_a_region_when_its_run_is_dropped_and_record_on(void **state)
{
    clock_at(100);
    record_end(record(false, false));
    memory_reset();
    puppet *thread = puppet_new();
    recording *of = record(false, false);
    call outer = enter_on(thread, of, "a", 110);
    for (int i = 0; i < 5; i++) {
        recording *next = record(false, false);
        record_end(of);
        of = next;
        call inner = enter_on(thread, of, "b", 120);
        leave_on(thread, &inner, 130);
    }
    leave_on(thread, &outer, 140);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 1);
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
    record_end(record(false, false));
    assert_int_equal(memory_blocks(), 0);
}

/* 1,000 sessions on threads that live through all of them: no log, run or row is left over at any time. */
static void sessions_do_not_add_up(void **state)
{
    clock_at(100);
    record_end(record(true, false));
    memory_reset();
    puppet *threads[4];
    for (int t = 0; t < 4; t++) threads[t] = puppet_new();
    int64_t blocks = 0;
    for (int session = 0; session < 1000; session++) {
        recording *of = record(true, session % 2);
        for (int t = 0; t < 4; t++) {
            call one = enter_on(threads[t], of, "a", 110);
            leave_on(threads[t], &one, 120);
        }
        calls(of, "a", 3, 130);
        sp_profile *profile = collect(of);
        assert_int_equal(profile->call_count, 7);
        assert_int_equal(profile->thread_count, 5);
        sp_profile_release(profile);
        record_end(of);
        if (session == 10) blocks = memory_blocks();
        if (session > 10) assert_int_equal(memory_blocks(), blocks);
    }
    for (int t = 0; t < 4; t++) puppet_end(threads[t]);
    assert_int_equal(memory_blocks(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_found_by_name),
        cmocka_unit_test(every_run_has_a_number_of_its_own),
        cmocka_unit_test(runs_alternate_on_one_thread),
        cmocka_unit_test(exits_find_their_own_run),
        cmocka_unit_test(a_pause_records_nothing_new),
        cmocka_unit_test(a_closed_run_stays_collectable),
        cmocka_unit_test(another_gate_can_take_over),
        cmocka_unit_test(loose_calls_close_the_newest_first),
        cmocka_unit_test(a_loose_exit_prefers_its_own_lane),
        cmocka_unit_test(a_loose_exit_prefers_its_own_task),
        cmocka_unit_test(a_dropped_run_leaves_nothing),
        cmocka_unit_test(a_dropped_run_of_live_threads_goes_when_they_do),
        cmocka_unit_test(a_call_may_end_after_its_run_was_dropped),
        cmocka_unit_test(a_thread_may_be_in_a_region_when_its_run_is_dropped_and_record_on),
        cmocka_unit_test(sessions_do_not_add_up),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
