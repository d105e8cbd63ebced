/* files.c - profiles that are named on the command line. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "formats/hdf5.h"
#include "formats/json_text.h"
#include "formats/spool.h"

/* -- names -- */

void cli_paths_free(cli_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++) free(paths->paths[i]);
    free(paths->paths);
    *paths = (cli_paths){0};
}

bool cli_add_path(cli_paths *paths, const char *path)
{
    for (size_t i = 0; i < paths->count; i++) {
        if (strcmp(paths->paths[i], path) == 0) return true;
    }
    char **larger = realloc(paths->paths, (paths->count + 1) * sizeof *larger);
    char *copy = larger ? strdup(path) : NULL;
    if (larger) paths->paths = larger;
    if (copy == NULL) return false;
    paths->paths[paths->count++] = copy;
    return true;
}

static int add_matches(cli_paths *paths, const char *pattern)
{
    glob_t found;
    const int result = glob(pattern, 0, NULL, &found);
    if (result == GLOB_NOMATCH) return cli_fail("%s: no file matches", pattern);
    if (result != 0) return cli_fail("%s: cannot look for files", pattern);
    bool ok = true;
    for (size_t i = 0; ok && i < found.gl_pathc; i++) ok = cli_add_path(paths, found.gl_pathv[i]);
    globfree(&found);
    return ok ? 0 : cli_no_memory();
}

int cli_expand(const char *const *patterns, size_t count, cli_paths *out)
{
    *out = (cli_paths){0};
    for (size_t i = 0; i < count; i++) {
        struct stat status;
        int code = 0;
        if (lstat(patterns[i], &status) == 0 || strpbrk(patterns[i], "*?[") == NULL) {
            if (!cli_add_path(out, patterns[i])) code = cli_no_memory();
        } else {
            code = add_matches(out, patterns[i]);
        }
        if (code) {
            cli_paths_free(out);
            return code;
        }
    }
    return 0;
}

int cli_glob(const char *pattern, cli_paths *out)
{
    struct stat status;
    glob_t found = {0};
    *out = (cli_paths){0};
    if (lstat(pattern, &status) == 0 || strpbrk(pattern, "*?[") == NULL || glob(pattern, 0, NULL, &found) != 0) {
        return cli_add_path(out, pattern) ? 0 : cli_no_memory();
    }
    bool ok = true;
    for (size_t i = 0; ok && i < found.gl_pathc; i++) ok = cli_add_path(out, found.gl_pathv[i]);
    globfree(&found);
    if (ok) return 0;
    cli_paths_free(out);
    return cli_no_memory();
}

int64_t cli_file_size(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (int64_t)status.st_size : -1;
}

/* -- failures -- */

int cli_fail_status(sp_status status, const sp_error *error, const char *path)
{
    if (status == SP_ERR_NOT_FOUND && error->system == ENOENT) return cli_fail("%s: no such file", path);
    const char *message = error->message[0] ? error->message : sp_error_string(status);
    if (strstr(message, path)) return cli_fail_text(message);
    return cli_fail("%s: %s", path, message);
}

/* -- reading -- */

typedef enum file_kind { KIND_HDF5, KIND_SPOOL, KIND_JSON, KIND_HTML } file_kind;

static file_kind kind_of(const char *path)
{
    char begin[64] = "";
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const ssize_t size = file < 0 ? 0 : pread(file, begin, sizeof begin - 1, 0);
    if (file >= 0) close(file);
    if (size >= 8 && memcmp(begin, "SPSPOOL\n", 8) == 0) return KIND_SPOOL;
    if (size >= 2 && memcmp(begin, "\x1f\x8b", 2) == 0) return KIND_JSON;
    const char *at = begin + strspn(begin, " \t\r\n");
    return *at == '{' ? KIND_JSON : *at == '<' ? KIND_HTML : KIND_HDF5;
}

static void set_metadata(sp_profile *profile, const char *key, const json_t *value)
{
    if (json_is_string(value)) sp_profile_set_string(profile, key, json_string_value(value));
    else if (json_is_boolean(value)) sp_profile_set_bool(profile, key, json_is_true(value));
    else if (json_is_integer(value)) sp_profile_set_int(profile, key, json_integer_value(value));
    else if (json_is_real(value)) sp_profile_set_float(profile, key, json_real_value(value));
    if (!json_is_array(value)) return;
    const size_t size = json_array_size(value);
    const char **list = malloc((size + 1) * sizeof *list);
    bool texts = list != NULL;
    for (size_t i = 0; texts && i < size; i++) {
        list[i] = json_string_value(json_array_get(value, i));
        texts = list[i] != NULL;
    }
    if (texts) sp_profile_set_strings(profile, key, list, size);
    free(list);
}

