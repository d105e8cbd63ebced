/* Runs that keep sums: what is added where, what other threads may do meanwhile, and what becomes of memory. */
#include "support.h"

#include <string.h>

#include "core/totals.h"
#include "platform/platform.h"

static recording *record_sums(void)
{
    return record_with(&(sp_run_options){.sums = true});
}

static void assert_sums(recording *of, const char *region, uint64_t count, int64_t total, int64_t minimum, int64_t maximum, int64_t own,
                        sp_profile *profile)
{
    (void)of;
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (strcmp(profile->names[row->name], region) != 0) continue;
        assert_true(row->has_aggregate);
        assert_int_equal(row->aggregate_count, count);
        assert_int_equal(row->aggregate_total, total);
        assert_int_equal(row->aggregate_minimum, minimum);
        assert_int_equal(row->aggregate_maximum, maximum);
        assert_int_equal(row->aggregate_exclusive, own);
        return;
    }
    fail_msg("there is no region %s", region);
}

static void calls_inside_a_call_are_not_its_own_time(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    call outer = enter(of, "outer", 110);
    call first = enter(of, "inner", 112);
    leave(&first, 115);
    call second = enter(of, "inner", 120);
    leave(&second, 130);
    leave(&outer, 140);
    sp_profile *profile = collect(of);
    assert_true(profile->aggregate);
    assert_sums(of, "outer", 1, 30, 30, 30, 17, profile);
    assert_sums(of, "inner", 2, 13, 3, 10, 13, profile);
    const sp_row_statistics *s = &profile->rows[1].statistics;
    assert_int_equal(s->first, 3);
    assert_int_equal(s->last, 10);
    assert_int_equal(s->start_minimum, 112);
    assert_int_equal(s->end_maximum, 130);
    assert_float_equal(s->m2, 2 * 3.5 * 3.5, 1e-9);
    sp_profile_release(profile);
    record_end(of);
}

/* What was open when its caller ended is inside the caller's caller from then on. */
static void calls_that_end_in_any_order(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    call a = enter(of, "a", 110);
    call b = enter(of, "b", 112);
    call c = enter(of, "c", 115);
    leave(&b, 120);
    leave(&c, 130);
    leave(&a, 140);
    sp_profile *profile = collect(of);
    assert_sums(of, "a", 1, 30, 30, 30, 30 - 18, profile);
    assert_sums(of, "b", 1, 8, 8, 8, 3, profile);
    assert_sums(of, "c", 1, 15, 15, 15, 15, profile);
    sp_profile_release(profile);
    record_end(of);
}

static void lanes_have_callers_of_their_own(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    sp_log *log = sp_run_log(of->run);
    int keys[2];
    call main = enter(of, "main", 110);
    sp_tally_set_lane(log, &keys[0]);
    call a = enter(of, "a", 111);
    sp_tally_set_lane(log, &keys[1]);
    call b = enter(of, "b", 112);
    sp_tally_set_lane(log, &keys[0]);
    call inside = enter(of, "inside", 113);
    leave(&inside, 115);
    leave(&b, 116); /* on another lane than it began on */
    leave(&a, 120);
    sp_tally_set_lane(log, NULL);
    leave(&main, 130);
    assert_int_equal(log->tally->waiting_count, 0);
    sp_profile *profile = collect(of);
    assert_sums(of, "main", 1, 20, 20, 20, 20, profile);
    assert_sums(of, "a", 1, 9, 9, 9, 7, profile);
    assert_sums(of, "b", 1, 4, 4, 4, 4, profile);
    sp_profile_release(profile);
    record_end(of);
}

static void every_collection_has_what_came_since_the_last(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    for (sp_ticks i = 0; i < 3; i++) {
        call a = enter(of, "a", 110 + 20 * i);
        leave(&a, 111 + 21 * i);
        sp_profile *profile = collect(of);
        assert_sums(of, "a", 1, (int64_t)(1 + i), (int64_t)(1 + i), (int64_t)(1 + i), (int64_t)(1 + i), profile);
        sp_profile_release(profile);
    }
    assert_int_equal(sp_run_entries(of->run, region_id(of, "a")), 3);
    assert_int_equal(sp_run_uncollected(of->run), 0);
    record_end(of);
}

static void leave_on_this_thread(void *with)
{
    call *moved = with;
    leave(moved, 150);
}

static void an_end_on_another_thread_is_added_there(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    puppet *other = puppet_new();
    call outer = enter(of, "outer", 110);
    call moved = enter(of, "moved", 120);
    puppet_do(other, leave_on_this_thread, &moved);
    uint32_t *ids;
    size_t count;
    assert_int_equal(sp_run_open_calls(of->run, &ids, &count, NULL), SP_OK);
    assert_int_equal(count, 1);
    free(ids);
    call after = enter(of, "after", 160);
    leave(&after, 170);
    leave(&outer, 180);
    sp_profile *profile = collect(of);
    assert_sums(of, "outer", 1, 70, 70, 70, 30, profile);
    assert_sums(of, "moved", 1, 30, 30, 30, 30, profile);
    sp_profile_release(profile);
    puppet_end(other);
    record_end(of);
}

