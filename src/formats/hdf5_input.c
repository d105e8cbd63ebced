#include "formats/hdf5_input.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5_library.h"
#include "formats/utf8.h"

sp_status sp_input_damaged(const sp_input *input, const char *object, const char *format, ...)
{
    char what[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return sp_fail(input->error, SP_ERR_CORRUPT, "%s is damaged: %s %s", input->path, object, what);
}

static sp_status unreadable(const sp_input *input, const char *object)
{
    char reason[300];
    return sp_input_damaged(input, object, "cannot be read (%s)", sp_hdf5_reason(reason, sizeof reason));
}

static sp_status no_memory(const sp_input *input, const char *object)
{
    return sp_fail(input->error, SP_ERR_NO_MEMORY, "out of memory reading %s of %s", object, input->path);
}

/* A column is opened once or twice; the rest is for programs that link to one dataset from several places. */
#define OFTEN 4
#define SPARE (4 << 20)
/* What arrays of groups that are carried through unpack to counts too: no column of ours bounds it. */
#define UNPACKED_WEIGHT 8

sp_status sp_input_spend(const sp_input *input, const char *object, uint64_t bytes)
{
    const uint64_t most = OFTEN * input->file_size + SPARE;
    if (bytes > most || *input->spent > most - bytes) {
        return sp_input_damaged(input, object, "is linked to from too many places");
    }
    *input->spent += bytes;
    return SP_OK;
}

/* -- opening -- */

/* A link to something in this file; *there is false when there is no such link. */
static sp_status check_link(const sp_input *input, hid_t parent, const char *name, const char *full_name, bool *there)
{
    const htri_t exists = H5Lexists(parent, name, H5P_DEFAULT);
    *there = exists > 0;
    if (exists < 0) return unreadable(input, full_name);
    if (exists == 0) return SP_OK;
    H5L_info_t info;
    const herr_t told = H5Lget_info(parent, name, &info, H5P_DEFAULT);
    if (told < 0) return unreadable(input, full_name);
    if (info.type != H5L_TYPE_HARD) return sp_input_damaged(input, full_name, "is a link to elsewhere");
    return SP_OK;
}

static sp_status open_object(const sp_input *input, hid_t parent, const char *name, const char *full_name,
                             H5I_type_t type, hid_t *object)
{
    bool there;
    *object = H5I_INVALID_HID;
    const sp_status status = check_link(input, parent, name, full_name, &there);
    if (status != SP_OK || !there) return status;
    *object = H5Oopen(parent, name, H5P_DEFAULT);
    if (*object < 0) return unreadable(input, full_name);
    if (H5Iget_type(*object) == type) return SP_OK;
    H5Oclose(*object);
    *object = H5I_INVALID_HID;
    return sp_input_damaged(input, full_name, type == H5I_GROUP ? "is not a group" : "is not a dataset");
}

sp_status sp_input_open_group(const sp_input *input, hid_t parent, const char *name, const char *full_name, hid_t *group)
{
    return open_object(input, parent, name, full_name, H5I_GROUP, group);
}

sp_status sp_input_open_dataset(const sp_input *input, hid_t parent, const char *name, const char *full_name,
                                hid_t *dataset)
{
    return open_object(input, parent, name, full_name, H5I_DATASET, dataset);
}

/* -- what a dataset claims, and whether its storage can hold that -- */

/* The filters of a chunked dataset; `direct` stays false for those that only libhdf5 might know. */
static bool read_pipeline(hid_t list, sp_dataset *dataset)
{
    const int count = H5Pget_nfilters(list);
    if (count < 0) return false;
    dataset->direct = count <= SP_FILTERS_MAX;
    dataset->pipeline = (sp_pipeline){.element = dataset->element};
    for (int i = 0; i < count && dataset->direct; i++) {
        unsigned flags, values[16], config;
        size_t value_count = 16;
        char name[64];
        const int filter = H5Pget_filter2(list, (unsigned)i, &flags, &value_count, values, sizeof name, name, &config);
        if (filter < 0) return false;
        dataset->pipeline.filters[dataset->pipeline.count++] = filter;
        /* the element size that was shuffled with is a parameter of the filter */
        if (filter == SP_FILTER_SHUFFLE && value_count >= 1 && values[0] > 0) dataset->pipeline.element = values[0];
    }
    dataset->direct = dataset->direct && sp_pipeline_known(&dataset->pipeline);
    return true;
}

/* Most bytes of values that `stored` bytes can stand for. */
static uint64_t most_bytes(const sp_dataset *dataset, uint64_t stored)
{
    if (dataset->chunk == 0 || (dataset->direct && dataset->pipeline.count == 0)) return stored;
    const uint64_t expansion = dataset->direct ? sp_pipeline_expansion(&dataset->pipeline) : 32769;
    return stored > UINT64_MAX / 2 / expansion ? UINT64_MAX / 2 : stored * expansion + 64;
}

static sp_status check_storage(const sp_input *input, const sp_dataset *dataset, uint64_t count)
{
    const uint64_t stored = H5Dget_storage_size(dataset->id);
    const bool fits = stored <= input->file_size && count <= most_bytes(dataset, stored) / dataset->element;
    if (count == 0) return SP_OK;
    if (fits) return sp_input_spend(input, dataset->name, stored);
    return sp_input_damaged(input, dataset->name, "claims %" PRIu64 " values, which its %" PRIu64 " stored bytes cannot hold",
                            count, stored);
}

static sp_status check_layout(const sp_input *input, sp_dataset *dataset, int dimensions)
{
    const hid_t list = H5Dget_create_plist(dataset->id);
    if (list < 0) return unreadable(input, dataset->name);
    const H5D_layout_t layout = H5Pget_layout(list);
    hsize_t extents[H5S_MAX_RANK] = {0};
    sp_status status = SP_OK;
    if (layout == H5D_CHUNKED && H5Pget_chunk(list, H5S_MAX_RANK, extents) != dimensions) {
        status = unreadable(input, dataset->name);
    } else if (layout == H5D_CHUNKED) {
        dataset->chunk = extents[0];
        if (!read_pipeline(list, dataset)) status = unreadable(input, dataset->name);
        else if (dataset->chunk == 0) status = sp_input_damaged(input, dataset->name, "has chunks of nothing");
    } else if ((layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) || H5Pget_external_count(list) != 0) {
        status = sp_input_damaged(input, dataset->name, "keeps its values elsewhere");
    }
    H5Pclose(list);
    return status;
}

sp_status sp_dataset_open(const sp_input *input, hid_t group, const char *name, const char *full_name,
                          sp_dataset *dataset)
{
    *dataset = (sp_dataset){.id = H5I_INVALID_HID, .type = H5I_INVALID_HID, .name = full_name};
    sp_status status = sp_input_open_dataset(input, group, name, full_name, &dataset->id);
    if (status != SP_OK || dataset->id < 0) return status;
    const hid_t space = H5Dget_space(dataset->id);
    const int dimensions = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    hsize_t extent = 0;
    if (dimensions == 1) H5Sget_simple_extent_dims(space, &extent, NULL);
    if (space >= 0) H5Sclose(space);
    if (dimensions != 1) return sp_input_damaged(input, full_name, "is not one-dimensional");
    dataset->count = extent;
    dataset->type = H5Dget_type(dataset->id);
    dataset->element = dataset->type >= 0 ? H5Tget_size(dataset->type) : 0;
    if (dataset->element == 0) return unreadable(input, full_name);
    status = check_layout(input, dataset, 1);
    return status == SP_OK ? check_storage(input, dataset, dataset->count) : status;
}

void sp_dataset_close(sp_dataset *dataset)
{
    if (dataset->type >= 0) H5Tclose(dataset->type);
    if (dataset->id >= 0) H5Dclose(dataset->id);
    dataset->id = dataset->type = H5I_INVALID_HID;
}

/* -- values as they are stored -- */

/* Read and decode one chunk into `out`, which has its full size. `*stored` is a buffer that is kept from call to call. */
static sp_status read_chunk(const sp_input *input, const sp_dataset *dataset, uint64_t number, void **stored,
                            size_t *room, void *out)
{
    const hsize_t offset = number * dataset->chunk;
    const size_t bytes = (size_t)dataset->chunk * dataset->element;
    hsize_t size = 0;
    uint32_t skipped = 0;
    if (H5Dget_chunk_storage_size(dataset->id, &offset, &size) < 0) return unreadable(input, dataset->name);
    if (size == 0 || size > input->file_size) {
        return sp_input_damaged(input, dataset->name, "has no values from %" PRIu64 " on", (uint64_t)offset);
    }
    if (*room < size) {
        free(*stored);
        *stored = malloc((size_t)size);
        *room = *stored ? (size_t)size : 0;
        if (*stored == NULL) return no_memory(input, dataset->name);
    }
    if (H5Dread_chunk(dataset->id, H5P_DEFAULT, &offset, &skipped, *stored) < 0) return unreadable(input, dataset->name);
    const sp_status status =
        sp_chunk_decode(input->coder, &dataset->pipeline, *stored, (size_t)size, skipped, out, bytes);
    if (status == SP_ERR_NO_MEMORY) return no_memory(input, dataset->name);
    if (status == SP_OK) return SP_OK;
    return sp_input_damaged(input, dataset->name, "cannot be decompressed from value %" PRIu64 " on", (uint64_t)offset);
}

/* A chunk is as large as the file says; no larger than what the dataset's bytes can stand for. */
static sp_status chunk_buffer(const sp_input *input, const sp_dataset *dataset, void **buffer)
{
    const uint64_t most = most_bytes(dataset, H5Dget_storage_size(dataset->id));
    if (dataset->chunk > most / dataset->element) {
        return sp_input_damaged(input, dataset->name, "claims chunks of %" PRIu64 " values", dataset->chunk);
    }
    *buffer = malloc((size_t)dataset->chunk * dataset->element);
    return *buffer ? SP_OK : no_memory(input, dataset->name);
}

static sp_status read_chunks(const sp_input *input, const sp_dataset *dataset, uint64_t first, uint64_t count, char *out)
{
    void *buffer = NULL, *stored = NULL;
    size_t room = 0;
    const size_t element = dataset->element;
    sp_status status = chunk_buffer(input, dataset, &buffer);
    const uint64_t end = first + count;
    for (uint64_t number = first / dataset->chunk; status == SP_OK && number * dataset->chunk < end; number++) {
        const uint64_t begin = number * dataset->chunk;
        const uint64_t from = begin > first ? begin : first;
        const uint64_t to = dataset->chunk < end - begin ? begin + dataset->chunk : end;
        char *place = out + (from - first) * element;
        const bool whole = from == begin && to - from == dataset->chunk;
        status = read_chunk(input, dataset, number, &stored, &room, whole ? place : buffer);
        if (status == SP_OK && !whole) {
            memcpy(place, (char *)buffer + (from - begin) * element, (size_t)(to - from) * element);
        }
    }
    free(buffer);
    free(stored);
    return status;
}

static sp_status read_selection(const sp_input *input, const sp_dataset *dataset, hid_t type, uint64_t first,
                                uint64_t count, void *out)
{
    const hsize_t start = first, extent = count;
    const hid_t space = H5Dget_space(dataset->id), memory = H5Screate_simple(1, &extent, NULL);
    sp_status status = SP_OK;
    if (space < 0 || memory < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &extent, NULL) < 0 ||
        H5Dread(dataset->id, type, memory, space, H5P_DEFAULT, out) < 0) {
        status = unreadable(input, dataset->name);
    }
    if (space >= 0) H5Sclose(space);
    if (memory >= 0) H5Sclose(memory);
    return status;
}

