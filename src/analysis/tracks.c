#include "analysis/tracks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/wrap.h"
#include "core/grow.h"
#include "core/sort.h"

/* -- order ------------------------------------------------------------------------------------------------------------ */

static sp_status no_memory(sp_error *error, const sp_tracks *tracks)
{
    return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the tracks of %llu calls",
                   (unsigned long long)tracks->index.count);
}

/* Calls by rank, without those of regions that are not shown. */
static sp_status choose_calls(sp_tracks *tracks, const bool *visible, sp_error *error)
{
    sp_rank_calls *const all = &tracks->rank_calls;
    const sp_status status = sp_rank_calls_make(all, tracks->profile, tracks->rank, error);
    if (status != SP_OK || visible == NULL) return status;
    size_t kept = 0;
    all->call_count = 0;
    for (size_t i = 0; i < all->count; i++) {
        if (!visible[tracks->profile->rows[all->rows[i]].name]) continue;
        all->calls[kept] = all->calls[i];
        all->rows[kept++] = all->rows[i];
        all->call_count += all->calls[i].count;
    }
    all->count = kept;
    return SP_OK;
}

/* Fill tracks->calls by the ids of the calls, if they have any. False: their ids are not the order. */
static bool order_numbered(sp_tracks *tracks, sp_turn *scratch)
{
    const sp_call_index *index = &tracks->index;
    sp_call_turns turns;
    bool ordered = sp_call_turns_make(&turns, index, scratch);
    for (uint32_t i = 0; ordered && i < index->count; i++) {
        uint32_t used, own;
        int64_t start, end;
        ordered = sp_call_turns_next(&turns, &used, &own, &start, &end);
        if (ordered) tracks->calls[i] = index->base[used] + own;
    }
    sp_call_turns_free(&turns);
    return ordered;
}

/* Fill tracks->calls with all calls in call order. */
static sp_status order_calls(sp_tracks *tracks, sp_error *error)
{
    const uint64_t count = tracks->index.count;
    uint64_t *a = (uint64_t *)sp_column_alloc(count), *b = NULL;
    if (a == NULL) return no_memory(error, tracks);
    if (!order_numbered(tracks, (sp_turn *)a)) {
        b = (uint64_t *)sp_column_alloc(count);
        if (b == NULL) {
            sp_column_free((int64_t *)a, count);
            return no_memory(error, tracks);
        }
        sp_call_order order;
        sp_call_order_sort(&tracks->index, a, b, &order);
        for (uint64_t i = 0; i < count; i++) tracks->calls[i] = sp_call_order_at(&order, i);
    }
    sp_column_recycle((int64_t *)a, count);
    sp_column_recycle((int64_t *)b, count);
    return SP_OK;
}

/* -- lanes ------------------------------------------------------------------------------------------------------------ */

static int64_t lane_of(const sp_tracks *tracks, uint32_t number)
{
    const uint32_t used = sp_call_index_find(&tracks->index, number);
    const sp_calls *calls = &tracks->index.regions[tracks->index.region[used]];
    const uint32_t own = number - tracks->index.base[used];
    if (calls->thread == NULL) return SP_LANE_UNKNOWN;
    return sp_lane_of(calls->thread[own], calls->task ? calls->task[own] : -1);
}

static sp_track *add_track(sp_tracks *tracks, sp_track track)
{
    /* Grown by doubling: the count is a power of two whenever the array is full. */
    if ((tracks->track_count & (tracks->track_count - 1)) == 0) {
        const size_t size = tracks->track_count ? 2 * tracks->track_count : 1;
        sp_track *larger = realloc(tracks->tracks, size * sizeof *larger);
        if (larger == NULL) return NULL;
        tracks->tracks = larger;
    }
    tracks->tracks[tracks->track_count] = track;
    return &tracks->tracks[tracks->track_count++];
}

/* One track a lane, in order of appearance, with its number of calls. */
static bool count_lanes(sp_tracks *tracks, sp_lane_tops *places)
{
    for (uint64_t i = 0; i < tracks->index.count; i++) {
        const int64_t lane = lane_of(tracks, tracks->calls[i]);
        uint32_t *place = sp_lane_tops_find(places, lane);
        if (place == NULL) return false;
        if (*place == SP_NO_CALL) {
            *place = (uint32_t)tracks->track_count;
            if (add_track(tracks, (sp_track){.lane = lane}) == NULL) return false;
        }
        tracks->tracks[*place].count++;
    }
    return true;
}

