/*
 * thread_rows.h - the rows of a run's threads. They stay for as long as the run, while everything else that a short thread had goes: so
 * they come from pages of many, with room for a short name. One by one they would each keep a page of malloc's from being given back.
 */
#ifndef SP_CORE_THREAD_ROWS_H
#define SP_CORE_THREAD_ROWS_H

#include "core/run.h"

/* The row behind the last one, with its index and name; whoever fills it counts it in run->row_count. NULL: no memory. With run->lock. */
sp_thread_row *sp_thread_row_new(sp_run *run, const char *name);

/* False: no memory, and it has the name that it had. With run->lock. */
bool sp_thread_row_rename(sp_thread_row *row, const char *name);

void sp_thread_rows_free(sp_run *run);

#endif