/* Elements as they are stored, decoded but not converted. */
static sp_status read_stored(const sp_input *input, const sp_dataset *dataset, uint64_t first, uint64_t count, void *out)
{
    if (count == 0) return SP_OK;
    if (first > dataset->count || count > dataset->count - first) {
        return sp_input_damaged(input, dataset->name, "ends too early");
    }
    if (dataset->chunk && dataset->direct) return read_chunks(input, dataset, first, count, out);
    return read_selection(input, dataset, dataset->type, first, count, out);
}

/* -- numbers -- */

sp_status sp_dataset_read_int64(const sp_input *input, const sp_dataset *dataset, uint64_t first, uint64_t count,
                                int64_t *out)
{
    const H5T_class_t class = H5Tget_class(dataset->type);
    if ((class != H5T_INTEGER && class != H5T_ENUM) || dataset->element > sizeof(int64_t)) {
        return sp_input_damaged(input, dataset->name, "does not hold integers");
    }
    const sp_status status = read_stored(input, dataset, first, count, out);
    if (status != SP_OK || count == 0 || H5Tequal(dataset->type, H5T_NATIVE_INT64) > 0) return status;
    if (H5Tconvert(dataset->type, H5T_NATIVE_INT64, (size_t)count, out, NULL, H5P_DEFAULT) < 0) {
        return unreadable(input, dataset->name);
    }
    return SP_OK;
}

