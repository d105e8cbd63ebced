#include "analysis/lane_events.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/wrap.h"
#include "core/sort.h"

/* -- the lanes of a rank ---------------------------------------------------------------------------------------------- */

static int kind_of(int64_t lane)
{
    if (lane == SP_LANE_UNKNOWN) return 0;
    return lane >= 0 ? 1 : 2;
}

static int compare_lanes(int64_t a, int64_t b)
{
    if (kind_of(a) != kind_of(b)) return kind_of(a) - kind_of(b);
    if (a == b) return 0;
    return (a < b) == (a >= 0) ? -1 : 1; /* threads by their number, which is -2 - lane */
}

int sp_track_compare(const sp_track *a, const sp_track *b)
{
    const int order = compare_lanes(a->lane, b->lane);
    return order ? order : (a->extra > b->extra) - (a->extra < b->extra);
}

static int by_kind(const void *left, const void *right)
{
    return sp_track_compare(left, right);
}

static int entries_by_kind(const void *left, const void *right)
{
    return sp_track_compare(&((const sp_lane_entry *)left)->key, &((const sp_lane_entry *)right)->key);
}

static int by_lane_and_time(const void *left, const void *right)
{
    const sp_creation *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    return (a->made > b->made) - (a->made < b->made);
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t sp_trace_origin(const sp_profile *profile, const uint32_t *ranks, size_t rank_count, const bool *visible)
{
    int64_t first, end, start;
    const bool any = sp_calls_range(profile, ranks, rank_count, visible, &first, &end);
    if (sp_profile_get_int(profile, "start_time_ns", &start) && (!any || start <= first)) return start;
    return any ? first : 0;
}

/* Sums of what damaged files may say wrap around rather than overflow. */
static int64_t absolute(int64_t start, int64_t relative)
{
    return (int64_t)((uint64_t)start + (uint64_t)relative);
}

static int64_t minus(int64_t from, int64_t what)
{
    return (int64_t)((uint64_t)from - (uint64_t)what);
}

typedef struct lives {
    int64_t start;  /* of the run */
    int64_t origin; /* nothing is before */
    int64_t last;   /* what has not ended lives until then */
} lives;

/*
 * When a task first held its thread: what it ran and awaited since is known, and the wait before is neither. For a task that
 * has not ended, the end of that time is not known: then its first call is all there is.
 */
static bool first_step(const sp_task_info *task, const lives *l, int64_t first_call, int64_t *at)
{
    if (task->steps == 0 && first_call == INT64_MAX) return false;
    *at = first_call == INT64_MAX ? absolute(l->start, task->created_ns) : first_call;
    if (task->done_ns == SP_UNKNOWN) return true;
    const int64_t began = absolute(l->start, minus(minus(task->done_ns, task->running_ns), task->suspended_ns));
    if (first_call == INT64_MAX || began < *at) *at = began;
    return true;
}

/* The track's calls are inside the life, whatever the tables say. */
static void find_life(sp_lane_entry *lane, const sp_tracks *tracks, const lives *l)
{
    int64_t first = INT64_MAX, last = INT64_MIN, end;
    if (lane->track) {
        first = sp_tracks_call(tracks, tracks->calls[lane->track->first]).start_ns;
        last = lane->track->end_ns;
    }
    if (lane->task) {
        if (!first_step(lane->task, l, first, &lane->life_start)) return;
        lane->life_start = largest(lane->life_start, absolute(l->start, lane->task->created_ns));
        end = lane->task->done_ns;
    } else {
        lane->life_start = absolute(l->start, lane->thread->start_ns);
        end = lane->thread->end_ns;
    }
    lane->life_start = largest(lane->life_start, l->origin);
    if (first < lane->life_start) lane->life_start = first;
    lane->life_end = largest(end == SP_UNKNOWN ? l->last : absolute(l->start, end), last);
    lane->life_end = largest(lane->life_end, lane->life_start);
    lane->lives = true;
}

static void add_lane(sp_rank_lanes *lanes, sp_track key, const sp_track *track, sp_lane_names *names)
{
    sp_lane_entry *lane = &lanes->lanes[lanes->count++];
    *lane = (sp_lane_entry){.track = track, .key = key};
    if (key.lane >= 0) lane->task = sp_lane_names_task(names, key.lane);
    else if (key.lane != SP_LANE_UNKNOWN) lane->thread = sp_lane_names_thread(names, sp_thread_lane(key.lane));
}

static bool has_track(const sp_tracks *tracks, int64_t lane)
{
    const sp_track key = {.lane = lane};
    return tracks->track_count &&
        sp_find(&key, tracks->tracks, tracks->track_count, sizeof *tracks->tracks, by_kind) != NULL;
}

static void add_idle_lanes(sp_rank_lanes *lanes, const sp_tracks *tracks, sp_lane_names *names)
{
    const sp_profile *profile = tracks->profile;
    for (size_t i = 0; i < profile->thread_count; i++) {
        const sp_track key = {.lane = sp_thread_lane(profile->threads[i].index)};
        const bool idle = profile->threads[i].rank == tracks->rank && profile->threads[i].index >= 0;
        if (idle && !has_track(tracks, key.lane)) add_lane(lanes, key, NULL, names);
    }
    for (size_t i = 0; i < profile->task_count; i++) {
        const sp_track key = {.lane = profile->tasks[i].index};
        const bool idle = profile->tasks[i].rank == tracks->rank && key.lane >= 0;
        if (idle && !has_track(tracks, key.lane)) add_lane(lanes, key, NULL, names);
    }
    sp_sort(lanes->lanes, lanes->count, sizeof *lanes->lanes, entries_by_kind);
}

const sp_lane_entry *sp_rank_lanes_find(const sp_rank_lanes *lanes, int64_t lane)
{
    const sp_lane_entry wanted = {.key = {.lane = lane}};
    return sp_find(&wanted, lanes->lanes, lanes->count, sizeof wanted, entries_by_kind);
}

static void find_creations(sp_rank_lanes *lanes, const lives *l)
{
    for (size_t i = 0; i < lanes->count; i++) {
        sp_lane_entry *made = &lanes->lanes[i];
        const sp_task_info *task = made->task;
        if (task == NULL || made->key.extra || !made->lives || task->creator_thread < 0) continue;
        const int64_t lane = task->creator_task >= 0 ? task->creator_task : sp_thread_lane(task->creator_thread);
        if (sp_rank_lanes_find(lanes, lane) == NULL) continue;
        const int64_t at = largest(absolute(l->start, task->created_ns), l->origin);
        lanes->creations[lanes->creation_count++] = (sp_creation){lane, at, made};
        made->created = true;
    }
    if (lanes->creation_count == 0) return;
    sp_sort(lanes->creations, lanes->creation_count, sizeof *lanes->creations, by_lane_and_time);
}

sp_status sp_rank_lanes_make(sp_rank_lanes *lanes, sp_tracks *tracks, sp_lane_names *names, bool idle, int64_t origin,
                             sp_error *error)
{
    const sp_profile *profile = tracks->profile;
    *lanes = (sp_rank_lanes){0};
    const size_t most = tracks->track_count + profile->thread_count + profile->task_count + 1;
    lanes->lanes = calloc(most, sizeof *lanes->lanes);
    lanes->creations = calloc(profile->task_count + 1, sizeof *lanes->creations);
    if (lanes->lanes == NULL || lanes->creations == NULL) {
        sp_rank_lanes_free(lanes);
        return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the lanes of rank %u", tracks->rank);
    }
    sp_sort(tracks->tracks, tracks->track_count, sizeof *tracks->tracks, by_kind);
    for (size_t t = 0; t < tracks->track_count; t++) add_lane(lanes, tracks->tracks[t], &tracks->tracks[t], names);
    lives l = {.origin = origin};
    if (!sp_profile_get_int(profile, "start_time_ns", &l.start)) return SP_OK;
    int64_t first;
    if (!sp_calls_range(profile, &tracks->rank, 1, NULL, &first, &l.last)) l.last = l.start;
    if (idle) add_idle_lanes(lanes, tracks, names);
    for (size_t i = 0; i < lanes->count; i++) {
        sp_lane_entry *lane = &lanes->lanes[i];
        if (lane->key.extra == 0 && (lane->thread || lane->task)) find_life(lane, tracks, &l);
    }
    find_creations(lanes, &l);
    return SP_OK;
}

void sp_rank_lanes_free(sp_rank_lanes *lanes)
{
    free(lanes->lanes);
    free(lanes->creations);
    *lanes = (sp_rank_lanes){0};
}

/* -- walk ------------------------------------------------------------------------------------------------------------- */

/* The first creation on a lane or after it. */
static const sp_creation *first_creation(const sp_rank_lanes *lanes, int64_t lane)
{
    size_t low = 0, high = lanes->creation_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (lanes->creations[middle].lane < lane) low = middle + 1;
        else high = middle;
    }
    return lanes->creations + low;
}

