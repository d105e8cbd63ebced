/* hdf5_read_columnar.c - schemas 2 and 3: an index row per rank and region, and the calls of all rows in columns. */
#include "core/sort.h"
#include "formats/hdf5_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5_summary.h"
#include "formats/json_text.h"

/* The index as the file has it: all rows, whatever was asked for. Columns are NULL where the file has none. */
typedef struct index_columns {
    uint64_t count;
    int64_t *regions, *ranks, *offsets, *counts, *lines, *exclusives;
    int64_t *aggregate_counts, *aggregate_totals, *aggregate_minimums, *aggregate_maximums, *aggregate_exclusives;
    char **files, **texts, **tags, **event_metadata;
    sp_row_statistics *statistics;
    double *percentiles;
} index_columns;

static void free_texts(char **texts, uint64_t count)
{
    for (uint64_t i = 0; texts && i < count; i++) free(texts[i]);
    free(texts);
}

static void free_index(index_columns *index)
{
    int64_t *numbers[] = {index->regions, index->ranks, index->offsets, index->counts, index->lines,
                          index->exclusives, index->aggregate_counts, index->aggregate_totals,
                          index->aggregate_minimums, index->aggregate_maximums, index->aggregate_exclusives};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) free(numbers[i]);
    free_texts(index->files, index->count);
    free_texts(index->texts, index->count);
    free_texts(index->tags, index->count);
    free_texts(index->event_metadata, index->count);
    free(index->statistics);
    free(index->percentiles);
}

/* -- columns of a table -- */

typedef enum presence { REQUIRED, OPTIONAL } presence;

#define ANY_COUNT UINT64_MAX

typedef struct table {
    const sp_input *input;
    hid_t group;
    const char *name; /* "/rank_region_index" */
    uint64_t count;   /* rows; ANY_COUNT until the first column was read */
    sp_status status; /* sticky */
} table;

/*
 * Open a column and check its length. A column that is optional may be missing, or have no rows when the table has some
 * (the aggregate layout of older writers); then *dataset is closed and false is returned.
 */
static bool open_column(table *t, const char *name, presence needed, char *full_name, size_t size, sp_dataset *dataset)
{
    if (t->status != SP_OK) return false;
    snprintf(full_name, size, "%s/%s", t->name, name);
    t->status = sp_dataset_open(t->input, t->group, name, full_name, dataset);
    const bool there = t->status == SP_OK && dataset->id >= 0;
    if (t->status == SP_OK && !there && needed == REQUIRED) {
        t->status = sp_input_damaged(t->input, full_name, "is missing");
    }
    if (there && t->count == ANY_COUNT) t->count = dataset->count;
    const bool absent = there && needed == OPTIONAL && dataset->count == 0;
    if (there && !absent && dataset->count != t->count) {
        t->status = sp_input_damaged(t->input, full_name, "has %" PRIu64 " rows instead of %" PRIu64, dataset->count,
                                     t->count);
    }
    if (t->status == SP_OK && there && !absent) return true;
    sp_dataset_close(dataset);
    return false;
}

static int64_t *number_column(table *t, const char *name, presence needed)
{
    char full_name[100];
    sp_dataset dataset;
    if (!open_column(t, name, needed, full_name, sizeof full_name, &dataset)) return NULL;
    int64_t *values = malloc(dataset.count ? dataset.count * sizeof *values : 1);
    if (values == NULL) t->status = SP_ERR_NO_MEMORY;
    else t->status = sp_dataset_read_int64(t->input, &dataset, 0, dataset.count, values);
    sp_dataset_close(&dataset);
    if (t->status == SP_OK) return values;
    free(values);
    return NULL;
}

static char **text_column(table *t, const char *name, presence needed)
{
    char full_name[100], **texts = NULL;
    sp_dataset dataset;
    if (!open_column(t, name, needed, full_name, sizeof full_name, &dataset)) return NULL;
    t->status = sp_dataset_read_texts(t->input, &dataset, &texts);
    sp_dataset_close(&dataset);
    return texts;
}

