#include "formats/hdf5_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/path_summary.h"

const char *const sp_percentile_names[SP_PERCENTILE_COUNT] = {"p50", "p95", "p99"};

/* -- types -- */

typedef enum member_kind { U8, U32, U64, I64, F64 } member_kind;

typedef struct member {
    const char *name;
    size_t offset;
    member_kind kind;
} member;

static hid_t make_compound(size_t size, const member *members, size_t count)
{
    const hid_t kinds[] = {
        [U8] = H5T_STD_U8LE, [U32] = H5T_STD_U32LE, [U64] = H5T_STD_U64LE, [I64] = H5T_STD_I64LE, [F64] = H5T_IEEE_F64LE,
    };
    const hid_t type = H5Tcreate(H5T_COMPOUND, size);
    for (size_t i = 0; type >= 0 && i < count; i++) {
        if (H5Tinsert(type, members[i].name, members[i].offset, kinds[members[i].kind]) >= 0) continue;
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

#define MEMBER(structure, field, kind) {#field, offsetof(structure, field), kind}
#define COUNT(array) (sizeof(array) / sizeof *(array))

hid_t sp_statistics_type(void)
{
    static const member members[] = {
        MEMBER(sp_row_statistics, total, I64),         MEMBER(sp_row_statistics, minimum, I64),
        MEMBER(sp_row_statistics, maximum, I64),       MEMBER(sp_row_statistics, first, I64),
        MEMBER(sp_row_statistics, last, I64),          MEMBER(sp_row_statistics, start_minimum, I64),
        MEMBER(sp_row_statistics, end_maximum, I64),   MEMBER(sp_row_statistics, gpu_count, U64),
        MEMBER(sp_row_statistics, gpu_total, I64),     MEMBER(sp_row_statistics, mean, F64),
        MEMBER(sp_row_statistics, m2, F64),
    };
    return make_compound(sizeof(sp_row_statistics), members, COUNT(members));
}

hid_t sp_path_row_type(void)
{
    static const member members[] = {
        MEMBER(sp_path_row, node, U32),      MEMBER(sp_path_row, rank, U32),      MEMBER(sp_path_row, count, U64),
        MEMBER(sp_path_row, recursive, U8),  MEMBER(sp_path_row, inclusive, I64), MEMBER(sp_path_row, exclusive, I64),
        MEMBER(sp_path_row, covered, I64),
    };
    const hid_t type = make_compound(sizeof(sp_path_row), members, COUNT(members));
    const hid_t statistics = sp_statistics_type();
    const bool fine = type >= 0 && statistics >= 0 &&
        H5Tinsert(type, "statistics", offsetof(sp_path_row, statistics), statistics) >= 0;
    if (statistics >= 0) H5Tclose(statistics);
    if (fine) return type;
    if (type >= 0) H5Tclose(type);
    return H5I_INVALID_HID;
}

hid_t sp_thread_usage_type(void)
{
    static const member members[] = {
        MEMBER(sp_thread_usage, rank, U32),
        MEMBER(sp_thread_usage, thread, I64),
        MEMBER(sp_thread_usage, count, U64),
        MEMBER(sp_thread_usage, covered, I64),
    };
    return make_compound(sizeof(sp_thread_usage), members, COUNT(members));
}

/* -- reading -- */

/* The group, if the file has one of a version we know. */
static sp_status open_summary(const sp_reader *reader, hid_t *group)
{
    sp_status status = sp_input_open_group(&reader->input, reader->file, "summary", "/summary", group);
    if (status != SP_OK || *group < 0) return status;
    sp_array version = {0};
    bool known = false;
    const hid_t attribute = H5Aopen(*group, "version", H5P_DEFAULT);
    if (attribute >= 0) {
        status = sp_input_read_array(&reader->input, attribute, true, "version", "/summary@version", &version, &known);
        H5Aclose(attribute);
    }
    const bool ours = known && version.kind == SP_ARRAY_INT64 && version.dimensions == 0 &&
        *(const int64_t *)version.data == SP_SUMMARY_VERSION;
    if (known) sp_array_free(&version);
    if (status == SP_OK && ours) return SP_OK;
    H5Gclose(*group);
    *group = H5I_INVALID_HID;
    return status;
}

/* A column of the group as an array of `type`, malloc'ed; its length must be `*count`, or becomes it if that is UINT64_MAX. */
static sp_status read_member(const sp_reader *reader, hid_t group, const char *name, hid_t type, uint64_t *count,
                             void **values)
{
    char full_name[64];
    sp_dataset dataset;
    *values = NULL;
    snprintf(full_name, sizeof full_name, "/summary/%s", name);
    sp_status status = sp_dataset_open(&reader->input, group, name, full_name, &dataset);
    if (status == SP_OK && dataset.id < 0) status = sp_input_damaged(&reader->input, full_name, "is missing");
    if (status == SP_OK && *count == UINT64_MAX) *count = dataset.count;
    if (status == SP_OK && dataset.count != *count) {
        status = sp_input_damaged(&reader->input, full_name, "has %" PRIu64 " rows instead of %" PRIu64, dataset.count,
                                  *count);
    }
    const bool number = status == SP_OK && H5Tget_class(type) != H5T_COMPOUND;
    if (status == SP_OK && number == (H5Tget_class(dataset.type) == H5T_COMPOUND)) {
        status = sp_input_damaged(&reader->input, full_name, "does not hold what it should");
    }
    if (status == SP_OK) status = sp_dataset_read_as(&reader->input, &dataset, type, values);
    sp_dataset_close(&dataset);
    return status;
}

sp_status sp_summary_read_percentiles(sp_reader *reader, uint64_t row_count, double **percentiles)
{
    hid_t group;
    *percentiles = NULL;
    sp_status status = open_summary(reader, &group);
    if (status != SP_OK || group < 0) return status;
    double *all = malloc((row_count ? row_count : 1) * SP_PERCENTILE_COUNT * sizeof *all);
    if (all == NULL) status = SP_ERR_NO_MEMORY;
    for (int p = 0; p < SP_PERCENTILE_COUNT && status == SP_OK; p++) {
        void *values;
        status = read_member(reader, group, sp_percentile_names[p], H5T_NATIVE_DOUBLE, &row_count, &values);
        for (uint64_t i = 0; status == SP_OK && i < row_count; i++) {
            all[i * SP_PERCENTILE_COUNT + (uint64_t)p] = ((const double *)values)[i];
        }
        free(values);
    }
    H5Gclose(group);
    if (status == SP_OK) *percentiles = all;
    else free(all);
    return status;
}

static sp_status read_flag(const sp_reader *reader, hid_t group, const char *name, bool *flag)
{
    char full_name[64];
    sp_array value;
    bool known = false;
    snprintf(full_name, sizeof full_name, "/summary@%s", name);
    const hid_t attribute = H5Aopen(group, name, H5P_DEFAULT);
    if (attribute < 0) return sp_input_damaged(&reader->input, full_name, "is missing");
    const sp_status status = sp_input_read_array(&reader->input, attribute, true, name, full_name, &value, &known);
    H5Aclose(attribute);
    if (status != SP_OK) return status;
    const bool integer = known && value.kind == SP_ARRAY_INT64 && value.dimensions == 0;
    *flag = integer && *(const int64_t *)value.data != 0;
    if (known) sp_array_free(&value);
    return integer ? SP_OK : sp_input_damaged(&reader->input, full_name, "is not a flag");
}

static sp_status take_nodes(sp_reader *reader, hid_t group, sp_path_summary *paths)
{
    uint64_t count = UINT64_MAX;
    void *regions = NULL, *parents = NULL;
    sp_status status = read_member(reader, group, "node_regions", H5T_NATIVE_INT64, &count, &regions);
    if (status == SP_OK) status = read_member(reader, group, "node_parents", H5T_NATIVE_INT64, &count, &parents);
    if (status == SP_OK) {
        paths->nodes = malloc(count ? count * sizeof *paths->nodes : 1);
        if (paths->nodes == NULL) status = SP_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; status == SP_OK && i < count; i++) {
        const int64_t region = ((const int64_t *)regions)[i], parent = ((const int64_t *)parents)[i];
        if (region < 0 || (uint64_t)region >= reader->profile->name_count || parent < SP_PATH_ROOT ||
            parent >= (int64_t)i || i > INT32_MAX) {
            status = sp_input_damaged(&reader->input, "/summary/node_parents", "is no tree at node %" PRIu64, i);
        } else {
            paths->nodes[i] = (sp_path_node){(uint32_t)region, (int32_t)parent};
        }
    }
    paths->node_count = status == SP_OK ? count : 0;
    free(regions);
    free(parents);
    return status;
}

static sp_status take_rows(sp_reader *reader, hid_t group, sp_path_summary *paths)
{
    uint64_t count = UINT64_MAX;
    void *values = NULL;
    const hid_t type = sp_path_row_type();
    sp_status status = type < 0 ? SP_ERR_NO_MEMORY : read_member(reader, group, "paths", type, &count, &values);
    if (type >= 0) H5Tclose(type);
    if (status != SP_OK) return status;
    sp_path_row *rows = paths->rows = values;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t flag;
        memcpy(&flag, &rows[i].recursive, 1); /* any number may be in the file, a bool is 0 or 1 */
        flag = flag != 0;
        memcpy(&rows[i].recursive, &flag, 1);
        if (rows[i].node >= paths->node_count) {
            return sp_input_damaged(&reader->input, "/summary/paths", "names node %u of %zu", rows[i].node,
                                    paths->node_count);
        }
        if (sp_reader_wants_rank(reader, rows[i].rank)) rows[paths->row_count++] = rows[i];
    }
    return SP_OK;
}

static sp_status take_threads(sp_reader *reader, hid_t group, sp_path_summary *paths)
{
    uint64_t count = UINT64_MAX;
    void *values = NULL;
    const hid_t type = sp_thread_usage_type();
    const sp_status status = type < 0 ? SP_ERR_NO_MEMORY : read_member(reader, group, "threads", type, &count, &values);
    if (type >= 0) H5Tclose(type);
    if (status != SP_OK) return status;
    sp_thread_usage *threads = paths->threads = values;
    for (uint64_t i = 0; i < count; i++) {
        if (sp_reader_wants_rank(reader, threads[i].rank)) threads[paths->thread_count++] = threads[i];
    }
    return SP_OK;
}

sp_status sp_summary_read_paths(sp_reader *reader)
{
    hid_t group;
    sp_status status = open_summary(reader, &group);
    if (status != SP_OK || group < 0) return status;
    const htri_t there = H5Lexists(group, "paths", H5P_DEFAULT); /* runs that are too large to sum up have none */
    sp_path_summary *paths = there > 0 ? calloc(1, sizeof *paths) : NULL;
    if (there < 0) status = sp_input_damaged(&reader->input, "/summary", "cannot be read");
    else if (there > 0 && paths == NULL) status = SP_ERR_NO_MEMORY;
    if (status == SP_OK && paths) {
        reader->profile->stored_paths = paths;
        status = read_flag(reader, group, "nested", &paths->nested);
        if (status == SP_OK) status = read_flag(reader, group, "clamped", &paths->clamped);
        if (status == SP_OK) status = take_nodes(reader, group, paths);
        if (status == SP_OK) status = take_rows(reader, group, paths);
        if (status == SP_OK) status = take_threads(reader, group, paths);
    }
    H5Gclose(group);
    return status;
}
