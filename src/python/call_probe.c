/* call_probe.c - see call_probe.h. */
#include "python/call_probe.h"

#include <stdlib.h>
#include <string.h>

#include "core/counters.h"
#include "core/run.h"
#include "python/delegate.h"

/* ---- functions of Python ---- */

typedef struct instrument {
    sp_probe probe; /* first: the two are cast into each other */
    pthread_mutex_t lock;
    PyObject *enter, *leave; /* NULL once the run is gone */
    uint64_t failures;
    PyObject *first_failure; /* or NULL */
} instrument;

/* Native code may record without the interpreter: it is not waited for, since what holds it may wait for that very thread. */
static bool interpreter_is_ours(void)
{
    return !sp_python_finalizing() && PyGILState_Check();
}

/* The application did nothing wrong: what failed is told when the run is collected. Ctrl-C goes on to the application. */
static void note_failure(instrument *self)
{
    PyObject *failure = sp_exception_take();
    if (failure == NULL) return;
    if (PyErr_GivenExceptionMatches(failure, PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();
        Py_DECREF(failure);
        return;
    }
    pthread_mutex_lock(&self->lock);
    self->failures++;
    if (self->first_failure == NULL) {
        self->first_failure = failure;
        failure = NULL;
    }
    pthread_mutex_unlock(&self->lock);
    Py_XDECREF(failure);
}

static PyObject *function(instrument *self, PyObject *const *field)
{
    pthread_mutex_lock(&self->lock);
    PyObject *value = Py_XNewRef(*field);
    pthread_mutex_unlock(&self->lock);
    return value;
}

static PyObject *name_of(sp_run *run, uint32_t region)
{
    pthread_mutex_lock(&run->lock);
    const char *name = run->regions[region]->name; /* a region stays where it is, the list of them may not */
    pthread_mutex_unlock(&run->lock);
    return PyUnicode_FromString(name);
}

static bool entered(sp_probe *probe, sp_log *log, uint32_t region, sp_call_mark *mark)
{
    instrument *self = (instrument *)probe;
    if (!interpreter_is_ours()) return false;
    const sp_pending pending = sp_pending_take();
    PyObject *result = NULL;
    PyObject *enter = function(self, &self->enter);
    PyObject *name = enter ? name_of(log->run, region) : NULL;
    if (name) result = PyObject_CallOneArg(enter, name);
    if (result == NULL) note_failure(self);
    Py_XDECREF(name);
    Py_XDECREF(enter);
    sp_pending_restore(pending);
    if (result == NULL) return false;
    if (result == Py_None) {
        Py_DECREF(result);
        return false;
    }
    mark->words[0] = (uintptr_t)result;
    return true;
}

static bool call_leave(instrument *self, PyObject *leave, PyObject *name, PyObject *mark, sp_ticks start)
{
    PyObject *ticks = PyLong_FromUnsignedLongLong(start);
    PyObject *arguments[] = {name, mark, ticks};
    PyObject *result = ticks ? PyObject_Vectorcall(leave, arguments, 3, NULL) : NULL;
    const int waited = result ? PyObject_IsTrue(result) : -1;
    if (waited < 0) note_failure(self);
    Py_XDECREF(result);
    Py_XDECREF(ticks);
    return waited > 0;
}

static bool left(sp_probe *probe, sp_log *log, uint32_t region, sp_ticks start, const sp_call_mark *marked)
{
    instrument *self = (instrument *)probe;
    if (!interpreter_is_ours()) return false; /* its object is never freed: that takes the interpreter */
    PyObject *mark = (PyObject *)(uintptr_t)marked->words[0];
    const sp_pending pending = sp_pending_take();
    PyObject *leave = function(self, &self->leave);
    PyObject *name = leave ? name_of(log->run, region) : NULL;
    bool waited = false;
    if (name) waited = call_leave(self, leave, name, mark, start);
    else if (leave) note_failure(self);
    Py_XDECREF(name);
    Py_XDECREF(leave);
    Py_DECREF(mark);
    sp_pending_restore(pending);
    return waited;
}

static void release(sp_probe *probe)
{
    instrument *self = (instrument *)probe;
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static const sp_probe_operations operations = {entered, left, NULL, NULL, release};

static instrument *of_run(const sp_run *run)
{
    return run->probe && run->probe->operations == &operations ? (instrument *)run->probe : NULL;
}

static sp_probe *instrument_new(PyObject *pair)
{
    PyObject *enter, *leave;
    if (!PyArg_ParseTuple(pair, "OO;an instrument is a pair of callables", &enter, &leave)) return NULL;
    instrument *self = calloc(1, sizeof *self);
    if (self == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    self->probe.operations = &operations;
    pthread_mutex_init(&self->lock, NULL);
    self->enter = Py_NewRef(enter);
    self->leave = Py_NewRef(leave);
    return &self->probe;
}

void sp_python_probe_end(sp_run *run)
{
    instrument *self = of_run(run);
    if (self == NULL) return;
    pthread_mutex_lock(&self->lock);
    PyObject *objects[] = {self->enter, self->leave, self->first_failure};
    self->enter = self->leave = self->first_failure = NULL;
    pthread_mutex_unlock(&self->lock);
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) Py_XDECREF(objects[i]);
}

PyObject *sp_python_probe_failures(sp_run *run)
{
    instrument *self = of_run(run);
    if (self == NULL) return Py_BuildValue("iO", 0, Py_None);
    pthread_mutex_lock(&self->lock);
    const uint64_t failures = self->failures;
    PyObject *first = Py_NewRef(self->first_failure ? self->first_failure : Py_None);
    pthread_mutex_unlock(&self->lock);
    return Py_BuildValue("KN", (unsigned long long)failures, first);
}

/* ---- counters of the kernel ---- */

static PyObject *perf_error; /* PerfEventError(RuntimeError) */

static int event_number(PyObject *name)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (PyErr_Occurred()) return -1;
    for (int event = 0; text && event < SP_PERF_EVENTS; event++) {
        if (strcmp(text, sp_perf_event_names[event]) == 0) return event;
    }
    PyErr_Format(PyExc_ValueError, "unknown event %R", name);
    return -1;
}

static sp_probe *counters_new(PyObject *names)
{
    uint8_t events[SP_PERF_EVENTS];
    PyObject *list = PySequence_Tuple(names);
    if (list == NULL) return NULL;
    sp_counters *counters = NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(list);
    if (count > SP_PERF_EVENTS) {
        PyErr_SetString(PyExc_ValueError, "an event is named twice");
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const int event = event_number(PyTuple_GET_ITEM(list, i));
        if (event < 0) goto done;
        events[i] = (uint8_t)event;
    }
    sp_error error;
    if (sp_counters_new(events, (size_t)count, &counters, &error) != SP_PERF_OK) {
        PyErr_SetString(perf_error, error.message);
    }
done:
    Py_DECREF(list);
    return counters ? sp_counters_probe(counters) : NULL;
}

static PyObject *totals_object(const sp_counters *counters, const sp_region_counters *region)
{
    const size_t count = sp_counters_event_count(counters);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        const sp_perf_reading *total = &region->totals[i];
        PyObject *item = Py_BuildValue("KKK", (unsigned long long)total->value, (unsigned long long)total->enabled,
                                       (unsigned long long)total->running);
        if (item) PyList_SET_ITEM(list, (Py_ssize_t)i, item);
        else Py_CLEAR(list);
    }
    return list ? Py_BuildValue("KN", (unsigned long long)region->calls, list) : NULL;
}

