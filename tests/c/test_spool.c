/* The spool's writer and reader: damage, versions, limits, forks, two processes. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/collect.h"
#include "analysis/collection.h"
#include "core/clock.h"
#include "core/hot.h"
#include "core/run.h"
#include "core/values.h"
#include "formats/finish.h"
#include "formats/spool.h"
#include "formats/spool_layout.h"

static char directory[64], path[128];

typedef struct recording {
    sp_store *store;
    sp_run *run;
    sp_switch gate;
} recording;

static void begin(recording *r, uint64_t limit, bool newest)
{
    const sp_spool_options options = {.path = path, .output = "p.h5", .tracks_threads = true, .limit = limit, .keeps_newest = newest};
    sp_error error;
    *r = (recording){0};
    assert_int_equal(sp_spool_create(&options, &r->store, &error), SP_OK);
    const sp_run_options run = {.tracks_threads = true, .store = r->store};
    assert_int_equal(sp_run_open(&run, &r->gate, &r->run, &error), SP_OK);
    sp_spool_begin(r->store, r->run->started, r->run->start_ns);
}

/* As a process that is killed leaves it. */
static void leave(recording *r)
{
    sp_spool_finish(r->store, true);
    sp_run_drop(r->run);
    r->store->operations->release(r->store);
}

static uint32_t region(const recording *r, const char *name)
{
    uint32_t id;
    assert_int_equal(sp_run_region(r->run, name, NULL, -1, NULL, NULL, &id, NULL), SP_OK);
    return id;
}

static void call(const recording *r, uint32_t id, int times)
{
    sp_log *log = sp_log_current(r->run->token);
    for (int i = 0; i < times; i++) {
        sp_slot *slot = sp_log_enter(log, id);
        if (slot) sp_log_exit(log, slot);
    }
}

static sp_profile *read_back(sp_salvage *salvage)
{
    sp_profile *profile = NULL;
    sp_error error;
    assert_int_equal(sp_spool_read(path, 0, &profile, salvage, NULL, &error), SP_OK);
    return profile;
}

static uint64_t calls_of(const sp_profile *profile, const char *name)
{
    for (size_t i = 0; i < profile->row_count; i++) {
        if (strcmp(profile->names[profile->rows[i].name], name) == 0) return profile->rows[i].count;
    }
    return 0;
}

static void poke(off_t offset, const void *bytes, size_t size)
{
    const int file = open(path, O_RDWR);
    assert_int_equal(pwrite(file, bytes, size, offset), size);
    close(file);
}

static void record_some(recording *r)
{
    begin(r, 0, false);
    call(r, region(r, "a"), 1000);
    call(r, region(r, "b"), 500);
}

static void test_what_was_recorded_is_read(void **state)
{
    (void)state;
    recording r;
    sp_salvage salvage;
    record_some(&r);
    sp_slot *open = sp_log_enter(sp_log_current(r.run->token), region(&r, "open"));
    assert_non_null(open);
    sp_spool_info info;
    assert_int_equal(sp_spool_inspect(path, &info, NULL), SP_OK);
    assert_true(info.alive);
    assert_int_equal(info.pid, getpid());
    leave(&r);
    sp_profile *profile = read_back(&salvage);
    assert_int_equal(calls_of(profile, "a"), 1000);
    assert_int_equal(calls_of(profile, "b"), 500);
    assert_int_equal(calls_of(profile, "open"), 1);
    assert_int_equal(salvage.open_calls, 1);
    assert_int_equal(salvage.damaged_bytes, 0);
    sp_profile_release(profile);
}

