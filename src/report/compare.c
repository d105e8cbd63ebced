/* compare.c - statistics of a region over its ranks, and two profiles region by region. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/wrap.h"
#include "core/index.h"
#include "core/sort.h"
#include "report/report.h"
#include "report/table.h"

const char *const sp_metric_names[SP_METRICS] = {
    "total", "avg", "min", "max", "p50", "p95", "p99", "imbalance", "calls", "gpu_total", "gpu_avg",
};

#define NS 1e9

/* What the chosen rows of a region add up to. */
typedef struct pooled {
    size_t ranks; /* with calls */
    uint64_t calls;
    sp_row_statistics of_all;
    double m2_sum; /* from the mean of all: more exact than what is pooled row by row */
    size_t positive;
    int64_t largest;
    long double positive_sum;
    bool has_m2;
} pooled;

static bool is_chosen(const sp_row *row, uint32_t name, const sp_selection *selection)
{
    return row->name == name && sp_selection_has_rank(selection, row->rank);
}

/* The row's statistics; of an aggregate of release 0.7.5 only total, minimum and maximum. */
static sp_row_statistics statistics_of(const sp_profile *profile, const sp_row *row)
{
    if (row->has_aggregate && !row->has_statistics) {
        return (sp_row_statistics){
            .total = row->aggregate_total, .minimum = row->aggregate_minimum, .maximum = row->aggregate_maximum};
    }
    sp_row_statistics computed = row->statistics;
    if (!row->has_statistics && profile->columns[SP_COLUMN_START]) sp_row_statistics_compute(profile, row, &computed);
    return computed;
}

static void add_row(pooled *p, const sp_row *row, const sp_row_statistics *s)
{
    const uint64_t calls = sp_row_calls(row);
    if (calls == 0) return;
    sp_row_statistics_pool(&p->of_all, p->calls, s, calls);
    p->ranks++;
    p->calls += calls;
    if (s->total > 0) {
        p->positive++;
        p->positive_sum += (long double)s->total;
        if (s->total > p->largest) p->largest = s->total;
    }
}

static pooled pool(const sp_profile *profile, uint32_t name, const sp_selection *selection)
{
    pooled p = {.has_m2 = true};
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (!is_chosen(row, name, selection)) continue;
        const sp_row_statistics s = statistics_of(profile, row);
        add_row(&p, row, &s);
        p.has_m2 &= !row->has_aggregate || row->has_statistics;
    }
    if (p.calls == 0) return p;
    const double mean = (double)p.of_all.total / (double)p.calls;
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (!is_chosen(row, name, selection)) continue;
        const sp_row_statistics s = statistics_of(profile, row);
        const double apart = s.mean - mean; /* each rank's deviations are from its own mean */
        p.m2_sum += s.m2 + (double)sp_row_calls(row) * apart * apart;
    }
    return p;
}

static int by_value(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Over the calls of several ranks. */
static bool pooled_percentile(const sp_profile *profile, uint32_t name, const sp_selection *selection, uint64_t calls, double rank,
                              double *ns)
{
    const int64_t *starts = profile->columns[SP_COLUMN_START], *ends = profile->columns[SP_COLUMN_END];
    int64_t *durations = starts ? malloc(calls * sizeof *durations) : NULL;
    if (durations == NULL) return false;
    uint64_t used = 0;
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (!is_chosen(row, name, selection)) continue;
        for (uint64_t c = row->first; c < row->first + row->count; c++) durations[used++] = sp_minus(ends[c], starts[c]);
    }
    sp_sort(durations, used, sizeof *durations, by_value);
    const double place = rank / 100.0 * (double)(used - 1);
    const uint64_t below = (uint64_t)place, above = below + 1 < used ? below + 1 : below;
    *ns = (double)durations[below] + (double)(durations[above] - durations[below]) * (place - (double)below);
    free(durations);
    return true;
}

