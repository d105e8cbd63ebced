/* hdf5_read.c - open a profile: is it one, is it whole, which schema is it. */
#include "formats/hdf5_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/file_seal.h"
#include "formats/hdf5_library.h"
#include "formats/isolated.h"
#include "formats/profile_image.h"

/* A summary of a larger file is not worth reading all of it for the seal, which takes 0.4 ms a MB. */
#define SEAL_SUMMARY_MAX ((uint64_t)16 << 20)

bool sp_reader_wants_rank(const sp_reader *reader, int64_t rank)
{
    const sp_hdf5_selection *selection = reader->selection;
    if (selection->ranks == NULL) return true;
    for (size_t i = 0; i < selection->rank_count; i++) {
        if (selection->ranks[i] == rank) return true;
    }
    return false;
}

bool sp_reader_wants_region(const sp_reader *reader, const char *name)
{
    const sp_hdf5_selection *selection = reader->selection;
    if (selection->regions == NULL) return true;
    for (size_t i = 0; i < selection->region_count; i++) {
        if (strcmp(selection->regions[i], name) == 0) return true;
    }
    return false;
}

int64_t sp_reader_rank_of(const char *name)
{
    if (strncmp(name, "rank", 4) != 0 || name[4] == '\0') return -1;
    int64_t rank = 0;
    for (const char *digit = name + 4; *digit; digit++) {
        if (*digit < '0' || *digit > '9' || rank > UINT32_MAX) return -1;
        rank = rank * 10 + (*digit - '0');
    }
    return rank <= UINT32_MAX ? rank : -1;
}

/* -- metadata -- */

typedef struct attribute_walk {
    const sp_reader *reader;
    const char *group;
    sp_group *into; /* NULL: into the profile's metadata */
    sp_status status;
} attribute_walk;

static sp_status keep_attribute(attribute_walk *walk, hid_t attribute, const char *name, const char *full_name)
{
    if (walk->into == NULL) {
        return sp_input_read_metadata(&walk->reader->input, attribute, name, full_name, walk->reader->profile);
    }
    sp_group *group = walk->into;
    sp_array array;
    bool known;
    const sp_status status =
        sp_input_read_array(&walk->reader->input, attribute, true, name, full_name, &array, &known);
    if (status != SP_OK || !known) return status;
    sp_array *grown = realloc(group->attributes, (group->attribute_count + 1) * sizeof *grown);
    if (grown == NULL) {
        sp_array_free(&array);
        return SP_ERR_NO_MEMORY;
    }
    group->attributes = grown;
    grown[group->attribute_count++] = array;
    return SP_OK;
}

static herr_t visit_attribute(hid_t object, const char *name, const H5A_info_t *info, void *data)
{
    attribute_walk *walk = data;
    char full_name[400];
    snprintf(full_name, sizeof full_name, "%s@%s", walk->group, name);
    const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) {
        walk->status = sp_input_damaged(&walk->reader->input, full_name, "cannot be read");
    } else {
        walk->status = keep_attribute(walk, attribute, name, full_name);
        H5Aclose(attribute);
    }
    return walk->status == SP_OK ? 0 : 1;
}

static sp_status read_attributes(const sp_reader *reader, hid_t group, const char *name, sp_group *into)
{
    attribute_walk walk = {.reader = reader, .group = name, .into = into};
    if (H5Aiterate2(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, visit_attribute, &walk) < 0 && walk.status == SP_OK) {
        return sp_input_damaged(&reader->input, name, "has attributes that cannot be read");
    }
    return walk.status;
}

sp_status sp_reader_metadata(sp_reader *reader)
{
    hid_t group;
    sp_status status = sp_input_open_group(&reader->input, reader->file, "metadata", "/metadata", &group);
    if (status != SP_OK || group < 0) return status;
    status = read_attributes(reader, group, "/metadata", NULL);
    H5Gclose(group);
    return status;
}

/* -- groups carried through -- */

#define DEPTH_MAX 16

typedef struct group_walk {
    const sp_reader *reader;
    const char *path;
    sp_group *into;
    int depth;
    bool skip_regions; /* of schema 1 */
    sp_status status;
} group_walk;

static sp_status read_group(const sp_reader *reader, hid_t group, const char *path, int depth, bool skip_regions,
                            sp_group *into);

/* The name that a name with "/" was given up for; malloc'ed. */
static char *true_name(const sp_group *group, const char *stored)
{
    for (size_t i = 0; i < group->attribute_count; i++) {
        const sp_array *attribute = &group->attributes[i];
        const bool ours = strcmp(attribute->name, "scope_profiler_name") == 0;
        if (ours && attribute->kind == SP_ARRAY_STRING && attribute->dimensions == 0) {
            return strdup(*(char *const *)attribute->data);
        }
    }
    return strdup(stored);
}

