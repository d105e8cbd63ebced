#include "python/lane.h"

#include <errno.h>

#include "python/delegate.h"
#include "python/task_wrapper.h"

/* The trio task that runs, as a key; NULL: none. */
static const void *trio_task(void)
{
    PyObject *name = PyUnicode_FromString("trio.lowlevel");
    PyObject *trio = name ? PyImport_GetModule(name) : NULL;
    PyObject *task = trio ? PyObject_CallMethod(trio, "current_task", NULL) : NULL; /* RuntimeError: none */
    Py_XDECREF(task);
    Py_XDECREF(trio);
    Py_XDECREF(name);
    PyErr_Clear();
    return task;
}

void sp_lane_find(sp_log *log, const void *context)
{
    const int saved = errno;
    const sp_pending pending = sp_pending_take();
    const void *lane = sp_greenlets_running();
    if (lane == NULL) lane = sp_task_running();
    if (lane == NULL) lane = trio_task();
    sp_tally_set_lane(log, lane);
    log->tally->context = context;
    sp_pending_restore(pending);
    errno = saved;
}
