#include "analysis/path_summary.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/call_tree.h"
#include "analysis/percentile.h"
#include "analysis/row_sums.h"
#include "analysis/wrap.h"
#include "core/grow.h"
#include "core/sort.h"

#define NO_NODE SP_PATH_NONE
/* In node_of: the call's own region is left out, and this is the node of the nearest caller that is not. */
#define HIDDEN 0x80000000u
#define NODE_MASK 0x7fffffffu
#define HIDDEN_ROOT (HIDDEN | NODE_MASK)
#define NODES_MAX (NODE_MASK - 1)

/* The row of one node on the rank under way. */
typedef struct node_total {
    uint64_t count;
    bool recursive;
    bool stored; /* the statistics are complete, not sums under way */
    int64_t inclusive, exclusive, covered, awaiting, until;
    sp_row_statistics statistics;
    sp_squares squares;
} node_total;

/* The calls of one rank in call order. Only one of parent_ids and parents is there. */
typedef struct rank_calls {
    uint32_t rank;
    uint64_t count;
    uint64_t base;             /* index below is relative to this column index */
    uint32_t *index;           /* position -> column index */
    uint32_t *node_of;         /* position -> row of the profile; then, as calls are added, their node */
    const int64_t *parent_ids; /* by column index; position = id - first_id */
    int64_t first_id;
    const int64_t *parents;    /* by position */
    const int64_t *exclusive;  /* by position; NULL: duration less that of the direct children */
} rank_calls;

/* By the lowest bits of their names: calls under one node mostly take turns among a few regions. */
#define RECENT_NODES 4

typedef struct recent_nodes {
    uint32_t node[RECENT_NODES];
} recent_nodes;

static const recent_nodes none_recent = {{NO_NODE, NO_NODE, NO_NODE, NO_NODE}};

typedef struct builder {
    const sp_profile *profile;
    const sp_path_options *options;
    sp_path_summary *out;
    sp_error *error;
    sp_status status; /* why find_node failed */
    const int64_t *await; /* the column, where there are calls that have one */
    size_t node_size, row_size, thread_size;
    node_total *totals;  /* [node_size] */
    recent_nodes *recent; /* [node_size + 1]: under each node (index + 1, 0 the root), the children found last */
    uint32_t *buckets;   /* hash table over (parent, name): node + 1, 0 free */
    size_t bucket_count; /* a power of two, at least twice the nodes */
    uint32_t *call_nodes; /* [call_count] node of every call, for percentiles; or NULL */
} builder;

static sp_status no_memory(const builder *b)
{
    return sp_fail(b->error, SP_ERR_NO_MEMORY, "out of memory while summing up calls");
}

static bool is_visible(const builder *b, uint32_t name)
{
    return b->options->visible == NULL || b->options->visible[name];
}

static bool rank_is_selected(const builder *b, uint32_t rank)
{
    const sp_path_options *options = b->options;
    if (options->rank_count == 0) return true;
    for (size_t i = 0; i < options->rank_count; i++) {
        if (options->ranks[i] == rank) return true;
    }
    return false;
}

static bool is_selected(const builder *b, const sp_row *row)
{
    return row->name < b->profile->name_count && rank_is_selected(b, row->rank);
}

/* -- nodes -- */

static size_t bucket_of(const builder *b, int32_t parent, uint32_t name)
{
    const uint64_t key = ((uint64_t)(uint32_t)parent << 32 | name) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key >> 32) & (b->bucket_count - 1);
}

static void put_bucket(builder *b, uint32_t node)
{
    const sp_path_node *n = &b->out->nodes[node];
    size_t at = bucket_of(b, n->parent, n->name);
    while (b->buckets[at]) at = (at + 1) & (b->bucket_count - 1);
    b->buckets[at] = node + 1;
}

static sp_status grow_nodes(builder *b)
{
    const size_t size = b->node_size ? b->node_size * 2 : 64;
    if (size > NODES_MAX) return sp_fail(b->error, SP_ERR_UNSUPPORTED, "more than %u call paths", NODES_MAX / 2);
    sp_path_node *nodes = realloc(b->out->nodes, size * sizeof *nodes);
    if (nodes) b->out->nodes = nodes;
    node_total *totals = realloc(b->totals, size * sizeof *totals);
    if (totals) b->totals = totals;
    recent_nodes *recent = realloc(b->recent, (size + 1) * sizeof *recent);
    if (recent) b->recent = recent;
    uint32_t *buckets = calloc(size * 2, sizeof *buckets);
    if (nodes == NULL || totals == NULL || recent == NULL || buckets == NULL) {
        free(buckets);
        return no_memory(b);
    }
    if (b->node_size == 0) b->recent[0] = none_recent;
    free(b->buckets);
    b->buckets = buckets;
    b->bucket_count = size * 2;
    b->node_size = size;
    for (uint32_t i = 0; i < b->out->node_count; i++) put_bucket(b, i);
    return SP_OK;
}

