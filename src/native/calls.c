/*
 * calls.c - begin and end: calls that are closed by the handle of their region, not by an object of their own.
 *
 * Each lane has a stack of its open calls, which its thread alone touches. An end closes the newest call of its region there,
 * which is the topmost one almost always. What another thread wants to end (a C++ scope that was moved there, a call that was
 * begun on one thread and is ended on another) it sends: the owner takes it off its stack when it next looks, and the call gets
 * the time at which it was sent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/registry.h"
#include "native/threads.h"

static void lose(const sp_log *log)
{
    atomic_fetch_add_explicit(&((sp_log *)log)->lost, 1, memory_order_relaxed);
}

/* Open a call on the calling thread and remember it; NULL: not recorded. */
static inline sp_slot *open_call(sp_profiler *profiler, int handle, bool scoped)
{
    const uint64_t token = __atomic_load_n(&profiler->head.recording, __ATOMIC_ACQUIRE);
    if (SP_UNLIKELY(token == 0)) return NULL;
    const uint32_t region = sp_native_region_id(profiler, handle, token);
    if (SP_UNLIKELY(region == SP_NATIVE_OFF)) return NULL;
    sp_log *log = sp_log_current(token);
    if (SP_UNLIKELY(log == NULL)) return NULL;
    sp_thread *thread = sp_this_thread;
    if (SP_UNLIKELY(thread->named.top == thread->named.limit) && !sp_native_stack_grow(&thread->named)) {
        lose(log);
        return NULL;
    }
    sp_slot *slot = sp_log_enter(log, region);
    if (SP_UNLIKELY(slot == NULL)) return NULL;
    sp_named_call *call = thread->named.top;
    *call = (sp_named_call){slot, log, profiler, (uint32_t)handle, scoped, log->lane_index};
    thread->named.top = call + 1;
    return slot;
}

static inline bool is_of(const sp_named_call *call, const sp_profiler *profiler, int handle)
{
    return call->owner == profiler && call->handle == (uint32_t)handle && call->lane == call->log->lane_index;
}

/* Take a call out of the stack, and end it. */
static SP_NOINLINE void close_inner(sp_thread *thread, sp_named_call *call)
{
    const sp_named_call closed = *call;
    memmove(call, call + 1, (size_t)(thread->named.top - call - 1) * sizeof *call);
    thread->named.top--;
    sp_log_exit(closed.log, closed.slot);
}

static SP_NOINLINE void unmatched(sp_profiler *profiler)
{
    const uint64_t token = __atomic_load_n(&profiler->head.live, __ATOMIC_ACQUIRE);
    sp_log *log = token ? sp_log_current(token) : NULL;
    if (log) atomic_fetch_add_explicit(&log->run->unmatched, 1, memory_order_relaxed);
    atomic_store_explicit(&profiler->last_error, SP_ERR_UNMATCHED_END, memory_order_relaxed);
}

/* The newest call of the region on the current lane, else on any lane that this thread has calls of. */
static SP_NOINLINE bool end_inner(sp_thread *thread, const sp_profiler *profiler, int handle)
{
    sp_named_call *found = NULL;
    for (sp_named_call *call = thread->named.top; call-- > thread->named.base;) {
        if (call->owner != profiler || call->handle != (uint32_t)handle) continue;
        if (call->lane == call->log->lane_index) {
            found = call;
            break;
        }
        if (found == NULL) found = call;
    }
    if (found == NULL) return false;
    close_inner(thread, found);
    return true;
}

void sp_native_begin(sp_profiler *profiler, int handle)
{
    (void)open_call(profiler, handle, false);
}

static inline bool end_call(sp_profiler *profiler, int handle)
{
    sp_thread *thread = sp_this_thread;
    if (SP_LIKELY(thread != NULL)) {
        if (SP_UNLIKELY(atomic_load_explicit(&thread->mail, memory_order_acquire) != NULL)) sp_native_take_mail(thread);
        sp_named_call *call = thread->named.top - 1;
        if (SP_LIKELY(thread->named.top != thread->named.base && is_of(call, profiler, handle))) {
            thread->named.top = call;
            sp_log_exit(call->log, call->slot);
            return true;
        }
        if (end_inner(thread, profiler, handle)) return true;
    }
    if (sp_native_send_named_end(profiler, handle)) return true;
    if (__atomic_load_n(&profiler->head.live, __ATOMIC_ACQUIRE)) unmatched(profiler);
    return false;
}