static bool percentile(const sp_profile *profile, uint32_t name, const sp_selection *selection, const pooled *p, int which,
                       double *value)
{
    if (p->calls == 0) {
        *value = 0.0;
        return true;
    }
    double ns = 0;
    bool known = false;
    for (size_t i = 0; p->ranks == 1 && i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (!is_chosen(row, name, selection) || row->count == 0 || row->has_aggregate) continue;
        known = row->has_percentiles || profile->columns[SP_COLUMN_START];
        if (row->has_percentiles) ns = row->percentiles[which];
        else if (known) known = sp_row_percentiles_compute(profile, row, &sp_percentile_ranks[which], 1, &ns) == SP_OK;
    }
    if (p->ranks > 1 && !profile->aggregate) {
        known = pooled_percentile(profile, name, selection, p->calls, sp_percentile_ranks[which], &ns);
    }
    *value = ns / NS;
    return known;
}

bool sp_region_statistic(const sp_profile *profile, uint32_t name, const sp_selection *selection, sp_metric metric, double *value)
{
    const pooled p = pool(profile, name, selection);
    const sp_row_statistics *s = &p.of_all;
    const double calls = (double)p.calls;
    switch (metric) {
    case SP_METRIC_TOTAL: *value = (double)s->total / NS; return true;
    case SP_METRIC_AVERAGE: *value = p.calls ? (double)s->total / (calls * NS) : 0.0; return true;
    case SP_METRIC_MINIMUM: *value = (double)s->minimum / NS; return true;
    case SP_METRIC_MAXIMUM: *value = (double)s->maximum / NS; return true;
    case SP_METRIC_FIRST: *value = (double)s->first / NS; return true;
    case SP_METRIC_LAST: *value = (double)s->last / NS; return true;
    case SP_METRIC_START: *value = (double)s->start_minimum; return true;
    case SP_METRIC_STD: *value = p.calls && p.has_m2 ? sqrt(p.m2_sum / calls) / NS : 0.0; return true;
    case SP_METRIC_P50:
    case SP_METRIC_P95:
    case SP_METRIC_P99: return percentile(profile, name, selection, &p, (int)metric - SP_METRIC_P50, value);
    case SP_METRIC_CALLS: *value = calls; return true;
    case SP_METRIC_IMBALANCE:
        *value = p.positive < 2 ? 0.0 : ((double)((long double)p.largest * (long double)p.positive / p.positive_sum) - 1) * 100;
        return true;
    case SP_METRIC_GPU_TOTAL: *value = (double)s->gpu_total / NS; return s->gpu_count > 0;
    case SP_METRIC_GPU_AVERAGE: *value = s->gpu_count ? (double)s->gpu_total / ((double)s->gpu_count * NS) : 0.0; return s->gpu_count > 0;
    default: *value = 0.0; return false;
    }
}

/* -- regions in order -- */

typedef struct ranked {
    uint32_t name;
    size_t place;
    const char *text;
    double key; /* small first */
} ranked;

