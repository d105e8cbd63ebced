/*
 * profile.h - a collected run in memory: what results, files and exports are made from.
 *
 *   sp_profile
 *     rows[]      one per (rank, region), rank by rank      names[]   region names by id
 *       first ──────────┐
 *     columns           ▼
 *       start_ns   [ row 0's calls | row 1's calls | ... ]    absolute ns of CLOCK_MONOTONIC
 *       end_ns     [ ...                                 ]
 *       call_ids, parent_ids, thread_ids, task_ids, await_ns, gpu_ns     each NULL when not recorded
 *     threads[], tasks[]   lane tables, all ranks; times relative to the run's start; -1 = unknown
 *     processes[]          one a rank, with what is known of its clock
 *     stored_paths         totals by call path            metadata[]  typed key/value pairs
 *     aux[]                per-rank groups kept as they are
 *
 * A profile owns everything in it. It is immutable once shared: it is reference counted, and the Python arrays made from
 * it are views of these columns. Every column is int64, so that they can be.
 */
#ifndef SP_ANALYSIS_PROFILE_H
#define SP_ANALYSIS_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/column_memory.h"
#include "core/error.h"

#define SP_UNKNOWN (-1) /* a time, index or line that is not known */

/* Statistics of one row, as the file stores them. Times in ns; m2 = sum of squared deviations from the mean. */
typedef struct sp_row_statistics {
    int64_t total, minimum, maximum, first, last, start_minimum, end_maximum;
    uint64_t gpu_count;
    int64_t gpu_total;
    double mean, m2;
} sp_row_statistics;

/* The percentiles a file keeps for every row, so that a summary need not read the calls. */
#define SP_PERCENTILE_COUNT 3
extern const double sp_percentile_ranks[SP_PERCENTILE_COUNT]; /* 50, 95, 99 */

typedef struct sp_row {
    uint32_t name;  /* index into names */
    uint32_t rank;
    uint64_t first; /* this row's calls are columns[first .. first + count) */
    uint64_t count;
    int64_t source_line;    /* SP_UNKNOWN: none */
    char *source_file;      /* NULL: none */
    char *source_text;      /* NULL: none */
    char *tags;             /* JSON list of strings; NULL: none */
    char *event_metadata;   /* JSON list, one object a call; NULL: none */
    int64_t exclusive_total; /* ns over all calls; SP_UNKNOWN when the calls do not nest */
    bool has_statistics;
    sp_row_statistics statistics;
    bool has_percentiles;
    double percentiles[SP_PERCENTILE_COUNT]; /* of the durations, ns; see sp_percentile_ranks */
    bool has_aggregate; /* aggregate layout: no calls, only these */
    uint64_t aggregate_count;
    int64_t aggregate_total, aggregate_minimum, aggregate_maximum, aggregate_exclusive;
} sp_row;

/* Calls of the row, be they there or only their sums. */
static inline uint64_t sp_row_calls(const sp_row *row)
{
    return row->has_aggregate ? row->aggregate_count : row->count;
}

typedef struct sp_thread_info {
    uint32_t rank;
    int64_t index, ident, native_id;
    bool daemon;
    int64_t start_ns, end_ns, cpu_ns;
    int64_t cpu_before_ns; /* the part of cpu_ns that was burned before start_ns; 0 where it is not known */
    char *name;
} sp_thread_info;

/* CPU ns from the start of the row on; SP_UNKNOWN: not known. */
static inline int64_t sp_thread_run_cpu_ns(const sp_thread_info *thread)
{
    if (thread->cpu_ns < 0) return SP_UNKNOWN;
    return thread->cpu_ns > thread->cpu_before_ns ? thread->cpu_ns - thread->cpu_before_ns : 0;
}

typedef struct sp_task_info {
    uint32_t rank;
    int64_t index;
    char *kind; /* "task" or "greenlet" */
    char *name, *coro_name;
    int64_t thread_index, created_ns, done_ns, steps, running_ns, suspended_ns;
    int64_t creator_thread, creator_task; /* the lane that made it: thread (-1: unknown) and task (-1: its own lane) */
} sp_task_info;