static table open_table(const sp_reader *reader, const char *name)
{
    table t = {.input = &reader->input, .name = name, .count = ANY_COUNT};
    t.status = sp_input_open_group(&reader->input, reader->file, name + 1, name, &t.group);
    return t;
}

static void close_table(table *t)
{
    if (t->group >= 0) H5Gclose(t->group);
}

/* -- names -- */

static sp_status read_names(sp_reader *reader)
{
    table t = open_table(reader, "/region_table");
    if (t.status == SP_OK && t.group < 0) t.status = sp_input_damaged(&reader->input, t.name, "is missing");
    char **names = text_column(&t, "names", REQUIRED);
    if (t.status == SP_OK) {
        reader->profile->names = names;
        reader->profile->name_count = t.count;
    }
    close_table(&t);
    return t.status;
}

/* -- the index -- */

static sp_row_statistics *statistics_column(table *t)
{
    char full_name[100];
    sp_dataset dataset;
    void *values = NULL;
    if (!open_column(t, "summary_statistics", OPTIONAL, full_name, sizeof full_name, &dataset)) return NULL;
    const hid_t type = sp_statistics_type();
    if (type < 0) t->status = SP_ERR_NO_MEMORY;
    else if (H5Tget_class(dataset.type) != H5T_COMPOUND || H5Tget_nmembers(dataset.type) != H5Tget_nmembers(type)) {
        t->status = sp_input_damaged(t->input, full_name, "does not hold statistics");
    }
    for (int i = 0; t->status == SP_OK && i < H5Tget_nmembers(type); i++) {
        char *member = H5Tget_member_name(type, (unsigned)i);
        if (H5Tget_member_index(dataset.type, member) < 0) {
            t->status = sp_input_damaged(t->input, full_name, "has no member \"%s\"", member);
        }
        H5free_memory(member);
    }
    if (t->status == SP_OK) t->status = sp_dataset_read_as(t->input, &dataset, type, &values);
    if (type >= 0) H5Tclose(type);
    sp_dataset_close(&dataset);
    return values;
}

static sp_status read_index(sp_reader *reader, index_columns *index)
{
    table t = open_table(reader, "/rank_region_index");
    if (t.status == SP_OK && t.group < 0) t.status = sp_input_damaged(&reader->input, t.name, "is missing");
    const presence calls = reader->profile->aggregate ? OPTIONAL : REQUIRED;
    index->regions = number_column(&t, "region_ids", REQUIRED);
    index->ranks = number_column(&t, "ranks", REQUIRED);
    index->offsets = number_column(&t, "event_offsets", calls);
    index->counts = number_column(&t, "event_counts", calls);
    index->lines = number_column(&t, "source_lines", OPTIONAL);
    index->exclusives = number_column(&t, "exclusive_totals", OPTIONAL);
    index->files = text_column(&t, "source_files", OPTIONAL);
    index->texts = text_column(&t, "source_texts", OPTIONAL);
    index->tags = text_column(&t, "tags", OPTIONAL);
    if (!reader->selection->summary) index->event_metadata = text_column(&t, "event_metadata", OPTIONAL);
    index->statistics = statistics_column(&t);
    const presence aggregates = reader->profile->aggregate ? REQUIRED : OPTIONAL;
    index->aggregate_counts = number_column(&t, "aggregate_counts", aggregates);
    index->aggregate_totals = number_column(&t, "aggregate_totals", index->aggregate_counts ? REQUIRED : OPTIONAL);
    index->aggregate_minimums = number_column(&t, "aggregate_minimums", index->aggregate_counts ? REQUIRED : OPTIONAL);
    index->aggregate_maximums = number_column(&t, "aggregate_maximums", index->aggregate_counts ? REQUIRED : OPTIONAL);
    index->aggregate_exclusives =
        number_column(&t, "aggregate_exclusives", index->aggregate_counts ? REQUIRED : OPTIONAL);
    index->count = t.count == ANY_COUNT ? 0 : t.count;
    close_table(&t);
    if (t.status == SP_OK) t.status = sp_summary_read_percentiles(reader, index->count, &index->percentiles);
    return t.status;
}

