#include "analysis/call_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/profile.h"
#include "analysis/wrap.h"
#include "core/grow.h"

/* -- lanes ------------------------------------------------------------------------------------------------------------ */

#define HASH_SIZE_FIRST 64u

sp_status sp_lane_tops_make(sp_lane_tops *tops, int64_t low, int64_t high, uint64_t count, sp_error *error)
{
    *tops = (sp_lane_tops){.low = low};
    const uint64_t span = (uint64_t)high - (uint64_t)low; /* one less than the lanes, so that all of int64 is no overflow */
    if (span < 4 * count + 4096) {
        tops->range = span + 1;
        tops->table = malloc(tops->range * sizeof *tops->table);
        if (tops->table) memset(tops->table, 0xff, tops->range * sizeof *tops->table);
    } else {
        tops->size = HASH_SIZE_FIRST;
        tops->hashed = calloc(tops->size, sizeof *tops->hashed);
    }
    if (tops->table || tops->hashed) return SP_OK;
    return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the lanes of %llu calls", (unsigned long long)count);
}

void sp_lane_tops_free(sp_lane_tops *tops)
{
    free(tops->table);
    free(tops->hashed);
    *tops = (sp_lane_tops){0};
}

static struct sp_lane_top *slot_of(const sp_lane_tops *tops, int64_t lane)
{
    uint64_t hash = (uint64_t)lane * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xd6e8feb86659fd93);
    hash ^= hash >> 32;
    uint64_t at = hash & (tops->size - 1);
    while (tops->hashed[at].taken && tops->hashed[at].lane != lane) at = (at + 1) & (tops->size - 1);
    return &tops->hashed[at];
}

static bool grow(sp_lane_tops *tops)
{
    sp_lane_tops larger = *tops;
    larger.size = tops->size ? 2 * tops->size : HASH_SIZE_FIRST;
    larger.hashed = calloc(larger.size, sizeof *larger.hashed);
    if (larger.hashed == NULL) return false;
    for (uint64_t i = 0; i < tops->size; i++) {
        if (tops->hashed[i].taken) *slot_of(&larger, tops->hashed[i].lane) = tops->hashed[i];
    }
    free(tops->hashed);
    *tops = larger;
    return true;
}

uint32_t *sp_lane_tops_find_hashed(sp_lane_tops *tops, int64_t lane)
{
    if (tops->size == 0 && !grow(tops)) return NULL; /* a lane outside of the range that the table was made for */
    struct sp_lane_top *slot = slot_of(tops, lane);
    if (slot->taken) return &slot->top;
    if (2 * tops->used >= tops->size) {
        if (!grow(tops)) return NULL;
        slot = slot_of(tops, lane);
    }
    tops->used++;
    *slot = (struct sp_lane_top){.lane = lane, .top = SP_NO_CALL, .taken = true};
    return &slot->top;
}

/* -- the tree --------------------------------------------------------------------------------------------------------- */

static bool allocate(sp_call_tree *tree, bool with_lanes)
{
    int64_t **const columns[] = {&tree->region, &tree->call, &tree->start_ns, &tree->end_ns, &tree->depth, &tree->parent,
                                 &tree->exclusive_ns, &tree->lane};
    const size_t wanted = sizeof columns / sizeof *columns - (with_lanes ? 0 : 1);
    for (size_t c = 0; c < wanted; c++) {
        *columns[c] = sp_column_alloc(tree->count);
        if (*columns[c] == NULL) return false;
    }
    return true;
}

void sp_call_tree_free(sp_call_tree *tree)
{
    int64_t *const columns[] = {tree->region, tree->call, tree->start_ns, tree->end_ns, tree->depth, tree->parent,
                                tree->exclusive_ns, tree->lane};
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
        sp_column_recycle(columns[c], tree->count);
    }
    *tree = (sp_call_tree){0};
}

static bool have_lanes(const sp_call_index *index)
{
    for (uint32_t used = 0; used < index->used; used++) {
        if (index->regions[index->region[used]].thread) return true;
    }
    return false;
}

static int64_t lane_of(const sp_calls *calls, uint32_t own)
{
    return calls->thread ? sp_lane_of(calls->thread[own], calls->task ? calls->task[own] : -1) : SP_LANE_UNKNOWN;
}

