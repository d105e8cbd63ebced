/*
 * call_stream.h - the calls of a collection into the datasets of a file, without ever having all of them in memory.
 *
 *   walk of the collection, in start order            datasets, row by row
 *     call ──> row 3 ──> chunk 7 of every column  ┐
 *     call ──> row 0 ──> chunk 0                  ├──> a chunk that is full: compressed and written (hdf5_chunks.h)
 *     call ──> row 3 ──> chunk 7                  ┘
 *
 * So one chunk a column is open for each row under way. Where there are too many rows for that, the collection is walked several
 * times, each time for a group of rows. Statistics, percentiles (spread.h) and the sums by call path are made on the way.
 */
#ifndef SP_FORMATS_CALL_STREAM_H
#define SP_FORMATS_CALL_STREAM_H

#include "analysis/collection.h"
#include "formats/hdf5_chunks.h"
#include "formats/summary_job.h"

/* What open chunks may take together, in bytes. */
#define SP_STREAM_MEMORY ((uint64_t)64 << 20)

/* Calls of a chunk, if nothing speaks for fewer: a column of them stays in the second-level cache while it is made and compressed. */
#define SP_STREAM_CHUNK ((uint64_t)16 << 10)

/* Which columns calls have, as bits by sp_column: of a collection's profile, whose calls nest where `tree` is set. */
uint32_t sp_stream_columns(const sp_profile *profile, bool tree);

/* Elements of a chunk, at most `most`, with which one walk is enough, for files of `columns` columns; or a few thousand. */
uint64_t sp_stream_chunk(const sp_profile *profile, size_t columns, uint64_t most);

/* The part of datasets that one of several ranks has. */
typedef struct sp_stream_part {
    uint64_t first; /* where its first call is in the datasets */
    /* Gets `count` elements from `first` on, of a chunk in which other ranks have calls too: at both ends of the part. */
    sp_status (*edge)(void *context, sp_column column, uint64_t first, uint64_t count, const int64_t *values, sp_error *error);
    void *context;
} sp_stream_part;

/*
 * Write the calls. `sources` are the datasets by sp_column (SP_COLUMN_START gets differences, SP_COLUMN_END durations); those
 * without a name are left out; all have the same chunks. `summary` gets the statistics, percentiles and, where they are worth their place,
 * the sums by path; NULL: they are not made. `part` may be NULL: the datasets have these calls alone. SP_ERR_NESTING: `tree`, and calls
 * of a lane overlap: what was written is of no use.
 */
sp_status sp_stream_calls(sp_collection *collection, const sp_chunk_source sources[SP_COLUMN_COUNT],
                          const sp_pipeline *filters, bool tree, sp_summary_job *summary, const sp_stream_part *part,
                          sp_error *error);

/* Only the summary. */
sp_status sp_stream_sums(sp_collection *collection, bool tree, sp_summary_job *summary, sp_error *error);

#endif
