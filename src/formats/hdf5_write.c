/* hdf5_write.c - schema 3, as docs/file-format.md describes it. */
#include "analysis/wrap.h"
#include "core/sort.h"
#include "formats/hdf5.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/call_stream.h"
#include "formats/file_replace.h"
#include "formats/file_seal.h"
#include "formats/hdf5_chunks.h"
#include "formats/hdf5_library.h"
#include "formats/hdf5_remote.h"
#include "formats/hdf5_summary.h"
#include "formats/summary_job.h"
#include "formats/utf8.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are written as they are in memory");

#define CHUNK_BYTES (SP_STREAM_CHUNK * sizeof(int64_t))
#define SMALL_BYTES ((uint64_t)4 << 10)     /* a dataset up to here is stored as it is */
#define COMPACT_BYTES ((uint64_t)4 << 10)
#define SMALL_INDEX_BYTES ((uint64_t)64 << 10) /* the same for what is not a column of calls */

#define CHUNK_BYTES_MAX ((uint64_t)64 << 20) /* whatever the user asks for: a few chunks are in memory at a time */

#define QUICK_LEVEL_STORED 1 /* what the file says of a level that is only ours */
#define GZIP_LEVEL 4
#define ZSTD_LEVEL 3

/* One file being written. After the first failure `status` says so and every step does nothing. */
typedef struct writer {
    const sp_profile *profile;
    const char *path;
    uint64_t chunk_size; /* the user's, or 0 */
    sp_compression compression;
    sp_pipeline filters;
    sp_collection *collection; /* where the calls are, or NULL: in the profile's columns */
    bool tree;                 /* its calls nest, as far as is known */
    uint64_t chunk_bytes;      /* of a column of calls, if the user does not say */
    sp_summary_job summary;
    const sp_remote_layout *remote; /* NULL: the profile has its calls */
    sp_remote_chunk *chunks;
    sp_hdf5_io *io;
    hid_t file, text_type, link_list, group_list, attribute_list;
    sp_status status;
    sp_error *error;
} writer;

static bool failed(const writer *w)
{
    return w->status != SP_OK;
}

static void fail_hdf5(writer *w, const char *name)
{
    char reason[300];
    if (failed(w)) return;
    w->status = sp_fail(w->error, SP_ERR_IO, "cannot write %s to %s: %s", name, w->path,
                        sp_hdf5_reason(reason, sizeof reason));
}

static void fail_memory(writer *w)
{
    if (!failed(w)) w->status = sp_fail(w->error, SP_ERR_NO_MEMORY, "out of memory writing %s", w->path);
}

/* -- compression -- */

static void choose_filters(writer *w, const sp_hdf5_options *options)
{
    static const int codecs[] = {
        [SP_COMPRESSION_AUTO] = SP_FILTER_DEFLATE, [SP_COMPRESSION_GZIP] = SP_FILTER_DEFLATE,
        [SP_COMPRESSION_LZF] = SP_FILTER_LZF, [SP_COMPRESSION_ZSTD] = SP_FILTER_ZSTD,
    };
    static const int levels[] = {
        [SP_COMPRESSION_AUTO] = SP_LEVEL_QUICK, [SP_COMPRESSION_GZIP] = GZIP_LEVEL, [SP_COMPRESSION_ZSTD] = ZSTD_LEVEL,
    };
    w->compression = options->compression;
    w->chunk_size = options->chunk_size;
    w->chunk_bytes = CHUNK_BYTES;
    if (options->compression == SP_COMPRESSION_NONE) return;
    w->filters.count = 2;
    w->filters.filters[0] = SP_FILTER_SHUFFLE;
    w->filters.filters[1] = codecs[options->compression];
    if (options->compression != SP_COMPRESSION_LZF) {
        w->filters.level = options->level >= 0 ? options->level : levels[options->compression];
    }
}

static uint64_t at_least_one(uint64_t number)
{
    return number ? number : 1;
}

/* Elements of a chunk: what the user asked for, else chunks of equal size, so that the last one is not mostly padding. */
static uint64_t chunk_elements(const writer *w, uint64_t count, size_t element)
{
    if (w->chunk_size) {
        const uint64_t most = at_least_one(CHUNK_BYTES_MAX / element);
        const uint64_t wanted = w->chunk_size < most ? w->chunk_size : most;
        return wanted < count ? wanted : count;
    }
    const uint64_t most = at_least_one(w->chunk_bytes / element);
    const uint64_t chunks = count / most + (count % most != 0);
    return count / chunks + (count % chunks != 0);
}

/* The creation properties of a dataset of `count` elements: contiguous, or in chunks of `*chunk` with the filters. */
static hid_t dataset_list(writer *w, uint64_t count, size_t element, uint64_t small, uint64_t *chunk)
{
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    bool fine = list >= 0 && H5Pset_obj_track_times(list, false) >= 0 && H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_dset_no_attrs_hint(list, true) >= 0; /* a header without room for attributes: half the size */
    const bool asked = w->compression != SP_COMPRESSION_AUTO || w->chunk_size;
    const bool tiny = count * element <= small && !(small == SMALL_BYTES && asked);
    const bool chunked = count > 0 && !tiny && (w->filters.count || w->chunk_size || small == 0);
    *chunk = 0;
    if (fine && chunked) {
        *chunk = chunk_elements(w, count, element);
        const hsize_t extent = *chunk;
        fine = H5Pset_chunk(list, 1, &extent) >= 0;
    }
    /* A few values live in the object header: no space of their own, and under its checksum. */
    if (fine && !chunked && count * element <= COMPACT_BYTES) fine = H5Pset_layout(list, H5D_COMPACT) >= 0;
    if (fine && chunked && w->filters.count) {
        const unsigned lzf[3] = {4, 0x0105, (unsigned)(*chunk * element)}; /* h5py's revision, liblzf's version, bytes */
        const unsigned level = w->filters.level == SP_LEVEL_QUICK ? QUICK_LEVEL_STORED : (unsigned)w->filters.level;
        fine = H5Pset_shuffle(list) >= 0;
        if (w->filters.filters[1] == SP_FILTER_DEFLATE) fine = fine && H5Pset_deflate(list, level) >= 0;
        if (w->filters.filters[1] == SP_FILTER_LZF) {
            fine = fine && H5Pset_filter(list, SP_FILTER_LZF, H5Z_FLAG_OPTIONAL, 3, lzf) >= 0;
        }
        if (w->filters.filters[1] == SP_FILTER_ZSTD) {
            fine = fine && H5Pset_filter(list, SP_FILTER_ZSTD, H5Z_FLAG_OPTIONAL, 1, &level) >= 0;
        }
    }
    if (fine) return list;
    if (list >= 0) H5Pclose(list);
    return H5I_INVALID_HID;
}

/* -- datasets -- */

