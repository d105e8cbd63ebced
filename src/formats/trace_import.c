/* trace_import.c - the native output of a run's ranks as one profile. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/merge.h"
#include "analysis/resolve.h"
#include "core/sort.h"
#include "formats/hdf5.h"
#include "formats/native_trace.h"

/* -- finding -- */

typedef struct finder {
    sp_paths found;
    struct identity {
        dev_t device;
        ino_t inode;
    } *seen; /* of each found path */
    size_t room;
    sp_error *error;
} finder;

void sp_paths_free(sp_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++) free(paths->paths[i]);
    free(paths->paths);
    *paths = (sp_paths){0};
}

static bool ends_with(const char *text, size_t length, const char *ending)
{
    const size_t size = strlen(ending);
    return length >= size && memcmp(text + length - size, ending, size) == 0;
}

/* Whether a file in a directory has the name of native output: *.spt or *_rank<digits>.h5. */
static bool is_trace_name(const char *name)
{
    size_t length = strlen(name);
    if (name[0] == '.') return false;
    if (ends_with(name, length, ".spt")) return true;
    if (!ends_with(name, length, ".h5")) return false;
    length -= strlen(".h5");
    size_t digits = 0;
    while (digits < length && name[length - digits - 1] >= '0' && name[length - digits - 1] <= '9') digits++;
    return digits > 0 && ends_with(name, length - digits, "_rank");
}

static sp_status no_memory(sp_error *error)
{
    return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for native traces");
}

static sp_status add_path(finder *f, char *path, const struct stat *status)
{
    for (size_t i = 0; i < f->found.count; i++) {
        if (f->seen[i].device != status->st_dev || f->seen[i].inode != status->st_ino) continue;
        free(path);
        return SP_OK;
    }
    if (f->found.count == f->room) {
        const size_t room = f->room ? 2 * f->room : 16;
        char **paths = realloc(f->found.paths, room * sizeof *paths);
        if (paths) f->found.paths = paths;
        struct identity *seen = realloc(f->seen, room * sizeof *seen);
        if (seen) f->seen = seen;
        if (paths == NULL || seen == NULL) {
            free(path);
            return no_memory(f->error);
        }
        f->room = room;
    }
    f->seen[f->found.count] = (struct identity){status->st_dev, status->st_ino};
    f->found.paths[f->found.count++] = path;
    return SP_OK;
}

static int trace_entry(const struct dirent *entry)
{
    return is_trace_name(entry->d_name);
}

static int by_bytes(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* "directory/name"; "name" alone in the current directory, as it is written there. */
static char *join_path(const char *directory, const char *name)
{
    char *path;
    if (strcmp(directory, ".") == 0) return strdup(name);
    const bool slash = directory[0] && directory[strlen(directory) - 1] == '/';
    return asprintf(&path, "%s%s%s", directory, slash ? "" : "/", name) < 0 ? NULL : path;
}

static sp_status add_directory(finder *f, const char *directory)
{
    struct dirent **entries;
    const int count = scandir(directory, &entries, trace_entry, by_bytes);
    if (count < 0) return sp_fail_errno(f->error, SP_ERR_IO, "cannot list %s", directory);
    sp_status status = SP_OK;
    size_t files = 0;
    for (int i = 0; i < count; i++) {
        struct stat entry;
        char *path = status == SP_OK ? join_path(directory, entries[i]->d_name) : NULL;
        free(entries[i]);
        if (status != SP_OK) continue;
        if (path == NULL) status = no_memory(f->error);
        else if (stat(path, &entry) != 0 || !S_ISREG(entry.st_mode)) free(path);
        else {
            status = add_path(f, path, &entry);
            files++;
        }
    }
    free(entries);
    if (status != SP_OK || files > 0) return status;
    sp_fail(f->error, SP_ERR_NOT_FOUND, "no native traces (*.spt or *_rank<number>.h5) in %s", directory);
    if (f->error) f->error->system = ENOENT;
    return SP_ERR_NOT_FOUND;
}

static sp_status add_input(finder *f, const char *input)
{
    struct stat status;
    if (stat(input, &status) != 0) {
        return sp_fail_errno(f->error, errno == ENOENT ? SP_ERR_NOT_FOUND : SP_ERR_IO, "cannot read %s", input);
    }
    if (S_ISDIR(status.st_mode)) return add_directory(f, input);
    char *path = strdup(input);
    return path ? add_path(f, path, &status) : no_memory(f->error);
}

sp_status sp_traces_find(const char *const *inputs, size_t count, sp_paths *out, sp_error *error)
{
    finder f = {.error = error};
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < count; i++) status = add_input(&f, inputs[i]);
    free(f.seen);
    if (status != SP_OK) sp_paths_free(&f.found);
    *out = f.found;
    return status;
}

/* -- reading -- */

