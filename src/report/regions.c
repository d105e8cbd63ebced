/*
 * regions.c - the table of regions by call path.
 *
 *   region                      % session        total [s]
 *   main                          100.00%         2.000000
 *   └─ (own)                         25.00%          0.500000      what is not in a region below
 *   └─ solve (3x)                    75.00%          1.500000      a path; its cells are moved in like the tree
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/path_summary.h"
#include "analysis/wrap.h"
#include "core/grow.h"
#include "report/report.h"

#define SESSION "scope_profiler.session"
#define DEEPEST 64       /* levels that are drawn: mutual recursion makes a level of every call */
#define GAP 4

const char *const sp_region_column_names[SP_REGION_COLUMNS] = {
    "region", "ranks", "calls", "total", "percent", "parent_percent", "avg",  "gpu_total", "gpu_avg",
    "min",    "max",   "first", "last",  "std",     "p50",            "p95", "p99",       "imbalance",
};

const char *const sp_sort_key_names[SP_SORT_KEYS] = {
    "start", "total", "calls", "avg", "min", "max", "first", "last", "std", "p50", "p95", "p99", "imbalance", "name",
};

static const char *const titles[SP_REGION_COLUMNS] = {
    "region",      "ranks",        "n",         "total [s]", "% session", "% parent", "avg/call [s]", "gpu total [s]",
    "gpu avg [s]", "min [s]",      "max [s]",   "first [s]", "last [s]",  "std [s]",  "p50 [s]",      "p95 [s]",
    "p99 [s]",     "imbalance [%]",
};

/* One call path over the ranks that have it. Times in ns. */
typedef struct path {
    const char *name;
    int64_t parent; /* path, -1: a root */
    size_t first_child, child_count; /* into the order of all paths, once sorted */
    uint64_t calls;
    bool recursive;
    int64_t inclusive, exclusive, covered;
    bool knows_exclusive, knows_covered;
    sp_row_statistics of_all; /* of every level of a recursion; inclusive is of the outermost ones */
    size_t ranks, positive_ranks;
    int64_t largest_rank;
    long double rank_sum;
    const double *percentiles; /* NULL: not known */
    long double key;           /* to sort by, small first */
} path;

typedef struct tree {
    const sp_profile *profile;
    const sp_region_table *options;
    sp_path_summary *summary;
    path *paths;
    size_t count;
    size_t *order; /* children of each path together, sorted; the roots last */
    size_t first_root, root_count;
    const sp_region_column *columns;
    size_t column_count;
    int64_t session; /* ns of it on all ranks; 0: there is none */
    size_t session_ranks;
} tree;

/* -- paths -- */

static void add_row(path *p, const sp_path_row *row)
{
    if (row->count == 0) return;
    sp_row_statistics_pool(&p->of_all, p->calls, &row->statistics, row->count);
    p->calls += row->count;
    p->recursive |= row->recursive;
    p->inclusive = sp_plus(p->inclusive, row->inclusive);
    p->knows_exclusive &= row->exclusive >= 0;
    p->exclusive = sp_plus(p->exclusive, row->exclusive);
    p->knows_covered &= row->covered >= 0;
    p->covered = sp_plus(p->covered, row->covered);
    p->ranks++;
    if (row->inclusive > 0) {
        p->positive_ranks++;
        p->rank_sum += (long double)row->inclusive;
        if (row->inclusive > p->largest_rank) p->largest_rank = row->inclusive;
    }
}

static double imbalance_of(const path *p)
{
    if (p->positive_ranks < 2) return 0.0;
    const double ratio = (double)((long double)p->largest_rank * (long double)p->positive_ranks / p->rank_sum);
    return (ratio - 1) * 100;
}

static path new_path(const char *name, int64_t parent)
{
    return (path){.name = name, .parent = parent, .knows_exclusive = true, .knows_covered = true};
}

/* Chosen regions that are in the profile and have no path: they have no calls. */
static void add_idle_regions(tree *t, const bool *has_path)
{
    const sp_profile *profile = t->profile;
    bool *listed = calloc(profile->name_count + 1, sizeof *listed);
    for (size_t i = 0; listed && i < profile->row_count; i++) {
        const uint32_t name = profile->rows[i].name;
        const bool *visible = t->options->selection.visible;
        if (listed[name] || has_path[name] || (visible && !visible[name])) continue;
        listed[name] = true;
        t->paths[t->count++] = new_path(profile->names[name], -1);
    }
    free(listed);
}