/* -- are the rows right -- */

static const char index_name[] = "/rank_region_index";

typedef struct span {
    uint64_t first, count;
    size_t row;
} span;

static int compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Rows must lie within the columns and apart from each other. */
static sp_status check_spans(sp_reader *reader, const index_columns *index, uint64_t call_count)
{
    if (index->counts == NULL || index->count == 0) return SP_OK;
    span *spans = malloc(index->count * sizeof *spans);
    if (spans == NULL) return SP_ERR_NO_MEMORY;
    sp_status status = SP_OK;
    size_t count = 0;
    for (uint64_t i = 0; i < index->count && status == SP_OK; i++) {
        const uint64_t first = (uint64_t)index->offsets[i], calls = (uint64_t)index->counts[i];
        if (calls == 0) continue;
        if (first > call_count || calls > call_count - first) {
            status = sp_input_damaged(&reader->input, index_name,
                                      "row %" PRIu64 " covers calls that are not in /events (%" PRIu64 ")", i,
                                      call_count);
        }
        spans[count++] = (span){first, calls, i};
    }
    sp_sort(spans, count, sizeof *spans, compare_spans);
    for (size_t i = 1; i < count && status == SP_OK; i++) {
        if (spans[i].first - spans[i - 1].first >= spans[i - 1].count) continue;
        status = sp_input_damaged(&reader->input, index_name, "rows %zu and %zu share calls", spans[i - 1].row,
                                  spans[i].row);
    }
    free(spans);
    return status;
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static sp_status check_keys(sp_reader *reader, const index_columns *index)
{
    uint64_t *keys = malloc(index->count ? index->count * sizeof *keys : 1);
    if (keys == NULL) return SP_ERR_NO_MEMORY;
    sp_status status = SP_OK;
    for (uint64_t i = 0; i < index->count && status == SP_OK; i++) {
        const int64_t region = index->regions[i], rank = index->ranks[i];
        if (region < 0 || (uint64_t)region >= reader->profile->name_count) {
            status = sp_input_damaged(&reader->input, "/rank_region_index/region_ids",
                                      "row %" PRIu64 " is region %" PRId64 " of %zu", i, region,
                                      reader->profile->name_count);
        } else if (rank < 0 || rank > UINT32_MAX) {
            status = sp_input_damaged(&reader->input, "/rank_region_index/ranks", "row %" PRIu64 " is rank %" PRId64, i,
                                      rank);
        }
        keys[i] = (uint64_t)rank << 32 | (uint32_t)region;
    }
    if (status == SP_OK) sp_sort(keys, index->count, sizeof *keys, compare_keys);
    for (uint64_t i = 1; i < index->count && status == SP_OK; i++) {
        if (keys[i] != keys[i - 1]) continue;
        status = sp_input_damaged(&reader->input, index_name, "has two rows for region \"%.200s\" of rank %" PRIu64,
                                  reader->profile->names[(uint32_t)keys[i]], keys[i] >> 32);
    }
    free(keys);
    return status;
}

static sp_status check_json(sp_reader *reader, const index_columns *index, uint64_t i)
{
    const char *region = reader->profile->names[index->regions[i]];
    uint64_t count;
    if (index->tags && *index->tags[i] && !sp_json_list(index->tags[i], '"', &count)) {
        return sp_input_damaged(&reader->input, "/rank_region_index/tags", "of region \"%.200s\" are not a list of texts",
                                region);
    }
    const char *metadata = index->event_metadata ? index->event_metadata[i] : "";
    if (*metadata == '\0' || strcmp(metadata, "[]") == 0) return SP_OK;
    if (!sp_json_list(metadata, '{', &count) || count != (uint64_t)(index->counts ? index->counts[i] : 0)) {
        return sp_input_damaged(&reader->input, "/rank_region_index/event_metadata",
                                "of region \"%.200s\" is not one object per call", region);
    }
    return SP_OK;
}

/* -- rows of the profile -- */

/* Move a text out of the index; NULL for what stands for none. */
static char *take_text(char **texts, uint64_t i, const char *none)
{
    if (texts == NULL || strcmp(texts[i], none) == 0 || *texts[i] == '\0') return NULL;
    char *text = texts[i];
    texts[i] = NULL;
    return text;
}

static void fill_row(sp_row *row, index_columns *index, uint64_t i, uint64_t first, bool aggregate)
{
    *row = (sp_row){
        .name = (uint32_t)index->regions[i],
        .rank = (uint32_t)index->ranks[i],
        .first = first,
        .count = index->counts ? (uint64_t)index->counts[i] : 0,
        .source_line = index->lines ? index->lines[i] : SP_UNKNOWN,
        .exclusive_total = index->exclusives ? index->exclusives[i] : SP_UNKNOWN,
        .source_file = take_text(index->files, i, ""),
        .source_text = take_text(index->texts, i, ""),
        .tags = take_text(index->tags, i, "[]"),
        .event_metadata = take_text(index->event_metadata, i, "[]"),
        .has_statistics = index->statistics != NULL,
    };
    if (index->statistics) row->statistics = index->statistics[i];
    if (index->percentiles && row->count) {
        row->has_percentiles = true;
        memcpy(row->percentiles, index->percentiles + i * SP_PERCENTILE_COUNT, sizeof row->percentiles);
    }
    if (index->aggregate_counts == NULL || !(aggregate || index->aggregate_counts[i] != 0)) return;
    row->has_aggregate = true;
    /* Release 0.7.5 stores none, and who rewrote its files stores zeros. */
    row->has_statistics = row->has_statistics && row->statistics.end_maximum != 0;
    row->aggregate_count = (uint64_t)index->aggregate_counts[i];
    row->aggregate_total = index->aggregate_totals[i];
    row->aggregate_minimum = index->aggregate_minimums[i];
    row->aggregate_maximum = index->aggregate_maximums[i];
    row->aggregate_exclusive = index->aggregate_exclusives[i];
}

/* The rows that are wanted, and where in the file the calls of each begin (malloc'ed). */
static sp_status make_rows(sp_reader *reader, index_columns *index, uint64_t **offsets)
{
    sp_profile *profile = reader->profile;
    profile->rows = calloc(index->count ? index->count : 1, sizeof *profile->rows);
    *offsets = malloc(index->count ? index->count * sizeof **offsets : 1);
    if (profile->rows == NULL || *offsets == NULL) return SP_ERR_NO_MEMORY;
    uint64_t first = 0;
    for (uint64_t i = 0; i < index->count; i++) {
        const char *name = profile->names[index->regions[i]];
        const sp_status status = check_json(reader, index, i);
        if (status != SP_OK) return status;
        if (!sp_reader_wants_rank(reader, index->ranks[i]) || !sp_reader_wants_region(reader, name)) continue;
        sp_row *row = &profile->rows[profile->row_count];
        (*offsets)[profile->row_count++] = index->offsets ? (uint64_t)index->offsets[i] : 0;
        fill_row(row, index, i, first, profile->aggregate);
        first += row->count;
    }
    profile->call_count = reader->selection->summary ? 0 : first;
    return SP_OK;
}

/* -- calls -- */

/* Read the calls of the profile's rows into a column of its own; runs of rows that follow each other in the file are one. */
static sp_status read_calls(sp_reader *reader, const sp_dataset *dataset, const uint64_t *offsets, int64_t *column)
{
    const sp_profile *profile = reader->profile;
    for (size_t i = 0; i < profile->row_count;) {
        const uint64_t from = offsets[i], to = profile->rows[i].first;
        uint64_t count = profile->rows[i++].count;
        while (i < profile->row_count && (profile->rows[i].count == 0 || offsets[i] == from + count)) {
            count += profile->rows[i++].count;
        }
        const sp_status status = sp_dataset_read_int64(&reader->input, dataset, from, count, column + to);
        if (status != SP_OK) return status;
    }
    return SP_OK;
}

static sp_status read_column(sp_reader *reader, hid_t group, const char *name, uint64_t length, const uint64_t *offsets,
                             int64_t **column)
{
    char full_name[64];
    sp_dataset dataset;
    snprintf(full_name, sizeof full_name, "/events/%s", name);
    sp_status status = sp_dataset_open(&reader->input, group, name, full_name, &dataset);
    if (status == SP_OK && dataset.id >= 0 && dataset.count != length) {
        status = sp_input_damaged(&reader->input, full_name, "has %" PRIu64 " values instead of %" PRIu64, dataset.count,
                                  length);
    }
    if (status == SP_OK && dataset.id >= 0) {
        *column = sp_column_alloc(reader->profile->call_count);
        status = *column ? read_calls(reader, &dataset, offsets, *column) : SP_ERR_NO_MEMORY;
    }
    sp_dataset_close(&dataset);
    return status;
}

/* Which columns hold the times: absolute, or as differences. */
typedef struct time_columns {
    const char *start, *end;
    bool deltas, durations;
} time_columns;

static sp_status find_time_columns(sp_reader *reader, hid_t group, time_columns *times)
{
    const htri_t deltas = H5Lexists(group, "start_deltas", H5P_DEFAULT);
    const htri_t durations = H5Lexists(group, "durations", H5P_DEFAULT);
    if (deltas < 0 || durations < 0) return sp_input_damaged(&reader->input, "/events", "cannot be read");
    times->deltas = deltas > 0;
    times->durations = durations > 0;
    times->start = deltas > 0 ? "start_deltas" : "start_times";
    times->end = durations > 0 ? "durations" : "end_times";
    return SP_OK;
}

/* The length of the event columns, from the first of them. */
static sp_status count_calls(sp_reader *reader, hid_t group, const time_columns *times, uint64_t *count)
{
    char full_name[64];
    sp_dataset dataset;
    snprintf(full_name, sizeof full_name, "/events/%s", times->start);
    sp_status status = sp_dataset_open(&reader->input, group, times->start, full_name, &dataset);
    if (status == SP_OK && dataset.id < 0) status = sp_input_damaged(&reader->input, full_name, "is missing");
    *count = dataset.count;
    sp_dataset_close(&dataset);
    return status;
}

/* Absolute times from differences; every sum is checked. */
static sp_status resolve_times(sp_reader *reader, const time_columns *times)
{
    const sp_profile *profile = reader->profile;
    int64_t *start = profile->columns[SP_COLUMN_START], *end = profile->columns[SP_COLUMN_END];
    for (size_t r = 0; r < profile->row_count; r++) {
        const sp_row *row = &profile->rows[r];
        int64_t *s = start + row->first, *e = end + row->first;
        bool over = false, backwards = false;
        for (uint64_t i = 1; times->deltas && i < row->count; i++) over |= __builtin_add_overflow(s[i - 1], s[i], &s[i]);
        for (uint64_t i = 0; times->durations && i < row->count; i++) {
            backwards |= e[i] < 0;
            over |= __builtin_add_overflow(s[i], e[i], &e[i]);
        }
        for (uint64_t i = 0; i < row->count; i++) backwards |= e[i] < s[i];
        if (!over && !backwards) continue;
        char name[64];
        snprintf(name, sizeof name, "/events/%s", over ? times->start : times->end);
        return sp_input_damaged(&reader->input, name, "%s in region \"%.200s\" of rank %u",
                                over ? "holds times out of range" : "has a call that ends before it starts",
                                profile->names[row->name], row->rank);
    }
    return SP_OK;
}

/* Ids are -1 or more. */
static sp_status check_ids(sp_reader *reader, sp_column column, const char *name)
{
    const int64_t *values = reader->profile->columns[column];
    int64_t lowest = 0;
    for (uint64_t i = 0; values && i < reader->profile->call_count; i++) lowest = values[i] < lowest ? values[i] : lowest;
    if (lowest >= SP_UNKNOWN) return SP_OK;
    return sp_input_damaged(&reader->input, name, "holds %" PRId64, lowest);
}

static sp_status read_columns(sp_reader *reader, hid_t group, const time_columns *times, uint64_t length,
                              const uint64_t *offsets)
{
    int64_t **columns = reader->profile->columns;
    const struct {
        const char *name;
        sp_column column;
    } wanted[] = {
        {times->start, SP_COLUMN_START},   {times->end, SP_COLUMN_END},      {"call_ids", SP_COLUMN_CALL_ID},
        {"parent_ids", SP_COLUMN_PARENT_ID}, {"thread_ids", SP_COLUMN_THREAD}, {"task_ids", SP_COLUMN_TASK},
        {"await_ns", SP_COLUMN_AWAIT},     {"gpu_durations", SP_COLUMN_GPU},
    };
    sp_status status = SP_OK;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && status == SP_OK; i++) {
        status = read_column(reader, group, wanted[i].name, length, offsets, &columns[wanted[i].column]);
    }
    if (status == SP_OK && columns[SP_COLUMN_END] == NULL) {
        char name[64];
        snprintf(name, sizeof name, "/events/%s", times->end);
        status = sp_input_damaged(&reader->input, name, "is missing");
    }
    if (status == SP_OK) status = resolve_times(reader, times);
    if (status == SP_OK) status = check_ids(reader, SP_COLUMN_CALL_ID, "/events/call_ids");
    if (status == SP_OK) status = check_ids(reader, SP_COLUMN_PARENT_ID, "/events/parent_ids");
    if (status == SP_OK) status = check_ids(reader, SP_COLUMN_THREAD, "/events/thread_ids");
    if (status == SP_OK) status = check_ids(reader, SP_COLUMN_TASK, "/events/task_ids");
    return status;
}