static int by_lane(const void *left, const void *right)
{
    const sp_track *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    return (a->extra > b->extra) - (a->extra < b->extra);
}

/* Put the calls of each lane together; they stay in call order. */
static sp_status group_by_lane(sp_tracks *tracks, sp_error *error)
{
    if (!tracks->has_lanes) {
        const sp_track only = {.lane = SP_LANE_UNKNOWN, .count = tracks->index.count};
        return add_track(tracks, only) ? SP_OK : no_memory(error, tracks);
    }
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint64_t i = 0; i < tracks->index.count; i++) {
        const int64_t lane = lane_of(tracks, (uint32_t)i);
        if (lane < low) low = lane;
        if (lane > high) high = lane;
    }
    sp_lane_tops places;
    sp_status status = sp_lane_tops_make(&places, low, high, tracks->index.count, error);
    if (status != SP_OK) return status;
    uint32_t *grouped = NULL;
    if (!count_lanes(tracks, &places)) goto failed;
    sp_sort(tracks->tracks, tracks->track_count, sizeof *tracks->tracks, by_lane);
    for (uint64_t i = 0, first = 0; i < tracks->track_count; first += tracks->tracks[i++].count) {
        tracks->tracks[i].first = first;
        *sp_lane_tops_find(&places, tracks->tracks[i].lane) = (uint32_t)first;
    }
    if (tracks->track_count == 1) goto done;
    grouped = malloc(tracks->index.count * sizeof *grouped);
    if (grouped == NULL) goto failed;
    for (uint64_t i = 0; i < tracks->index.count; i++) {
        grouped[(*sp_lane_tops_find(&places, lane_of(tracks, tracks->calls[i])))++] = tracks->calls[i];
    }
    free(tracks->calls);
    tracks->calls = grouped;
done:
    sp_lane_tops_free(&places);
    return SP_OK;
failed:
    sp_lane_tops_free(&places);
    return no_memory(error, tracks);
}

/* -- overlaps --------------------------------------------------------------------------------------------------------- */

/* Whether a call is over before another one of its lane starts. Calls that start together nest, also where the first has no length. */
static inline bool is_over(int64_t start, int64_t end, int64_t next_start)
{
    return end <= next_start && start != next_start;
}

/*
 * Spread the calls of one lane over tracks. Each track has a stack of open calls; a call fits on a track whose innermost
 * open call encloses it, or that has none. Only the first tracks are tried. The others hold one call at a time, and a heap
 * finds the one that is over, so that there are never many more tracks than calls that were open at once.
 */
#define TRIED 16u

typedef struct spread_call {
    int64_t start, end;
    uint32_t below; /* the call around it, by place in the lane; SP_NO_CALL: none */
    uint32_t track;
} spread_call;

typedef struct busy_track {
    int64_t until; /* end of its only open call */
    uint32_t track;
} busy_track;

typedef struct spreader {
    spread_call *calls;
    uint32_t *top;        /* by track: its innermost open call */
    uint32_t count, size; /* tracks */
    busy_track *busy;     /* a heap of those from TRIED on, the earliest first */
    uint32_t busy_count;
} spreader;

static bool fits(spreader *s, uint32_t track, int64_t start, int64_t end)
{
    uint32_t top = s->top[track];
    while (top != SP_NO_CALL && is_over(s->calls[top].start, s->calls[top].end, start)) top = s->calls[top].below;
    s->top[track] = top;
    return top == SP_NO_CALL || s->calls[top].end >= end;
}

static void heap_push(spreader *s, busy_track item)
{
    uint32_t at = s->busy_count++;
    for (; at > 0 && s->busy[(at - 1) / 2].until > item.until; at = (at - 1) / 2) s->busy[at] = s->busy[(at - 1) / 2];
    s->busy[at] = item;
}

static busy_track heap_pop(spreader *s)
{
    const busy_track first = s->busy[0], item = s->busy[--s->busy_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < s->busy_count; child = 2 * at + 1) {
        if (child + 1 < s->busy_count && s->busy[child + 1].until < s->busy[child].until) child++;
        if (s->busy[child].until >= item.until) break;
        s->busy[at] = s->busy[child];
        at = child;
    }
    s->busy[at] = item;
    return first;
}

/* SP_NO_CALL: out of memory. */
static uint32_t new_track(spreader *s)
{
    if (s->count == s->size) {
        const uint32_t size = s->size ? 2 * s->size : TRIED;
        uint32_t *top = realloc(s->top, size * sizeof *top);
        if (top) s->top = top;
        busy_track *busy = realloc(s->busy, size * sizeof *busy);
        if (busy) s->busy = busy;
        if (top == NULL || busy == NULL) return SP_NO_CALL;
        s->size = size;
    }
    s->top[s->count] = SP_NO_CALL;
    return s->count++;
}