static bool make_paths(tree *t)
{
    const sp_path_summary *summary = t->summary;
    const size_t most = summary->node_count + t->profile->name_count;
    bool *has_path = calloc(t->profile->name_count + 1, sizeof *has_path);
    t->paths = malloc((most + 1) * sizeof *t->paths);
    t->order = malloc((most + 1) * sizeof *t->order);
    if (has_path == NULL || t->paths == NULL || t->order == NULL) {
        free(has_path);
        return false;
    }
    for (size_t i = 0; i < summary->node_count; i++) {
        const sp_path_node *node = &summary->nodes[i];
        t->paths[i] = new_path(t->profile->names[node->name], node->parent);
        if (summary->percentiles) t->paths[i].percentiles = summary->percentiles + i * summary->percentile_count;
        has_path[node->name] = true;
    }
    t->count = summary->node_count;
    for (size_t i = 0; i < summary->row_count; i++) add_row(&t->paths[summary->rows[i].node], &summary->rows[i]);
    add_idle_regions(t, has_path);
    free(has_path);
    return true;
}

/* -- the order of siblings -- */

/* Names and what has no calls are told apart by the comparison. */
static long double sort_value(const path *p, sp_sort_key key)
{
    switch (key) {
    case SP_SORT_START: return (long double)p->of_all.start_minimum;
    case SP_SORT_TOTAL: return -(long double)p->inclusive;
    case SP_SORT_CALLS: return -(long double)p->calls;
    case SP_SORT_AVERAGE: return -(long double)p->of_all.total / (long double)p->calls;
    case SP_SORT_MINIMUM: return -(long double)p->of_all.minimum;
    case SP_SORT_MAXIMUM: return -(long double)p->of_all.maximum;
    case SP_SORT_FIRST: return -(long double)p->of_all.first;
    case SP_SORT_LAST: return -(long double)p->of_all.last;
    case SP_SORT_STD: return -(long double)(p->of_all.m2 / (double)p->calls);
    case SP_SORT_P50:
    case SP_SORT_P95:
    case SP_SORT_P99: return p->percentiles ? -(long double)p->percentiles[key - SP_SORT_P50] : (long double)INFINITY;
    case SP_SORT_IMBALANCE: return -(long double)imbalance_of(p);
    default: return 0;
    }
}

static int compare_paths(const void *left, const void *right, void *context)
{
    const tree *t = context;
    const size_t a = *(const size_t *)left, b = *(const size_t *)right;
    const path *one = &t->paths[a], *other = &t->paths[b];
    if (one->parent != other->parent) return one->parent < other->parent ? -1 : 1;
    if (t->options->sort == SP_SORT_NAME) {
        const int order = strcmp(one->name, other->name);
        if (order) return order;
    } else if (one->key != other->key) {
        return one->key < other->key ? -1 : 1;
    }
    return a < b ? -1 : 1;
}

static void sort_paths(tree *t)
{
    for (size_t i = 0; i < t->count; i++) {
        path *p = &t->paths[i];
        p->key = p->calls ? sort_value(p, t->options->sort) : (long double)INFINITY;
        t->order[i] = i;
    }
    if (t->count) qsort_r(t->order, t->count, sizeof *t->order, compare_paths, t);
    for (size_t i = 0; i < t->count; i++) {
        const int64_t parent = t->paths[t->order[i]].parent;
        size_t *first = parent < 0 ? &t->first_root : &t->paths[parent].first_child;
        size_t *count = parent < 0 ? &t->root_count : &t->paths[parent].child_count;
        if (*count == 0) *first = i;
        ++*count;
    }
}

/* -- the session -- */

/* Of the outermost session paths. A parent has a smaller index than its paths. */
static int64_t shown_session(tree *t, bool *within)
{
    int64_t session = 0;
    for (size_t i = 0; i < t->count; i++) {
        const path *p = &t->paths[i];
        const bool inside = p->parent >= 0 && within[p->parent], is_session = strcmp(p->name, SESSION) == 0;
        within[i] = inside || is_session;
        if (!is_session || inside) continue;
        session = sp_plus(session, p->inclusive);
        t->session_ranks += p->ranks;
    }
    return session;
}

/* Where the table does not show it. */
static int64_t hidden_session(tree *t)
{
    int64_t session = 0;
    for (size_t i = 0; i < t->profile->row_count; i++) {
        const sp_row *row = &t->profile->rows[i];
        if (strcmp(t->profile->names[row->name], SESSION) != 0) continue;
        if (!sp_selection_has_rank(&t->options->selection, row->rank)) continue;
        sp_row_statistics statistics = row->statistics;
        if (!row->has_statistics && t->profile->columns[SP_COLUMN_START]) {
            sp_row_statistics_compute(t->profile, row, &statistics);
        }
        session = sp_plus(session, row->has_aggregate ? row->aggregate_total : row->count ? statistics.total : 0);
        t->session_ranks++;
    }
    return session;
}

