/* Threads: their rows, beginnings and ends; the front end; forks. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/registry.h"
#include "platform/platform.h"

static void do_register(void *with)
{
    assert_non_null(sp_run_log(with));
}

static void do_finish(void *with)
{
    sp_thread_finish();
}

static void rows_tell_when_a_thread_came_and_went(void **state)
{
    clock_at(1000);
    recording *of = record(true, false);
    clock_at(1010);
    puppet *first = puppet_new(), *second = puppet_new();
    puppet_do(first, do_register, of->run);
    clock_at(1020);
    puppet_do(second, do_register, of->run);
    clock_at(1030);
    sp_run_log(of->run);
    clock_at(1040);
    puppet_end(first);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->thread_count, 3);
    const sp_thread_info *t = profile->threads;
    for (int i = 0; i < 3; i++) assert_int_equal(t[i].index, i);
    assert_int_equal(t[0].start_ns, 10);
    assert_int_equal(t[0].end_ns, 40);
    assert_int_equal(t[1].start_ns, 20);
    assert_int_equal(t[1].end_ns, SP_UNKNOWN);
    assert_int_equal(t[2].start_ns, 0); /* the thread that opened the run was there from its start */
    assert_int_equal(t[2].end_ns, SP_UNKNOWN);
    assert_int_equal(t[2].native_id, sp_platform_thread_id());
    assert_int_equal(t[2].ident, (int64_t)(uintptr_t)pthread_self());
    for (int i = 0; i < 3; i++) assert_true(t[i].cpu_ns >= 0);
    sp_profile_release(profile);
    puppet_end(second);
    record_end(of);
}

/* A thread that recorded nothing is listed as well, and its row stays after its log is gone. */
static void rows_outlive_their_threads(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    for (int i = 0; i < 300; i++) {
        puppet *thread = puppet_new();
        puppet_do(thread, do_register, of->run);
        if (i % 3 == 0) {
            call one = enter_on(thread, of, "a", 200 + 10 * (sp_ticks)i);
            leave_on(thread, &one, 201 + 10 * (sp_ticks)i);
        }
        puppet_end(thread);
        sp_profile *profile = collect(of);
        assert_int_equal(profile->thread_count, i + 1);
        assert_calls(profile, "a", i % 3 == 0);
        if (i % 3 == 0) assert_int_equal(seen_call(profile, "a", 0).thread, i);
        sp_profile_release(profile);
        assert_null(of->run->logs); /* collected to the end, and its thread is gone */
    }
    record_end(of);
}

static void do_name_and_register(void *with)
{
    prctl(PR_SET_NAME, "a longer name than the kernel keeps", 0, 0, 0);
    do_register(with);
}

static void threads_have_the_names_the_system_knows(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    puppet_do(thread, do_name_and_register, of->run);
    sp_profile *profile = collect(of);
    assert_string_equal(profile->threads[0].name, "a longer name t");
    assert_false(profile->threads[0].daemon);
    sp_profile_release(profile);
    sp_run_describe_thread(of->run, of->run->rows[0], "Worker", 4711, true);
    sp_run_describe_thread(of->run, of->run->rows[0], NULL, 4712, true);
    profile = collect(of);
    assert_string_equal(profile->threads[0].name, "Worker");
    assert_int_equal(profile->threads[0].ident, 4712);
    assert_true(profile->threads[0].daemon);
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
}

static void burn(int64_t ns)
{
    const int64_t until = sp_platform_own_cpu_ns() + ns;
    while (sp_platform_own_cpu_ns() < until) {}
}

static void do_burn(void *with)
{
    burn(30000000);
}

static void cpu_time_is_the_threads_own_and_exact(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *alive = puppet_new(), *dead = puppet_new(), *idle = puppet_new();
    puppet *const all[] = {alive, dead, idle};
    for (int i = 0; i < 3; i++) puppet_do(all[i], do_register, of->run);
    puppet_do(alive, do_burn, NULL);
    puppet_do(dead, do_burn, NULL);
    puppet_end(dead);
    burn(50000000);
    sp_profile *profile = collect(of);
    assert_in_range(profile->threads[0].cpu_ns, 30000000, 40000000); /* read from outside, now */
    assert_in_range(profile->threads[1].cpu_ns, 30000000, 40000000);
    assert_in_range(profile->threads[2].cpu_ns, 0, 10000000);
    sp_profile_release(profile);
    puppet_end(alive);
    puppet_end(idle);
    record_end(of);
}

