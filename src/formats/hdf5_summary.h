/*
 * hdf5_summary.h - the group /summary, which the reference implementation does not know and ignores: percentiles by row and
 * totals by call path, so that a summary of a file never reads its calls. Layout: docs/file-format.md.
 */
#ifndef SP_FORMATS_HDF5_SUMMARY_H
#define SP_FORMATS_HDF5_SUMMARY_H

#include "formats/hdf5_read.h"

#define SP_SUMMARY_VERSION 1

/* The datasets of percentiles, one for each of sp_percentile_ranks. */
extern const char *const sp_percentile_names[SP_PERCENTILE_COUNT];

/*
 * Compounds of rank_region_index/summary_statistics, /summary/paths and /summary/threads as they lie in memory
 * (sp_row_statistics, sp_path_row, sp_thread_usage); the file has them without the gaps. To be closed.
 */
hid_t sp_statistics_type(void);
hid_t sp_path_row_type(void);
hid_t sp_thread_usage_type(void);

/* Percentiles of the index's rows, SP_PERCENTILE_COUNT a row, malloc'ed; NULL if the file has none. */
sp_status sp_summary_read_percentiles(sp_reader *reader, uint64_t row_count, double **percentiles);

/* The summary by call path, into the profile, reduced to the ranks that are read; nothing if the file has none. */
sp_status sp_summary_read_paths(sp_reader *reader);

#endif