/* -- lane tables -- */

#define LANE_NUMBERS 8

static bool read_lane_numbers(table *t, const char *const *names, int64_t **columns)
{
    for (int i = 0; i < LANE_NUMBERS; i++) {
        columns[i] = number_column(t, names[i], REQUIRED);
        if (t->status != SP_OK) return false;
    }
    return true;
}

static void free_lane_numbers(int64_t **columns)
{
    for (int i = 0; i < LANE_NUMBERS; i++) free(columns[i]);
}

/* What is not in files of release 0.7.5, such as the lane that made each task. NULL: not known. */
static int64_t *later_column(table *t, const char *name)
{
    int64_t *values = number_column(t, name, OPTIONAL);
    for (uint64_t i = 0; values && i < t->count; i++) {
        if (values[i] < SP_UNKNOWN) t->status = sp_input_damaged(t->input, name, "holds a number below -1");
    }
    return values;
}

static sp_status read_threads(sp_reader *reader)
{
    static const char *const names[LANE_NUMBERS] = {"ranks",  "index",    "ident",  "native_id",
                                                    "daemon", "start_ns", "end_ns", "cpu_ns"};
    sp_profile *profile = reader->profile;
    int64_t *c[LANE_NUMBERS] = {0};
    table t = open_table(reader, "/thread_table");
    if (t.status != SP_OK || t.group < 0) return t.status;
    read_lane_numbers(&t, names, c);
    char **texts = text_column(&t, "name", REQUIRED);
    int64_t *before = later_column(&t, "cpu_before_ns");
    if (t.status == SP_OK) {
        profile->threads = calloc(t.count ? t.count : 1, sizeof *profile->threads);
        if (profile->threads == NULL) t.status = SP_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; t.status == SP_OK && i < t.count; i++) {
        if (!sp_reader_wants_rank(reader, c[0][i])) continue;
        profile->threads[profile->thread_count++] = (sp_thread_info){
            .rank = (uint32_t)c[0][i], .index = c[1][i], .ident = c[2][i], .native_id = c[3][i],
            .daemon = c[4][i] != 0, .start_ns = c[5][i], .end_ns = c[6][i], .cpu_ns = c[7][i],
            .cpu_before_ns = before && before[i] > 0 ? before[i] : 0, .name = texts[i],
        };
        texts[i] = NULL;
    }
    profile->has_threads = t.status == SP_OK;
    free(before);
    free_texts(texts, texts ? t.count : 0);
    free_lane_numbers(c);
    close_table(&t);
    return t.status;
}

