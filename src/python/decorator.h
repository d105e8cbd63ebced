/*
 * decorator.h - `_core.wrap`: a callable that records each call of another.
 *
 * Three types, alike but for how they bind. ProfiledFunction stands for what binds as a method (functions, and all that
 * has Py_TPFLAGS_METHOD_DESCRIPTOR): it has that flag too, so that `object.method()` makes no bound method.
 * ProfiledDescriptor stands for callables with a __get__ of their own, ProfiledCallable for those without: built-ins,
 * classes, callable objects.
 */
#ifndef SP_PYTHON_DECORATOR_H
#define SP_PYTHON_DECORATOR_H

#include "python/state.h"

int sp_python_add_decorator(PyObject *module);

#endif
