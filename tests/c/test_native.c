/* The C API: calls, scopes, statistics, files, lanes and threads of programs without Python. */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/hdf5.h"
#include "formats/native_trace.h"
#include "scope_profiler.h"

static char directory[64];

static int go_there(void **state)
{
    strcpy(directory, "/tmp/sp-native-XXXXXX");
    if (mkdtemp(directory) == NULL || chdir(directory) != 0) return -1;
    clock_at(1000);
    return 0;
}

static int clean_up(void **state)
{
    sp_finalize();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return chdir("/") != 0 || system(command) != 0;
}

static sp_profile *read_profile(const char *path)
{
    sp_profile *profile = NULL;
    sp_error error;
    if (sp_hdf5_read(path, NULL, &profile, &error) != SP_OK) fail_msg("%s", error.message);
    return profile;
}

/* ---- before and after ---- */

static void nothing_is_harmless_before_init(void **state)
{
    sp_region_stats stats;
    sp_scope scope = {0};
    assert_null(sp_default_profiler());
    assert_int_equal(sp_region("early"), SP_INVALID_REGION);
    sp_begin(0);
    sp_end(0);
    sp_begin(SP_INVALID_REGION);
    assert_int_equal(sp_num_calls(0), 0);
    assert_int_equal(sp_finalize(), 0);
    assert_int_equal(sp_is_active(), 0);
    assert_null(sp_output_path());
    assert_int_equal(sp_profiler_region(NULL, "x"), SP_INVALID_REGION);
    sp_profiler_begin(NULL, 0);
    sp_profiler_end(NULL, 0);
    assert_int_equal(sp_profiler_end_last(NULL), SP_ERR_INACTIVE);
    assert_int_equal(sp_profiler_finalize(NULL), SP_OK);
    assert_int_equal(sp_profiler_get_region_stats(NULL, 0, &stats), SP_ERR_INACTIVE);
    assert_int_equal(sp_profiler_num_regions(NULL), 0);
    assert_null(sp_profiler_region_name(NULL, 0));
    assert_int_equal(sp_profiler_last_error(NULL), SP_OK);
    assert_int_equal(sp_scope_end(&scope), SP_ERR_INACTIVE);
    assert_int_equal(sp_scope_end(NULL), SP_ERR_INACTIVE);
    sp_destroy(NULL);
    sp_lane_end(NULL);
    assert_null(sp_lane_switch(NULL));
}

static void call_at(int region, sp_ticks start, sp_ticks end)
{
    clock_at(start);
    sp_begin(region);
    clock_at(end);
    sp_end(region);
}

static void a_profile_has_the_calls(void **state)
{
    assert_int_equal(sp_init("run", 3), 0);
    assert_string_equal(sp_output_path(), "run_rank00003.h5");
    assert_int_equal(sp_is_active(), 1);
    const int outer = sp_region_at("outer", "main.c", 12), inner = sp_region("inner");
    assert_int_equal(sp_region("outer"), outer);
    clock_at(2000);
    sp_begin(outer);
    call_at(inner, 2100, 2200);
    call_at(inner, 2300, 2350);
    clock_at(3000);
    sp_end(outer);
    assert_int_equal(sp_num_calls(inner), 2);
    assert_int_equal(sp_finalize(), 0);
    assert_int_equal(sp_is_active(), 0);
    assert_int_equal(sp_num_calls(inner), 2);

    sp_profile *profile = read_profile("run_rank00003.h5");
    assert_calls(profile, "inner", 2);
    assert_call(profile, "outer", 0, 2000, 3000, 0, -1);
    assert_call(profile, "inner", 0, 2100, 2200, 1, 0);
    assert_call(profile, "inner", 1, 2300, 2350, 2, 0);
    assert_int_equal(row_of(profile, "outer")->rank, 3);
    assert_string_equal(row_of(profile, "outer")->source_file, "main.c");
    assert_int_equal(row_of(profile, "outer")->source_line, 12);
    assert_int_equal(sp_profile_find_metadata(profile, "mpi_rank")->integer, 3);
    assert_int_equal(profile->thread_count, 1);
    sp_profile_release(profile);
}

