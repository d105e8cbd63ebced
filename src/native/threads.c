#include "native/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "core/registry.h"

/* An end that another thread has sent: of one call, or (slot NULL) of the newest of a region. */
typedef struct mail {
    struct mail *next;
    sp_slot *slot;
    const sp_profiler *owner;
    int handle;
    sp_ticks at;
} mail;

/* Calls that were open when their thread ended (registry's lock). Their scopes may be ended on other threads. */
typedef struct orphan {
    sp_named_call call;
    uint64_t thread;
} orphan;

static orphan *orphans;
static size_t orphan_count, orphan_size;

#define FIRST_CALLS 64

bool sp_native_stack_grow(sp_call_stack *stack)
{
    const int saved = errno;
    const size_t used = (size_t)(stack->top - stack->base), size = used ? used * 2 : FIRST_CALLS;
    sp_named_call *base = malloc(size * sizeof *base);
    errno = saved;
    if (base == NULL) return false;
    if (used) memcpy(base, stack->base, used * sizeof *base);
    /* A signal handler that samples may look at any moment: it finds the old calls or the new ones. */
    sp_named_call *old = stack->base;
    stack->top = base + used;
    stack->base = base;
    stack->limit = base + size;
    free(old);
    return true;
}

/* ---- ends that others send ---- */

static bool is_addressed(const sp_named_call *call, const mail *letter)
{
    if (letter->slot) return call->slot == letter->slot;
    return call->owner == letter->owner && call->handle == (uint32_t)letter->handle && !call->scoped;
}

static void close_mailed(sp_thread *thread, const mail *letter)
{
    for (sp_named_call *call = thread->named.top; call-- > thread->named.base;) {
        if (!is_addressed(call, letter)) continue;
        const sp_named_call closed = *call;
        memmove(call, call + 1, (size_t)(thread->named.top - call - 1) * sizeof *call);
        thread->named.top--;
        sp_log_exit_elsewhere(closed.log, closed.slot, letter->at);
        return;
    }
    if (letter->slot == NULL && thread->hot) atomic_fetch_add_explicit(&thread->hot->run->unmatched, 1, memory_order_relaxed);
}

/* The oldest first: of nested calls, the first end is the inner one's. */
static mail *in_order(mail *newest)
{
    mail *oldest = NULL;
    while (newest) {
        mail *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

void sp_native_take_mail(sp_thread *thread)
{
    mail *letter = in_order(atomic_exchange_explicit(&thread->mail, NULL, memory_order_acquire));
    while (letter) {
        mail *next = letter->next;
        close_mailed(thread, letter);
        free(letter);
        letter = next;
    }
}

/* With the registry's lock held, so that the thread does not end meanwhile. */
static void post(sp_thread *thread, mail *letter)
{
    letter->next = atomic_load_explicit(&thread->mail, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&thread->mail, (void **)&letter->next, letter, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

/* With the registry's lock held. */
static bool close_orphan(size_t at, sp_ticks now)
{
    const sp_named_call call = orphans[at].call;
    orphans[at] = orphans[--orphan_count];
    /* The registry's lock comes before the run's, which this takes. */
    sp_log_exit_elsewhere(call.log, call.slot, now);
    return true;
}

static bool close_orphan_of_scope(const sp_scope *scope, sp_ticks now)
{
    for (size_t i = orphan_count; i-- > 0;) {
        if (orphans[i].thread != scope->thread || (int64_t)(intptr_t)orphans[i].call.slot != scope->slot) continue;
        return close_orphan(i, now);
    }
    return false;
}

static bool close_orphan_at(const sp_slot *slot, sp_ticks now)
{
    for (size_t i = orphan_count; i-- > 0;) {
        if (orphans[i].call.slot == slot && !orphans[i].call.scoped) return close_orphan(i, now);
    }
    return false;
}

bool sp_native_send_end(const sp_scope *scope)
{
    const sp_ticks now = sp_clock_read();
    mail *letter = malloc(sizeof *letter);
    sp_registry_lock();
    sp_thread *thread = sp_thread_of_serial(scope->thread);
    bool known = false;
    if (thread && letter) {
        *letter = (mail){.slot = (sp_slot *)(intptr_t)scope->slot, .at = now};
        post(thread, letter);
        letter = NULL;
        known = true;
    } else {
        known = close_orphan_of_scope(scope, now);
    }
    sp_registry_unlock();
    free(letter);
    return known;
}

typedef struct open_call {
    const sp_slot *slot;
    sp_thread *thread; /* NULL: it has ended */
    sp_ticks start;
} open_call;

/* The newest open call of a region that is not the calling thread's. With the registry's lock held. */
static open_call newest_elsewhere(sp_run *run, uint32_t region)
{
    open_call newest = {0};
    pthread_mutex_lock(&run->lock);
    sp_run_scan(run);
    for (sp_log *log = run->logs; log; log = log->next_of_run) {
        sp_thread *thread = atomic_load_explicit(&log->thread, memory_order_relaxed);
        if (thread && thread == sp_this_thread) continue;
        if (thread && thread->serial == 0) thread = NULL; /* it has given up its calls already */
        for (size_t i = 0; i < log->scan_open_count; i++) {
            const sp_slot *slot = log->scan_open[i];
            const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_relaxed);
            const uint32_t id = atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID;
            if (id == region && sp_slot_is_open(slot) && start >= newest.start) newest = (open_call){slot, thread, start};
        }
    }
    pthread_mutex_unlock(&run->lock);
    return newest;
}

bool sp_native_send_named_end(sp_profiler *profiler, int handle)
{
    const sp_ticks now = sp_clock_read();
    const uint64_t token = __atomic_load_n(&profiler->head.live, __ATOMIC_ACQUIRE);
    sp_log *log = token ? sp_log_current(token) : NULL;
    const uint32_t region = log ? sp_native_region_id(profiler, handle, token) : SP_NATIVE_OFF;
    if (region == SP_NATIVE_OFF) return false;
    const int saved = errno;
    mail *letter = malloc(sizeof *letter);
    sp_registry_lock();
    const open_call call = newest_elsewhere(log->run, region);
    bool known = call.slot != NULL;
    if (known && call.thread && letter) {
        *letter = (mail){.owner = profiler, .handle = handle, .at = now};
        post(call.thread, letter);
        letter = NULL;
    } else if (known) {
        known = close_orphan_at(call.slot, now);
    }
    sp_registry_unlock();
    free(letter);
    errno = saved;
    return known;
}

/* ---- the end of a thread ---- */

static void keep_orphan(const sp_named_call *call, uint64_t thread)
{
    if (!sp_grow(&orphans, &orphan_size, orphan_count, sizeof *orphans, 16)) return;
    orphans[orphan_count++] = (orphan){*call, thread};
}

void sp_native_keep_orphans(const sp_call_stack *stack, uint64_t thread)
{
    sp_registry_lock();
    for (const sp_named_call *call = stack->base; call < stack->top; call++) keep_orphan(call, thread);
    sp_registry_unlock();
}

static void thread_ended(sp_thread *thread)
{
    sp_native_lane_let_go(thread);
    sp_registry_lock();
    sp_native_take_mail(thread);
    for (const sp_named_call *call = thread->named.base; call < thread->named.top; call++) keep_orphan(call, thread->serial);
    thread->named.top = thread->named.base;
    thread->serial = 0; /* nothing more is sent to it */
    sp_registry_unlock();
}

void sp_native_watch_threads(void)
{
    sp_native_front_end_set(thread_ended);
}
