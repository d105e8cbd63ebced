/* The clock: what ticks are, and how a timeline turns them into ns. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A counter at 3 GHz beside a kernel clock whose rate against it is set piece by piece. */
static double true_ns;
static sp_ticks counter;
static double ns_a_tick = 1 / 3.0;
static int64_t anchor_error; /* what the reading of the kernel clock is off by */

static void pass(sp_ticks ticks)
{
    counter += ticks;
    true_ns += (double)ticks * ns_a_tick;
}

static sp_ticks read_counter(void)
{
    return counter;
}

static int64_t read_ns(void)
{
    return (int64_t)true_ns + anchor_error;
}

static void start_counter(void)
{
    counter = 1000;
    true_ns = 5e9;
    ns_a_tick = 1 / 3.0;
    anchor_error = 0;
    sp_clock_inject(read_counter, read_ns);
}

#define MILLISECOND UINT64_C(3000000) /* ticks of the simulated counter */

static void an_injected_tick_is_a_nanosecond(void **state)
{
    clock_at(12345);
    assert_int_equal(sp_clock_read(), 12345);
    assert_int_equal(sp_clock_ns(), 12345);
    sp_timeline timeline = {0};
    assert_int_equal(sp_timeline_anchor(&timeline, 0) > 0, 1);
    sp_timeline_cursor cursor = {.timeline = &timeline};
    assert_int_equal(sp_timeline_to_ns(&cursor, 99), 99);
    assert_int_equal(sp_timeline_duration(&timeline, 77), 77);
    for (int i = 0; i < 100; i++) sp_timeline_anchor(&timeline, 0);
    assert_int_equal(timeline.count, 1); /* where ticks are ns, anchors say nothing */
    sp_timeline_free(&timeline);
}

static void a_timeline_without_anchors_is_harmless(void **state)
{
    start_counter();
    sp_timeline timeline = {0};
    sp_timeline_cursor cursor = {.timeline = &timeline};
    assert_int_equal(sp_timeline_to_ns(&cursor, 5), 0);
    assert_int_equal(sp_timeline_duration(&timeline, 5), 5);
    sp_timeline_anchor(&timeline, 0);
    assert_int_equal(sp_timeline_to_ns(&cursor, 5), 5000000000);
    sp_timeline_free(&timeline);
}

static void ticks_between_anchors_are_interpolated(void **state)
{
    start_counter();
    sp_timeline timeline = {0};
    sp_timeline_anchor(&timeline, 0);
    pass(100 * MILLISECOND);
    sp_timeline_anchor(&timeline, 0);
    ns_a_tick *= 1.001; /* far more than any real clock */
    pass(100 * MILLISECOND);
    sp_timeline_anchor(&timeline, 0);
    sp_timeline_cursor cursor = {.timeline = &timeline};
    assert_int_equal(timeline.count, 3);
    assert_int_equal(sp_timeline_to_ns(&cursor, 1000), 5000000000);
    assert_int_equal(sp_timeline_to_ns(&cursor, 1000 + 30 * MILLISECOND), 5030000000);
    assert_int_equal(sp_timeline_to_ns(&cursor, 1000 + 100 * MILLISECOND), 5100000000);
    assert_in_range(sp_timeline_to_ns(&cursor, 1000 + 150 * MILLISECOND), 5150049999, 5150050001);
    assert_in_range(sp_timeline_to_ns(&cursor, 1000 + 10 * MILLISECOND), 5009999999, 5010000000); /* a cursor goes back too */
    assert_in_range(sp_timeline_to_ns(&cursor, 1000 + 201 * MILLISECOND), 5201100999, 5201101001); /* and beyond the ends */
    assert_in_range(sp_timeline_to_ns(&cursor, 400), 4999999799, 4999999801);
    assert_in_range(sp_timeline_duration(&timeline, 200 * MILLISECOND), 200099999, 200100001);
    sp_timeline_free(&timeline);
}

