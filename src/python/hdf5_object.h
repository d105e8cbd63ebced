/* hdf5_object.h - read_h5 and write_h5. */
#ifndef SP_PYTHON_HDF5_OBJECT_H
#define SP_PYTHON_HDF5_OBJECT_H

#include "python/state.h"

/*
 * A turn in libhdf5, with the GIL released where that is allowed. Between the two no Python object may be touched.
 * -1 with an exception: no turn was begun.
 */
typedef struct sp_hdf5_turn {
    PyObject *h5py_lock; /* held, or NULL */
    PyThreadState *thread;
} sp_hdf5_turn;

int sp_hdf5_turn_begin(sp_hdf5_turn *turn);
void sp_hdf5_turn_end(sp_hdf5_turn *turn);

int sp_python_add_hdf5(PyObject *module);

#endif