static void test_versions_and_headers_are_checked(void **state)
{
    (void)state;
    recording r;
    sp_error error;
    sp_profile *profile = NULL;
    record_some(&r);
    leave(&r);
    const uint32_t later = SP_SPOOL_VERSION + 1, version = SP_SPOOL_VERSION, swapped = 0x04030201, endian = SP_SPOOL_ENDIAN;
    poke(offsetof(sp_spool_header, version), &later, sizeof later);
    assert_int_equal(sp_spool_read(path, 0, &profile, NULL, NULL, &error), SP_ERR_SCHEMA);
    poke(offsetof(sp_spool_header, version), &version, sizeof version);
    poke(offsetof(sp_spool_header, endian), &swapped, sizeof swapped);
    assert_int_equal(sp_spool_read(path, 0, &profile, NULL, NULL, &error), SP_ERR_UNSUPPORTED);
    poke(offsetof(sp_spool_header, endian), &endian, sizeof endian);
    poke(offsetof(sp_spool_header, started), "xxxx", 4);
    assert_int_equal(sp_spool_read(path, 0, &profile, NULL, NULL, &error), SP_ERR_CORRUPT);
    poke(0, "nonsense", 8);
    assert_int_equal(sp_spool_read(path, 0, &profile, NULL, NULL, &error), SP_ERR_FOREIGN);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(sp_spool_read(path, 0, &profile, NULL, NULL, &error), SP_ERR_FOREIGN);
}

static void test_damage_costs_what_is_damaged_and_is_counted(void **state)
{
    (void)state;
    recording r;
    sp_salvage salvage;
    record_some(&r);
    leave(&r);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    const uint64_t noise = 0xdeadbeefdeadbeef;
    srand(1);
    for (int round = 0; round < 200; round++) {
        poke(SP_SPOOL_PAGE + rand() % (file.st_size - SP_SPOOL_PAGE - 8), &noise, sizeof noise);
        sp_profile *profile = read_back(&salvage);
        assert_true(profile->call_count <= 1500);
        sp_profile_release(profile);
    }
}

static void test_at_the_limit_recording_stops(void **state)
{
    (void)state;
    recording r;
    sp_salvage salvage;
    begin(&r, 4 << 20, false);
    call(&r, region(&r, "a"), 400000);
    assert_true(atomic_load(&r.run->limited));
    const uint64_t lost = sp_run_lost(r.run);
    assert_in_range(lost, 1, 400000 - 1);
    leave(&r);
    sp_profile *profile = read_back(&salvage);
    assert_true(salvage.limited);
    assert_int_equal(calls_of(profile, "a"), 400000 - lost);
    sp_profile_release(profile);
}

/* ---- the newest are kept ---- */

#define THREADS 4
#define CALLS 300000

typedef struct worker {
    recording *r;
    uint32_t outer, inner;
    _Atomic(bool) *stop;
} worker;

/* ---- values of single calls ---- */

static sp_spool_values values_now(void)
{
    sp_spool_values values;
    sp_profile *profile = NULL;
    sp_salvage salvage;
    assert_int_equal(sp_spool_read(path, 0, &profile, &salvage, &values, NULL), SP_OK);
    assert_int_equal(values.count, salvage.values);
    sp_profile_release(profile);
    return values;
}

static size_t value_count(void)
{
    sp_spool_values values = values_now();
    const size_t count = values.count;
    sp_spool_values_free(&values);
    return count;
}

