/* path_summary_object.h - sums by call path for Python. */
#ifndef SP_PYTHON_PATH_SUMMARY_OBJECT_H
#define SP_PYTHON_PATH_SUMMARY_OBJECT_H

#include "python/state.h"

int sp_python_add_path_summary(PyObject *module);

#endif