/* JSON has no name for these numbers, but Python writes them. */
static bool is_special(sp_json_piece value, double *number)
{
    static const struct {
        const char *name;
        double number;
    } special[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (strlen(special[i].name) != value.size || memcmp(special[i].name, value.at, value.size) != 0) continue;
        *number = special[i].number;
        return true;
    }
    return false;
}

/* One entry of the metadata in the spool's journal, into the profile; what it found out itself is nearer to the truth. */
static bool take_metadata(void *context, sp_json_piece name, sp_json_piece text)
{
    sp_profile *profile = context;
    json_t *key = json_loadb(name.at, name.size, JSON_DECODE_ANY, NULL), *value = NULL;
    double number;
    if (key && sp_profile_find_metadata(profile, json_string_value(key)) == NULL) {
        if (is_special(text, &number)) sp_profile_set_float(profile, json_string_value(key), number);
        else if ((value = json_loadb(text.at, text.size, JSON_DECODE_ANY, NULL))) set_metadata(profile, json_string_value(key), value);
    }
    json_decref(key);
    json_decref(value);
    return true;
}

/* The metadata that the spool's journal has, into the profile. */
static void note_metadata(sp_profile *profile)
{
    const sp_metadata *found = sp_profile_find_metadata(profile, "spool_metadata");
    char *noted = found && found->kind == SP_VALUE_STRING ? strdup(found->text) : NULL;
    sp_profile_drop_metadata(profile, "spool_metadata");
    if (noted && sp_json_members(noted, NULL, NULL)) sp_json_members(noted, take_metadata, profile);
    free(noted);
}

static bool take_rank(void *context, sp_json_piece name, sp_json_piece text)
{
    static const char wanted[] = "\"mpi_rank\"";
    if (name.size != sizeof wanted - 1 || memcmp(name.at, wanted, name.size) != 0) return true;
    json_t *value = json_loadb(text.at, text.size, JSON_DECODE_ANY, NULL);
    const json_int_t rank = json_is_integer(value) ? json_integer_value(value) : 0;
    *(uint32_t *)context = rank > 0 && rank <= INT32_MAX ? (uint32_t)rank : 0;
    json_decref(value);
    return true;
}

/* Which rank of its run the process was that wrote a spool. */
static uint32_t rank_of(const sp_profile *profile)
{
    const sp_metadata *found = sp_profile_find_metadata(profile, "spool_metadata");
    uint32_t rank = 0;
    if (found && found->kind == SP_VALUE_STRING && sp_json_members(found->text, NULL, NULL)) {
        sp_json_members(found->text, take_rank, &rank);
    }
    return rank;
}

sp_status cli_read_spool(const char *path, sp_profile **out, sp_salvage *salvage, sp_error *error)
{
    sp_spool_values values;
    sp_status status = sp_spool_read(path, 0, out, salvage, &values, error);
    const uint32_t rank = status == SP_OK ? rank_of(*out) : 0;
    if (rank) {
        sp_profile_release(*out);
        sp_spool_values_free(&values);
        *out = NULL;
        status = sp_spool_read(path, rank, out, salvage, &values, error);
    }
    if (status != SP_OK) return status;
    note_metadata(*out);
    status = sp_spool_values_tell(&values, *out);
    sp_spool_values_free(&values);
    if (status == SP_OK) return SP_OK;
    sp_profile_release(*out);
    *out = NULL;
    return sp_fail(error, status, "no memory to read %s", path);
}

int cli_load(const char *path, sp_profile **out)
{
    sp_error error = {0};
    sp_salvage salvage;
    *out = NULL;
    const file_kind kind = kind_of(path);
    if (kind == KIND_JSON) return cli_fail("%s: profiles in JSON are read by the command of the Python package", path);
    if (kind == KIND_HTML) return cli_fail("%s is an HTML report: what it was made from cannot be read back from it", path);
    const sp_status status = kind == KIND_SPOOL ? cli_read_spool(path, out, &salvage, &error) : sp_hdf5_read(path, NULL, out, &error);
    return status == SP_OK ? 0 : cli_fail_status(status, &error, path);
}

char *cli_run_name(const sp_profile *profile, const char *path)
{
    const char *label = sp_profile_label(profile), *slash = strrchr(path, '/');
    char *name = strdup(label ? label : slash ? slash + 1 : path);
    char *dot = name && !label ? strrchr(name, '.') : NULL;
    if (dot && dot != name) *dot = '\0';
    return name;
}

int cli_write(const sp_profile *profile, const char *path)
{
    const size_t size = strlen(path);
    static const char *const others[] = {".json", ".json.gz", ".html", ".htm"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const size_t ending = strlen(others[i]);
        if (size >= ending && strcasecmp(path + size - ending, others[i]) == 0) {
            return cli_fail("%s: profiles are written as HDF5; other formats are made by the command of the Python package", path);
        }
    }
    sp_error error = {0};
    const sp_status status = sp_hdf5_write(profile, path, NULL, &error);
    return status == SP_OK ? 0 : cli_fail_status(status, &error, path);
}
