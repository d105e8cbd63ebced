#include "core/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/note.h"
#include "core/probe.h"
#include "core/thread_rows.h"
#include "core/totals.h"
#include "platform/platform.h"

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool key_made;
static sp_run *runs;       /* all that are not freed, open ones first to last */
static sp_thread *threads;
static sp_block *graveyard;
static uint64_t last_token;
static sp_front_end front_end;
static void (*native_thread_ended)(sp_thread *thread);
static uint64_t last_serial;

_Thread_local sp_thread *sp_this_thread;

void sp_registry_lock(void)
{
    pthread_mutex_lock(&registry);
}

void sp_registry_unlock(void)
{
    pthread_mutex_unlock(&registry);
}

void sp_front_end_set(const sp_front_end *given)
{
    front_end = *given;
}

void sp_native_front_end_set(void (*thread_ended)(sp_thread *thread))
{
    native_thread_ended = thread_ended;
}

/* ---- fork: the child starts with its locks free, and with the one thread that called fork ---- */

static pthread_mutex_t fork_gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fork_changed = PTHREAD_COND_INITIALIZER;
static int fork_holders, forks_waiting;
static _Thread_local int fork_depth;

void sp_fork_hold(void)
{
    if (fork_depth++) return;
    pthread_mutex_lock(&fork_gate);
    /* Who waits to fork goes first: a thread that collects all the time would never let it. */
    while (forks_waiting) pthread_cond_wait(&fork_changed, &fork_gate);
    fork_holders++;
    pthread_mutex_unlock(&fork_gate);
}

void sp_fork_hold_first(void)
{
    if (fork_depth++) return;
    pthread_mutex_lock(&fork_gate);
    fork_holders++;
    pthread_mutex_unlock(&fork_gate);
}

void sp_fork_release(void)
{
    if (--fork_depth) return;
    pthread_mutex_lock(&fork_gate);
    if (--fork_holders == 0) pthread_cond_broadcast(&fork_changed);
    pthread_mutex_unlock(&fork_gate);
}

static void before_fork(void)
{
    pthread_mutex_lock(&fork_gate);
    forks_waiting++;
    while (fork_holders) pthread_cond_wait(&fork_changed, &fork_gate);
    forks_waiting--;
    pthread_mutex_lock(&registry);
    for (sp_run *run = runs; run; run = run->next_active) {
        pthread_mutex_lock(&run->lock);
        if (run->store) run->store->operations->hold(run->store);
    }
}

static void after_fork_in_parent(void)
{
    for (sp_run *run = runs; run; run = run->next_active) {
        if (run->store) run->store->operations->unhold(run->store);
        pthread_mutex_unlock(&run->lock);
    }
    pthread_mutex_unlock(&registry);
    pthread_cond_broadcast(&fork_changed);
    pthread_mutex_unlock(&fork_gate);
}

/* What before_fork locked, this thread still holds in the child. `collecting` may be that of a thread that is not here. */
static void after_fork_in_child(void)
{
    pthread_cond_init(&fork_changed, NULL);
    forks_waiting = 0;
    pthread_mutex_unlock(&fork_gate);
    pthread_mutex_unlock(&registry);
    for (sp_run *run = runs; run; run = run->next_active) {
        pthread_mutex_unlock(&run->lock);
        pthread_mutex_init(&run->collecting, NULL);
        run->chosen = false;
        run->inherited = true;
        atomic_store(&run->follows, false);
        if (run->store) run->store->operations->inherit(run->store);
        run->hidden_rows = run->row_count;
        run->hidden_tasks = run->task_count;
        for (sp_log *log = run->logs; log; log = log->next_of_run) {
            if (atomic_load(&log->thread) == sp_this_thread && sp_this_thread != NULL) continue;
            log->orphaned = true;
            log->row->released = true;
            log->row->cpu_due = false;
            sp_tally_orphan(log);
            atomic_store(&log->thread, NULL);
        }
    }
    /* The other threads' records are left as they are: nothing of theirs runs here, and they are few. */
    threads = sp_this_thread;
    if (sp_this_thread) {
        sp_this_thread->next = sp_this_thread->previous = NULL;
        sp_this_thread->native_id = sp_platform_thread_id();
        sp_this_thread->met_at_start = false; /* the first thread of a process may end with it, untold */
    }
}

/* ---- graveyard ---- */

bool sp_block_closed(const sp_block *block, const char *next, uint32_t stride)
{
    const char *readable = sp_block_readable(block, next);
    for (const char *at = block->begin; at < readable; at += stride) {
        if (sp_slot_is_open((const sp_slot *)at)) return false;
    }
    return true;
}