/* ---- the end, announced by the front end while the thread still runs ---- */

static void an_announced_end_is_the_end(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    call one = enter_on(thread, of, "a", 110);
    leave_on(thread, &one, 120);
    clock_at(130);
    puppet_do(thread, do_finish, NULL);
    clock_at(140);
    puppet_end(thread);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->threads[0].end_ns, 30);
    sp_profile_release(profile);
    record_end(of);
}

/* Destructors that run after it may record, or close what is open: every call lies within its thread's life. */
static void calls_after_the_announced_end_move_it(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    call open = enter_on(thread, of, "a", 110);
    clock_at(120);
    puppet_do(thread, do_finish, NULL);
    leave_on(thread, &open, 130);
    clock_at(150);
    puppet_end(thread);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->threads[0].end_ns, 30);
    sp_profile_release(profile);

    thread = puppet_new();
    call first = enter_on(thread, of, "a", 160);
    leave_on(thread, &first, 165);
    clock_at(170);
    puppet_do(thread, do_finish, NULL);
    call late = enter_on(thread, of, "a", 180);
    leave_on(thread, &late, 190);
    clock_at(200);
    puppet_end(thread);
    profile = collect(of);
    assert_int_equal(profile->threads[1].end_ns, 100);
    sp_profile_release(profile);
    record_end(of);
}

/* Between its announced end and its real one another thread closes a call of it: that is not the thread's doing. */
static void a_call_that_another_closes_after_the_announced_end_does_not_move_it(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    call open = enter_on(thread, of, "a", 110);
    call own = enter_on(thread, of, "b", 112);
    clock_at(120);
    puppet_do(thread, do_finish, NULL);
    leave_on(thread, &own, 125);
    leave(&open, 130);
    clock_at(150);
    puppet_end(thread);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 2);
    assert_int_equal(profile->threads[0].end_ns, 25);
    sp_profile_release(profile);
    record_end(of);
}

/* A generator of a thread that is gone may be closed by another much later: the thread did not live that long. */
static void a_call_closed_after_its_thread_ended_is_reported(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    call open = enter_on(thread, of, "a", 110);
    clock_at(120);
    puppet_end(thread);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 0);
    sp_profile_release(profile);
    assert_non_null(of->run->logs);
    leave(&open, 500);
    profile = collect(of);
    assert_call(profile, "a", 0, 110, 500, 0, -1);
    assert_int_equal(profile->threads[0].end_ns, 20);
    sp_profile_release(profile);
    assert_null(of->run->logs);
    record_end(of);
}

/* A destructor of thread-specific data may come after ours and record: the thread gets another record, and that ends too. */
static pthread_key_t late_key;
static recording *late_of;

static void late_destructor(void *left)
{
    if (left != (void *)1) pthread_setspecific(late_key, (char *)left - 1);
    else calls(late_of, "late", 1, 300);
}

static void do_set_late(void *with)
{
    pthread_setspecific(late_key, (void *)2); /* 2: in the second round of destructors */
    calls(with, "a", 1, 200);
}

static void recording_in_the_last_destructors_is_safe(void **state)
{
    assert_int_equal(pthread_key_create(&late_key, late_destructor), 0);
    clock_at(100);
    record_end(record(true, false));
    memory_reset();
    recording *of = late_of = record(true, false);
    puppet *thread = puppet_new();
    puppet_do(thread, do_set_late, of);
    puppet_end(thread);
    sp_profile *profile = collect(of);
    assert_calls(profile, "a", 1);
    assert_calls(profile, "late", 1);
    sp_profile_release(profile);
    assert_null(of->run->logs);
    record_end(of);
    assert_int_equal(memory_blocks(), 0);
    pthread_key_delete(late_key);
}

/* ---- threads that a front end meets at their first moment ---- */