static int add_region(PyObject *into, sp_run *run, uint32_t region, const sp_counters *counters, const sp_region_counters *totals)
{
    PyObject *name = name_of(run, region);
    PyObject *value = name ? totals_object(counters, totals) : NULL;
    const int failed = value ? PyDict_SetItem(into, name, value) : -1;
    Py_XDECREF(name);
    Py_XDECREF(value);
    return failed;
}

PyObject *sp_python_counters(sp_run *run)
{
    sp_counters *counters = sp_run_counters(run);
    if (counters == NULL) Py_RETURN_NONE;
    size_t count;
    uint64_t uncounted;
    sp_region_counters *totals = sp_counters_totals(counters, &count, &uncounted);
    PyObject *regions = PyDict_New();
    for (size_t region = 0; regions && region < count; region++) {
        if (totals[region].calls == 0) continue;
        if (add_region(regions, run, (uint32_t)region, counters, &totals[region]) < 0) Py_CLEAR(regions);
    }
    free(totals);
    return regions ? Py_BuildValue("NK", regions, (unsigned long long)uncounted) : NULL;
}

/* ---- both ---- */

sp_probe *sp_python_probe(PyObject *functions, PyObject *events)
{
    if (functions != Py_None && events != Py_None) {
        PyErr_SetString(PyExc_ValueError, "a run has one probe: functions or counters");
        return NULL;
    }
    if (functions != Py_None) return instrument_new(functions);
    return events != Py_None ? counters_new(events) : NULL;
}

/* Which events this process can count here: {name: None, or why not}. */
static PyObject *perf_event_problems(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    PyObject *problems = PyDict_New();
    for (uint8_t event = 0; problems && event < SP_PERF_EVENTS; event++) {
        sp_counters *counters;
        sp_error error;
        const bool works = sp_counters_new(&event, 1, &counters, &error) == SP_PERF_OK;
        PyObject *value = works ? Py_NewRef(Py_None) : PyUnicode_FromString(error.message);
        if (works) sp_counters_probe(counters)->operations->release(sp_counters_probe(counters));
        if (value == NULL || PyDict_SetItemString(problems, sp_perf_event_names[event], value) < 0) Py_CLEAR(problems);
        Py_XDECREF(value);
    }
    return problems;
}

static PyMethodDef functions[] = {
    {"perf_event_problems", perf_event_problems, METH_NOARGS,
     "For each event that can be counted by region, by name: None, or why this process cannot count it here."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_call_probe(PyObject *module)
{
    perf_error = PyErr_NewExceptionWithDoc("scope_profiler.PerfEventError",
                                           "The kernel does not count an event that was asked for.", PyExc_RuntimeError, NULL);
    if (perf_error == NULL || PyModule_AddObjectRef(module, "PerfEventError", perf_error) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
