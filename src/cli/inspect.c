/* inspect.c - what profiles hold. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const cli_option options[] = {
    CLI_SELECTION_OPTIONS,
    {"sort", 0, CLI_VALUE, "KEY", "order of the regions: start (default), total, calls, avg, min, max, first, last, std, p50, p95, p99, imbalance, name"},
    {"top", 0, CLI_VALUE, "N", "only the first N regions (of the longest total, unless --sort says otherwise), the N busiest threads and tasks; 0: all"},
    {"columns", 0, CLI_LIST, "COLUMN", "columns of the region table: region, ranks, calls, total, percent, parent_percent, avg, gpu_total, gpu_avg, min, max, first, last, std, p50, p95, p99, imbalance"},
    {"percentage-mode", 0, CLI_VALUE, "MODE", "what the session percentage counts: coverage (default) or exclusive"},
    {"tree", 0, CLI_FLAG, NULL, "print the call tree of every thread and task instead of the tables; many tasks of one coroutine are one tree (--top 0: each)"},
    {"depth", 0, CLI_VALUE, "N", "levels of the tree that are shown (default: 64; 0: all)"},
    {"full", 0, CLI_FLAG, NULL, "print long metadata values whole"},
    {"source", 0, CLI_LIST, "NAME", "print the captured source of these regions"},
    {"quiet", 'q', CLI_FLAG, NULL, "print nothing: whether the profiles can be read is the exit code"},
    {"metadata-only", 0, CLI_FLAG, NULL, "only the metadata"},
    {"regions-only", 0, CLI_FLAG, NULL, "only the regions"},
};

typedef struct wanted {
    sp_sort_key sort;
    int64_t top, depth; /* top -1: not given */
    sp_region_column *columns;
    size_t column_count;
    bool exclusive_mode;
} wanted;

/* Columns are given as several values, or as one with commas or blanks between them. */
static int read_columns(const cli_values *given, wanted *w)
{
    for (size_t i = 0; i < given->count; i++) {
        const char *text = given->items[i];
        size_t before = w->column_count;
        for (text += strspn(text, ", "); *text; text += strspn(text, ", ")) {
            const size_t size = strcspn(text, ", ");
            char name[32] = "";
            if (size < sizeof name) memcpy(name, text, size);
            const size_t place = cli_find_name(name, sp_region_column_names, SP_REGION_COLUMNS);
            if (place == SP_REGION_COLUMNS) return cli_fail("no column '%.*s' (see scope-profiler inspect --help)", (int)size, text);
            sp_region_column *larger = realloc(w->columns, (w->column_count + 1) * sizeof *larger);
            if (larger == NULL) return cli_no_memory();
            w->columns = larger;
            w->columns[w->column_count++] = (sp_region_column)place;
            text += size;
        }
        if (w->column_count == before) return cli_fail("no column '%s' (see scope-profiler inspect --help)", given->items[i]);
    }
    if (w->column_count > SP_REGION_COLUMNS_MOST) return cli_fail("%zu columns are too many", w->column_count);
    return 0;
}

static int read_options(const cli *c, wanted *w)
{
    const char *top = cli_value(c, "top", NULL), *depth = cli_value(c, "depth", "64");
    const char *mode = cli_value(c, "percentage-mode", "coverage");
    *w = (wanted){.top = -1};
    if (top && !cli_parse_count(top, &w->top)) return cli_fail("'%s' is not a number of rows", top);
    if (!cli_parse_count(depth, &w->depth)) return cli_fail("'%s' is not a number of rows", depth);
    const char *sort = cli_value(c, "sort", w->top > 0 ? "total" : "start");
    const size_t key = cli_find_name(sort, sp_sort_key_names, SP_SORT_KEYS);
    if (key == SP_SORT_KEYS) return cli_fail("cannot sort by '%s' (see scope-profiler inspect --help)", sort);
    w->sort = (sp_sort_key)key;
    w->exclusive_mode = strcmp(mode, "exclusive") == 0;
    if (!w->exclusive_mode && strcmp(mode, "coverage") != 0) return cli_fail("'%s' is no percentage mode: coverage or exclusive", mode);
    if (cli_flag(c, "metadata-only") && cli_flag(c, "regions-only")) return cli_fail("--metadata-only and --regions-only exclude each other");
    return read_columns(cli_option_of(c, "columns"), w);
}

