/*
 * call_paths.h - the calls of a rank summed by call path, for profiles and graphs that show trees: one node a path.
 *
 * A call directly inside one of its own region is a level of the same node (recursion). Every lane's roots are roots. Calls
 * that overlap without nesting count on extra tracks (tracks.h), where their exclusive time is what their own children
 * leave.
 */
#ifndef SP_ANALYSIS_CALL_PATHS_H
#define SP_ANALYSIS_CALL_PATHS_H

#include "analysis/tracks.h"
#include "core/index.h"

typedef struct sp_call_path {
    uint32_t row;      /* of the profile: the region */
    uint32_t parent;   /* node, smaller than this one's number; SP_NO_CALL: a root */
    uint64_t calls;    /* every level */
    uint64_t outermost; /* without the levels of a recursion */
    int64_t total_ns;  /* of the outermost calls */
    int64_t exclusive_ns;
} sp_call_path;

typedef struct sp_call_paths {
    sp_call_path *nodes;
    uint32_t count;
    size_t size;
    sp_index index; /* of nodes by parent and row */
} sp_call_paths;

/*
 * Of all lanes of a rank. `visible` (by name; NULL: all) leaves regions out. 6 bytes a call while it runs: ids that calls
 * carry are believed if they count the calls from some number on and parents come before their children; else the calls
 * are nested by time.
 */
sp_status sp_call_paths_make(sp_call_paths *paths, const sp_profile *profile, uint32_t rank, const bool *visible,
                             sp_error *error);

/* Of one track. */
sp_status sp_call_paths_of_track(sp_call_paths *paths, const sp_tracks *tracks, const sp_track *track, sp_error *error);

void sp_call_paths_free(sp_call_paths *paths);

#endif
