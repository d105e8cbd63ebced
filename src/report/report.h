/*
 * report.h - what people look at: the tables that `inspect`, `diff`, `check` and `top` print, of the native command and of the
 * Python package alike.
 *
 * Every function adds lines to a text; what was out of memory leaves `failed` in it. `width` is that of the terminal, by which
 * tables are narrowed; 0: any.
 */
#ifndef SP_REPORT_REPORT_H
#define SP_REPORT_REPORT_H

#include "analysis/profile.h"
#include "report/text.h"

/* Which part of a profile is shown. */
typedef struct sp_selection {
    const bool *visible; /* by name; NULL: every region */
    const uint32_t *ranks;
    size_t rank_count; /* 0: all */
} sp_selection;

bool sp_selection_has_rank(const sp_selection *selection, uint32_t rank);
/* A region that is chosen: by name, and on a rank that is chosen. */
bool sp_selection_has_row(const sp_selection *selection, const sp_row *row);

/* How many ranks the run had: as it says, or as its rows do. */
int64_t sp_profile_ranks(const sp_profile *profile);
/* NULL: none. */
const char *sp_profile_label(const sp_profile *profile);

/* -- the head of a profile -- */

/* Which file this is, and how much is in it. `size` is the file's, -1: not known. */
void sp_report_banner(const sp_profile *profile, const char *path, int64_t size, size_t width, sp_text *out);
/* The metadata by section; long values are cut unless `full`. */
void sp_report_metadata(const sp_profile *profile, bool full, sp_text *out);

/* -- regions -- */

typedef enum sp_region_column {
    SP_REGION_NAME, SP_REGION_RANKS, SP_REGION_CALLS, SP_REGION_TOTAL, SP_REGION_PERCENT, SP_REGION_PARENT_PERCENT,
    SP_REGION_AVERAGE, SP_REGION_GPU_TOTAL, SP_REGION_GPU_AVERAGE, SP_REGION_MINIMUM, SP_REGION_MAXIMUM, SP_REGION_FIRST,
    SP_REGION_LAST, SP_REGION_STD, SP_REGION_P50, SP_REGION_P95, SP_REGION_P99, SP_REGION_IMBALANCE, SP_REGION_COLUMNS
} sp_region_column;

#define SP_REGION_COLUMNS_MOST 64 /* that a table shows; a column may be shown again */

/* As the command line has them: region, ranks, calls, ... */
extern const char *const sp_region_column_names[SP_REGION_COLUMNS];

typedef enum sp_sort_key {
    SP_SORT_START, SP_SORT_TOTAL, SP_SORT_CALLS, SP_SORT_AVERAGE, SP_SORT_MINIMUM, SP_SORT_MAXIMUM, SP_SORT_FIRST, SP_SORT_LAST,
    SP_SORT_STD, SP_SORT_P50, SP_SORT_P95, SP_SORT_P99, SP_SORT_IMBALANCE, SP_SORT_NAME, SP_SORT_KEYS
} sp_sort_key;

extern const char *const sp_sort_key_names[SP_SORT_KEYS];

typedef struct sp_region_table {
    sp_selection selection;
    const sp_region_column *columns; /* NULL: region, share of the session if there is one, total */
    size_t column_count;
    sp_sort_key sort;
    bool exclusive_mode; /* shares of the session are of exclusive times */
} sp_region_table;

/* The regions by call path. */
sp_status sp_report_regions(const sp_profile *profile, const sp_region_table *options, sp_text *out, sp_error *error);

/* -- statistics of a region over its ranks -- */

typedef enum sp_metric {
    SP_METRIC_TOTAL, SP_METRIC_AVERAGE, SP_METRIC_MINIMUM, SP_METRIC_MAXIMUM, SP_METRIC_P50, SP_METRIC_P95, SP_METRIC_P99,
    SP_METRIC_IMBALANCE, SP_METRIC_CALLS, SP_METRIC_GPU_TOTAL, SP_METRIC_GPU_AVERAGE, SP_METRICS, /* those that are compared */
    SP_METRIC_FIRST = SP_METRICS, SP_METRIC_LAST, SP_METRIC_STD, SP_METRIC_START, SP_METRICS_ALL
} sp_metric;

extern const char *const sp_metric_names[SP_METRICS];

/* Seconds, percent for the imbalance, a number of calls. False: it was not recorded. */
bool sp_region_statistic(const sp_profile *profile, uint32_t name, const sp_selection *selection, sp_metric metric, double *value);

/* The chosen names in the order of `sort`, of which `limit` (0: all) are kept: malloc'ed. */
sp_status sp_regions_sorted(const sp_profile *profile, const sp_selection *selection, sp_sort_key sort, size_t limit,
                            uint32_t **names, size_t *count, sp_error *error);

/* -- lanes -- */

/* Processes, where there are several. */
void sp_report_processes(const sp_profile *profile, const sp_selection *selection, size_t width, sp_text *out);

/* Threads and tasks; `limit` rows each (-1: the default, 0: all). Nothing where there are none. */
sp_status sp_report_threads(const sp_profile *profile, const sp_selection *selection, int64_t limit, size_t width, sp_text *out,
                            sp_error *error);
void sp_report_tasks(const sp_profile *profile, const sp_selection *selection, int64_t limit, size_t width, sp_text *out);

/* Counts of perf events by region, those of the largest counts. Nothing where there are none. */
void sp_report_counters(const sp_profile *profile, const sp_selection *selection, sp_text *out);

/*
 * The call tree of every lane: `names` are the regions, in the order that decides between identical intervals. `depth` levels
 * and `limit` lanes (-1: the default, 0: all) are shown. *complete is false when a rank has no tree.
 */
sp_status sp_report_tree(const sp_profile *profile, const uint32_t *names, size_t name_count, const sp_selection *selection,
                         size_t depth, int64_t limit, size_t width, sp_text *out, bool *complete, sp_error *error);

/* The captured source of regions. False when one of them is not in the profile. */
bool sp_report_source(const sp_profile *profile, const char *const *names, size_t count, sp_text *out);

/* -- two profiles -- */

typedef struct sp_change {
    const char *name;
    bool in_a, in_b;   /* the profile has the region */
    bool has_a, has_b; /* ... and the metric */
    double a, b;
    double delta;      /* b - a; what is missing counts as 0 */
    bool has_percent;
    double percent; /* of a; infinite when a is 0 and b is not */
} sp_change;

static inline bool sp_change_unmeasured(const sp_change *change)
{
    return (change->in_a && !change->has_a) || (change->in_b && !change->has_b);
}

typedef struct sp_changes {
    sp_change *changes;
    size_t count;
} sp_changes;

typedef enum sp_change_order { SP_CHANGES_BY_DELTA, SP_CHANGES_BY_PERCENT, SP_CHANGES_BY_NAME } sp_change_order;

/* Every region that is chosen in either profile. The names stay the profiles'. */
sp_status sp_compare(const sp_profile *a, const sp_selection *of_a, const sp_profile *b, const sp_selection *of_b, sp_metric metric,
                     sp_changes *out, sp_error *error);
void sp_changes_free(sp_changes *changes);
void sp_changes_sort(sp_changes *changes, sp_change_order order);
/* Whether the change is beyond the budget (percent). A region that is gone is not; a new one only when asked for. */
bool sp_change_breaks(const sp_change *change, double budget, bool fail_on_new);
void sp_report_changes(const sp_changes *changes, sp_metric metric, size_t width, sp_text *out);

#endif
