#include "platform/page_guard.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define WORD_BITS 64
#define TABLE_GUARDS 255

struct sp_page_guard {
    char *begin, *end;
    size_t page;
    _Atomic(uint64_t) *lost;
    sp_page_filler fill;
    void *context;
    _Atomic(uint64_t) replaced[]; /* a bit a page */
};

/* What the handler looks through. Tables are added at the front and never freed. */
typedef struct table {
    struct table *next;
    _Atomic(sp_page_guard *) guards[TABLE_GUARDS];
} table;

/*
 * A handler that was put over ours keeps ours as the one before it, and calls it. So ours stays, and is not put over that one as well, or the
 * two would call each other for ever: another one of ours is, as long as there are some.
 */
#define HANDLERS 4
static struct sigaction before[HANDLERS]; /* what was there; written before the handler is put there */

static _Atomic(table *) tables;
static atomic_int looking; /* threads in the handler that may hold a guard from the tables */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all below, and changes of the tables. Never taken by the handler */
static size_t guarded;
static int free_handler; /* the first that nobody can have kept */
static bool fork_prepared;

/* ---- in the handler: nothing here that is not safe there ---- */

/* A page of the process's own at `at`. What can be read of the old one without a signal is kept: a page that only cannot be written. */
static bool replace(const sp_page_guard *guard, char *at)
{
    char *fresh = mmap(NULL, guard->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return false;
    const struct iovec to = {fresh, guard->page}, from = {at, guard->page};
    const bool read = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)guard->page;
    if (!read && guard->fill) guard->fill(guard->context, at, fresh, guard->page);
    if (mremap(fresh, guard->page, guard->page, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED) return true;
    munmap(fresh, guard->page);
    return false;
}

/* Of threads that touch a page at once one replaces it; the others try again until it is there. */
static bool mend_page(sp_page_guard *guard, char *at)
{
    const size_t number = (size_t)(at - guard->begin) / guard->page;
    _Atomic(uint64_t) *word = &guard->replaced[number / WORD_BITS];
    const uint64_t bit = UINT64_C(1) << number % WORD_BITS;
    if (atomic_fetch_or(word, bit) & bit) return true;
    atomic_fetch_add(guard->lost, 1);
    if (replace(guard, guard->begin + number * guard->page)) return true;
    atomic_fetch_and(word, ~bit);
    return false;
}

static bool mend(char *at)
{
    bool mended = false;
    atomic_fetch_add(&looking, 1);
    for (table *t = atomic_load(&tables); t && !mended; t = t->next) {
        for (size_t i = 0; i < TABLE_GUARDS && !mended; i++) {
            sp_page_guard *guard = atomic_load(&t->guards[i]);
            if (guard && at >= guard->begin && at < guard->end) mended = mend_page(guard, at);
        }
    }
    atomic_fetch_sub(&looking, 1);
    return mended;
}

/* Whether it is SIG_DFL or SIG_IGN, as `handler` says. */
static bool is_plain(const struct sigaction *action, void (*handler)(int))
{
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == handler;
}

/* As the kernel would have done it, had we not been there. */
static void pass_on(struct sigaction *to, int number, siginfo_t *info, void *context)
{
    const struct sigaction action = *to;
    const bool fault = info->si_code > 0;
    const bool ignored = is_plain(&action, SIG_IGN);
    if (ignored && !fault) return;
    if (ignored || is_plain(&action, SIG_DFL)) {
        const struct sigaction deadly = {.sa_handler = SIG_DFL};
        sigaction(number, &deadly, NULL);
        if (!fault || info->si_code == BUS_MCEERR_AO) raise(number); /* a fault comes again by itself */
        return;
    }
    sigset_t blocked = action.sa_mask, restored;
    if (action.sa_flags & SA_RESETHAND) *to = (struct sigaction){.sa_handler = SIG_DFL};
    pthread_sigmask(SIG_BLOCK, &blocked, &restored);
    if (action.sa_flags & SA_NODEFER) {
        sigemptyset(&blocked);
        sigaddset(&blocked, number);
        pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
    }
    if (action.sa_flags & SA_SIGINFO) action.sa_sigaction(number, info, context);
    else action.sa_handler(number);
    pthread_sigmask(SIG_SETMASK, &restored, NULL);
}

static void handle(struct sigaction *next, int number, siginfo_t *info, void *context)
{
    const int saved = errno;
    const bool fault = info->si_code == BUS_ADRERR || info->si_code == BUS_MCEERR_AR;
    if (!fault || !mend(info->si_addr)) pass_on(next, number, info, context);
    errno = saved;
}

static void handle_0(int number, siginfo_t *info, void *context) { handle(&before[0], number, info, context); }
static void handle_1(int number, siginfo_t *info, void *context) { handle(&before[1], number, info, context); }
static void handle_2(int number, siginfo_t *info, void *context) { handle(&before[2], number, info, context); }
static void handle_3(int number, siginfo_t *info, void *context) { handle(&before[3], number, info, context); }

static void (*const handlers[HANDLERS])(int, siginfo_t *, void *) = {handle_0, handle_1, handle_2, handle_3};

/* ---- outside ---- */

/* A thread that was in here, or in the handler, is not in the child. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    atomic_store(&looking, 0);
}

/* Which of ours it is; -1: none. */
static int find_handler(const struct sigaction *action)
{
    for (int i = 0; i < HANDLERS; i++) {
        if ((action->sa_flags & SA_SIGINFO) && action->sa_sigaction == handlers[i]) return i;
    }
    return -1;
}

/*
 * With the lock. `first`: nothing was guarded. Later it comes back where somebody has set the default again, but not over a handler that the
 * program has set since. On an alternate stack where a thread has one, as others do it who want to tell of a stack that is full.
 */
static void install(bool first)
{
    struct sigaction current;
    if (!fork_prepared) fork_prepared = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
    if (sigaction(SIGBUS, NULL, &current) != 0 || find_handler(&current) >= 0) return;
    const bool nobody = is_plain(&current, SIG_DFL);
    const int number = nobody && free_handler ? free_handler - 1 : free_handler; /* no circle can begin where nobody is called */
    if ((!first && !nobody) || number == HANDLERS) return;
    struct sigaction ours = {.sa_sigaction = handlers[number], .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigemptyset(&ours.sa_mask);
    before[number] = current;
    if (sigaction(SIGBUS, &ours, NULL) == 0) free_handler = number + 1;
}

/* With the lock. It goes if it is the one that is there; else somebody may call it, and it passes everything on. */
static void uninstall(void)
{
    struct sigaction current;
    if (sigaction(SIGBUS, NULL, &current) != 0) return;
    const int found = find_handler(&current);
    if (found < 0 || sigaction(SIGBUS, &before[found], NULL) != 0) return;
    if (found + 1 == free_handler) free_handler = found;
}

/* With the lock: a place for one more. */
static _Atomic(sp_page_guard *) *find_place(void)
{
    for (table *t = atomic_load(&tables); t; t = t->next) {
        for (size_t i = 0; i < TABLE_GUARDS; i++) {
            if (atomic_load_explicit(&t->guards[i], memory_order_relaxed) == NULL) return &t->guards[i];
        }
    }
    table *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->next = atomic_load(&tables);
    atomic_store(&tables, made);
    return &made->guards[0];
}

sp_page_guard *sp_page_guard_new(void *memory, size_t bytes, _Atomic(uint64_t) *lost, sp_page_filler fill, void *context)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), words = (bytes / page + WORD_BITS) / WORD_BITS;
    sp_page_guard *guard = calloc(1, sizeof *guard + words * sizeof guard->replaced[0]);
    if (guard == NULL) return NULL;
    *guard = (sp_page_guard){.begin = memory, .end = (char *)memory + bytes, .page = page, .lost = lost, .fill = fill, .context = context};
    pthread_mutex_lock(&lock);
    _Atomic(sp_page_guard *) *place = find_place();
    if (place) {
        atomic_store(place, guard);
        install(guarded++ == 0);
    }
    pthread_mutex_unlock(&lock);
    if (place) return guard;
    free(guard);
    return NULL;
}

void sp_page_guard_free(sp_page_guard *guard)
{
    if (guard == NULL) return;
    pthread_mutex_lock(&lock);
    for (table *t = atomic_load(&tables); t; t = t->next) {
        for (size_t i = 0; i < TABLE_GUARDS; i++) {
            if (atomic_load_explicit(&t->guards[i], memory_order_relaxed) == guard) atomic_store(&t->guards[i], NULL);
        }
    }
    if (--guarded == 0) uninstall();
    pthread_mutex_unlock(&lock);
    while (atomic_load(&looking)) sched_yield();
    free(guard);
}