static void do_start(void *with)
{
    const sp_thread_start start = {.name = "worker", .native_id = -1, .daemon = true};
    sp_run *run = with;
    const size_t rows = run->row_count;
    assert_true(sp_run_thread_starts(run, &start));
    assert_false(sp_run_thread_starts(run, &start)); /* it is known */
    assert_int_equal(run->row_count, rows + 1);
}

static int64_t cpu_of_row(recording *of, size_t row)
{
    pthread_mutex_lock(&of->run->lock);
    const int64_t cpu = sp_thread_row_cpu_ns(of->run->rows[row]);
    pthread_mutex_unlock(&of->run->lock);
    return cpu;
}

static void a_thread_that_starts_is_described_at_once(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *thread = puppet_new();
    clock_at(110);
    puppet_do(thread, do_start, of->run);
    const sp_thread_row *row = of->run->rows[0];
    assert_string_equal(row->name, "worker");
    assert_true(row->daemon);
    assert_int_equal(row->start, 110);
    assert_int_equal(row->cpu_before_ns, 0);
    assert_true(row->native_id > 0 && row->native_id != sp_platform_thread_id());
    puppet_end(thread);
    record_end(of);
}

/* Reading it takes long, so it is left for after the announced end: the row has it whoever asks, and when. */
static void cpu_time_of_a_thread_that_started_in_a_run_is_there_once_it_has_ended(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    puppet *asked = puppet_new(), *unasked = puppet_new();
    puppet_do(asked, do_start, of->run);
    puppet_do(unasked, do_start, of->run);
    puppet_do(asked, do_burn, NULL);
    puppet_do(unasked, do_burn, NULL);
    puppet_do(asked, do_finish, NULL);
    puppet_do(unasked, do_finish, NULL);
    const int64_t cpu = cpu_of_row(of, 0);
    assert_in_range(cpu, 30000000, 40000000);
    puppet_do(asked, do_burn, NULL);
    assert_int_equal(cpu_of_row(of, 0), cpu); /* what has been told stays */
    puppet_end(asked);
    puppet_end(unasked);
    assert_int_equal(cpu_of_row(of, 0), cpu);
    assert_false(of->run->rows[1]->cpu_due);
    assert_in_range(cpu_of_row(of, 1), 30000000, 40000000);
    record_end(of);
}

static void a_thread_without_calls_leaves_its_row_alone(void **state)
{
    clock_at(100);
    recording *of = record(true, false);
    for (int i = 0; i < 3; i++) {
        puppet *thread = puppet_new();
        puppet_do(thread, do_start, of->run);
        assert_non_null(of->run->logs);
        puppet_end(thread);
        assert_null(of->run->logs);
    }
    puppet *thread = puppet_new();
    puppet_do(thread, do_start, of->run);
    call one = enter_on(thread, of, "a", 110);
    leave_on(thread, &one, 120);
    puppet_end(thread);
    assert_non_null(of->run->logs);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->thread_count, 4);
    assert_int_equal(seen_call(profile, "a", 0).thread, 3);
    sp_profile_release(profile);
    record_end(of);
}

/* ---- the front end ---- */

static int registered, ended;
static bool drops;
static recording *hooked;

static void on_registered(sp_run *run, sp_thread_row *row)
{
    registered++;
    sp_run_describe_thread(run, row, "described", row->ident, false);
    if (hooked && registered == 1) calls(hooked, "nested", 1, 105); /* another run, or this one again */
    if (drops) {
        drops = false;
        record_end(hooked);
    }
}

static void on_ended(void *front_end)
{
    ended += front_end == (void *)&ended;
}

static void do_mark(void *with)
{
    sp_this_thread->front_end = &ended;
}

static void the_front_end_hears_of_threads(void **state)
{
    clock_at(100);
    sp_front_end_set(&(sp_front_end){on_registered, on_ended});
    recording *of = record(true, false), *untracked = record(false, false);
    hooked = of;
    registered = ended = 0;
    puppet *thread = puppet_new();
    call one = enter_on(thread, of, "a", 110);
    leave_on(thread, &one, 120);
    assert_int_equal(registered, 1);
    one = enter_on(thread, untracked, "a", 130);
    leave_on(thread, &one, 140);
    assert_int_equal(registered, 2); /* it wants to see the end of every thread */
    puppet_do(thread, do_mark, NULL);
    puppet_end(thread);
    assert_int_equal(ended, 1);
    sp_profile *profile = collect(of);
    assert_string_equal(profile->threads[0].name, "described");
    assert_calls(profile, "nested", 1);
    assert_calls(profile, "a", 1);
    sp_profile_release(profile);
    sp_front_end_set(&(sp_front_end){0});
    record_end(of);
    record_end(untracked);
}

