/* native.h - the extension as the host of native code: what C, C++ and Fortran record goes into the leading recorder's run. */
#ifndef SP_PYTHON_NATIVE_H
#define SP_PYTHON_NATIVE_H

#include "python/recorder.h"

/* The run of the leading recorder begins, is paused or resumed, and is over. */
void sp_native_follow(const sp_recorder_object *recorder, sp_run *run);
void sp_native_follow_pause(const sp_recorder_object *recorder, const sp_run *run, bool paused);
void sp_native_unfollow(const sp_recorder_object *recorder, const sp_run *run);

/* recorder.host_native(): this recorder leads from now on. */
PyObject *sp_recorder_host_native(PyObject *recorder, PyObject *none);

PyObject *sp_recorder_native_metadata(PyObject *recorder, PyObject *none);

/* The extension's _C_API, and copies of the library that are there already. */
int sp_python_add_native(PyObject *module);

#endif
