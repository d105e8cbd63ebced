/* profile_input.h - profiles made from Python values: make_profile, replace_profile and what pickle calls. */
#ifndef SP_PYTHON_PROFILE_INPUT_H
#define SP_PYTHON_PROFILE_INPUT_H

#include "python/state.h"

/* The column of this name, or -1. */
int sp_column_find(const char *name);

int sp_python_add_profile_input(PyObject *module);

#endif