/* Whatever it runs may even drop the run whose region is being entered. */
static void the_front_end_may_drop_the_run(void **state)
{
    clock_at(100);
    sp_front_end_set(&(sp_front_end){on_registered, NULL});
    hooked = record(true, false);
    registered = 1;
    drops = true;
    const uint64_t token = hooked->run->token;
    assert_null(sp_log_current(token));
    assert_null(sp_log_current(token));
    sp_front_end_set(&(sp_front_end){0});
}

/* ---- forks ---- */

/* The thread sanitizer's runtime does not survive the fork of a process with threads. */
#ifdef __SANITIZE_THREAD__
#define may_fork() skip()
#else
#define may_fork() ((void)0)
#endif

/* Run `what` in a child; its assertions fail the child, hence the test. */
static void in_child(void (*what)(recording *), recording *of)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        what(of);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define child_wants(condition) do { if (!(condition)) { dprintf(2, "child, line %d: " #condition "\n", __LINE__); _exit(1); } } while (0)

static void child_collects(recording *of)
{
    child_wants(of->run->inherited);
    call more = enter(of, "a", 300);
    leave(&more, 310);
    sp_profile *profile = NULL;
    child_wants(sp_run_collect(of->run, 0, 0, &profile, NULL, NULL) == SP_OK);
    child_wants(profile->call_count == 4); /* a, a of the other thread, another a of this one, and its own */
    child_wants(profile->thread_count == 0); /* the tables are the parent's */
    child_wants(profile->task_count == 0);
    puppet *thread = puppet_new();
    more = enter_on(thread, of, "a", 320);
    leave_on(thread, &more, 330);
    puppet_end(thread);
    sp_profile_release(profile);
    child_wants(sp_run_collect(of->run, 0, 0, &profile, NULL, NULL) == SP_OK);
    child_wants(profile->call_count == 1);
    sp_profile_release(profile);
    recording *own = record(true, true);
    more = enter(own, "b", 400);
    leave(&more, 410);
    child_wants(sp_run_collect(own->run, 0, 0, &profile, NULL, NULL) == SP_OK);
    child_wants(profile->call_count == 1 && profile->thread_count == 1);
    child_wants(profile->threads[0].native_id == getpid());
    sp_profile_release(profile);
    record_end(own);
    record_end(of);
}

static void a_child_collects_and_the_parent_is_unharmed(void **state)
{
    may_fork();
    clock_at(100);
    recording *of = record(true, true);
    puppet *thread = puppet_new();
    sp_run_task_add(of->run, SP_TASK_TASK, "f");
    calls(of, "a", 2, 110);
    call open = enter_on(thread, of, "b", 120), done = enter_on(thread, of, "a", 130);
    leave_on(thread, &done, 140);
    for (int i = 0; i < 3; i++) in_child(child_collects, of);
    assert_false(of->run->inherited);
    leave_on(thread, &open, 150);
    sp_profile *profile = collect(of);
    assert_calls(profile, "a", 3);
    assert_call(profile, "b", 0, 120, 150, 2, -1);
    assert_int_equal(profile->thread_count, 2);
    assert_int_equal(profile->task_count, 1);
    sp_profile_release(profile);
    puppet_end(thread);
    record_end(of);
}

static void child_of_a_thread(recording *of)
{
    calls(of, "c", 1, 500);
    sp_profile *profile = NULL;
    child_wants(sp_run_collect(of->run, 0, 0, &profile, NULL, NULL) == SP_OK);
    child_wants(profile->call_count == 2);
    sp_profile_release(profile);
    record_end(of);
}

static int child_status;

static void do_fork(void *with)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        child_of_a_thread(with);
        _exit(0);
    }
    waitpid(child, &child_status, 0);
}

/* The forking thread is the one that lives on; it may never have recorded before. */
static void any_thread_may_fork(void **state)
{
    may_fork();
    clock_at(100);
    recording *of = record(true, false);
    calls(of, "a", 1, 110);
    puppet *thread = puppet_new();
    puppet_do(thread, do_fork, of);
    assert_int_equal(child_status, 0);
    puppet_end(thread);
    sp_profile *profile = collect(of);
    assert_int_equal(profile->call_count, 1);
    sp_profile_release(profile);
    record_end(of);
}

static _Atomic(bool) stop;
/* Calls that may be recorded until the next fork. Without a bound they would be ever more where a child takes longer to collect
 * them than others take to record as many again. */
static _Atomic(int) allowed;

static void *collects_all_the_time(void *with)
{
    recording *of = with;
    while (!atomic_load(&stop)) {
        sp_profile *profile = NULL;
        if (sp_run_collect(of->run, 0, 0, &profile, NULL, NULL) == SP_OK) sp_profile_release(profile);
        int64_t *starts, *ends;
        size_t count;
        if (sp_run_peek(of->run, 0, &starts, &ends, &count, NULL) == SP_OK) {
            free(starts);
            free(ends);
        }
    }
    return NULL;
}

static void *records_all_the_time(void *with)
{
    recording *of = with;
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 300 && atomic_fetch_sub(&allowed, 2) > 0; i++) {
            sp_log *log = sp_log_current(of->run->token);
            sp_slot *outer = sp_log_enter(log, 0), *inner = sp_log_enter(log, 0);
            sp_log_exit(log, inner);
            sp_log_exit(log, outer);
        }
        usleep(100);
    }
    return NULL;
}

