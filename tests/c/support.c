#include "support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- clock ---- */

static _Atomic(sp_ticks) now = 1;

void clock_at(sp_ticks at)
{
    if (sp_clock_current != SP_CLOCK_INJECTED) sp_clock_inject(clock_read, NULL);
    atomic_store(&now, at);
}

sp_ticks clock_read(void)
{
    return atomic_load(&now);
}

/* ---- allocations ---- */

static _Atomic(int64_t) blocks, mapped, requests, failing = -1;
static _Atomic(bool) failing_all;

int64_t memory_blocks(void)
{
    return atomic_load(&blocks);
}

int64_t memory_mapped(void)
{
    return atomic_load(&mapped);
}

int64_t memory_requests(void)
{
    return atomic_load(&requests);
}

void memory_reset(void)
{
    atomic_store(&blocks, 0);
    atomic_store(&mapped, 0);
    memory_fail(-1, false);
}

void memory_fail(int64_t n, bool all)
{
    atomic_store(&failing_all, all);
    atomic_store(&failing, n);
    atomic_store(&requests, 0);
}

static bool refused(void)
{
    const int64_t at = atomic_fetch_add(&requests, 1), fail = atomic_load(&failing);
    return fail >= 0 && (at == fail || (at > fail && atomic_load(&failing_all)));
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);
void *__real_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
int __real_munmap(void *address, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *address, size_t size);

static void *counted(void *memory)
{
    if (memory) atomic_fetch_add(&blocks, 1);
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return refused() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refused() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (refused()) return NULL;
    return memory ? __real_realloc(memory, size) : counted(__real_malloc(size));
}

char *__wrap_strdup(const char *text)
{
    return refused() ? NULL : counted(__real_strdup(text));
}

void __wrap_free(void *memory)
{
    if (memory) atomic_fetch_sub(&blocks, 1);
    __real_free(memory);
}

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    if (refused()) return MAP_FAILED;
    void *memory = __real_mmap(address, size, protection, flags, file, offset);
    if (memory != MAP_FAILED) atomic_fetch_add(&mapped, (int64_t)size);
    return memory;
}

void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    return __wrap_mmap(address, size, protection, flags, file, offset);
}

int __wrap_munmap(void *address, size_t size)
{
    atomic_fetch_sub(&mapped, (int64_t)size);
    return __real_munmap(address, size);
}

/* ---- puppets ---- */

struct puppet {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*what)(void *);
    void *with;
    bool busy, last;
};

static void *puppet_run(void *itself)
{
    puppet *p = itself;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->busy && !p->last) pthread_cond_wait(&p->changed, &p->lock);
        if (!p->busy) break;
        pthread_mutex_unlock(&p->lock);
        p->what(p->with);
        pthread_mutex_lock(&p->lock);
        p->busy = false;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