static void statistics_are_those_of_completed_calls_and_outlive_the_run(void **state)
{
    sp_profiler *profiler = sp_create("own", 0);
    const int region = sp_profiler_region(profiler, "r");
    sp_region_stats stats;
    const int64_t lengths[] = {30, 10, 20};
    for (int i = 0; i < 3; i++) {
        clock_at(5000 + 100 * (sp_ticks)i);
        sp_profiler_begin(profiler, region);
        clock_at(5000 + 100 * (sp_ticks)i + (sp_ticks)lengths[i]);
        sp_profiler_end(profiler, region);
        /* Whether a part of them is in the file already makes no difference. */
        if (i == 1) assert_int_equal(sp_profiler_flush(profiler), SP_OK);
    }
    sp_profiler_begin(profiler, region);
    for (int finalized = 0; finalized < 2; finalized++) {
        assert_int_equal(sp_profiler_get_region_stats(profiler, region, &stats), SP_OK);
        assert_int_equal(stats.calls, 3);
        assert_int_equal(stats.total_ns, 60);
        assert_int_equal(stats.min_ns, 10);
        assert_int_equal(stats.max_ns, 30);
        if (!finalized) {
            clock_at(6000);
            sp_profiler_end(profiler, region);
            assert_int_equal(sp_profiler_reset(profiler), SP_OK);
            for (int i = 0; i < 3; i++) {
                clock_at(7000 + 100 * (sp_ticks)i);
                sp_profiler_begin(profiler, region);
                clock_at(7000 + 100 * (sp_ticks)i + (sp_ticks)lengths[i]);
                sp_profiler_end(profiler, region);
            }
            assert_int_equal(sp_profiler_finalize(profiler), SP_OK);
        }
    }
    assert_int_equal(sp_profiler_get_region_stats(profiler, 99, &stats), SP_ERR_INVALID);
    assert_int_equal(sp_profiler_num_regions(profiler), 1);
    assert_string_equal(sp_profiler_region_name(profiler, region), "r");
    sp_destroy(profiler);
}

static void depth_has_no_limit(void **state)
{
    enum { DEPTH = 10000 };
    sp_init("deep", 0);
    const int region = sp_region("r");
    for (int i = 0; i < DEPTH; i++) {
        clock_at(10000 + (sp_ticks)i);
        sp_begin(region);
    }
    for (int i = DEPTH; i-- > 0;) {
        clock_at(40000 - (sp_ticks)i);
        sp_end(region);
    }
    assert_int_equal(sp_finalize(), 0);
    sp_profile *profile = read_profile("deep_rank00000.h5");
    assert_calls(profile, "r", DEPTH);
    for (int i = 0; i < DEPTH; i++) assert_call(profile, "r", (size_t)i, 10000 + i, 40000 - i, i, i - 1);
    assert_null(sp_profile_find_metadata(profile, "unmatched_ends"));
    sp_profile_release(profile);
}

static void ends_close_the_newest_call_of_their_region(void **state)
{
    sp_init("cross", 0);
    const int a = sp_region("a"), b = sp_region("b");
    clock_at(2000);
    sp_begin(a);
    clock_at(2100);
    sp_begin(b);
    clock_at(2200);
    sp_end(a);
    clock_at(2300);
    sp_end(b);
    sp_end(b);
    assert_int_equal(sp_profiler_last_error(sp_default_profiler()), SP_ERR_UNMATCHED_END);
    assert_int_equal(sp_finalize(), 0);
    sp_profile *profile = read_profile("cross_rank00000.h5");
    assert_int_equal(seen_call(profile, "a", 0).end, 2200);
    assert_int_equal(seen_call(profile, "b", 0).end, 2300);
    assert_int_equal(sp_profile_find_metadata(profile, "unmatched_ends")->integer, 1);
    sp_profile_release(profile);
}

typedef struct visit {
    pthread_barrier_t turn;
    int outer, inner, own;
    bool stays;
} visit;

static void *begin_for_another_thread(void *with)
{
    visit *all = with;
    clock_at(2000);
    sp_begin(all->outer);
    clock_at(2100);
    sp_begin(all->inner);
    const sp_scope scope = sp_scope_begin(all->own);
    if (!all->stays) return NULL; /* the scope stays open */
    pthread_barrier_wait(&all->turn);
    pthread_barrier_wait(&all->turn); /* now the other thread has ended what it could */
    clock_at(5000);
    sp_scope last = scope;
    assert_int_equal(sp_scope_end(&last), SP_OK);
    assert_int_equal(sp_end_status(all->outer), SP_ERR_UNMATCHED_END); /* takes what was sent first */
    return NULL;
}

