/*
 * column_memory.h - memory of columns: one int64 a call.
 *
 * Large columns are mapped on huge pages. Where memory is fresh, the kernel fills it with zeros first, which takes longer than
 * all else that is done to a call tree: 12 of 21 ms for the 112 MB of 2 M calls. So what was used for columns that are made again
 * and again (call trees, what an export is sorted in) is kept for the next ones: up to 128 MB, lent to the kernel, which takes it
 * when memory is scarce. Columns of a run are given back at once.
 */
#ifndef SP_ANALYSIS_COLUMN_MEMORY_H
#define SP_ANALYSIS_COLUMN_MEMORY_H

#include <stdint.h>

/* `count` values; NULL when out of memory. What is in them is not known, or 0. */
int64_t *sp_column_alloc(uint64_t count);
int64_t *sp_column_zeros(uint64_t count);

/* A column over a file's bytes at `offset` (a multiple of the page size), private to us; NULL if it is too small for that. */
int64_t *sp_column_map(int fd, uint64_t offset, uint64_t count);

/* The end of a column of `count` values, made by any of these; NULL is allowed. */
void sp_column_free(int64_t *column, uint64_t count);
/* The same, for one that another of its size is likely to follow. Not for columns of sp_column_map. */
void sp_column_recycle(int64_t *column, uint64_t count);

#endif
