/* Tasks as lanes: steps, running and suspended time, await times of calls, names, tables. */
#include "analysis/collection.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sp_lane_before enter_step(sp_log *log, sp_task *task, sp_ticks at)
{
    clock_at(at);
    return sp_log_enter_step(log, task);
}

static void leave_step(sp_log *log, sp_task *task, sp_lane_before before, sp_ticks at)
{
    clock_at(at);
    sp_log_leave_step(log, task, before);
}

static void step(sp_log *log, sp_task *task, sp_ticks from, sp_ticks to)
{
    leave_step(log, task, enter_step(log, task, from), to);
}

static void running_and_suspended_time_add_up_to_the_life(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_log *log = sp_run_log(of->run);
    clock_at(110);
    sp_task *task = sp_run_task_add(of->run, SP_TASK_TASK, "fetch");
    sp_run_task_name(of->run, task, "loader");
    step(log, task, 120, 125); /* the wait before the first step is neither */
    step(log, task, 140, 141);
    step(log, task, 150, 158);
    clock_at(158);
    sp_task_finish(task, 158);
    sp_task_finish(task, 999); /* the first call wins */
    sp_profile *profile = collect(of);
    assert_int_equal(profile->task_count, 1);
    const sp_task_info *t = &profile->tasks[0];
    assert_string_equal(t->kind, "task");
    assert_string_equal(t->name, "loader");
    assert_string_equal(t->coro_name, "fetch");
    assert_int_equal(t->index, 0);
    assert_int_equal(t->thread_index, 0);
    assert_int_equal(t->steps, 3);
    assert_int_equal(t->running_ns, 5 + 1 + 8);
    assert_int_equal(t->suspended_ns, 15 + 9);
    assert_int_equal(t->created_ns, 10);
    assert_int_equal(t->done_ns, 58);
    sp_profile_release(profile);
    record_end(of);
}

static void a_task_knows_the_lane_that_made_it(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_task *unknown = sp_run_task_add(of->run, SP_TASK_TASK, "f"); /* the thread has not recorded yet */
    sp_log *log = sp_run_log(of->run);
    sp_task *first = sp_run_task_add(of->run, SP_TASK_TASK, "f");
    const sp_lane_before before = sp_log_enter_step(log, first);
    sp_task *second = sp_run_task_add(of->run, SP_TASK_TASK, "f"), *late = sp_run_task_add(of->run, SP_TASK_TASK, "f");
    sp_task_forget_creator(late);
    sp_log_leave_step(log, first, before);
    sp_profile *profile = collect(of);
    const struct { const sp_task *task; int64_t thread, maker; } expected[] = {
        {unknown, -1, -1}, {first, 0, -1}, {second, 0, first->index}, {late, -1, -1}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(profile->tasks[expected[i].task->index].creator_thread, expected[i].thread);
        assert_int_equal(profile->tasks[expected[i].task->index].creator_task, expected[i].maker);
    }
    sp_profile_release(profile);
    record_end(of);
}

static void a_call_knows_how_much_of_it_was_awaiting(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_log *log = sp_run_log(of->run);
    sp_task *task = sp_run_task_add(of->run, SP_TASK_TASK, "f");
    call outer, inner;
    sp_lane_before before = enter_step(log, task, 110);
    outer = enter(of, "outer", 112);
    leave_step(log, task, before, 115);
    before = enter_step(log, task, 130);
    inner = enter(of, "inner", 131);
    leave_step(log, task, before, 132);
    before = enter_step(log, task, 140);
    leave(&inner, 141);
    leave(&outer, 145);
    leave_step(log, task, before, 146);
    call outside = enter(of, "outside", 150);
    leave(&outside, 160);
    sp_profile *profile = collect(of);
    assert_int_equal(seen_call(profile, "outer", 0).await, 15 + 8);
    assert_int_equal(seen_call(profile, "inner", 0).await, 8);
    assert_int_equal(seen_call(profile, "outside", 0).await, 0);
    assert_int_equal(seen_call(profile, "outer", 0).task, 0);
    assert_int_equal(seen_call(profile, "outside", 0).task, -1);
    assert_call(profile, "inner", 0, 131, 141, 1, 0);
    sp_profile_release(profile);
    record_end(of);
}

/* What a last collection has of the calls of the run's only task and of its thread. */
static void await_of_open(recording *of, sp_ticks now, int64_t outer, int64_t inner, int64_t own)
{
    sp_collection *collection;
    clock_at(now);
    assert_int_equal(sp_collection_begin_last(of->run, 0, 0, &collection, NULL), SP_OK);
    assert_int_equal(sp_collection_columns(collection, 0, NULL, NULL), SP_OK);
    const sp_profile *profile = sp_collection_profile(collection);
    assert_int_equal(seen_call(profile, "outer", 0).await, outer);
    assert_int_equal(seen_call(profile, "inner", 0).await, inner);
    assert_int_equal(seen_call(profile, "own", 0).await, own);
    sp_collection_abandon(collection);
}