/* The due time that sp_timeline_anchor returns must be neither missed by much nor asked for all the time. */
static void anchors_are_due_every_100_ms(void **state)
{
    static const double rates[] = {1 / 3.0, 1.0, 40.0}; /* ns a tick: 3 GHz, 1 GHz, 25 MHz */
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        start_counter();
        ns_a_tick = rates[r];
        const sp_ticks step = (sp_ticks)(1e6 / ns_a_tick); /* 1 ms */
        sp_timeline timeline = {0};
        sp_ticks due = sp_timeline_anchor(&timeline, 0);
        int64_t longest = 0;
        for (int i = 0; i < 10000; i++) {
            pass(step);
            if (counter < due) continue;
            const size_t before = timeline.count;
            due = sp_timeline_anchor(&timeline, SP_ANCHOR_INTERVAL_NS / 2);
            assert_int_equal(timeline.count, before + 1);
            assert_true(due > counter);
            const int64_t gap = timeline.anchors[before].ns - timeline.anchors[before - 1].ns;
            if (gap > longest) longest = gap;
        }
        /* Of 10 s; the first 100 ms have one whenever the run has doubled its age. */
        assert_in_range(timeline.count, 100, 112);
        for (size_t i = 2; i < timeline.count; i++) {
            const int64_t age = timeline.anchors[i - 1].ns - timeline.anchors[0].ns;
            assert_true(timeline.anchors[i].ns - timeline.anchors[i - 1].ns <= age + 2000000);
        }
        assert_in_range(longest, 99000000, 102000000);
        sp_timeline_free(&timeline);
    }
}

static void an_anchor_that_is_young_enough_is_not_repeated(void **state)
{
    start_counter();
    sp_timeline timeline = {0};
    sp_timeline_anchor(&timeline, 0);
    pass(200 * MILLISECOND);
    sp_timeline_anchor(&timeline, 0);
    pass(40 * MILLISECOND);
    sp_timeline_anchor(&timeline, SP_ANCHOR_INTERVAL_NS / 2);
    assert_int_equal(timeline.count, 2);
    pass(11 * MILLISECOND);
    sp_timeline_anchor(&timeline, SP_ANCHOR_INTERVAL_NS / 2);
    assert_int_equal(timeline.count, 3);
    sp_timeline_free(&timeline);
}

static void two_close_anchors_do_not_put_the_next_one_off(void **state)
{
    start_counter();
    sp_timeline timeline = {0};
    sp_timeline_anchor(&timeline, 0);
    anchor_error = -33; /* 100 ticks that look like 1 ns: a rate of 100 ticks a ns */
    pass(100);
    const sp_ticks due = sp_timeline_anchor(&timeline, 0);
    assert_int_equal(timeline.count, 1); /* and here time went back: not an anchor */
    anchor_error = -32;
    assert_true(sp_timeline_anchor(&timeline, 0) < counter + 100 * MILLISECOND);
    assert_true(due < counter + 100 * MILLISECOND);
    sp_timeline_free(&timeline);
}

/*
 * Time discipline changes the rate in the middle of everything, anchors are off by up to 40 ns, and their distance varies:
 * conversions stay within 1 us, never go back, and do not change when later anchors come.
 */
static void conversions_agree_and_ascend_under_drift(void **state)
{
    start_counter();
    srand(7);
    enum { COUNT = 20000 };
    static sp_ticks ticks[COUNT];
    static double truth[COUNT];
    static int64_t early[COUNT];
    sp_timeline timeline = {0};
    sp_ticks due = sp_timeline_anchor(&timeline, 0);
    size_t converted = 0;
    for (size_t i = 0; i < COUNT; i++) {
        pass((sp_ticks)(rand() % 3000000));
        if (i % 500 == 250) ns_a_tick = (1 + (rand() % 21 - 10) * 1e-6) / 3.0; /* +- 10 ppm */
        ticks[i] = counter;
        truth[i] = true_ns;
        anchor_error = rand() % 81 - 40;
        if (counter >= due) due = sp_timeline_anchor(&timeline, SP_ANCHOR_INTERVAL_NS / 2);
        if (i % 1000 != 999) continue;
        pass(1);
        sp_timeline_anchor(&timeline, 0);
        sp_timeline_cursor cursor = {.timeline = &timeline};
        for (; converted <= i; converted++) early[converted] = sp_timeline_to_ns(&cursor, ticks[converted]);
    }
    sp_timeline_cursor cursor = {.timeline = &timeline};
    double worst = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const int64_t ns = sp_timeline_to_ns(&cursor, ticks[i]);
        assert_int_equal(ns, early[i]);
        if (i) assert_true(ns >= early[i - 1]);
        worst = fmax(worst, fabs((double)ns - truth[i]));
    }
    assert_true(worst < 1000);
    /* and tick by tick around every anchor */
    for (size_t a = 1; a + 1 < timeline.count; a++) {
        int64_t before = INT64_MIN;
        for (sp_ticks t = timeline.anchors[a].ticks - 20; t < timeline.anchors[a].ticks + 20; t++) {
            const int64_t ns = sp_timeline_to_ns(&cursor, t);
            assert_true(ns >= before);
            before = ns;
        }
    }
    sp_timeline_free(&timeline);
}