static void enter_and_leave(void *with)
{
    call a = enter(with, "a", clock_read() + 1);
    leave(&a, clock_read() + 1);
}

static void a_thread_goes_on_with_the_memory_of_one_that_ended(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    for (int i = 0; i < 50; i++) {
        puppet *thread = puppet_new();
        puppet_do(thread, enter_and_leave, of);
        puppet_end(thread);
    }
    assert_int_equal(of->run->row_count, 1);
    sp_profile *profile = collect(of);
    assert_sums(of, "a", 50, 50, 1, 1, 50, profile);
    sp_profile_release(profile);
    record_end(of);
}

/* A call that its thread left open encloses nothing of the next thread's, and can still end. */
static void enter_and_stay(void *with)
{
    call *open = with;
    *open = enter(open->of, "open", 110);
}

static void an_open_call_of_a_thread_that_ended(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    call open = {.of = of};
    for (int i = 0; i < 2; i++) {
        puppet *thread = puppet_new();
        if (i == 0) puppet_do(thread, enter_and_stay, &open);
        else puppet_do(thread, enter_and_leave, of);
        puppet_end(thread);
    }
    leave(&open, 200);
    sp_profile *profile = collect(of);
    assert_sums(of, "open", 1, 90, 90, 90, 90, profile);
    assert_sums(of, "a", 1, 1, 1, 1, 1, profile);
    sp_profile_release(profile);
    record_end(of);
}

static void a_run_that_is_gone_takes_ends_of_its_open_calls(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    call outer = enter(of, "a", 110);
    call inner = enter(of, "b", 120);
    sp_run *run = of->run;
    sp_run_drop(run);
    recording *next = record_sums(); /* its first call lets the log of the run before go */
    call other = enter(next, "c", 130);
    leave(&other, 140);
    sp_log_exit(outer.log, outer.slot);
    sp_log_exit(inner.log, inner.slot);
    record_end(next);
    free(of);
}

/* Without barriers from outside every exit has its own. */
static void a_system_without_barriers(void **state)
{
    clock_at(100);
    recording *of = record_sums();
    const bool had = sp_platform_barriers;
    sp_platform_barriers = false;
    for (sp_ticks i = 0; i < 10; i++) {
        call a = enter(of, "a", 110 + 10 * i);
        leave(&a, 112 + 10 * i);
    }
    sp_profile *profile = collect(of);
    assert_sums(of, "a", 10, 20, 2, 2, 20, profile);
    sp_profile_release(profile);
    record_end(of);
    sp_platform_barriers = had;
}

/* Whichever allocation fails: a call is counted as lost or it is in the sums, and a collection takes all or nothing. */
static void without_memory_calls_are_lost_and_told(void **state)
{
    for (int64_t n = 0; n < 40; n++) {
        clock_at(100);
        recording *of = record_sums();
        const uint32_t id = region_id(of, "a");
        memory_fail(n, false);
        uint64_t made = 0;
        for (sp_ticks i = 0; i < 5; i++) {
            clock_at(110 + 10 * i);
            sp_log *log = sp_log_current(atomic_load(&of->gate.token));
            sp_slot *slot = log ? sp_log_enter(log, id) : NULL;
            clock_at(111 + 10 * i);
            if (slot) sp_log_exit(log, slot);
            made++;
        }
        sp_profile *profile = NULL;
        sp_error error;
        if (sp_run_collect(of->run, 0, 0, &profile, NULL, &error) != SP_OK) {
            memory_fail(-1, false);
            assert_int_equal(sp_run_collect(of->run, 0, 0, &profile, NULL, &error), SP_OK);
        }
        memory_fail(-1, false);
        uint64_t found = profile->row_count ? profile->rows[0].aggregate_count : 0;
        assert_true(found + sp_run_lost(of->run) <= made);
        assert_true(found + sp_run_lost(of->run) + 1 >= made); /* a thread without a log is the caller's to count */
        sp_profile_release(profile);
        record_end(of);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_inside_a_call_are_not_its_own_time),
        cmocka_unit_test(calls_that_end_in_any_order),
        cmocka_unit_test(lanes_have_callers_of_their_own),
        cmocka_unit_test(every_collection_has_what_came_since_the_last),
        cmocka_unit_test(an_end_on_another_thread_is_added_there),
        cmocka_unit_test(a_thread_goes_on_with_the_memory_of_one_that_ended),
        cmocka_unit_test(an_open_call_of_a_thread_that_ended),
        cmocka_unit_test(a_run_that_is_gone_takes_ends_of_its_open_calls),
        cmocka_unit_test(a_system_without_barriers),
        cmocka_unit_test(without_memory_calls_are_lost_and_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
