#include "native/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/registry.h"

/* An end that another thread has sent. */
typedef struct mail {
    struct mail *next;
    sp_slot *slot;
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

static void close_mailed(sp_thread *thread, const mail *letter)
{
    for (sp_named_call *call = thread->named.top; call-- > thread->named.base;) {
        if (call->slot != letter->slot) continue;
        const sp_named_call closed = *call;
        memmove(call, call + 1, (size_t)(thread->named.top - call - 1) * sizeof *call);
        thread->named.top--;
        sp_log_exit_elsewhere(closed.log, closed.slot, letter->at);
        return;
    }
}

void sp_native_take_mail(sp_thread *thread)
{
    mail *letter = atomic_exchange_explicit(&thread->mail, NULL, memory_order_acquire);
    while (letter) {
        mail *next = letter->next;
        close_mailed(thread, letter);
        free(letter);
        letter = next;
    }
}

/* With the registry's lock held. */
static bool close_orphan(const sp_scope *scope, sp_ticks now)
{
    for (size_t i = orphan_count; i-- > 0;) {
        if (orphans[i].thread != scope->thread || (int64_t)(intptr_t)orphans[i].call.slot != scope->slot) continue;
        const sp_named_call call = orphans[i].call;
        orphans[i] = orphans[--orphan_count];
        /* The registry's lock comes before the run's, which this takes. */
        sp_log_exit_elsewhere(call.log, call.slot, now);
        return true;
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
        letter->slot = (sp_slot *)(intptr_t)scope->slot;
        letter->at = now;
        letter->next = atomic_load_explicit(&thread->mail, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(&thread->mail, (void **)&letter->next, letter, memory_order_release,
                                                      memory_order_relaxed)) {
        }
        letter = NULL;
        known = true;
    } else {
        known = close_orphan(scope, now);
    }
    sp_registry_unlock();
    free(letter);
    return known;
}

/* ---- the end of a thread ---- */

static void keep_orphan(const sp_named_call *call, uint64_t thread)
{
    if (orphan_count == orphan_size) {
        const size_t size = orphan_size ? orphan_size * 2 : 16;
        orphan *list = realloc(orphans, size * sizeof *list);
        if (list == NULL) return;
        orphans = list;
        orphan_size = size;
    }
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
