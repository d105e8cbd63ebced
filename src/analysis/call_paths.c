#include "analysis/call_paths.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/wrap.h"

static uint32_t *slot_of(const sp_call_paths *paths, uint32_t parent, uint32_t row)
{
    uint64_t hash = ((uint64_t)parent << 32 | row) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 32;
    for (uint32_t at = (uint32_t)hash & (paths->table_size - 1);; at = (at + 1) & (paths->table_size - 1)) {
        const uint32_t node = paths->table[at];
        if (node == SP_NO_CALL || (paths->nodes[node].parent == parent && paths->nodes[node].row == row)) {
            return &paths->table[at];
        }
    }
}

static bool grow(sp_call_paths *paths)
{
    const uint32_t size = paths->size ? 2 * paths->size : 64;
    sp_call_path *nodes = realloc(paths->nodes, size * sizeof *nodes);
    if (nodes == NULL) return false;
    paths->nodes = nodes;
    paths->size = size;
    uint32_t *table = malloc(2 * (size_t)size * sizeof *table);
    if (table == NULL) return false;
    free(paths->table);
    paths->table = table;
    paths->table_size = 2 * size;
    memset(table, 0xff, paths->table_size * sizeof *table);
    for (uint32_t i = 0; i < paths->count; i++) *slot_of(paths, nodes[i].parent, nodes[i].row) = i;
    return true;
}

/* The node of a row's calls below `parent`. SP_NO_CALL: out of memory. */
static uint32_t node_of(sp_call_paths *paths, uint32_t parent, uint32_t row)
{
    if (parent != SP_NO_CALL && paths->nodes[parent].row == row) return parent;
    if (paths->count == paths->size && !grow(paths)) return SP_NO_CALL;
    uint32_t *slot = slot_of(paths, parent, row);
    if (*slot == SP_NO_CALL) {
        *slot = paths->count;
        paths->nodes[paths->count++] = (sp_call_path){.row = row, .parent = parent};
    }
    return *slot;
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

/* A call at the place of its id: rows are read through one by one, and the tree then in call order. */
typedef struct numbered {
    int64_t duration;
    uint32_t row;    /* + 1; 0: no call has this id. Later its node */
    uint32_t parent; /* place; SP_NO_CALL: none */
} numbered;

_Static_assert(sizeof(numbered) == 2 * sizeof(int64_t), "a column of twice the length holds them");

static int64_t smallest_id(const sp_profile *profile, uint32_t rank)
{
    int64_t smallest = INT64_MAX;
    for (size_t r = 0; r < profile->row_count; r++) {
        const sp_row *row = &profile->rows[r];
        const int64_t *ids = profile->columns[SP_COLUMN_CALL_ID] + row->first;
        for (uint64_t i = 0; row->rank == rank && i < row->count; i++) smallest = ids[i] < smallest ? ids[i] : smallest;
    }
    return smallest;
}

/* False: the ids do not count the calls, or a parent comes after its child. */
static bool place_row(numbered *calls, uint64_t count, const sp_profile *profile, uint32_t number, int64_t first_id)
{
    const sp_row *row = &profile->rows[number];
    const int64_t *starts = profile->columns[SP_COLUMN_START] + row->first, *ends = profile->columns[SP_COLUMN_END] + row->first;
    const int64_t *ids = profile->columns[SP_COLUMN_CALL_ID] + row->first;
    const int64_t *parents = profile->columns[SP_COLUMN_PARENT_ID] + row->first;
    for (uint64_t i = 0; i < row->count; i++) {
        const uint64_t place = (uint64_t)ids[i] - (uint64_t)first_id;
        const uint64_t parent = (uint64_t)parents[i] - (uint64_t)first_id;
        const bool root = parents[i] < first_id;
        if (place >= count || calls[place].row != 0 || (!root && parent >= place)) return false;
        calls[place] = (numbered){ends[i] < starts[i] ? 0 : ends[i] - starts[i], number + 1, root ? SP_NO_CALL : (uint32_t)parent};
    }
    return true;
}

/* Parents come first, so their nodes are known. A call that is not shown has its caller's node. */
static bool add_numbered(sp_call_paths *paths, numbered *calls, uint64_t count, const sp_profile *profile, const bool *visible)
{
    for (uint64_t i = 0; i < count; i++) {
        numbered *call = &calls[i];
        const uint32_t row = call->row - 1, parent = call->parent == SP_NO_CALL ? SP_NO_CALL : calls[call->parent].row;
        call->row = parent;
        if (visible && !visible[profile->rows[row].name]) continue;
        const uint32_t node = node_of(paths, parent, row);
        if (node == SP_NO_CALL) return false;
        call->row = node;
        paths->nodes[node].calls++;
        if (node == parent) continue;
        paths->nodes[node].outermost++;
        paths->nodes[node].total_ns += call->duration;
    }
    for (uint32_t i = 0; i < paths->count; i++) paths->nodes[i].exclusive_ns += paths->nodes[i].total_ns;
    for (uint32_t i = 0; i < paths->count; i++) {
        const uint32_t parent = paths->nodes[i].parent;
        if (parent != SP_NO_CALL) paths->nodes[parent].exclusive_ns -= paths->nodes[i].total_ns;
    }
    return true;
}

/* The paths of a rank whose calls carry ids. SP_ERR_INVALID: the ids are no such numbers. */
static sp_status paths_by_id(sp_call_paths *paths, const sp_profile *profile, uint32_t rank, const bool *visible)
{
    uint64_t count = 0;
    if (!profile->columns[SP_COLUMN_CALL_ID] || !profile->columns[SP_COLUMN_PARENT_ID]) return SP_ERR_INVALID;
    for (size_t r = 0; r < profile->row_count; r++) count += profile->rows[r].rank == rank ? profile->rows[r].count : 0;
    if (count == 0 || count >= SP_NO_CALL || profile->row_count >= SP_NO_CALL) return SP_ERR_INVALID;
    const int64_t first_id = smallest_id(profile, rank);
    if (first_id < 0) return SP_ERR_INVALID; /* its calls do not nest */
    numbered *calls = (numbered *)sp_column_zeros(2 * count);
    sp_status status = calls ? SP_OK : SP_ERR_NO_MEMORY;
    for (size_t r = 0; status == SP_OK && r < profile->row_count; r++) {
        const bool own = profile->rows[r].rank == rank;
        if (own && !place_row(calls, count, profile, (uint32_t)r, first_id)) status = SP_ERR_INVALID;
    }
    if (status == SP_OK && !add_numbered(paths, calls, count, profile, visible)) status = SP_ERR_NO_MEMORY;
    sp_column_recycle((int64_t *)calls, 2 * count);
    return status;
}

sp_status sp_call_paths_make(sp_call_paths *paths, const sp_profile *profile, uint32_t rank, const bool *visible,
                             sp_error *error)
{
    *paths = (sp_call_paths){0};
    sp_status status = paths_by_id(paths, profile, rank, visible);
    if (status == SP_ERR_INVALID) status = paths_by_time(paths, profile, rank, visible, error);
    else if (status != SP_OK) sp_fail(error, status, "out of memory for the call paths of rank %u", rank);
    if (status != SP_OK) sp_call_paths_free(paths);
    return status;
}

void sp_call_paths_free(sp_call_paths *paths)
{
    free(paths->nodes);
    free(paths->table);
    *paths = (sp_call_paths){0};
}
