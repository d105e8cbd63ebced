/* profile_object.h - sp_profile as a Python object, for the parts that make or take one. */
#ifndef SP_PYTHON_PROFILE_OBJECT_H
#define SP_PYTHON_PROFILE_OBJECT_H

#include "python/state.h"

#include "analysis/profile.h"

/* A Profile that takes over the caller's reference, also when it fails (NULL with an exception). */
PyObject *sp_profile_object_new(sp_profile *profile);

/* The profile of a Profile, borrowed: it lives as long as the object. NULL with a TypeError for anything else. */
sp_profile *sp_profile_object_get(PyObject *object);

/* A read-only memoryview (format "q") of int64 values that belong to `profile`, which it keeps alive. */
PyObject *sp_column_view_new(sp_profile *profile, const int64_t *data, uint64_t count);

int sp_python_add_profile(PyObject *module);

#endif
