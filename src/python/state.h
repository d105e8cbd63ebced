/*
 * state.h - the extension's module state. There is one interpreter (sub-interpreters get an ImportError), so the state is
 * a static pointer instead of a look-up from every type.
 */
#ifndef SP_PYTHON_STATE_H
#define SP_PYTHON_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdbool.h>

#include "core/error.h"

/*
 * What a thread changes while others may read it. With the GIL these are nothing; without it the object's own lock guards the
 * statements between them. Nothing that may run other code belongs there: the lock is let go of when the thread waits.
 */
#if PY_VERSION_HEX >= 0x030d0000
#define SP_LOCK_OBJECT(object) Py_BEGIN_CRITICAL_SECTION(object)
#define SP_UNLOCK_OBJECT() Py_END_CRITICAL_SECTION()
#else
#define SP_LOCK_OBJECT(object) {
#define SP_UNLOCK_OBJECT() }
#endif

/* A new reference to what an object's field holds, or NULL; and to put something else there, whose reference is taken over. */
static inline PyObject *sp_field_get(PyObject *object, PyObject *const *field)
{
    PyObject *value;
    SP_LOCK_OBJECT(object);
    value = Py_XNewRef(*field);
    SP_UNLOCK_OBJECT();
    return value;
}

static inline void sp_field_set(PyObject *object, PyObject **field, PyObject *value)
{
    PyObject *old;
    SP_LOCK_OBJECT(object);
    old = *field;
    *field = value;
    SP_UNLOCK_OBJECT();
    Py_XDECREF(old);
}

/* What the field holds, whose reference is handed over, and nothing in its place. */
static inline PyObject *sp_field_take(PyObject *object, PyObject **field)
{
    PyObject *value;
    SP_LOCK_OBJECT(object);
    value = *field;
    *field = NULL;
    SP_UNLOCK_OBJECT();
    return value;
}

/* A new reference to dict[key]; NULL without an exception when there is none. */
static inline PyObject *sp_dict_get(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *value;
    PyDict_GetItemRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

/* dict.setdefault(key, value): a new reference to what is there then, or NULL with an exception. */
static inline PyObject *sp_dict_set_default(PyObject *dict, PyObject *key, PyObject *value)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *present;
    PyDict_SetDefaultRef(dict, key, value, &present);
    return present;
#else
    return Py_XNewRef(PyDict_SetDefault(dict, key, value));
#endif
}

/* Call it. The vectorcall of a Python function directly: PyObject_Vectorcall looks it up, and checks the result, which our own caller does again. */
static inline PyObject *sp_forward(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (__builtin_expect(PyFunction_Check(function), 1)) return ((PyFunctionObject *)function)->vectorcall(function, args, nargsf, kwnames);
    return PyObject_Vectorcall(function, args, nargsf, kwnames);
}

/*
 * Without the GIL runs begin and end one after the other with all that they change in what the process has once: threading's hook, the
 * events of the interpreter. Or the end of one would take out what another has just put in. The same thread may begin a change within
 * one: the collector of garbage may end a run.
 */
#ifdef Py_GIL_DISABLED
extern pthread_mutex_t sp_python_changes;

/* Who waits lets go of the interpreter, or it could not be stopped for who has the lock. */
static inline void sp_python_lock(pthread_mutex_t *mutex)
{
    if (pthread_mutex_trylock(mutex) == 0) return;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(mutex);
    Py_END_ALLOW_THREADS
}

#define SP_BEGIN_CHANGE() sp_python_lock(&sp_python_changes)
#define SP_END_CHANGE() pthread_mutex_unlock(&sp_python_changes)
#else
#define SP_BEGIN_CHANGE() ((void)0)
#define SP_END_CHANGE() ((void)0)
#endif

/* In a forked child: another thread of the parent may have had the lock. */
void sp_python_changes_forked(void);

typedef struct sp_state {
    PyObject *corrupt_error; /* CorruptProfileError(OSError) */
    PyObject *schema_error;  /* HDF5SchemaError(ValueError) */
    PyObject *nesting_error; /* NestingError(ValueError) */
    PyObject *summary_error; /* SummaryDataUnavailable(ValueError) */
    PyObject *trace_error;   /* TraceFormatError(ValueError) */
    PyTypeObject *profile_type, *column_type, *values_type;
} sp_state;

extern sp_state *sp_python_state;

/* Raise the exception that fits `status`, with the error's message; returns NULL. `path` (may be NULL) goes into
 * OSError.filename. */
PyObject *sp_python_raise(sp_status status, const sp_error *error, const char *path);

/* Whether the interpreter is on its way out: modules may be gone, nothing should be imported. */
static inline bool sp_python_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

/* Each file of the extension adds its types and functions; 0, or -1 with an exception set. */
int sp_python_add_errors(PyObject *module);

#endif