static bool make_room(sp_lane_walk *walk, size_t depth)
{
    if (depth < walk->open_room) return true;
    const size_t room = 2 * depth + 64;
    uint64_t *larger = realloc(walk->open, room * sizeof *larger);
    if (larger == NULL) return false;
    walk->open = larger;
    walk->open_room = room;
    return true;
}

static sp_status look_ahead(sp_lane_walk *walk)
{
    const sp_status status = walk->lane->track ? sp_walk_next(&walk->walk, &walk->next) : SP_ERR_NOT_FOUND;
    walk->has_next = status == SP_OK;
    return status == SP_ERR_NOT_FOUND ? SP_OK : status;
}

/* Without waits. */
static sp_status begin_walk(sp_lane_walk *walk, const sp_rank_lanes *lanes, const sp_tracks *tracks,
                            const sp_lane_entry *lane)
{
    *walk = (sp_lane_walk){.tracks = tracks, .lane = lane};
    walk->stage = lane->lives ? SP_LANE_AT_BEGIN : SP_LANE_INSIDE;
    if (lane->track) sp_walk_begin(&walk->walk, tracks, lane->track);
    if (lane->key.extra == 0) {
        const sp_creation *const end = lanes->creations + lanes->creation_count;
        walk->creation = walk->creations_end = first_creation(lanes, lane->key.lane);
        while (walk->creations_end < end && walk->creations_end->lane == lane->key.lane) walk->creations_end++;
    }
    if (!make_room(walk, 0)) return SP_ERR_NO_MEMORY;
    walk->open[0] = 0;
    return look_ahead(walk);
}