static uint32_t track_for(spreader *s, int64_t start, int64_t end)
{
    for (uint32_t track = 0; track < s->count && track < TRIED; track++) {
        if (fits(s, track, start, end)) return track;
    }
    if (s->count < TRIED) return new_track(s);
    uint32_t track;
    if (s->busy_count > 0 && s->busy[0].until < start) {
        track = heap_pop(s).track;
        s->top[track] = SP_NO_CALL;
    } else {
        track = new_track(s);
    }
    if (track != SP_NO_CALL) heap_push(s, (busy_track){end, track});
    return track;
}

static bool spread_calls(spreader *s, const sp_tracks *tracks, const sp_track *lane)
{
    for (uint32_t i = 0; i < lane->count; i++) {
        const sp_call call = sp_tracks_call(tracks, tracks->calls[lane->first + i]);
        const uint32_t track = track_for(s, call.start_ns, call.end_ns);
        if (track == SP_NO_CALL) return false;
        s->calls[i] = (spread_call){call.start_ns, call.end_ns, s->top[track], track};
        s->top[track] = i;
    }
    return true;
}

/* Put the calls of each of the lane's tracks together, and add the extra tracks. */
static bool split_lane(sp_tracks *tracks, const spreader *s, size_t number)
{
    const uint64_t first = tracks->tracks[number].first;
    const size_t added = tracks->track_count; /* where the extra ones are */
    const uint32_t count = (uint32_t)tracks->tracks[number].count;
    uint32_t *moved = malloc(count * sizeof *moved);
    uint64_t *ends = calloc((size_t)s->count + 1, sizeof *ends); /* [t + 1] becomes where track t ends */
    if (moved == NULL || ends == NULL) goto failed;
    for (uint32_t i = 0; i < count; i++) ends[s->calls[i].track + 1]++;
    for (uint32_t t = 0; t < s->count; t++) {
        const uint64_t size = ends[t + 1];
        ends[t + 1] += ends[t];
        const sp_track part = {tracks->tracks[number].lane, t, first + ends[t], size, INT64_MIN};
        if (t == 0) tracks->tracks[number] = part;
        else if (add_track(tracks, part) == NULL) goto failed;
    }
    for (uint32_t i = 0; i < count; i++) {
        const spread_call *call = &s->calls[i];
        sp_track *track = &tracks->tracks[call->track == 0 ? number : added + call->track - 1];
        if (call->end > track->end_ns) track->end_ns = call->end;
        moved[ends[call->track]++] = tracks->calls[first + i];
    }
    memcpy(tracks->calls + first, moved, count * sizeof *moved);
    free(moved);
    free(ends);
    return true;
failed:
    free(moved);
    free(ends);
    return false;
}

static bool spread_lane(sp_tracks *tracks, size_t number)
{
    const sp_track lane = tracks->tracks[number];
    spreader s = {.calls = malloc(lane.count * sizeof *s.calls)};
    const bool ok = s.calls && spread_calls(&s, tracks, &lane) && split_lane(tracks, &s, number);
    free(s.calls);
    free(s.top);
    free(s.busy);
    return ok;
}

typedef struct open_span {
    int64_t start, end;
} open_span;

/* Whether the calls of a track nest, and when the last of them ends. SP_ERR_NESTING if not. */
static sp_status check_track(const sp_tracks *tracks, sp_track *track)
{
    open_span *open = NULL;
    size_t depth = 0, room = 0;
    sp_status status = SP_OK;
    track->end_ns = INT64_MIN;
    for (uint64_t i = 0; status == SP_OK && i < track->count; i++) {
        const sp_call call = sp_tracks_call(tracks, tracks->calls[track->first + i]);
        while (depth > 0 && is_over(open[depth - 1].start, open[depth - 1].end, call.start_ns)) depth--;
        if (depth > 0 && open[depth - 1].end < call.end_ns) status = SP_ERR_NESTING;
        else if (!sp_grow(&open, &room, depth, sizeof *open, 64)) status = SP_ERR_NO_MEMORY;
        else open[depth++] = (open_span){call.start_ns, call.end_ns};
        if (call.end_ns > track->end_ns) track->end_ns = call.end_ns;
    }
    free(open);
    return status;
}

