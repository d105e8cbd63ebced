#ifndef SP_PYTHON_UNDISTURBED_H
#define SP_PYTHON_UNDISTURBED_H

#include "python/state.h"

/*
 * What a Python function of this package returns, called where the program cannot be told of errors. A new reference; NULL without an
 * exception: it failed. An exception of the first attempt that the second does not meet is none of its own, but what a signal handler raised
 * meanwhile, or another thread for this one: the program gets it where it goes on.
 */
PyObject *sp_call_undisturbed(PyObject *function, PyObject *const *arguments, size_t count);

/* The same with a function of a module, which has been imported before. */
PyObject *sp_call_named_undisturbed(const char *module, const char *name, PyObject *const *arguments, size_t count);

#endif
