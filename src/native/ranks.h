/*
 * ranks.h - the last file of a native run whose ranks write one together. The program's sp_link (scope_profiler.h) is the
 * transport of the core's sp_comm.
 */
#ifndef SP_NATIVE_RANKS_H
#define SP_NATIVE_RANKS_H

#include "analysis/collection.h"
#include "core/comm.h"
#include "formats/hdf5.h"
#include "native/profiler.h"

typedef struct sp_team {
    sp_comm comm;
    int hosts; /* that its ranks are on */
} sp_team;

/* Meet the others, before anything is written: a rank with a problem of its own tells it, and all get it. Collective. */
sp_status sp_native_meet(sp_link *link, sp_status own, sp_team *team, sp_error *error);

/*
 * Write one file. Collective. `*written`: this rank's calls are in it, whatever the status says of others. When the team's
 * `comm.cut_off` is set, rank 0 was lost, and nothing is known of the file.
 */
sp_status sp_native_write_ranks(sp_team *team, sp_collection *collection, const char *path, const sp_hdf5_options *options,
                                bool *written, sp_error *error);

/* "prefix.h5" for all ranks, of "prefix_rank00007" for one; NULL without memory. To be freed. */
char *sp_native_shared_path(const char *output);

#endif