static sp_status read_processes(sp_reader *reader)
{
    static const char *const names[LANE_NUMBERS] = {"ranks", "pid", "clock_domain", "start_ns", "start_reference_ns",
                                                    "end_ns", "end_reference_ns", "error_ns"};
    sp_profile *profile = reader->profile;
    int64_t *c[LANE_NUMBERS] = {0};
    table t = open_table(reader, "/process_table");
    if (t.status != SP_OK || t.group < 0) return t.status;
    read_lane_numbers(&t, names, c);
    char **texts = text_column(&t, "name", REQUIRED);
    char **references = text_column(&t, "reference", REQUIRED);
    if (t.status == SP_OK) {
        profile->processes = calloc(t.count ? t.count : 1, sizeof *profile->processes);
        if (profile->processes == NULL) t.status = SP_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; t.status == SP_OK && i < t.count; i++) {
        if (!sp_reader_wants_rank(reader, c[0][i])) continue;
        profile->processes[profile->process_count++] = (sp_process_info){
            .rank = (uint32_t)c[0][i], .pid = c[1][i], .clock_domain = c[2][i], .start_ns = c[3][i],
            .start_reference_ns = c[4][i], .end_ns = c[5][i], .end_reference_ns = c[6][i], .error_ns = c[7][i],
            .name = texts[i], .reference = references[i],
        };
        texts[i] = references[i] = NULL;
    }
    free_texts(texts, texts ? t.count : 0);
    free_texts(references, references ? t.count : 0);
    free_lane_numbers(c);
    close_table(&t);
    return t.status;
}

