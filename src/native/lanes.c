/* lanes.c - lanes of a program's own fibers and coroutines: tasks of the run, each with a stack of its open calls. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/task.h"
#include "native/threads.h"

struct sp_lane {
    const sp_host_calls *calls; /* first: the functions of the header look here */
    sp_profiler *profiler;
    char *name;
    uint64_t token; /* of the run that `task` is a row of */
    sp_task *task;
    sp_call_stack named; /* while it holds no thread */
    sp_call_stack below; /* while it holds one: the thread's own calls, and the lane that it had */
    sp_lane_before before;
    _Atomic(uint64_t) thread; /* serial of the thread that it holds or held last */
    _Atomic(bool) holds;
};

sp_lane *sp_native_lane_create(sp_profiler *profiler, const char *name)
{
    sp_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL) return NULL;
    lane->calls = &sp_native_calls;
    lane->profiler = profiler;
    lane->name = strdup(name ? name : "");
    if (lane->name == NULL) {
        free(lane);
        return NULL;
    }
    return lane;
}

/* The calling thread's log in the run that the lane's profiler records into now, if that follows tasks. */
static sp_log *tracked_log(const sp_lane *lane)
{
    const uint64_t token = __atomic_load_n(&lane->profiler->head.live, __ATOMIC_ACQUIRE);
    sp_log *log = token ? sp_log_current(token) : NULL;
    return log && log->run->tracks_tasks ? log : NULL;
}

/* The lane's row in the run of this log. */
static sp_task *row_in(sp_lane *lane, const sp_log *log)
{
    if (lane->token == log->token) return lane->task;
    lane->task = sp_run_task_add(log->run, SP_TASK_TASK, "fiber");
    lane->token = lane->task ? log->token : 0;
    if (lane->task && *lane->name) sp_run_task_name(log->run, lane->task, lane->name);
    return lane->task;
}

static void leave(sp_lane *lane, sp_thread *thread)
{
    sp_log *log = tracked_log(lane);
    if (log && lane->token == log->token && log->lane == lane->task) sp_log_leave_step(log, lane->task, lane->before);
    lane->named = thread->named;
    thread->named = lane->below;
    atomic_store_explicit(&lane->holds, false, memory_order_release);
}

static void enter(sp_lane *lane, sp_thread *thread)
{
    sp_log *log = tracked_log(lane);
    lane->below = thread->named;
    thread->named = lane->named;
    atomic_store_explicit(&lane->thread, thread->serial, memory_order_relaxed);
    sp_task *task = log ? row_in(lane, log) : NULL;
    if (task) lane->before = sp_log_enter_step(log, task);
}

sp_lane *sp_native_lane_switch(sp_lane *lane)
{
    const int saved = errno;
    sp_thread *thread = sp_thread_current();
    sp_lane *left = thread ? thread->fiber : NULL;
    /* A lane that holds another thread stays there: nobody could tell its calls apart. */
    const bool free_one = lane == NULL || lane == left || !atomic_exchange_explicit(&lane->holds, true, memory_order_acquire);
    if (thread && lane != left && free_one) {
        sp_native_take_mail(thread);
        if (left) leave(left, thread);
        thread->fiber = lane;
        if (lane) enter(lane, thread);
    }
    errno = saved;
    return left;
}

void sp_native_lane_let_go(sp_thread *thread)
{
    if (thread->fiber) leave(thread->fiber, thread);
    thread->fiber = NULL;
}

void sp_native_lane_end(sp_lane *lane)
{
    if (sp_this_thread && lane == sp_this_thread->fiber) sp_native_lane_switch(NULL);
    const sp_log *log = tracked_log(lane);
    if (log && lane->token == log->token) sp_task_finish(lane->task, sp_clock_read());
    sp_native_keep_orphans(&lane->named, atomic_load(&lane->thread));
    free(lane->named.base);
    free(lane->name);
    free(lane);
}