sp_status sp_dataset_read_as(const sp_input *input, const sp_dataset *dataset, hid_t type, void **out)
{
    const size_t size = H5Tget_size(type), room = size > dataset->element ? size : dataset->element;
    char *data = malloc(dataset->count ? (size_t)dataset->count * room : 1);
    char *background = calloc(dataset->count ? (size_t)dataset->count : 1, size);
    sp_status status = data && background ? SP_OK : no_memory(input, dataset->name);
    if (status == SP_OK) status = read_stored(input, dataset, 0, dataset->count, data);
    if (status == SP_OK && dataset->count &&
        H5Tconvert(dataset->type, type, (size_t)dataset->count, data, background, H5P_DEFAULT) < 0) {
        status = unreadable(input, dataset->name);
    }
    free(background);
    if (status != SP_OK) {
        free(data);
        data = NULL;
    }
    *out = data;
    return status;
}

/* -- texts -- */

static void free_texts(char **texts, uint64_t count)
{
    for (uint64_t i = 0; texts && i < count; i++) free(texts[i]);
    free(texts);
}

/* Copies of texts that are padded to `size` bytes each, or pointed to (size 0). */
static sp_status copy_texts(const sp_input *input, const char *name, const void *data, uint64_t count, size_t size,
                            bool spaces, char ***out)
{
    char **texts = calloc(count ? count : 1, sizeof *texts);
    *out = NULL;
    if (texts == NULL) return no_memory(input, name);
    for (uint64_t i = 0; i < count; i++) {
        const char *text = size ? (const char *)data + i * size : ((char *const *)data)[i];
        size_t length = text ? (size ? strnlen(text, size) : strlen(text)) : 0;
        while (spaces && length && text[length - 1] == ' ') length--;
        if (!sp_utf8_valid(text ? text : "", length)) {
            free_texts(texts, count);
            return sp_input_damaged(input, name, "holds text that is not UTF-8");
        }
        texts[i] = length ? strndup(text, length) : strdup("");
        if (texts[i] == NULL) {
            free_texts(texts, count);
            return no_memory(input, name);
        }
    }
    *out = texts;
    return SP_OK;
}