static sp_status make_tops(sp_lane_tops *tops, const sp_call_tree *tree, sp_error *error)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint64_t i = 0; i < tree->count; i++) {
        if (tree->lane[i] < low) low = tree->lane[i];
        if (tree->lane[i] > high) high = tree->lane[i];
    }
    return sp_lane_tops_make(tops, low, high, tree->count, error);
}

/* Fill the columns that only repeat the input, in order. */
static void gather(sp_call_tree *tree, const sp_call_index *index, const sp_call_order *order)
{
    for (uint64_t i = 0; i < tree->count; i++) {
        const uint32_t call = sp_call_order_at(order, i);
        const uint32_t used = sp_call_index_find(index, call);
        const uint32_t own = call - index->base[used], region = index->region[used];
        const sp_calls *calls = &index->regions[region];
        tree->region[i] = region;
        tree->call[i] = own;
        tree->start_ns[i] = calls->start_ns[own];
        tree->end_ns[i] = calls->end_ns[own];
        if (tree->lane) tree->lane[i] = lane_of(calls, own);
    }
}

/* The same for recorded calls, which are numbered: nothing is sorted. False: their ids are not the order. */
static bool gather_numbered(sp_call_tree *tree, const sp_call_index *index)
{
    sp_call_turns made;
    bool ordered = sp_call_turns_make(&made, index, (sp_turn *)tree->parent); /* which is not written yet */
    sp_call_turns turns = made; /* one that no store through a column can be thought to change */
    int64_t *const start_ns = tree->start_ns, *const end_ns = tree->end_ns;
    for (uint64_t i = 0; ordered && i < tree->count; i++) {
        uint32_t used, own;
        int64_t start, end;
        ordered = sp_call_turns_next(&turns, &used, &own, &start, &end);
        if (!ordered) break;
        const uint32_t region = turns.queues[used].region;
        start_ns[i] = start;
        end_ns[i] = end;
        tree->region[i] = region;
        tree->call[i] = own;
        if (tree->lane) tree->lane[i] = lane_of(&index->regions[region], own);
    }
    sp_call_turns_free(&made);
    return ordered;
}

typedef struct nesting {
    sp_call_tree *tree;
    sp_lane_tops *tops;
    bool reversed; /* what went wrong, at positions outer and inner */
    uint64_t outer, inner;
} nesting;

static inline int64_t end_of(const sp_call_tree *tree, uint64_t position, bool clamp)
{
    const int64_t end = tree->end_ns[position];
    return clamp && end < tree->start_ns[position] ? tree->start_ns[position] : end;
}

/* Whether an open call is over when another starts. Of calls without length, those of the same instant are not. */
static inline bool is_over(const sp_call_tree *tree, uint32_t position, int64_t start, bool clamp)
{
    const int64_t end = end_of(tree, position, clamp);
    return end < start || (end == start && tree->start_ns[position] != start);
}

/*
 * The pass. `clamp` and `lanes` are constants in each of its callers. The innermost open call of the lane is `top`. First
 * the calls that are over are closed, then, clamped, those that this call outlives give the time from its start to it:
 * what of them their own children have not taken begins where the last of these ended (`taken`).
 *
 * Thousands of lanes that interleave at random cost cache misses here. In one loop with gather() it was slower, since the
 * processor could not work ahead on as many lanes; prefetching and a compact pool of the open calls made no difference.
 */
static inline __attribute__((always_inline)) sp_status nest(nesting *n, const bool clamp, const bool lanes)
{
    sp_call_tree *const tree = n->tree;
    uint32_t only = SP_NO_CALL;
    for (uint64_t i = 0; i < tree->count; i++) {
        const int64_t start = tree->start_ns[i], end = end_of(tree, i, clamp);
        if (!clamp && __builtin_expect(end < start, 0)) {
            n->reversed = true;
            n->inner = i;
            return SP_ERR_NESTING;
        }
        uint32_t *const innermost = lanes ? sp_lane_tops_find(n->tops, tree->lane[i]) : &only;
        if (lanes && __builtin_expect(innermost == NULL, 0)) return SP_ERR_NO_MEMORY;
        uint32_t top = *innermost;
        while (top != SP_NO_CALL && is_over(tree, top, start, clamp)) {
            top = (uint32_t)tree->parent[top]; /* -1 becomes SP_NO_CALL */
        }
        int64_t taken = start;
        while (top != SP_NO_CALL && __builtin_expect(end_of(tree, top, clamp) < end, 0)) {
            if (!clamp) {
                n->outer = top;
                n->inner = i;
                return SP_ERR_NESTING;
            }
            tree->exclusive_ns[top] = sp_minus(tree->exclusive_ns[top], sp_minus(end_of(tree, top, clamp), taken));
            taken = end_of(tree, top, clamp);
            top = (uint32_t)tree->parent[top];
        }
        tree->exclusive_ns[i] = sp_minus(end, start);
        if (top == SP_NO_CALL) {
            tree->parent[i] = -1;
            tree->depth[i] = 0;
        } else {
            tree->parent[i] = top;
            tree->depth[i] = tree->depth[top] + 1;
            tree->exclusive_ns[top] = sp_minus(tree->exclusive_ns[top], sp_minus(end, taken));
        }
        *innermost = (uint32_t)i;
    }
    return SP_OK;
}

