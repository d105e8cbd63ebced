/* export_object.h - exports of profiles for Python. */
#ifndef SP_PYTHON_EXPORT_OBJECT_H
#define SP_PYTHON_EXPORT_OBJECT_H

#include "python/state.h"

int sp_python_add_exports(PyObject *module);

#endif