static void drop_true_name(sp_group *group)
{
    for (size_t i = 0; i < group->attribute_count; i++) {
        if (strcmp(group->attributes[i].name, "scope_profiler_name") != 0) continue;
        sp_array_free(&group->attributes[i]);
        group->attributes[i] = group->attributes[--group->attribute_count];
        return;
    }
}

static sp_status keep_subgroup(group_walk *walk, hid_t object, const char *name, const char *full_name)
{
    sp_group *into = walk->into;
    sp_group *grown = realloc(into->groups, (into->group_count + 1) * sizeof *grown);
    if (grown == NULL) return SP_ERR_NO_MEMORY;
    into->groups = grown;
    sp_group *child = &grown[into->group_count++];
    *child = (sp_group){0};
    const sp_status status = read_group(walk->reader, object, full_name, walk->depth + 1, false, child);
    child->name = true_name(child, name);
    drop_true_name(child);
    return status == SP_OK && child->name == NULL ? SP_ERR_NO_MEMORY : status;
}

static sp_status keep_dataset(group_walk *walk, hid_t object, const char *name, const char *full_name)
{
    sp_group *into = walk->into;
    sp_array array;
    bool known;
    const sp_status status = sp_input_read_array(&walk->reader->input, object, false, name, full_name, &array, &known);
    if (status != SP_OK || !known) return status;
    sp_array *grown = realloc(into->datasets, (into->dataset_count + 1) * sizeof *grown);
    if (grown == NULL) {
        sp_array_free(&array);
        return SP_ERR_NO_MEMORY;
    }
    into->datasets = grown;
    grown[into->dataset_count++] = array;
    return SP_OK;
}

static sp_status keep_member(group_walk *walk, hid_t group, const char *name)
{
    char full_name[600];
    snprintf(full_name, sizeof full_name, "%s/%s", walk->path, name);
    sp_status status = sp_input_spend(&walk->reader->input, full_name, SP_INPUT_LINK);
    if (status != SP_OK) return status;
    const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0) return sp_input_damaged(&walk->reader->input, full_name, "cannot be opened");
    const H5I_type_t type = H5Iget_type(object);
    if (type == H5I_GROUP) status = keep_subgroup(walk, object, name, full_name);
    else if (type == H5I_DATASET) status = keep_dataset(walk, object, name, full_name);
    H5Oclose(object);
    return status;
}

static herr_t visit_member(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    group_walk *walk = data;
    if (info->type != H5L_TYPE_HARD) return 0;
    if (walk->skip_regions && strcmp(name, "regions") == 0) return 0;
    walk->status = keep_member(walk, group, name);
    return walk->status == SP_OK ? 0 : 1;
}

static sp_status read_group(const sp_reader *reader, hid_t group, const char *path, int depth, bool skip_regions,
                            sp_group *into)
{
    /* a damaged file may link a group into itself */
    if (depth > DEPTH_MAX) return sp_input_damaged(&reader->input, path, "is nested too deeply");
    sp_status status = read_attributes(reader, group, path, into);
    if (status != SP_OK) return status;
    group_walk walk = {.reader = reader, .path = path, .into = into, .depth = depth, .skip_regions = skip_regions};
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_member, &walk) < 0 && walk.status == SP_OK) {
        return sp_input_damaged(&reader->input, path, "has members that cannot be read");
    }
    return walk.status;
}

typedef struct rank_walk {
    sp_reader *reader;
    sp_status status;
} rank_walk;

static sp_status keep_rank(sp_reader *reader, int64_t rank, const char *name)
{
    sp_profile *profile = reader->profile;
    char full_name[64];
    hid_t group;
    snprintf(full_name, sizeof full_name, "/%.40s", name);
    sp_status status = sp_input_open_group(&reader->input, reader->file, name, full_name, &group);
    if (status != SP_OK || group < 0) return status;
    sp_rank_aux *grown = realloc(profile->aux, (profile->aux_count + 1) * sizeof *grown);
    if (grown == NULL) {
        H5Gclose(group);
        return SP_ERR_NO_MEMORY;
    }
    profile->aux = grown;
    sp_rank_aux *aux = &grown[profile->aux_count++];
    *aux = (sp_rank_aux){.rank = (uint32_t)rank};
    status = read_group(reader, group, full_name, 0, true, &aux->root);
    const sp_group *root = &aux->root;
    if (status == SP_OK && root->group_count + root->dataset_count + root->attribute_count == 0) {
        profile->aux_count--; /* only regions of schema 1 */
        sp_group_free(&aux->root);
    }
    H5Gclose(group);
    return status;
}

static herr_t visit_rank(hid_t file, const char *name, const H5L_info_t *info, void *data)
{
    rank_walk *walk = data;
    const int64_t rank = sp_reader_rank_of(name);
    if (rank < 0 || !sp_reader_wants_rank(walk->reader, rank)) return 0;
    walk->status = keep_rank(walk->reader, rank, name);
    return walk->status == SP_OK ? 0 : 1;
}

