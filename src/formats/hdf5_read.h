/* hdf5_read.h - what the readers of the schemas share. */
#ifndef SP_FORMATS_HDF5_READ_H
#define SP_FORMATS_HDF5_READ_H

#include "formats/hdf5.h"
#include "formats/hdf5_input.h"

typedef struct sp_reader {
    sp_input input;
    const sp_hdf5_selection *selection;
    hid_t file;
    sp_profile *profile;
} sp_reader;

bool sp_reader_wants_rank(const sp_reader *reader, int64_t rank);
bool sp_reader_wants_region(const sp_reader *reader, const char *name);

/* The number N of a group called "rank<N>", or -1. */
int64_t sp_reader_rank_of(const char *name);

/* Schema 1: a group per region. */
sp_status sp_reader_schema_1(sp_reader *reader);

/* Schemas 2 and 3: the columns of all calls, one after the other. */
sp_status sp_reader_columnar(sp_reader *reader);

/* What both have: /metadata, and the groups that are only carried through. */
sp_status sp_reader_metadata(sp_reader *reader);
sp_status sp_reader_aux(sp_reader *reader);

#endif