static sp_status nest_all(nesting *n, sp_nest_mode mode)
{
    if (mode == SP_NEST_STRICT) return n->tree->lane ? nest(n, false, true) : nest(n, false, false);
    return n->tree->lane ? nest(n, true, true) : nest(n, true, false);
}

static void tell(sp_overlap *overlap, const nesting *n, const sp_call_tree *tree)
{
    *overlap = (sp_overlap){.reversed = n->reversed,
                            .inner_region = (size_t)tree->region[n->inner],
                            .inner_call = (uint64_t)tree->call[n->inner]};
    if (n->reversed) return;
    overlap->outer_region = (size_t)tree->region[n->outer];
    overlap->outer_call = (uint64_t)tree->call[n->outer];
}

sp_status sp_call_tree_build(sp_call_tree *tree, const sp_calls *regions, size_t region_count, sp_nest_mode mode,
                             sp_overlap *overlap, sp_error *error)
{
    *tree = (sp_call_tree){0};
    sp_call_index index;
    sp_lane_tops tops = {0};
    sp_status status = sp_call_index_make(&index, regions, region_count, error);
    if (status != SP_OK) return status;
    tree->count = index.count;
    if (tree->count == 0) goto done;
    if (!allocate(tree, have_lanes(&index))) {
        status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the tree of %llu calls",
                         (unsigned long long)tree->count);
        goto done;
    }
    if (!gather_numbered(tree, &index)) {
        /* Two columns are written only after the order is used up: they are its scratch. */
        sp_call_order order;
        sp_call_order_sort(&index, (uint64_t *)tree->parent, (uint64_t *)tree->exclusive_ns, &order);
        gather(tree, &index, &order);
    }
    if (tree->lane) status = make_tops(&tops, tree, error);
    if (status != SP_OK) goto done;
    nesting n = {.tree = tree, .tops = &tops};
    status = nest_all(&n, mode);
    if (status == SP_ERR_NO_MEMORY) sp_fail(error, status, "out of memory for the lanes");
    if (status == SP_ERR_NESTING && overlap) tell(overlap, &n, tree);
done:
    if (status != SP_OK) sp_call_tree_free(tree);
    sp_lane_tops_free(&tops);
    sp_call_index_free(&index);
    return status;
}

/* -- where calls overlap ---------------------------------------------------------------------------------------------- */

typedef struct overlap_finder {
    const sp_call_tree *tree;
    uint32_t *last;           /* by call: the newest of its direct children */
    sp_lane_tops last_root, told; /* the same of a lane's roots; and whether the lane is in the list */
    sp_lane_overlap *list;
    size_t count, size;
} overlap_finder;

static bool add_overlap(overlap_finder *f, int64_t lane, uint32_t outer, uint32_t inner)
{
    uint32_t *const told = sp_lane_tops_find(&f->told, lane);
    if (told == NULL) return false;
    if (*told != SP_NO_CALL) return true;
    if (!sp_grow(&f->list, &f->size, f->count, sizeof *f->list, 8)) return false;
    *told = inner;
    sp_overlap overlap = {.reversed = outer == SP_NO_CALL, .inner_region = (size_t)f->tree->region[inner],
                          .inner_call = (uint64_t)f->tree->call[inner]};
    if (!overlap.reversed) {
        overlap.outer_region = (size_t)f->tree->region[outer];
        overlap.outer_call = (uint64_t)f->tree->call[outer];
    }
    f->list[f->count++] = (sp_lane_overlap){lane, overlap};
    return true;
}

/*
 * Clamped, a call that outlives the one it starts in stands beside that one, or beside one around it: of two neighbours below one call the
 * first has then not ended where the second starts. In a tree that nests no neighbours overlap.
 */
