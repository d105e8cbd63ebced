/* trio_instrument.h - trio tasks as lanes. */
#ifndef SP_PYTHON_TRIO_INSTRUMENT_H
#define SP_PYTHON_TRIO_INSTRUMENT_H

#include "python/state.h"

int sp_python_add_trio_instrument(PyObject *module);

#endif
