/* hdf5_object.h - read_h5 and write_h5. */
#ifndef SP_PYTHON_HDF5_OBJECT_H
#define SP_PYTHON_HDF5_OBJECT_H

#include "formats/hdf5.h"
#include "python/state.h"

/* A stay inside libhdf5: other users of the library, or of the interpreter, are kept out or let in, as the library needs. */
typedef struct sp_hdf5_turn {
    PyObject *h5py_lock;   /* held, or NULL */
    PyThreadState *thread; /* the GIL is released; NULL: held */
} sp_hdf5_turn;

int sp_hdf5_turn_begin(sp_hdf5_turn *turn); /* -1 with an exception */
void sp_hdf5_turn_end(sp_hdf5_turn *turn);

/* How to write, from Python's arguments (None: the default). -1 with an exception. */
int sp_hdf5_parse_options(const char *compression, PyObject *level, PyObject *chunk_size, sp_hdf5_options *options);

/* Let the spool of a Run know of the file, which gets its last collection. -1 with an exception. */
int sp_hdf5_tell_run(PyObject *run, sp_hdf5_options *options);

int sp_python_add_hdf5(PyObject *module);

#endif