static void end_from_another_thread(bool stays, const char *prefix, const char *file)
{
    sp_init(prefix, 0);
    visit all = {.outer = sp_region("outer"), .inner = sp_region("inner"), .own = sp_region("own"), .stays = stays};
    pthread_t thread;
    pthread_barrier_init(&all.turn, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, begin_for_another_thread, &all), 0);
    if (stays) pthread_barrier_wait(&all.turn);
    else pthread_join(thread, NULL);
    clock_at(3000);
    assert_int_equal(sp_end_status(all.inner), SP_OK);
    clock_at(3100);
    assert_int_equal(sp_end_status(all.outer), SP_OK);
    /* What has a token is ended by it alone: the end is counted here, or by the thread that it is sent to. */
    assert_int_equal(sp_end_status(all.own), stays ? SP_OK : SP_ERR_UNMATCHED_END);
    if (stays) {
        pthread_barrier_wait(&all.turn);
        pthread_join(thread, NULL);
    }
    pthread_barrier_destroy(&all.turn);
    clock_at(6000);
    assert_int_equal(sp_finalize(), 0);
    sp_profile *profile = read_profile(file);
    assert_int_equal(seen_call(profile, "inner", 0).start, 2100);
    assert_int_equal(seen_call(profile, "inner", 0).end, 3000);
    assert_int_equal(seen_call(profile, "outer", 0).end, 3100);
    assert_int_equal(seen_call(profile, "own", 0).end, stays ? 5000 : 6000);
    assert_int_equal(sp_profile_find_metadata(profile, "unmatched_ends")->integer, stays ? 2 : 1);
    sp_profile_release(profile);
}

static void an_end_closes_the_newest_call_of_another_thread(void **state)
{
    end_from_another_thread(true, "sent", "sent_rank00000.h5");
}

static void an_end_closes_a_call_of_a_thread_that_is_gone(void **state)
{
    end_from_another_thread(false, "gone", "gone_rank00000.h5");
}

static void completed_children_of_an_open_call_are_kept(void **state)
{
    sp_init("open", 0);
    const int region = sp_region("r");
    clock_at(2000);
    sp_begin(region);
    call_at(region, 2100, 2200);
    assert_int_equal(sp_flush(), 0);
    sp_profile *profile = read_profile("open_rank00000.h5");
    assert_calls(profile, "r", 1);
    assert_int_equal(seen_call(profile, "r", 0).start, 2100);
    sp_profile_release(profile);
    assert_int_equal(sp_reset(), SP_ERR_OPEN_SCOPES);
    clock_at(2500);
    sp_end(region);
    assert_int_equal(sp_finalize(), 0);
    profile = read_profile("open_rank00000.h5");
    assert_call(profile, "r", 0, 2000, 2500, 0, -1);
    assert_call(profile, "r", 1, 2100, 2200, 1, 0);
    sp_profile_release(profile);
}

static void calls_that_are_open_at_the_end_are_in_the_file(void **state)
{
    sp_init("left", 0);
    const int outer = sp_region("outer"), inner = sp_region("inner");
    clock_at(2000);
    sp_begin(outer);
    call_at(inner, 2100, 2200);
    clock_at(2300);
    sp_begin(inner);
    clock_at(2400);
    assert_int_equal(sp_finalize(), 0);
    clock_at(2500);
    sp_end(inner);
    sp_end(outer);
    assert_int_equal(sp_num_calls(inner), 2);
    sp_profile *profile = read_profile("left_rank00000.h5");
    assert_call(profile, "outer", 0, 2000, 2400, 0, -1);
    assert_call(profile, "inner", 0, 2100, 2200, 1, 0);
    assert_call(profile, "inner", 1, 2300, 2400, 2, 0);
    assert_string_equal(row_of(profile, "outer")->event_metadata, "[{\"open\":true}]");
    assert_string_equal(row_of(profile, "inner")->event_metadata, "[{},{\"open\":true}]");
    sp_profile_release(profile);
    /* Nothing of it is in the way of the next run. */
    sp_init("next", 0);
    call_at(inner, 3000, 3100);
    assert_int_equal(sp_finalize(), 0);
    profile = read_profile("next_rank00000.h5");
    assert_calls(profile, "inner", 1);
    assert_call(profile, "inner", 0, 3000, 3100, 0, -1);
    sp_profile_release(profile);
}