static int by_key(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static int by_text(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    const int order = strcmp(a->text, b->text);
    return order ? order : (a->place > b->place) - (a->place < b->place);
}

static double key_of(const sp_profile *profile, uint32_t name, const sp_selection *selection, sp_sort_key sort)
{
    static const sp_metric metrics[SP_SORT_KEYS] = {
        SP_METRIC_START, SP_METRIC_TOTAL, SP_METRIC_CALLS, SP_METRIC_AVERAGE, SP_METRIC_MINIMUM, SP_METRIC_MAXIMUM, SP_METRIC_FIRST,
        SP_METRIC_LAST,  SP_METRIC_STD,   SP_METRIC_P50,   SP_METRIC_P95,     SP_METRIC_P99,     SP_METRIC_IMBALANCE,
    };
    double value;
    const bool known = sp_region_statistic(profile, name, selection, metrics[sort], &value);
    if (sort == SP_SORT_START) return value;
    return known ? -value : INFINITY;
}

sp_status sp_regions_sorted(const sp_profile *profile, const sp_selection *selection, sp_sort_key sort, size_t limit,
                            uint32_t **names, size_t *count, sp_error *error)
{
    bool *seen = calloc(profile->name_count + 1, sizeof *seen);
    ranked *all = malloc((profile->name_count + 1) * sizeof *all);
    *names = malloc((profile->name_count + 1) * sizeof **names);
    *count = 0;
    const bool ok = seen && all && *names;
    size_t used = 0;
    for (size_t i = 0; ok && i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (seen[row->name] || !sp_selection_has_row(selection, row)) continue;
        seen[row->name] = true;
        all[used] = (ranked){.name = row->name, .place = used, .text = profile->names[row->name]};
        all[used].key = sort == SP_SORT_NAME ? 0 : key_of(profile, row->name, selection, SP_SORT_START);
        used++;
    }
    if (ok) {
        sp_sort(all, used, sizeof *all, by_key); /* by start: what decides where the key does not */
        for (size_t i = 0; i < used; i++) {
            all[i].place = i;
            if (sort != SP_SORT_NAME) all[i].key = key_of(profile, all[i].name, selection, sort);
        }
        sp_sort(all, used, sizeof *all, sort == SP_SORT_NAME ? by_text : by_key);
        *count = limit && limit < used ? limit : used;
        for (size_t i = 0; i < *count; i++) (*names)[i] = all[i].name;
    }
    free(seen);
    free(all);
    if (ok) return SP_OK;
    free(*names);
    *names = NULL;
    return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the regions");
}

/* -- two profiles -- */

void sp_changes_free(sp_changes *changes)
{
    free(changes->changes);
    *changes = (sp_changes){0};
}

static void finish_change(sp_change *change)
{
    change->delta = (change->has_b ? change->b : 0.0) - (change->has_a ? change->a : 0.0);
    change->has_percent = change->has_a && (change->has_b || !change->in_b);
    if (!change->has_percent) return;
    if (change->a == 0.0) change->percent = change->delta == 0.0 ? 0.0 : INFINITY;
    else change->percent = 100.0 * change->delta / change->a;
}

static bool is_change(const void *changes, uint32_t number, const void *name)
{
    return strcmp(((const sp_change *)changes)[number].name, name) == 0;
}

/* The change of this name, the last one if it is new; where the index has it. */
static sp_change *change_of(sp_changes *changes, sp_index *index, const char *name)
{
    uint32_t *slot = sp_index_find(index, sp_hash(name), changes->changes, is_change, name);
    if (*slot == 0) {
        changes->changes[changes->count].name = name;
        *slot = (uint32_t)++changes->count;
    }
    return &changes->changes[*slot - 1];
}

sp_status sp_compare(const sp_profile *a, const sp_selection *of_a, const sp_profile *b, const sp_selection *of_b, sp_metric metric,
                     sp_changes *out, sp_error *error)
{
    uint32_t *names_a = NULL, *names_b = NULL;
    size_t count_a = 0, count_b = 0;
    sp_index index = {0};
    *out = (sp_changes){0};
    sp_status status = sp_regions_sorted(a, of_a, SP_SORT_START, 0, &names_a, &count_a, error);
    if (status == SP_OK) status = sp_regions_sorted(b, of_b, SP_SORT_START, 0, &names_b, &count_b, error);
    out->changes = status == SP_OK ? calloc(count_a + count_b + 1, sizeof *out->changes) : NULL;
    if (status == SP_OK && (out->changes == NULL || !sp_index_resize(&index, count_a + count_b, 0, NULL, NULL))) {
        status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the comparison");
    }
    for (size_t i = 0; status == SP_OK && i < count_a; i++) {
        sp_change *change = change_of(out, &index, a->names[names_a[i]]);
        change->in_a = true;
        change->has_a = sp_region_statistic(a, names_a[i], of_a, metric, &change->a);
    }
    for (size_t i = 0; status == SP_OK && i < count_b; i++) {
        sp_change *change = change_of(out, &index, b->names[names_b[i]]);
        change->in_b = true;
        change->has_b = sp_region_statistic(b, names_b[i], of_b, metric, &change->b);
    }
    for (size_t i = 0; i < out->count; i++) finish_change(&out->changes[i]);
    free(names_a);
    free(names_b);
    free(index.slots);
    if (status != SP_OK) sp_changes_free(out);
    return status;
}

typedef struct ordered {
    sp_change change;
    double key;
    size_t place;
} ordered;

static int by_order(const void *left, const void *right)
{
    const ordered *a = left, *b = right;
    if (a->key != b->key) return a->key > b->key ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const ordered *)left)->change.name, ((const ordered *)right)->change.name);
}

