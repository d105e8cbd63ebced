/* hdf5_filters.h - LZF (32000) and Zstandard (32015) for libhdf5 itself, for datasets that are not read chunk by chunk. */
#ifndef SP_FORMATS_HDF5_FILTERS_H
#define SP_FORMATS_HDF5_FILTERS_H

#include <stdbool.h>

/* Register those that the process does not have yet. Within a session of hdf5_library.h. */
bool sp_hdf5_register_filters(void);

#endif