/* The same where it was not found lately. */
static __attribute__((noinline)) uint32_t look_up_node(builder *b, int32_t parent, uint32_t name)
{
    uint32_t *recent = &b->recent[parent + 1].node[name % RECENT_NODES];
    size_t at = bucket_of(b, parent, name);
    for (; b->buckets[at]; at = (at + 1) & (b->bucket_count - 1)) {
        const uint32_t node = b->buckets[at] - 1;
        if (b->out->nodes[node].parent == parent && b->out->nodes[node].name == name) return *recent = node;
    }
    if (b->out->node_count == b->node_size) {
        b->status = grow_nodes(b);
        if (b->status != SP_OK) return NO_NODE;
        recent = &b->recent[parent + 1].node[name % RECENT_NODES];
    }
    const uint32_t node = (uint32_t)b->out->node_count++;
    b->out->nodes[node] = (sp_path_node){.name = name, .parent = parent};
    b->totals[node].count = 0;
    b->recent[node + 1] = none_recent;
    put_bucket(b, node);
    return *recent = node;
}

/* The child `name` of `parent`, made if it is new. NO_NODE: it failed with b->status. */
static inline uint32_t find_node(builder *b, int32_t parent, uint32_t name)
{
    const uint32_t recent = b->recent[parent + 1].node[name % RECENT_NODES];
    return recent != NO_NODE && b->out->nodes[recent].name == name ? recent : look_up_node(b, parent, name);
}

/* -- sums -- */

static void start_total(node_total *total)
{
    memset(total, 0, sizeof *total);
    total->statistics.minimum = INT64_MAX;
    total->statistics.maximum = INT64_MIN;
    total->statistics.start_minimum = INT64_MAX;
    total->statistics.end_maximum = INT64_MIN;
    total->until = INT64_MIN;
}

/* How much of the wall clock from start to end lies behind `until`, which moves to the end. */
static inline int64_t uncovered(int64_t start, int64_t end, int64_t *until)
{
    if (end <= start || end <= *until) return 0;
    const int64_t from = start > *until ? start : *until;
    *until = end;
    return sp_minus(end, from);
}

/* When a call was. Calls come by ascending start, so the wall clock they cover only grows at its end. */
static inline void add_interval(node_total *total, int64_t start, int64_t end, int64_t duration)
{
    sp_row_statistics *s = &total->statistics;
    if (start < s->start_minimum) {
        s->start_minimum = start;
        s->first = duration;
    }
    if (end > s->end_maximum) {
        s->end_maximum = end;
        s->last = duration;
    }
    total->covered = sp_plus(total->covered, uncovered(start, end, &total->until));
}

/* One call more. */
static void add_duration(node_total *total, int64_t start, int64_t end)
{
    if (total->count == 0) start_total(total);
    sp_row_statistics *s = &total->statistics;
    const int64_t duration = sp_minus(end, start);
    total->count++;
    s->total = sp_plus(s->total, duration);
    if (duration < s->minimum) s->minimum = duration;
    if (duration > s->maximum) s->maximum = duration;
    total->squares += sp_square(duration);
    add_interval(total, start, end, duration);
}

static void add_gpu(node_total *total, int64_t duration)
{
    if (duration < 0) return; /* not measured */
    total->statistics.gpu_count++;
    total->statistics.gpu_total = sp_plus(total->statistics.gpu_total, duration);
}

static void finish_moments(node_total *total)
{
    if (total->stored) return;
    sp_row_statistics *s = &total->statistics;
    sp_moments(s->total, total->count, total->squares, &s->mean, &s->m2);
}

/* The rank is through: its totals become rows. */
static sp_status flush_rank(builder *b, uint32_t rank)
{
    sp_path_summary *out = b->out;
    for (uint32_t node = 0; node < out->node_count; node++) {
        node_total *total = &b->totals[node];
        if (total->count == 0) continue;
        if (!sp_grow(&out->rows, &b->row_size, out->row_count, sizeof *out->rows, 64)) return no_memory(b);
        finish_moments(total);
        out->rows[out->row_count++] = (sp_path_row){
            .node = node, .rank = rank, .count = total->count, .recursive = total->recursive,
            .inclusive = total->inclusive, .exclusive = total->exclusive, .covered = total->covered,
            .awaiting = b->await ? total->awaiting : SP_UNKNOWN, .statistics = total->statistics,
        };
        total->count = 0;
    }
    return SP_OK;
}

/* -- threads -- */

typedef struct thread_table {
    const int64_t *column; /* by column index; NULL: no threads recorded */
    sp_lane_tops tops;     /* thread -> place in out->threads, less `first` */
    size_t first;          /* of this rank */
    int64_t *until;        /* [thread_size - first] */
} thread_table;

