/* spool_object.h - spools from Python: reading one, and what a run's own offers. */
#ifndef SP_PYTHON_SPOOL_OBJECT_H
#define SP_PYTHON_SPOOL_OBJECT_H

#include "python/state.h"

int sp_python_add_spool(PyObject *module);

#endif
