/*
 * lane_events.h - what traces show of a rank, lane by lane and in the order in which it happened: the lane's life, its calls,
 * where a task awaited, and where other tasks were made.
 *
 *   life     ├──────────────────────────────────────────────────────┤   a thread's start to end; a task's first step to its end
 *   calls        ├── request ──────────────┤   ├── request ──┤
 *   awaiting        ├────────┤  ├────┤             ├─────┤
 *   creations                 │                                          another task was made here
 *
 * How long a call awaited is recorded, where in it is not. A call's own awaiting (without that of the calls inside) is drawn in
 * the middle of its longest stretch without another event, if it fits there, else in all of them alike: lengths add up to
 * what was recorded.
 *
 * Lives and creations need the run's start in the profile's metadata, and the lane tables; without them there are none. A
 * task that has not ended lives until the last call of the rank ends.
 */
#ifndef SP_ANALYSIS_LANE_EVENTS_H
#define SP_ANALYSIS_LANE_EVENTS_H

#include "analysis/tracks.h"

typedef struct sp_lane_entry {
    const sp_track *track; /* NULL: the lane has no calls */
    sp_track key;          /* its lane and number, for sp_lane_names_label */
    const sp_thread_info *thread; /* of a thread's own lane; NULL: not described */
    const sp_task_info *task;     /* of a task's lane; NULL: not described */
    bool lives;            /* life_start and life_end are known */
    int64_t life_start, life_end; /* absolute ns; around all calls of the lane */
    bool created;          /* where it was made is among the creations */
} sp_lane_entry;

typedef struct sp_creation {
    int64_t lane, at; /* who made it, and when */
    const sp_lane_entry *made; /* a task's lane that lives */
} sp_creation;

/* The order of traces: the rank's own lane, tasks, then threads, by number; extra tracks after their lane. */
int sp_track_compare(const sp_track *a, const sp_track *b);

typedef struct sp_rank_lanes {
    sp_lane_entry *lanes; /* in that order */
    size_t count;
    sp_creation *creations; /* by lane, then time */
    size_t creation_count;
} sp_rank_lanes;

/*
 * The lanes of a rank. `idle`: with those that recorded no call. Times before `origin` are moved there. The tracks are put
 * in another order. All must outlive the lanes.
 */
sp_status sp_rank_lanes_make(sp_rank_lanes *lanes, sp_tracks *tracks, sp_lane_names *names, bool idle, int64_t origin,
                             sp_error *error);
void sp_rank_lanes_free(sp_rank_lanes *lanes);

/* A lane's own entry, or NULL. */
const sp_lane_entry *sp_rank_lanes_find(const sp_rank_lanes *lanes, int64_t lane);

/* When the run started, if that is known and not after its calls; else when they start. 0: nothing at all is known. */
int64_t sp_trace_origin(const sp_profile *profile, const uint32_t *ranks, size_t rank_count, const bool *visible);

typedef enum sp_lane_event_kind {
    SP_LANE_LIFE_BEGIN,
    SP_LANE_LIFE_END,
    SP_LANE_CALL_BEGIN,
    SP_LANE_CALL_END,
    SP_LANE_AWAIT,  /* from `at` to `end` */
    SP_LANE_CREATION
} sp_lane_event_kind;

typedef struct sp_lane_event {
    sp_lane_event_kind kind;
    int64_t at;
    int64_t end;  /* of what begins here */
    size_t depth; /* how many slices, the life included, are open around it */
    sp_call call; /* SP_LANE_CALL_BEGIN */
    const sp_lane_entry *made; /* SP_LANE_CREATION */
} sp_lane_event;

/* Where a call (or a task outside of its calls) awaited. */
typedef struct sp_lane_wait {
    int64_t gap;  /* the start of the gap that has it all; INT64_MIN: every gap has its share */
    double share; /* of a gap */
} sp_lane_wait;

/* Walk a lane: times never go back, and what begins later ends first. 16 bytes a call while walking a lane that awaited. */
typedef struct sp_lane_walk {
    const sp_tracks *tracks;
    const sp_lane_entry *lane;
    sp_walk walk;
    sp_walk_event next;
    bool has_next;
    enum { SP_LANE_AT_BEGIN, SP_LANE_INSIDE, SP_LANE_AT_END } stage;
    const sp_creation *creation, *creations_end;
    sp_lane_wait *waits; /* the life's, then by place on the track; NULL: nothing awaited */
    uint64_t begun;      /* calls */
    uint64_t *open;  /* by depth: number of the call that is open, from 1; the first one is the life's 0 */
    size_t open_room;
    int64_t since;   /* the last event: a gap begins here */
} sp_lane_walk;

sp_status sp_lane_walk_begin(sp_lane_walk *walk, const sp_rank_lanes *lanes, const sp_tracks *tracks,
                             const sp_lane_entry *lane);
/* SP_OK with an event; SP_ERR_NOT_FOUND at the end; SP_ERR_NO_MEMORY. */
sp_status sp_lane_walk_next(sp_lane_walk *walk, sp_lane_event *event);
void sp_lane_walk_end(sp_lane_walk *walk);

#endif