static bool wants(const tree *t, sp_region_column column)
{
    for (size_t i = 0; i < t->column_count; i++) {
        if (t->columns[i] == column) return true;
    }
    return false;
}

static bool find_session(tree *t)
{
    static const sp_region_column with_session[] = {SP_REGION_NAME, SP_REGION_PERCENT, SP_REGION_TOTAL};
    static const sp_region_column without[] = {SP_REGION_NAME, SP_REGION_TOTAL};
    bool *within = calloc(t->count + 1, sizeof *within);
    if (within == NULL) return false;
    if (within == NULL) return false;
    t->session = shown_session(t, within);
    free(within);
    t->columns = t->options->columns;
    t->column_count = t->options->column_count;
    if (t->columns == NULL) {
        t->columns = t->session ? with_session : without;
        t->column_count = t->session ? 3 : 2;
    } else if (t->session == 0 && wants(t, SP_REGION_PERCENT)) {
        t->session = hidden_session(t);
    }
    return true;
}

/* -- cells -- */

static void seconds(sp_text *out, double ns)
{
    sp_text_format(out, "%.6f", ns / 1e9);
}

static void share(sp_text *out, bool known, int64_t part, long double whole)
{
    if (!known || whole == 0) sp_text_add(out, "-");
    else sp_text_format(out, "%.2f%%", (double)(100.0L * (long double)part / whole));
}

/* ns that 100 % of a path are. Processes that were followed have no session of their own: that of the first one is theirs. */
static long double whole_of(const tree *t, const path *p)
{
    const long double session = (long double)t->session;
    if (t->session_ranks == 0 || p->ranks <= t->session_ranks) return session;
    return session * (long double)p->ranks / (long double)t->session_ranks;
}

static void session_share(sp_text *out, const tree *t, const path *p)
{
    const long double whole = whole_of(t, p);
    if (t->options->exclusive_mode) share(out, p->knows_exclusive, p->exclusive, whole);
    else if (p->knows_covered) share(out, true, p->covered, whole);
    else share(out, (long double)p->inclusive <= whole, p->inclusive, whole); /* more is a sum over threads and tasks, no share */
}

/* What is a path's own of its share: of the wall clock, as the path's percentage is, also where it ran on several threads at once. */
static void own_share(sp_text *out, const tree *t, const path *p)
{
    if (p->inclusive == 0 || t->session == 0) {
        share(out, true, p->exclusive, whole_of(t, p));
        return;
    }
    const int64_t covered = t->options->exclusive_mode || !p->knows_covered ? p->inclusive : p->covered;
    const double part = (double)((long double)covered * (long double)p->exclusive / (long double)p->inclusive);
    sp_text_format(out, "%.2f%%", 100 * part / (double)whole_of(t, p));
}

static void percentile(sp_text *out, const path *p, int place)
{
    if (p->percentiles) seconds(out, p->percentiles[place]);
    else sp_text_add(out, "-");
}

static void cell(const tree *t, const path *p, sp_region_column column, sp_text *out)
{
    const sp_row_statistics *s = &p->of_all;
    const path *parent = p->parent < 0 ? NULL : &t->paths[p->parent];
    const bool timed = column != SP_REGION_RANKS && column != SP_REGION_CALLS && column != SP_REGION_PARENT_PERCENT &&
                       column != SP_REGION_IMBALANCE;
    if (timed && p->calls == 0) {
        sp_text_add(out, "-");
        return;
    }
    switch (column) {
    case SP_REGION_RANKS: sp_text_format(out, "%zu", p->ranks); return;
    case SP_REGION_CALLS: sp_text_count(out, p->calls); return;
    case SP_REGION_TOTAL: seconds(out, (double)p->inclusive); return;
    case SP_REGION_PERCENT: session_share(out, t, p); return;
    case SP_REGION_PARENT_PERCENT: share(out, parent != NULL, p->inclusive, parent ? (long double)parent->inclusive : 0); return;
    case SP_REGION_AVERAGE: sp_text_format(out, "%.3e", (double)s->total / (double)p->calls / 1e9); return;
    case SP_REGION_GPU_TOTAL:
    case SP_REGION_GPU_AVERAGE:
        if (s->gpu_count == 0) sp_text_add(out, "-");
        else seconds(out, column == SP_REGION_GPU_TOTAL ? (double)s->gpu_total : (double)s->gpu_total / (double)s->gpu_count);
        return;
    case SP_REGION_MINIMUM: seconds(out, (double)s->minimum); return;
    case SP_REGION_MAXIMUM: seconds(out, (double)s->maximum); return;
    case SP_REGION_FIRST: seconds(out, (double)s->first); return;
    case SP_REGION_LAST: seconds(out, (double)s->last); return;
    case SP_REGION_STD: seconds(out, sqrt(s->m2 / (double)p->calls)); return;
    case SP_REGION_P50:
    case SP_REGION_P95:
    case SP_REGION_P99: percentile(out, p, (int)column - SP_REGION_P50); return;
    case SP_REGION_IMBALANCE: sp_text_format(out, "%.2f", imbalance_of(p)); return;
    default: return;
    }
}