/* A new one-dimensional dataset; `*chunk` is 0 when it is contiguous. */
static hid_t new_dataset(writer *w, hid_t group, const char *name, hid_t type, uint64_t count, size_t element,
                         uint64_t small, uint64_t *chunk)
{
    if (failed(w)) return H5I_INVALID_HID;
    const hsize_t extent = count;
    const hid_t list = dataset_list(w, count, element, small, chunk);
    const hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t dataset = H5I_INVALID_HID;
    if (list >= 0 && space >= 0) dataset = H5Dcreate2(group, name, type, space, w->link_list, list, H5P_DEFAULT);
    if (dataset < 0) fail_hdf5(w, name);
    if (list >= 0) H5Pclose(list);
    if (space >= 0) H5Sclose(space);
    return dataset;
}

/* A source that copies from an array in memory. */
typedef struct array_source {
    const char *data;
    size_t element;
} array_source;

static void fill_from_array(const void *context, uint64_t first, uint64_t count, void *out)
{
    const array_source *array = context;
    memcpy(out, array->data + first * array->element, (size_t)count * array->element);
}

/* A dataset whose `count` elements are in memory in the form of the file. */
static void put_array(writer *w, hid_t group, const char *name, hid_t type, uint64_t count, size_t element,
                      const void *data)
{
    uint64_t chunk = 0;
    const hid_t dataset = new_dataset(w, group, name, type, count, element, SMALL_INDEX_BYTES, &chunk);
    if (dataset < 0) return;
    if (chunk) {
        const array_source array = {data, element};
        const sp_chunk_source source = {.dataset = dataset, .name = name, .count = count, .chunk = chunk, .element = element,
                                        .fill = fill_from_array, .context = &array};
        w->status = sp_hdf5_write_chunks(&source, 1, &w->filters, w->error);
    } else if (count && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
        fail_hdf5(w, name);
    }
    H5Dclose(dataset);
}

typedef int64_t (*number_getter)(const void *elements, size_t index);

/* A dataset of integers that `get` makes; `type` is one of H5T_STD_{I8,U32,I64,U64}LE. */
static void put_numbers(writer *w, hid_t group, const char *name, hid_t type, size_t count, const void *elements,
                        number_getter get)
{
    if (failed(w)) return;
    const size_t size = H5Tget_size(type);
    char *data = malloc(count ? count * size : 1);
    if (data == NULL) {
        fail_memory(w);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const int64_t value = get(elements, i);
        memcpy(data + i * size, &value, size);
    }
    put_array(w, group, name, type, count, size, data);
    free(data);
}

/* -- texts -- */

typedef const char *(*text_getter)(const void *elements, size_t index);

/* The texts of a dataset, all valid UTF-8. Those that were repaired are owned. */
typedef struct text_array {
    const char **texts;
    char **repaired;
    size_t count, longest, total;
} text_array;

static void free_text_array(text_array *array)
{
    for (size_t i = 0; array->repaired && i < array->count; i++) free(array->repaired[i]);
    free(array->repaired);
    free(array->texts);
}

static bool collect_texts(text_array *array, size_t count, const void *elements, text_getter get)
{
    *array = (text_array){.count = count, .longest = 1};
    array->texts = malloc((count ? count : 1) * sizeof *array->texts);
    if (array->texts == NULL) return false;
    for (size_t i = 0; i < count; i++) {
        const char *text = get(elements, i);
        size_t size = strlen(text);
        if (!sp_utf8_valid(text, size)) {
            if (array->repaired == NULL) array->repaired = calloc(count, sizeof *array->repaired);
            if (array->repaired == NULL || (array->repaired[i] = sp_utf8_repaired(text)) == NULL) return false;
            text = array->repaired[i];
            size = strlen(text);
        }
        array->texts[i] = text;
        array->total += size;
        if (size > array->longest) array->longest = size;
    }
    return true;
}

static void fill_from_texts(const void *context, uint64_t first, uint64_t count, void *out)
{
    const text_array *array = context;
    memset(out, 0, (size_t)count * array->longest);
    for (uint64_t i = 0; i < count; i++) {
        const char *text = array->texts[first + i];
        memcpy((char *)out + i * array->longest, text, strlen(text));
    }
}

static void put_fixed_texts(writer *w, hid_t group, const char *name, const text_array *array)
{
    uint64_t chunk = 0;
    const hid_t type = H5Tcopy(H5T_C_S1);
    if (type < 0 || H5Tset_size(type, array->longest) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0 ||
        H5Tset_strpad(type, H5T_STR_NULLPAD) < 0) {
        fail_hdf5(w, name);
    }
    const hid_t dataset = new_dataset(w, group, name, type, array->count, array->longest, SMALL_INDEX_BYTES, &chunk);
    if (dataset >= 0 && chunk) {
        const sp_chunk_source source = {.dataset = dataset, .name = name, .count = array->count, .chunk = chunk,
                                        .element = array->longest, .fill = fill_from_texts, .context = array};
        w->status = sp_hdf5_write_chunks(&source, 1, &w->filters, w->error);
    } else if (dataset >= 0 && array->count) {
        char *data = malloc(array->count * array->longest);
        if (data == NULL) {
            fail_memory(w);
        } else {
            fill_from_texts(array, 0, array->count, data);
            if (H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) fail_hdf5(w, name);
        }
        free(data);
    }
    if (dataset >= 0) H5Dclose(dataset);
    if (type >= 0) H5Tclose(type);
}

static void put_variable_texts(writer *w, hid_t group, const char *name, const text_array *array)
{
    const hsize_t extent = array->count;
    const hid_t space = H5Screate_simple(1, &extent, NULL);
    const hid_t dataset = space >= 0
        ? H5Dcreate2(group, name, w->text_type, space, w->link_list, H5P_DEFAULT, H5P_DEFAULT) : H5I_INVALID_HID;
    if (dataset < 0 ||
        (array->count && H5Dwrite(dataset, w->text_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, array->texts) < 0)) {
        fail_hdf5(w, name);
    }
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
}

/*
 * Texts of about the same length are stored in a fixed one, padded with NUL: smaller, and without the global heap, the one
 * part of the format that has no checksum. Where one is much longer than the rest the length varies.
 */
static void put_texts(writer *w, hid_t group, const char *name, size_t count, const void *elements, text_getter get)
{
    text_array array;
    if (failed(w)) return;
    if (!collect_texts(&array, count, elements, get)) fail_memory(w);
    else if (array.longest > UINT32_MAX / 4 || array.longest * array.count > 4 * array.total + SMALL_INDEX_BYTES) {
        put_variable_texts(w, group, name, &array);
    } else {
        put_fixed_texts(w, group, name, &array);
    }
    free_text_array(&array);
}

/* -- groups and attributes -- */

static hid_t new_group(writer *w, hid_t parent, const char *name)
{
    if (failed(w)) return H5I_INVALID_HID;
    const hid_t group = H5Gcreate2(parent, name, w->link_list, w->group_list, H5P_DEFAULT);
    if (group < 0) fail_hdf5(w, name);
    return group;
}

