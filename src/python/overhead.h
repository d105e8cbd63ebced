/* overhead.h - what recording a call costs in this process, measured here and now. */
#ifndef SP_PYTHON_OVERHEAD_H
#define SP_PYTHON_OVERHEAD_H

#include "python/state.h"

/* run.overhead(): (calls, ns of one). */
PyObject *sp_run_overhead(PyObject *recorder, PyObject *none);

#endif