/* A program that records nothing for an hour takes no anchors; in that hour the clock is slewed at 500 ppm. */
static void a_pause_does_not_spoil_what_was_recorded_before_it(void **state)
{
    start_counter();
    sp_timeline timeline = {0};
    sp_timeline_anchor(&timeline, 0);
    for (int i = 0; i < 10; i++) {
        pass(100 * MILLISECOND);
        sp_timeline_anchor(&timeline, 0);
    }
    pass(90 * MILLISECOND);
    const sp_ticks last = counter;
    const double truth = true_ns;
    ns_a_tick *= 1.0005;
    pass(UINT64_C(3600) * 1000 * MILLISECOND);
    const sp_ticks resumed = counter;
    const double resumed_truth = true_ns;
    pass(3000);
    sp_timeline_anchor(&timeline, 0);
    sp_timeline_cursor cursor = {.timeline = &timeline};
    assert_true(fabs((double)sp_timeline_to_ns(&cursor, last) - truth) < 100);
    assert_true(fabs((double)sp_timeline_to_ns(&cursor, resumed) - resumed_truth) < 100);
    sp_timeline_free(&timeline);
}

/* The machine is suspended between two calls: the counter goes on for an hour, the kernel's clock does not. */
static void a_suspended_machine_does_not_spoil_what_was_recorded_before_it(void **state)
{
    start_counter();
    sp_timeline timeline = {0};
    sp_ticks due = sp_timeline_anchor(&timeline, 0);
    for (int i = 0; i < 10; i++) {
        pass(100 * MILLISECOND);
        due = sp_timeline_anchor(&timeline, 0);
    }
    pass(70 * MILLISECOND);
    const sp_ticks last = counter;
    const double truth = true_ns;
    pass(5 * MILLISECOND);
    counter += UINT64_C(3600) * 1000 * MILLISECOND;
    pass(5 * MILLISECOND);
    const sp_ticks resumed = counter;
    const double resumed_truth = true_ns;
    assert_true(resumed >= due); /* whoever records now takes an anchor */
    pass(300);
    due = sp_timeline_anchor(&timeline, SP_ANCHOR_INTERVAL_NS / 2);
    pass(50 * MILLISECOND);
    const sp_ticks later = counter;
    const double later_truth = true_ns;
    pass(50 * MILLISECOND);
    sp_timeline_anchor(&timeline, 0);
    sp_timeline_cursor cursor = {.timeline = &timeline};
    assert_true(fabs((double)sp_timeline_to_ns(&cursor, last) - truth) < 1000);
    assert_true(fabs((double)sp_timeline_to_ns(&cursor, resumed) - resumed_truth) < 1000);
    assert_true(fabs((double)sp_timeline_to_ns(&cursor, later) - later_truth) < 1000);
    for (size_t i = 1; i < timeline.count; i++) {
        assert_true(timeline.anchors[i].ticks > timeline.anchors[i - 1].ticks);
        assert_true(timeline.anchors[i].ns > timeline.anchors[i - 1].ns);
    }
    sp_timeline_free(&timeline);
}

/* A frequency step between two anchors is spread over their distance: 10 ppm for 50 ms are 0.25 us in the middle. */
static void a_frequency_step_is_over_at_the_next_anchor(void **state)
{
    start_counter();
    sp_timeline timeline = {0};
    for (int i = 0; i < 5; i++) {
        sp_timeline_anchor(&timeline, 0);
        pass(100 * MILLISECOND);
    }
    sp_timeline_anchor(&timeline, 0);
    pass(50 * MILLISECOND);
    ns_a_tick *= 1.00001; /* 10 ppm, as time discipline steps */
    const sp_ticks in_between = counter;
    const double truth = true_ns;
    pass(50 * MILLISECOND);
    sp_timeline_anchor(&timeline, 0);
    const sp_ticks after = counter;
    const double after_truth = true_ns;
    pass(100 * MILLISECOND);
    sp_timeline_anchor(&timeline, 0);
    sp_timeline_cursor cursor = {.timeline = &timeline};
    assert_true(fabs((double)sp_timeline_to_ns(&cursor, in_between) - truth) < 1000);
    assert_true(fabs((double)sp_timeline_to_ns(&cursor, after + 30 * MILLISECOND) - (after_truth + 30e6 * 1.00001)) < 10);
    sp_timeline_free(&timeline);
}

