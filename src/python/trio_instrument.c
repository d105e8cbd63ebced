/*
 * trio_instrument.c - trio tasks as lanes, through trio's instrument interface.
 *
 * One instrument serves one runner, and a runner steps one task at a time, so what the step under way has to give back is
 * kept here. trio calls only the hooks that an instrument has.
 */
#include "python/trio_instrument.h"

#include "core/registry.h"
#include "core/task.h"
#include "python/recorder.h"

static PyTypeObject *instrument_type;

typedef struct sp_instrument {
    PyObject_HEAD
    sp_run *run;     /* referenced */
    PyObject *lanes; /* dict: trio task -> index of the lane */
    sp_task *stepping;
    sp_lane_before before;
} sp_instrument;

static bool follows(const sp_instrument *instrument)
{
    return atomic_load_explicit(&instrument->run->follows, memory_order_acquire);
}

/* A str attribute as UTF-8, NULL without an exception; *kept holds the bytes. */
static const char *text_of(PyObject *object, const char *name, PyObject **kept)
{
    *kept = object ? PyObject_GetAttrString(object, name) : NULL;
    const char *text = *kept && PyUnicode_Check(*kept) ? PyUnicode_AsUTF8(*kept) : NULL;
    PyErr_Clear();
    return text;
}

static void name_lane(sp_instrument *instrument, sp_task *lane, PyObject *task)
{
    PyObject *kept;
    const char *name = text_of(task, "name", &kept);
    if (name) sp_run_task_name(instrument->run, lane, name);
    Py_XDECREF(kept);
}

static sp_task *lane_new(sp_instrument *instrument, PyObject *task)
{
    PyObject *kept, *coroutine = PyObject_GetAttrString(task, "coro");
    const char *coro_name = text_of(coroutine, "__qualname__", &kept);
    sp_task *lane = sp_run_task_add(instrument->run, SP_TASK_TASK, coro_name);
    Py_XDECREF(kept);
    Py_XDECREF(coroutine);
    if (lane == NULL) return NULL;
    name_lane(instrument, lane, task);
    PyObject *index = PyLong_FromLong(lane->index);
    if (index == NULL || PyDict_SetItem(instrument->lanes, task, index) < 0) PyErr_Clear();
    Py_XDECREF(index);
    return lane;
}

/* The task's lane, or NULL; made when it is not known, which is so for tasks older than the session. */
static sp_task *lane_of(sp_instrument *instrument, PyObject *task, bool spawned)
{
    PyObject *index = PyDict_GetItemWithError(instrument->lanes, task);
    if (index) return sp_run_task(instrument->run, (int32_t)PyLong_AsLong(index));
    PyErr_Clear();
    sp_task *lane = lane_new(instrument, task);
    if (lane && !spawned) sp_task_forget_creator(lane);
    return lane;
}

static PyObject *task_spawned(PyObject *self, PyObject *task)
{
    if (follows((sp_instrument *)self)) lane_of((sp_instrument *)self, task, true);
    Py_RETURN_NONE;
}

static PyObject *before_task_step(PyObject *self, PyObject *task)
{
    sp_instrument *instrument = (sp_instrument *)self;
    if (!follows(instrument)) Py_RETURN_NONE;
    sp_log *log = sp_log_current(instrument->run->token);
    sp_task *lane = log ? lane_of(instrument, task, false) : NULL;
    instrument->stepping = lane;
    if (lane) instrument->before = sp_log_enter_step(log, lane);
    Py_RETURN_NONE;
}

static PyObject *after_task_step(PyObject *self, PyObject *task)
{
    sp_instrument *instrument = (sp_instrument *)self;
    sp_task *lane = instrument->stepping;
    instrument->stepping = NULL;
    if (lane == NULL || !follows(instrument)) Py_RETURN_NONE;
    sp_log *log = sp_log_current(instrument->run->token);
    if (log) sp_log_leave_step(log, lane, instrument->before);
    Py_RETURN_NONE;
}

static PyObject *task_exited(PyObject *self, PyObject *task)
{
    sp_instrument *instrument = (sp_instrument *)self;
    PyObject *index = PyDict_GetItemWithError(instrument->lanes, task);
    sp_task *lane = index ? sp_run_task(instrument->run, (int32_t)PyLong_AsLong(index)) : NULL;
    PyErr_Clear();
    if (lane && follows(instrument)) {
        name_lane(instrument, lane, task);
        sp_task_finish(lane, sp_clock_read());
    }
    if (lane && PyDict_DelItem(instrument->lanes, task) < 0) PyErr_Clear();
    Py_RETURN_NONE;
}

static PyObject *instrument_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *run;
    if (!PyArg_ParseTuple(arguments, "O:TrioInstrument", &run)) return NULL;
    sp_run *core = sp_run_object_get(run);
    sp_instrument *instrument = core ? (sp_instrument *)type->tp_alloc(type, 0) : NULL;
    if (instrument == NULL) return NULL;
    atomic_fetch_add_explicit(&core->references, 1, memory_order_relaxed);
    instrument->run = core;
    instrument->lanes = PyDict_New();
    if (instrument->lanes == NULL) Py_CLEAR(instrument);
    return (PyObject *)instrument;
}

static int instrument_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((sp_instrument *)self)->lanes);
    return 0;
}

static int instrument_clear(PyObject *self)
{
    /* Emptied, not taken away: trio may still call. */
    if (((sp_instrument *)self)->lanes) PyDict_Clear(((sp_instrument *)self)->lanes);
    return 0;
}

static void instrument_dealloc(PyObject *self)
{
    sp_instrument *instrument = (sp_instrument *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(instrument->lanes);
    sp_run_release(instrument->run);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *instrument_follows(PyObject *self, void *closure)
{
    return PyBool_FromLong(follows((sp_instrument *)self));
}

static PyGetSetDef instrument_getset[] = {
    {"_follows", instrument_follows, NULL, "Whether its run still follows tasks.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef instrument_methods[] = {
    {"task_spawned", task_spawned, METH_O, "A task was made."},
    {"before_task_step", before_task_step, METH_O, "A task gets its thread."},
    {"after_task_step", after_task_step, METH_O, "The task gave it back."},
    {"task_exited", task_exited, METH_O, "A task has ended."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot instrument_slots[] = {
    {Py_tp_new, instrument_new},
    {Py_tp_dealloc, instrument_dealloc},
    {Py_tp_traverse, instrument_traverse},
    {Py_tp_clear, instrument_clear},
    {Py_tp_getset, instrument_getset},
    {Py_tp_methods, instrument_methods},
    {Py_tp_doc, "TrioInstrument(run): makes the tasks of one trio runner lanes of the run."},
    {0, NULL},
};

static PyType_Spec instrument_spec = {
    .name = "scope_profiler._core.TrioInstrument",
    .basicsize = sizeof(sp_instrument),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = instrument_slots,
};

int sp_python_add_trio_instrument(PyObject *module)
{
    instrument_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &instrument_spec, NULL);
    if (instrument_type == NULL) return -1;
    return PyModule_AddObjectRef(module, "TrioInstrument", (PyObject *)instrument_type);
}
