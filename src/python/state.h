/*
 * state.h - the extension's module state. There is one interpreter (sub-interpreters get an ImportError), so the state is
 * a static pointer instead of a look-up from every type.
 */
#ifndef SP_PYTHON_STATE_H
#define SP_PYTHON_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "core/error.h"

typedef struct sp_state {
    PyObject *corrupt_error; /* CorruptProfileError(OSError) */
    PyObject *schema_error;  /* HDF5SchemaError(ValueError) */
    PyObject *nesting_error; /* NestingError(ValueError) */
    PyObject *summary_error; /* SummaryDataUnavailable(ValueError) */
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