static sp_status spread_overlaps(sp_tracks *tracks, sp_error *error)
{
    const size_t lanes = tracks->track_count;
    for (size_t i = 0; i < lanes; i++) {
        sp_status status = check_track(tracks, &tracks->tracks[i]);
        if (status == SP_ERR_NESTING) status = spread_lane(tracks, i) ? SP_OK : SP_ERR_NO_MEMORY;
        if (status != SP_OK) return no_memory(error, tracks);
    }
    if (tracks->track_count > lanes) sp_sort(tracks->tracks, tracks->track_count, sizeof *tracks->tracks, by_lane);
    return SP_OK;
}

/* -- tracks ----------------------------------------------------------------------------------------------------------- */

static bool is_among(uint32_t rank, const uint32_t *ranks, size_t rank_count)
{
    for (size_t i = 0; i < rank_count; i++) {
        if (ranks[i] == rank) return true;
    }
    return false;
}

bool sp_calls_range(const sp_profile *profile, const uint32_t *ranks, size_t rank_count, const bool *visible,
                    int64_t *start_ns, int64_t *end_ns)
{
    const int64_t *const starts = profile->columns[SP_COLUMN_START], *const ends = profile->columns[SP_COLUMN_END];
    *start_ns = INT64_MAX;
    *end_ns = INT64_MIN;
    for (size_t r = 0; starts && r < profile->row_count; r++) {
        const sp_row *row = &profile->rows[r];
        if ((visible && !visible[row->name]) || !is_among(row->rank, ranks, rank_count)) continue;
        for (uint64_t i = row->first; i < row->first + row->count; i++) {
            const int64_t end = ends[i] < starts[i] ? starts[i] : ends[i];
            if (starts[i] < *start_ns) *start_ns = starts[i];
            if (end > *end_ns) *end_ns = end;
        }
    }
    return *start_ns <= *end_ns;
}

sp_status sp_tracks_make(sp_tracks *tracks, const sp_profile *profile, uint32_t rank, const bool *visible,
                         sp_error *error)
{
    *tracks = (sp_tracks){.profile = profile, .rank = rank};
    sp_status status = choose_calls(tracks, visible, error);
    if (status == SP_OK) {
        status = sp_call_index_make(&tracks->index, tracks->rank_calls.calls, tracks->rank_calls.count, error);
    }
    if (status != SP_OK || tracks->index.count == 0) goto done;
    tracks->has_lanes = profile->columns[SP_COLUMN_THREAD] != NULL;
    tracks->calls = malloc(tracks->index.count * sizeof *tracks->calls);
    status = tracks->calls ? order_calls(tracks, error) : no_memory(error, tracks);
    if (status == SP_OK) status = group_by_lane(tracks, error);
    if (status == SP_OK) status = spread_overlaps(tracks, error);
done:
    if (status != SP_OK) sp_tracks_free(tracks);
    return status;
}

void sp_tracks_free(sp_tracks *tracks)
{
    sp_rank_calls_free(&tracks->rank_calls);
    sp_call_index_free(&tracks->index);
    free(tracks->calls);
    free(tracks->tracks);
    *tracks = (sp_tracks){0};
}

/* -- walk ------------------------------------------------------------------------------------------------------------- */

void sp_walk_begin(sp_walk *walk, const sp_tracks *tracks, const sp_track *track)
{
    *walk = (sp_walk){.tracks = tracks, .next = track->first, .end = track->first + track->count};
}

void sp_walk_end(sp_walk *walk)
{
    free(walk->open);
    *walk = (sp_walk){0};
}

static bool open_call(sp_walk *walk)
{
    if (!sp_grow(&walk->open, &walk->size, walk->depth, sizeof *walk->open, 64)) return false;
    walk->open[walk->depth] = (struct sp_walk_open){walk->call.start_ns, walk->call.end_ns, walk->call.row, walk->tracks->calls[walk->next]};
    return true;
}

sp_status sp_walk_next(sp_walk *walk, sp_walk_event *event)
{
    if (!walk->looked && walk->next < walk->end) {
        walk->call = sp_tracks_call(walk->tracks, walk->tracks->calls[walk->next]);
        walk->looked = true;
    }
    const struct sp_walk_open *const top = walk->depth > 0 ? &walk->open[walk->depth - 1] : NULL;
    if (top && (walk->next == walk->end || is_over(top->start_ns, top->end_ns, walk->call.start_ns))) {
        walk->depth--;
        event->opens = false;
        event->number = top->call;
        event->at = top->end_ns;
        event->depth = walk->depth;
        event->row = top->row;
        return SP_OK;
    }
    if (walk->next == walk->end) return SP_ERR_NOT_FOUND;
    if (!open_call(walk)) return SP_ERR_NO_MEMORY;
    event->opens = true;
    event->number = walk->tracks->calls[walk->next++];
    event->at = walk->call.start_ns;
    event->depth = walk->depth++;
    event->row = walk->call.row;
    event->call = walk->call;
    walk->looked = false;
    return SP_OK;
}