static sp_status read_tasks(sp_reader *reader)
{
    static const char *const names[LANE_NUMBERS] = {"ranks",   "index", "thread_index", "created_ns",
                                                    "done_ns", "steps", "running_ns",   "suspended_ns"};
    sp_profile *profile = reader->profile;
    int64_t *c[LANE_NUMBERS] = {0};
    table t = open_table(reader, "/task_table");
    if (t.status != SP_OK || t.group < 0) return t.status;
    read_lane_numbers(&t, names, c);
    char **kinds = text_column(&t, "kind", REQUIRED);
    char **texts = text_column(&t, "name", REQUIRED);
    char **coros = text_column(&t, "coro_name", REQUIRED);
    int64_t *threads = later_column(&t, "creator_thread"), *makers = later_column(&t, "creator_task");
    if (t.status == SP_OK) {
        profile->tasks = calloc(t.count ? t.count : 1, sizeof *profile->tasks);
        if (profile->tasks == NULL) t.status = SP_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; t.status == SP_OK && i < t.count; i++) {
        if (!sp_reader_wants_rank(reader, c[0][i])) continue;
        profile->tasks[profile->task_count++] = (sp_task_info){
            .rank = (uint32_t)c[0][i], .index = c[1][i], .kind = kinds[i], .name = texts[i], .coro_name = coros[i],
            .thread_index = c[2][i], .created_ns = c[3][i], .done_ns = c[4][i], .steps = c[5][i],
            .running_ns = c[6][i], .suspended_ns = c[7][i], .creator_thread = threads ? threads[i] : SP_UNKNOWN,
            .creator_task = threads && makers ? makers[i] : SP_UNKNOWN,
        };
        kinds[i] = texts[i] = coros[i] = NULL;
    }
    free_texts(kinds, kinds ? t.count : 0);
    free_texts(texts, texts ? t.count : 0);
    free_texts(coros, coros ? t.count : 0);
    free(threads);
    free(makers);
    free_lane_numbers(c);
    close_table(&t);
    return t.status;
}