sp_status sp_reader_aux(sp_reader *reader)
{
    rank_walk walk = {.reader = reader};
    if (H5Literate(reader->file, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_rank, &walk) < 0 && walk.status == SP_OK) {
        return sp_input_damaged(&reader->input, "/", "has members that cannot be read");
    }
    return walk.status;
}

/* -- which schema -- */

static sp_status unknown_schema(const sp_reader *reader, const char *what)
{
    return sp_fail(reader->input.error, SP_ERR_SCHEMA, "%s has schema %s; this version reads 1, 2 and 3",
                   reader->input.path, what);
}

/* The number in the root's attribute; 1 when there is none. */
static sp_status read_schema(const sp_reader *reader, int64_t *schema)
{
    static const char name[] = "scope_profiler_schema";
    *schema = 1;
    const htri_t exists = H5Aexists(reader->file, name);
    if (exists < 0) return sp_input_damaged(&reader->input, "/", "has attributes that cannot be read");
    if (exists == 0) return SP_OK;
    const hid_t attribute = H5Aopen(reader->file, name, H5P_DEFAULT);
    if (attribute < 0) return sp_input_damaged(&reader->input, "/@scope_profiler_schema", "cannot be read");
    sp_array value;
    bool known;
    sp_status status =
        sp_input_read_array(&reader->input, attribute, true, name, "/@scope_profiler_schema", &value, &known);
    H5Aclose(attribute);
    if (status != SP_OK) return status;
    if (!known) return unknown_schema(reader, "of an unknown type");
    if (value.kind == SP_ARRAY_STRING || value.kind == SP_ARRAY_FLOAT64 || value.dimensions != 0) {
        status = unknown_schema(reader, "that is not an integer");
    } else {
        char text[32];
        *schema = *(const int64_t *)value.data;
        snprintf(text, sizeof text, "%" PRId64, *schema);
        if (*schema < 1 || *schema > 3) status = unknown_schema(reader, text);
    }
    sp_array_free(&value);
    return status;
}

static sp_status read_open_file(sp_reader *reader)
{
    sp_status status = read_schema(reader, &reader->profile->schema);
    if (status != SP_OK) return status;
    status = reader->profile->schema == 1 ? sp_reader_schema_1(reader) : sp_reader_columnar(reader);
    if (status == SP_OK) status = sp_reader_metadata(reader);
    if (status == SP_OK) status = sp_reader_aux(reader);
    if (status == SP_ERR_NO_MEMORY) {
        return sp_fail(reader->input.error, status, "out of memory reading %s", reader->input.path);
    }
    return status;
}

/* -- the file -- */

/* Read from an open descriptor, in this process. */
static sp_status read_descriptor(int fd, uint64_t size, const char *path, const sp_hdf5_selection *selection,
                                 sp_profile **profile, sp_error *error)
{
    sp_hdf5_io io = {.fd = fd};
    char reason[300];
    uint64_t spent = 0;
    sp_reader reader = {.input = {.path = path, .file_size = size, .spent = &spent, .error = error}, .selection = selection};
    reader.input.coder = sp_coder_new();
    reader.profile = sp_profile_new();
    sp_status status = reader.input.coder && reader.profile ? SP_OK : SP_ERR_NO_MEMORY;
    if (status == SP_OK) {
        reader.file = sp_hdf5_open(&io);
        if (reader.file >= 0) {
            status = read_open_file(&reader);
            H5Fclose(reader.file);
        } else {
            status = sp_fail(error, SP_ERR_CORRUPT, "%s is damaged: HDF5 cannot open it (%s)", path,
                             sp_hdf5_reason(reason, sizeof reason));
        }
        if (io.problem) {
            errno = io.problem;
            status = sp_fail_errno(error, SP_ERR_IO, "cannot read %s", path);
        }
    }
    sp_coder_free(reader.input.coder);
    if (status == SP_OK) *profile = reader.profile;
    else sp_profile_release(reader.profile);
    return status;
}

typedef struct child_work {
    int fd;
    uint64_t size;
    const char *path;
    const sp_hdf5_selection *selection;
} child_work;

static void read_in_child(void *context, int output)
{
    const child_work *work = context;
    sp_error error = {0};
    sp_profile *profile = NULL;
    const sp_status status = read_descriptor(work->fd, work->size, work->path, work->selection, &profile, &error);
    sp_image_write(output, status, &error, profile);
    /* nothing is freed: the process ends here */
}

