/*
 * registry.h - the process-wide lists: runs, threads, and the graveyard. Internal to core.
 *
 * The graveyard holds blocks of runs that are gone but in which a call is still open somewhere (a suspended generator,
 * a thread inside a region): whoever ends that call will write into it. Such a block keeps only the pages of its open
 * calls, and goes when the last of them has ended.
 */
#ifndef SP_CORE_REGISTRY_H
#define SP_CORE_REGISTRY_H

#include "core/run.h"

void sp_registry_add_run(sp_run *run);    /* gives it its token */
void sp_registry_remove_run(sp_run *run); /* no new logs, gate closed; idempotent */
void sp_registry_drop_run(sp_run *run, void (*shrink)(sp_log *log));
void sp_run_release(sp_run *run);

/* Whether any run is open. */
bool sp_registry_is_recording(void);

/* Free the block, or keep it while a call in it is open. With the registry's lock held. */
void sp_registry_bury(sp_log *log, sp_block *block);

/* Whether every published slot of the block is closed. */
bool sp_block_closed(const sp_block *block, const char *next, uint32_t stride);

void sp_registry_lock(void);
void sp_registry_unlock(void);

#endif