/* -- the whole -- */

/* "aggregate" or anything else; files of schema 2 may lack the attribute. */
static sp_status read_layout(sp_reader *reader)
{
    static const char name[] = "storage_layout";
    const htri_t exists = H5Aexists(reader->file, name);
    if (exists < 0) return sp_input_damaged(&reader->input, "/", "has attributes that cannot be read");
    if (exists == 0) return SP_OK;
    const hid_t attribute = H5Aopen(reader->file, name, H5P_DEFAULT);
    sp_array value;
    bool known = false;
    if (attribute < 0) return sp_input_damaged(&reader->input, "/@storage_layout", "cannot be read");
    const sp_status status =
        sp_input_read_array(&reader->input, attribute, true, name, "/@storage_layout", &value, &known);
    H5Aclose(attribute);
    if (status != SP_OK) return status;
    const bool text = known && value.kind == SP_ARRAY_STRING && value.dimensions == 0;
    const char *layout = text ? *(char *const *)value.data : "";
    reader->profile->aggregate = strcmp(layout, "aggregate") == 0;
    const bool fine = reader->profile->aggregate || strcmp(layout, "columnar") == 0;
    sp_status result = SP_OK;
    if (!fine) result = sp_input_damaged(&reader->input, "/@storage_layout", "is neither columnar nor aggregate");
    if (known) sp_array_free(&value);
    return result;
}

