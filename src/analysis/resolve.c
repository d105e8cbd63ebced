#include "analysis/resolve.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/wrap.h"

/* Columns are borrowed as memory of another width for a while. */
typedef uint32_t __attribute__((may_alias)) half_word;

/*
 * One rank being resolved. The two id columns serve as the memory of the pass, two halves of 4 bytes a call each:
 *
 *   call_ids     [ order            | parent, by position ]   then  [ order | position, by call ]   then the ids
 *   parent_ids   [ end, by position                       ]   then  the parents' ids
 */
typedef struct ranking {
    const sp_calls all; /* the rank's calls as one region */
    sp_call_index index;
    sp_lane_tops tops;
    int64_t *call_ids, *parent_ids;
    half_word *order, *parent;
    int64_t *exclusive; /* by used row */
    sp_overlap overlap;
} ranking;

static int64_t lane_of(const sp_calls *calls, uint32_t call)
{
    return calls->thread ? sp_lane_of(calls->thread[call], calls->task ? calls->task[call] : -1) : SP_LANE_UNKNOWN;
}

static sp_status make_tops(ranking *r, sp_error *error)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint32_t call = 0; call < r->index.count; call++) {
        const int64_t lane = lane_of(&r->all, call);
        if (lane < low) low = lane;
        if (lane > high) high = lane;
    }
    return sp_lane_tops_make(&r->tops, low, high, r->index.count, error);
}

static void make_order(ranking *r)
{
    sp_call_order order;
    sp_call_order_sort(&r->index, (uint64_t *)r->call_ids, (uint64_t *)r->parent_ids, &order);
    for (uint32_t i = 0; i < r->index.count; i++) r->order[i] = sp_call_order_at(&order, i);
    for (uint32_t i = 0; i < r->index.count; i++) r->parent_ids[i] = r->all.end_ns[r->order[i]];
}

static void tell(ranking *r, bool reversed, uint32_t outer, uint32_t inner)
{
    const uint32_t outer_used = sp_call_index_find(&r->index, outer), inner_used = sp_call_index_find(&r->index, inner);
    r->overlap = (sp_overlap){.reversed = reversed,
                              .outer_region = r->index.region[outer_used],
                              .inner_region = r->index.region[inner_used],
                              .outer_call = outer - r->index.base[outer_used],
                              .inner_call = inner - r->index.base[inner_used]};
}

/* The pass of call_tree.c, over columns that stay where they are. */
static sp_status nest(ranking *r)
{
    const int64_t *const starts = r->all.start_ns, *const ends = r->parent_ids;
    for (uint32_t i = 0; i < r->index.count; i++) {
        const uint32_t call = r->order[i];
        const int64_t start = starts[call], end = ends[i];
        if (end < start) {
            tell(r, true, call, call);
            return SP_ERR_NESTING;
        }
        uint32_t *const innermost = sp_lane_tops_find(&r->tops, lane_of(&r->all, call));
        if (innermost == NULL) return SP_ERR_NO_MEMORY;
        uint32_t top = *innermost;
        while (top != SP_NO_CALL && (ends[top] < start || (ends[top] == start && starts[r->order[top]] != start))) {
            top = r->parent[top];
        }
        if (top != SP_NO_CALL && ends[top] < end) {
            tell(r, false, r->order[top], call);
            return SP_ERR_NESTING;
        }
        const int64_t duration = sp_minus(end, start);
        int64_t *const own = &r->exclusive[sp_call_index_find(&r->index, call)];
        *own = sp_plus(*own, duration);
        if (top != SP_NO_CALL) {
            int64_t *const outer = &r->exclusive[sp_call_index_find(&r->index, r->order[top])];
            *outer = sp_minus(*outer, duration);
        }
        r->parent[i] = top;
        *innermost = i;
    }
    return SP_OK;
}

static void write_ids(ranking *r, int64_t first_call_id)
{
    const uint32_t count = r->index.count;
    for (uint32_t i = 0; i < count; i++) {
        r->parent_ids[r->order[i]] = r->parent[i] == SP_NO_CALL ? -1 : sp_plus(first_call_id, r->parent[i]);
    }
    half_word *const position = r->parent;
    for (uint32_t i = 0; i < count; i++) position[r->order[i]] = i;
    /* Upwards, a value is read (in the second half) before the ids, twice as wide, get there. */
    for (uint32_t call = 0; call < count; call++) r->call_ids[call] = sp_plus(first_call_id, position[call]);
}

static void forget_ids(ranking *r)
{
    for (uint32_t call = 0; call < r->index.count; call++) r->call_ids[call] = r->parent_ids[call] = -1;
}

