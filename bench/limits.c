/*
 * What the machine and the interpreter allow at best, for bench/limits.py: clocks that are only read, and objects that are
 * entered, called and told of switches, and do nothing.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <structmember.h>
#include <sys/mman.h>
#include <time.h>

#include "platform/counter.h"

static inline uint64_t ns_by(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#define CPU CLOCK_PROCESS_CPUTIME_ID /* what else runs on the machine does not count, as for what is measured beside a limit */

typedef struct record {
    volatile uint64_t start, end;
    volatile uint32_t region;
    volatile int32_t task;
} record;

/* ns of processor time a pair of two reads that are stored, into `size` records in turn. */
static double pair_ns(record *records, long count, long size, bool kernel)
{
    const uint64_t begin = ns_by(CPU);
    for (long i = 0; i < count; i++) {
        record *one = &records[i % size];
        one->region = 1;
        one->task = -1;
        one->start = kernel ? ns_by(CLOCK_MONOTONIC) : sp_processor_counter();
        one->end = kernel ? ns_by(CLOCK_MONOTONIC) : sp_processor_counter();
    }
    return (double)(ns_by(CPU) - begin) / (double)count;
}

static PyObject *counter_pair(PyObject *module, PyObject *none)
{
    static record one;
    return PyFloat_FromDouble(pair_ns(&one, 1000000, 1, false));
}

static PyObject *kernel_pair(PyObject *module, PyObject *none)
{
    static record one;
    return PyFloat_FromDouble(pair_ns(&one, 1000000, 1, true));
}

#define HUGE_PAGE ((size_t)2 << 20)

/* The same into memory that is touched for the first time, in huge pages where there are any. */
static PyObject *fresh_pair(PyObject *module, PyObject *none)
{
    const long count = 1000000;
    const size_t bytes = (count * sizeof(record) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return PyErr_NoMemory();
    madvise(memory, bytes, MADV_HUGEPAGE);
    char *aligned = (char *)(((uintptr_t)memory + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    const double ns = pair_ns((record *)aligned, count, count, false);
    munmap(memory, bytes);
    return PyFloat_FromDouble(ns);
}

static PyObject *callback(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_RETURN_NONE;
}

/* ---- an empty context manager ---- */

static PyObject *manager_enter(PyObject *self, PyObject *none)
{
    return Py_NewRef(self);
}

static PyObject *manager_exit(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_RETURN_NONE;
}

static PyMethodDef manager_methods[] = {
    {"__enter__", manager_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))manager_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot manager_slots[] = {{Py_tp_methods, manager_methods}, {0, NULL}};
static PyType_Spec manager_spec = {"_limits.Manager", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, manager_slots};

/* ---- a decorator that only forwards ---- */

typedef struct forwarder {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;
} forwarder;

static PyObject *forwarder_call(PyObject *self, PyObject *const *arguments, size_t flagged, PyObject *names)
{
    return PyObject_Vectorcall(((forwarder *)self)->function, arguments, flagged, names);
}

static PyObject *forwarder_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *function;
    if (!PyArg_ParseTuple(arguments, "O", &function)) return NULL;
    forwarder *self = (forwarder *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = forwarder_call;
    self->function = Py_NewRef(function);
    return (PyObject *)self;
}

static PyMemberDef forwarder_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(forwarder, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot forwarder_slots[] = {
    {Py_tp_new, forwarder_new}, {Py_tp_call, PyVectorcall_Call}, {Py_tp_members, forwarder_members}, {0, NULL}};
static PyType_Spec forwarder_spec = {"_limits.Forwarder", sizeof(forwarder), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, forwarder_slots};

static PyMethodDef functions[] = {
    {"counter_pair", counter_pair, METH_NOARGS, NULL},
    {"kernel_pair", kernel_pair, METH_NOARGS, NULL},
    {"fresh_pair", fresh_pair, METH_NOARGS, NULL},
    {"callback", (PyCFunction)(void (*)(void))callback, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_limits", NULL, -1, functions};

PyMODINIT_FUNC PyInit__limits(void)
{
    PyObject *self = PyModule_Create(&module);
    PyObject *manager = self ? PyType_FromSpec(&manager_spec) : NULL;
    PyObject *forward = manager ? PyType_FromSpec(&forwarder_spec) : NULL;
    if (forward == NULL || PyModule_AddObjectRef(self, "Manager", manager) < 0 ||
        PyModule_AddObjectRef(self, "Forwarder", forward) < 0) {
        Py_CLEAR(self);
    }
    Py_XDECREF(manager);
    Py_XDECREF(forward);
    return self;
}
