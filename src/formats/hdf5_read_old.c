/* hdf5_read_old.c - schema 1: a group per rank and region, /rank<N>/regions/<name>, with columns of its own. */
#include "formats/hdf5_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json_text.h"

#define DEPTH_MAX 64

/* A region's group that was found; its calls are read when all of them are known. */
typedef struct old_region {
    hid_t group;
    char *path; /* in the file */
    uint32_t name;
    int64_t rank;
    uint64_t count;
} old_region;

typedef struct old_walk {
    sp_reader *reader;
    old_region *regions;
    size_t count;
    int64_t rank;
    bool any_rank; /* there is a group /rank<N>/regions, however empty */
    char path[1000]; /* of the group that is walked */
    char name[600];  /* of the region so far: a name with "/" was written as groups in groups */
    int depth;
    sp_status status;
} old_walk;

/* The index of a region's name, which is new when no rank had it yet. -1: out of memory. */
static int64_t name_index(sp_profile *profile, const char *name)
{
    for (size_t i = 0; i < profile->name_count; i++) {
        if (strcmp(profile->names[i], name) == 0) return (int64_t)i;
    }
    char **grown = realloc(profile->names, (profile->name_count + 1) * sizeof *grown);
    if (grown == NULL) return -1;
    profile->names = grown;
    grown[profile->name_count] = strdup(name);
    return grown[profile->name_count] ? (int64_t)profile->name_count++ : -1;
}

static sp_status count_old_calls(old_walk *walk, hid_t group, uint64_t *count)
{
    char full_name[1100];
    sp_dataset dataset;
    snprintf(full_name, sizeof full_name, "%s/start_times", walk->path);
    sp_status status = sp_dataset_open(&walk->reader->input, group, "start_times", full_name, &dataset);
    if (status == SP_OK && dataset.id < 0) status = sp_input_damaged(&walk->reader->input, full_name, "is missing");
    *count = dataset.count;
    sp_dataset_close(&dataset);
    return status;
}

static sp_status keep_region(old_walk *walk, hid_t group)
{
    if (!sp_reader_wants_region(walk->reader, walk->name)) return SP_OK;
    old_region region = {.group = H5I_INVALID_HID, .rank = walk->rank};
    sp_status status = count_old_calls(walk, group, &region.count);
    if (status != SP_OK) return status;
    const int64_t name = name_index(walk->reader->profile, walk->name);
    old_region *grown = realloc(walk->regions, (walk->count + 1) * sizeof *grown);
    if (grown) walk->regions = grown;
    if (name < 0 || grown == NULL) return SP_ERR_NO_MEMORY;
    region.name = (uint32_t)name;
    region.path = strdup(walk->path);
    region.group = H5Gopen2(group, ".", H5P_DEFAULT);
    walk->regions[walk->count++] = region;
    return region.path && region.group >= 0 ? SP_OK : SP_ERR_NO_MEMORY;
}

static herr_t visit_old_group(hid_t parent, const char *name, const H5L_info_t *info, void *data);

/* A group with start_times is a region; groups in it are regions whose names go on after a "/". */
static sp_status walk_old_group(old_walk *walk, hid_t group, const char *name)
{
    const size_t path_size = strlen(walk->path), name_size = strlen(walk->name);
    snprintf(walk->path + path_size, sizeof walk->path - path_size, "/%s", name);
    snprintf(walk->name + name_size, sizeof walk->name - name_size, "%s%s", name_size ? "/" : "", name);
    sp_status status = sp_input_spend(&walk->reader->input, walk->path, SP_INPUT_LINK);
    if (++walk->depth > DEPTH_MAX) status = sp_input_damaged(&walk->reader->input, walk->path, "is nested too deeply");
    const htri_t region = status == SP_OK ? H5Lexists(group, "start_times", H5P_DEFAULT) : 0;
    if (region < 0) status = sp_input_damaged(&walk->reader->input, walk->path, "cannot be read");
    if (status == SP_OK && region > 0) status = keep_region(walk, group);
    if (status == SP_OK && H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_old_group, walk) < 0) {
        status = walk->status != SP_OK ? walk->status
            : sp_input_damaged(&walk->reader->input, walk->path, "has members that cannot be read");
    }
    if (status == SP_OK) status = walk->status;
    walk->depth--;
    walk->path[path_size] = '\0';
    walk->name[name_size] = '\0';
    return status;
}

static herr_t visit_old_group(hid_t parent, const char *name, const H5L_info_t *info, void *data)
{
    old_walk *walk = data;
    if (info->type != H5L_TYPE_HARD) return 0;
    const hid_t object = H5Oopen(parent, name, H5P_DEFAULT);
    if (object < 0) walk->status = sp_input_damaged(&walk->reader->input, walk->path, "has a member that cannot be opened");
    else if (H5Iget_type(object) == H5I_GROUP) walk->status = walk_old_group(walk, object, name);
    if (object >= 0) H5Oclose(object);
    return walk->status == SP_OK ? 0 : 1;
}

