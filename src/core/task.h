/*
 * task.h - lanes that are not bare threads: asyncio and trio tasks, greenlets.
 *
 * A task is stepped: enter_step makes it the current lane of the calling thread's log and charges the gap since the last
 * step as suspension; leave_step charges the step as running time and gives the thread back to the lane before. The wait
 * before the first step is neither.
 */
#ifndef SP_CORE_TASK_H
#define SP_CORE_TASK_H

#include "core/run.h"

/*
 * A new task of the run, created now, on the lane that the calling thread is on; NULL when out of memory. `coro_name` is
 * copied (once for each different one).
 */
sp_task *sp_run_task_add(sp_run *run, sp_task_kind kind, const char *coro_name);

/* The same where an earlier task of the run has this `coro_name`; its own name is "Task-<number>", unless that is SP_NO_NUMBER. */
#define SP_NO_NUMBER UINT64_MAX
sp_task *sp_run_task_add_again(sp_run *run, sp_task_kind kind, uint32_t coro_name, uint64_t number);

/* A row of which nothing but its place is known any more. */
static inline void sp_task_blank(sp_task *task, int32_t index)
{
    task->index = index;
    atomic_store_explicit(&task->thread_index, SP_NO_TASK, memory_order_relaxed);
    task->coro_name = UINT32_MAX;
    task->creator_thread = -1;
    task->creator_task = SP_NO_TASK;
}

/* The task is older than its row: who made it is not known. */
static inline void sp_task_forget_creator(sp_task *task)
{
    task->creator_thread = -1;
    task->creator_task = SP_NO_TASK;
}

/* What it runs, when that was not known at its creation. Copied. */
void sp_run_task_coro(sp_run *run, sp_task *task, const char *coro_name);

/* The task with this index, or NULL. */
sp_task *sp_run_task(sp_run *run, int32_t index);

/*
 * Ticks until `now` that the lane of an open call has been suspended since the call began, the suspension under way included; 0 on a
 * thread's own lane. Of a lane that its thread goes on stepping, or that was read before the call began, this is what is known.
 */
uint64_t sp_run_awaited(sp_run *run, const sp_async_slot *call, sp_ticks now);

/* Name a task, replacing an earlier name. "Task-<number>" is stored without allocation. */
void sp_run_task_name(sp_run *run, sp_task *task, const char *name);
void sp_run_task_number(sp_run *run, sp_task *task, uint64_t number);

/* "Task-" and a number without leading zeros that fits 64 bits, so that printing it gives the same text back. */
bool sp_task_name_is_numbered(const char *name, uint64_t *number);

/* The name, written into `buffer` when it is a numbered one; "" when there is none. With run->lock held. */
const char *sp_task_name(const sp_task *task, char buffer[32]);

/* First call wins. */
void sp_task_finish(sp_task *task, sp_ticks now);

/* What held the thread before a step: to be given back to leave_step. */
typedef struct sp_lane_before {
    sp_task *task;
} sp_lane_before;

static inline void sp_task_resume(sp_task *task, sp_ticks now)
{
    const sp_ticks since = atomic_load_explicit(&task->last_step_end, memory_order_relaxed);
    if (since) {
        const uint64_t before = atomic_load_explicit(&task->suspended, memory_order_relaxed);
        atomic_store_explicit(&task->suspended, before + (now - since), memory_order_relaxed);
    }
    atomic_store_explicit(&task->step_started, now, memory_order_relaxed);
    atomic_store_explicit(&task->steps, atomic_load_explicit(&task->steps, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void sp_task_suspend(sp_task *task, sp_ticks now)
{
    const sp_ticks since = atomic_load_explicit(&task->step_started, memory_order_relaxed);
    if (since == 0) return;
    const uint64_t before = atomic_load_explicit(&task->running, memory_order_relaxed);
    atomic_store_explicit(&task->running, before + (now - since), memory_order_relaxed);
    atomic_store_explicit(&task->last_step_end, now, memory_order_relaxed);
    atomic_store_explicit(&task->step_started, 0, memory_order_relaxed);
}

static inline void sp_log_set_lane(sp_log *log, sp_task *task)
{
    log->lane = task;
    log->lane_index = task ? task->index : SP_NO_TASK;
}

/* Step `task` on the calling thread, whose log this is. Returns the lane to give back. */
static inline sp_lane_before sp_log_enter_step(sp_log *log, sp_task *task)
{
    const sp_lane_before before = {log->lane};
    const sp_ticks now = sp_clock_read();
    if (SP_UNLIKELY(now >= log->anchor_due)) sp_log_anchor(log, now);
    sp_task_resume(task, now);
    atomic_store_explicit(&task->thread_index, log->row->index, memory_order_relaxed);
    sp_log_set_lane(log, task);
    return before;
}

/* Returns when that was. */
static inline sp_ticks sp_log_leave_step(sp_log *log, sp_task *task, sp_lane_before before)
{
    const sp_ticks now = sp_clock_read();
    sp_task_suspend(task, now);
    if (SP_UNLIKELY(now >= log->anchor_due)) sp_log_anchor(log, now);
    sp_log_set_lane(log, before.task);
    return now;
}

#endif
