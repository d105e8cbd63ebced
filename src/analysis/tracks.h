/*
 * tracks.h - the calls of a rank as viewers draw them: one track a lane, on which every call lies inside the one below it.
 *
 *     calls   [ track 0: calls in call order | track 1 | track 2 | ... ]    4 bytes a call
 *
 * Tracks are in the order of their lanes: threads from the highest number down, then tasks. Where calls of a lane overlap
 * without nesting, those that do not fit move to extra tracks of the lane, so that a viewer neither drops nor cuts them:
 * a call goes to the first track on which it nests. A call that ends before it starts counts as one of no length.
 */
#ifndef SP_ANALYSIS_TRACKS_H
#define SP_ANALYSIS_TRACKS_H

#include "analysis/call_tree.h"
#include "analysis/profile.h"
#include "analysis/resolve.h"

typedef struct sp_track {
    int64_t lane;   /* SP_LANE_UNKNOWN too when the rank has no lanes */
    uint32_t extra; /* 0: the lane's own track; else its nth extra one */
    uint64_t first, count; /* into calls; the first one starts the track */
    int64_t end_ns;        /* when the last one ends */
} sp_track;

typedef struct sp_tracks {
    const sp_profile *profile;
    uint32_t rank;
    bool has_lanes;    /* calls carry threads or tasks */
    sp_rank_calls rank_calls;
    sp_call_index index;
    uint32_t *calls; /* numbers of calls, see call_order.h */
    sp_track *tracks;
    size_t track_count;
} sp_tracks;

/* When the first of some ranks' calls starts and the last one ends. False: there are none. */
bool sp_calls_range(const sp_profile *profile, const uint32_t *ranks, size_t rank_count, const bool *visible,
                    int64_t *start_ns, int64_t *end_ns);

/*
 * Arrange the calls of one rank. `visible` (by name; NULL: all) leaves regions out. 20 bytes a call while it runs, 12 if
 * the calls carry ids, 4 afterwards. The profile must outlive the tracks.
 */
sp_status sp_tracks_make(sp_tracks *tracks, const sp_profile *profile, uint32_t rank, const bool *visible,
                         sp_error *error);
void sp_tracks_free(sp_tracks *tracks);

/* One call: its row, its place in that row, its place in the profile's columns, and its interval. */
typedef struct sp_call {
    const sp_row *row;
    uint64_t own, column;
    int64_t start_ns, end_ns;
} sp_call;

static inline sp_call sp_tracks_call(const sp_tracks *tracks, uint32_t number)
{
    const uint32_t used = sp_call_index_find(&tracks->index, number);
    const uint32_t region = tracks->index.region[used];
    const sp_calls *calls = &tracks->rank_calls.calls[region];
    const sp_row *row = &tracks->profile->rows[tracks->rank_calls.rows[region]];
    const uint64_t own = number - tracks->index.base[used];
    const int64_t start = calls->start_ns[own], end = calls->end_ns[own];
    return (sp_call){row, own, row->first + own, start, end < start ? start : end};
}

/*
 * Walk a track: calls open and close in the order in which that happened, so that times never go back. A call that closes
 * comes with its end as `at`.
 */
typedef struct sp_walk {
    const sp_tracks *tracks;
    uint64_t next, end;
    struct sp_walk_open {
        int64_t start_ns, end_ns;
        const sp_row *row;
        uint32_t call;
    } *open;
    size_t depth, size;
    sp_call call; /* the next one to open, when `looked` */
    bool looked;
} sp_walk;

typedef struct sp_walk_event {
    bool opens;
    uint32_t number;
    int64_t at;
    size_t depth;
    const sp_row *row;
    sp_call call; /* of the call that opens; not filled in when one closes */
} sp_walk_event;

void sp_walk_begin(sp_walk *walk, const sp_tracks *tracks, const sp_track *track);
/* SP_OK with an event; SP_ERR_NOT_FOUND at the end; SP_ERR_NO_MEMORY. */
sp_status sp_walk_next(sp_walk *walk, sp_walk_event *event);
void sp_walk_end(sp_walk *walk);

/*
 * What lanes are called. A thread by its name; a task by its name, the last part of its coroutine's name and its thread:
 * "Task-3 (fetch) on MainThread".
 */
typedef struct sp_lane_names {
    const sp_profile *profile;
    uint32_t rank;
    sp_lane_tops threads, tasks; /* number -> place in the profile's tables */
} sp_lane_names;

sp_status sp_lane_names_make(sp_lane_names *names, const sp_profile *profile, uint32_t rank, sp_error *error);
void sp_lane_names_free(sp_lane_names *names);

/* NULL when the profile does not describe it. */
const sp_thread_info *sp_lane_names_thread(sp_lane_names *names, int64_t thread);
const sp_task_info *sp_lane_names_task(sp_lane_names *names, int64_t task);

/* The label as a malloc'ed text; extra tracks are told apart: "MainThread (overlap 1)". NULL: out of memory. */
char *sp_lane_names_label(sp_lane_names *names, const sp_track *track);

#endif