static herr_t visit_old_rank(hid_t file, const char *name, const H5L_info_t *info, void *data)
{
    old_walk *walk = data;
    sp_reader *reader = walk->reader;
    hid_t rank_group, regions;
    walk->rank = sp_reader_rank_of(name);
    if (walk->rank < 0) return 0;
    snprintf(walk->path, sizeof walk->path, "/%.40s", name);
    walk->status = sp_input_open_group(&reader->input, file, name, walk->path, &rank_group);
    if (walk->status != SP_OK || rank_group < 0) return 1;
    snprintf(walk->path, sizeof walk->path, "/%.40s/regions", name);
    walk->status = sp_input_open_group(&reader->input, rank_group, "regions", walk->path, &regions);
    if (walk->status == SP_OK && regions >= 0) {
        walk->any_rank = true;
        const bool wanted = sp_reader_wants_rank(reader, walk->rank);
        if (wanted && H5Literate(regions, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_old_group, walk) < 0 &&
            walk->status == SP_OK) {
            walk->status = sp_input_damaged(&reader->input, walk->path, "has members that cannot be read");
        }
        H5Gclose(regions);
    }
    H5Gclose(rank_group);
    return walk->status == SP_OK ? 0 : 1;
}

/* -- calls -- */

static const struct {
    const char *name;
    sp_column column;
    bool required;
} old_columns[] = {
    {"start_times", SP_COLUMN_START, true},     {"end_times", SP_COLUMN_END, true},
    {"call_ids", SP_COLUMN_CALL_ID, false},     {"parent_ids", SP_COLUMN_PARENT_ID, false},
    {"gpu_durations", SP_COLUMN_GPU, false},
};

/* A column that some region has exists for all; the others get its default. */
static sp_status need_column(sp_profile *profile, sp_column column)
{
    if (profile->columns[column]) return SP_OK;
    int64_t *values = profile->columns[column] = sp_column_alloc(profile->call_count);
    if (values == NULL) return SP_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < profile->call_count; i++) values[i] = sp_column_default(column);
    return SP_OK;
}

static sp_status read_old_calls(sp_reader *reader, const old_region *region, const sp_row *row)
{
    sp_status status = SP_OK;
    for (size_t i = 0; i < sizeof old_columns / sizeof *old_columns && status == SP_OK; i++) {
        char full_name[1100];
        sp_dataset dataset;
        snprintf(full_name, sizeof full_name, "%s/%s", region->path, old_columns[i].name);
        status = sp_dataset_open(&reader->input, region->group, old_columns[i].name, full_name, &dataset);
        if (status == SP_OK && dataset.id < 0 && old_columns[i].required) {
            status = sp_input_damaged(&reader->input, full_name, "is missing");
        }
        if (status == SP_OK && dataset.id >= 0) {
            if (dataset.count != region->count) {
                status = sp_input_damaged(&reader->input, full_name, "has %" PRIu64 " values instead of %" PRIu64,
                                          dataset.count, region->count);
            }
            if (status == SP_OK) status = need_column(reader->profile, old_columns[i].column);
            if (status == SP_OK) {
                status = sp_dataset_read_int64(&reader->input, &dataset, 0, region->count,
                                               reader->profile->columns[old_columns[i].column] + row->first);
            }
        }
        sp_dataset_close(&dataset);
    }
    if (status != SP_OK) return status;
    const int64_t *start = reader->profile->columns[SP_COLUMN_START] + row->first;
    const int64_t *end = reader->profile->columns[SP_COLUMN_END] + row->first;
    for (uint64_t i = 0; i < row->count; i++) {
        if (end[i] < start[i]) {
            return sp_input_damaged(&reader->input, region->path, "has a call that ends before it starts");
        }
    }
    return SP_OK;
}

/* -- attributes -- */

/* A list of texts as JSON; older files have tags as an array. */
static char *json_list(char *const *texts, uint64_t count)
{
    size_t size = 3;
    for (uint64_t i = 0; i < count; i++) size += 6 * strlen(texts[i]) + 4;
    char *json = malloc(size), *to = json;
    if (json == NULL) return NULL;
    *to++ = '[';
    for (uint64_t i = 0; i < count; i++) {
        to = stpcpy(to, i ? ", \"" : "\"");
        for (const char *from = texts[i]; *from; from++) {
            if ((unsigned char)*from < 0x20) to += sprintf(to, "\\u%04x", *from);
            else {
                if (*from == '"' || *from == '\\') *to++ = '\\';
                *to++ = *from;
            }
        }
        *to++ = '"';
    }
    strcpy(to, "]");
    return json;
}