void sp_changes_sort(sp_changes *changes, sp_change_order order)
{
    ordered *all = malloc((changes->count + 1) * sizeof *all);
    if (all == NULL) return; /* in order of appearance then */
    for (size_t i = 0; i < changes->count; i++) {
        const sp_change *change = &changes->changes[i];
        const double percent = change->has_percent ? fabs(change->percent) : -1.0;
        all[i] = (ordered){*change, order == SP_CHANGES_BY_PERCENT ? percent : fabs(change->delta), i};
    }
    sp_sort(all, changes->count, sizeof *all, order == SP_CHANGES_BY_NAME ? by_name : by_order);
    for (size_t i = 0; i < changes->count; i++) changes->changes[i] = all[i].change;
    free(all);
}

bool sp_change_breaks(const sp_change *change, double budget, bool fail_on_new)
{
    if (!change->in_a) return fail_on_new;
    return change->in_b && change->has_percent && change->percent > budget;
}

static void number_cell(sp_table *table, bool known, double value, sp_metric metric)
{
    if (!known) sp_table_cell(table, "-");
    else sp_table_format(table, metric == SP_METRIC_CALLS ? "%.0f" : "%.6g", value);
}

static void write_only(const sp_changes *changes, bool in_a, sp_text *out)
{
    bool any = false;
    for (size_t i = 0; i < changes->count; i++) {
        const sp_change *change = &changes->changes[i];
        if (in_a ? change->in_b : change->in_a) continue;
        if (any) sp_text_add(out, ", ");
        else sp_text_format(out, "  Only in %s: ", in_a ? "a" : "b");
        any = true;
        sp_text_name(out, change->name);
    }
    if (any) sp_text_add(out, "\n");
}

void sp_report_changes(const sp_changes *changes, sp_metric metric, size_t width, sp_text *out)
{
    char a[40], b[40];
    if (changes->count == 0) {
        sp_text_add(out, "  (no regions to compare)\n\n");
        return;
    }
    const char *unit = metric == SP_METRIC_CALLS ? "" : metric == SP_METRIC_IMBALANCE ? " [%]" : " [s]";
    snprintf(a, sizeof a, "%s%s (a)", sp_metric_names[metric], unit);
    snprintf(b, sizeof b, "%s%s (b)", sp_metric_names[metric], unit);
    sp_table table = {0};
    sp_table_column_add(&table, "region", false, true);
    sp_table_column_add(&table, a, true, false);
    sp_table_column_add(&table, b, true, false);
    sp_table_column_add(&table, "delta", true, false);
    sp_table_column_add(&table, "delta [%]", true, false);
    for (size_t i = 0; i < changes->count; i++) {
        const sp_change *change = &changes->changes[i];
        sp_table_name(&table, change->name);
        number_cell(&table, change->has_a, change->a, metric);
        number_cell(&table, change->has_b, change->b, metric);
        if (sp_change_unmeasured(change)) sp_table_cell(&table, "-");
        else sp_table_format(&table, metric == SP_METRIC_CALLS ? "%+.0f" : "%+.6g", change->delta);
        if (change->has_percent && !isinf(change->percent)) sp_table_format(&table, "%+.4g%%", change->percent);
        else sp_table_cell(&table, "-");
    }
    sp_table_end(&table, out, width);
    write_only(changes, true, out);
    write_only(changes, false, out);
    sp_text_add(out, "\n");
}
