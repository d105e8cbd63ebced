/* spt_read.c - .spt: the calls of one rank, region by region. */
#include <stdlib.h>
#include <string.h>

#include "core/index.h"
#include "formats/native_trace.h"
#include "formats/trace_input.h"

/* Where the times of one region's section are, and which row they go to. */
typedef struct section {
    size_t row;
    uint64_t place; /* of the starts; the ends follow */
    uint64_t count;
} section;

typedef struct reader {
    sp_trace_input *in;
    sp_profile *profile;
    section *sections;
    size_t section_count;
    sp_index index; /* of rows by name */
} reader;

/* Per section of version 2: two lengths, a line and a count; one length less and no line in version 1. */
#define LEAST_SECTION 12
#define LEAST_SECTION_2 20

static sp_status no_memory(const reader *r)
{
    return sp_fail(r->in->error, SP_ERR_NO_MEMORY, "%s: out of memory", r->in->path);
}

static sp_status make_room(reader *r, uint64_t count)
{
    if (count >= UINT32_MAX / 2) return sp_trace_damaged(r->in, "%llu regions", (unsigned long long)count);
    const bool indexed = sp_index_resize(&r->index, count, 0, NULL, NULL);
    r->sections = calloc(count + 1, sizeof *r->sections);
    r->profile->names = calloc(count + 1, sizeof *r->profile->names);
    r->profile->rows = calloc(count + 1, sizeof *r->profile->rows);
    return indexed && r->sections && r->profile->names && r->profile->rows ? SP_OK : no_memory(r);
}

static bool is_row(const void *profile, uint32_t row, const void *name)
{
    return strcmp(((const sp_profile *)profile)->names[row], name) == 0;
}

/* The row of a name, which is taken over; made if it is the first of that name. */
static size_t row_of(reader *r, char *name, uint32_t rank)
{
    sp_profile *profile = r->profile;
    uint32_t *slot = sp_index_find(&r->index, sp_hash(name), profile, is_row, name);
    if (*slot) {
        free(name);
        return *slot - 1;
    }
    const size_t row = profile->row_count++;
    *slot = (uint32_t)row + 1;
    profile->names[row] = name;
    profile->name_count = profile->row_count;
    profile->rows[row] = (sp_row){
        .name = (uint32_t)row, .rank = rank, .source_line = SP_UNKNOWN, .exclusive_total = SP_UNKNOWN};
    return row;
}

/* The source of version 2; the first section of a name that has one tells it. */
static sp_status read_source(reader *r, sp_row *row)
{
    char *file = NULL;
    int32_t line = -1;
    sp_status status = sp_trace_text(r->in, "a source path", &file);
    if (status == SP_OK) status = sp_trace_int32(r->in, "a source line", &line);
    if (status != SP_OK || file == NULL || *file == '\0' || row->source_file) {
        free(file);
        return status;
    }
    row->source_file = file;
    row->source_line = line < 0 ? SP_UNKNOWN : line;
    return SP_OK;
}

static sp_status read_section(reader *r, int32_t version, uint32_t rank)
{
    char *name;
    sp_status status = sp_trace_text(r->in, "a region name", &name);
    if (status != SP_OK) return status;
    section *next = &r->sections[r->section_count];
    next->row = row_of(r, name, rank);
    sp_row *row = &r->profile->rows[next->row];
    if (version >= 2) status = read_source(r, row);
    int64_t count = 0;
    if (status == SP_OK) status = sp_trace_int64(r->in, "a number of calls", &count);
    if (status == SP_OK) status = sp_trace_check_count(r->in, "calls", count, 2 * sizeof(int64_t));
    if (status != SP_OK) return status;
    next->place = r->in->place;
    next->count = (uint64_t)count;
    row->count += next->count;
    r->section_count++;
    return sp_trace_skip(r->in, "times", 2 * sizeof(int64_t) * next->count);
}

static sp_status read_sections(reader *r, int32_t version, uint32_t rank)
{
    int64_t count;
    sp_status status = sp_trace_int64(r->in, "the number of regions", &count);
    const uint64_t least = version >= 2 ? LEAST_SECTION_2 : LEAST_SECTION;
    if (status == SP_OK) status = sp_trace_check_count(r->in, "regions", count, least);
    if (status == SP_OK) status = make_room(r, (uint64_t)count);
    for (int64_t i = 0; status == SP_OK && i < count; i++) status = read_section(r, version, rank);
    return status == SP_OK ? sp_trace_end(r->in) : status;
}