/* An attribute of `dimensions` (0: a scalar) extents whose values are in memory in `type`. */
static void put_attribute(writer *w, hid_t object, const char *name, hid_t type, int dimensions, const uint64_t *shape,
                          const void *data)
{
    if (failed(w)) return;
    hsize_t extents[4];
    uint64_t count = 1;
    for (int i = 0; i < dimensions; i++) count *= extents[i] = shape[i];
    const hid_t space = dimensions ? H5Screate_simple(dimensions, extents, NULL) : H5Screate(H5S_SCALAR);
    const hid_t attribute = space >= 0 ? H5Acreate2(object, name, type, space, w->attribute_list, H5P_DEFAULT) : -1;
    if (attribute < 0 || (count && H5Awrite(attribute, type, data) < 0)) fail_hdf5(w, name);
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
}

static void put_text_attribute(writer *w, hid_t object, const char *name, const char *text)
{
    put_attribute(w, object, name, w->text_type, 0, NULL, &text);
}

static void put_integer_attribute(writer *w, hid_t object, const char *name, int64_t value)
{
    put_attribute(w, object, name, H5T_STD_I64LE, 0, NULL, &value);
}

/* What h5py makes of a bool: an enumeration of one byte. */
static void put_bool_attribute(writer *w, hid_t object, const char *name, bool value)
{
    const int8_t no = 0, yes = 1, stored = value;
    const hid_t type = H5Tenum_create(H5T_STD_I8LE);
    if (type < 0 || H5Tenum_insert(type, "FALSE", &no) < 0 || H5Tenum_insert(type, "TRUE", &yes) < 0) {
        fail_hdf5(w, name);
    }
    put_attribute(w, object, name, type, 0, NULL, &stored);
    if (type >= 0) H5Tclose(type);
}

static const char *text_at(const void *texts, size_t index)
{
    const char *text = ((char *const *)texts)[index];
    return text ? text : "";
}

/* An attribute of texts, repaired where they are not UTF-8. */
static void put_texts_attribute(writer *w, hid_t object, const char *name, int dimensions, const uint64_t *shape,
                                uint64_t count, char *const *texts)
{
    text_array array;
    if (failed(w)) return;
    if (collect_texts(&array, count, texts, text_at)) {
        put_attribute(w, object, name, w->text_type, dimensions, shape, array.texts);
    } else {
        fail_memory(w);
    }
    free_text_array(&array);
}

static void put_metadata(writer *w)
{
    const hid_t group = new_group(w, w->file, "metadata");
    for (size_t i = 0; i < w->profile->metadata_count; i++) {
        const sp_metadata *entry = &w->profile->metadata[i];
        const uint64_t size = entry->size;
        char *const text = entry->text;
        switch (entry->kind) {
        case SP_VALUE_INT: put_integer_attribute(w, group, entry->key, entry->integer); break;
        case SP_VALUE_FLOAT: put_attribute(w, group, entry->key, H5T_IEEE_F64LE, 0, NULL, &entry->real); break;
        case SP_VALUE_BOOL: put_bool_attribute(w, group, entry->key, entry->integer != 0); break;
        case SP_VALUE_STRING: put_texts_attribute(w, group, entry->key, 0, NULL, 1, &text); break;
        case SP_VALUE_STRINGS: put_texts_attribute(w, group, entry->key, 1, &size, size, entry->list); break;
        }
    }
    if (group >= 0) H5Gclose(group);
}

/* -- the index: one row per rank and region -- */

#define ROW_NUMBER(function, expression)                                                                               \
    static int64_t function(const void *rows, size_t index)                                                            \
    {                                                                                                                  \
        const sp_row *row = &((const sp_row *)rows)[index];                                                            \
        return (int64_t)(expression);                                                                                  \
    }
#define ROW_TEXT(function, field, absent)                                                                              \
    static const char *function(const void *rows, size_t index)                                                        \
    {                                                                                                                  \
        const char *text = ((const sp_row *)rows)[index].field;                                                        \
        return text ? text : absent;                                                                                   \
    }

ROW_NUMBER(row_region, row->name)
ROW_NUMBER(row_rank, row->rank)
ROW_NUMBER(row_offset, row->count ? row->first : 0)
ROW_NUMBER(row_count, row->count)
ROW_NUMBER(row_line, row->source_line)
ROW_NUMBER(row_exclusive, row->exclusive_total)
ROW_NUMBER(row_aggregate_count, row->aggregate_count)
ROW_NUMBER(row_aggregate_total, row->aggregate_total)
ROW_NUMBER(row_aggregate_minimum, row->aggregate_minimum)
ROW_NUMBER(row_aggregate_maximum, row->aggregate_maximum)
ROW_NUMBER(row_aggregate_exclusive, row->aggregate_exclusive)
ROW_TEXT(row_source_file, source_file, "")
ROW_TEXT(row_source_text, source_text, "")
ROW_TEXT(row_tags, tags, "[]")
ROW_TEXT(row_event_metadata, event_metadata, "[]")

static void put_statistics(writer *w, hid_t group)
{
    const hid_t type = sp_statistics_type();
    if (type < 0) fail_hdf5(w, "summary_statistics");
    put_array(w, group, "summary_statistics", type, w->profile->row_count, sizeof(sp_row_statistics),
              w->summary.statistics);
    if (type >= 0) H5Tclose(type);
}

static void put_aggregates(writer *w, hid_t group)
{
    const sp_row *rows = w->profile->rows;
    const size_t count = w->profile->row_count;
    bool any = w->profile->aggregate;
    for (size_t i = 0; i < count; i++) any = any || rows[i].has_aggregate;
    if (!any) return;
    put_numbers(w, group, "aggregate_counts", H5T_STD_U64LE, count, rows, row_aggregate_count);
    put_numbers(w, group, "aggregate_totals", H5T_STD_I64LE, count, rows, row_aggregate_total);
    put_numbers(w, group, "aggregate_minimums", H5T_STD_I64LE, count, rows, row_aggregate_minimum);
    put_numbers(w, group, "aggregate_maximums", H5T_STD_I64LE, count, rows, row_aggregate_maximum);
    put_numbers(w, group, "aggregate_exclusives", H5T_STD_I64LE, count, rows, row_aggregate_exclusive);
}

static void put_index(writer *w)
{
    const sp_row *rows = w->profile->rows;
    const size_t count = w->profile->row_count;
    const hid_t group = new_group(w, w->file, "rank_region_index");
    put_numbers(w, group, "region_ids", H5T_STD_U32LE, count, rows, row_region);
    put_numbers(w, group, "ranks", H5T_STD_U32LE, count, rows, row_rank);
    put_numbers(w, group, "event_offsets", H5T_STD_U64LE, count, rows, row_offset);
    put_numbers(w, group, "event_counts", H5T_STD_U64LE, count, rows, row_count);
    put_numbers(w, group, "source_lines", H5T_STD_I64LE, count, rows, row_line);
    put_numbers(w, group, "exclusive_totals", H5T_STD_I64LE, count, rows, row_exclusive);
    put_texts(w, group, "source_files", count, rows, row_source_file);
    put_texts(w, group, "source_texts", count, rows, row_source_text);
    put_texts(w, group, "tags", count, rows, row_tags);
    put_texts(w, group, "event_metadata", count, rows, row_event_metadata);
    put_statistics(w, group);
    put_aggregates(w, group);
    if (group >= 0) H5Gclose(group);
}

