/*
 * hdf5_remote.h - a file whose calls are compressed and written by others: the writer leaves room for each chunk and says
 * where it is (ranks.h). Everything else of the file comes from a profile without calls.
 */
#ifndef SP_FORMATS_HDF5_REMOTE_H
#define SP_FORMATS_HDF5_REMOTE_H

#include "formats/chunk_codec.h"
#include "formats/file_replace.h"
#include "formats/hdf5.h"

/* How the columns are cut into chunks, and what is applied to each. */
typedef struct sp_remote_layout {
    uint64_t calls, chunk; /* elements of a column, of a chunk; chunk is 0 when there are no calls */
    uint64_t most;         /* elements of a chunk at most, unless the user says how many */
    uint64_t chunks;       /* of a column */
    uint32_t columns;      /* bit c: sp_column c is there */
    sp_pipeline filters;
} sp_remote_layout;

typedef struct sp_remote_chunk {
    uint64_t size;    /* bytes; 0: nobody has it */
    uint64_t place;   /* in the file, once it is written */
    uint32_t skipped; /* filters, as sp_chunk_encode says */
} sp_remote_chunk;

void sp_remote_layout_make(sp_remote_layout *layout, const sp_hdf5_options *options, uint64_t calls, uint32_t columns, uint64_t most);

/*
 * Write the file into `replacement`, which is begun, without its seal. `head` is a profile without calls whose rows say where
 * theirs lie; `chunks` has those of the columns that are there, column by column, and gets their places.
 */
sp_status sp_hdf5_write_remote(const sp_profile *head, const sp_remote_layout *layout, sp_remote_chunk *chunks,
                               const sp_hdf5_options *options, sp_replacement *replacement, sp_error *error);

#endif
