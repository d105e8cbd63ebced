#include "analysis/call_paths.h"

#include <stdlib.h>
#include <string.h>

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
    const int64_t duration = event->call.end_ns - event->call.start_ns;
    sp_call_path *path = &paths->nodes[node];
    path->calls++;
    path->exclusive_ns += duration;
    if (parent != SP_NO_CALL) paths->nodes[parent].exclusive_ns -= duration;
    if (node != parent) {
        path->outermost++;
        path->total_ns += duration;
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

sp_status sp_call_paths_make(sp_call_paths *paths, const sp_profile *profile, uint32_t rank, const bool *visible,
                             sp_error *error)
{
    *paths = (sp_call_paths){0};
    sp_tracks tracks;
    sp_status status = sp_tracks_make(&tracks, profile, rank, visible, error);
    if (status != SP_OK) return status;
    node_stack stack = {0};
    for (size_t t = 0; status == SP_OK && t < tracks.track_count; t++) {
        status = add_track(paths, &stack, &tracks, &tracks.tracks[t]);
    }
    if (status != SP_OK) {
        sp_fail(error, status, "out of memory for the call paths of rank %u", rank);
        sp_call_paths_free(paths);
    }
    free(stack.nodes);
    sp_tracks_free(&tracks);
    return status;
}

void sp_call_paths_free(sp_call_paths *paths)
{
    free(paths->nodes);
    free(paths->table);
    *paths = (sp_call_paths){0};
}