static int compare_usage(const void *a, const void *b)
{
    const int64_t x = ((const sp_thread_usage *)a)->thread, y = ((const sp_thread_usage *)b)->thread;
    return (x > y) - (x < y);
}

static sp_status open_threads(builder *b, thread_table *table, const rank_calls *calls)
{
    memset(table, 0, sizeof *table);
    const int64_t *column = b->profile->columns[SP_COLUMN_THREAD];
    if (column == NULL || calls->count == 0) return SP_OK;
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint64_t i = 0; i < calls->count; i++) {
        const int64_t thread = column[calls->base + calls->index[i]];
        if (thread < low) low = thread;
        if (thread > high) high = thread;
    }
    table->column = column;
    table->first = b->out->thread_count;
    return sp_lane_tops_make(&table->tops, low, high, calls->count, b->error);
}

static sp_status add_usage(builder *b, thread_table *table, uint32_t rank, int64_t thread, int64_t start, int64_t end)
{
    uint32_t *place = sp_lane_tops_find(&table->tops, thread);
    if (place == NULL) return no_memory(b);
    sp_path_summary *out = b->out;
    if (*place == SP_NO_CALL) {
        if (!sp_grow(&out->threads, &b->thread_size, out->thread_count, sizeof *out->threads, 16)) return no_memory(b);
        const size_t count = out->thread_count - table->first;
        if ((count & (count - 1)) == 0) { /* a power of two: room for as many again */
            int64_t *until = realloc(table->until, (count ? count * 2 : 1) * sizeof *until);
            if (until == NULL) return no_memory(b);
            table->until = until;
        }
        table->until[count] = INT64_MIN;
        *place = (uint32_t)count;
        out->threads[out->thread_count++] = (sp_thread_usage){.rank = rank, .thread = thread};
    }
    sp_thread_usage *usage = &out->threads[table->first + *place];
    usage->count++;
    usage->covered = sp_plus(usage->covered, uncovered(start, end, &table->until[*place]));
    return SP_OK;
}

static void close_threads(builder *b, thread_table *table)
{
    if (table->column == NULL) return;
    const size_t count = b->out->thread_count - table->first;
    sp_sort(b->out->threads + table->first, count, sizeof(sp_thread_usage), compare_usage);
    sp_lane_tops_free(&table->tops);
    free(table->until);
}

/* -- the pass over a rank -- */

/* The node of calls of the region `name` directly under calls of the node `above` (SP_PATH_ROOT: under none). NO_NODE: it failed with b->status. */
static inline uint32_t node_under(builder *b, int32_t above, uint32_t name)
{
    return above >= 0 && b->out->nodes[above].name == name ? (uint32_t)above : find_node(b, above, name);
}

static sp_status add_call(builder *b, thread_table *threads, const rank_calls *calls, uint64_t position)
{
    const sp_profile *profile = b->profile;
    const uint64_t at = calls->base + calls->index[position];
    const int64_t start = profile->columns[SP_COLUMN_START][at], end = profile->columns[SP_COLUMN_END][at];
    const int64_t duration = sp_minus(end, start);
    int64_t parent = calls->parents ? calls->parents[position] : calls->parent_ids[at];
    if (calls->parents == NULL) parent = parent < calls->first_id ? -1 : sp_minus(parent, calls->first_id);

    const uint32_t above = parent < 0 ? HIDDEN_ROOT : calls->node_of[parent];
    const int32_t above_node = (above & NODE_MASK) == NODE_MASK ? SP_PATH_ROOT : (int32_t)(above & NODE_MASK);
    const uint32_t name = profile->rows[calls->node_of[position]].name;

    /* a caller that is left out takes its callees' time off nothing: it was taken off its own caller whole */
    if (calls->exclusive == NULL && !(above & HIDDEN)) {
        b->totals[above_node].exclusive = sp_minus(b->totals[above_node].exclusive, duration);
    }
    if (!is_visible(b, name)) {
        calls->node_of[position] = above | HIDDEN;
        return SP_OK;
    }
    const uint32_t node = node_under(b, above_node, name);
    if (node == NO_NODE) return b->status;
    calls->node_of[position] = node;
    if (b->call_nodes) b->call_nodes[at] = node;

    node_total *total = &b->totals[node];
    add_duration(total, start, end);
    if ((int32_t)node == above_node) total->recursive = true;
    else total->inclusive = sp_plus(total->inclusive, duration);
    total->exclusive = sp_plus(total->exclusive, calls->exclusive ? calls->exclusive[position] : duration);
    if (profile->columns[SP_COLUMN_GPU]) add_gpu(total, profile->columns[SP_COLUMN_GPU][at]);
    if (b->await && (int32_t)node != above_node) total->awaiting = sp_plus(total->awaiting, b->await[at]);
    if (threads->column == NULL) return SP_OK;
    return add_usage(b, threads, calls->rank, threads->column[at], start, end);
}