void sp_native_end(sp_profiler *profiler, int handle)
{
    (void)end_call(profiler, handle);
}

int sp_native_end_status(sp_profiler *profiler, int handle)
{
    if (end_call(profiler, handle)) return SP_OK;
    return __atomic_load_n(&profiler->head.live, __ATOMIC_ACQUIRE) ? SP_ERR_UNMATCHED_END : SP_ERR_INACTIVE;
}

int sp_native_end_last(sp_profiler *profiler)
{
    sp_thread *thread = sp_this_thread;
    if (thread) sp_native_take_mail(thread);
    for (sp_named_call *call = thread ? thread->named.top : NULL; call && call-- > thread->named.base;) {
        if (call->owner != profiler || call->lane != call->log->lane_index) continue;
        close_inner(thread, call);
        return SP_OK;
    }
    if (__atomic_load_n(&profiler->head.live, __ATOMIC_ACQUIRE) == 0) return SP_ERR_INACTIVE;
    unmatched(profiler);
    return SP_ERR_UNMATCHED_END;
}

int sp_native_count_open(const sp_profiler *profiler)
{
    const sp_thread *thread = sp_this_thread;
    int count = 0;
    if (thread == NULL) return 0;
    for (const sp_named_call *call = thread->named.base; call < thread->named.top; call++) count += call->owner == profiler;
    return count;
}

bool sp_native_has_open(const sp_profiler *profiler)
{
    return sp_native_count_open(profiler) > 0;
}

/* ---- scopes ---- */

void sp_native_scope_begin(sp_profiler *profiler, int handle, sp_scope *scope)
{
    scope->profiler = profiler;
    scope->region = handle;
    const sp_slot *slot = open_call(profiler, handle, true);
    scope->slot = slot ? (int64_t)(intptr_t)slot : -1;
    scope->thread = slot ? sp_this_thread->serial : 0;
}

/* NULL: it is not among the calls of the thread. *newer: a newer call of its region on its lane is open. */
static SP_NOINLINE sp_named_call *find_scope(const sp_thread *thread, const sp_scope *scope, bool *newer)
{
    *newer = false;
    for (sp_named_call *call = thread->named.top; call-- > thread->named.base;) {
        if ((int64_t)(intptr_t)call->slot != scope->slot) continue;
        for (const sp_named_call *above = call + 1; above < thread->named.top; above++) {
            *newer |= above->owner == call->owner && above->handle == call->handle && above->lane == call->lane;
        }
        return call;
    }
    return NULL;
}

static SP_NOINLINE int scope_end_inner(sp_thread *thread, sp_scope *scope, bool any)
{
    bool newer = false;
    if (thread) sp_native_take_mail(thread);
    sp_named_call *call = thread ? find_scope(thread, scope, &newer) : NULL;
    if (newer && !any) {
        unmatched(scope->profiler);
        return SP_ERR_UNMATCHED_END;
    }
    if (call) {
        close_inner(thread, call);
    } else if ((thread && scope->thread == thread->serial) || !sp_native_send_end(scope)) {
        unmatched(scope->profiler);
        scope->slot = -1;
        return SP_ERR_UNMATCHED_END;
    }
    scope->slot = -1;
    return SP_OK;
}

/* The call of the scope if it is the thread's innermost, ended; false: it is not. */
static inline bool close_innermost(sp_thread *thread, const sp_scope *scope)
{
    if (SP_UNLIKELY(thread == NULL || thread->named.top == thread->named.base)) return false;
    sp_named_call *call = thread->named.top - 1;
    if (SP_UNLIKELY((int64_t)(intptr_t)call->slot != scope->slot)) return false;
    thread->named.top = call;
    sp_log_exit(call->log, call->slot);
    return true;
}

int sp_native_scope_end(sp_scope *scope)
{
    if (scope->slot == -1) return SP_ERR_UNMATCHED_END;
    sp_thread *thread = sp_this_thread;
    if (SP_UNLIKELY(!close_innermost(thread, scope))) return scope_end_inner(thread, scope, false);
    scope->slot = -1;
    return SP_OK;
}

void sp_native_scope_close(sp_scope *scope)
{
    sp_thread *thread = sp_this_thread;
    if (SP_UNLIKELY(!close_innermost(thread, scope))) (void)scope_end_inner(thread, scope, true);
}