/* The cell of a path's "(own)" row. */
static void own_cell(const tree *t, const path *p, sp_region_column column, sp_text *out)
{
    switch (column) {
    case SP_REGION_TOTAL: seconds(out, (double)p->exclusive); return;
    case SP_REGION_PERCENT: own_share(out, t, p); return;
    case SP_REGION_PARENT_PERCENT: share(out, true, p->exclusive, (long double)p->inclusive); return;
    case SP_REGION_AVERAGE: sp_text_format(out, "%.3e", (double)p->exclusive / (double)p->calls / 1e9); return;
    default: return;
    }
}

static bool is_indented(sp_region_column column)
{
    return column >= SP_REGION_TOTAL && column <= SP_REGION_AVERAGE;
}

/* -- lines -- */

typedef enum row_kind { PATH_ROW, OWN_ROW, CUT_ROW } row_kind;

typedef struct lines {
    char **cells;
    size_t count, room;
    size_t *widths;
    bool failed;
} lines;

static void add_cell(lines *l, size_t column, sp_text *text)
{
    if (text->data == NULL) sp_text_bytes(text, "", 0);
    l->failed |= text->failed || !sp_grow(&l->cells, &l->room, l->count, sizeof *l->cells, 256);
    if (l->failed) {
        sp_text_free(text);
        return;
    }
    const size_t columns = sp_columns(text->data, text->size);
    if (columns > l->widths[column]) l->widths[column] = columns;
    l->cells[l->count++] = text->data;
}

static void name_cell(const tree *t, const path *p, row_kind kind, size_t depth, sp_text *out)
{
    if (depth) {
        sp_text_repeat(out, "│ ", depth - 1);
        sp_text_add(out, "└─ ");
    }
    if (kind != PATH_ROW) {
        sp_text_add(out, kind == OWN_ROW ? "(own)" : "…");
        return;
    }
    sp_text_name(out, p->name);
    if (p->recursive) sp_text_add(out, " ↻");
    if (p->calls < 2 || wants(t, SP_REGION_CALLS)) return;
    sp_text_add(out, " (");
    sp_text_count(out, p->calls);
    sp_text_add(out, "x)");
}

static void add_line(const tree *t, lines *l, const path *p, row_kind kind, size_t depth)
{
    for (size_t i = 0; i < t->column_count; i++) {
        const sp_region_column column = t->columns[i];
        sp_text text = {0};
        if (column == SP_REGION_NAME) {
            name_cell(t, p, kind, depth, &text);
        } else if (kind != CUT_ROW) {
            sp_text value = {0};
            if (kind == PATH_ROW) cell(t, p, column, &value);
            else own_cell(t, p, column, &value);
            if (is_indented(column) && value.size && depth) sp_text_repeat(&text, " ", 2 * depth + 1);
            if (value.size) sp_text_add(&text, value.data);
            text.failed |= value.failed;
            sp_text_free(&value);
        }
        add_cell(l, i, &text);
    }
}

typedef struct pending {
    size_t path, depth;
} pending;

/* Depth first. A path has DEEPEST levels above it at most, and each has its siblings waiting: all paths are room enough. */
static bool make_lines(const tree *t, lines *l)
{
    pending *stack = malloc((t->count + 1) * sizeof *stack);
    size_t height = 0;
    if (stack == NULL) return false;
    for (size_t i = t->root_count; i > 0; i--) stack[height++] = (pending){t->order[t->first_root + i - 1], 0};
    while (height > 0) {
        const pending next = stack[--height];
        const path *p = &t->paths[next.path];
        add_line(t, l, p, PATH_ROW, next.depth);
        if (p->child_count == 0) continue;
        if (next.depth + 1 >= DEEPEST) {
            add_line(t, l, p, CUT_ROW, next.depth + 1);
            continue;
        }
        if (p->knows_exclusive) add_line(t, l, p, OWN_ROW, next.depth + 1);
        for (size_t i = p->child_count; i > 0; i--) {
            stack[height++] = (pending){t->order[p->first_child + i - 1], next.depth + 1};
        }
    }
    free(stack);
    return !l->failed;
}

