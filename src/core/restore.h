/* restore.h - a run rebuilt from what a store kept of one. Nothing records into it; it is there to be collected. */
#ifndef SP_CORE_RESTORE_H
#define SP_CORE_RESTORE_H

#include "core/run.h"

typedef struct sp_restore_options {
    bool tracks_threads, tracks_tasks;
    sp_ticks started;
    int64_t start_ns;
} sp_restore_options;

/* An empty run that no thread can find. It goes by sp_run_release. NULL when out of memory. */
sp_run *sp_run_restore(const sp_restore_options *options);

/* Its anchors, ascending; others are left out. */
bool sp_run_restore_anchor(sp_run *run, sp_anchor anchor);

/* The row `index`; rows below it that are missing get a placeholder. NULL when out of memory. */
sp_thread_row *sp_run_restore_row(sp_run *run, uint32_t index);

/* An interned string; ids come in order. */
bool sp_run_restore_string(sp_run *run, uint32_t id, const char *text);

/* A page of tasks, copied; names are taken off, because they are elsewhere. `count` tasks are in it. */
bool sp_run_restore_tasks(sp_run *run, uint32_t page, const sp_task *tasks, size_t count);

/*
 * Slots of the thread with this row: [begin, end), whole slots, all of them published. They are read and marked in place and
 * must outlive the run. Blocks of a row come in order.
 */
bool sp_run_restore_block(sp_run *run, uint32_t row, char *begin, char *end);

#endif