/* Show only these names, if they are not all of the chosen ones. */
static bool narrow(const sp_profile *profile, const uint32_t *names, size_t count, cli_chosen *chosen)
{
    bool *visible = calloc(profile->name_count + 1, sizeof *visible);
    if (visible == NULL) return false;
    for (size_t i = 0; i < count; i++) visible[names[i]] = true;
    free(chosen->visible);
    chosen->selection.visible = chosen->visible = visible;
    return true;
}

static int print_tables(const cli *c, const sp_profile *profile, const wanted *w, const cli_chosen *chosen, sp_text *out)
{
    const bool regions_only = cli_flag(c, "regions-only");
    sp_error error = {0};
    if (chosen->any) {
        const sp_region_table table = {.selection = chosen->selection, .columns = w->columns, .column_count = w->column_count,
                                       .sort = w->sort, .exclusive_mode = w->exclusive_mode};
        const sp_status status = sp_report_regions(profile, &table, out, &error);
        if (status != SP_OK) return cli_fail_text(error.message);
    } else {
        sp_text_add(out, profile->row_count == 0 ? "  (no regions)\n" : "  (no region matches)\n");
    }
    if (regions_only) return 0;
    sp_report_processes(profile, &chosen->selection, c->width, out);
    const sp_status status = sp_report_threads(profile, &chosen->selection, w->top, c->width, out, &error);
    if (status != SP_OK) return cli_fail_text(error.message);
    sp_report_tasks(profile, &chosen->selection, w->top, c->width, out);
    sp_report_counters(profile, &chosen->selection, out);
    return 0;
}

/* 0; CLI_NO when something that was asked for is not there; CLI_USAGE. */
static int print_profile(const cli *c, const sp_profile *profile, const char *path, const wanted *w, sp_text *out)
{
    cli_chosen chosen;
    uint32_t *names = NULL;
    size_t count = 0, all = 0;
    bool complete = true;
    sp_error error = {0};
    int code = cli_choose(c, profile, path, &chosen);
    if (code == 0 && sp_regions_sorted(profile, &chosen.selection, w->sort, 0, &names, &all, &error) != SP_OK) {
        code = cli_fail_text(error.message);
    }
    count = w->top > 0 && (size_t)w->top < all ? (size_t)w->top : all;
    if (code == 0 && count < all && !narrow(profile, names, count, &chosen)) code = cli_no_memory();
    if (code == 0) {
        sp_report_banner(profile, path, cli_file_size(path), c->width, out);
        if (!cli_flag(c, "regions-only") && !cli_flag(c, "tree")) sp_report_metadata(profile, cli_flag(c, "full"), out);
        if (cli_flag(c, "tree")) {
            const sp_status status = sp_report_tree(profile, names, count, &chosen.selection, (size_t)w->depth, w->top, c->width, out,
                                                    &complete, &error);
            if (status != SP_OK) code = cli_fail_text(error.message);
        } else if (!cli_flag(c, "metadata-only")) {
            code = print_tables(c, profile, w, &chosen, out);
        }
    }
    const cli_values *sources = cli_option_of(c, "source");
    if (code == 0 && sources->count) complete = sp_report_source(profile, sources->items, sources->count, out) && complete;
    free(names);
    cli_chosen_free(&chosen);
    return code ? code : complete ? 0 : CLI_NO;
}

static int inspect_file(const cli *c, const char *path, const wanted *w, bool first)
{
    sp_profile *profile;
    sp_text out = {0};
    int code = cli_load(path, &profile);
    if (code) return code;
    if (!cli_flag(c, "quiet") && !cli_closed()) {
        if (!first) sp_text_add(&out, "\n");
        code = print_profile(c, profile, path, w, &out);
    }
    if (code == CLI_USAGE) sp_text_free(&out);
    const int printed = cli_print(c, &out);
    sp_profile_release(profile);
    return printed ? printed : code;
}

static int run(cli *c)
{
    wanted w;
    cli_paths paths = {0};
    int result = read_options(c, &w);
    if (result == 0) result = cli_expand(c->operands, c->operand_count, &paths);
    for (size_t i = 0; result != CLI_USAGE && i < paths.count; i++) {
        const int code = inspect_file(c, paths.paths[i], &w, i == 0);
        if (code) result = code;
    }
    cli_paths_free(&paths);
    free(w.columns);
    return result;
}

const cli_command cli_inspect = {
    .name = "inspect",
    .summary = "print regions, threads, tasks and metadata of profiles",
    .description = "Print the metadata, regions, threads and tasks of profiles. Times are in seconds",
    .operands = "FILE ...",
    .least = 1,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