void sp_block_free(sp_block *block)
{
    switch ((sp_block_memory)block->memory) {
    case SP_BLOCK_HEAP: free(block->begin); break;
    case SP_BLOCK_MAPPED: sp_platform_unmap(block->begin, block->bytes); break;
    case SP_BLOCK_STORED:
        block->store->operations->drop(block->store, block->begin, block->bytes);
        block->store->operations->release(block->store);
        break;
    case SP_BLOCK_BORROWED: break;
    }
    free(block->kept);
    free(block);
}

static void log_destroy(sp_log *log)
{
    sp_run *run = log->run;
    atomic_fetch_add_explicit(&run->lost, atomic_load_explicit(&log->lost, memory_order_relaxed), memory_order_relaxed);
    sp_tally_free(log);
    free(log->scan_open);
    sp_log_probe_free(log);
    free(log);
    sp_run_release(run);
}

static const char *published(const sp_log *log)
{
    return atomic_load_explicit(&log->next, memory_order_acquire);
}

static void sweep(void)
{
    for (sp_block **link = &graveyard; *link;) {
        sp_block *block = *link;
        sp_log *log = block->buried_from;
        if (!sp_block_closed(block, published(log), log->stride)) {
            link = &block->next_buried;
            continue;
        }
        *link = block->next_buried;
        sp_block_free(block);
        if (--log->buried == 0 && log->released) log_destroy(log);
    }
}

/* Give back the pages of a block between its open slots. */
static void empty_between(const sp_block *block, const char *next, uint32_t stride)
{
    if (block->memory != SP_BLOCK_MAPPED) return;
    char *readable = sp_block_readable(block, next), *from = block->begin;
    for (char *at = block->begin; at < readable; at += stride) {
        if (!sp_slot_is_open((const sp_slot *)at)) continue;
        sp_platform_empty(from, at);
        from = at + stride;
    }
    sp_platform_empty(from, block->end);
}

void sp_registry_bury(sp_log *log, sp_block *block)
{
    if (sp_block_closed(block, published(log), log->stride)) {
        sp_block_free(block);
        return;
    }
    empty_between(block, published(log), log->stride);
    block->buried_from = log;
    block->next_buried = graveyard;
    graveyard = block;
    log->buried++;
}

/* ---- logs ---- */

static void unlink_from_run(sp_log *log)
{
    for (sp_log **link = &log->run->logs; *link; link = &(*link)->next_of_run) {
        if (*link == log) {
            *link = log->next_of_run;
            return;
        }
    }
}

void sp_log_free(sp_log *log)
{
    /* Frames that are still open are ended like those of another thread, which touches no other frame: those may be gone. */
    if (log->tally) atomic_store(&log->thread, NULL);
    for (sp_block *block = log->head; block;) {
        sp_block *next = atomic_load_explicit(&block->next, memory_order_acquire);
        sp_registry_bury(log, block);
        block = next;
    }
    log->head = NULL;
    if (log->buried == 0) log_destroy(log);
    else log->released = true;
}

/* With the registry's lock: the calling thread's logs of runs that nobody will collect. */
static void free_dropped_logs(sp_thread *thread)
{
    for (sp_log **link = &thread->logs; *link;) {
        sp_log *log = *link;
        sp_run *run = log->run;
        if (!run->dropped) {
            link = &log->next_of_thread;
            continue;
        }
        *link = log->next_of_thread;
        if (thread->hot == log) thread->hot = NULL;
        pthread_mutex_lock(&run->lock);
        unlink_from_run(log);
        pthread_mutex_unlock(&run->lock);
        sp_log_free(log);
    }
}

/* ---- threads ---- */

int64_t sp_thread_row_cpu_ns(sp_thread_row *row)
{
    if (row->released && !row->cpu_due) return row->cpu_ns;
    /* A thread whose CPU time is due is still there: it would have read it, with this lock. */
    const int64_t cpu = sp_platform_thread_cpu_ns(row->native_id);
    if (cpu >= 0) row->cpu_ns = cpu;
    row->cpu_due = false; /* who has read the last one reads no other */
    return row->cpu_ns;
}

/* With the run's lock held. `cpu` -1: it is due. */
static void row_finish(sp_log *log, sp_ticks now, int64_t cpu)
{
    sp_thread_row *row = log->row;
    row->end = now;
    row->cpu_ns = cpu;
    row->cpu_due = cpu < 0;
    row->released = true;
    if (now >= log->run->timeline.due) sp_timeline_anchor(&log->run->timeline, 0);
    sp_note_anchors(log->run);
    sp_note_thread_end(log->run, row);
}

