/*
 * hdf5_chunks.h - write datasets piece by piece: pieces are compressed on all processors, and written by the caller's thread.
 *
 *   the caller: put ──> jobs (a handful) ─┬─> worker 1: fill · shuffle · compress ─┬─> jobs ──> the caller: H5Dwrite_chunk
 *                                         └─> worker 2 ...                         ┘
 *
 * There is a worker less than processors: a caller that finds no job free compresses too, and writes what is made. So it is never idle as long
 * as there is work, threads are woken seldom, and memory stays at a few chunks however long the datasets are. Chunks are written in the
 * order in which they were put, so that a run is always the same file.
 */
#ifndef SP_FORMATS_HDF5_CHUNKS_H
#define SP_FORMATS_HDF5_CHUNKS_H

#include <hdf5.h>

#include "formats/chunk_codec.h"

typedef struct sp_chunk_source {
    hid_t dataset;
    hid_t type;        /* of the elements in memory; needed only where `contiguous` is set */
    const char *name;  /* for messages */
    uint64_t count;    /* elements of the dataset */
    uint64_t chunk;    /* elements of a chunk, or of a piece of a dataset that is not chunked; at least 1 */
    size_t element;    /* bytes */
    bool contiguous;
    /* Put elements [first, first + count) into `out`. Called from several threads. NULL when pieces are given whole. */
    void (*fill)(const void *context, uint64_t first, uint64_t count, void *out);
    /* Take an encoded chunk instead of the dataset, on the caller's thread; NULL: it is written. */
    sp_status (*take)(void *taker, uint64_t first, const void *data, size_t size, uint32_t skipped, sp_error *error);
    void *taker;
    const void *context;
} sp_chunk_source;

/* Is shown the elements of a piece before they are compressed, on a thread of the writer's or on the caller's. */
typedef struct sp_chunk_look {
    void (*run)(void *context, const void *elements, uint64_t count);
    void *context;
} sp_chunk_look;

typedef struct sp_chunk_writer sp_chunk_writer;

/*
 * `filters` says which filters the datasets were created with (its element size is ignored), `largest` how many bytes a piece
 * has at most, `pieces` about how many there will be. NULL when out of memory.
 */
sp_chunk_writer *sp_chunk_writer_new(const sp_pipeline *filters, size_t largest, uint64_t pieces);

/* Room for the elements of one piece, for sp_chunk_writer_put; NULL when out of memory. */
void *sp_chunk_writer_buffer(sp_chunk_writer *writer);

/* A piece of a dataset. */
typedef struct sp_chunk_piece {
    const sp_chunk_source *source; /* must stay */
    void *buffer;                  /* from sp_chunk_writer_buffer, and the writer's again; NULL: source->fill makes the elements */
    const sp_chunk_look *look;     /* must stay; NULL: nobody looks */
} sp_chunk_piece;

/*
 * Write pieces of several datasets, each from element `first` on (a multiple of source->chunk). Put together they wake one worker. Fails
 * with the first failure there was.
 */
sp_status sp_chunk_writer_put(sp_chunk_writer *writer, const sp_chunk_piece *pieces, size_t count, uint64_t first, sp_error *error);

/* Write what was put so far. */
sp_status sp_chunk_writer_drain(sp_chunk_writer *writer, sp_error *error);

/* Write what is left and free the writer, and its buffers that were put. After a failure it only frees. */
sp_status sp_chunk_writer_finish(sp_chunk_writer *writer, sp_status status, sp_error *error);

/* A buffer that will not be put. */
void sp_chunk_writer_drop(sp_chunk_writer *writer, void *buffer);

/* All pieces of sources that fill. */
sp_status sp_hdf5_write_chunks(const sp_chunk_source *sources, size_t count, const sp_pipeline *filters,
                               sp_error *error);

#endif
