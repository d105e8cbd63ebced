/* module.c - scope_profiler._core: the parts of the extension, put together. */
#include "python/state.h"

#include <string.h>

#include "python/call_probe.h"
#include "python/call_tree_object.h"
#include "python/coroutine.h"
#include "python/decorator.h"
#include "python/export_object.h"
#include "python/function_tracer.h"
#include "python/greenlets.h"
#include "python/hdf5_object.h"
#include "python/manual_clock.h"
#include "python/native.h"
#include "python/open_call.h"
#include "python/path_summary_object.h"
#include "python/profile_object.h"
#include "python/ranks_object.h"
#include "python/recorder.h"
#include "python/records.h"
#include "python/spool_object.h"
#include "python/stack_sampler.h"
#include "python/task_wrapper.h"
#include "python/trace_object.h"
#include "python/trio_instrument.h"

static sp_state the_state;
sp_state *sp_python_state = &the_state;

#ifdef Py_GIL_DISABLED
pthread_mutex_t sp_python_changes = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
#endif

void sp_python_changes_forked(void)
{
#ifdef Py_GIL_DISABLED
    sp_python_changes = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
#endif
}

static int add_error(PyObject *module, const char *name, PyObject *base, const char *doc, PyObject **kept)
{
    PyObject *error = PyErr_NewExceptionWithDoc(name, doc, base, NULL);
    if (error == NULL) return -1;
    *kept = error;
    return PyModule_AddObjectRef(module, strrchr(name, '.') + 1, error);
}

int sp_python_add_errors(PyObject *module)
{
    if (add_error(module, "scope_profiler.CorruptProfileError", PyExc_OSError,
                  "A profile that is empty, truncated, damaged or inconsistent.", &the_state.corrupt_error) < 0 ||
        add_error(module, "scope_profiler.h5schema.HDF5SchemaError", PyExc_ValueError,
                  "A profile of a schema version that is unknown.", &the_state.schema_error) < 0) {
        return -1;
    }
    return add_error(module, "scope_profiler.NestingError", PyExc_ValueError,
                     "Calls of one lane that overlap without nesting.", &the_state.nesting_error);
}

/* A path in a message need not be UTF-8. */
static PyObject *decode_message(const char *message)
{
    return PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "backslashreplace");
}

static PyObject *raise_with(PyObject *type, const char *message)
{
    PyObject *text = decode_message(message);
    if (text) PyErr_SetObject(type, text);
    Py_XDECREF(text);
    return NULL;
}

/* The message without "PATH", where it says "... PATH: why": OSError shows the path behind the message. New reference. */
static PyObject *without_path(PyObject *message, PyObject *path)
{
    PyObject *named = PyUnicode_FromFormat(" %U: ", path);
    PyObject *colon = PyUnicode_FromString(": ");
    PyObject *text = named && colon ? PyUnicode_Replace(message, named, colon, 1) : NULL;
    Py_XDECREF(named);
    Py_XDECREF(colon);
    return text;
}

/* OSError picks its subclass (FileNotFoundError, PermissionError, ...) by errno. */
static PyObject *raise_os_error(int system, const char *message, const char *path)
{
    PyObject *text = decode_message(message);
    PyObject *name = path ? PyUnicode_DecodeFSDefault(path) : Py_NewRef(Py_None);
    PyObject *exception = NULL;
    if (text && name && system && path) Py_SETREF(text, without_path(text, name));
    if (text && name) {
        exception = system ? PyObject_CallFunction(PyExc_OSError, "iOO", system, text, name)
                           : PyObject_CallFunctionObjArgs(PyExc_OSError, text, NULL);
    }
    if (exception) PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_XDECREF(text);
    Py_XDECREF(name);
    Py_XDECREF(exception);
    return NULL;
}

PyObject *sp_python_raise(sp_status status, const sp_error *error, const char *path)
{
    const char *message = error && error->message[0] ? error->message : sp_error_string(status);
    switch (status) {
    case SP_ERR_NO_MEMORY: return PyErr_NoMemory();
    case SP_ERR_CORRUPT:
    case SP_ERR_FOREIGN: return raise_with(the_state.corrupt_error, message);
    case SP_ERR_SCHEMA: return raise_with(the_state.schema_error, message);
    case SP_ERR_NESTING: return raise_with(the_state.nesting_error, message);
    case SP_ERR_UNSUPPORTED:
    case SP_ERR_INVALID: return raise_with(PyExc_ValueError, message);
    default: return raise_os_error(error ? error->system : 0, message, path);
    }
}

/* Add a part: its function adds types and functions to the module. */
static int (*const parts[])(PyObject *) = {
    sp_python_add_errors,
    sp_python_add_call_probe,
    sp_python_add_profile,
    sp_python_add_hdf5,
    sp_python_add_ranks,
    sp_python_add_call_tree,
    sp_python_add_exports,
    sp_python_add_path_summary,
    sp_python_add_region,
    sp_python_add_recorder,
    sp_python_add_open_call,
    sp_python_add_run,
    sp_python_add_records,
    sp_python_add_spool,
    sp_python_add_stack_sampler,
    sp_python_add_traces,
    sp_python_add_thread_hook,
    sp_python_add_trio_instrument,
    sp_python_add_greenlets,
    sp_python_add_function_tracer,
    sp_python_add_coroutine,
    sp_python_add_decorator,
    sp_python_add_task_wrapper,
    sp_python_add_manual_clock,
    sp_python_add_native,
};

/*
 * Types and names are static: they belong to the first interpreter of the process, and end with it.
 * Set when its exit handlers run.
 */
static bool ended;

static PyObject *at_exit(PyObject *self, PyObject *none)
{
    sp_python_forget_asyncio();
    ended = true;
    sp_samplers_stop();
    Py_RETURN_NONE;
}

static int register_at_exit(void)
{
    static PyMethodDef method = {"_at_exit", at_exit, METH_NOARGS, "Let go of what belongs to the interpreter."};
    PyObject *module = PyImport_ImportModule("atexit");
    PyObject *function = module ? PyCFunction_New(&method, NULL) : NULL;
    PyObject *done = function ? PyObject_CallMethod(module, "register", "O", function) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(function);
    Py_XDECREF(module);
    return done ? 0 : -1;
}

static int module_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "scope_profiler records the main interpreter; it cannot be used in a subinterpreter");
        return -1;
    }
    if (ended) {
        PyErr_SetString(PyExc_ImportError, "scope_profiler can be imported once in a process; its interpreter has been finalized");
        return -1;
    }
    if (register_at_exit() < 0) return -1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i](module) < 0) return -1;
    }
    return PyModule_AddStringConstant(module, "__version__", sp_version());
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "scope_profiler._core",
    .m_doc = "The C core of scope_profiler; internal.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&module_definition);
}