static bool find_overlaps(overlap_finder *f)
{
    const sp_call_tree *tree = f->tree;
    for (uint64_t i = 0; i < tree->count; i++) {
        const int64_t lane = tree->lane ? tree->lane[i] : SP_LANE_UNKNOWN;
        uint32_t *const last = tree->parent[i] >= 0 ? &f->last[tree->parent[i]] : sp_lane_tops_find(&f->last_root, lane);
        if (last == NULL) return false;
        const bool reversed = tree->end_ns[i] < tree->start_ns[i];
        const bool overlaps = *last != SP_NO_CALL && tree->end_ns[*last] > tree->start_ns[i];
        if ((reversed || overlaps) && !add_overlap(f, lane, reversed ? SP_NO_CALL : *last, (uint32_t)i)) return false;
        *last = (uint32_t)i;
    }
    return true;
}

sp_status sp_call_tree_overlaps(const sp_call_tree *tree, sp_lane_overlap **out, size_t *count, sp_error *error)
{
    overlap_finder f = {.tree = tree, .last = malloc((tree->count + 1) * sizeof *f.last)};
    if (f.last) memset(f.last, 0xff, (tree->count + 1) * sizeof *f.last);
    const bool found = f.last && find_overlaps(&f);
    free(f.last);
    sp_lane_tops_free(&f.last_root);
    sp_lane_tops_free(&f.told);
    if (!found) {
        free(f.list);
        return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the lanes");
    }
    *out = f.list;
    *count = f.count;
    return SP_OK;
}

/* -- the sentence ----------------------------------------------------------------------------------------------------- */

#define NAME_SHOWN 160

typedef struct shown_name {
    char text[NAME_SHOWN + 4];
} shown_name;

static shown_name show(const char *name)
{
    shown_name shown;
    size_t size = strlen(name);
    if (size <= NAME_SHOWN) {
        memcpy(shown.text, name, size + 1);
        return shown;
    }
    size = NAME_SHOWN;
    while (size > 0 && ((unsigned char)name[size] & 0xc0) == 0x80) size--; /* not inside a character */
    memcpy(shown.text, name, size);
    memcpy(shown.text + size, "...", 4);
    return shown;
}

sp_overlap_text sp_overlap_tell(const sp_overlap *overlap, const sp_calls *regions, const char *outer_name, const char *inner_name)
{
    sp_overlap_text told;
    const shown_name inner = show(inner_name);
    const int64_t inner_start = regions[overlap->inner_region].start_ns[overlap->inner_call];
    const int64_t inner_end = regions[overlap->inner_region].end_ns[overlap->inner_call];
    if (overlap->reversed) {
        snprintf(told.text, sizeof told.text, "call %llu of '%s' [%lld, %lld] ns ends before it starts",
                 (unsigned long long)overlap->inner_call, inner.text, (long long)inner_start, (long long)inner_end);
        return told;
    }
    const shown_name outer = show(outer_name);
    const int64_t outer_start = regions[overlap->outer_region].start_ns[overlap->outer_call];
    const int64_t outer_end = regions[overlap->outer_region].end_ns[overlap->outer_call];
    snprintf(told.text, sizeof told.text,
             "call %llu of '%s' [%lld, %lld] ns starts inside call %llu of '%s' [%lld, %lld] ns on the same lane, but ends after it",
             (unsigned long long)overlap->inner_call, inner.text, (long long)inner_start, (long long)inner_end,
             (unsigned long long)overlap->outer_call, outer.text, (long long)outer_start, (long long)outer_end);
    return told;
}

/* What would have kept the calls apart, by what the run did keep apart. */
static const char *way_out(const sp_calls *calls)
{
    if (calls->thread == NULL) return "threads and tasks need track_threads or track_async to be told apart";
    if (calls->task == NULL) return "tasks need track_async to be told apart, and a generator that is suspended inside of a region does this";
    return "a generator that is suspended inside of a region does this";
}

sp_status sp_nesting_fail(sp_error *error, const sp_overlap *overlap, const sp_calls *regions, const char *outer_name,
                          const char *inner_name)
{
    const sp_overlap_text told = sp_overlap_tell(overlap, regions, outer_name, inner_name);
    if (overlap->reversed) return sp_fail(error, SP_ERR_NESTING, "%s", told.text);
    return sp_fail(error, SP_ERR_NESTING, "%s; %s", told.text, way_out(&regions[overlap->inner_region]));
}
