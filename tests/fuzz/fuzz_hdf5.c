/*
 * The layer that makes a profile of an HDF5 file. An input chooses one of the good files in bases/ and changes it through the
 * HDF5 library: values, types, shapes, filters, attributes, links. The result is sealed, because a sealed file is read in
 * this process: what is tested here is our layer, with a library that finds nothing wrong. fuzz_hdf5_bytes.c damages bytes.
 */
#include <dirent.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/chunk_codec.h"
#include "formats/file_seal.h"
#include "formats/hdf5.h"
#include "formats/hdf5_library.h"
#include "fuzz.h"

#define BASES_MAX 32
#define OBJECTS_MAX 200

static struct {
    uint8_t *data;
    size_t size;
} bases[BASES_MAX];
static size_t base_count;

static void load_base(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    FUZZ_CHECK(file && fstat(fileno(file), &status) == 0 && base_count < BASES_MAX);
    bases[base_count].size = (size_t)status.st_size;
    bases[base_count].data = malloc(bases[base_count].size);
    FUZZ_CHECK(fread(bases[base_count].data, 1, bases[base_count].size, file) == bases[base_count].size);
    base_count++;
    fclose(file);
}

static void load_bases(void)
{
    struct dirent **entries;
    const int count = scandir(FUZZ_BASES, &entries, NULL, alphasort);
    FUZZ_CHECK(count > 2);
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", FUZZ_BASES, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') load_base(path);
        free(entries[i]);
    }
    free(entries);
    FUZZ_CHECK(base_count > 0);
}

/* -- what is in a file -- */

typedef struct objects {
    char *names[OBJECTS_MAX];
    size_t count;
} objects;

static herr_t note_object(hid_t file, const char *name, const H5O_info_t *info, void *data)
{
    objects *list = data;
    if (list->count < OBJECTS_MAX) list->names[list->count++] = strdup(name);
    return 0;
}

static void free_objects(objects *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->names[i]);
}

/* -- types and values -- */

static hid_t text_type(size_t size, unsigned choice)
{
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, size);
    if (choice & 1) H5Tset_cset(type, H5T_CSET_UTF8);
    if (choice & 2 && size != H5T_VARIABLE) H5Tset_strpad(type, H5T_STR_SPACEPAD);
    return type;
}

static hid_t compound_type(fuzz_input *input)
{
    static const char *const members[] = {"total", "minimum", "maximum", "first", "last", "start_minimum", "end_maximum",
                                          "gpu_count", "gpu_total", "mean", "m2"};
    const size_t count = sizeof members / sizeof *members, made = (size_t)fuzz_take(input, 1) % (count + 1) + 1;
    const hid_t type = H5Tcreate(H5T_COMPOUND, made * 8);
    for (size_t i = 0; i < made; i++) {
        H5Tinsert(type, i < count ? members[i] : "x", i * 8, fuzz_take(input, 1) % 4 ? H5T_NATIVE_INT64 : H5T_NATIVE_FLOAT);
    }
    return type;
}

static hid_t take_type(fuzz_input *input)
{
    const unsigned choice = (unsigned)fuzz_take(input, 1);
    const hsize_t two[] = {2};
    switch (choice % 16) {
    case 0: return H5Tcopy(H5T_NATIVE_INT8);
    case 1: return H5Tcopy(H5T_NATIVE_UINT8);
    case 2: return H5Tcopy(H5T_NATIVE_INT32);
    case 3: return H5Tcopy(H5T_STD_U32BE);
    case 4: return H5Tcopy(H5T_NATIVE_UINT64);
    case 5: return H5Tcopy(H5T_NATIVE_DOUBLE);
    case 6: return H5Tcopy(H5T_NATIVE_FLOAT);
    case 7: return text_type(1 + (size_t)fuzz_take(input, 1) % 40, choice >> 4);
    case 8: return text_type(H5T_VARIABLE, choice >> 4);
    case 9: {
        const hid_t type = H5Tenum_create(choice & 16 ? H5T_NATIVE_INT64 : H5T_NATIVE_INT8);
        const int64_t zero = 0, one = 1;
        H5Tenum_insert(type, "FALSE", &zero);
        const int8_t small = 1;
        H5Tenum_insert(type, "TRUE", choice & 16 ? (const void *)&one : (const void *)&small);
        return type;
    }
    case 10: return compound_type(input);
    case 11: return H5Tarray_create2(H5T_NATIVE_INT32, 1, two);
    case 12: return H5Tcopy(H5T_NATIVE_LDOUBLE);
    case 13: return H5Tcopy(H5T_STD_B64LE);
    default: return H5Tcopy(H5T_NATIVE_INT64);
    }
}