static void test_values_are_there_until_their_calls_are_in_a_file(void **state)
{
    (void)state;
    recording r;
    record_some(&r);
    const uint64_t scope = sp_values_open(r.run, -2, r.run->started, "{\"k\": 1}");
    assert_int_not_equal(scope, 0);
    const sp_ticks now = sp_clock_read();
    sp_values_outcome(r.run, 7, now, "a", "{\"k\": 2}");
    sp_spool_values values = values_now();
    assert_int_equal(values.count, 2);
    assert_int_equal(values.calls, 1500);
    assert_int_equal(values.lanes[0], -2);
    assert_false(values.list[0].outcome);
    assert_int_equal(values.list[0].lane, -2);
    assert_int_equal(values.list[0].end_ns, SP_UNKNOWN);
    assert_string_equal(values.list[0].text, "{\"k\": 1}");
    assert_true(values.list[1].outcome);
    assert_int_equal(values.list[1].lane, 7);
    assert_string_equal(values.list[1].region, "a");
    assert_true(values.list[1].start_ns > values.list[0].start_ns);
    sp_spool_values_free(&values);
    /* The chunk of a scope that is open stays with all that is in it; the next ones go. */
    sp_values_drop(r.run, sp_values_mark(r.run));
    for (int i = 0; i < 3000; i++) sp_values_outcome(r.run, -2, now, "b", "{}");
    assert_int_equal(value_count(), 3002);
    const uint32_t mark = sp_values_mark(r.run);
    sp_values_outcome(r.run, -2, now, "late", "{}");
    sp_values_drop(r.run, mark);
    assert_int_equal(value_count(), 3);
    sp_values_close(r.run, scope, -2, r.run->started, sp_clock_read(), "{\"k\": 3}");
    values = values_now();
    assert_int_equal(values.count, 4);
    assert_int_equal(values.list[3].scope, values.list[0].scope);
    assert_true(values.list[3].end_ns > 0);
    sp_spool_values_free(&values);
    sp_values_drop(r.run, sp_values_mark(r.run));
    assert_int_equal(value_count(), 0);
    leave(&r);
}

static void test_a_limit_is_one_for_values_too(void **state)
{
    (void)state;
    recording r;
    static char text[1000];
    memset(text, 'x', sizeof text - 1);
    begin(&r, 4 << 20, false);
    for (int i = 0; i < 10000; i++) sp_values_outcome(r.run, -2, sp_clock_read(), "a", text);
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_true(facts.st_blocks * 512 <= 4 << 20);
    assert_in_range(value_count(), 2000, 5000);
    leave(&r);
}

static void *work(void *context)
{
    worker *w = context;
    sp_log *log = sp_log_current(w->r->run->token);
    sp_slot *all = sp_log_enter(log, w->outer);
    for (int i = 0; i < CALLS; i++) {
        sp_slot *outer = i % 10 ? NULL : sp_log_enter(log, w->outer);
        call(w->r, w->inner, 1);
        if (outer) sp_log_exit(log, outer);
    }
    if (all) sp_log_exit(log, all);
    return NULL;
}

/* Looks at everything that reads logs, while blocks go. */
static void *look(void *context)
{
    worker *w = context;
    while (!atomic_load(w->stop)) {
        int64_t *starts, *ends;
        uint32_t *ids;
        size_t count;
        assert_int_equal(sp_run_peek(w->r->run, w->inner, &starts, &ends, &count, NULL), SP_OK);
        for (size_t i = 0; i < count; i++) assert_true(ends[i] >= starts[i]);
        free(starts);
        free(ends);
        assert_int_equal(sp_run_open_calls(w->r->run, &ids, &count, NULL), SP_OK);
        assert_true(count <= 3 * THREADS);
        free(ids);
        (void)sp_run_has_unreported(w->r->run);
        (void)sp_run_unsaved(w->r->run);
        sp_profile *profile = NULL;
        if (sp_spool_read(path, 0, &profile, NULL, NULL, NULL) == SP_OK) sp_profile_release(profile);
        usleep(2000);
    }
    return NULL;
}

static void record_beyond(recording *r, uint64_t limit)
{
    _Atomic(bool) stop = false;
    begin(r, limit, true);
    worker w = {.r = r, .outer = region(r, "outer"), .inner = region(r, "inner"), .stop = &stop};
    pthread_t threads[THREADS], reader;
    pthread_create(&reader, NULL, look, &w);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &w);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    atomic_store(&stop, true);
    pthread_join(reader, NULL);
}