static void a_failed_finalize_can_be_repeated(void **state)
{
    sp_init("missing/run", 0);
    const int region = sp_region("r");
    call_at(region, 2000, 2100);
    assert_int_equal(sp_finalize(), SP_ERR_IO);
    assert_int_equal(sp_profiler_last_error(sp_default_profiler()), SP_ERR_IO);
    assert_non_null(strstr(sp_profiler_error_message(sp_default_profiler()), "missing/run_rank00000.h5"));
    assert_int_equal(sp_is_active(), 1);
    call_at(region, 2200, 2300);
    assert_int_equal(mkdir("missing", 0700), 0);
    assert_int_equal(sp_finalize(), 0);
    sp_profile *profile = read_profile("missing/run_rank00000.h5");
    assert_call(profile, "r", 0, 2000, 2100, 0, -1);
    assert_call(profile, "r", 1, 2200, 2300, 1, -1);
    sp_profile_release(profile);
}

/* ---- scopes ---- */

static void scopes_end_their_own_call(void **state)
{
    sp_profiler *profiler = sp_create("scopes", 0);
    const int a = sp_profiler_region(profiler, "a"), b = sp_profiler_region(profiler, "b");
    clock_at(2000);
    sp_scope first = sp_profiler_scope_begin(profiler, a);
    clock_at(2100);
    sp_scope second = sp_profiler_scope_begin(profiler, a);
    clock_at(2200);
    sp_scope other = sp_profiler_scope_begin(profiler, b);
    assert_int_equal(sp_scope_end(&first), SP_ERR_UNMATCHED_END);
    assert_int_not_equal(first.slot, -1);
    clock_at(2300);
    assert_int_equal(sp_scope_end(&second), SP_OK);
    assert_int_equal(second.slot, -1);
    assert_int_equal(sp_scope_end(&second), SP_ERR_UNMATCHED_END);
    clock_at(2400);
    assert_int_equal(sp_scope_end(&first), SP_OK);
    clock_at(2500);
    assert_int_equal(sp_profiler_end_last(profiler), SP_OK);
    assert_int_equal(sp_scope_end(&other), SP_ERR_UNMATCHED_END);
    assert_int_equal(sp_profiler_end_last(profiler), SP_ERR_UNMATCHED_END);
    assert_int_equal(sp_profiler_finalize(profiler), SP_OK);
    sp_profile *profile = read_profile("scopes_rank00000.h5");
    assert_int_equal(seen_call(profile, "a", 0).end, 2400);
    assert_int_equal(seen_call(profile, "a", 1).end, 2300);
    assert_int_equal(seen_call(profile, "b", 0).end, 2500);
    sp_profile_release(profile);
    sp_destroy(profiler);
}

static sp_scope moved;

static void end_moved(void *status)
{
    *(int *)status = sp_scope_end(&moved);
}

static void begin_moved(void *profiler)
{
    moved = sp_profiler_scope_begin(profiler, 0);
}

static void a_scope_can_end_on_another_thread(void **state)
{
    sp_profiler *profiler = sp_create("moved", 0);
    const int a = sp_profiler_region(profiler, "a"), b = sp_profiler_region(profiler, "b");
    puppet *thread = puppet_new();
    int status = -1;
    clock_at(2000);
    moved = sp_profiler_scope_begin(profiler, a);
    clock_at(2100);
    puppet_do(thread, end_moved, &status);
    assert_int_equal(status, SP_OK);
    clock_at(2200);
    sp_profiler_begin(profiler, b);
    clock_at(2300);
    sp_profiler_end(profiler, b);
    sp_profiler_end(profiler, a);
    assert_int_equal(sp_profiler_last_error(profiler), SP_ERR_UNMATCHED_END);
    /* Begun there and ended here, when its thread is gone. */
    puppet_do(thread, begin_moved, profiler);
    puppet_end(thread);
    clock_at(2400);
    assert_int_equal(sp_scope_end(&moved), SP_OK);
    assert_int_equal(sp_profiler_finalize(profiler), SP_OK);
    sp_profile *profile = read_profile("moved_rank00000.h5");
    assert_calls(profile, "a", 2);
    assert_int_equal(seen_call(profile, "a", 0).start, 2000);
    assert_int_equal(seen_call(profile, "a", 0).end, 2100);
    assert_int_equal(seen_call(profile, "a", 1).end, 2400);
    sp_profile_release(profile);
    sp_destroy(profiler);
}