static hid_t take_space(fuzz_input *input, uint64_t *count)
{
    const unsigned choice = (unsigned)fuzz_take(input, 1);
    hsize_t extents[5];
    const int dimensions = choice < 200 ? 1 : (int)(choice % 6);
    *count = 1;
    if (choice == 255) return H5Screate(H5S_NULL);
    if (dimensions == 0) return H5Screate(H5S_SCALAR);
    for (int i = 0; i < dimensions && i < 5; i++) {
        extents[i] = fuzz_take(input, 1) % 8;
        *count *= extents[i];
    }
    return H5Screate_simple(dimensions < 5 ? dimensions : 5, extents, NULL);
}

/* Values for `count` elements of a type; variable texts are pointers into `texts`. */
static void *take_values(fuzz_input *input, hid_t type, uint64_t count)
{
    static const char *const texts[] = {"a", "", "[\"t\"]", "[]", "[{}]", "columnar", "aggregate", "\xff", "[{},{},{},{}]", NULL};
    const size_t size = H5Tget_size(type);
    char *values = calloc(count ? count : 1, size + 8);
    for (uint64_t i = 0; i < count; i++) {
        if (H5Tis_variable_str(type) > 0) {
            const char *text = texts[fuzz_take(input, 1) % (sizeof texts / sizeof *texts)];
            memcpy(values + i * size, &text, sizeof text);
        } else if (size <= 8) {
            const uint64_t value = fuzz_take_edge(input);
            memcpy(values + i * size, &value, size);
        } else {
            fuzz_take_bytes(input, values + i * size, size);
        }
    }
    return values;
}

/* -- changes -- */

static void delete_object(hid_t file, const char *name)
{
    H5Ldelete(file, name, H5P_DEFAULT);
}

static hid_t creation_list(fuzz_input *input, hid_t space)
{
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    const unsigned choice = (unsigned)fuzz_take(input, 1);
    hsize_t chunk[5], extents[5] = {0};
    const int dimensions = H5Sget_simple_extent_ndims(space);
    if (choice & 1 || dimensions < 1 || dimensions > 5) return list;
    H5Sget_simple_extent_dims(space, extents, NULL);
    for (int i = 0; i < dimensions; i++) chunk[i] = 1 + (choice >> 5) % 4;
    H5Pset_chunk(list, dimensions, chunk);
    if (choice & 2) H5Pset_shuffle(list);
    if (choice & 4) H5Pset_deflate(list, 1);
    if (choice & 8) H5Pset_filter(list, SP_FILTER_ZSTD, H5Z_FLAG_OPTIONAL, 0, NULL);
    if (choice & 16) H5Pset_fletcher32(list);
    return list;
}

static void replace_dataset(hid_t file, const char *name, fuzz_input *input)
{
    uint64_t count;
    const hid_t type = take_type(input), space = take_space(input, &count), list = creation_list(input, space);
    void *values = take_values(input, type, count);
    delete_object(file, name);
    const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (dataset >= 0 && fuzz_take(input, 1) < 230) H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    if (dataset >= 0) H5Dclose(dataset);
    free(values);
    H5Pclose(list);
    H5Tclose(type);
    H5Sclose(space);
}

/* One element of a dataset of numbers, in its own type. */
static void poke(hid_t file, const char *name, fuzz_input *input)
{
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const hid_t type = dataset >= 0 ? H5Dget_type(dataset) : H5I_INVALID_HID;
    const hid_t space = dataset >= 0 ? H5Dget_space(dataset) : H5I_INVALID_HID;
    const hssize_t count = space >= 0 ? H5Sget_simple_extent_npoints(space) : 0;
    const size_t size = type >= 0 ? H5Tget_size(type) : 0;
    const bool numbers = type >= 0 && H5Tis_variable_str(type) <= 0 && H5Tget_class(type) != H5T_VLEN;
    if (numbers && count > 0 && count < 100000 && size > 0 && size < 100000) {
        char *values = malloc((size_t)count * size + 8);
        if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0) {
            const uint64_t value = fuzz_take_edge(input);
            const size_t at = (size_t)(fuzz_take(input, 2) % (uint64_t)count) * size + (size_t)fuzz_take(input, 1) % size / 8 * 8;
            memcpy(values + at, &value, size < 8 ? size : 8);
            H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
        }
        free(values);
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (dataset >= 0) H5Dclose(dataset);
}