static void write_rule(const char *left, const char *right, size_t width, sp_text *out)
{
    sp_text_format(out, "  %s", left);
    sp_text_repeat(out, "─", width);
    sp_text_format(out, "%s\n", right);
}

static void write_line(const tree *t, const size_t *widths, char *const *cells, sp_text *out)
{
    sp_text_add(out, "  │ ");
    for (size_t i = 0; i < t->column_count; i++) {
        const size_t size = strlen(cells[i]);
        if (i) sp_text_repeat(out, " ", GAP);
        sp_text_bytes(out, cells[i], size);
        sp_text_repeat(out, " ", widths[i] - sp_columns(cells[i], size));
    }
    sp_text_add(out, " │\n");
}

static bool write_table(const tree *t, sp_text *out)
{
    size_t widths[SP_REGION_COLUMNS_MOST] = {0};
    lines l = {.widths = widths};
    for (size_t i = 0; i < t->column_count; i++) {
        sp_text title = {0};
        sp_text_add(&title, titles[t->columns[i]]);
        add_cell(&l, i, &title);
    }
    const bool ok = make_lines(t, &l);
    if (ok) {
        size_t rule = GAP * (t->column_count - 1) + 2;
        for (size_t i = 0; i < t->column_count; i++) rule += widths[i];
        write_rule("╭", "╮", rule, out);
        for (size_t i = 0; i < l.count; i += t->column_count) {
            write_line(t, widths, l.cells + i, out);
            if (i == 0) write_rule("├", "┤", rule, out);
        }
        write_rule("╰", "╯", rule, out);
        sp_text_add(out, "\n");
    }
    for (size_t i = 0; i < l.count; i++) free(l.cells[i]);
    free(l.cells);
    return ok;
}

static bool wants_percentiles(const sp_region_table *options)
{
    if (options->sort >= SP_SORT_P50 && options->sort <= SP_SORT_P99) return true;
    for (size_t i = 0; i < options->column_count; i++) {
        if (options->columns[i] >= SP_REGION_P50 && options->columns[i] <= SP_REGION_P99) return true;
    }
    return false;
}

/* Without the calls only the percentiles of whole regions are known: right where every region has one path on one rank. */
static void use_stored_percentiles(tree *t)
{
    if (t->summary->percentiles || t->summary->nested || t->options->selection.rank_count) return;
    for (size_t i = 0; i < t->summary->row_count; i++) {
        const sp_path_row *row = &t->summary->rows[i];
        path *p = &t->paths[row->node];
        if (p->ranks != 1 || row->count == 0) continue;
        for (size_t r = 0; r < t->profile->row_count; r++) {
            const sp_row *stored = &t->profile->rows[r];
            if (stored->rank != row->rank || stored->name != t->summary->nodes[row->node].name) continue;
            if (stored->has_percentiles) p->percentiles = stored->percentiles;
        }
    }
}

sp_status sp_report_regions(const sp_profile *profile, const sp_region_table *options, sp_text *out, sp_error *error)
{
    tree t = {.profile = profile, .options = options};
    if (options->column_count > SP_REGION_COLUMNS_MOST) return sp_fail(error, SP_ERR_INVALID, "too many columns");
    if (profile->row_count == 0) {
        sp_text_add(out, "  (no regions recorded)\n");
        return SP_OK;
    }
    const bool percentiles = wants_percentiles(options);
    const sp_path_options wanted = {
        .visible = options->selection.visible,
        .ranks = options->selection.ranks,
        .rank_count = options->selection.rank_count,
        .percentiles = percentiles ? sp_percentile_ranks : NULL,
        .percentile_count = percentiles ? SP_PERCENTILE_COUNT : 0,
    };
    const sp_status status = sp_path_summary_make(profile, &wanted, &t.summary, error);
    if (status != SP_OK) return status;
    bool ok = make_paths(&t);
    if (ok && percentiles) use_stored_percentiles(&t);
    if (ok) {
        ok = find_session(&t);
        sort_paths(&t);
        ok = ok && write_table(&t, out);
    }
    free(t.paths);
    free(t.order);
    sp_path_summary_free(t.summary);
    return ok ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the table of regions");
}
