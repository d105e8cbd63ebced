/* export.c - profiles for viewers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "formats/export.h"

static const cli_option options[] = {
    {"output", 'o', CLI_VALUE, "DIR", "directory to write to (default: .)"},
    CLI_SELECTION_OPTIONS,
    {"no-call-paths", 0, CLI_FLAG, NULL, "prof: an entry a region, not one a call path"},
    {"by-lane", 0, CLI_FLAG, NULL, "folded: the stacks of each thread and task apart"},
};

typedef struct format {
    const char *name, *suffix;
    sp_exporter *write;
    bool per_rank; /* a file holds one rank, whose number is in its name */
} format;

static const format formats[] = {
    {"speedscope", ".speedscope.json", sp_export_speedscope, false},
    {"perfetto", ".pftrace", sp_export_perfetto, false},
    {"chrome-trace", ".trace.json", sp_export_chrome_trace, false},
    {"prof", ".prof", sp_export_pstats, true},
    {"folded", ".folded", sp_export_folded, false},
    {"csv", ".csv", sp_export_csv, false},
};
#define FORMAT_NAMES "speedscope, perfetto, chrome-trace, prof, folded or csv"
#define FORMATS (sizeof formats / sizeof *formats)

/* The run's name as a part of a file name: malloc'ed. */
static char *stem_of(const sp_profile *profile, const char *path)
{
    char *stem = cli_run_name(profile, path);
    for (char *at = stem; at && *at; at++) {
        const bool plain = (*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z') || strchr("-_.", *at);
        if (!plain) *at = '_';
    }
    return stem;
}

/* DIR/profile.suffix, with what tells several files apart: the run's name, and the rank where a file holds one. malloc'ed. */
static char *target_of(const char *directory, const format *f, const char *stem, size_t number, uint32_t rank)
{
    sp_text path = {0};
    sp_text_format(&path, "%s/profile", directory);
    if (stem) sp_text_format(&path, "_%s", stem);
    if (stem && number > 1) sp_text_format(&path, "_%zu", number);
    if (f->per_rank) sp_text_format(&path, "_rank%u", (unsigned)rank);
    sp_text_add(&path, f->suffix);
    if (!path.failed) return path.data;
    sp_text_free(&path);
    return NULL;
}

static int write_part(const cli *c, const format *f, const sp_export *what, const char *target)
{
    sp_error error = {0};
    sp_text out = {0};
    const sp_status status = f->write(what, target, &error);
    if (status != SP_OK) return cli_fail_status(status, &error, target);
    sp_text_add(&out, "Wrote ");
    sp_text_printable(&out, target);
    sp_text_add(&out, "\n");
    return cli_print(c, &out);
}

/* The chosen ranks of a profile: into one file, or one file each. */
static int write_files(const cli *c, const format *f, const sp_profile *profile, const char *source, const char *stem, size_t number)
{
    static const uint32_t rank_zero[] = {0};
    cli_chosen chosen;
    char *name = cli_run_name(profile, source);
    int code = cli_choose(c, profile, source, &chosen);
    if (code == 0 && name == NULL) code = cli_no_memory();
    if (code == 0 && !chosen.any) code = cli_fail("%s: %s", source, profile->row_count ? "no region matches the filters" : "the run has no regions");
    const bool all = chosen.selection.rank_count == 0;
    const uint32_t *ranks = all ? rank_zero : chosen.selection.ranks;
    const size_t count = all ? 1 : chosen.selection.rank_count, at_once = f->per_rank ? 1 : count;
    for (size_t i = 0; code == 0 && i < count; i += at_once) {
        const sp_export what = {.profile = profile, .name = name, .ranks = ranks + i, .rank_count = at_once,
                                .visible = chosen.selection.visible, .flat = cli_flag(c, "no-call-paths"),
                                .by_lane = cli_flag(c, "by-lane")};
        char *target = target_of(cli_value(c, "output", "."), f, stem, number, ranks[i]);
        code = target ? write_part(c, f, &what, target) : cli_no_memory();
        free(target);
    }
    free(name);
    cli_chosen_free(&chosen);
    return code;
}

/* How often a stem was used before this file, plus one. */
static size_t number_of(char *const *stems, size_t place)
{
    size_t number = 1;
    for (size_t i = 0; i < place; i++) number += strcmp(stems[i], stems[place]) == 0;
    return number;
}

static int export_file(const cli *c, const format *f, const cli_paths *paths, size_t i, char **stems)
{
    sp_profile *profile;
    int code = cli_load(paths->paths[i], &profile);
    if (code) return code;
    stems[i] = stem_of(profile, paths->paths[i]);
    if (stems[i] == NULL) code = cli_no_memory();
    else code = write_files(c, f, profile, paths->paths[i], paths->count > 1 ? stems[i] : NULL, number_of(stems, i));
    sp_profile_release(profile);
    return code;
}

static int run(cli *c)
{
    const format *f = NULL;
    for (size_t i = 0; i < FORMATS; i++) {
        if (strcmp(formats[i].name, c->operands[0]) == 0) f = &formats[i];
    }
    if (f == NULL) {
        return cli_fail("no format '%s': " FORMAT_NAMES "; the command of the Python package has more", c->operands[0]);
    }
    const char *directory = cli_value(c, "output", ".");
    cli_paths paths;
    int code = cli_expand(c->operands + 1, c->operand_count - 1, &paths);
    if (code == 0 && mkdir(directory, 0777) != 0 && errno != EEXIST) code = cli_fail("%s: %s", directory, strerror(errno));
    char **stems = code == 0 ? calloc(paths.count + 1, sizeof *stems) : NULL;
    if (code == 0 && stems == NULL) code = cli_no_memory();
    for (size_t i = 0; code == 0 && i < paths.count; i++) code = export_file(c, f, &paths, i, stems);
    for (size_t i = 0; stems && i < paths.count; i++) free(stems[i]);
    free(stems);
    cli_paths_free(&paths);
    return code;
}

const cli_command cli_export = {
    .name = "export",
    .summary = "write profiles for viewers and other tools",
    .description = "Write the calls of rank 0, or of --ranks, for a viewer. FORMAT is " FORMAT_NAMES,
    .operands = "FORMAT FILE ...",
    .least = 2,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