void sp_thread_finish(void)
{
    sp_thread *thread = sp_this_thread;
    if (thread == NULL) return;
    const int64_t cpu = thread->met_at_start ? -1 : sp_platform_own_cpu_ns();
    for (sp_log *log = thread->logs; log; log = log->next_of_thread) {
        const sp_ticks now = sp_clock_read();
        pthread_mutex_lock(&log->run->lock);
        row_finish(log, now, cpu);
        log->finished_at = atomic_load_explicit(&log->next, memory_order_relaxed);
        pthread_mutex_unlock(&log->run->lock);
    }
    /* What it still does is not hot any more: calls that it closes now are noted (sp_log_exit_elsewhere). */
    thread->hot = NULL;
}

static void make_hot(sp_thread *thread, sp_log *log)
{
    if (log->probe) {
        /* Never: see probe.h. Its next entry comes to sp_log_anchor. */
        if (log->anchor_due) log->probe->anchor_due = log->anchor_due;
        log->anchor_due = 0;
    } else if (log->finished_at == NULL) {
        thread->hot = log;
    }
}

/* The thread's CPU time, read when it is first asked for: a slow system call. */
static int64_t cpu_once(int64_t *cpu)
{
    if (*cpu < 0) *cpu = sp_platform_own_cpu_ns();
    return *cpu;
}

/*
 * Whether a log whose thread has ended can go at once: nothing was ever recorded in it, and it is the newest, so it is found. Other such
 * logs wait for a collection. Memory that has just been used makes the next thread's log faster. With the run's lock.
 */
static bool log_is_superfluous(const sp_log *log)
{
    const bool used = log->tail || log->tally || log->probe || atomic_load_explicit(&log->lost, memory_order_relaxed);
    return !used && log->run->logs == log;
}

/* The destructor of the thread's key: plain C, no interpreter. */
static void thread_end(void *record)
{
    sp_thread *thread = record;
    int64_t cpu = -1;
    if (front_end.thread_ended) front_end.thread_ended(thread->front_end);
    if (native_thread_ended) native_thread_ended(thread);
    pthread_mutex_lock(&registry);
    thread->hot = NULL;
    while (thread->logs) {
        sp_log *log = thread->logs;
        sp_run *run = log->run;
        thread->logs = log->next_of_thread;
        pthread_mutex_lock(&run->lock);
        /* Calls may have been recorded after the announced end, by destructors of the language's own thread state. */
        if (!log->row->released || log->finished_at != atomic_load_explicit(&log->next, memory_order_relaxed)) {
            row_finish(log, sp_clock_read(), cpu_once(&cpu));
        } else if (log->left_at > log->row->end) {
            row_finish(log, log->left_at, cpu_once(&cpu));
        } else if (log->row->cpu_due) {
            row_finish(log, log->row->end, cpu_once(&cpu));
        }
        if (log->probe && run->probe->operations->thread_gone) run->probe->operations->thread_gone(run->probe, log);
        log->orphaned = true;
        atomic_store(&log->thread, NULL);
        const bool goes = run->dropped || log_is_superfluous(log);
        if (goes) unlink_from_run(log);
        pthread_mutex_unlock(&run->lock);
        if (goes) sp_log_free(log);
    }
    if (thread->previous) thread->previous->next = thread->next;
    else threads = thread->next;
    if (thread->next) thread->next->previous = thread->previous;
    pthread_mutex_unlock(&registry);
    sp_this_thread = NULL;
    free(thread->named.base);
    free(thread->frames);
    free(thread);
}

static void prepare(void)
{
    key_made = pthread_key_create(&thread_key, thread_end) == 0;
}

/* When the library is loaded: at its first use another thread may be in the middle of a fork. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static sp_thread *thread_new(const sp_thread_start *start)
{
    pthread_once(&prepared, prepare);
    sp_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL) return NULL;
    thread->native_id = start && start->native_id >= 0 ? start->native_id : sp_platform_thread_id();
    thread->handle = pthread_self();
    thread->met_at_start = key_made && pthread_setspecific(thread_key, thread) == 0 && start != NULL;
    pthread_mutex_lock(&registry);
    thread->serial = ++last_serial;
    thread->next = threads;
    if (threads) threads->previous = thread;
    threads = thread;
    pthread_mutex_unlock(&registry);
    sp_this_thread = thread;
    return thread;
}

sp_thread *sp_thread_current(void)
{
    return sp_this_thread ? sp_this_thread : thread_new(NULL);
}

sp_thread *sp_thread_of_serial(uint64_t serial)
{
    if (serial == 0) return NULL;
    for (sp_thread *thread = threads; thread; thread = thread->next) {
        if (thread->serial == serial) return thread;
    }
    return NULL;
}

/* ---- runs ---- */