/* -- calls -- */

/* Where rows begin, ascending, and the two columns that the file keeps as differences. */
typedef struct interval_source {
    const int64_t *start, *end;
    const uint64_t *firsts;
    size_t first_count;
} interval_source;

static int compare_firsts(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The first row start at or after `index`. */
static size_t find_first(const interval_source *source, uint64_t index)
{
    size_t low = 0, high = source->first_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (source->firsts[middle] < index) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void fill_start_deltas(const void *context, uint64_t first, uint64_t count, void *out)
{
    const interval_source *source = context;
    const int64_t *start = source->start + first;
    int64_t *deltas = out;
    if (count) deltas[0] = first ? sp_minus(start[0], start[-1]) : start[0];
    for (uint64_t i = 1; i < count; i++) deltas[i] = sp_minus(start[i], start[i - 1]);
    for (size_t i = find_first(source, first); i < source->first_count && source->firsts[i] < first + count; i++) {
        deltas[source->firsts[i] - first] = source->start[source->firsts[i]];
    }
}

static void fill_durations(const void *context, uint64_t first, uint64_t count, void *out)
{
    const interval_source *source = context;
    const int64_t *start = source->start + first, *end = source->end + first;
    int64_t *durations = out;
    for (uint64_t i = 0; i < count; i++) durations[i] = sp_minus(end[i], start[i]);
}

/* Rows must not share calls: the differences of one would be read as those of the other. */
static bool collect_firsts(writer *w, interval_source *source, uint64_t **owned)
{
    const sp_profile *profile = w->profile;
    uint64_t *firsts = malloc((profile->row_count ? profile->row_count : 1) * sizeof *firsts);
    *owned = firsts;
    if (firsts == NULL) {
        fail_memory(w);
        return false;
    }
    size_t count = 0;
    uint64_t calls = 0;
    bool ascending = true;
    for (size_t i = 0; i < profile->row_count; i++) {
        if (profile->rows[i].count == 0) continue;
        ascending = ascending && (count == 0 || profile->rows[i].first > firsts[count - 1]);
        firsts[count++] = profile->rows[i].first;
        calls += profile->rows[i].count;
    }
    if (!ascending) sp_sort(firsts, count, sizeof *firsts, compare_firsts);
    *source = (interval_source){profile->columns[SP_COLUMN_START], profile->columns[SP_COLUMN_END], firsts, count};
    bool apart = calls <= profile->call_count;
    for (size_t i = 0; apart && i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (row->count == 0) continue;
        const size_t next = find_first(source, row->first + 1);
        const uint64_t limit = next < count ? firsts[next] : profile->call_count;
        apart = row->first < limit && row->count <= limit - row->first;
    }
    for (size_t i = 1; apart && i < count; i++) apart = firsts[i] > firsts[i - 1];
    if (!apart) w->status = sp_fail(w->error, SP_ERR_INVALID, "cannot write %s: rows share calls", w->path);
    return apart;
}

static void fill_dataset(writer *w, const sp_chunk_source *source)
{
    const uint64_t step = CHUNK_BYTES / source->element;
    char *buffer = malloc(CHUNK_BYTES);
    const hsize_t extent = source->count;
    const hid_t space = H5Screate_simple(1, &extent, NULL);
    if (buffer == NULL) fail_memory(w);
    for (uint64_t first = 0; !failed(w) && first < source->count; first += step) {
        const hsize_t start = first, count = source->count - first < step ? source->count - first : step;
        source->fill(source->context, first, count, buffer);
        const hid_t memory = H5Screate_simple(1, &count, NULL);
        if (memory < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) < 0 ||
            H5Dwrite(source->dataset, H5T_NATIVE_INT64, memory, space, H5P_DEFAULT, buffer) < 0) {
            fail_hdf5(w, source->name);
        }
        if (memory >= 0) H5Sclose(memory);
    }
    if (space >= 0) H5Sclose(space);
    free(buffer);
}

static const char *const column_datasets[SP_COLUMN_COUNT] = {
    [SP_COLUMN_START] = "start_deltas",   [SP_COLUMN_END] = "durations",    [SP_COLUMN_CALL_ID] = "call_ids",
    [SP_COLUMN_PARENT_ID] = "parent_ids", [SP_COLUMN_THREAD] = "thread_ids", [SP_COLUMN_TASK] = "task_ids",
    [SP_COLUMN_AWAIT] = "await_ns",       [SP_COLUMN_GPU] = "gpu_durations",
};

/* Datasets with a place for every chunk that others have. */
static void put_remote_events(writer *w)
{
    const sp_remote_layout *layout = w->remote;
    const hid_t group = new_group(w, w->file, "events");
    sp_remote_chunk *next = w->chunks;
    uint64_t largest = 1;
    w->chunk_bytes = layout->most * sizeof(int64_t);
    for (uint64_t i = 0; i < layout->chunks * (uint64_t)__builtin_popcount(layout->columns); i++) {
        if (next[i].size > largest) largest = next[i].size;
    }
    char *nothing = calloc(1, largest);
    if (nothing == NULL) fail_memory(w);
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        uint64_t chunk = 0;
        if (!(layout->columns >> c & 1)) continue;
        const hid_t dataset =
            new_dataset(w, group, column_datasets[c], H5T_STD_I64LE, layout->calls, sizeof(int64_t), 0, &chunk);
        for (uint64_t i = 0; i < layout->chunks && !failed(w); i++, next++) {
            const hsize_t offset = i * chunk;
            *w->io = (sp_hdf5_io){.fd = w->io->fd, .problem = w->io->problem, .elsewhere = nothing};
            const herr_t put = H5Dwrite_chunk(dataset, H5P_DEFAULT, next->skipped, &offset, next->size, nothing);
            if (put < 0 || w->io->size != next->size) fail_hdf5(w, column_datasets[c]);
            next->place = w->io->place;
            w->io->elsewhere = NULL;
        }
        if (dataset >= 0) H5Dclose(dataset);
    }
    free(nothing);
    if (group >= 0) H5Gclose(group);
    w->chunk_bytes = CHUNK_BYTES;
}

/* The columns that the file gets, as bits. */
static uint32_t columns_of(const writer *w)
{
    if (w->collection) return sp_stream_columns(w->profile, w->tree);
    uint32_t columns = 1u << SP_COLUMN_START | 1u << SP_COLUMN_END;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) columns |= w->profile->columns[c] ? 1u << c : 0;
    return columns;
}