/*
 * One process that recorded: a rank, and how its clock relates to others. Processes of one clock domain (0: unknown) stamp their
 * calls with the same clock. Else the two sync points tell what a reference clock showed at two moments of the local one: that
 * is an offset and a drift. All in ns; the points are equal when there is one only.
 */
typedef struct sp_process_info {
    uint32_t rank;
    int64_t pid, clock_domain;
    int64_t start_ns, start_reference_ns, end_ns, end_reference_ns;
    int64_t error_ns;  /* half of the time that reading both clocks took; SP_UNKNOWN: there are no sync points */
    char *name;        /* "" or what it is called */
    char *reference;   /* "realtime", "rank 0" or "" */
} sp_process_info;

typedef enum sp_value_kind { SP_VALUE_INT, SP_VALUE_FLOAT, SP_VALUE_BOOL, SP_VALUE_STRING, SP_VALUE_STRINGS } sp_value_kind;

/* One metadata entry. `text` for a string; `list`/`size` for a list of strings; `integer` for int and bool. */
typedef struct sp_metadata {
    char *key;
    sp_value_kind kind;
    int64_t integer;
    double real;
    char *text;
    char **list;
    size_t size;
} sp_metadata;

/*
 * A group of a file that only carries through (line profiles, counters): kept as a tree of groups, attributes and
 * datasets, without understanding it.
 */
typedef enum sp_array_kind { SP_ARRAY_INT64, SP_ARRAY_UINT64, SP_ARRAY_FLOAT64, SP_ARRAY_STRING } sp_array_kind;

typedef struct sp_array {
    char *name;
    sp_array_kind kind;
    int dimensions;      /* 0 (a scalar) .. 4 */
    uint64_t shape[4];
    void *data;          /* int64_t*, uint64_t*, double* or char** */
} sp_array;

/* Elements of the array: 1 for a scalar. */
static inline uint64_t sp_array_size(const sp_array *array)
{
    uint64_t size = 1;
    for (int i = 0; i < array->dimensions; i++) size *= array->shape[i];
    return size;
}

typedef struct sp_group {
    char *name; /* one step of the path below the rank's group; NULL for the root */
    sp_array *attributes;
    size_t attribute_count;
    sp_array *datasets;
    size_t dataset_count;
    struct sp_group *groups;
    size_t group_count;
} sp_group;

typedef struct sp_rank_aux {
    uint32_t rank;
    sp_group root;
} sp_rank_aux;

typedef enum sp_column {
    SP_COLUMN_START,
    SP_COLUMN_END,
    SP_COLUMN_CALL_ID,
    SP_COLUMN_PARENT_ID,
    SP_COLUMN_THREAD,
    SP_COLUMN_TASK,
    SP_COLUMN_AWAIT,
    SP_COLUMN_GPU,
    SP_COLUMN_COUNT
} sp_column;

typedef struct sp_profile {
    char **names;
    size_t name_count;
    sp_row *rows;
    size_t row_count;
    uint64_t call_count;
    int64_t *columns[SP_COLUMN_COUNT]; /* each call_count long, or NULL; start and end are never NULL unless call_count = 0 or summary_only */
    sp_thread_info *threads;
    size_t thread_count;
    bool has_threads; /* an empty thread table is not the same as none */
    sp_task_info *tasks;
    size_t task_count;
    sp_process_info *processes; /* ascending rank */
    size_t process_count;
    struct sp_path_summary *stored_paths; /* the summary by call path that the file keeps, owned; NULL: none */
    sp_metadata *metadata;
    size_t metadata_count;
    sp_rank_aux *aux;
    size_t aux_count;
    bool aggregate;    /* storage layout "aggregate" */
    bool summary_only; /* read without its calls: rows carry count and statistics, the columns are NULL */
    bool nested;       /* false: calls of a lane overlap; ids are absent and exclusive totals unknown */
    int64_t schema;    /* of the file it came from, 0: recorded here */
    struct sp_profile *owner; /* a copy: everything but the metadata is this profile's (a reference is held); else NULL */
    bool own_rows, own_gpu, own_aux; /* a copy: its rows, its column of GPU times, its groups are its own */
    _Atomic(int) references;
} sp_profile;

