/*
 * hot.h - the recording path, top to bottom. No lock, no allocation, no system call; errno and a pending exception are
 * left alone. An enter/exit pair is 67 instructions, a loop around it and two clock reads included, 79 in runs that follow tasks
 * (bench/instructions.py counts them).
 */
#ifndef SP_CORE_HOT_H
#define SP_CORE_HOT_H

#include "core/types.h"

#define SP_LIKELY(x) __builtin_expect(!!(x), 1)
#define SP_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SP_NOINLINE __attribute__((noinline, cold))

/* The switch of one configuration: what its regions read. 0 = nothing is recorded, else the token of the run that is. */
typedef struct sp_switch {
    _Atomic(uint64_t) token;
} sp_switch;

/* The calling thread's log for the run with this token, made on first use; NULL when that run is gone or memory is out. */
SP_NOINLINE sp_log *sp_log_find(uint64_t token);
/* Make room for one more slot; NULL when memory is out (the call is then counted as lost). */
SP_NOINLINE char *sp_log_grow(sp_log *log);
/* The entry of a call in a run that keeps sums (totals.h). Not a cold path: such a run takes it for every call. */
__attribute__((noinline)) sp_slot *sp_frame_enter(sp_log *log, uint32_t region);
/* Take the anchor that is due. */
SP_NOINLINE void sp_log_anchor(sp_log *log, sp_ticks now);
/* And its exit, on its own thread. */
__attribute__((noinline)) void sp_frame_exit(sp_log *log, sp_slot *slot, sp_ticks now);
/* The exit of a call on another thread, another lane, or while another run is the thread's hot one. */
SP_NOINLINE void sp_log_exit_elsewhere(sp_log *log, sp_slot *slot, sp_ticks now);

static inline sp_log *sp_log_current(uint64_t token)
{
    sp_thread *thread = sp_this_thread;
    if (SP_LIKELY(thread != NULL)) {
        sp_log *log = thread->hot;
        if (SP_LIKELY(log != NULL && log->token == token)) return log;
    }
    return sp_log_find(token);
}

/*
 * Open a call in the slot at `at`, the log's next. The start is read last, so that this function's own cost is outside. It is in *started,
 * for which an anchor may be due. `counter`: sp_clock_is_counter() is known to be true.
 */
static inline sp_slot *sp_log_put(sp_log *log, char *at, uint32_t region, bool counter, sp_ticks *started)
{
    sp_slot *slot = (sp_slot *)at;
    atomic_store_explicit(&slot->end, SP_SLOT_OPEN, memory_order_relaxed);
    atomic_store_explicit(&slot->region, region, memory_order_relaxed);
    slot->task = log->lane_index;
    if (log->stride == sizeof(sp_async_slot)) {
        ((sp_async_slot *)slot)->await =
            log->lane ? atomic_load_explicit(&log->lane->suspended, memory_order_relaxed) : 0;
    }
    const sp_ticks now = counter ? sp_clock_counter() : sp_clock_read();
    /* Release: in a store that outlives the process, a slot with a start is a whole one. */
    atomic_store_explicit(&slot->start, now, memory_order_release);
    atomic_store_explicit(&log->next, at + log->stride, memory_order_release);
    *started = now;
    return slot;
}

/* Open a call. NULL: not recorded (counted). */
static inline sp_slot *sp_log_enter(sp_log *log, uint32_t region)
{
    char *at = atomic_load_explicit(&log->next, memory_order_relaxed);
    if (SP_UNLIKELY(at == log->limit)) {
        if (log->tally) return sp_frame_enter(log, region);
        at = sp_log_grow(log);
        if (at == NULL) return NULL;
    }
    sp_ticks now;
    sp_slot *slot = sp_log_put(log, at, region, false, &now);
    if (SP_UNLIKELY(now >= log->anchor_due)) sp_log_anchor(log, now);
    return slot;
}

/* Close a call of the thread's hot log, on its own lane. */
static inline void sp_log_close(const sp_log *log, sp_slot *slot, sp_ticks now)
{
    if (log->stride == sizeof(sp_async_slot)) {
        sp_async_slot *call = (sp_async_slot *)slot;
        call->await = log->lane
            ? atomic_load_explicit(&log->lane->suspended, memory_order_relaxed) - call->await : 0;
    }
    atomic_store_explicit(&slot->end, now, memory_order_release);
}

/*
 * Close the call. `log` is the one it was entered on; any thread may call this. The end is read first. Nothing of the log,
 * the slot or its block may be touched after `end` is stored: the collector may free it.
 */
static inline void sp_log_exit(sp_log *log, sp_slot *slot)
{
    const sp_ticks now = sp_clock_read();
    sp_thread *thread = sp_this_thread;
    if (SP_UNLIKELY(thread == NULL || thread->hot != log)) {
        sp_log_exit_elsewhere(log, slot, now);
        return;
    }
    if (SP_UNLIKELY(slot->task != log->lane_index)) {
        if (log->tally) sp_frame_exit(log, slot, now);
        else sp_log_exit_elsewhere(log, slot, now);
        return;
    }
    if (SP_UNLIKELY(now >= log->anchor_due)) sp_log_anchor(log, now);
    sp_log_close(log, slot, now);
}

#endif