void sp_lane_walk_end(sp_lane_walk *walk)
{
    sp_walk_end(&walk->walk);
    free(walk->waits);
    free(walk->open);
    walk->waits = NULL;
    walk->open = NULL;
}

/* Calls that are open before the next event. */
static size_t calls_open(const sp_lane_walk *walk)
{
    if (!walk->has_next) return 0;
    return walk->next.depth + !walk->next.opens;
}

/* Whether the gap from walk->since to `until` has some awaiting, which then becomes the event. */
static bool awaits_until(sp_lane_walk *walk, int64_t until, sp_lane_event *event)
{
    if (walk->waits == NULL) return false;
    const size_t calls = calls_open(walk);
    const sp_lane_wait *wait = &walk->waits[walk->open[calls]];
    const int64_t gap = minus(until, walk->since);
    if (gap <= 0 || (wait->gap != INT64_MIN && wait->gap != walk->since)) return false;
    int64_t length = (int64_t)(wait->share * (double)gap + 0.5);
    if (length > gap) length = gap;
    if (length <= 0) return false;
    const int64_t from = walk->since + (gap - length) / 2;
    *event = (sp_lane_event){.kind = SP_LANE_AWAIT, .at = from, .end = from + length, .depth = calls + walk->lane->lives};
    walk->since = until;
    return true;
}

static sp_status next_call(sp_lane_walk *walk, sp_lane_event *event)
{
    const sp_walk_event *next = &walk->next;
    *event = (sp_lane_event){.at = next->at, .depth = next->depth + walk->lane->lives};
    event->kind = next->opens ? SP_LANE_CALL_BEGIN : SP_LANE_CALL_END;
    if (next->opens) {
        event->call = next->call;
        event->end = next->call.end_ns;
        if (!make_room(walk, next->depth + 1)) return SP_ERR_NO_MEMORY;
        walk->open[next->depth + 1] = ++walk->begun;
    }
    walk->since = next->at;
    return look_ahead(walk);
}

static sp_status end_of_life(sp_lane_walk *walk, sp_lane_event *event)
{
    if (walk->stage == SP_LANE_AT_END || !walk->lane->lives) return SP_ERR_NOT_FOUND;
    if (awaits_until(walk, walk->lane->life_end, event)) return SP_OK;
    walk->stage = SP_LANE_AT_END;
    *event = (sp_lane_event){.kind = SP_LANE_LIFE_END, .at = walk->lane->life_end};
    return SP_OK;
}

/* When the next creation is, if it comes before the next call begins or ends. */
static bool creation_is_next(const sp_lane_walk *walk, int64_t *at)
{
    const sp_lane_entry *lane = walk->lane;
    if (walk->creation == walk->creations_end || walk->stage == SP_LANE_AT_END) return false;
    *at = walk->creation->at;
    if (walk->has_next && *at > walk->next.at) return false;
    if (lane->lives && *at > lane->life_end) *at = lane->life_end;
    if ((walk->begun > 0 || lane->lives) && *at < walk->since) *at = walk->since; /* a clock that was rounded */
    return true;
}

