/* open_call.h - a call that is begun, renamed and ended by statements of its own, for code whose calls get their names late. */
#ifndef SP_PYTHON_OPEN_CALL_H
#define SP_PYTHON_OPEN_CALL_H

#include "python/state.h"

int sp_python_add_open_call(PyObject *module);

#endif