/* What the attribute holds, for the field it belongs to. */
static sp_status take_attribute(sp_row *row, const char *name, const sp_array *value)
{
    const bool text = value->kind == SP_ARRAY_STRING && sp_array_size(value) > 0;
    char *const *texts = text ? value->data : NULL;
    uint64_t count;
    sp_status status = SP_OK;
    if (strcmp(name, "source_lineno") == 0 && value->kind == SP_ARRAY_INT64 && value->dimensions == 0) {
        row->source_line = *(const int64_t *)value->data;
    } else if (strcmp(name, "source_file") == 0 && text && **texts) {
        row->source_file = strdup(*texts);
        status = row->source_file ? SP_OK : SP_ERR_NO_MEMORY;
    } else if (strcmp(name, "source_text") == 0 && text && **texts) {
        row->source_text = strdup(*texts);
        status = row->source_text ? SP_OK : SP_ERR_NO_MEMORY;
    } else if (strcmp(name, "tags") == 0 && text) {
        const bool json = value->dimensions == 0 && sp_json_list(*texts, '"', &count);
        row->tags = json ? strdup(*texts) : json_list(texts, sp_array_size(value));
        status = row->tags ? SP_OK : SP_ERR_NO_MEMORY;
    }
    return status;
}

static sp_status read_old_attributes(sp_reader *reader, const old_region *region, sp_row *row)
{
    static const char *const names[] = {"source_file", "source_lineno", "source_text", "tags"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (H5Aexists(region->group, names[i]) <= 0) continue;
        const hid_t attribute = H5Aopen(region->group, names[i], H5P_DEFAULT);
        if (attribute < 0) return sp_input_damaged(&reader->input, region->path, "has an attribute that cannot be read");
        sp_array value;
        bool known;
        sp_status status = sp_input_read_array(&reader->input, attribute, true, names[i], region->path, &value, &known);
        H5Aclose(attribute);
        if (status == SP_OK && known) {
            status = take_attribute(row, names[i], &value);
            sp_array_free(&value);
        }
        if (status != SP_OK) return status;
    }
    return SP_OK;
}

/* -- the whole -- */

static sp_status read_old_regions(old_walk *walk)
{
    sp_profile *profile = walk->reader->profile;
    profile->rows = calloc(walk->count ? walk->count : 1, sizeof *profile->rows);
    if (profile->rows == NULL) return SP_ERR_NO_MEMORY;
    for (size_t i = 0; i < walk->count; i++) profile->call_count += walk->regions[i].count;
    uint64_t first = 0;
    sp_status status = need_column(profile, SP_COLUMN_START);
    if (status == SP_OK) status = need_column(profile, SP_COLUMN_END);
    for (size_t i = 0; i < walk->count && status == SP_OK; i++) {
        const old_region *region = &walk->regions[i];
        sp_row *row = &profile->rows[profile->row_count++];
        *row = (sp_row){.name = region->name, .rank = (uint32_t)region->rank, .first = first, .count = region->count,
                        .source_line = SP_UNKNOWN, .exclusive_total = SP_UNKNOWN};
        first += region->count;
        status = read_old_calls(walk->reader, region, row);
        if (status == SP_OK) status = read_old_attributes(walk->reader, region, row);
    }
    return status;
}

/* A file without a schema attribute is a profile if it has regions, or the metadata that every version wrote. */
static bool looks_like_a_profile(const old_walk *walk)
{
    if (walk->any_rank) return true;
    if (H5Lexists(walk->reader->file, "metadata", H5P_DEFAULT) <= 0) return false;
    return H5Aexists_by_name(walk->reader->file, "metadata", "start_time_ns", H5P_DEFAULT) > 0 ||
        H5Aexists_by_name(walk->reader->file, "metadata", "scope_profiler_version", H5P_DEFAULT) > 0 ||
        H5Aexists_by_name(walk->reader->file, "metadata", "mpi_size", H5P_DEFAULT) > 0;
}

sp_status sp_reader_schema_1(sp_reader *reader)
{
    old_walk walk = {.reader = reader};
    if (H5Literate(reader->file, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_old_rank, &walk) < 0 && walk.status == SP_OK) {
        walk.status = sp_input_damaged(&reader->input, "/", "has members that cannot be read");
    }
    if (walk.status == SP_OK && !looks_like_a_profile(&walk)) {
        walk.status = sp_fail(reader->input.error, SP_ERR_FOREIGN, "%s is an HDF5 file, but not a profile",
                              reader->input.path);
    }
    if (walk.status == SP_OK && reader->selection->summary) {
        walk.status = sp_fail(reader->input.error, SP_ERR_UNSUPPORTED,
                              "%s has no summary: it was written before there was one", reader->input.path);
    }
    if (walk.status == SP_OK) walk.status = read_old_regions(&walk);
    for (size_t i = 0; i < walk.count; i++) {
        if (walk.regions[i].group >= 0) H5Gclose(walk.regions[i].group);
        free(walk.regions[i].path);
    }
    free(walk.regions);
    return walk.status;
}