void sp_registry_add_run(sp_run *run)
{
    pthread_once(&prepared, prepare);
    pthread_mutex_lock(&registry);
    sweep();
    run->token = ++last_token;
    run->next_active = runs;
    runs = run;
    pthread_mutex_unlock(&registry);
}

void sp_registry_remove_run(sp_run *run)
{
    pthread_mutex_lock(&run->lock);
    if (run->gate) atomic_store_explicit(&run->gate->token, 0, memory_order_release);
    run->gate = NULL;
    pthread_mutex_unlock(&run->lock);
}

void sp_registry_drop_run(sp_run *run, void (*shrink)(sp_log *log))
{
    sp_log *gone = NULL;
    pthread_mutex_lock(&registry);
    for (sp_run **link = &runs; *link; link = &(*link)->next_active) {
        if (*link == run) {
            *link = run->next_active;
            break;
        }
    }
    pthread_mutex_lock(&run->lock);
    run->dropped = true;
    free(run->loose);
    run->loose = NULL;
    run->loose_count = run->loose_size = 0;
    for (sp_log **link = &run->logs; *link;) {
        sp_log *log = *link;
        log->scan_open_count = 0;
        log->scan_block = NULL;
        if (!log->orphaned) {
            shrink(log);
            link = &log->next_of_run;
            continue;
        }
        *link = log->next_of_run;
        log->next_of_run = gone;
        gone = log;
    }
    pthread_mutex_unlock(&run->lock);
    while (gone) {
        sp_log *log = gone;
        gone = log->next_of_run;
        sp_log_free(log);
    }
    /* The dropping thread's own log need not wait for its next call: it is not in one. */
    if (sp_this_thread) free_dropped_logs(sp_this_thread);
    sweep();
    pthread_mutex_unlock(&registry);
}

bool sp_registry_is_recording(void)
{
    bool open = false;
    pthread_mutex_lock(&registry);
    for (sp_run *run = runs; run && !open; run = run->next_active) {
        pthread_mutex_lock(&run->lock);
        open = run->gate != NULL;
        pthread_mutex_unlock(&run->lock);
    }
    pthread_mutex_unlock(&registry);
    return open;
}

static sp_run *run_of_token(uint64_t token)
{
    for (sp_run *run = runs; run; run = run->next_active) {
        if (run->token == token) return run;
    }
    return NULL;
}

static int64_t cpu_so_far(void)
{
    const int64_t cpu = sp_platform_own_cpu_ns();
    return cpu < 0 ? 0 : cpu;
}

static bool row_add(sp_run *run, sp_thread *thread, sp_log *log, const sp_thread_start *start)
{
    /* The front end has named it, or is about to; the system is asked only if it does not. */
    char name[32] = "";
    const bool described_later = start == NULL && front_end.thread_registered && run->tracks_threads;
    if (start == NULL && front_end.thread_registered == NULL) sp_platform_thread_name(name, sizeof name);
    sp_thread_row *row = sp_thread_row_new(run, start ? start->name : name);
    if (row == NULL) return false;
    row->ident = (int64_t)(uintptr_t)thread->handle;
    row->native_id = thread->native_id;
    row->start = sp_clock_read();
    /* The thread that opened the run was there before it did. */
    if (row->native_id == run->opener) {
        row->start = run->started;
        row->cpu_before_ns = run->opener_cpu_ns > 0 ? run->opener_cpu_ns : 0;
        run->opener = 0;
    } else if (start == NULL) {
        row->cpu_before_ns = cpu_so_far();
    }
    if (start) {
        row->daemon = start->daemon;
        row->named = true;
    }
    if (row->start >= run->timeline.due) sp_timeline_anchor(&run->timeline, 0);
    sp_note_anchors(run);
    if (!described_later) sp_note_thread(run, row); /* who names it notes it too */
    run->row_count++;
    log->row = row;
    return true;
}

/*
 * A run that keeps sums does not tell threads apart: who comes goes on with the log of one that has ended, so that memory does
 * not grow with the number of threads there ever were. With run->lock.
 */