static sp_status read_events(sp_reader *reader, index_columns *index)
{
    hid_t group;
    time_columns times = {"start_times", "end_times", false, false};
    uint64_t length = 0, *offsets = NULL;
    sp_status status = sp_input_open_group(&reader->input, reader->file, "events", "/events", &group);
    if (status == SP_OK && group < 0 && !reader->profile->aggregate) {
        status = sp_input_damaged(&reader->input, "/events", "is missing");
    }
    if (status == SP_OK && group >= 0) status = find_time_columns(reader, group, &times);
    if (status == SP_OK && group >= 0) status = count_calls(reader, group, &times, &length);
    if (status == SP_OK) status = check_spans(reader, index, length);
    if (status == SP_OK) status = make_rows(reader, index, &offsets);
    if (status == SP_OK && group >= 0 && !reader->selection->summary) {
        status = read_columns(reader, group, &times, length, offsets);
    }
    free(offsets);
    if (group >= 0) H5Gclose(group);
    return status;
}

sp_status sp_reader_columnar(sp_reader *reader)
{
    index_columns index = {0};
    sp_status status = read_layout(reader);
    if (status == SP_OK) status = read_names(reader);
    if (status == SP_OK) status = read_index(reader, &index);
    if (status == SP_OK && reader->selection->summary && !index.statistics && index.count && !reader->profile->aggregate) {
        status = sp_fail(reader->input.error, SP_ERR_UNSUPPORTED, "%s has no summary: it was written before there was one",
                         reader->input.path);
    }
    reader->profile->summary_only = reader->selection->summary;
    if (status == SP_OK) status = check_keys(reader, &index);
    if (status == SP_OK) status = read_events(reader, &index);
    const bool whole = reader->selection->regions == NULL; /* a path leads through regions that may not be wanted */
    if (status == SP_OK && reader->selection->summary && whole) status = sp_summary_read_paths(reader);
    free_index(&index);
    if (status == SP_OK) status = read_processes(reader);
    if (status == SP_OK) status = read_threads(reader);
    return status == SP_OK ? read_tasks(reader) : status;
}