/* The rows' calls must follow each other, so that a call's number in the rank is its place in the columns. */
static sp_status check_layout(const sp_profile *profile, size_t first_row, size_t row_count, sp_error *error)
{
    uint64_t next = profile->rows[first_row].first;
    for (size_t i = first_row; i < first_row + row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (row->count > 0 && row->first != next) {
            return sp_fail(error, SP_ERR_INVALID, "the calls of rank %u do not lie together", row->rank);
        }
        next = row->first + row->count;
    }
    return SP_OK;
}

static sp_calls calls_of(const sp_profile *profile, uint64_t first, uint64_t count)
{
    if (count == 0) return (sp_calls){0};
    int64_t *const *columns = profile->columns;
    return (sp_calls){.start_ns = columns[SP_COLUMN_START] + first,
                      .end_ns = columns[SP_COLUMN_END] + first,
                      .thread = columns[SP_COLUMN_THREAD] ? columns[SP_COLUMN_THREAD] + first : NULL,
                      .task = columns[SP_COLUMN_TASK] ? columns[SP_COLUMN_TASK] + first : NULL,
                      .id = columns[SP_COLUMN_CALL_ID] ? columns[SP_COLUMN_CALL_ID] + first : NULL,
                      .count = count};
}

static sp_status explain(const sp_profile *profile, const sp_overlap *overlap, const sp_calls *calls, const sp_row *outer,
                         const sp_row *inner, sp_error *error)
{
    return sp_nesting_fail(error, overlap, calls, profile->names[outer->name], profile->names[inner->name]);
}

static sp_status resolve_calls(sp_profile *profile, size_t first_row, const sp_calls *calls, size_t row_count,
                               uint64_t call_count, int64_t first_call_id, sp_error *error)
{
    sp_row *const rows = profile->rows + first_row;
    ranking r = {.all = calls_of(profile, rows->first, call_count)};
    sp_status status = sp_call_index_make(&r.index, calls, row_count, error);
    if (status != SP_OK) return status;
    for (size_t i = 0; i < row_count; i++) rows[i].exclusive_total = 0;
    if (call_count == 0) goto done;
    r.call_ids = profile->columns[SP_COLUMN_CALL_ID] + rows->first;
    r.parent_ids = profile->columns[SP_COLUMN_PARENT_ID] + rows->first;
    r.order = (half_word *)r.call_ids;
    r.parent = r.order + call_count;
    r.exclusive = calloc(r.index.used, sizeof *r.exclusive);
    status = r.exclusive ? make_tops(&r, error) : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for exclusive times");
    if (status != SP_OK) goto done;
    make_order(&r);
    status = nest(&r);
    if (status == SP_OK) write_ids(&r, first_call_id);
    if (status == SP_ERR_NO_MEMORY) sp_fail(error, status, "out of memory for the lanes");
    if (status == SP_ERR_NESTING) {
        explain(profile, &r.overlap, calls, rows + r.overlap.outer_region, rows + r.overlap.inner_region, error);
    }
done:
    for (uint32_t used = 0; status == SP_OK && used < r.index.used; used++) {
        rows[r.index.region[used]].exclusive_total = r.exclusive[used];
    }
    if (status != SP_OK) {
        for (size_t i = 0; i < row_count; i++) rows[i].exclusive_total = SP_UNKNOWN;
        if (r.call_ids) forget_ids(&r);
    }
    free(r.exclusive);
    sp_lane_tops_free(&r.tops);
    sp_call_index_free(&r.index);
    return status;
}

