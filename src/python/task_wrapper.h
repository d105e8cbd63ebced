/*
 * task_wrapper.h - asyncio tasks as lanes.
 *
 * A coroutine is wrapped where its task is created: a TaskHook in the place of `create_task` of a loop's class (or of one
 * loop, or of a task factory) hands the loop a delegate, whose steps make the task the thread's lane. One hook serves all
 * runs that follow tasks; each has a delegate of its own around the coroutine.
 *
 *     loop.create_task(coro) -> TaskHook -> the loop's own create_task(delegate(coro)) -> Task
 *
 * A task that was made another way, or before the run, has no delegate. Such a task gets a row at its first region: the
 * region path asks for it when an async run's thread has no lane but runs an event loop.
 */
#ifndef SP_PYTHON_TASK_WRAPPER_H
#define SP_PYTHON_TASK_WRAPPER_H

#include "core/run.h"
#include "python/state.h"

/* The row of the asyncio task that the calling thread, whose log this is, runs without a delegate; NULL: it runs none.
 * A pending exception stays. */
sp_task *sp_task_adopt(sp_log *log);

/* The asyncio task that the calling thread runs, as a key that is never followed; NULL: it runs none. No pending exception. */
const void *sp_task_running(void);

/* Names of tasks that live, as they are now. With the interpreter held. */
void sp_task_names_refresh(sp_run *run);

/* At exit: keep nothing of asyncio's, whose C module does not come up again in a later interpreter while something is kept. */
void sp_python_forget_asyncio(void);

int sp_python_add_task_wrapper(PyObject *module);

#endif