static sp_status check_times(const reader *r, const sp_row *row, const int64_t *starts, const int64_t *ends, uint64_t count)
{
    bool reversed = false;
    for (uint64_t i = 0; i < count; i++) reversed |= ends[i] < starts[i];
    if (!reversed) return SP_OK;
    return sp_trace_damaged(r->in, "region \"%.200s\" has a call that ends before it starts", r->profile->names[row->name]);
}

/* The times of all sections, each to where its row has got to. */
static sp_status read_times(reader *r)
{
    sp_profile *profile = r->profile;
    for (size_t i = 0; i < profile->row_count; i++) {
        profile->rows[i].first = profile->call_count;
        profile->call_count += profile->rows[i].count;
        profile->rows[i].count = 0;
    }
    if (profile->call_count == 0) return SP_OK;
    int64_t *starts = profile->columns[SP_COLUMN_START] = sp_column_alloc(profile->call_count);
    int64_t *ends = profile->columns[SP_COLUMN_END] = sp_column_alloc(profile->call_count);
    if (starts == NULL || ends == NULL) return no_memory(r);
    for (size_t i = 0; i < r->section_count; i++) {
        const section *s = &r->sections[i];
        sp_row *row = &profile->rows[s->row];
        const uint64_t at = row->first + row->count;
        r->in->place = s->place;
        sp_status status = sp_trace_int64_array(r->in, "start times", s->count, starts + at);
        if (status == SP_OK) status = sp_trace_int64_array(r->in, "end times", s->count, ends + at);
        if (status == SP_OK) status = check_times(r, row, starts + at, ends + at, s->count);
        if (status != SP_OK) return status;
        row->count += s->count;
    }
    return SP_OK;
}

/* Rows whose sections all had no calls are no rows. */
static void drop_empty_rows(sp_profile *profile)
{
    size_t kept = 0;
    for (size_t i = 0; i < profile->row_count; i++) {
        if (profile->rows[i].count == 0) {
            free(profile->rows[i].source_file);
            continue;
        }
        profile->rows[kept++] = profile->rows[i];
    }
    profile->row_count = kept;
}

static sp_status describe(sp_profile *profile, int32_t version)
{
    int64_t earliest = INT64_MAX;
    for (uint64_t i = 0; i < profile->call_count; i++) {
        if (profile->columns[SP_COLUMN_START][i] < earliest) earliest = profile->columns[SP_COLUMN_START][i];
    }
    sp_status status = sp_profile_set_string(profile, "source", "native");
    if (status == SP_OK) status = sp_profile_set_int(profile, "trace_format_version", version);
    if (status == SP_OK && profile->call_count) status = sp_profile_set_int(profile, "start_time_ns", earliest);
    return status;
}

static sp_status read_trace(sp_trace_input *in, sp_profile **out, uint32_t *rank_out)
{
    reader r = {.in = in, .profile = sp_profile_new()};
    int32_t version = 0, rank = 0;
    sp_status status = r.profile ? SP_OK : no_memory(&r);
    if (status == SP_OK) status = sp_trace_begin(in, SP_SPT_MAGIC, SP_SPT_VERSION, "a scope-profiler trace", &version);
    if (status == SP_OK) status = sp_trace_int32(in, "its rank", &rank);
    if (status == SP_OK && rank < 0) status = sp_trace_damaged(in, "rank %d", (int)rank);
    if (status == SP_OK) status = read_sections(&r, version, (uint32_t)rank);
    if (status == SP_OK) status = read_times(&r);
    if (status == SP_OK) status = describe(r.profile, version) == SP_OK ? SP_OK : no_memory(&r);
    free(r.index.slots);
    free(r.sections);
    if (status != SP_OK) {
        sp_profile_release(r.profile);
        r.profile = NULL;
    } else {
        drop_empty_rows(r.profile);
        r.profile->nested = false; /* not known yet */
    }
    if (rank_out) *rank_out = (uint32_t)rank;
    *out = r.profile;
    return status;
}

sp_status sp_spt_read(const char *path, sp_profile **out, uint32_t *rank, sp_error *error)
{
    sp_trace_input in;
    *out = NULL;
    sp_status status = sp_trace_open(&in, path, error);
    if (status == SP_OK) status = read_trace(&in, out, rank);
    sp_trace_close(&in);
    return status;
}

sp_status sp_spt_read_memory(const char *name, const void *data, size_t size, sp_profile **out, sp_error *error)
{
    sp_trace_input in;
    sp_trace_open_memory(&in, name, data, size, error);
    return read_trace(&in, out, NULL);
}
