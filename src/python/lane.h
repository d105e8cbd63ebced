/*
 * lane.h - which lane a thread is on, for runs that keep sums (core/totals.h) and so follow neither threads nor tasks with hooks.
 *
 * asyncio and trio run each task in a context of its own (contextvars), so as long as the context is the same, the lane is; when it is
 * another one, the task is asked for. Code that enters a context without being a task stays on the lane of who called it.
 */
#ifndef SP_PYTHON_LANE_H
#define SP_PYTHON_LANE_H

#include "core/totals.h"
#include "python/greenlets.h"

/* The lane of the log's thread is looked up again. A pending exception stays. */
SP_NOINLINE void sp_lane_find(sp_log *log, const void *context);

/* With the interpreter held: bring the lane of the calling thread, whose log this is, up to date. */
static inline void sp_lane_look(sp_log *log)
{
    const void *greenlet = SP_UNLIKELY(sp_greenlets_loaded) ? sp_greenlets_running() : NULL;
#if PY_VERSION_HEX >= 0x030d0000
    const PyThreadState *state = PyThreadState_GetUnchecked();
#else
    const PyThreadState *state = _PyThreadState_UncheckedGet();
#endif
    const void *context = greenlet ? greenlet : state ? (const void *)state->context : NULL;
    if (SP_UNLIKELY(context != log->tally->context)) sp_lane_find(log, context);
}

#endif
