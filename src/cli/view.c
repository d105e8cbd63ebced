/* view.c - profiles in the browser. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "formats/html_report.h"

static const cli_option options[] = {
    {"output", 'o', CLI_VALUE, "OUT.html", "where to write the page (default: a temporary directory of its own)"},
    {"no-open", 0, CLI_FLAG, NULL, "only write the page and print where it is"},
    CLI_SELECTION_OPTIONS,
};

typedef struct runs {
    sp_profile **profiles;
    cli_chosen *chosen;
    uint32_t **ranks; /* all of a run's, where none were chosen */
    char **names;
    sp_export *exports;
    size_t count;
} runs;

static void free_runs(runs *r)
{
    for (size_t i = 0; i < r->count; i++) {
        if (r->chosen) cli_chosen_free(&r->chosen[i]);
        if (r->ranks) free(r->ranks[i]);
        if (r->names) free(r->names[i]);
        if (r->profiles) sp_profile_release(r->profiles[i]);
    }
    free(r->profiles);
    free(r->chosen);
    free(r->ranks);
    free(r->names);
    free(r->exports);
}

/* The ranks that a profile has rows of, ascending: rows are ordered by rank. */
static uint32_t *all_ranks(const sp_profile *profile, size_t *count)
{
    uint32_t *ranks = malloc((profile->row_count + 1) * sizeof *ranks);
    *count = 0;
    for (size_t i = 0; ranks && i < profile->row_count; i++) {
        const uint32_t rank = profile->rows[i].rank;
        if (*count == 0 || ranks[*count - 1] != rank) ranks[(*count)++] = rank;
    }
    return ranks;
}

static int load_run(const cli *c, runs *r, size_t i, const char *path)
{
    int code = cli_load(path, &r->profiles[i]);
    if (code == 0) code = cli_choose(c, r->profiles[i], path, &r->chosen[i]);
    if (code) return code;
    const sp_selection *selection = &r->chosen[i].selection;
    r->names[i] = cli_run_name(r->profiles[i], path);
    if (r->names[i] == NULL) return cli_no_memory();
    size_t count = selection->rank_count;
    if (count == 0) r->ranks[i] = all_ranks(r->profiles[i], &count);
    if (selection->rank_count == 0 && r->ranks[i] == NULL) return cli_no_memory();
    r->exports[i] = (sp_export){.profile = r->profiles[i], .name = r->names[i], .rank_count = count,
                                .ranks = selection->rank_count ? selection->ranks : r->ranks[i], .visible = selection->visible};
    return 0;
}

/* A page on which no region is left is no answer to what was asked; a run that recorded nothing has its page. */
static int require_match(const runs *r, const char *first)
{
    bool recorded = false;
    for (size_t i = 0; i < r->count; i++) {
        if (r->chosen[i].any) return 0;
        if (r->profiles[i]->row_count) recorded = true;
    }
    return recorded ? cli_fail("%s: no region matches the filters", first) : 0;
}

/* In a directory that only this user can look into: a profile has names and sources in it. malloc'ed. */
static char *temporary_page(const char *profile)
{
    const char *base = getenv("TMPDIR"), *slash = strrchr(profile, '/'), *name = slash ? slash + 1 : profile;
    char *directory = NULL, *page = NULL;
    if (asprintf(&directory, "%s/scope-profiler-XXXXXX", base && *base ? base : "/tmp") < 0) return NULL;
    const size_t stem = strcspn(name, ".");
    if (mkdtemp(directory) && asprintf(&page, "%s/%.*s.html", directory, stem ? (int)stem : 7, stem ? name : "profile") < 0) page = NULL;
    free(directory);
    return page;
}

/* Without a screen there is nothing to do but what was printed. */
static void open_page(const char *page)
{
    const char *browser = getenv("BROWSER");
    if (!browser && !getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY")) return;
    const pid_t child = fork();
    if (child == 0) {
        execlp(browser && *browser ? browser : "xdg-open", "scope-profiler", page, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (status != 0) fputs("scope-profiler: no browser could be started; the page is complete\n", stderr);
}

static int write_page(const cli *c, const runs *r, const char *target)
{
    sp_error error = {0};
    sp_text out = {0};
    const sp_html_report report = {.runs = r->exports, .run_count = r->count, .options = "{\"sort\": \"start\", \"charts\": true}"};
    const sp_status status = sp_export_html(&report, target, &error);
    if (status != SP_OK) return cli_fail_status(status, &error, target);
    sp_text_printable(&out, target);
    sp_text_add(&out, "\n");
    const int code = cli_print(c, &out);
    if (code == 0 && !cli_flag(c, "no-open")) open_page(target);
    return code;
}

static int run(cli *c)
{
    cli_paths paths;
    runs r = {0};
    int code = cli_expand(c->operands, c->operand_count, &paths);
    if (code) return code;
    r.count = paths.count;
    r.profiles = calloc(r.count + 1, sizeof *r.profiles);
    r.chosen = calloc(r.count + 1, sizeof *r.chosen);
    r.ranks = calloc(r.count + 1, sizeof *r.ranks);
    r.names = calloc(r.count + 1, sizeof *r.names);
    r.exports = calloc(r.count + 1, sizeof *r.exports);
    if (!r.profiles || !r.chosen || !r.ranks || !r.names || !r.exports) code = cli_no_memory();
    for (size_t i = 0; code == 0 && i < r.count; i++) code = load_run(c, &r, i, paths.paths[i]);
    if (code == 0) code = require_match(&r, paths.paths[0]);
    const char *wanted = cli_value(c, "output", NULL);
    char *target = code ? NULL : wanted ? strdup(wanted) : temporary_page(paths.paths[0]);
    if (code == 0) code = target ? write_page(c, &r, target) : cli_fail("cannot make a temporary directory: %s", strerror(errno));
    free(target);
    free_runs(&r);
    cli_paths_free(&paths);
    return code;
}

const cli_command cli_view = {
    .name = "view",
    .summary = "show profiles in the browser",
    .description = "Show profiles in the browser: all threads and tasks over time, a flame graph, and tables. The page is one file "
                   "that fetches nothing",
    .operands = "FILE ...",
    .least = 1,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
