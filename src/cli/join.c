/* join.c - merge and import-native: one profile out of several files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/merge.h"
#include "cli/cli.h"
#include "formats/native_trace.h"

static const cli_option merge_options[] = {
    {"output", 'o', CLI_VALUE, "FILE", "profile to write (default: merged.h5)"},
    {"label", 0, CLI_VALUE, "TEXT", "name of the run"},
    {"quiet", 'q', CLI_FLAG, NULL, "print no summary"},
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

static bool uses_rank(const sp_profile *profile, uint32_t rank)
{
    for (size_t i = 0; i < profile->row_count; i++) {
        if (profile->rows[i].rank == rank) return true;
    }
    for (size_t i = 0; i < profile->thread_count; i++) {
        if (profile->threads[i].rank == rank) return true;
    }
    return false;
}

static bool share_a_rank(const sp_profile *a, const sp_profile *b)
{
    for (size_t i = 0; i < a->row_count; i++) {
        if (i > 0 && a->rows[i].rank == a->rows[i - 1].rank) continue;
        if (uses_rank(b, a->rows[i].rank)) return true;
    }
    return false;
}

/* The ranks of a profile that nobody else sees yet, moved up. */
static void move_ranks(sp_profile *profile, uint32_t by)
{
    for (size_t i = 0; i < profile->row_count; i++) profile->rows[i].rank += by;
    for (size_t i = 0; i < profile->thread_count; i++) profile->threads[i].rank += by;
    for (size_t i = 0; i < profile->task_count; i++) profile->tasks[i].rank += by;
    for (size_t i = 0; i < profile->aux_count; i++) profile->aux[i].rank += by;
}

/* A file whose ranks an earlier one has too is other processes: they get the numbers after all earlier ones. */
static void tell_ranks_apart(sp_profile *const *sets, size_t count)
{
    int64_t next = count ? sp_profile_ranks(sets[0]) : 0;
    for (size_t i = 1; i < count; i++) {
        bool shared = false;
        for (size_t k = 0; k < i; k++) shared = shared || share_a_rank(sets[i], sets[k]);
        const int64_t own = sp_profile_ranks(sets[i]);
        if (shared) move_ranks(sets[i], (uint32_t)next);
        const int64_t end = shared ? next + own : own;
        if (end > next) next = end;
    }
    if (count) sp_profile_set_int(sets[0], "mpi_size", next);
}

static int run_merge(cli *c)
{
    cli_paths paths;
    int code = cli_expand(c->operands, c->operand_count, &paths);
    sp_profile **sets = code == 0 ? calloc(paths.count + 1, sizeof *sets) : NULL, *merged = NULL;
    if (code == 0 && sets == NULL) code = cli_no_memory();
    for (size_t i = 0; code == 0 && i < paths.count; i++) code = cli_load(paths.paths[i], &sets[i]);
    if (code == 0) {
        tell_ranks_apart(sets, paths.count);
        code = unite(sets, paths.count, &merged);
    }
    if (code == 0) code = write_and_tell(c, merged, cli_value(c, "output", "merged.h5"));
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
    .description = "Put profiles side by side. A file whose ranks an earlier one has too is taken as other processes, which get the "
                   "numbers after all earlier ones",
    .operands = "FILE ...",
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