static sp_log *log_inherit(sp_run *run, sp_thread *thread)
{
    sp_log *log = run->logs;
    while (log && !log->orphaned) log = log->next_of_run;
    if (log == NULL || !sp_tally_hand_over(log)) return NULL;
    log->orphaned = false;
    log->finished_at = NULL;
    log->left_at = 0;
    log->row->ident = (int64_t)(uintptr_t)thread->handle;
    log->row->native_id = thread->native_id;
    log->row->released = false;
    log->row->end = 0;
    atomic_store(&log->thread, thread);
    return log;
}

static void own(sp_thread *thread, sp_log *log)
{
    log->next_of_thread = thread->logs;
    thread->logs = log;
}

/* With the registry's lock held. */
static sp_log *log_new(sp_run *run, sp_thread *thread, const sp_thread_start *start)
{
    pthread_mutex_lock(&run->lock);
    sp_log *log = run->sums ? log_inherit(run, thread) : NULL;
    if (log) {
        pthread_mutex_unlock(&run->lock);
        own(thread, log);
        return log;
    }
    log = calloc(1, sizeof *log);
    if (log) log->run = run;
    if (log == NULL || (run->sums && !sp_tally_new(log)) || (run->probe && !sp_log_probe_new(log)) || !row_add(run, thread, log, start)) {
        pthread_mutex_unlock(&run->lock);
        if (log) sp_tally_free(log);
        if (log) sp_log_probe_free(log);
        free(log);
        return NULL;
    }
    log->token = run->token;
    log->stride = run->stride;
    log->lane_index = SP_NO_TASK;
    log->next_of_run = run->logs;
    run->logs = log;
    atomic_init(&log->thread, thread);
    atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
    pthread_mutex_unlock(&run->lock);
    own(thread, log);
    return log;
}

static sp_log *own_log(const sp_thread *thread, uint64_t token)
{
    for (sp_log *log = thread->logs; log; log = log->next_of_thread) {
        if (log->token == token) return log;
    }
    return NULL;
}

static void name_by_system(sp_log *log)
{
    char name[32];
    sp_platform_thread_name(name, sizeof name);
    sp_run_describe_thread(log->run, log->row, name, log->row->ident, log->row->daemon);
}

/* NULL: there is no such run any more, or no memory. */
static sp_log *log_of_run(sp_thread *thread, uint64_t token, const sp_thread_start *start)
{
    pthread_mutex_lock(&registry);
    free_dropped_logs(thread);
    sp_run *run = run_of_token(token);
    sp_log *log = run ? log_new(run, thread, start) : NULL;
    if (log) make_hot(thread, log);
    pthread_mutex_unlock(&registry);
    return log;
}

static SP_NOINLINE sp_log *log_make(uint64_t token)
{
    sp_thread *thread = sp_thread_current();
    sp_log *log = thread ? log_of_run(thread, token, NULL) : NULL;
    if (log == NULL || front_end.thread_registered == NULL) return log;
    /* The front end may run code of the application, which may record, or even drop the run. */
    front_end.thread_registered(log->run, log->row);
    log = own_log(thread, token);
    if (log == NULL) return NULL;
    make_hot(thread, log);
    if (!log->row->named && log->run->tracks_threads) name_by_system(log);
    return log;
}

sp_log *sp_log_find(uint64_t token)
{
    sp_thread *thread = sp_this_thread;
    sp_log *log = thread ? own_log(thread, token) : NULL;
    if (log) {
        make_hot(thread, log);
        return log;
    }
    const int saved = errno;
    log = log_make(token);
    errno = saved;
    return log;
}

sp_log *sp_run_log(sp_run *run)
{
    return sp_log_current(run->token);
}

bool sp_run_thread_starts(sp_run *run, const sp_thread_start *start)
{
    sp_thread *thread = sp_this_thread ? sp_this_thread : thread_new(start);
    return thread && own_log(thread, run->token) == NULL && log_of_run(thread, run->token, start);
}

void sp_run_describe_thread(sp_run *run, sp_thread_row *row, const char *name, int64_t ident, bool daemon)
{
    pthread_mutex_lock(&run->lock);
    const bool same = name && strcmp(name, row->name) == 0;
    const bool renamed = name && !same && sp_thread_row_rename(row, name);
    const bool news = run->rows_noted <= (size_t)row->index || renamed || row->ident != ident || row->daemon != daemon;
    if (renamed || same) row->named = true;
    row->ident = ident;
    row->daemon = daemon;
    if (news) sp_note_thread(run, row);
    pthread_mutex_unlock(&run->lock);
}
