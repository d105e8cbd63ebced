/* Pages of files that are cut off under a mapping, and signals that are none of ours. Each test is a process of its own. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pthread.h>

#include <cmocka.h>

#include "platform/page_guard.h"

#define PAGES 70 /* more than a word of bits */

static size_t page;
static _Atomic(uint64_t) lost;

/* A mapping of a file of so many pages, with the number of each in it. */
static char *map_file(int *file)
{
    char path[] = "/tmp/scope-profiler-guard-XXXXXX";
    page = (size_t)sysconf(_SC_PAGESIZE);
    lost = 0;
    *file = mkstemp(path);
    unlink(path);
    if (ftruncate(*file, (off_t)(PAGES * page)) != 0) abort();
    char *memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    for (size_t i = 0; i < PAGES; i++) memory[i * page] = (char)i;
    return memory;
}

static char *cut_off(int *file, size_t pages)
{
    char *memory = map_file(file);
    if (ftruncate(*file, (off_t)(pages * page)) != 0) abort();
    return memory;
}

/* How a child that runs this ends. */
static int outcome_of(void (*work)(void))
{
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL); /* of the test's own program, or a sanitizer's */
        work();
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status;
}

#define require(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); _exit(1); } } while (0)

static struct sigaction current(void)
{
    struct sigaction now;
    require(sigaction(SIGBUS, NULL, &now) == 0);
    return now;
}

static bool is_default(void)
{
    return current().sa_handler == SIG_DFL;
}

static void touch_what_is_gone(void)
{
    int file;
    char *memory = cut_off(&file, 3);
    sp_page_guard *guard = sp_page_guard_new(memory, PAGES * page, &lost, NULL, NULL);
    require(!is_default());
    for (size_t i = 0; i < PAGES; i++) require(memory[i * page] == (i < 3 ? (char)i : 0));
    require(lost == PAGES - 3);
    for (size_t i = 0; i < PAGES; i++) memory[i * page + 5] = 7;
    require(lost == PAGES - 3 && memory[69 * page + 5] == 7);
    sp_page_guard_free(guard);
    require(is_default());
}

static void pages_that_are_gone_become_memory(void **state)
{
    assert_int_equal(outcome_of(touch_what_is_gone), 0);
}

static void fill(void *context, char *at, char *fresh, size_t bytes)
{
    const char *begin = context;
    memset(fresh, (int)((size_t)(at - begin) / bytes), bytes);
}

static void touch_what_is_made_again(void)
{
    int file;
    char *memory = cut_off(&file, 0);
    sp_page_guard_free(sp_page_guard_new(memory, PAGES * page, &lost, fill, memory));
    sp_page_guard *guard = sp_page_guard_new(memory, PAGES * page, &lost, fill, memory);
    require(memory[69 * page + 9] == 69 && memory[2 * page + 1] == 2);
    sp_page_guard_free(guard);
}

static void what_must_be_there_is_made_again(void **state)
{
    assert_int_equal(outcome_of(touch_what_is_made_again), 0);
}

/* As the kernel tells of a page of which only a write failed: a disk that is full or was made read-only. */
static void send_fault(const void *at)
{
    siginfo_t info = {.si_signo = SIGBUS, .si_code = BUS_ADRERR};
    info.si_addr = (void *)(uintptr_t)at;
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), SIGBUS, &info) != 0) abort();
}

static void fault_at_what_can_be_read(void)
{
    int file;
    char *memory = map_file(&file), found;
    sp_page_guard *guard = sp_page_guard_new(memory, PAGES * page, &lost, NULL, NULL);
    send_fault(memory + 65 * page + 100);
    require(lost == 1 && memory[65 * page] == 65);
    memory[65 * page] = 1;
    require(pread(file, &found, 1, (off_t)(65 * page)) == 1 && found == 65); /* it is not the file's any more */
    send_fault(memory + 65 * page);
    require(lost == 1 && memory[65 * page] == 1);
    sp_page_guard_free(guard);
}

static void what_can_be_read_is_kept(void **state)
{
    assert_int_equal(outcome_of(fault_at_what_can_be_read), 0);
}

/* -- several threads at once -- */

static char *shared;

static void *write_own_bytes(void *number)
{
    const size_t offset = (size_t)number;
    for (size_t i = 0; i < PAGES; i++) shared[i * page + offset] = (char)(offset + 1);
    return NULL;
}

static void touch_by_many_threads(void)
{
    for (int round = 0; round < 50; round++) {
        int file;
        pthread_t threads[4];
        shared = cut_off(&file, 0);
        sp_page_guard *guard = sp_page_guard_new(shared, PAGES * page, &lost, NULL, NULL);
        for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, write_own_bytes, (void *)i);
        for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        require(lost == PAGES);
        for (size_t i = 0; i < PAGES * 4; i++) require(shared[i / 4 * page + i % 4] == (char)(i % 4 + 1));
        sp_page_guard_free(guard);
        munmap(shared, PAGES * page);
        close(file);
    }
}

static void no_write_is_lost_where_threads_meet(void **state)
{
    assert_int_equal(outcome_of(touch_by_many_threads), 0);
}

/* -- signals of others -- */

static const void *told;
static sigjmp_buf back;
static int plain_calls;

static void remember(int number, siginfo_t *info, void *context)
{
    told = info->si_addr;
    siglongjmp(back, number);
}

static void count_plain(int number)
{
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    plain_calls += number == SIGBUS && sigismember(&blocked, SIGUSR1) == 1;
}

