/* A probe: called at every entry and exit of its run, whoever makes them, outside of the times of the calls. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/counters.h"
#include "core/probe.h"

typedef struct test_probe {
    sp_probe probe;
    char story[400]; /* what happened, a word each */
    sp_ticks cost;   /* of either function */
    bool refuses, waits;
    recording *records; /* in each entry, a call of its own */
} test_probe;

static void tell(test_probe *self, const char *word, uint32_t region)
{
    const size_t used = strlen(self->story);
    snprintf(self->story + used, sizeof self->story - used, "%s%u ", word, region);
}

static bool entered(sp_probe *probe, sp_log *log, uint32_t region, sp_call_mark *mark)
{
    (void)log;
    test_probe *self = (test_probe *)probe;
    tell(self, "+", region);
    mark->words[0] = region + 100;
    mark->words[23] = clock_read();
    if (self->records) {
        call own = enter(self->records, "own", clock_read() + 1);
        leave(&own, clock_read() + 1);
    }
    clock_at(clock_read() + self->cost);
    return !self->refuses;
}

static bool left(sp_probe *probe, sp_log *log, uint32_t region, sp_ticks start, const sp_call_mark *mark)
{
    (void)log;
    test_probe *self = (test_probe *)probe;
    tell(self, "-", region);
    assert_int_equal(mark->words[0], region + 100);
    assert_int_equal(mark->words[23] + self->cost + (self->records ? 2 : 0), start);
    clock_at(clock_read() + self->cost);
    return self->waits;
}

static void thread_gone(sp_probe *probe, sp_log *log)
{
    (void)log;
    tell((test_probe *)probe, "thread", 0);
}

static void log_gone(sp_probe *probe, sp_log *log)
{
    (void)log;
    tell((test_probe *)probe, "log", 0);
}

static void release(sp_probe *probe)
{
    tell((test_probe *)probe, "end", 0);
}

static const sp_probe_operations operations = {entered, left, thread_gone, log_gone, release};

static recording *record_probed(test_probe *self)
{
    self->probe.operations = &operations;
    const sp_run_options options = {.probe = &self->probe};
    return record_with(&options);
}

static void times_are_without_the_probes_own(void **state)
{
    clock_at(100);
    test_probe self = {.cost = 1000};
    recording *of = record_probed(&self);
    call a = enter(of, "a", 200);
    call b = enter(of, "b", 2000);
    leave(&b, 4000);
    leave(&a, 6000);
    sp_profile *profile = collect(of);
    assert_call(profile, "a", 0, 1200, 6000, 0, -1);
    assert_call(profile, "b", 0, 3000, 4000, 1, 0);
    assert_string_equal(self.story, "+0 +1 -1 -0 ");
    sp_profile_release(profile);
    record_end(of);
    assert_non_null(strstr(self.story, "log0 end0"));
}

static void a_probe_that_has_waited_ends_the_call_when_it_is_done(void **state)
{
    clock_at(100);
    test_probe self = {.cost = 50, .waits = true};
    recording *of = record_probed(&self);
    call a = enter(of, "a", 200);
    leave(&a, 300);
    sp_profile *profile = collect(of);
    assert_call(profile, "a", 0, 250, 350, 0, -1);
    sp_profile_release(profile);
    record_end(of);
}

static void marks_belong_to_their_calls_in_whatever_order_these_end(void **state)
{
    clock_at(100);
    test_probe self = {.cost = 0};
    recording *of = record_probed(&self);
    enum { CALLS = 20 };
    call calls[CALLS];
    for (int i = 0; i < CALLS; i++) calls[i] = enter(of, i % 2 ? "odd" : "even", 200 + (sp_ticks)i);
    for (int i = 0; i < CALLS; i++) leave(&calls[(i * 7) % CALLS], 300 + (sp_ticks)i);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, CALLS);
    sp_profile_release(profile);
    assert_int_equal(strlen(self.story), 2 * CALLS * 3);
    record_end(of);
}

static void nothing_is_done_at_the_exit_of_a_call_that_was_refused(void **state)
{
    clock_at(100);
    test_probe self = {.refuses = true};
    recording *of = record_probed(&self);
    call a = enter(of, "a", 200);
    leave(&a, 300);
    assert_string_equal(self.story, "+0 ");
    record_end(of);
}

static void calls_that_the_probe_makes_are_only_timed(void **state)
{
    clock_at(100);
    test_probe self = {.cost = 0};
    recording *of = record_probed(&self);
    self.records = of;
    call a = enter(of, "a", 200);
    leave(&a, 300);
    assert_string_equal(self.story, "+0 -0 ");
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 2);
    sp_profile_release(profile);
    record_end(of);
}

static void without_memory_for_a_mark_the_call_is_still_timed(void **state)
{
    clock_at(100);
    test_probe self = {.cost = 0};
    recording *of = record_probed(&self);
    call a = enter(of, "a", 200); /* makes the log */
    leave(&a, 210);
    call held[8];
    for (int i = 0; i < 8; i++) held[i] = enter(of, "a", 220 + (sp_ticks)i);
    memory_fail(0, true);
    call b = enter(of, "a", 300);
    memory_fail(-1, false);
    leave(&b, 310);
    for (int i = 8; i-- > 0;) leave(&held[i], 320);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 10);
    sp_profile_release(profile);
    assert_int_equal(strlen(self.story), (1 + 8 + 1 + 1 + 8) * 3); /* the exit of b has no mark */
    record_end(of);
}

typedef struct errand {
    recording *of;
    call call;
    sp_ticks at;
} errand;

static void enter_on_its_thread(void *with)
{
    errand *it = with;
    it->call = enter(it->of, "a", it->at);
}

