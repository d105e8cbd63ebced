/* manual_clock.h - see manual_clock.c. */
#ifndef SP_PYTHON_MANUAL_CLOCK_H
#define SP_PYTHON_MANUAL_CLOCK_H

#include "python/state.h"

int sp_python_add_manual_clock(PyObject *module);

#endif