static void a_block_is_a_scope(void **state)
{
    sp_init("block", 0);
    for (int i = 0; i < 3; i++) {
        clock_at(2000 + 100 * (sp_ticks)i);
        SP_SCOPE("block");
        clock_at(2050 + 100 * (sp_ticks)i);
        if (i == 1) continue;
    }
    assert_int_equal(sp_finalize(), 0);
    sp_profile *profile = read_profile("block_rank00000.h5");
    assert_calls(profile, "block", 3);
    for (int i = 0; i < 3; i++) assert_call(profile, "block", (size_t)i, 2000 + 100 * i, 2050 + 100 * i, i, -1);
    sp_profile_release(profile);
}

/* ---- threads ---- */

#define WORKERS 8
#define ROUNDS 2000

static void *work(void *number)
{
    char name[32];
    snprintf(name, sizeof name, "own-%d", *(const int *)number);
    for (int i = 0; i < ROUNDS; i++) {
        const int own = sp_region(name);
        sp_begin(own);
        {
            SP_SCOPE("shared");
            sp_scope inner = sp_scope_begin(sp_region("inner"));
            sp_scope_end(&inner);
        }
        sp_end(own);
    }
    return NULL;
}

static void threads_record_while_others_read_and_write(void **state)
{
    pthread_t threads[WORKERS];
    int numbers[WORKERS];
    sp_clock_inject(NULL, NULL);
    assert_int_equal(sp_init("threads", 0), 0);
    for (int i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
    }
    int64_t seen_before = 0;
    for (int i = 0; i < 10; i++) {
        sp_region_stats stats;
        assert_int_equal(sp_flush(), 0);
        const int region = sp_region("shared");
        assert_int_equal(sp_profiler_get_region_stats(sp_default_profiler(), region, &stats), SP_OK);
        assert_true(stats.calls >= seen_before);
        assert_true(stats.calls <= sp_num_calls(region));
        seen_before = stats.calls;
    }
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(sp_finalize(), 0);
    assert_int_equal(sp_num_calls(sp_region("shared")), WORKERS * ROUNDS);
    sp_profile *profile = read_profile("threads_rank00000.h5");
    assert_calls(profile, "shared", WORKERS * ROUNDS);
    assert_calls(profile, "inner", WORKERS * ROUNDS);
    for (int i = 0; i < WORKERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "own-%d", i);
        assert_calls(profile, name, ROUNDS);
    }
    assert_true(profile->nested);
    sp_profile_release(profile);
}

/* ---- lanes ---- */

static void a_call_of_a_fiber_that_waits_at_the_end_has_awaited(void **state)
{
    sp_init("waits", 0);
    const int id = sp_region("a");
    sp_lane *lane = sp_lane_create("lane");
    clock_at(2000);
    sp_lane_switch(lane);
    sp_begin(id);
    clock_at(2030);
    sp_lane_switch(NULL);
    clock_at(2230);
    assert_int_equal(sp_finalize(), 0);
    sp_profile *profile = read_profile("waits_rank00000.h5");
    const seen open = seen_call(profile, "a", 0);
    assert_int_equal(open.end - open.start, 230);
    assert_int_equal(open.await, 200);
    assert_int_equal(profile->tasks[0].suspended_ns, 200);
    sp_profile_release(profile);
    sp_lane_end(lane);
}