/* The same of all rows. */
uint64_t sp_profile_calls(const sp_profile *profile);

/* An empty profile with one reference; NULL when out of memory. */
sp_profile *sp_profile_new(void);
sp_profile *sp_profile_share(sp_profile *profile);
void sp_profile_release(sp_profile *profile); /* NULL is allowed */

/* Give a copy that has its own rows another column of GPU times, which it takes over, and the statistics of that. */
void sp_profile_take_gpu(sp_profile *copy, int64_t *column);

/* Give a copy groups of its own, none at first. */
void sp_profile_drop_aux(sp_profile *copy);

/* A profile with the same contents, whose metadata, and with own_rows its rows, may be changed before it is shared. All else
 * is `profile`'s, not copied: a run has as many rows as regions, and 100,000 of them take 33 MB. NULL when out of memory. */
sp_profile *sp_profile_copy(sp_profile *profile, bool own_rows);

/* NULL for NULL, else a malloc'ed copy. Strings inside a profile are freed with free(). */
char *sp_text_copy(const char *text);
void sp_array_free(sp_array *array); /* what is in it, not `array` itself */
void sp_group_free(sp_group *group); /* what is in it, not `group` itself */

/* The default of a column when only other ranks recorded it: -1, but 0 for await. */
int64_t sp_column_default(sp_column column);

/* statistics of one row from its calls (profile->columns must be there) */
void sp_row_statistics_compute(const sp_profile *profile, const sp_row *row, sp_row_statistics *out);

/* Add the statistics of `more` calls to those of `calls`; of what ends at the same time the first counts as the last call. */
void sp_row_statistics_pool(sp_row_statistics *into, uint64_t calls, const sp_row_statistics *from, uint64_t more);

/*
 * Percentiles of a row's durations at `ranks` (0..100, `count` of them), exact, interpolated linearly between the two
 * nearest calls. Needs no copy of the durations: it counts into bins, then narrows the bin. 0 for a row without calls.
 */
sp_status sp_row_percentiles_compute(const sp_profile *profile, const sp_row *row, const double *ranks, size_t count,
                                     double *out);

/* Add a metadata entry, replacing one of the same key. Strings are copied. SP_ERR_NO_MEMORY is the only failure. */
sp_status sp_profile_set_int(sp_profile *profile, const char *key, int64_t value);
sp_status sp_profile_set_float(sp_profile *profile, const char *key, double value);
sp_status sp_profile_set_bool(sp_profile *profile, const char *key, bool value);
sp_status sp_profile_set_string(sp_profile *profile, const char *key, const char *value);
sp_status sp_profile_set_strings(sp_profile *profile, const char *key, const char *const *list, size_t size);
void sp_profile_clear_metadata(sp_profile *profile);
void sp_profile_drop_metadata(sp_profile *profile, const char *key); /* nothing if there is none of that key */
/* The entries of `from`, in the place of those of the same key. */
sp_status sp_profile_copy_metadata(sp_profile *profile, const sp_profile *from);
const sp_metadata *sp_profile_find_metadata(const sp_profile *profile, const char *key);
/* The integer of this key; false, and *value as it was, when there is none. */
bool sp_profile_get_int(const sp_profile *profile, const char *key, int64_t *value);

/* The process of a rank; NULL where nothing is known of it. */
const sp_process_info *sp_profile_process(const sp_profile *profile, uint32_t rank);

/* What people read of a rank: "worker 1 (rank 2, pid 4711)", or "rank 2" for a process without a name. To be freed; NULL: no memory. */
char *sp_profile_rank_label(const sp_profile *profile, uint32_t rank);

#endif