static void a_call_may_end_on_another_thread_before_and_after_its_own_has_ended(void **state)
{
    clock_at(100);
    test_probe self = {.cost = 0};
    recording *of = record_probed(&self);
    puppet *thread = puppet_new();
    errand first = {.of = of, .at = 200}, second = {.of = of, .at = 300};
    puppet_do(thread, enter_on_its_thread, &first);
    puppet_do(thread, enter_on_its_thread, &second);
    leave(&first.call, 400);
    puppet_end(thread);
    assert_string_equal(self.story, "+0 +0 -0 thread0 ");
    leave(&second.call, 500);
    assert_string_equal(self.story, "+0 +0 -0 thread0 -0 ");
    record_end(of);
}

static void a_call_that_is_forgotten_leaves_no_mark(void **state)
{
    clock_at(100);
    test_probe self = {.cost = 0};
    recording *of = record_probed(&self);
    call a = enter(of, "a", 200);
    sp_log_probe_forget(a.log, a.slot);
    leave(&a, 300);
    assert_string_equal(self.story, "+0 -0 ");
    record_end(of);
}

static void a_forked_child_leaves_the_probe_alone(void **state)
{
    clock_at(100);
    test_probe self = {.cost = 0};
    recording *of = record_probed(&self);
    call a = enter(of, "a", 200);
    const pid_t child = fork();
    if (child == 0) {
        leave(&a, 300);
        _exit(strcmp(self.story, "+0 ") == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    leave(&a, 300);
    assert_string_equal(self.story, "+0 -0 ");
    record_end(of);
}

static void a_probe_of_a_run_that_cannot_open_is_released(void **state)
{
    clock_at(100);
    test_probe self = {.probe = {&operations}};
    const sp_run_options options = {.probe = &self.probe};
    sp_switch gate = {0};
    sp_run *run;
    sp_error error;
    memory_fail(0, true);
    const sp_status status = sp_run_open(&options, &gate, &run, &error);
    memory_fail(-1, false);
    assert_int_equal(status, SP_ERR_NO_MEMORY);
    assert_string_equal(self.story, "end0 ");
}

/* ---- counters of the kernel ---- */

enum { COUNTING_THREADS = 4, COUNTED_CALLS = 2000 };

static void *count_calls(void *with)
{
    recording *of = with;
    for (sp_ticks i = 0; i < COUNTED_CALLS; i++) {
        call outer = enter(of, "outer", 5), inner = enter(of, "inner", 5);
        leave(&inner, 5);
        leave(&outer, 5);
    }
    return NULL;
}

static void counters_of_threads_add_up_while_others_read_them(void **state)
{
    const uint8_t events[] = {7, 8}; /* task-clock, page-faults */
    sp_counters *counters;
    sp_error error;
    if (sp_counters_new(events, 2, &counters, &error) != SP_PERF_OK) skip();
    clock_at(5);
    const sp_run_options options = {.probe = sp_counters_probe(counters)};
    recording *of = record_with(&options);
    region_id(of, "outer");
    region_id(of, "inner");
    pthread_t threads[COUNTING_THREADS];
    for (int i = 0; i < COUNTING_THREADS; i++) pthread_create(&threads[i], NULL, count_calls, of);
    size_t count;
    uint64_t uncounted, last = 0;
    for (int i = 0; i < 50; i++) {
        sp_region_counters *totals = sp_counters_totals(counters, &count, &uncounted);
        if (count) assert_true(totals[0].calls >= last);
        if (count) last = totals[0].calls;
        free(totals);
    }
    for (int i = 0; i < COUNTING_THREADS; i++) pthread_join(threads[i], NULL);
    sp_region_counters *totals = sp_counters_totals(sp_run_counters(of->run), &count, &uncounted);
    assert_true(count >= 2);
    for (int region = 0; region < 2; region++) assert_int_equal(totals[region].calls, COUNTING_THREADS * COUNTED_CALLS);
    assert_true(totals[0].totals[0].value >= totals[1].totals[0].value); /* the outer calls have the inner ones in them */
    assert_int_equal(uncounted, 0);
    free(totals);
    record_end(of);
}

static void an_event_that_cannot_be_counted_is_said_to_be(void **state)
{
    for (uint8_t event = 0; event < SP_PERF_EVENTS; event++) {
        sp_counters *counters;
        sp_error error;
        const sp_perf_problem problem = sp_counters_new(&event, 1, &counters, &error);
        if (problem == SP_PERF_OK) {
            sp_counters_probe(counters)->operations->release(sp_counters_probe(counters));
            continue;
        }
        assert_null(counters);
        if (problem != SP_PERF_NO_KERNEL) assert_non_null(strstr(error.message, sp_perf_event_names[event]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_without_the_probes_own),
        cmocka_unit_test(a_probe_that_has_waited_ends_the_call_when_it_is_done),
        cmocka_unit_test(marks_belong_to_their_calls_in_whatever_order_these_end),
        cmocka_unit_test(nothing_is_done_at_the_exit_of_a_call_that_was_refused),
        cmocka_unit_test(calls_that_the_probe_makes_are_only_timed),
        cmocka_unit_test(without_memory_for_a_mark_the_call_is_still_timed),
        cmocka_unit_test(a_call_may_end_on_another_thread_before_and_after_its_own_has_ended),
        cmocka_unit_test(a_call_that_is_forgotten_leaves_no_mark),
        cmocka_unit_test(a_forked_child_leaves_the_probe_alone),
        cmocka_unit_test(a_probe_of_a_run_that_cannot_open_is_released),
        cmocka_unit_test(counters_of_threads_add_up_while_others_read_them),
        cmocka_unit_test(an_event_that_cannot_be_counted_is_said_to_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