static sp_status add_rank(builder *b, const rank_calls *calls)
{
    thread_table threads;
    sp_status status = open_threads(b, &threads, calls);
    for (uint64_t i = 0; status == SP_OK && i < calls->count; i++) status = add_call(b, &threads, calls, i);
    close_threads(b, &threads);
    return status == SP_OK ? flush_rank(b, calls->rank) : status;
}

/* -- call order -- */

/* Rows [first, last) are those of one rank. */
typedef struct row_span {
    size_t first, last;
} row_span;

static sp_status open_rank(const builder *b, row_span span, rank_calls *calls)
{
    const sp_row *rows = b->profile->rows;
    memset(calls, 0, sizeof *calls);
    calls->rank = rows[span.first].rank;
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t r = span.first; r < span.last; r++) {
        if (rows[r].count == 0) continue;
        calls->count += rows[r].count;
        if (rows[r].first < low) low = rows[r].first;
        if (rows[r].first + rows[r].count > high) high = rows[r].first + rows[r].count;
    }
    if (calls->count == 0) return SP_OK;
    if (high - low > SP_CALLS_MAX || span.last > UINT32_MAX) {
        return sp_fail(b->error, SP_ERR_UNSUPPORTED, "rank %u has too many calls to sum up by path", calls->rank);
    }
    calls->base = low;
    calls->index = malloc(calls->count * sizeof *calls->index);
    calls->node_of = malloc(calls->count * sizeof *calls->node_of);
    return calls->index && calls->node_of ? SP_OK : no_memory(b);
}

static void close_rank(rank_calls *calls)
{
    free(calls->index);
    free(calls->node_of);
}

static void mark_free(uint32_t *values, uint64_t count)
{
    memset(values, 0xff, count * sizeof *values);
}

/* Put the calls in order by their ids. False when the ids are not those of whole trees, in order of start. */
static bool order_by_id(const builder *b, row_span span, rank_calls *calls)
{
    const sp_profile *profile = b->profile;
    const int64_t *ids = profile->columns[SP_COLUMN_CALL_ID], *parents = profile->columns[SP_COLUMN_PARENT_ID];
    const int64_t *starts = profile->columns[SP_COLUMN_START];
    if (ids == NULL || parents == NULL) return false;
    int64_t low = INT64_MAX;
    for (size_t r = span.first; r < span.last; r++) {
        const sp_row *row = &profile->rows[r];
        for (uint64_t i = row->first; i < row->first + row->count; i++) {
            if (ids[i] < low) low = ids[i];
        }
    }
    if (low < 0) return false;
    mark_free(calls->index, calls->count);
    for (size_t r = span.first; r < span.last; r++) {
        const sp_row *row = &profile->rows[r];
        for (uint64_t i = row->first; i < row->first + row->count; i++) {
            const uint64_t position = (uint64_t)ids[i] - (uint64_t)low;
            if (position >= calls->count || calls->index[position] != UINT32_MAX) return false;
            calls->index[position] = (uint32_t)(i - calls->base);
            calls->node_of[position] = (uint32_t)r;
        }
    }
    int64_t before = INT64_MIN;
    for (uint64_t position = 0; position < calls->count; position++) {
        const uint64_t at = calls->base + calls->index[position];
        if (starts[at] < before || (parents[at] >= low && parents[at] - low >= (int64_t)position)) return false;
        before = starts[at];
    }
    calls->first_id = low;
    calls->parent_ids = parents;
    return true;
}

static bool has_lanes(const sp_profile *profile, row_span span)
{
    const int64_t *threads = profile->columns[SP_COLUMN_THREAD];
    for (size_t r = span.first; threads && r < span.last; r++) {
        const sp_row *row = &profile->rows[r];
        for (uint64_t i = row->first; i < row->first + row->count; i++) {
            if (threads[i] >= 0) return true;
        }
    }
    return false;
}

