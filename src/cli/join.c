/* join.c - merge and import-native: one profile out of several files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/merge.h"
#include "analysis/stack.h"
#include "cli/cli.h"
#include "formats/native_trace.h"

static const cli_option merge_options[] = {
    {"output", 'o', CLI_VALUE, "FILE", "profile to write"},
    {"no-align", 0, CLI_FLAG, NULL, "leave all times as they were recorded"},
};

static const cli_option import_options[] = {
    {"output", 'o', CLI_VALUE, "FILE", "profile to write (default: profiling_data.h5)"},
    {"label", 0, CLI_VALUE, "TEXT", "name of the run"},
    {"merge", 0, CLI_VALUE, "PROFILE", "a profile to put the native calls into, as that of the program's Python part"},
    {"quiet", 'q', CLI_FLAG, NULL, "print no summary"},
};

/* Write the profile and say so, with its regions unless --quiet. */
static int write_and_tell(const cli *c, sp_profile *profile, const char *target)
{
    const char *label = cli_value(c, "label", NULL);
    if (label && sp_profile_set_string(profile, "label", label) != SP_OK) return cli_no_memory();
    const int code = cli_write(profile, target);
    if (code) return code;
    sp_text out = {0};
    sp_error error = {0};
    const sp_region_table table = {.sort = SP_SORT_START};
    if (!cli_flag(c, "quiet") && sp_report_regions(profile, &table, &out, &error) != SP_OK) out.failed = true;
    sp_text_add(&out, "wrote ");
    sp_text_printable(&out, target);
    sp_text_add(&out, "\n");
    return cli_print(c, &out);
}

static int unite(sp_profile *const *sets, size_t count, sp_profile **out)
{
    sp_error error = {0};
    const sp_status status = sp_profile_union((const sp_profile *const *)sets, count, out, &error);
    return status == SP_OK ? 0 : cli_fail_text(error.message);
}

/* -- merge -- */