static void a_call_that_is_open_has_awaited_too(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_log *log = sp_run_log(of->run);
    sp_task *task = sp_run_task_add(of->run, SP_TASK_TASK, "f");
    call own = enter(of, "own", 105);
    sp_lane_before before = enter_step(log, task, 110);
    call outer = enter(of, "outer", 112);
    leave_step(log, task, before, 115);
    before = enter_step(log, task, 130);
    call inner = enter(of, "inner", 131);
    await_of_open(of, 132, 130 - 115, 0, 0); /* it runs */
    leave_step(log, task, before, 140);
    await_of_open(of, 160, (130 - 115) + (160 - 140), 160 - 140, 0); /* it awaits: until now */
    step(log, task, 170, 171);
    await_of_open(of, 180, (130 - 115) + (170 - 140) + (180 - 171), (170 - 140) + (180 - 171), 0);
    /* A row that was read before the call began knows of an earlier suspension only. */
    sp_async_slot later = {.call = {.start = 175, .task = 0}, .await = 15 + 30};
    assert_int_equal(sp_run_awaited(of->run, &later, 180), 0);
    sp_task_finish(task, 190);
    await_of_open(of, 300, 15 + 30, 30, 0); /* nobody awaits in a task that is done */
    leave(&inner, 301);
    leave(&outer, 302);
    leave(&own, 303);
    record_end(of);
}

/* Two tasks take turns on one thread: their calls overlap, and neither is inside the other. */
static void interleaved_tasks_do_not_nest_in_each_other(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_log *log = sp_run_log(of->run);
    sp_task *tasks[2];
    call open[2];
    for (size_t i = 0; i < 2; i++) {
        tasks[i] = sp_run_task_add(of->run, SP_TASK_TASK, "f");
        const sp_lane_before before = enter_step(log, tasks[i], 110 + 10 * i);
        open[i] = enter(of, "r", 111 + 10 * i);
        leave_step(log, tasks[i], before, 112 + 10 * i);
    }
    for (size_t i = 0; i < 2; i++) {
        const sp_lane_before before = enter_step(log, tasks[i], 130 + 10 * i);
        leave(&open[i], 131 + 10 * i);
        sp_log_leave_step(log, tasks[i], before);
    }
    sp_profile *profile = collect(of);
    assert_true(profile->nested);
    assert_call(profile, "r", 0, 111, 131, 0, -1);
    assert_call(profile, "r", 1, 121, 141, 1, -1);
    assert_int_equal(seen_call(profile, "r", 0).await, 18);
    assert_int_equal(seen_call(profile, "r", 1).await, 18);
    assert_int_equal(row_of(profile, "r")->exclusive_total, 40);
    sp_profile_release(profile);
    record_end(of);
}

/* An eager task steps inside its creator's step: the creator is the lane again afterwards. */
static void a_step_within_a_step_gives_the_lane_back(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_log *log = sp_run_log(of->run);
    sp_task *outer = sp_run_task_add(of->run, SP_TASK_TASK, "outer");
    const sp_lane_before before = enter_step(log, outer, 110);
    call a = enter(of, "a", 111);
    sp_task *inner = sp_run_task_add(of->run, SP_TASK_TASK, "inner");
    const sp_lane_before creator = enter_step(log, inner, 112);
    call b = enter(of, "b", 113);
    leave(&b, 114);
    sp_log_leave_step(log, inner, creator);
    assert_ptr_equal(log->lane, outer);
    call c = enter(of, "c", 116);
    leave(&c, 117);
    leave(&a, 118);
    sp_log_leave_step(log, outer, before);
    assert_null(log->lane);
    sp_profile *profile = collect(of);
    assert_call(profile, "a", 0, 111, 118, 0, -1);
    assert_call(profile, "b", 0, 113, 114, 1, -1);
    assert_call(profile, "c", 0, 116, 117, 2, 0);
    assert_int_equal(seen_call(profile, "b", 0).task, 1);
    assert_int_equal(seen_call(profile, "c", 0).task, 0);
    sp_profile_release(profile);
    record_end(of);
}

/* A generator of a suspended task, closed from outside: the call stays the task's, and the suspension under way counts. */
static void a_call_closed_from_another_lane_keeps_its_own(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_log *log = sp_run_log(of->run);
    sp_task *task = sp_run_task_add(of->run, SP_TASK_TASK, "f");
    const sp_lane_before before = enter_step(log, task, 110);
    call one = enter(of, "r", 112), two = enter(of, "s", 113);
    leave_step(log, task, before, 115);
    leave(&two, 125); /* by the thread's own lane */
    puppet *thread = puppet_new();
    leave_on(thread, &one, 140);
    puppet_end(thread);
    sp_profile *profile = collect(of);
    assert_int_equal(seen_call(profile, "r", 0).task, 0);
    assert_int_equal(seen_call(profile, "r", 0).await, 25);
    assert_int_equal(seen_call(profile, "s", 0).await, 10);
    assert_call(profile, "s", 0, 113, 125, 1, 0);
    sp_profile_release(profile);
    record_end(of);
}