/* The datasets of the columns; those that are not there have no name. */
static void new_columns(writer *w, hid_t group, sp_chunk_source sources[SP_COLUMN_COUNT])
{
    const uint32_t columns = columns_of(w);
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        sp_chunk_source *source = &sources[c];
        *source = (sp_chunk_source){.dataset = H5I_INVALID_HID};
        if (!(columns >> c & 1) || failed(w)) continue;
        *source = (sp_chunk_source){.name = column_datasets[c], .type = H5T_NATIVE_INT64, .count = w->profile->call_count,
                                    .element = sizeof(int64_t)};
        source->dataset = new_dataset(w, group, source->name, H5T_STD_I64LE, source->count, source->element, SMALL_BYTES,
                                      &source->chunk);
        source->contiguous = source->chunk == 0;
    }
}

static void close_columns(const sp_chunk_source sources[SP_COLUMN_COUNT])
{
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (sources[c].dataset >= 0) H5Dclose(sources[c].dataset);
    }
}

/* The calls of the profile's columns. */
static void put_columns(writer *w, sp_chunk_source sources[SP_COLUMN_COUNT])
{
    const sp_profile *profile = w->profile;
    interval_source intervals;
    array_source columns[SP_COLUMN_COUNT];
    sp_chunk_source chunked[SP_COLUMN_COUNT];
    size_t chunked_count = 0;
    uint64_t *firsts = NULL;
    const bool fine = !failed(w) && collect_firsts(w, &intervals, &firsts);
    for (int c = 0; fine && c < SP_COLUMN_COUNT; c++) {
        sp_chunk_source *source = &sources[c];
        if (source->name == NULL) continue;
        columns[c] = (array_source){(const char *)profile->columns[c], sizeof(int64_t)};
        source->fill = c == SP_COLUMN_START ? fill_start_deltas : c == SP_COLUMN_END ? fill_durations : fill_from_array;
        source->context = c <= SP_COLUMN_END ? (const void *)&intervals : (const void *)&columns[c];
        if (source->contiguous) fill_dataset(w, source);
        else chunked[chunked_count++] = *source;
    }
    if (!failed(w)) w->status = sp_hdf5_write_chunks(chunked, chunked_count, &w->filters, w->error);
    free(firsts);
}

/* The calls of the collection. */
static void put_collection(writer *w, sp_chunk_source sources[SP_COLUMN_COUNT])
{
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (sources[c].chunk == 0) sources[c].chunk = w->chunk_bytes / sizeof(int64_t);
    }
    if (!failed(w)) w->status = sp_stream_calls(w->collection, sources, &w->filters, w->tree, &w->summary, NULL, w->error);
}

static void put_events(writer *w)
{
    const hid_t group = new_group(w, w->file, "events");
    sp_chunk_source sources[SP_COLUMN_COUNT];
    if (w->collection) {
        w->chunk_bytes = sp_stream_chunk(w->profile, (size_t)__builtin_popcount(columns_of(w)), SP_STREAM_CHUNK) * sizeof(int64_t);
    }
    new_columns(w, group, sources);
    if (w->collection) put_collection(w, sources);
    else put_columns(w, sources);
    close_columns(sources);
    if (group >= 0) H5Gclose(group);
    w->chunk_bytes = CHUNK_BYTES;
}

/* -- the summary -- */

static void put_percentiles(writer *w, hid_t group)
{
    const size_t count = w->profile->row_count;
    for (size_t p = 0; p < SP_PERCENTILE_COUNT; p++) {
        put_array(w, group, sp_percentile_names[p], H5T_IEEE_F64LE, count, sizeof(double),
                  w->summary.percentiles + p * count);
    }
}

#define PACKED_AT_ONCE 1024

/* Convert structures to their packed form, some at a time: a run of many paths has tens of megabytes of them. */
static bool pack(hid_t type, hid_t packed, size_t count, size_t size, const char *from, char *to)
{
    const size_t packed_size = H5Tget_size(packed);
    char *some = malloc(PACKED_AT_ONCE * size), *background = malloc(PACKED_AT_ONCE * size);
    bool converted = some != NULL && background != NULL;
    for (size_t done = 0; converted && done < count; done += PACKED_AT_ONCE) {
        const size_t now = count - done < PACKED_AT_ONCE ? count - done : PACKED_AT_ONCE;
        memcpy(some, from + done * size, now * size);
        converted = H5Tconvert(type, packed, now, some, background, H5P_DEFAULT) >= 0;
        memcpy(to + done * packed_size, some, now * packed_size);
    }
    free(some);
    free(background);
    return converted;
}

/* An array of structures as the packed form of their compound; `type` is closed. */
static void put_structures(writer *w, hid_t group, const char *name, hid_t type, size_t count, size_t size,
                           const void *structures)
{
    const hid_t packed = type >= 0 ? H5Tcopy(type) : H5I_INVALID_HID;
    if (packed < 0 || H5Tpack(packed) < 0) {
        fail_hdf5(w, name);
    } else {
        char *data = malloc((count ? count : 1) * H5Tget_size(packed));
        if (data == NULL) fail_memory(w);
        else if (!pack(type, packed, count, size, structures, data)) fail_hdf5(w, name);
        else put_array(w, group, name, packed, count, H5Tget_size(packed), data);
        free(data);
    }
    if (packed >= 0) H5Tclose(packed);
    if (type >= 0) H5Tclose(type);
}

static int64_t node_region(const void *nodes, size_t index)
{
    return ((const sp_path_node *)nodes)[index].name;
}

static int64_t node_parent(const void *nodes, size_t index)
{
    return ((const sp_path_node *)nodes)[index].parent;
}

static void put_paths(writer *w, hid_t group, const sp_path_summary *paths)
{
    put_integer_attribute(w, group, "nested", paths->nested);
    put_integer_attribute(w, group, "clamped", paths->clamped);
    put_numbers(w, group, "node_regions", H5T_STD_U32LE, paths->node_count, paths->nodes, node_region);
    put_numbers(w, group, "node_parents", H5T_STD_I64LE, paths->node_count, paths->nodes, node_parent);
    put_structures(w, group, "paths", sp_path_row_type(), paths->row_count, sizeof *paths->rows, paths->rows);
    put_structures(w, group, "threads", sp_thread_usage_type(), paths->thread_count, sizeof *paths->threads,
                   paths->threads);
}

static void put_summary(writer *w)
{
    const hid_t group = new_group(w, w->file, "summary");
    put_integer_attribute(w, group, "version", SP_SUMMARY_VERSION);
    if (!failed(w)) put_percentiles(w, group);
    if (w->summary.paths) put_paths(w, group, w->summary.paths);
    if (group >= 0) H5Gclose(group);
}

/* -- lanes -- */