sp_status sp_lane_walk_next(sp_lane_walk *walk, sp_lane_event *event)
{
    const sp_lane_entry *lane = walk->lane;
    int64_t at;
    if (walk->stage == SP_LANE_AT_BEGIN) {
        walk->stage = SP_LANE_INSIDE;
        walk->since = lane->life_start;
        *event = (sp_lane_event){.kind = SP_LANE_LIFE_BEGIN, .at = lane->life_start, .end = lane->life_end};
        return SP_OK;
    }
    if (creation_is_next(walk, &at)) {
        if (awaits_until(walk, at, event)) return SP_OK;
        const size_t depth = calls_open(walk) + lane->lives;
        *event = (sp_lane_event){.kind = SP_LANE_CREATION, .at = at, .depth = depth, .made = walk->creation++->made};
        walk->since = at;
        return SP_OK;
    }
    if (!walk->has_next) return end_of_life(walk, event);
    if (awaits_until(walk, walk->next.at, event)) return SP_OK;
    return next_call(walk, event);
}

/* -- awaiting --------------------------------------------------------------------------------------------------------- */

/* Less is no awaiting, but what is left of the difference of times that were rounded to ns. */
#define ROUNDING 8

/* What is known of a call that is open, and of the life around it. */
typedef struct own_time {
    int64_t wall, await;       /* what the calls inside leave */
    int64_t longest, longest_at; /* gap between two events */
} own_time;

static void add_gap(own_time *own, int64_t from, int64_t until)
{
    const int64_t gap = minus(until, from);
    if (gap <= 0) return;
    own->wall = absolute(own->wall, gap);
    if (gap <= own->longest) return;
    own->longest = gap;
    own->longest_at = from;
}

static sp_lane_wait wait_of(const own_time *own)
{
    if (own->await < ROUNDING || own->wall <= 0) return (sp_lane_wait){INT64_MIN, 0.0};
    if (own->await <= own->longest) return (sp_lane_wait){own->longest_at, (double)own->await / (double)own->longest};
    return (sp_lane_wait){INT64_MIN, own->await < own->wall ? (double)own->await / (double)own->wall : 1.0};
}

typedef struct wait_finder {
    own_time *open; /* by depth */
    size_t room;
} wait_finder;

static bool enter(wait_finder *f, size_t depth, int64_t await)
{
    if (depth >= f->room) {
        const size_t room = 2 * depth + 64;
        own_time *larger = realloc(f->open, room * sizeof *larger);
        if (larger == NULL) return false;
        f->open = larger;
        f->room = room;
    }
    f->open[depth] = (own_time){.await = await};
    if (depth > 0) f->open[depth - 1].await = minus(f->open[depth - 1].await, await);
    return true;
}

/* `walk` is one without waits. `waits` has room for the life and every call. */
static sp_status find_waits(sp_lane_walk *walk, sp_lane_wait *waits)
{
    const int64_t *const await = walk->tracks->profile->columns[SP_COLUMN_AWAIT];
    const sp_task_info *const task = walk->lane->lives ? walk->lane->task : NULL;
    wait_finder f = {0};
    sp_status status = enter(&f, 0, task ? task->suspended_ns : 0) ? SP_OK : SP_ERR_NO_MEMORY;
    int64_t since = 0;
    size_t depth = 0; /* calls that are open */
    bool any = false; /* events */
    sp_lane_event event;
    while (status == SP_OK && (status = sp_lane_walk_next(walk, &event)) == SP_OK) {
        if (any && (depth > 0 || task)) add_gap(&f.open[depth], since, event.at);
        any = true;
        since = event.at;
        if (event.kind == SP_LANE_CALL_BEGIN && !enter(&f, ++depth, await ? await[event.call.column] : 0)) {
            status = SP_ERR_NO_MEMORY;
        } else if (event.kind == SP_LANE_CALL_END) {
            waits[walk->open[depth]] = wait_of(&f.open[depth]);
            depth--;
        }
    }
    if (status == SP_ERR_NOT_FOUND) {
        waits[0] = wait_of(&f.open[0]);
        status = SP_OK;
    }
    free(f.open);
    return status;
}

sp_status sp_lane_walk_begin(sp_lane_walk *walk, const sp_rank_lanes *lanes, const sp_tracks *tracks,
                             const sp_lane_entry *lane)
{
    sp_lane_wait *waits = NULL;
    sp_status status = begin_walk(walk, lanes, tracks, lane);
    if (status == SP_OK && lane->key.lane >= 0 && (tracks->profile->columns[SP_COLUMN_AWAIT] || lane->lives)) {
        waits = calloc((lane->track ? lane->track->count : 0) + 1, sizeof *waits);
        status = waits ? find_waits(walk, waits) : SP_ERR_NO_MEMORY;
        sp_lane_walk_end(walk);
        if (status == SP_OK) status = begin_walk(walk, lanes, tracks, lane);
    }
    walk->waits = waits;
    if (status != SP_OK) sp_lane_walk_end(walk);
    return status;
}