static void test_beyond_the_limit_the_newest_are_kept(void **state)
{
    (void)state;
    const uint64_t total = THREADS * (uint64_t)(CALLS + CALLS / 10 + 1);
    for (int large = 0; large < 2; large++) {
        recording r;
        sp_salvage salvage;
        sp_error error;
        record_beyond(&r, large ? 16 << 20 : 6 << 20);
        assert_false(atomic_load(&r.run->limited));
        const uint64_t dropped = r.run->dropped_calls;
        assert_in_range(dropped, 1, total - 1);
        /* No thread goes without the spool because another one makes room in it, or looks at what is there. */
        assert_int_equal(sp_run_unsaved(r.run), 0);
        sp_profile *profile = read_back(&salvage);
        assert_int_equal(profile->call_count, total - dropped);
        assert_false(salvage.incomplete);
        assert_int_equal(salvage.dropped_calls, dropped);
        assert_int_equal(salvage.damaged_bytes, 0);
        sp_profile_release(profile);
        /* And the same in a file. */
        char target[160];
        snprintf(target, sizeof target, "%s/p.h5", directory);
        const sp_finish_options options = {.path = target};
        assert_int_equal(sp_run_finish(r.run, &options, &profile, &error), SP_OK);
        assert_int_equal(profile->call_count, total - dropped);
        assert_true(profile->nested);
        sp_profile_release(profile);
        unlink(target);
        leave(&r);
        unlink(path);
    }
}

static void test_while_a_collection_is_under_way_nothing_is_dropped_and_the_spool_says_what_it_lacks(void **state)
{
    (void)state;
    recording r;
    sp_salvage salvage;
    sp_error error;
    sp_collection *collection;
    begin(&r, 4 << 20, true);
    const uint32_t a = region(&r, "a");
    call(&r, a, 10000);
    assert_int_equal(sp_collection_begin(r.run, 0, 0, &collection, &error), SP_OK);
    call(&r, a, 400000);
    assert_int_equal(r.run->dropped_calls, 0);
    assert_int_equal(sp_run_lost(r.run), 0);
    sp_collection_abandon(collection);
    const uint64_t unsaved = sp_run_unsaved(r.run);
    assert_in_range(unsaved, 100000, 400000);
    sp_profile *profile = read_back(&salvage);
    assert_int_equal(profile->call_count, 410000 - unsaved);
    assert_true(salvage.incomplete);
    assert_false(salvage.limited);
    sp_profile_release(profile);
    /* And then the oldest go again. */
    call(&r, a, 400000);
    assert_in_range(r.run->dropped_calls, 300000, 810000 - unsaved);
    leave(&r);
}

/* ---- processes ---- */