/* A file that nobody vouches for. */
static sp_status read_isolated(int fd, uint64_t size, const char *path, const sp_hdf5_selection *selection,
                               sp_profile **profile, sp_error *error)
{
    child_work work = {fd, size, path, selection};
    const unsigned seconds = 4 + (unsigned)(size >> 21); /* a whole small file takes milliseconds */
    const uint64_t memory = ((uint64_t)2 << 30) + size * 1100;
    int output;
    const sp_isolated ended = sp_run_isolated(read_in_child, &work, seconds, memory, &output);
    if (ended == SP_ISOLATED_IMPOSSIBLE) return read_descriptor(fd, size, path, selection, profile, error);
    if (ended != SP_ISOLATED_DONE) {
        return sp_fail(error, SP_ERR_CORRUPT, "%s is damaged: HDF5 %s on it", path,
                       ended == SP_ISOLATED_TOO_LONG ? "hangs" : "crashes");
    }
    const sp_status status = sp_image_read(output, profile, error);
    close(output);
    if (status == SP_ERR_NO_MEMORY) return sp_fail(error, status, "out of memory reading %s", path);
    if (status != SP_OK && error && error->message[0] == '\0') {
        return sp_fail(error, SP_ERR_CORRUPT, "%s is damaged", path);
    }
    return status;
}

/* The signature at the start (HDF5 allows other places for it; no profile was ever written that way). */
static sp_status check_signature(int fd, uint64_t size, const char *path, sp_error *error)
{
    static const char signature[8] = "\211HDF\r\n\032\n";
    char begin[8];
    if (size == 0) return sp_fail(error, SP_ERR_CORRUPT, "%s is empty", path);
    const ssize_t got = pread(fd, begin, sizeof begin, 0);
    if (got < 0) return sp_fail_errno(error, SP_ERR_IO, "cannot read %s", path);
    if (got == sizeof begin && memcmp(begin, signature, sizeof begin) == 0) return SP_OK;
    return sp_fail(error, SP_ERR_FOREIGN, "%s is not an HDF5 file", path);
}

static sp_status without_head(const char *path, sp_error *error)
{
    return sp_fail(error, SP_ERR_UNSUPPORTED, "%s has no summary that stands for its calls", path);
}

static sp_status read_regular(int fd, uint64_t size, const char *path, const sp_hdf5_selection *selection,
                              sp_profile **profile, sp_error *error)
{
    sp_hdf5_session session;
    sp_seal seal = SP_SEAL_NONE;
    sp_status status = check_signature(fd, size, path, error);
    if (status != SP_OK) return status;
    const bool worth_checking = !selection->summary || size <= SEAL_SUMMARY_MAX;
    if (worth_checking && sp_seal_check(fd, size, &seal) != SP_OK) {
        return sp_fail_errno(error, SP_ERR_IO, "cannot read %s", path);
    }
    if (seal == SP_SEAL_BROKEN) {
        return sp_fail(error, SP_ERR_CORRUPT, "%s is damaged: its checksum is not that of its contents", path);
    }
    if (selection->head && worth_checking && seal != SP_SEAL_WHOLE) return without_head(path, error);
    status = sp_hdf5_enter(&session, error);
    if (status != SP_OK) return status;
    if (seal == SP_SEAL_WHOLE) status = read_descriptor(fd, size, path, selection, profile, error);
    else status = read_isolated(fd, size, path, selection, profile, error);
    sp_hdf5_leave(&session);
    if (status != SP_OK || !selection->head || (*profile)->stored_paths) return status;
    sp_profile_release(*profile);
    *profile = NULL;
    return without_head(path, error);
}

sp_status sp_hdf5_read_open(int fd, const char *path, const sp_hdf5_selection *selection, sp_profile **profile,
                            sp_error *error)
{
    static const sp_hdf5_selection everything;
    struct stat file;
    sp_error unused = {0};
    *profile = NULL;
    if (selection == NULL) selection = &everything;
    if (error == NULL) error = &unused;
    error->message[0] = '\0';
    if (fstat(fd, &file) < 0) return sp_fail_errno(error, SP_ERR_IO, "cannot read %s", path);
    if (S_ISDIR(file.st_mode)) return sp_fail(error, SP_ERR_FOREIGN, "%s is a directory, not a profile", path);
    if (!S_ISREG(file.st_mode)) return sp_fail(error, SP_ERR_FOREIGN, "%s is not a regular file", path);
    return read_regular(fd, (uint64_t)file.st_size, path, selection, profile, error);
}

sp_status sp_hdf5_read(const char *path, const sp_hdf5_selection *selection, sp_profile **profile, sp_error *error)
{
    *profile = NULL;
    /* O_NONBLOCK: a FIFO must not make us wait for a writer */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return sp_fail_errno(error, errno == ENOENT ? SP_ERR_NOT_FOUND : SP_ERR_IO, "cannot open %s", path);
    }
    const sp_status status = sp_hdf5_read_open(fd, path, selection, profile, error);
    close(fd);
    return status;
}