/* Nest the calls. SP_ERR_NESTING when they overlap and nothing says on which lanes they ran. */
static sp_status order_by_tree(builder *b, row_span span, rank_calls *calls, sp_call_tree *tree)
{
    const sp_profile *profile = b->profile;
    const size_t count = span.last - span.first;
    sp_calls *regions = calloc(count, sizeof *regions);
    if (regions == NULL) return no_memory(b);
    const bool tracked = profile->columns[SP_COLUMN_THREAD] != NULL;
    for (size_t i = 0; i < count; i++) {
        const sp_row *row = &profile->rows[span.first + i];
        regions[i] = (sp_calls){
            .start_ns = profile->columns[SP_COLUMN_START] + row->first,
            .end_ns = profile->columns[SP_COLUMN_END] + row->first,
            .thread = tracked ? profile->columns[SP_COLUMN_THREAD] + row->first : NULL,
            .task = profile->columns[SP_COLUMN_TASK] ? profile->columns[SP_COLUMN_TASK] + row->first : NULL,
            .count = row->count,
        };
    }
    sp_status status = sp_call_tree_build(tree, regions, count, SP_NEST_STRICT, NULL, b->error);
    if (status == SP_ERR_NESTING && has_lanes(profile, span)) {
        b->out->clamped = true;
        status = sp_call_tree_build(tree, regions, count, SP_NEST_CLAMP, NULL, b->error);
    }
    free(regions);
    if (status != SP_OK) return status;
    for (uint64_t i = 0; i < tree->count; i++) {
        const size_t row = span.first + (size_t)tree->region[i];
        calls->index[i] = (uint32_t)(profile->rows[row].first + (uint64_t)tree->call[i] - calls->base);
        calls->node_of[i] = (uint32_t)row;
    }
    calls->parents = tree->parent;
    calls->exclusive = tree->exclusive_ns;
    return SP_OK;
}

static sp_status sum_rank(builder *b, row_span span)
{
    rank_calls calls;
    sp_call_tree tree;
    memset(&tree, 0, sizeof tree);
    sp_status status = open_rank(b, span, &calls);
    if (status == SP_OK && calls.count) {
        if (!order_by_id(b, span, &calls)) status = order_by_tree(b, span, &calls, &tree);
        if (status == SP_OK) status = add_rank(b, &calls);
    }
    close_rank(&calls);
    sp_call_tree_free(&tree);
    return status;
}

/* Where the rows of the rank of row `first` end. */
static size_t rank_end(const sp_profile *profile, size_t first)
{
    size_t last = first + 1;
    while (last < profile->row_count && profile->rows[last].rank == profile->rows[first].rank) last++;
    return last;
}

static sp_status sum_tree(builder *b)
{
    const sp_profile *profile = b->profile;
    for (size_t first = 0; first < profile->row_count;) {
        const row_span span = {first, rank_end(profile, first)};
        first = span.last;
        if (!is_selected(b, &profile->rows[span.first])) continue;
        const sp_status status = sum_rank(b, span);
        if (status != SP_OK) return status;
    }
    return SP_OK;
}

/* -- without a tree: every region is a root -- */

typedef struct interval {
    int64_t start, end;
} interval;

static int compare_intervals(const void *a, const void *b)
{
    const int64_t x = ((const interval *)a)->start, y = ((const interval *)b)->start;
    return (x > y) - (x < y);
}

/* The calls of a row by ascending start; NULL when out of memory. */
static interval *sorted_intervals(const sp_profile *profile, const sp_row *row)
{
    interval *intervals = malloc((row->count ? row->count : 1) * sizeof *intervals);
    bool sorted = true;
    for (uint64_t i = 0; intervals && i < row->count; i++) {
        intervals[i].start = profile->columns[SP_COLUMN_START][row->first + i];
        intervals[i].end = profile->columns[SP_COLUMN_END][row->first + i];
        if (i && intervals[i].start < intervals[i - 1].start) sorted = false;
    }
    if (intervals && !sorted) sp_sort(intervals, row->count, sizeof *intervals, compare_intervals);
    return intervals;
}

static sp_status add_row_calls(builder *b, const sp_row *row, uint32_t node)
{
    interval *intervals = sorted_intervals(b->profile, row);
    if (intervals == NULL) return no_memory(b);
    node_total *total = &b->totals[node];
    for (uint64_t i = 0; i < row->count; i++) {
        add_duration(total, intervals[i].start, intervals[i].end);
        total->inclusive = sp_plus(total->inclusive, sp_minus(intervals[i].end, intervals[i].start));
        if (b->profile->columns[SP_COLUMN_GPU]) add_gpu(total, b->profile->columns[SP_COLUMN_GPU][row->first + i]);
        if (b->await) total->awaiting = sp_plus(total->awaiting, b->await[row->first + i]);
        if (b->call_nodes) b->call_nodes[row->first + i] = node;
    }
    total->exclusive = SP_UNKNOWN;
    free(intervals);
    return SP_OK;
}

/* A row whose calls are not here: what it stores about them. */
static void add_row_statistics(node_total *total, const sp_row *row)
{
    memset(total, 0, sizeof *total);
    total->stored = true;
    total->covered = SP_UNKNOWN;
    if (row->has_aggregate) {
        total->count = row->aggregate_count;
        total->exclusive = row->aggregate_exclusive;
        total->statistics = (sp_row_statistics){
            .total = row->aggregate_total, .minimum = row->aggregate_minimum, .maximum = row->aggregate_maximum,
        };
        if (row->has_statistics) total->statistics = row->statistics;
    } else {
        total->count = row->count;
        total->exclusive = row->exclusive_total;
        if (row->has_statistics) total->statistics = row->statistics;
    }
    total->inclusive = total->statistics.total;
}

