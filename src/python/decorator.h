/*
 * decorator.h - `_core.wrap`: a callable that records each call of another.
 *
 * Two types, alike but for how they bind. ProfiledFunction stands for what binds as a method (functions, and all that has
 * Py_TPFLAGS_METHOD_DESCRIPTOR): it has that flag too, so that `object.method()` makes no bound method. ProfiledCallable
 * stands for the rest: built-ins, classes, partial objects, callables, bound methods.
 */
#ifndef SP_PYTHON_DECORATOR_H
#define SP_PYTHON_DECORATOR_H

#include "python/state.h"

int sp_python_add_decorator(PyObject *module);

#endif