static void a_fiber_has_a_stack_of_its_own_and_waits(void **state)
{
    sp_init("fibers", 0);
    const int outer = sp_region("outer"), a = sp_region("a"), b = sp_region("b");
    sp_lane *one = sp_lane_create("one"), *two = sp_lane_create("two");
    clock_at(2000);
    sp_begin(outer);
    clock_at(2100);
    assert_null(sp_lane_switch(one));
    sp_begin(a);
    clock_at(2200);
    assert_ptr_equal(sp_lane_switch(two), one);
    sp_begin(b);
    clock_at(2300);
    assert_ptr_equal(sp_lane_switch(one), two);
    sp_end(a);
    clock_at(2400);
    sp_lane_switch(two);
    sp_end(b);
    sp_lane_switch(NULL);
    sp_lane_end(one);
    sp_lane_end(two);
    clock_at(2500);
    sp_end(outer);
    assert_int_equal(sp_finalize(), 0);
    sp_profile *profile = read_profile("fibers_rank00000.h5");
    const seen first = seen_call(profile, "a", 0), second = seen_call(profile, "b", 0);
    assert_int_equal(first.start, 2100);
    assert_int_equal(first.end, 2300);
    assert_int_equal(first.await, 100);
    assert_int_equal(first.task, 0);
    assert_int_equal(first.parent, -1);
    assert_int_equal(second.start, 2200);
    assert_int_equal(second.end, 2400);
    assert_int_equal(second.await, 100);
    assert_int_equal(second.task, 1);
    assert_int_equal(seen_call(profile, "outer", 0).task, -1);
    assert_int_equal(profile->task_count, 2);
    assert_string_equal(profile->tasks[0].name, "one");
    assert_int_equal(profile->tasks[0].steps, 2);
    assert_int_equal(profile->tasks[0].running_ns, 200);
    assert_int_equal(profile->tasks[0].suspended_ns, 100);
    assert_int_equal(profile->tasks[1].done_ns, 1400);
    sp_profile_release(profile);
}

/* ---- files ---- */