/* The files that operands name, in order, one twice if it is named twice. A pattern without a match stays, so that it is told. */
static int list_files(const cli *c, cli_paths *out)
{
    *out = (cli_paths){0};
    size_t size = 0;
    for (size_t i = 0; i < c->operand_count; i++) {
        cli_paths found;
        const int code = cli_glob(c->operands[i], &found);
        char **larger = code == 0 ? realloc(out->paths, (size + found.count) * sizeof *larger) : NULL;
        if (larger == NULL) {
            if (code == 0) cli_paths_free(&found);
            return code ? code : cli_no_memory();
        }
        memcpy(larger + size, found.paths, found.count * sizeof *larger);
        free(found.paths);
        out->paths = larger;
        out->count = size += found.count;
    }
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int stack(sp_profile *const *sets, const cli_paths *paths, bool align, sp_profile **out)
{
    sp_error error = {0};
    const char **names = calloc(paths->count + 1, sizeof *names);
    if (names == NULL) return cli_no_memory();
    for (size_t i = 0; i < paths->count; i++) names[i] = base_name(paths->paths[i]);
    const sp_status status = sp_profile_stack((const sp_profile *const *)sets, names, paths->count, align, out, &error);
    free(names);
    return status == SP_OK ? 0 : cli_fail_text(error.message[0] ? error.message : sp_error_string(status));
}

static bool is_same_file(const char *path, const char *other)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Files that are merged more than once, each told of once. */
static void tell_repeated(const cli_paths *paths, sp_text *out)
{
    for (size_t i = 0; i < paths->count; i++) {
        size_t before = 0, times = 1;
        for (size_t k = 0; k < i && before == 0; k++) before += is_same_file(paths->paths[i], paths->paths[k]);
        for (size_t k = i + 1; k < paths->count && before == 0; k++) times += is_same_file(paths->paths[i], paths->paths[k]);
        if (before || times == 1) continue;
        sp_text_printable(out, base_name(paths->paths[i]));
        sp_text_format(out, ": it is named %zu times, and its calls are counted as often\n", times);
    }
}

/* Ranks that are a process of which an earlier rank has another part: no two runs begin in the same ns of one process. */
static long long count_repeated(const sp_profile *merged)
{
    long long count = 0;
    for (size_t i = 0; i < merged->process_count; i++) {
        const sp_process_info *process = &merged->processes[i];
        size_t at = 0;
        for (; at < i; at++) {
            const sp_process_info *other = &merged->processes[at];
            if (process->pid && process->pid == other->pid && process->clock_domain && process->clock_domain == other->clock_domain &&
                process->start_ns == other->start_ns) {
                break;
            }
        }
        count += at < i;
    }
    return count;
}

/* Processes whose times could not be moved, and what was written. */
static int tell_merged(const cli *c, const sp_profile *merged, const cli_paths *paths, const char *target)
{
    sp_text out = {0};
    tell_repeated(paths, &out);
    const bool align = !cli_flag(c, "no-align");
    for (size_t i = 0; align && merged->process_count > 1 && i < merged->process_count; i++) {
        const sp_process_info *process = &merged->processes[i];
        if (process->error_ns >= 0) continue;
        if (process->name && *process->name) sp_text_printable(&out, process->name);
        else sp_text_format(&out, "rank %u", process->rank);
        sp_text_add(&out, ": nothing is known of its clock; its times are as they were recorded\n");
    }
    size_t calls = 0;
    for (size_t i = 0; i < merged->row_count; i++) calls += merged->rows[i].count;
    sp_text_add(&out, "wrote ");
    sp_text_printable(&out, target);
    const long long ranks = (long long)sp_profile_ranks(merged), distinct = ranks - count_repeated(merged);
    sp_text_format(&out, ": %zu call%s of %lld process%s", calls, calls == 1 ? "" : "s", distinct, distinct == 1 ? "" : "es");
    if (distinct < ranks) sp_text_format(&out, " in %lld ranks: each file of a run is a rank of its own", ranks);
    sp_text_add(&out, "\n");
    return cli_print(c, &out);
}

static int run_merge(cli *c)
{
    const char *target = cli_value(c, "output", NULL);
    if (target == NULL) return cli_fail("merge: --output is required");
    cli_paths paths;
    int code = list_files(c, &paths);
    sp_profile **sets = code == 0 ? calloc(paths.count + 1, sizeof *sets) : NULL, *merged = NULL;
    if (code == 0 && sets == NULL) code = cli_no_memory();
    for (size_t i = 0; code == 0 && i < paths.count; i++) code = cli_load(paths.paths[i], &sets[i]);
    if (code == 0) code = stack(sets, &paths, !cli_flag(c, "no-align"), &merged);
    if (code == 0) code = cli_write(merged, target);
    if (code == 0) code = tell_merged(c, merged, &paths, target);
    for (size_t i = 0; sets && i < paths.count; i++) sp_profile_release(sets[i]);
    free(sets);
    sp_profile_release(merged);
    cli_paths_free(&paths);
    return code;
}

/* -- import-native -- */

static int load_native(const cli *c, sp_profile **out)
{
    sp_paths found;
    sp_error error = {0};
    sp_status status = sp_traces_find(c->operands, c->operand_count, &found, &error);
    if (status != SP_OK) return cli_fail_text(error.message);
    status = sp_traces_load((const char *const *)found.paths, found.count, cli_value(c, "label", NULL), out, &error);
    sp_paths_free(&found);
    return status == SP_OK ? 0 : cli_fail_text(error.message);
}

static int run_import(cli *c)
{
    sp_profile *sets[2] = {0}, *merged = NULL;
    const char *into = cli_value(c, "merge", NULL), *target = cli_value(c, "output", "profiling_data.h5");
    int code = load_native(c, &sets[1]);
    if (code == 0 && into) code = cli_load(into, &sets[0]);
    if (code == 0 && into) code = unite(sets, 2, &merged);
    if (code == 0) code = write_and_tell(c, into ? merged : sets[1], target);
    sp_profile_release(sets[0]);
    sp_profile_release(sets[1]);
    sp_profile_release(merged);
    return code;
}

const cli_command cli_merge = {
    .name = "merge",
    .summary = "put the ranks or processes of several profiles into one",
    .description = "Put profiles, and spools, of several processes into one: each process becomes a rank, named after its file, and "
                   "keeps its threads and tasks. Times of other hosts are moved onto the clock of the first file",
    .operands = "FILE ... -o FILE",
    .least = 1,
    .options = merge_options,
    .option_count = sizeof merge_options / sizeof *merge_options,
    .run = run_merge,
};

const cli_command cli_import_native = {
    .name = "import-native",
    .summary = "write traces of C and Fortran programs as a profile",
    .description = "Write the output of native programs, one file a rank, as one profile: .spt traces, HDF5 files called "
                   "*_rank<number>.h5, and directories that have such files",
    .operands = "INPUT ...",
    .least = 1,
    .options = import_options,
    .option_count = sizeof import_options / sizeof *import_options,
    .run = run_import,
};