#define LANE_NUMBER(kind, field)                                                                                       \
    static int64_t kind##_##field(const void *lanes, size_t index)                                                     \
    {                                                                                                                  \
        return (int64_t)((const sp_##kind##_info *)lanes)[index].field;                                                \
    }
#define LANE_TEXT(kind, field)                                                                                         \
    static const char *kind##_##field(const void *lanes, size_t index)                                                 \
    {                                                                                                                  \
        const char *text = ((const sp_##kind##_info *)lanes)[index].field;                                             \
        return text ? text : "";                                                                                       \
    }

LANE_NUMBER(thread, rank)
LANE_NUMBER(thread, index)
LANE_NUMBER(thread, ident)
LANE_NUMBER(thread, native_id)
LANE_NUMBER(thread, daemon)
LANE_NUMBER(thread, start_ns)
LANE_NUMBER(thread, end_ns)
LANE_NUMBER(thread, cpu_ns)
LANE_NUMBER(thread, cpu_before_ns)
LANE_TEXT(thread, name)
LANE_NUMBER(task, rank)
LANE_NUMBER(task, index)
LANE_TEXT(task, kind)
LANE_TEXT(task, name)
LANE_TEXT(task, coro_name)
LANE_NUMBER(task, thread_index)
LANE_NUMBER(task, created_ns)
LANE_NUMBER(task, done_ns)
LANE_NUMBER(task, steps)
LANE_NUMBER(task, running_ns)
LANE_NUMBER(task, suspended_ns)
LANE_NUMBER(task, creator_thread)
LANE_NUMBER(task, creator_task)

static void put_threads(writer *w)
{
    const sp_thread_info *threads = w->profile->threads;
    const size_t count = w->profile->thread_count;
    if (!w->profile->has_threads) return;
    const hid_t group = new_group(w, w->file, "thread_table");
    put_numbers(w, group, "ranks", H5T_STD_U32LE, count, threads, thread_rank);
    put_numbers(w, group, "index", H5T_STD_I64LE, count, threads, thread_index);
    put_numbers(w, group, "ident", H5T_STD_I64LE, count, threads, thread_ident);
    put_numbers(w, group, "native_id", H5T_STD_I64LE, count, threads, thread_native_id);
    put_numbers(w, group, "daemon", H5T_STD_I8LE, count, threads, thread_daemon);
    put_numbers(w, group, "start_ns", H5T_STD_I64LE, count, threads, thread_start_ns);
    put_numbers(w, group, "end_ns", H5T_STD_I64LE, count, threads, thread_end_ns);
    put_numbers(w, group, "cpu_ns", H5T_STD_I64LE, count, threads, thread_cpu_ns);
    put_numbers(w, group, "cpu_before_ns", H5T_STD_I64LE, count, threads, thread_cpu_before_ns);
    put_texts(w, group, "name", count, threads, thread_name);
    if (group >= 0) H5Gclose(group);
}

static void put_tasks(writer *w)
{
    const sp_task_info *tasks = w->profile->tasks;
    const size_t count = w->profile->task_count;
    if (count == 0) return;
    const hid_t group = new_group(w, w->file, "task_table");
    put_numbers(w, group, "ranks", H5T_STD_U32LE, count, tasks, task_rank);
    put_numbers(w, group, "index", H5T_STD_I64LE, count, tasks, task_index);
    put_texts(w, group, "kind", count, tasks, task_kind);
    put_texts(w, group, "name", count, tasks, task_name);
    put_texts(w, group, "coro_name", count, tasks, task_coro_name);
    put_numbers(w, group, "thread_index", H5T_STD_I64LE, count, tasks, task_thread_index);
    put_numbers(w, group, "created_ns", H5T_STD_I64LE, count, tasks, task_created_ns);
    put_numbers(w, group, "done_ns", H5T_STD_I64LE, count, tasks, task_done_ns);
    put_numbers(w, group, "steps", H5T_STD_I64LE, count, tasks, task_steps);
    put_numbers(w, group, "running_ns", H5T_STD_I64LE, count, tasks, task_running_ns);
    put_numbers(w, group, "suspended_ns", H5T_STD_I64LE, count, tasks, task_suspended_ns);
    put_numbers(w, group, "creator_thread", H5T_STD_I64LE, count, tasks, task_creator_thread);
    put_numbers(w, group, "creator_task", H5T_STD_I64LE, count, tasks, task_creator_task);
    if (group >= 0) H5Gclose(group);
}

LANE_NUMBER(process, rank)
LANE_NUMBER(process, pid)
LANE_NUMBER(process, clock_domain)
LANE_NUMBER(process, start_ns)
LANE_NUMBER(process, start_reference_ns)
LANE_NUMBER(process, end_ns)
LANE_NUMBER(process, end_reference_ns)
LANE_NUMBER(process, error_ns)
LANE_TEXT(process, name)
LANE_TEXT(process, reference)

static void put_processes(writer *w)
{
    const sp_process_info *processes = w->profile->processes;
    const size_t count = w->profile->process_count;
    if (count == 0) return;
    const hid_t group = new_group(w, w->file, "process_table");
    put_numbers(w, group, "ranks", H5T_STD_U32LE, count, processes, process_rank);
    put_numbers(w, group, "pid", H5T_STD_I64LE, count, processes, process_pid);
    put_numbers(w, group, "clock_domain", H5T_STD_I64LE, count, processes, process_clock_domain);
    put_numbers(w, group, "start_ns", H5T_STD_I64LE, count, processes, process_start_ns);
    put_numbers(w, group, "start_reference_ns", H5T_STD_I64LE, count, processes, process_start_reference_ns);
    put_numbers(w, group, "end_ns", H5T_STD_I64LE, count, processes, process_end_ns);
    put_numbers(w, group, "end_reference_ns", H5T_STD_I64LE, count, processes, process_end_reference_ns);
    put_numbers(w, group, "error_ns", H5T_STD_I64LE, count, processes, process_error_ns);
    put_texts(w, group, "name", count, processes, process_name);
    put_texts(w, group, "reference", count, processes, process_reference);
    if (group >= 0) H5Gclose(group);
}

/* -- groups carried through -- */

static hid_t array_type(const writer *w, sp_array_kind kind)
{
    switch (kind) {
    case SP_ARRAY_INT64: return H5T_STD_I64LE;
    case SP_ARRAY_UINT64: return H5T_STD_U64LE;
    case SP_ARRAY_FLOAT64: return H5T_IEEE_F64LE;
    case SP_ARRAY_STRING: return w->text_type;
    }
    return H5I_INVALID_HID;
}

static void put_group_attribute(writer *w, hid_t group, const sp_array *array)
{
    const uint64_t count = sp_array_size(array);
    if (array->kind == SP_ARRAY_STRING) {
        put_texts_attribute(w, group, array->name, array->dimensions, array->shape, count, array->data);
    } else {
        put_attribute(w, group, array->name, array_type(w, array->kind), array->dimensions, array->shape, array->data);
    }
}

static void put_group_dataset(writer *w, hid_t group, const sp_array *array)
{
    if (failed(w)) return;
    const uint64_t count = sp_array_size(array);
    if (array->dimensions == 1 && array->kind != SP_ARRAY_STRING) {
        put_array(w, group, array->name, array_type(w, array->kind), count, 8, array->data);
        return;
    }
    if (array->dimensions == 1) {
        put_texts(w, group, array->name, count, array->data, text_at);
        return;
    }
    hsize_t extents[4];
    for (int i = 0; i < array->dimensions; i++) extents[i] = array->shape[i];
    const hid_t type = array_type(w, array->kind);
    const hid_t space = array->dimensions ? H5Screate_simple(array->dimensions, extents, NULL) : H5Screate(H5S_SCALAR);
    const hid_t dataset = space >= 0
        ? H5Dcreate2(group, array->name, type, space, w->link_list, H5P_DEFAULT, H5P_DEFAULT) : H5I_INVALID_HID;
    if (dataset < 0 || (count && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, array->data) < 0)) {
        fail_hdf5(w, array->name);
    }
    if (dataset >= 0) H5Dclose(dataset);
    if (space >= 0) H5Sclose(space);
}

/*
 * HDF5 splits names at "/" and has no name for "" and ".": such a group (a counter's region may be called anything) gets a
 * name that looks alike, and the true one in an attribute. malloc'ed.
 */
static char *storable_name(const char *name)
{
    if (*name == '\0') return strdup("\xe2\x88\x85");
    if (strcmp(name, ".") == 0) return strdup("\xe2\x80\xa4");
    char *copy = malloc(3 * strlen(name) + 1), *to = copy;
    for (; copy && *name; name++) {
        if (*name == '/') to = stpcpy(to, "\xe2\x88\x95");
        else *to++ = *name;
    }
    if (copy) *to = '\0';
    return copy;
}

static void put_group_contents(writer *w, hid_t group, const sp_group *contents);

static void put_subgroup(writer *w, hid_t parent, const sp_group *contents)
{
    char *stored = storable_name(contents->name);
    if (stored == NULL) {
        fail_memory(w);
        return;
    }
    const hid_t group = new_group(w, parent, stored);
    if (strcmp(stored, contents->name) != 0) put_text_attribute(w, group, "scope_profiler_name", contents->name);
    put_group_contents(w, group, contents);
    if (group >= 0) H5Gclose(group);
    free(stored);
}

static void put_group_contents(writer *w, hid_t group, const sp_group *contents)
{
    for (size_t i = 0; i < contents->attribute_count; i++) put_group_attribute(w, group, &contents->attributes[i]);
    for (size_t i = 0; i < contents->dataset_count; i++) put_group_dataset(w, group, &contents->datasets[i]);
    for (size_t i = 0; i < contents->group_count; i++) put_subgroup(w, group, &contents->groups[i]);
}

static void put_aux(writer *w)
{
    for (size_t i = 0; i < w->profile->aux_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "rank%u", w->profile->aux[i].rank);
        const hid_t group = new_group(w, w->file, name);
        put_group_contents(w, group, &w->profile->aux[i].root);
        if (group >= 0) H5Gclose(group);
    }
}

/* -- the whole file -- */

static void make_lists(writer *w)
{
    w->text_type = H5Tcopy(H5T_C_S1);
    w->link_list = H5Pcreate(H5P_LINK_CREATE);
    w->group_list = H5Pcreate(H5P_GROUP_CREATE);
    w->attribute_list = H5Pcreate(H5P_ATTRIBUTE_CREATE);
    /* Links and attributes stay in the object headers, which have checksums and need no heap of their own. */
    if (w->text_type < 0 || w->link_list < 0 || w->group_list < 0 || w->attribute_list < 0 ||
        H5Tset_size(w->text_type, H5T_VARIABLE) < 0 || H5Tset_cset(w->text_type, H5T_CSET_UTF8) < 0 ||
        H5Pset_char_encoding(w->link_list, H5T_CSET_UTF8) < 0 ||
        H5Pset_char_encoding(w->attribute_list, H5T_CSET_UTF8) < 0 ||
        H5Pset_obj_track_times(w->group_list, false) < 0 ||
        H5Pset_link_phase_change(w->group_list, 64, 32) < 0 ||
        H5Pset_attr_phase_change(w->group_list, 4096, 2048) < 0) {
        fail_hdf5(w, "anything");
    }
}

static void close_lists(writer *w)
{
    if (w->text_type >= 0) H5Tclose(w->text_type);
    if (w->link_list >= 0) H5Pclose(w->link_list);
    if (w->group_list >= 0) H5Pclose(w->group_list);
    if (w->attribute_list >= 0) H5Pclose(w->attribute_list);
}

static const char *name_at(const void *names, size_t index)
{
    return ((char *const *)names)[index];
}

/* What readers would not take: of calls whose statistics may be anything, because they were read with them. */
static const char *wrong_times(const sp_profile *profile, const sp_row *row)
{
    const int64_t *start = profile->columns[SP_COLUMN_START] + row->first, *end = profile->columns[SP_COLUMN_END] + row->first;
    bool apart = false, backwards = false;
    int64_t difference = 0;
    for (uint64_t i = 0; i < row->count; i++) {
        if (i) apart |= __builtin_sub_overflow(start[i], start[i - 1], &difference);
        apart |= __builtin_sub_overflow(end[i], start[i], &difference);
        backwards |= difference < 0;
    }
    return apart ? "times more than 292 years apart" : backwards ? "a call that ends before it starts" : NULL;
}

/*
 * No reader takes a call that ends before it starts, or times so far apart that their differences are no int64: they are refused
 * while the profile is still there.
 */
static void check_times(writer *w)
{
    for (size_t i = 0; !failed(w) && i < w->profile->row_count; i++) {
        const sp_row *row = &w->profile->rows[i];
        const sp_row_statistics *s = &w->summary.statistics[i];
        const bool apart = s->end_maximum > s->start_minimum && sp_minus(s->end_maximum, s->start_minimum) < 0;
        const bool given = row->has_statistics && w->profile->columns[SP_COLUMN_START] && w->profile->columns[SP_COLUMN_END];
        const char *wrong = apart ? "times more than 292 years apart" : s->minimum < 0 ? "a call that ends before it starts" : NULL;
        if (wrong == NULL && given) wrong = wrong_times(w->profile, row);
        if (row->count == 0 || wrong == NULL) continue;
        w->status = sp_fail(w->error, SP_ERR_INVALID, "cannot write %s: region \"%.200s\" of rank %u has %s", w->path,
                            w->profile->names[row->name], row->rank, wrong);
    }
}

static void put_everything(writer *w)
{
    put_integer_attribute(w, w->file, "scope_profiler_schema", 3);
    put_text_attribute(w, w->file, "storage_layout", w->profile->aggregate ? "aggregate" : "columnar");
    put_metadata(w);
    const hid_t names = new_group(w, w->file, "region_table");
    put_texts(w, names, "names", w->profile->name_count, w->profile->names, name_at);
    if (names >= 0) H5Gclose(names);
    put_threads(w);
    put_tasks(w);
    put_processes(w);
    if (w->remote) put_remote_events(w);
    else put_events(w); /* meanwhile the summary is made */
    if (sp_summary_job_wait(&w->summary) != SP_OK) fail_memory(w);
    check_times(w);
    put_index(w);
    put_summary(w);
    put_aux(w);
}

/* The HDF5 part of the file, into a descriptor. */
static void write_file(writer *w, sp_hdf5_io *io)
{
    sp_hdf5_session session;
    w->status = sp_hdf5_enter(&session, w->error);
    if (failed(w)) return;
    w->io = io;
    make_lists(w);
    w->file = failed(w) ? H5I_INVALID_HID : sp_hdf5_create(io);
    if (w->file < 0) fail_hdf5(w, "anything");
    else put_everything(w);
    if (w->file >= 0 && H5Fclose(w->file) < 0) fail_hdf5(w, "the end");
    close_lists(w);
    sp_hdf5_leave(&session);
}

static sp_status check_options(const char *path, const sp_hdf5_options *options, sp_error *error)
{
    const int level = options->level;
    const bool fits = options->compression == SP_COMPRESSION_GZIP ? level <= 9
        : options->compression == SP_COMPRESSION_ZSTD ? level != 0 && level <= 22 : true;
    if (level < -1 || !fits) {
        return sp_fail(error, SP_ERR_INVALID, "cannot write %s: there is no compression level %d", path, level);
    }
    return SP_OK;
}

static const sp_hdf5_options usual = {.compression = SP_COMPRESSION_AUTO, .level = -1};

/* The file's content, in `io`; `w` has everything but the filters. */
static sp_status write_content(writer *w, sp_hdf5_io *io, const sp_hdf5_options *options)
{
    choose_filters(w, options);
    sp_summary_job_begin(&w->summary, w->profile);
    write_file(w, io);
    sp_summary_job_free(&w->summary);
    return w->status;
}

/* The status of the whole: what the descriptor met counts more than what the library made of it. */
static sp_status outcome(writer *w, const sp_hdf5_io *io)
{
    if (io->problem == 0) return w->status;
    errno = io->problem;
    return w->status = sp_fail_errno(w->error, SP_ERR_IO, "cannot write %s", w->path);
}

/* Put the written file in place. */
static sp_status commit(writer *w, sp_replacement *replacement, const sp_hdf5_options *options, sp_hdf5_io *io)
{
    if (io->problem == 0 && !failed(w) && sp_seal_append(io->fd) != SP_OK) io->problem = errno;
    if (outcome(w, io) != SP_OK) {
        sp_replace_abort(replacement);
        return w->status;
    }
    if (options->ready) options->ready(options->ready_context, replacement->fd, replacement->target);
    return sp_replace_commit(replacement, w->error);
}

sp_status sp_hdf5_write(const sp_profile *profile, const char *path, const sp_hdf5_options *options, sp_error *error)
{
    if (options == NULL) options = &usual;
    if (profile->summary_only) {
        return sp_fail(error, SP_ERR_INVALID, "cannot write %s: the profile was read without its calls", path);
    }
    sp_status status = check_options(path, options, error);
    if (status != SP_OK) return status;
    sp_replacement replacement;
    status = sp_replace_begin(&replacement, path, error);
    if (status != SP_OK) return status;
    sp_hdf5_io io = {.fd = replacement.fd};
    writer w = {.profile = profile, .path = path, .error = error};
    write_content(&w, &io, options);
    return commit(&w, &replacement, options, &io);
}

static sp_status write_collection(sp_collection *collection, const char *path, const sp_hdf5_options *options, bool tree,
                                  sp_error *error)
{
    sp_replacement replacement;
    sp_profile *profile = sp_collection_profile(collection);
    sp_status status = sp_replace_begin(&replacement, path, error);
    if (status != SP_OK) return status;
    sp_hdf5_io io = {.fd = replacement.fd};
    writer w = {.profile = profile, .path = path, .error = error, .collection = collection, .tree = tree};
    choose_filters(&w, options);
    profile->nested = tree;
    write_file(&w, &io);
    status = commit(&w, &replacement, options, &io);
    if (status == SP_OK) sp_summary_job_keep(&w.summary, profile);
    sp_summary_job_free(&w.summary);
    return status;
}

/* Calls overlap: of a run that is not large, the tree that clamps them can still be made from its columns. */
static sp_status write_overlapping(sp_collection *collection, const char *path, const sp_hdf5_options *options,
                                   sp_error *error)
{
    sp_profile *profile = sp_collection_profile(collection);
    if (profile->call_count <= SP_NEST_CALLS_MAX) {
        const sp_status status = sp_collection_columns(collection, 0, NULL, error);
        return status == SP_OK ? sp_hdf5_write(profile, path, options, error) : status;
    }
    const sp_status status = write_collection(collection, path, options, false, error);
    if (status == SP_OK) profile->summary_only = true;
    return status;
}

sp_status sp_hdf5_write_collection(sp_collection *collection, const char *path, const sp_hdf5_options *options,
                                   sp_error *error)
{
    if (options == NULL) options = &usual;
    sp_profile *profile = sp_collection_profile(collection);
    sp_status status = check_options(path, options, error);
    if (status == SP_OK) status = write_collection(collection, path, options, true, error);
    /* Overlapping calls show only at the end; then the file has no place for ids that mean nothing. */
    if (status == SP_ERR_NESTING) return write_overlapping(collection, path, options, error);
    if (status == SP_OK) profile->summary_only = true;
    return status;
}

/* -- for several ranks -- */

void sp_remote_layout_make(sp_remote_layout *layout, const sp_hdf5_options *options, uint64_t calls, uint32_t columns, uint64_t most)
{
    writer w = {0};
    choose_filters(&w, options ? options : &usual);
    w.chunk_bytes = most * sizeof(int64_t);
    *layout = (sp_remote_layout){.calls = calls, .most = most, .columns = columns, .filters = w.filters};
    layout->filters.element = sizeof(int64_t);
    if (calls == 0) return;
    layout->chunk = chunk_elements(&w, calls, sizeof(int64_t));
    layout->chunks = (calls + layout->chunk - 1) / layout->chunk;
}

sp_status sp_hdf5_write_remote(const sp_profile *head, const sp_remote_layout *layout, sp_remote_chunk *chunks,
                               const sp_hdf5_options *options, sp_replacement *replacement, sp_error *error)
{
    if (options == NULL) options = &usual;
    const sp_status status = check_options(replacement->path, options, error);
    if (status != SP_OK) return status;
    sp_hdf5_io io = {.fd = replacement->fd};
    writer w = {.profile = head, .path = replacement->path, .error = error, .remote = layout, .chunks = chunks};
    write_content(&w, &io, options);
    return outcome(&w, &io);
}