static void an_anchor_for_which_there_is_no_memory_keeps_the_order(void **state)
{
    start_counter();
    sp_timeline timeline = {0};
    for (int i = 0; i < 16; i++) {
        sp_timeline_anchor(&timeline, 0);
        pass(100 * MILLISECOND);
    }
    memory_fail(0, true);
    for (int i = 0; i < 100; i++) {
        const sp_ticks due = sp_timeline_anchor(&timeline, 0);
        assert_true(due > counter);
        pass(100 * MILLISECOND);
    }
    memory_fail(-1, false);
    assert_true(timeline.count >= 15);
    for (size_t i = 1; i < timeline.count; i++) {
        assert_true(timeline.anchors[i].ticks > timeline.anchors[i - 1].ticks);
        assert_true(timeline.anchors[i].ns > timeline.anchors[i - 1].ns);
    }
    sp_timeline_cursor cursor = {.timeline = &timeline};
    assert_in_range(sp_timeline_to_ns(&cursor, 1000 + 5000 * MILLISECOND), 9999999990, 10000000010);
    sp_timeline_free(&timeline);
}

static int64_t monotonic(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The machine's own clock, whatever it is here: every tick lies between two readings of CLOCK_MONOTONIC, to 1 us. */
static void ticks_agree_with_the_monotonic_clock(void **state)
{
    sp_clock_inject(NULL, NULL);
    enum { COUNT = 3000 };
    static sp_ticks ticks[COUNT];
    static int64_t before[COUNT], after[COUNT];
    sp_timeline timeline = {0};
    sp_ticks due = sp_timeline_anchor(&timeline, 0);
    for (int i = 0; i < COUNT; i++) {
        before[i] = monotonic();
        ticks[i] = sp_clock_read();
        after[i] = monotonic();
        if (ticks[i] >= due) due = sp_timeline_anchor(&timeline, SP_ANCHOR_INTERVAL_NS / 2);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    sp_timeline_anchor(&timeline, 0);
    sp_timeline_cursor cursor = {.timeline = &timeline};
    for (int i = 0; i < COUNT; i++) {
        const int64_t ns = sp_timeline_to_ns(&cursor, ticks[i]);
        assert_true(ns >= before[i] - 1000);
        assert_true(ns <= after[i] + 1000);
    }
    assert_true(llabs(sp_clock_ns() - monotonic()) < 100000000);
    sp_timeline_free(&timeline);
}

static void the_environment_can_ask_for_the_kernel_clock(void **state)
{
    setenv("SCOPE_PROFILER_CLOCK", "monotonic", 1);
    sp_clock_inject(NULL, NULL);
    assert_int_equal(sp_clock_current, SP_CLOCK_MONOTONIC);
    assert_true(llabs((int64_t)sp_clock_read() - monotonic()) < 100000000);
    setenv("SCOPE_PROFILER_CLOCK", "auto", 1);
    sp_clock_inject(NULL, NULL);
    assert_true(sp_clock_current == SP_CLOCK_COUNTER || sp_clock_current == SP_CLOCK_MONOTONIC);
    unsetenv("SCOPE_PROFILER_CLOCK");
}

static void the_first_choice_of_a_clock_stands(void **state)
{
    sp_error error = {0};
    sp_clock_inject(NULL, NULL);
    const char *now = sp_clock_source_name();
    const bool counts = strcmp(now, "tsc") == 0;
    assert_int_equal(sp_clock_select("auto", &error), SP_OK);
    assert_int_equal(sp_clock_select(now, &error), SP_OK);
    assert_int_equal(sp_clock_select(counts ? "monotonic" : "tsc", &error), SP_ERR_INVALID);
    assert_non_null(strstr(error.message, now));
    assert_int_equal(sp_clock_select("sundial", &error), SP_ERR_INVALID);
    assert_non_null(strstr(error.message, "sundial"));
    assert_string_equal(sp_clock_source_name(), now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_injected_tick_is_a_nanosecond),
        cmocka_unit_test(a_timeline_without_anchors_is_harmless),
        cmocka_unit_test(ticks_between_anchors_are_interpolated),
        cmocka_unit_test(anchors_are_due_every_100_ms),
        cmocka_unit_test(an_anchor_that_is_young_enough_is_not_repeated),
        cmocka_unit_test(two_close_anchors_do_not_put_the_next_one_off),
        cmocka_unit_test(conversions_agree_and_ascend_under_drift),
        cmocka_unit_test(a_pause_does_not_spoil_what_was_recorded_before_it),
        cmocka_unit_test(a_suspended_machine_does_not_spoil_what_was_recorded_before_it),
        cmocka_unit_test(a_frequency_step_is_over_at_the_next_anchor),
        cmocka_unit_test(an_anchor_for_which_there_is_no_memory_keeps_the_order),
        cmocka_unit_test(ticks_agree_with_the_monotonic_clock),
        cmocka_unit_test(the_environment_can_ask_for_the_kernel_clock),
        cmocka_unit_test(the_first_choice_of_a_clock_stands),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
