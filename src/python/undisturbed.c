/*
 * undisturbed.c - exceptions that meet the profiler at work and are meant for the program.
 *
 * Signal handlers run on the main thread only, as do pending calls, which may raise. On another thread an exception from outside is one of
 * PyThreadState_SetAsyncExc(), which takes classes only: it is set again.
 */
#include "python/undisturbed.h"

#include <unistd.h>

#include "platform/platform.h"
#include "python/delegate.h"

static int raise_now(void *argument)
{
    PyObject *error = argument;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return -1;
}

/* Whether this is the thread that handles signals: the process's first, unless somebody started the interpreter on another one. */
static bool is_main_thread(void)
{
    return sp_platform_thread_id() == (int64_t)getpid();
}

/* An exception is raised where the program goes on; takes the reference. */
static void raise_later(PyObject *error)
{
    if (is_main_thread()) {
        if (Py_AddPendingCall(raise_now, error) == 0) return; /* which holds it */
    } else if (PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), (PyObject *)Py_TYPE(error)) == 1) {
        Py_DECREF(error);
        return;
    }
    PyErr_SetObject((PyObject *)Py_TYPE(error), error); /* too many calls are pending */
    PyErr_WriteUnraisable(NULL);
    Py_DECREF(error);
}

PyObject *sp_call_undisturbed(PyObject *function, PyObject *const *arguments, size_t count)
{
    PyObject *answer = PyObject_Vectorcall(function, arguments, count, NULL);
    if (SP_LIKELY(answer != NULL)) return answer;
    PyObject *error = sp_exception_take();
    answer = PyObject_Vectorcall(function, arguments, count, NULL);
    if (answer && error) {
        raise_later(error);
        return answer;
    }
    Py_XDECREF(error);
    if (answer) return answer;
    if (sp_python_finalizing()) PyErr_Clear(); /* modules are being taken apart */
    else PyErr_WriteUnraisable(function);      /* its own fault, or no memory or stack is left */
    return NULL;
}

PyObject *sp_call_named_undisturbed(const char *module, const char *name, PyObject *const *arguments, size_t count)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *function = imported ? PyObject_GetAttrString(imported, name) : NULL;
    PyObject *answer = NULL;
    if (function) answer = sp_call_undisturbed(function, arguments, count);
    else PyErr_Clear();
    Py_XDECREF(function);
    Py_XDECREF(imported);
    return answer;
}