/* A memory type for variable-length texts that fits the file's character set. */
static hid_t variable_type(hid_t file_type)
{
    const hid_t type = H5Tcopy(H5T_C_S1);
    if (type < 0) return type;
    if (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5Tget_cset(file_type)) < 0) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static sp_status read_variable_texts(const sp_input *input, const sp_dataset *dataset, char ***out)
{
    const hid_t type = variable_type(dataset->type), space = H5Dget_space(dataset->id);
    char **data = calloc(dataset->count ? dataset->count : 1, sizeof *data);
    sp_status status = SP_OK;
    if (data == NULL) status = no_memory(input, dataset->name);
    else if (type < 0 || space < 0 || H5Dread(dataset->id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
        status = unreadable(input, dataset->name);
    } else {
        status = copy_texts(input, dataset->name, data, dataset->count, 0, false, out);
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);
    }
    free(data);
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return status;
}

static sp_status read_fixed_texts(const sp_input *input, const sp_dataset *dataset, char ***out)
{
    char *data = malloc(dataset->count ? (size_t)dataset->count * dataset->element : 1);
    if (data == NULL) return no_memory(input, dataset->name);
    sp_status status = read_stored(input, dataset, 0, dataset->count, data);
    if (status == SP_OK) {
        const bool spaces = H5Tget_strpad(dataset->type) == H5T_STR_SPACEPAD;
        status = copy_texts(input, dataset->name, data, dataset->count, dataset->element, spaces, out);
    }
    free(data);
    return status;
}

sp_status sp_dataset_read_texts(const sp_input *input, const sp_dataset *dataset, char ***out)
{
    *out = NULL;
    if (H5Tget_class(dataset->type) != H5T_STRING) {
        return sp_input_damaged(input, dataset->name, "does not hold text");
    }
    if (dataset->count == 0) {
        *out = calloc(1, sizeof **out);
        return *out ? SP_OK : no_memory(input, dataset->name);
    }
    if (H5Tis_variable_str(dataset->type) > 0) return read_variable_texts(input, dataset, out);
    return read_fixed_texts(input, dataset, out);
}

/* -- arrays of any shape -- */

/* The kind of array that holds the type, and the memory type; false: none does. */
static bool array_kind(hid_t type, sp_array_kind *kind, hid_t *memory)
{
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        if (H5Tget_size(type) > 8) return false;
        *kind = H5Tget_sign(type) == H5T_SGN_NONE && H5Tget_size(type) == 8 ? SP_ARRAY_UINT64 : SP_ARRAY_INT64;
        *memory = *kind == SP_ARRAY_UINT64 ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
        return true;
    case H5T_ENUM: *kind = SP_ARRAY_INT64; *memory = H5T_NATIVE_INT64; return H5Tget_size(type) <= 8;
    case H5T_FLOAT: *kind = SP_ARRAY_FLOAT64; *memory = H5T_NATIVE_DOUBLE; return true;
    case H5T_STRING: *kind = SP_ARRAY_STRING; *memory = H5I_INVALID_HID; return true;
    default: return false;
    }
}