static void a_trace_has_version_2(void **state)
{
    sp_init("trace", 7);
    assert_int_equal(sp_set_output_format((sp_output_format)9), SP_ERR_UNSUPPORTED);
    assert_int_equal(sp_set_output_format(SP_OUTPUT_TRACE), SP_OK);
    assert_string_equal(sp_output_path(), "trace_rank00007.spt");
    const int region = sp_region_at("r", "x.c", 4);
    sp_region("unused");
    call_at(region, 2000, 2100);
    call_at(region, 2200, 2250);
    assert_int_equal(sp_finalize(), 0);
    static const unsigned char expected[] = {
        'S', 'C', 'O', 'P', 'E', 'P', 'R', 'F', 2, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, /* header */
        1, 0, 0, 0, 'r', 3, 0, 0, 0, 'x', '.', 'c', 4, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,          /* region */
        0xd0, 7, 0, 0, 0, 0, 0, 0, 0x98, 8, 0, 0, 0, 0, 0, 0,                                   /* starts */
        0x34, 8, 0, 0, 0, 0, 0, 0, 0xca, 8, 0, 0, 0, 0, 0, 0};                                  /* ends */
    unsigned char bytes[sizeof expected + 1];
    FILE *file = fopen("trace_rank00007.spt", "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), sizeof expected);
    fclose(file);
    assert_memory_equal(bytes, expected, sizeof expected);
}

static volatile double sink;

static void burn(int64_t ns)
{
    const int64_t until = sp_now_ns() + ns;
    while (sp_now_ns() < until) {
        for (int i = 0; i < 1000; i++) sink += i;
    }
}

/* How many samples a second a run takes by what the environment says; 0: none. */
static int rate_by_environment(const char *value)
{
    sp_samples samples;
    sp_error error;
    setenv("SCOPE_PROFILER_SAMPLE_HZ", value, 1);
    assert_int_equal(sp_init("environment", 0), 0);
    unsetenv("SCOPE_PROFILER_SAMPLE_HZ");
    burn(20000000);
    assert_int_equal(sp_finalize(), 0);
    if (sp_sps_read("environment_rank00000.sps", &samples, &error) != SP_OK) return 0;
    const int rate = (int)samples.hz;
    sp_samples_free(&samples);
    remove("environment_rank00000.sps");
    return rate;
}

static void the_environment_starts_sampling(void **state)
{
    (void)state;
    assert_int_equal(rate_by_environment("500"), 500);
    assert_int_equal(rate_by_environment("0"), 0);
    assert_int_equal(rate_by_environment("often"), 0);
    assert_int_equal(rate_by_environment(""), 0);
}

static void samples_tell_regions_and_addresses(void **state)
{
    sp_init("samples", 2);
    const int region = sp_region("busy");
    assert_int_equal(sp_start_sampling(0), SP_ERR_UNSUPPORTED);
    assert_int_equal(sp_start_sampling(1000001), SP_ERR_UNSUPPORTED);
    assert_int_equal(sp_start_sampling(1000), SP_OK);
    sp_profiler *other = sp_create("other", 0);
    assert_int_equal(sp_profiler_start_sampling(other, 100), SP_ERR_BUSY);
    sp_destroy(other);
    sp_begin(region);
    burn(200000000);
    sp_end(region);
    burn(100000000);
    assert_int_equal(sp_stop_sampling(), SP_OK);
    assert_int_equal(sp_finalize(), 0);
    sp_samples samples;
    sp_error error;
    assert_int_equal(sp_sps_read("samples_rank00002.sps", &samples, &error), SP_OK);
    assert_int_equal(samples.rank, 2);
    assert_int_equal(samples.hz, 1000);
    size_t inside = 0, outside = 0, placed = 0;
    for (size_t i = 0; i < samples.sample_count; i++) {
        const int32_t at = samples.samples[i].region;
        if (at >= 0) assert_string_equal(samples.regions[at], "busy");
        inside += at >= 0;
        outside += at < 0;
        placed += samples.samples[i].module >= 0 && samples.samples[i].address > samples.bases[samples.samples[i].module];
    }
    assert_int_equal(samples.ticks, samples.sample_count);
    assert_true(inside > 0 && outside > 0 && placed > 0);
    sp_samples_free(&samples);
}

static void a_forked_child_stands_down(void **state)
{
    sp_init("fork", 0);
    const int region = sp_region("r");
    call_at(region, 2000, 2100);
    const pid_t child = fork();
    if (child == 0) {
        if (sp_is_active() || sp_finalize() != 0 || access("fork_rank00000.h5", F_OK) == 0) _exit(1);
        if (sp_init("child", 1) != 0 || !sp_is_active()) _exit(2);
        call_at(region, 3000, 3100);
        if (sp_finalize() != 0) _exit(3);
        _exit(access("child_rank00001.h5", F_OK) == 0 ? 0 : 4);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(sp_finalize(), 0);
    sp_profile *profile = read_profile("fork_rank00000.h5");
    assert_calls(profile, "r", 1);
    sp_profile_release(profile);
    profile = read_profile("child_rank00001.h5");
    assert_int_equal(seen_call(profile, "r", 0).start, 3000);
    sp_profile_release(profile);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_harmless_before_init, go_there, clean_up),
        cmocka_unit_test_setup_teardown(a_profile_has_the_calls, go_there, clean_up),
        cmocka_unit_test_setup_teardown(statistics_are_those_of_completed_calls_and_outlive_the_run, go_there, clean_up),
        cmocka_unit_test_setup_teardown(depth_has_no_limit, go_there, clean_up),
        cmocka_unit_test_setup_teardown(ends_close_the_newest_call_of_their_region, go_there, clean_up),
        cmocka_unit_test_setup_teardown(an_end_closes_the_newest_call_of_another_thread, go_there, clean_up),
        cmocka_unit_test_setup_teardown(an_end_closes_a_call_of_a_thread_that_is_gone, go_there, clean_up),
        cmocka_unit_test_setup_teardown(completed_children_of_an_open_call_are_kept, go_there, clean_up),
        cmocka_unit_test_setup_teardown(calls_that_are_open_at_the_end_are_in_the_file, go_there, clean_up),
        cmocka_unit_test_setup_teardown(a_failed_finalize_can_be_repeated, go_there, clean_up),
        cmocka_unit_test_setup_teardown(scopes_end_their_own_call, go_there, clean_up),
        cmocka_unit_test_setup_teardown(a_scope_can_end_on_another_thread, go_there, clean_up),
        cmocka_unit_test_setup_teardown(a_block_is_a_scope, go_there, clean_up),
        cmocka_unit_test_setup_teardown(threads_record_while_others_read_and_write, go_there, clean_up),
        cmocka_unit_test_setup_teardown(a_call_of_a_fiber_that_waits_at_the_end_has_awaited, go_there, clean_up),
        cmocka_unit_test_setup_teardown(a_fiber_has_a_stack_of_its_own_and_waits, go_there, clean_up),
        cmocka_unit_test_setup_teardown(a_trace_has_version_2, go_there, clean_up),
        cmocka_unit_test_setup_teardown(the_environment_starts_sampling, go_there, clean_up),
        cmocka_unit_test_setup_teardown(samples_tell_regions_and_addresses, go_there, clean_up),
        cmocka_unit_test_setup_teardown(a_forked_child_stands_down, go_there, clean_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