/* -- names ------------------------------------------------------------------------------------------------------------ */

static bool note_number(sp_lane_tops *places, int64_t number, size_t place)
{
    uint32_t *slot = sp_lane_tops_find(places, number);
    if (slot && *slot == SP_NO_CALL) *slot = (uint32_t)place;
    return slot != NULL;
}

sp_status sp_lane_names_make(sp_lane_names *names, const sp_profile *profile, uint32_t rank, sp_error *error)
{
    *names = (sp_lane_names){.profile = profile, .rank = rank};
    const int64_t last_thread = (int64_t)profile->thread_count, last_task = (int64_t)profile->task_count;
    sp_status status = sp_lane_tops_make(&names->threads, 0, last_thread, profile->thread_count, error);
    if (status == SP_OK) status = sp_lane_tops_make(&names->tasks, 0, last_task, profile->task_count, error);
    for (size_t i = 0; status == SP_OK && i < profile->thread_count; i++) {
        const sp_thread_info *thread = &profile->threads[i];
        if (thread->rank == rank && !note_number(&names->threads, thread->index, i)) status = SP_ERR_NO_MEMORY;
    }
    for (size_t i = 0; status == SP_OK && i < profile->task_count; i++) {
        const sp_task_info *task = &profile->tasks[i];
        if (task->rank == rank && !note_number(&names->tasks, task->index, i)) status = SP_ERR_NO_MEMORY;
    }
    if (status == SP_OK) return status;
    sp_lane_names_free(names);
    return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the names of lanes");
}

void sp_lane_names_free(sp_lane_names *names)
{
    sp_lane_tops_free(&names->threads);
    sp_lane_tops_free(&names->tasks);
}

const sp_thread_info *sp_lane_names_thread(sp_lane_names *names, int64_t thread)
{
    const uint32_t *place = sp_lane_tops_find(&names->threads, thread);
    return place && *place != SP_NO_CALL ? &names->profile->threads[*place] : NULL;
}

const sp_task_info *sp_lane_names_task(sp_lane_names *names, int64_t task)
{
    const uint32_t *place = sp_lane_tops_find(&names->tasks, task);
    return place && *place != SP_NO_CALL ? &names->profile->tasks[*place] : NULL;
}

static const char *last_part(const char *qualified)
{
    const char *dot = strrchr(qualified, '.');
    return dot ? dot + 1 : qualified;
}

/* asprintf, with NULL for failure. */
static char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *text_of(const char *format, ...)
{
    va_list arguments;
    char *text;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    va_end(arguments);
    return text;
}

static char *thread_label(sp_lane_names *names, int64_t thread)
{
    const sp_thread_info *info = sp_lane_names_thread(names, thread);
    if (info && info->name) return strdup(info->name);
    return text_of("thread %lld", (long long)thread);
}

static char *task_label(sp_lane_names *names, int64_t task)
{
    const sp_task_info *info = sp_lane_names_task(names, task);
    if (info == NULL) return text_of("task %lld", (long long)task);
    char *thread = info->thread_index >= 0 ? thread_label(names, info->thread_index) : NULL;
    if (info->thread_index >= 0 && thread == NULL) return NULL;
    const char *name = info->name ? info->name : "", *coro = info->coro_name ? last_part(info->coro_name) : "";
    char *label = text_of("%s%s%s%s%s%s", name, *coro ? " (" : "", coro, *coro ? ")" : "", thread ? " on " : "",
                          thread ? thread : "");
    free(thread);
    return label;
}

char *sp_lane_names_label(sp_lane_names *names, const sp_track *track)
{
    char *label;
    if (track->lane == SP_LANE_UNKNOWN) label = strdup("unknown lane");
    else if (track->lane < 0) label = thread_label(names, sp_thread_lane(track->lane));
    else label = task_label(names, track->lane);
    if (label == NULL || track->extra == 0) return label;
    char *extra = text_of("%s (overlap %u)", label, (unsigned)track->extra);
    free(label);
    return extra;
}