static herr_t read_into(hid_t object, bool attribute, hid_t type, void *out)
{
    return attribute ? H5Aread(object, type, out) : H5Dread(object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
}

static sp_status read_number_array(const sp_input *input, hid_t object, bool attribute, hid_t type, hid_t memory,
                                   const char *full_name, sp_array *array)
{
    const uint64_t count = sp_array_size(array);
    const size_t size = H5Tget_size(type) > 8 ? H5Tget_size(type) : 8;
    array->data = calloc(count ? count : 1, size);
    if (array->data == NULL) return no_memory(input, full_name);
    /* an enumeration does not convert to an integer by itself: read what is stored, then convert the base type */
    const bool enumeration = H5Tget_class(type) == H5T_ENUM;
    if (count && read_into(object, attribute, enumeration ? type : memory, array->data) < 0) {
        return unreadable(input, full_name);
    }
    if (!enumeration || count == 0) return SP_OK;
    const hid_t base = H5Tget_super(type);
    const herr_t converted = base < 0 ? -1 : H5Tconvert(base, memory, (size_t)count, array->data, NULL, H5P_DEFAULT);
    if (base >= 0) H5Tclose(base);
    return converted < 0 ? unreadable(input, full_name) : SP_OK;
}

static sp_status read_text_array(const sp_input *input, hid_t object, bool attribute, hid_t type, hid_t space,
                                 const char *full_name, sp_array *array)
{
    const uint64_t count = sp_array_size(array);
    const bool variable = H5Tis_variable_str(type) > 0;
    const size_t size = variable ? sizeof(char *) : H5Tget_size(type);
    const hid_t memory = variable ? variable_type(type) : H5Tcopy(type);
    void *data = calloc(count ? count : 1, size);
    char **texts = NULL;
    sp_status status = SP_OK;
    if (data == NULL) {
        status = no_memory(input, full_name);
    } else if (memory < 0 || (count && read_into(object, attribute, memory, data) < 0)) {
        status = unreadable(input, full_name);
    } else {
        const bool spaces = !variable && H5Tget_strpad(type) == H5T_STR_SPACEPAD;
        status = copy_texts(input, full_name, data, count, variable ? 0 : size, spaces, &texts);
        if (variable && count) H5Dvlen_reclaim(memory, space, H5P_DEFAULT, data);
    }
    array->data = texts;
    free(data);
    if (memory >= 0) H5Tclose(memory);
    return status;
}

/* Whether the bytes behind an object of `count` elements can hold them. */
static sp_status check_claim(const sp_input *input, hid_t object, bool attribute, hid_t type, int dimensions,
                             uint64_t count, const char *full_name)
{
    if (attribute) {
        const uint64_t stored = H5Aget_storage_size(object);
        if (stored <= input->file_size && count <= stored / H5Tget_size(type)) {
            return sp_input_spend(input, full_name, stored);
        }
        return count == 0 ? SP_OK : sp_input_damaged(input, full_name, "claims %" PRIu64 " values", count);
    }
    sp_dataset dataset = {.id = object, .type = type, .name = full_name, .element = H5Tget_size(type)};
    if (dataset.element == 0) return unreadable(input, full_name);
    sp_status status = dimensions ? check_layout(input, &dataset, dimensions) : SP_OK;
    if (status == SP_OK) status = check_storage(input, &dataset, count);
    return status == SP_OK ? sp_input_spend(input, full_name, count * dataset.element / UNPACKED_WEIGHT) : status;
}

sp_status sp_input_read_array(const sp_input *input, hid_t object, bool attribute, const char *name,
                              const char *full_name, sp_array *array, bool *known)
{
    *array = (sp_array){0};
    *known = false;
    const hid_t type = attribute ? H5Aget_type(object) : H5Dget_type(object);
    const hid_t space = attribute ? H5Aget_space(object) : H5Dget_space(object);
    hid_t memory = H5I_INVALID_HID;
    sp_status status = type >= 0 && space >= 0 ? SP_OK : unreadable(input, full_name);
    if (status != SP_OK) goto done;
    const int dimensions = H5Sget_simple_extent_ndims(space);
    if (H5Sget_simple_extent_type(space) == H5S_NULL || dimensions < 0 || dimensions > 4 ||
        !array_kind(type, &array->kind, &memory)) {
        goto done;
    }
    hsize_t extents[4] = {0};
    if (dimensions && H5Sget_simple_extent_dims(space, extents, NULL) < 0) {
        status = unreadable(input, full_name);
        goto done;
    }
    uint64_t count = 1;
    for (int i = 0; i < dimensions; i++) {
        if (extents[i] && count > (UINT64_MAX >> 6) / extents[i]) count = UINT64_MAX >> 6;
        else count *= extents[i];
        array->shape[i] = extents[i];
    }
    array->dimensions = dimensions;
    status = check_claim(input, object, attribute, type, dimensions, count, full_name);
    if (status != SP_OK) goto done;
    array->name = strdup(name);
    if (array->name == NULL) status = no_memory(input, full_name);
    else if (array->kind == SP_ARRAY_STRING) {
        status = read_text_array(input, object, attribute, type, space, full_name, array);
    } else {
        status = read_number_array(input, object, attribute, type, memory, full_name, array);
    }
    *known = status == SP_OK;
done:
    if (!*known) {
        free(array->name);
        if (array->kind == SP_ARRAY_STRING) free_texts(array->data, array->data ? sp_array_size(array) : 0);
        else free(array->data);
        *array = (sp_array){0};
    }
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return status;
}

/* -- metadata -- */

/* An enumeration of FALSE and TRUE. */
static bool is_boolean(hid_t attribute)
{
    const hid_t type = H5Aget_type(attribute);
    bool boolean = type >= 0 && H5Tget_class(type) == H5T_ENUM && H5Tget_nmembers(type) == 2;
    if (boolean) {
        char *name = H5Tget_member_name(type, 0);
        boolean = name && strcmp(name, "FALSE") == 0;
        H5free_memory(name);
    }
    if (type >= 0) H5Tclose(type);
    return boolean;
}

/* Lists of numbers, which only other programs write, are kept as texts. */
static sp_status set_number_list(sp_profile *profile, const char *name, const sp_array *array)
{
    const uint64_t count = sp_array_size(array);
    char **texts = calloc(count ? count : 1, sizeof *texts);
    sp_status status = texts ? SP_OK : SP_ERR_NO_MEMORY;
    for (uint64_t i = 0; status == SP_OK && i < count; i++) {
        int size;
        if (array->kind == SP_ARRAY_FLOAT64) size = asprintf(&texts[i], "%.17g", ((const double *)array->data)[i]);
        else if (array->kind == SP_ARRAY_UINT64) size = asprintf(&texts[i], "%" PRIu64, ((const uint64_t *)array->data)[i]);
        else size = asprintf(&texts[i], "%" PRId64, ((const int64_t *)array->data)[i]);
        if (size < 0) {
            texts[i] = NULL;
            status = SP_ERR_NO_MEMORY;
        }
    }
    if (status == SP_OK) status = sp_profile_set_strings(profile, name, (const char *const *)texts, count);
    free_texts(texts, count);
    return status;
}

static sp_status set_metadata(sp_profile *profile, const char *name, const sp_array *array, bool boolean)
{
    if (array->kind == SP_ARRAY_STRING && array->dimensions == 0) {
        return sp_profile_set_string(profile, name, *(char *const *)array->data);
    }
    if (array->kind == SP_ARRAY_STRING) {
        return sp_profile_set_strings(profile, name, (const char *const *)array->data, sp_array_size(array));
    }
    if (array->dimensions) return set_number_list(profile, name, array);
    if (array->kind == SP_ARRAY_FLOAT64) return sp_profile_set_float(profile, name, *(const double *)array->data);
    const int64_t value = *(const int64_t *)array->data;
    return boolean ? sp_profile_set_bool(profile, name, value != 0) : sp_profile_set_int(profile, name, value);
}

sp_status sp_input_read_metadata(const sp_input *input, hid_t attribute, const char *name, const char *full_name,
                                 sp_profile *profile)
{
    sp_array array;
    bool known;
    sp_status status = sp_input_read_array(input, attribute, true, name, full_name, &array, &known);
    if (status != SP_OK || !known) return status;
    status = set_metadata(profile, name, &array, is_boolean(attribute));
    sp_array_free(&array);
    return status == SP_OK ? SP_OK : no_memory(input, full_name);
}
