/* trace_object.h - native traces: read_trace, find_traces, load_traces and read_samples. */
#ifndef SP_PYTHON_TRACE_OBJECT_H
#define SP_PYTHON_TRACE_OBJECT_H

#include "python/state.h"

int sp_python_add_traces(PyObject *module);

#endif
