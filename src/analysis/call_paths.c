#include "analysis/call_paths.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/resolve.h"
#include "analysis/wrap.h"
#include "core/grow.h"

static uint64_t hash_of(uint32_t parent, uint32_t row)
{
    const uint64_t hash = ((uint64_t)parent << 32 | row) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t hash_of_node(const void *nodes, uint32_t number)
{
    const sp_call_path *node = (const sp_call_path *)nodes + number;
    return hash_of(node->parent, node->row);
}

static bool is_node(const void *nodes, uint32_t number, const void *wanted)
{
    const sp_call_path *node = (const sp_call_path *)nodes + number, *other = wanted;
    return node->parent == other->parent && node->row == other->row;
}

/* Room for one more. */
static bool grow(sp_call_paths *paths)
{
    if (!sp_grow(&paths->nodes, &paths->size, paths->count, sizeof *paths->nodes, 64)) return false;
    return sp_index_reserve(&paths->index, paths->count, paths->nodes, hash_of_node);
}

/* The node of a row's calls below `parent`. SP_NO_CALL: out of memory. */
static uint32_t node_of(sp_call_paths *paths, uint32_t parent, uint32_t row)
{
    if (parent != SP_NO_CALL && paths->nodes[parent].row == row) return parent;
    if (!grow(paths)) return SP_NO_CALL;
    const sp_call_path wanted = {.row = row, .parent = parent};
    uint32_t *slot = sp_index_find(&paths->index, hash_of(parent, row), paths->nodes, is_node, &wanted);
    if (*slot == 0) {
        paths->nodes[paths->count++] = wanted;
        *slot = paths->count;
    }
    return *slot - 1;
}

typedef struct node_stack {
    uint32_t *nodes;
    size_t size;
} node_stack;

static bool put(node_stack *stack, size_t depth, uint32_t node)
{
    if (depth >= stack->size) {
        const size_t size = 2 * depth + 64;
        uint32_t *larger = realloc(stack->nodes, size * sizeof *larger);
        if (larger == NULL) return false;
        stack->nodes = larger;
        stack->size = size;
    }
    stack->nodes[depth] = node;
    return true;
}

static sp_status add_call(sp_call_paths *paths, node_stack *stack, const sp_walk_event *event, const sp_profile *profile)
{
    const uint32_t parent = event->depth > 0 ? stack->nodes[event->depth - 1] : SP_NO_CALL;
    const uint32_t node = node_of(paths, parent, (uint32_t)(event->call.row - profile->rows));
    if (node == SP_NO_CALL || !put(stack, event->depth, node)) return SP_ERR_NO_MEMORY;
    const int64_t duration = sp_minus(event->call.end_ns, event->call.start_ns);
    sp_call_path *path = &paths->nodes[node];
    path->calls++;
    path->exclusive_ns = sp_plus(path->exclusive_ns, duration);
    if (parent != SP_NO_CALL) paths->nodes[parent].exclusive_ns = sp_minus(paths->nodes[parent].exclusive_ns, duration);
    if (node != parent) {
        path->outermost++;
        path->total_ns = sp_plus(path->total_ns, duration);
    }
    return SP_OK;
}

static sp_status add_track(sp_call_paths *paths, node_stack *stack, const sp_tracks *tracks, const sp_track *track)
{
    sp_walk walk;
    sp_walk_event event;
    sp_status status;
    sp_walk_begin(&walk, tracks, track);
    while ((status = sp_walk_next(&walk, &event)) == SP_OK) {
        if (event.opens) status = add_call(paths, stack, &event, tracks->profile);
        if (status != SP_OK) break;
    }
    sp_walk_end(&walk);
    return status == SP_ERR_NOT_FOUND ? SP_OK : status;
}

sp_status sp_call_paths_of_track(sp_call_paths *paths, const sp_tracks *tracks, const sp_track *track, sp_error *error)
{
    *paths = (sp_call_paths){0};
    node_stack stack = {0};
    const sp_status status = add_track(paths, &stack, tracks, track);
    free(stack.nodes);
    if (status == SP_OK) return SP_OK;
    sp_call_paths_free(paths);
    return sp_fail(error, status, "out of memory for the call paths of rank %u", tracks->rank);
}

static sp_status paths_by_time(sp_call_paths *paths, const sp_profile *profile, uint32_t rank, const bool *visible,
                               sp_error *error)
{
    sp_tracks tracks;
    sp_status status = sp_tracks_make(&tracks, profile, rank, visible, error);
    if (status != SP_OK) return status;
    node_stack stack = {0};
    for (size_t t = 0; status == SP_OK && t < tracks.track_count; t++) {
        status = add_track(paths, &stack, &tracks, &tracks.tracks[t]);
    }
    if (status != SP_OK) sp_fail(error, status, "out of memory for the call paths of rank %u", rank);
    free(stack.nodes);
    sp_tracks_free(&tracks);
    return status;
}

/* -- by their ids ----------------------------------------------------------------------------------------------------- */

/* What is needed of each region of the rank that has calls. */
typedef struct source {
    const int64_t *parents;
    uint32_t row;
    uint32_t last_parent, last_node; /* most calls of a region are where its last one was; SP_NO_CALL: there was none */
    bool visible;
} source;

/* The paths of calls, by their numbers so far: a parent has been seen before its children. */
static sp_status add_numbered(sp_call_paths *paths, sp_call_turns turns, source *sources, uint32_t *nodes)
{
    for (uint32_t i = 0; i < turns.index->count; i++) {
        uint32_t used, own;
        if (!sp_call_turns_take(&turns, &used, &own)) return SP_ERR_INVALID;
        source *from = &sources[used];
        uint32_t parent = SP_NO_CALL;
        if (from->parents[own] >= turns.first_id) {
            const uint64_t place = (uint64_t)from->parents[own] - (uint64_t)turns.first_id;
            if (place >= i) return SP_ERR_INVALID;
            parent = nodes[place];
        }
        nodes[i] = parent; /* a call that is not shown has its caller's node */
        if (!from->visible) continue;
        if (from->last_node == SP_NO_CALL || from->last_parent != parent) {
            from->last_node = node_of(paths, parent, from->row);
            from->last_parent = parent;
            if (from->last_node == SP_NO_CALL) return SP_ERR_NO_MEMORY;
        }
        const uint32_t node = nodes[i] = from->last_node;
        paths->nodes[node].calls++;
        if (node == parent) continue;
        const int64_t start = turns.queues[used].start_ns[own], end = turns.queues[used].end_ns[own];
        paths->nodes[node].outermost++;
        if (end > start) paths->nodes[node].total_ns = sp_plus(paths->nodes[node].total_ns, sp_minus(end, start));
    }
    for (uint32_t i = 0; i < paths->count; i++) paths->nodes[i].exclusive_ns = sp_plus(paths->nodes[i].exclusive_ns, paths->nodes[i].total_ns);
    for (uint32_t i = 0; i < paths->count; i++) {
        const uint32_t parent = paths->nodes[i].parent;
        if (parent != SP_NO_CALL) paths->nodes[parent].exclusive_ns = sp_minus(paths->nodes[parent].exclusive_ns, paths->nodes[i].total_ns);
    }
    return SP_OK;
}

static source *make_sources(const sp_call_index *index, const sp_rank_calls *calls, const sp_profile *profile, const bool *visible)
{
    source *sources = malloc((index->used + 1) * sizeof *sources);
    for (uint32_t used = 0; sources && used < index->used; used++) {
        const size_t number = calls->rows[index->region[used]];
        const sp_row *row = &profile->rows[number];
        sources[used] = (source){.parents = profile->columns[SP_COLUMN_PARENT_ID] + row->first,
                                 .row = (uint32_t)number,
                                 .last_node = SP_NO_CALL,
                                 .visible = visible == NULL || visible[row->name]};
    }
    return sources;
}

/* The paths of a rank whose calls carry ids. SP_ERR_INVALID: the ids do not count them. */
static sp_status paths_by_id(sp_call_paths *paths, const sp_profile *profile, uint32_t rank, const bool *visible,
                             sp_error *error)
{
    if (!profile->columns[SP_COLUMN_CALL_ID] || !profile->columns[SP_COLUMN_PARENT_ID]) return SP_ERR_INVALID;
    sp_rank_calls calls;
    sp_call_index index = {0};
    sp_call_turns turns = {0};
    uint64_t turns_size = 0, nodes_size = 0; /* in words of columns */
    int64_t *scratch = NULL, *nodes = NULL;
    source *sources = NULL;
    sp_status status = sp_rank_calls_make(&calls, profile, rank, error);
    if (status == SP_OK) status = sp_call_index_make(&index, calls.calls, calls.count, error);
    if (status != SP_OK) goto done;
    turns_size = index.count / 4 + 1;
    nodes_size = index.count / 2 + 1;
    scratch = sp_column_alloc(turns_size);
    nodes = sp_column_alloc(nodes_size);
    sources = make_sources(&index, &calls, profile, visible);
    if (!scratch || !nodes || !sources) {
        status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the call paths of rank %u", rank);
        goto done;
    }
    status = SP_ERR_INVALID;
    if (index.count && sp_call_turns_make(&turns, &index, (sp_turn *)scratch) && turns.first_id >= 0) {
        status = add_numbered(paths, turns, sources, (uint32_t *)nodes);
    }
    if (status == SP_ERR_NO_MEMORY) sp_fail(error, status, "out of memory for the call paths of rank %u", rank);
done:
    sp_call_turns_free(&turns);
    free(sources);
    sp_column_recycle(nodes, nodes_size);
    sp_column_recycle(scratch, turns_size);
    sp_call_index_free(&index);
    sp_rank_calls_free(&calls);
    return status;
}

sp_status sp_call_paths_make(sp_call_paths *paths, const sp_profile *profile, uint32_t rank, const bool *visible,
                             sp_error *error)
{
    *paths = (sp_call_paths){0};
    sp_status status = paths_by_id(paths, profile, rank, visible, error);
    if (status == SP_ERR_INVALID) {
        sp_call_paths_free(paths); /* of the calls up to the wrong id */
        status = paths_by_time(paths, profile, rank, visible, error);
    }
    if (status != SP_OK) sp_call_paths_free(paths);
    return status;
}

void sp_call_paths_free(sp_call_paths *paths)
{
    free(paths->nodes);
    free(paths->index.slots);
    *paths = (sp_call_paths){0};
}
