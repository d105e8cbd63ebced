/* hdf5_object.h - read_h5 and write_h5. */
#ifndef SP_PYTHON_HDF5_OBJECT_H
#define SP_PYTHON_HDF5_OBJECT_H

#include "python/state.h"

int sp_python_add_hdf5(PyObject *module);

#endif