static void set_attribute(hid_t file, const char *name, fuzz_input *input)
{
    static const char *const names[] = {"scope_profiler_schema", "storage_layout", "scope_profiler_name", "nested", "clamped",
                                        "mpi_size", "label", "region", "x"};
    const char *attribute = names[fuzz_take(input, 1) % (sizeof names / sizeof *names)];
    const hid_t object = H5Oopen(file, name, H5P_DEFAULT);
    if (object < 0) return;
    uint64_t count;
    const hid_t type = take_type(input), space = take_space(input, &count);
    void *values = take_values(input, type, count);
    if (H5Aexists(object, attribute) > 0) H5Adelete(object, attribute);
    const hid_t made = H5Acreate2(object, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (made >= 0 && count) H5Awrite(made, type, values);
    if (made >= 0) H5Aclose(made);
    free(values);
    H5Tclose(type);
    H5Sclose(space);
    H5Oclose(object);
}

static void claim(hid_t file, const char *name, fuzz_input *input)
{
    hsize_t extent = fuzz_take_edge(input) >> fuzz_take(input, 1) % 8, chunk = 1 + fuzz_take(input, 2);
    const hid_t type = take_type(input), list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &extent, NULL);
    delete_object(file, name);
    if (space >= 0 && H5Pset_chunk(list, 1, &chunk) >= 0) {
        const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
        if (dataset >= 0) H5Dclose(dataset);
    }
    if (space >= 0) H5Sclose(space);
    H5Pclose(list);
    H5Tclose(type);
}

static void relink(hid_t file, const char *name, const objects *list, fuzz_input *input)
{
    const char *other = list->names[fuzz_take(input, 1) % list->count];
    const unsigned choice = (unsigned)fuzz_take(input, 1) % 4;
    char copy[200];
    snprintf(copy, sizeof copy, "%.150s", name);
    delete_object(file, name);
    if (choice == 0) H5Lcreate_soft("/events/durations", file, copy, H5P_DEFAULT, H5P_DEFAULT);
    else if (choice == 1) H5Lcreate_external("/etc/passwd", "/x", file, copy, H5P_DEFAULT, H5P_DEFAULT);
    else if (choice == 2) H5Gclose(H5Gcreate2(file, copy, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    else H5Lcreate_hard(file, other, file, copy, H5P_DEFAULT, H5P_DEFAULT);
}

static void change_once(hid_t file, fuzz_input *input)
{
    objects list = {.count = 0};
    H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, note_object, &list);
    if (list.count > 0) {
        const unsigned what = (unsigned)fuzz_take(input, 1);
        const char *name = list.names[fuzz_take(input, 1) % list.count];
        const bool root = strcmp(name, ".") == 0;
        switch (what % 8) {
        case 0: root ? set_attribute(file, name, input) : delete_object(file, name); break;
        case 1: root ? set_attribute(file, name, input) : replace_dataset(file, name, input); break;
        case 2: set_attribute(file, name, input); break;
        case 3: root ? set_attribute(file, name, input) : claim(file, name, input); break;
        case 4: if (!root) relink(file, name, &list, input); break;
        default: poke(file, name, input);
        }
    }
    free_objects(&list);
}

/* The changed file as bytes in memory. */
static uint8_t *changed(fuzz_input *input, size_t *size)
{
    const size_t base = (size_t)fuzz_take(input, 1) % base_count;
    sp_hdf5_session session;
    FUZZ_CHECK(sp_hdf5_enter(&session, NULL) == SP_OK);
    const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(list, 1 << 16, false);
    H5Pset_file_image(list, bases[base].data, bases[base].size);
    const hid_t file = H5Fopen("base", H5F_ACC_RDWR, list);
    H5Pclose(list);
    FUZZ_CHECK(file >= 0);
    while (input->at < input->end) change_once(file, input);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    const ssize_t bytes = H5Fget_file_image(file, NULL, 0);
    FUZZ_CHECK(bytes > 0);
    uint8_t *image = malloc((size_t)bytes);
    H5Fget_file_image(file, image, (size_t)bytes);
    H5Fclose(file);
    sp_hdf5_leave(&session);
    *size = (size_t)bytes;
    return image;
}

static void read_file(const fuzz_file *file, bool summary, bool deep)
{
    const sp_hdf5_selection selection = {.summary = summary};
    sp_profile *profile = NULL;
    sp_error error = {0};
    const sp_status status = sp_hdf5_read(file->path, &selection, &profile, &error);
    fuzz_check_outcome(status, &error, profile);
    if (profile) fuzz_use_profile(profile, deep);
    sp_profile_release(profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, data + size};
    if (base_count == 0) load_bases();
    const bool deep = fuzz_take(&input, 1) % 8 == 7;
    size_t bytes;
    uint8_t *image = changed(&input, &bytes);
    fuzz_file file = fuzz_file_make(image, bytes);
    FUZZ_CHECK(sp_seal_append(file.fd) == SP_OK);
    free(image);
    read_file(&file, false, deep);
    read_file(&file, true, false);
    fuzz_file_close(&file);
    return 0;
}