static sp_page_guard *guard_some(char **memory)
{
    int file;
    *memory = cut_off(&file, 0);
    return sp_page_guard_new(*memory, PAGES * page, &lost, NULL, NULL);
}

static void fault_elsewhere(void)
{
    int other_file;
    char *memory, *other = cut_off(&other_file, 0);
    struct sigaction theirs = {.sa_sigaction = remember, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &theirs, NULL);
    sp_page_guard *guard = guard_some(&memory);
    for (int i = 0; i < 3; i++) { /* who does not return from it can come again */
        told = NULL;
        if (sigsetjmp(back, 1) == 0) other[5 * page] = 1;
        require(told == other + 5 * page);
        memory[i * page] = 1;
        require(lost == (uint64_t)i + 1);
    }
    sp_page_guard_free(guard);
    require(current().sa_sigaction == remember);
}

static void plain_handler(void)
{
    char *memory;
    struct sigaction theirs = {.sa_handler = count_plain};
    sigaddset(&theirs.sa_mask, SIGUSR1);
    sigaction(SIGBUS, &theirs, NULL);
    sp_page_guard *guard = guard_some(&memory);
    raise(SIGBUS);
    kill(getpid(), SIGBUS);
    require(plain_calls == 2);
    sp_page_guard_free(guard);
}

static void others_get_their_signals(void **state)
{
    assert_int_equal(outcome_of(fault_elsewhere), 0);
    assert_int_equal(outcome_of(plain_handler), 0);
}

static void assert_deadly(void (*work)(void))
{
    const int status = outcome_of(work);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static void die_of_a_fault(void)
{
    int file;
    char *memory;
    guard_some(&memory);
    cut_off(&file, 0)[0] = 1;
}

static void die_of_a_signal(void)
{
    char *memory;
    guard_some(&memory);
    raise(SIGBUS);
}

static void die_of_an_ignored_fault(void)
{
    int file;
    char *memory;
    signal(SIGBUS, SIG_IGN);
    guard_some(&memory);
    raise(SIGBUS); /* this is ignored, a fault cannot be */
    cut_off(&file, 0)[0] = 1;
}

static void without_a_handler_it_is_deadly_as_ever(void **state)
{
    void (*const deaths[])(void) = {die_of_a_fault, die_of_a_signal, die_of_an_ignored_fault};
    for (size_t i = 0; i < sizeof deaths / sizeof *deaths; i++) assert_deadly(deaths[i]);
}

/* -- a handler that is put over ours and passes on what is not its own, as faulthandler does: it sets the one before again, and raises -- */

static struct sigaction kept;
static int dumps;

static void dump(int number)
{
    dumps++;
    sigaction(number, &kept, NULL);
    raise(number);
}

static void put_over(void)
{
    const struct sigaction theirs = {.sa_handler = dump, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &theirs, &kept);
}

static void others_come_and_go(void)
{
    char *memory;
    sp_page_guard *guard = guard_some(&memory);
    put_over();
    sp_page_guard_free(guard); /* theirs stays, and may call ours */
    require(current().sa_handler == dump);
    guard = guard_some(&memory);
    memory[0] = 1;
    require(lost == 1 && dumps == 0);
    sp_page_guard_free(guard);
    require(current().sa_handler == dump);
    sigaction(SIGBUS, &kept, NULL); /* theirs goes: ours is there without anything to guard */
    guard = guard_some(&memory);
    memory[0] = 1;
    require(lost == 1);
    sp_page_guard_free(guard);
    require(is_default());
}

static void default_comes_and_goes(void)
{
    for (int i = 0; i < 10; i++) { /* a handler that is set and taken back around something, while a spool is in use */
        char *memory, *more;
        sp_page_guard *guard = guard_some(&memory);
        signal(SIGBUS, SIG_DFL);
        sp_page_guard *second = guard_some(&more);
        memory[0] = 1;
        require(lost == 1);
        sp_page_guard_free(guard);
        sp_page_guard_free(second);
        require(is_default());
    }
}

static void die_in_a_circle(void)
{
    char *memory;
    sp_page_guard *guard = guard_some(&memory);
    put_over();
    sp_page_guard_free(guard);
    guard_some(&memory);
    raise(SIGBUS);
}

static void handlers_that_are_put_over_ours_end(void **state)
{
    assert_int_equal(outcome_of(others_come_and_go), 0);
    assert_int_equal(outcome_of(default_comes_and_goes), 0);
    assert_deadly(die_in_a_circle);
}

static void use_in_a_child(void)
{
    char *memory;
    guard_some(&memory);
    const pid_t child = fork();
    if (child == 0) {
        memory[0] = 1;
        _exit(lost == 1 && memory[0] == 1 ? 0 : 2);
    }
    int status;
    require(waitpid(child, &status, 0) == child && status == 0);
}

static void a_forked_child_is_guarded_too(void **state)
{
    assert_int_equal(outcome_of(use_in_a_child), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_that_are_gone_become_memory),
        cmocka_unit_test(what_must_be_there_is_made_again),
        cmocka_unit_test(what_can_be_read_is_kept),
        cmocka_unit_test(no_write_is_lost_where_threads_meet),
        cmocka_unit_test(others_get_their_signals),
        cmocka_unit_test(without_a_handler_it_is_deadly_as_ever),
        cmocka_unit_test(handlers_that_are_put_over_ours_end),
        cmocka_unit_test(a_forked_child_is_guarded_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