puppet *puppet_new(void)
{
    puppet *p = __real_calloc(1, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    assert_int_equal(pthread_create(&p->thread, NULL, puppet_run, p), 0);
    return p;
}

void puppet_do(puppet *p, void (*what)(void *), void *with)
{
    pthread_mutex_lock(&p->lock);
    p->what = what;
    p->with = with;
    p->busy = true;
    pthread_cond_broadcast(&p->changed);
    while (p->busy) pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void puppet_end(puppet *p)
{
    pthread_mutex_lock(&p->lock);
    p->last = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    __real_free(p);
}

/* ---- recording ---- */

recording *record_with(const sp_run_options *options)
{
    recording *of = __real_calloc(1, sizeof *of);
    assert_int_equal(sp_run_open(options, &of->gate, &of->run, NULL), SP_OK);
    return of;
}

recording *record(bool threads, bool tasks)
{
    return record_with(&(sp_run_options){.tracks_threads = threads, .tracks_tasks = tasks});
}

void record_end(recording *of)
{
    sp_run_drop(of->run);
    __real_free(of);
}

uint32_t region_id(recording *of, const char *name)
{
    uint32_t id = UINT32_MAX;
    assert_int_equal(sp_run_region(of->run, name, NULL, SP_UNKNOWN, NULL, NULL, &id, NULL), SP_OK);
    return id;
}

call enter(recording *of, const char *region, sp_ticks at)
{
    call open = {.of = of};
    const uint64_t token = atomic_load(&of->gate.token);
    if (token == 0) return open;
    const uint32_t id = region_id(of, region);
    open.log = sp_log_current(token);
    clock_at(at);
    if (open.log) open.slot = sp_log_enter(open.log, id);
    return open;
}

void leave(call *open, sp_ticks at)
{
    clock_at(at);
    if (open->slot) sp_log_exit(open->log, open->slot);
    open->slot = NULL;
}

typedef struct move {
    recording *of;
    const char *region;
    call *open;
    sp_ticks at;
} move;

static void do_enter(void *with)
{
    move *m = with;
    *m->open = enter(m->of, m->region, m->at);
}

static void do_leave(void *with)
{
    move *m = with;
    leave(m->open, m->at);
}

call enter_on(puppet *thread, recording *of, const char *region, sp_ticks at)
{
    call open;
    puppet_do(thread, do_enter, &(move){.of = of, .region = region, .open = &open, .at = at});
    return open;
}

void leave_on(puppet *thread, call *open, sp_ticks at)
{
    puppet_do(thread, do_leave, &(move){.open = open, .at = at});
}

void calls(recording *of, const char *region, size_t count, sp_ticks first)
{
    for (size_t i = 0; i < count; i++) {
        call one = enter(of, region, first + 2 * i);
        assert_non_null(one.slot);
        leave(&one, first + 2 * i + 1);
    }
}

typedef struct many {
    recording *of;
    const char *region;
    size_t count;
    sp_ticks first;
} many;

static void do_calls(void *with)
{
    const many *m = with;
    calls(m->of, m->region, m->count, m->first);
}

void calls_on(puppet *thread, recording *of, const char *region, size_t count, sp_ticks first)
{
    puppet_do(thread, do_calls, &(many){of, region, count, first});
}

sp_profile *collect(recording *of)
{
    sp_profile *profile = NULL;
    sp_error error = {0};
    assert_int_equal(sp_run_collect(of->run, 0, 0, &profile, NULL, &error), SP_OK);
    return profile;
}

const sp_row *row_of(const sp_profile *profile, const char *region)
{
    for (size_t i = 0; i < profile->row_count; i++) {
        if (strcmp(profile->names[profile->rows[i].name], region) == 0) return &profile->rows[i];
    }
    return NULL;
}

seen seen_call(const sp_profile *profile, const char *region, size_t index)
{
    const sp_row *row = row_of(profile, region);
    assert_non_null(row);
    assert_true(index < row->count);
    const uint64_t at = row->first + index;
    int64_t value[SP_COLUMN_COUNT];
    for (int i = 0; i < SP_COLUMN_COUNT; i++) value[i] = profile->columns[i] ? profile->columns[i][at] : -1;
    return (seen){value[SP_COLUMN_START], value[SP_COLUMN_END], value[SP_COLUMN_CALL_ID], value[SP_COLUMN_PARENT_ID],
                  value[SP_COLUMN_THREAD], value[SP_COLUMN_TASK], value[SP_COLUMN_AWAIT]};
}

void assert_call(const sp_profile *profile, const char *region, size_t index, int64_t start, int64_t end, int64_t id,
                 int64_t parent)
{
    const seen got = seen_call(profile, region, index);
    assert_int_equal(got.start, start);
    assert_int_equal(got.end, end);
    if (profile->columns[SP_COLUMN_CALL_ID] == NULL) return;
    assert_int_equal(got.id, id);
    assert_int_equal(got.parent, parent);
}

void assert_calls(const sp_profile *profile, const char *region, size_t count)
{
    const sp_row *row = row_of(profile, region);
    assert_int_equal(row ? row->count : 0, count);
}