static void test_a_child_leaves_the_spool_to_its_parent(void **state)
{
    (void)state;
    recording r;
    sp_salvage salvage;
    record_some(&r);
    const uint32_t id = region(&r, "a");
    const pid_t child = fork();
    if (child == 0) {
        call(&r, id, 100000);
        sp_profile *profile = NULL;
        const bool whole = sp_run_collect(r.run, 0, 0, &profile, NULL, NULL) == SP_OK && profile->call_count == 101500;
        sp_spool_finish(r.store, false);
        _exit(whole ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    call(&r, id, 200);
    leave(&r);
    sp_profile *profile = read_back(&salvage);
    assert_int_equal(calls_of(profile, "a"), 1200);
    assert_int_equal(calls_of(profile, "b"), 500);
    sp_profile_release(profile);
}

static void test_no_two_runs_share_a_spool(void **state)
{
    (void)state;
    recording r;
    record_some(&r);
    const sp_spool_options options = {.path = path};
    sp_store *second = NULL;
    sp_error error;
    assert_int_equal(sp_spool_create(&options, &second, &error), SP_ERR_IO);
    const pid_t child = fork();
    if (child == 0) _exit(sp_spool_create(&options, &second, &error) == SP_ERR_IO ? 0 : 1);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    sp_spool_finish(r.store, false);
    assert_int_not_equal(access(path, F_OK), 0);
    leave(&r);
}

static int64_t lost_calls(const sp_profile *profile)
{
    for (size_t i = 0; i < profile->metadata_count; i++) {
        if (strcmp(profile->metadata[i].key, "lost_calls") == 0) return profile->metadata[i].integer;
    }
    return 0;
}

static void test_a_run_goes_on_when_its_spool_is_cut_off_and_counts_what_went(void **state)
{
    (void)state;
    char target[160];
    snprintf(target, sizeof target, "%s/p.h5", directory);
    signal(SIGBUS, SIG_DFL); /* cmocka's would be over ours */
    for (off_t size = 0; size < 4 << 20; size += 700000) {
        recording r;
        sp_error error;
        sp_profile *profile;
        const sp_finish_options options = {.path = target};
        begin(&r, 0, false);
        const uint32_t a = region(&r, "a");
        call(&r, a, 300);
        sp_slot *around = sp_log_enter(sp_log_current(r.run->token), region(&r, "around"));
        call(&r, a, 150000);
        sp_slot *inside = sp_log_enter(sp_log_current(r.run->token), region(&r, "inside"));
        assert_int_equal(truncate(path, size), 0);
        call(&r, a, 1000);
        sp_log_exit(sp_log_current(r.run->token), inside);
        assert_int_equal(sp_run_finish(r.run, &options, &profile, &error), SP_OK);
        const uint64_t around_went = size == 0; /* it is in the first chunk */
        assert_int_equal(profile->call_count + (uint64_t)lost_calls(profile), 151301 + around_went);
        assert_true(lost_calls(profile) > 0 && profile->call_count >= 1000);
        sp_profile_release(profile);
        sp_log_exit(sp_log_current(r.run->token), around);
        call(&r, a, 10);
        assert_int_equal(sp_run_finish(r.run, &options, &profile, &error), SP_OK);
        assert_int_equal(profile->call_count, 11 - around_went);
        sp_profile_release(profile);
        leave(&r);
        unlink(path);
        unlink(target);
    }
}

static void test_calls_that_go_while_they_are_collected_are_not_made_up(void **state)
{
    (void)state;
    signal(SIGBUS, SIG_DFL);
    for (off_t size = 0; size < 4 << 20; size += 300000) {
        recording r;
        sp_error error;
        sp_collection *collection;
        sp_profile *profile;
        begin(&r, 0, false);
        const uint32_t a = region(&r, "a"), around = region(&r, "around");
        for (int i = 0; i < 1000; i++) {
            sp_log_enter(sp_log_current(r.run->token), around); /* they stay open */
            call(&r, a, 150);
        }
        assert_int_equal(sp_collection_begin(r.run, 0, 0, &collection, &error), SP_OK);
        assert_int_equal(sp_collection_profile(collection)->call_count, 150000);
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(sp_collection_columns(collection, 0, NULL, &error), SP_ERR_IO);
        sp_collection_abandon(collection);
        assert_int_equal(sp_run_collect(r.run, 0, 0, &profile, NULL, &error), SP_OK);
        assert_in_range(profile->call_count, 0, 149999);
        for (uint64_t i = 0; i < profile->call_count; i++) {
            assert_true(profile->columns[SP_COLUMN_END][i] >= profile->columns[SP_COLUMN_START][i]);
        }
        sp_profile_release(profile);
        leave(&r);
        unlink(path);
    }
}

static int make_place(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/test_spool.XXXXXX");
    if (mkdtemp(directory) == NULL) return -1;
    snprintf(path, sizeof path, "%s/p.spool", directory);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

#define PLACED(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACED(test_what_was_recorded_is_read),
        PLACED(test_versions_and_headers_are_checked),
        PLACED(test_damage_costs_what_is_damaged_and_is_counted),
        PLACED(test_values_are_there_until_their_calls_are_in_a_file),
        PLACED(test_a_limit_is_one_for_values_too),
        PLACED(test_at_the_limit_recording_stops),
        PLACED(test_beyond_the_limit_the_newest_are_kept),
        PLACED(test_while_a_collection_is_under_way_nothing_is_dropped_and_the_spool_says_what_it_lacks),
        PLACED(test_a_run_goes_on_when_its_spool_is_cut_off_and_counts_what_went),
        PLACED(test_calls_that_go_while_they_are_collected_are_not_made_up),
        PLACED(test_a_child_leaves_the_spool_to_its_parent),
        PLACED(test_no_two_runs_share_a_spool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