static bool has_calls(const sp_profile *profile)
{
    return !profile->summary_only && !profile->aggregate;
}

static sp_status sum_flat(builder *b)
{
    const sp_profile *profile = b->profile;
    for (size_t r = 0; r < profile->row_count; r++) {
        const sp_row *row = &profile->rows[r];
        if (is_selected(b, row) && is_visible(b, row->name) && (row->count || row->has_aggregate)) {
            const uint32_t node = find_node(b, SP_PATH_ROOT, row->name);
            if (node == NO_NODE) return b->status;
            if (!has_calls(profile)) add_row_statistics(&b->totals[node], row);
            else if (add_row_calls(b, row, node) != SP_OK) return SP_ERR_NO_MEMORY;
        }
        if (r + 1 == profile->row_count || profile->rows[r + 1].rank != row->rank) {
            const sp_status status = flush_rank(b, row->rank);
            if (status != SP_OK) return status;
        }
    }
    return SP_OK;
}

/* -- from the paths that a file stores -- */

/* `inner`: a level of a recursion, once what lay between the levels is left out. */
static void add_stored_row(node_total *total, const sp_path_row *row, bool inner)
{
    if (row->count == 0) return;
    if (total->count == 0) {
        memset(total, 0, sizeof *total);
        total->stored = true;
        total->statistics = row->statistics;
    } else {
        sp_row_statistics_pool(&total->statistics, total->count, &row->statistics, row->count);
    }
    total->count += row->count;
    total->recursive |= row->recursive || inner;
    total->exclusive = sp_plus(total->exclusive, row->exclusive);
    if (inner) return;
    total->inclusive = sp_plus(total->inclusive, row->inclusive);
    total->covered = sp_plus(total->covered, row->covered); /* of siblings that become one node: at most this much */
}

/* Where the nodes of a file go when some regions are left out: like add_call does it with single calls. `inner` says on
 * entry which nodes have a row on a chosen rank. */
static sp_status place_stored_nodes(builder *b, const sp_path_summary *stored, uint32_t *places, bool *inner)
{
    for (size_t i = 0; i < stored->node_count; i++) {
        const sp_path_node *node = &stored->nodes[i];
        if (node->name >= b->profile->name_count || node->parent >= (int64_t)i) {
            return sp_fail(b->error, SP_ERR_CORRUPT, "the summary by call path is damaged");
        }
        const uint32_t above = node->parent < 0 ? NODE_MASK : places[node->parent] & NODE_MASK;
        const bool there = inner[i];
        inner[i] = above != NODE_MASK && b->out->nodes[above].name == node->name;
        places[i] = above | HIDDEN;
        if (!there || !is_visible(b, node->name)) continue;
        places[i] = inner[i] ? above : find_node(b, above == NODE_MASK ? SP_PATH_ROOT : (int32_t)above, node->name);
        if (places[i] == NO_NODE) return b->status;
    }
    return SP_OK;
}

static sp_status add_stored_rows(builder *b, const sp_path_summary *stored, const uint32_t *places, const bool *inner)
{
    for (size_t r = 0; r < stored->row_count; r++) {
        const sp_path_row *row = &stored->rows[r];
        if (row->node >= stored->node_count) {
            return sp_fail(b->error, SP_ERR_CORRUPT, "the summary by call path is damaged");
        }
        if (rank_is_selected(b, row->rank) && !(places[row->node] & HIDDEN)) {
            add_stored_row(&b->totals[places[row->node]], row, inner[row->node]);
        }
        if (r + 1 == stored->row_count || stored->rows[r + 1].rank != row->rank) {
            const sp_status status = flush_rank(b, row->rank);
            if (status != SP_OK) return status;
        }
    }
    return SP_OK;
}

static sp_status add_stored_threads(builder *b, const sp_path_summary *stored)
{
    if (b->options->visible || stored->thread_count == 0) return SP_OK;
    b->out->threads = malloc(stored->thread_count * sizeof *b->out->threads);
    if (b->out->threads == NULL) return no_memory(b);
    for (size_t i = 0; i < stored->thread_count; i++) {
        if (rank_is_selected(b, stored->threads[i].rank)) b->out->threads[b->out->thread_count++] = stored->threads[i];
    }
    return SP_OK;
}