static void child_of_a_busy_process(recording *of)
{
    sp_profile *profile = NULL;
    child_wants(sp_run_collect(of->run, 0, 0, &profile, NULL, NULL) == SP_OK);
    child_wants(profile->nested);
    sp_profile_release(profile);
    uint32_t *ids;
    size_t count;
    child_wants(sp_run_open_calls(of->run, &ids, &count, NULL) == SP_OK);
    child_wants(count <= 4);
    record_end(of);
}

static void a_fork_amid_recording_and_collecting_gets_a_whole_child(void **state)
{
    may_fork();
    sp_clock_inject(NULL, NULL);
    recording *of = record(true, false);
    assert_int_equal(region_id(of, "a"), 0);
    pthread_t threads[3];
    atomic_store(&stop, false);
    pthread_create(&threads[0], NULL, collects_all_the_time, of);
    pthread_create(&threads[1], NULL, records_all_the_time, of);
    pthread_create(&threads[2], NULL, records_all_the_time, of);
    for (int i = 0; i < 20; i++) {
        atomic_store(&allowed, 20000);
        in_child(child_of_a_busy_process, of);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    record_end(of);
    clock_at(100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_tell_when_a_thread_came_and_went),
        cmocka_unit_test(rows_outlive_their_threads),
        cmocka_unit_test(threads_have_the_names_the_system_knows),
        cmocka_unit_test(cpu_time_is_the_threads_own_and_exact),
        cmocka_unit_test(an_announced_end_is_the_end),
        cmocka_unit_test(calls_after_the_announced_end_move_it),
        cmocka_unit_test(a_call_that_another_closes_after_the_announced_end_does_not_move_it),
        cmocka_unit_test(a_call_closed_after_its_thread_ended_is_reported),
        cmocka_unit_test(recording_in_the_last_destructors_is_safe),
        cmocka_unit_test(a_thread_that_starts_is_described_at_once),
        cmocka_unit_test(cpu_time_of_a_thread_that_started_in_a_run_is_there_once_it_has_ended),
        cmocka_unit_test(a_thread_without_calls_leaves_its_row_alone),
        cmocka_unit_test(the_front_end_hears_of_threads),
        cmocka_unit_test(the_front_end_may_drop_the_run),
        cmocka_unit_test(a_child_collects_and_the_parent_is_unharmed),
        cmocka_unit_test(any_thread_may_fork),
        cmocka_unit_test(a_fork_amid_recording_and_collecting_gets_a_whole_child),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