sp_status sp_profile_need_ids(sp_profile *profile, sp_error *error)
{
    for (sp_column column = SP_COLUMN_CALL_ID; column <= SP_COLUMN_PARENT_ID; column++) {
        if (profile->columns[column]) continue;
        int64_t *ids = sp_column_alloc(profile->call_count);
        if (ids == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for call ids");
        for (uint64_t i = 0; i < profile->call_count; i++) ids[i] = -1;
        profile->columns[column] = ids;
    }
    return SP_OK;
}

static void drop_ids(sp_profile *profile)
{
    for (sp_column column = SP_COLUMN_CALL_ID; column <= SP_COLUMN_PARENT_ID; column++) {
        if (profile->columns[column]) sp_column_free(profile->columns[column], profile->call_count);
        profile->columns[column] = NULL;
    }
}

sp_status sp_profile_resolve_rows(sp_profile *profile, size_t first_row, size_t row_count, int64_t first_call_id,
                                  sp_error *error)
{
    sp_status status = check_layout(profile, first_row, row_count, error);
    if (status == SP_OK) status = sp_profile_need_ids(profile, error);
    if (status != SP_OK) return status;
    sp_calls *calls = calloc(row_count, sizeof *calls);
    if (calls == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu regions", row_count);
    uint64_t call_count = 0;
    for (size_t i = 0; i < row_count; i++) {
        const sp_row *row = &profile->rows[first_row + i];
        calls[i] = calls_of(profile, row->first, row->count);
        call_count += row->count;
    }
    status = resolve_calls(profile, first_row, calls, row_count, call_count, first_call_id, error);
    free(calls);
    return status;
}

sp_status sp_profile_resolve(sp_profile *profile, int64_t first_call_id, sp_error *error)
{
    if (error) *error = (sp_error){0};
    if (profile->aggregate || profile->summary_only) return SP_OK;
    bool any = profile->row_count == 0;
    profile->nested = true;
    for (size_t first = 0, count; first < profile->row_count; first += count) {
        count = 1;
        while (first + count < profile->row_count && profile->rows[first + count].rank == profile->rows[first].rank) count++;
        sp_error reason = {0};
        const sp_status status = sp_profile_resolve_rows(profile, first, count, first_call_id, &reason);
        if (status != SP_OK && error && !error->message[0]) *error = reason;
        if (status != SP_OK && status != SP_ERR_NESTING) return status;
        profile->nested &= status == SP_OK;
        any |= status == SP_OK;
    }
    if (!any) drop_ids(profile);
    return SP_OK;
}

/* -- one rank's calls, read only -------------------------------------------------------------------------------------- */

sp_status sp_rank_calls_make(sp_rank_calls *rank_calls, const sp_profile *profile, uint32_t rank, sp_error *error)
{
    *rank_calls = (sp_rank_calls){0};
    if (profile->summary_only || profile->aggregate) {
        return sp_fail(error, SP_ERR_INVALID, "this profile has no calls, only their totals");
    }
    size_t count = 0;
    for (size_t i = 0; i < profile->row_count; i++) count += profile->rows[i].rank == rank;
    rank_calls->calls = calloc(count + 1, sizeof *rank_calls->calls);
    rank_calls->rows = calloc(count + 1, sizeof *rank_calls->rows);
    if (!rank_calls->calls || !rank_calls->rows) {
        sp_rank_calls_free(rank_calls);
        return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu regions", count);
    }
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (row->rank != rank) continue;
        rank_calls->calls[rank_calls->count] = calls_of(profile, row->first, row->count);
        rank_calls->rows[rank_calls->count++] = i;
        rank_calls->call_count += row->count;
    }
    return SP_OK;
}

void sp_rank_calls_free(sp_rank_calls *rank_calls)
{
    free(rank_calls->calls);
    free(rank_calls->rows);
    *rank_calls = (sp_rank_calls){0};
}

sp_status sp_rank_calls_tree(const sp_rank_calls *rank_calls, const sp_profile *profile, sp_nest_mode mode,
                             sp_call_tree *tree, sp_error *error)
{
    sp_overlap overlap;
    const sp_status status = sp_call_tree_build(tree, rank_calls->calls, rank_calls->count, mode, &overlap, error);
    if (status != SP_ERR_NESTING) return status;
    return explain(profile, &overlap, rank_calls->calls, &profile->rows[rank_calls->rows[overlap.outer_region]],
                   &profile->rows[rank_calls->rows[overlap.inner_region]], error);
}

sp_status sp_rank_calls_exclusive(const sp_rank_calls *rank_calls, const sp_profile *profile, sp_nest_mode mode,
                                  int64_t **out, sp_error *error)
{
    *out = NULL;
    sp_call_tree tree = {0};
    uint64_t *bases = malloc((rank_calls->count + 1) * sizeof *bases);
    int64_t *exclusive = sp_column_alloc(rank_calls->call_count);
    sp_status status = bases && exclusive ? sp_rank_calls_tree(rank_calls, profile, mode, &tree, error)
                                          : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for exclusive times");
    if (status != SP_OK) goto done;
    bases[0] = 0;
    for (size_t r = 0; r < rank_calls->count; r++) bases[r + 1] = bases[r] + rank_calls->calls[r].count;
    for (uint64_t i = 0; i < tree.count; i++) exclusive[bases[tree.region[i]] + (uint64_t)tree.call[i]] = tree.exclusive_ns[i];
    *out = exclusive;
    exclusive = NULL;
done:
    if (exclusive) sp_column_free(exclusive, rank_calls->call_count);
    free(bases);
    sp_call_tree_free(&tree);
    return status;
}
