/*
 * ranks.h - what all ranks of a distributed run recorded, as one profile or one file. Collective: every rank calls the same
 * function, with its own profile, whose rows all carry its own rank.
 *
 * The file is written by all ranks at once, without parallel HDF5. Only rank 0 uses the library, and it never sees a call:
 *
 *   every rank                                     rank 0
 *   0 clocks: one rank of each clock domain  <────>  its time and rank 0's, at the same moment
 *   1 head: rows, tables, sums, no calls   ──tree──>  joins them; knows how many calls lie where
 *   2                                      <──tree──  the plan: the first call of each rank, the size of a chunk, filters
 *   3 values of its calls; those of a chunk that begins on an earlier rank are sent there
 *     compresses the chunks that begin with it
 *   4 their sizes                          ──tree──>  writes the HDF5 file: metadata for real, chunks as holes of their size
 *   5                                      <──tree──  where each chunk goes
 *   6 puts its chunks there (pwrite)       ──tree──>  puts them there for ranks that do not see the file
 *   7 checksum of its share of the file    ──tree──>  the seal
 *   8 notes which file it will be in      <──tree──>  makes the file durable and renames it
 *
 * What rank 0 holds grows with the rows and lanes of all ranks, and with 24 bytes a chunk, not with the calls. A rank that
 * gives a profile holds its calls, one column of them twice, and its compressed chunks. One that gives a collection holds a
 * few chunks (call_stream.h): it walks over its calls twice, for 1 and for 3, and keeps compressed chunks in a file without a
 * name until 6. docs/distributed.md has the costs.
 */
#ifndef SP_FORMATS_RANKS_H
#define SP_FORMATS_RANKS_H

#include "analysis/collection.h"
#include "analysis/profile.h"
#include "core/clock.h"
#include "core/comm.h"
#include "formats/hdf5.h"

/*
 * Compare this rank's clock with that of rank 0: `point` is one moment on both. Ranks of one clock domain have one of them do it,
 * by a few messages to and fro; in rank 0's domain both are the same. point->error_ns is half of the fastest round trip, and
 * SP_UNKNOWN when rank 0 could not be asked. A missing rank is no failure here.
 */
sp_status sp_ranks_sync(sp_comm *comm, int64_t clock_domain, sp_sync_point *point, sp_error *error);

/*
 * All ranks' profiles as one, in memory, on rank 0 (`*out`; NULL on the others). A problem of any rank is the status on every
 * rank, and its message names the rank; `report` (may be NULL) says whether a rank was missing. When the only problem is that
 * ranks are missing, `*out` has the others.
 */
sp_status sp_ranks_collect(sp_comm *comm, sp_profile *profile, sp_profile **out, sp_report *report, sp_error *error);

/*
 * All ranks' profiles into one file. The same on errors; when the only problem is that ranks are missing, the file has the
 * others, with `missing_ranks` in its metadata, and `*written` is true on the ranks whose calls are in it. `*written` is true
 * as well when all is well.
 */
sp_status sp_ranks_write(sp_comm *comm, sp_profile *profile, const char *path, const sp_hdf5_options *options,
                         bool *written, sp_report *report, sp_error *error);

/*
 * The same with the calls of a collection, which stays to be ended; ranks may do one or the other. If they are written, the
 * collection's profile has its statistics, percentiles and sums by path, and is summary_only.
 */
sp_status sp_ranks_write_collection(sp_comm *comm, sp_collection *collection, const char *path, const sp_hdf5_options *options,
                                    bool *written, sp_report *report, sp_error *error);

#endif