/* And while it runs, nothing is under way. */
static void a_call_closed_by_another_thread_while_its_task_runs(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_log *log = sp_run_log(of->run);
    sp_task *task = sp_run_task_add(of->run, SP_TASK_TASK, "f");
    sp_lane_before before = enter_step(log, task, 110);
    call one = enter(of, "r", 112);
    leave_step(log, task, before, 115);
    before = enter_step(log, task, 120);
    puppet *thread = puppet_new();
    leave_on(thread, &one, 140);
    puppet_end(thread);
    sp_log_leave_step(log, task, before);
    sp_profile *profile = collect(of);
    assert_int_equal(seen_call(profile, "r", 0).await, 5);
    sp_profile_release(profile);
    record_end(of);
}

static void greenlets_are_told_from_tasks(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    sp_run_task_add(of->run, SP_TASK_GREENLET, NULL);
    sp_profile *profile = collect(of);
    assert_string_equal(profile->tasks[0].kind, "greenlet");
    assert_string_equal(profile->tasks[0].name, "");
    assert_string_equal(profile->tasks[0].coro_name, "");
    assert_int_equal(profile->tasks[0].thread_index, -1);
    assert_int_equal(profile->tasks[0].done_ns, SP_UNKNOWN);
    sp_profile_release(profile);
    record_end(of);
}

/* The default names take no memory of their own, and come out as they went in. */
static void names_survive(void **state)
{
    static const char *const names[] = {"Task-0", "Task-1", "Task-999999999999999999", "Task-01", "Task-", "Task-1x", "task-1",
                                        "Task-1234567890123456789012345", "", "Task--1", "Task- 1", "\xc3\xa9t\xc3\xa9"};
    clock_at(100);
    recording *of = record(true, true);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sp_task *task = sp_run_task_add(of->run, SP_TASK_TASK, i % 2 ? "f" : "g");
        sp_run_task_name(of->run, task, "an earlier name");
        sp_run_task_name(of->run, task, names[i]);
    }
    const int64_t before = memory_blocks();
    sp_run_task_name(of->run, sp_run_task(of->run, 0), "Task-77");
    assert_int_equal(memory_blocks(), before);
    sp_run_task_name(of->run, sp_run_task(of->run, 0), "Task-0");
    sp_profile *profile = collect(of);
    assert_int_equal(profile->task_count, sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_string_equal(profile->tasks[i].name, names[i]);
        assert_string_equal(profile->tasks[i].coro_name, i % 2 ? "f" : "g");
    }
    assert_int_equal(of->run->string_count, 2);
    sp_profile_release(profile);
    record_end(of);
}

static void tasks_never_move(void **state)
{
    clock_at(100);
    recording *of = record(true, true);
    enum { COUNT = 20000 };
    static sp_task *tasks[COUNT];
    char coro[32];
    for (int32_t i = 0; i < COUNT; i++) {
        snprintf(coro, sizeof coro, "coro %d", i % 1000);
        tasks[i] = sp_run_task_add(of->run, SP_TASK_TASK, coro);
        assert_int_equal(tasks[i]->index, i);
    }
    for (int32_t i = 0; i < COUNT; i++) assert_ptr_equal(sp_run_task(of->run, i), tasks[i]);
    assert_null(sp_run_task(of->run, COUNT));
    assert_null(sp_run_task(of->run, -1));
    sp_profile *profile = collect(of);
    assert_int_equal(profile->task_count, COUNT);
    assert_string_equal(profile->tasks[12345].coro_name, "coro 345");
    sp_profile_release(profile);
    record_end(of);
}

/* Only a name that printing its number gives back is stored as a number. */
static void only_default_names_are_numbers(void **state)
{
    static const char *const others[] = {"", "Task", "Task-", "Task-01", "Task-00", "Task-1 ", "Task--1", "Task-1a", "task-1", " Task-1",
                                         "Task-1234567890123456789"};
    uint64_t number = 77;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(sp_task_name_is_numbered(others[i], &number));
    assert_int_equal(number, 77);
    assert_true(sp_task_name_is_numbered("Task-0", &number));
    assert_int_equal(number, 0);
    assert_true(sp_task_name_is_numbered("Task-907", &number));
    assert_int_equal(number, 907);
    assert_true(sp_task_name_is_numbered("Task-123456789012345678", &number));
    assert_true(number == UINT64_C(123456789012345678));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_and_suspended_time_add_up_to_the_life),
        cmocka_unit_test(a_task_knows_the_lane_that_made_it),
        cmocka_unit_test(a_call_knows_how_much_of_it_was_awaiting),
        cmocka_unit_test(a_call_that_is_open_has_awaited_too),
        cmocka_unit_test(interleaved_tasks_do_not_nest_in_each_other),
        cmocka_unit_test(a_step_within_a_step_gives_the_lane_back),
        cmocka_unit_test(a_call_closed_from_another_lane_keeps_its_own),
        cmocka_unit_test(a_call_closed_by_another_thread_while_its_task_runs),
        cmocka_unit_test(greenlets_are_told_from_tasks),
        cmocka_unit_test(names_survive),
        cmocka_unit_test(tasks_never_move),
        cmocka_unit_test(only_default_names_are_numbers),
    };
    return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
