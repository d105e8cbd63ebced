/*
 * manual_clock.c - which clock there is, and for tests: a clock that stands still until it is moved on, so that every time a run records can be
 * foretold exactly. Reading it is one atomic load, from any thread, with or without the interpreter.
 */
#include "python/manual_clock.h"

#include "core/clock.h"
#include "core/registry.h"

static _Atomic(uint64_t) now;

static sp_ticks read_now(void)
{
    return atomic_load_explicit(&now, memory_order_acquire);
}

static PyObject *manual_clock(PyObject *module, PyObject *start)
{
    unsigned long long from = 0;
    if (start != Py_None) {
        from = PyLong_AsUnsignedLongLong(start);
        if (PyErr_Occurred()) return NULL;
        if (from == 0 || from > INT64_MAX) {
            PyErr_SetString(PyExc_ValueError, "a clock starts after 0"); /* 0 marks calls that are open */
            return NULL;
        }
    }
    if (sp_registry_is_recording()) {
        PyErr_SetString(PyExc_RuntimeError, "the clock cannot be changed while a run is open");
        return NULL;
    }
    atomic_store(&now, from);
    sp_clock_inject(from ? read_now : NULL, NULL);
    Py_RETURN_NONE;
}

static PyObject *choose_clock(PyObject *module, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) return NULL;
    sp_error error = {0};
    const sp_status status = sp_clock_select(text, &error);
    if (status != SP_OK) return sp_python_raise(status, &error, NULL);
    Py_RETURN_NONE;
}

static PyObject *clock_source(PyObject *module, PyObject *none)
{
    return PyUnicode_FromString(sp_clock_source_name());
}

static PyObject *advance_clock(PyObject *module, PyObject *by)
{
    const unsigned long long ns = PyLong_AsUnsignedLongLong(by);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromUnsignedLongLong(atomic_fetch_add_explicit(&now, ns, memory_order_acq_rel) + ns);
}

static PyMethodDef functions[] = {
    {"_manual_clock", manual_clock, METH_O,
     "_manual_clock(start_ns): for tests. Times come from a clock that stands at start_ns; None: the machine's again.\n\n"
     "RuntimeError while a run is open. Runs of one clock cannot be collected under the other."},
    {"choose_clock", choose_clock, METH_O,
     "choose_clock(name): 'auto', 'tsc' or 'monotonic' for the runs of this process. ValueError if it has another already."},
    {"clock_source", clock_source, METH_NOARGS, "clock_source(): 'tsc' or 'monotonic'."},
    {"_advance_clock", advance_clock, METH_O, "_advance_clock(ns): move that clock on; the time it shows then."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_manual_clock(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