static sp_status sum_stored(builder *b)
{
    const sp_path_summary *stored = b->profile->stored_paths;
    b->out->nested = stored->nested;
    b->out->clamped = stored->clamped;
    uint32_t *places = malloc((stored->node_count + 1) * sizeof *places);
    bool *inner = calloc(stored->node_count + 1, 1);
    for (size_t r = 0; inner && r < stored->row_count; r++) {
        const sp_path_row *row = &stored->rows[r];
        if (row->node < stored->node_count && rank_is_selected(b, row->rank)) inner[row->node] = true;
    }
    sp_status status = places && inner ? place_stored_nodes(b, stored, places, inner) : no_memory(b);
    if (status == SP_OK) status = add_stored_rows(b, stored, places, inner);
    if (status == SP_OK) status = add_stored_threads(b, stored);
    free(places);
    free(inner);
    return status;
}

/* -- percentiles -- */

/* Bring the durations of each node together and select in them. */
static sp_status add_percentiles(builder *b)
{
    sp_path_summary *out = b->out;
    const size_t wanted = b->options->percentile_count;
    const int64_t *starts = b->profile->columns[SP_COLUMN_START], *ends = b->profile->columns[SP_COLUMN_END];
    uint64_t *next = calloc(out->node_count + 1, sizeof *next), total = 0;
    for (size_t r = 0; next && r < out->row_count; r++) {
        next[out->rows[r].node + 1] += out->rows[r].count;
        total += out->rows[r].count;
    }
    int64_t *durations = malloc((total ? total : 1) * sizeof *durations);
    out->percentiles = malloc((out->node_count * wanted + 1) * sizeof *out->percentiles);
    if (next == NULL || durations == NULL || out->percentiles == NULL) {
        free(next);
        free(durations);
        return no_memory(b);
    }
    out->percentile_count = wanted;
    for (size_t node = 0; node < out->node_count; node++) next[node + 1] += next[node];
    for (uint64_t i = 0; i < b->profile->call_count; i++) {
        if (b->call_nodes[i] != NO_NODE) durations[next[b->call_nodes[i]]++] = sp_minus(ends[i], starts[i]);
    }
    /* next[node] has moved to the node's end, which is the next one's start */
    for (size_t node = 0; node < out->node_count; node++) {
        const uint64_t first = node ? next[node - 1] : 0;
        sp_percentiles(durations + first, next[node] - first, b->options->percentiles, wanted,
                       out->percentiles + node * wanted);
    }
    free(next);
    free(durations);
    return SP_OK;
}

/* -- the whole -- */

static void clear_sums(builder *b)
{
    b->out->node_count = b->out->row_count = b->out->thread_count = 0;
    b->out->clamped = false;
    b->recent[0] = none_recent;
    memset(b->buckets, 0, b->bucket_count * sizeof *b->buckets);
    if (b->call_nodes) mark_free(b->call_nodes, b->profile->call_count);
}

static sp_status sum_profile(builder *b)
{
    sp_status status = grow_nodes(b);
    if (status != SP_OK) return status;
    const bool calls = has_calls(b->profile);
    if (calls) b->await = b->profile->columns[SP_COLUMN_AWAIT];
    if (calls && b->options->percentile_count) {
        b->call_nodes = malloc((b->profile->call_count + 1) * sizeof *b->call_nodes);
        if (b->call_nodes == NULL) return no_memory(b);
        mark_free(b->call_nodes, b->profile->call_count);
    }
    b->out->nested = calls;
    if (calls) status = sum_tree(b);
    else status = b->profile->stored_paths ? sum_stored(b) : sum_flat(b);
    if (status == SP_ERR_NESTING) {
        if (b->error) b->error->message[0] = '\0';
        clear_sums(b);
        b->out->nested = false;
        status = sum_flat(b);
    }
    if (status == SP_OK && b->call_nodes) status = add_percentiles(b);
    return status;
}

sp_status sp_path_summary_make(const sp_profile *profile, const sp_path_options *options, sp_path_summary **out,
                               sp_error *error)
{
    static const sp_path_options everything;
    sp_error ignored;
    builder b = {
        .profile = profile, .options = options ? options : &everything, .error = error ? error : &ignored,
        .out = calloc(1, sizeof *b.out),
    };
    b.error->system = 0;
    b.error->message[0] = '\0';
    *out = NULL;
    if (b.out == NULL) return no_memory(&b);
    const sp_status status = sum_profile(&b);
    free(b.totals);
    free(b.recent);
    free(b.buckets);
    free(b.call_nodes);
    if (status == SP_OK) *out = b.out;
    else sp_path_summary_free(b.out);
    return status;
}

/* -- calls that come one after the other and are not kept -- */

struct sp_path_stream {
    builder b;
    thread_table threads;
    sp_error error;
    uint32_t rank;
    const sp_row *rows;
};

static void stream_free(sp_path_stream *stream)
{
    if (stream->threads.column) sp_lane_tops_free(&stream->threads.tops);
    free(stream->threads.until);
    free(stream->b.totals);
    free(stream->b.recent);
    free(stream->b.buckets);
    sp_path_summary_free(stream->b.out);
    free(stream);
}