static bool begins_as_hdf5(const char *path)
{
    static const char signature[8] = "\x89HDF\r\n\x1a\n";
    char begin[8];
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const bool same = file >= 0 && pread(file, begin, sizeof begin, 0) == (ssize_t)sizeof begin &&
                      memcmp(begin, signature, sizeof begin) == 0;
    if (file >= 0) close(file);
    return same;
}

static sp_status read_one(const char *path, sp_profile **out, sp_error *error)
{
    if (!begins_as_hdf5(path)) return sp_spt_read(path, out, NULL, error);
    sp_status status = sp_hdf5_read(path, NULL, out, error);
    if (status == SP_OK) sp_profile_drop_metadata(*out, "mpi_rank"); /* rows tell it, and there will be others */
    if (status == SP_OK && (*out)->aggregate) {
        sp_profile_release(*out);
        *out = NULL;
        status = sp_fail(error, SP_ERR_UNSUPPORTED, "%s: it has sums of its calls only", path);
    }
    return status;
}

/* What the whole says about itself. As the first set of the union it decides where the times of lane tables begin. */
static sp_profile *make_head(sp_profile *const *parts, size_t count, const char *label)
{
    sp_profile *head = sp_profile_new();
    int64_t earliest = INT64_MAX, version = 1;
    for (size_t i = 0; i < count; i++) {
        int64_t start = INT64_MAX, known = SP_SPT_VERSION;
        sp_profile_get_int(parts[i], "start_time_ns", &start);
        sp_profile_get_int(parts[i], "trace_format_version", &known);
        if (start < earliest) earliest = start;
        if (known > version) version = known;
    }
    bool ok = head && sp_profile_set_string(head, "source", "native") == SP_OK &&
              sp_profile_set_int(head, "trace_format_version", version) == SP_OK;
    if (ok && earliest != INT64_MAX) ok = sp_profile_set_int(head, "start_time_ns", earliest) == SP_OK;
    if (ok && label) ok = sp_profile_set_string(head, "label", label) == SP_OK;
    if (ok) return head;
    sp_profile_release(head);
    return NULL;
}

typedef struct rank_owner {
    uint32_t rank;
    size_t part;
} rank_owner;

static int by_rank(const void *left, const void *right)
{
    const rank_owner *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->part > b->part) - (a->part < b->part);
}

static sp_status check_ranks(sp_profile *const *parts, const char *const *paths, size_t count, sp_error *error)
{
    size_t total = 0, used = 0;
    for (size_t i = 0; i < count; i++) total += parts[i]->row_count;
    rank_owner *owners = malloc((total + 1) * sizeof *owners);
    if (owners == NULL) return no_memory(error);
    for (size_t i = 0; i < count; i++) {
        for (size_t r = 0; r < parts[i]->row_count; r++) {
            const uint32_t rank = parts[i]->rows[r].rank;
            if (r > 0 && parts[i]->rows[r - 1].rank == rank) continue;
            owners[used++] = (rank_owner){rank, i};
        }
    }
    sp_sort(owners, used, sizeof *owners, by_rank);
    sp_status status = SP_OK;
    for (size_t i = 1; status == SP_OK && i < used; i++) {
        if (owners[i].rank != owners[i - 1].rank || owners[i].part == owners[i - 1].part) continue;
        status = sp_fail(error, SP_ERR_INVALID, "%s and %s are both of rank %u: each rank must say its number to sp_init()",
                         paths[owners[i - 1].part], paths[owners[i].part], (unsigned)owners[i].rank);
    }
    free(owners);
    return status;
}

/* The tree of every rank that came without one. */
static sp_status resolve_missing(sp_profile *profile, sp_error *error)
{
    sp_error reason = {0};
    const sp_status status = sp_profile_resolve(profile, 0, &reason);
    if (status != SP_OK && error) *error = reason;
    return status;
}

sp_status sp_traces_load(const char *const *paths, size_t count, const char *label, sp_profile **out, sp_error *error)
{
    *out = NULL;
    if (count == 0) return sp_fail(error, SP_ERR_NOT_FOUND, "no native traces were named");
    sp_profile **sets = calloc(count + 1, sizeof *sets);
    sp_status status = sets ? SP_OK : no_memory(error);
    for (size_t i = 0; status == SP_OK && i < count; i++) status = read_one(paths[i], &sets[i + 1], error);
    if (status == SP_OK) status = check_ranks(sets + 1, paths, count, error);
    if (status == SP_OK) {
        sets[0] = make_head(sets + 1, count, label);
        status = sets[0] ? sp_profile_union((const sp_profile *const *)sets, count + 1, out, error) : no_memory(error);
    }
    if (status == SP_OK) status = resolve_missing(*out, error);
    for (size_t i = 0; sets && i <= count; i++) sp_profile_release(sets[i]);
    free(sets);
    if (status == SP_OK) return SP_OK;
    sp_profile_release(*out);
    *out = NULL;
    return status;
}
