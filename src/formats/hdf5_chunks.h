/*
 * hdf5_chunks.h - write chunked datasets: chunks are made and compressed on a few threads, and written by the caller's.
 *
 *   worker 1   fill ─ shuffle ─ compress ─┐
 *   worker 2   fill ─ shuffle ─ compress ─┼─> slots (a handful of chunks) ─> the caller: H5Dwrite_chunk, in order
 *   ...                                   ┘
 *
 * Memory stays at a few chunks however long the dataset is: a source makes the values of one chunk when it is due.
 */
#ifndef SP_FORMATS_HDF5_CHUNKS_H
#define SP_FORMATS_HDF5_CHUNKS_H

#include <hdf5.h>

#include "formats/chunk_codec.h"

typedef struct sp_chunk_source {
    hid_t dataset;
    const char *name;  /* for messages */
    uint64_t count;    /* elements of the dataset */
    uint64_t chunk;    /* elements of a chunk; at least 1 */
    size_t element;    /* bytes */
    /* Put elements [first, first + count) into `out`. Called from several threads. */
    void (*fill)(const void *context, uint64_t first, uint64_t count, void *out);
    const void *context;
} sp_chunk_source;

/* `filters` says which filters the datasets were created with (its element size is ignored). */
sp_status sp_hdf5_write_chunks(const sp_chunk_source *sources, size_t count, const sp_pipeline *filters,
                               sp_error *error);

#endif