sp_path_stream *sp_path_stream_new(const sp_profile *profile, int64_t threads)
{
    static const sp_path_options everything;
    static const int64_t recorded; /* the calls bring their threads themselves */
    sp_path_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return NULL;
    builder *b = &stream->b;
    *b = (builder){.options = &everything, .error = &stream->error, .out = calloc(1, sizeof *b->out)};
    stream->rank = profile->row_count ? profile->rows[0].rank : 0;
    stream->rows = profile->rows;
    sp_status status = b->out ? grow_nodes(b) : SP_ERR_NO_MEMORY;
    if (status == SP_OK && threads > 0) {
        status = sp_lane_tops_make(&stream->threads.tops, 0, threads - 1, profile->call_count, b->error);
        if (status == SP_OK) stream->threads.column = &recorded;
    }
    if (status == SP_OK) {
        b->out->nested = true;
        return stream;
    }
    stream_free(stream);
    return NULL;
}

uint32_t sp_path_stream_find(sp_path_stream *stream, uint32_t above, uint32_t row)
{
    builder *b = &stream->b;
    return b->status == SP_OK ? node_under(b, (int32_t)above, stream->rows[row].name) : NO_NODE;
}

/* Calls that are summed one by one: two loops are not worth their beginning. */
#define FEW_CALLS 4

static void add_calls(node_total *total, int64_t before, const int64_t *steps, const int64_t *durations, uint64_t count)
{
    sp_row_sums sums = {0};
    sp_row_sums_add(&sums, durations, count);
    if (total->count == 0) start_total(total);
    total->count += count;
    total->statistics.total = sp_plus(total->statistics.total, sums.total);
    if (sums.minimum < total->statistics.minimum) total->statistics.minimum = sums.minimum;
    if (sums.maximum > total->statistics.maximum) total->statistics.maximum = sums.maximum;
    total->squares += sums.squares;
    node_total times = *total; /* a copy that is kept in registers */
    for (uint64_t i = 0; i < count; i++) {
        before = sp_plus(before, steps[i]);
        add_interval(&times, before, sp_plus(before, durations[i]), durations[i]);
    }
    *total = times;
}

void sp_path_stream_sum(sp_path_stream *stream, uint32_t node, uint32_t above, int64_t before, const int64_t *steps, const int64_t *durations,
                        uint64_t count)
{
    if (node == NO_NODE || count == 0) return;
    node_total *total = &stream->b.totals[node];
    const int64_t summed = total->count ? total->statistics.total : 0;
    if (count <= FEW_CALLS) {
        for (uint64_t i = 0; i < count; i++) {
            before = sp_plus(before, steps[i]);
            add_duration(total, before, sp_plus(before, durations[i]));
        }
    } else {
        add_calls(total, before, steps, durations, count);
    }
    if (node == above) total->recursive = true;
    else total->inclusive = sp_plus(total->inclusive, sp_minus(total->statistics.total, summed));
}

void sp_path_stream_threads(sp_path_stream *stream, const sp_collected *calls, size_t count)
{
    builder *b = &stream->b;
    if (stream->threads.column == NULL) return;
    for (const sp_collected *call = calls; call < calls + count && b->status == SP_OK; call++) {
        b->status = add_usage(b, &stream->threads, stream->rank, call->thread, call->start_ns, call->end_ns);
    }
}

/* Of a tree that is whole: what calls take is theirs but for what the calls on the paths below take. */
static void find_exclusive(builder *b)
{
    for (size_t i = 0; i < b->out->node_count; i++) {
        const int64_t inclusive = b->totals[i].inclusive;
        const int32_t parent = b->out->nodes[i].parent; /* which comes before it */
        b->totals[i].exclusive = inclusive;
        if (parent >= 0) b->totals[parent].exclusive = sp_minus(b->totals[parent].exclusive, inclusive);
    }
}

sp_path_summary *sp_path_stream_finish(sp_path_stream *stream)
{
    sp_path_summary *out = NULL;
    if (stream == NULL) return NULL;
    builder *b = &stream->b;
    if (b->status == SP_OK) {
        find_exclusive(b);
        b->status = flush_rank(b, stream->rank);
    }
    if (b->status == SP_OK) {
        sp_sort(b->out->threads, b->out->thread_count, sizeof(sp_thread_usage), compare_usage);
        out = b->out;
        b->out = NULL;
    }
    stream_free(stream);
    return out;
}

void sp_path_summary_free(sp_path_summary *summary)
{
    if (summary == NULL) return;
    free(summary->nodes);
    free(summary->rows);
    free(summary->threads);
    free(summary->percentiles);
    free(summary);
}
