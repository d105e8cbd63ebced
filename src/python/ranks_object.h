/* ranks_object.h - what all ranks of a distributed run do together: share, collect, write. Messages go through Python. */
#ifndef SP_PYTHON_RANKS_OBJECT_H
#define SP_PYTHON_RANKS_OBJECT_H

#include "python/state.h"

int sp_python_add_ranks(PyObject *module);

#endif
