/* compare.c - diff and check: how two profiles differ, and whether the second keeps within what the first allows. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define METRICS_HELP "total (default), avg, min, max, p50, p95, p99, imbalance, calls, gpu_total, gpu_avg"

static const cli_option diff_options[] = {
    CLI_SELECTION_OPTIONS,
    {"metric", 0, CLI_VALUE, "METRIC", "what to compare: " METRICS_HELP},
    {"sort", 0, CLI_VALUE, "KEY", "largest difference first (delta, default), largest percentage (pct), name"},
    {"threshold", 0, CLI_VALUE, "PCT", "only regions that changed by at least this many percent"},
};

static const cli_option check_options[] = {
    {"max-regression", 0, CLI_VALUE, "PCT", "increase that is allowed, in percent (default: 0)"},
    CLI_SELECTION_OPTIONS,
    {"metric", 0, CLI_VALUE, "METRIC", "what to judge: " METRICS_HELP},
    {"fail-on-new", 0, CLI_FLAG, NULL, "a region that the baseline does not have is a failure too"},
};

typedef struct pair {
    sp_profile *a, *b;
    cli_chosen of_a, of_b;
    sp_metric metric;
    sp_changes changes;
} pair;

static void free_pair(pair *p)
{
    sp_changes_free(&p->changes);
    cli_chosen_free(&p->of_a);
    cli_chosen_free(&p->of_b);
    sp_profile_release(p->a);
    sp_profile_release(p->b);
}

static int load_pair(const cli *c, pair *p)
{
    const char *metric = cli_value(c, "metric", "total");
    *p = (pair){0};
    const size_t place = cli_find_name(metric, sp_metric_names, SP_METRICS);
    if (place == SP_METRICS) return cli_fail("cannot compare '%s' (see scope-profiler %s --help)", metric, c->command->name);
    p->metric = (sp_metric)place;
    int code = cli_load(c->operands[0], &p->a);
    if (code == 0) code = cli_load(c->operands[1], &p->b);
    if (code == 0) code = cli_choose(c, p->a, c->operands[0], &p->of_a);
    if (code == 0) code = cli_choose(c, p->b, c->operands[1], &p->of_b);
    sp_error error = {0};
    if (code == 0 && sp_compare(p->a, &p->of_a.selection, p->b, &p->of_b.selection, p->metric, &p->changes, &error) != SP_OK) {
        code = cli_fail_text(error.message);
    }
    return code;
}

/* A profile in one line: label, file, ranks. */
static void add_name(sp_text *out, const char *what, const sp_profile *profile, const char *path)
{
    const char *label = sp_profile_label(profile);
    const long long ranks = (long long)sp_profile_ranks(profile);
    sp_text_add(out, what);
    if (label) {
        sp_text_printable(out, label);
        sp_text_add(out, " - ");
    }
    sp_text_printable(out, path);
    sp_text_format(out, " (%lld rank%s)\n", ranks, ranks == 1 ? "" : "s");
}

static size_t count_unmeasured(const sp_changes *changes, const char **first)
{
    size_t count = 0;
    for (size_t i = 0; i < changes->count; i++) {
        if (!sp_change_unmeasured(&changes->changes[i])) continue;
        if (count++ == 0) *first = changes->changes[i].name;
    }
    return count;
}

static void keep_above(sp_changes *changes, double threshold)
{
    size_t kept = 0;
    for (size_t i = 0; i < changes->count; i++) {
        const sp_change *change = &changes->changes[i];
        const double percent = change->percent < 0 ? -change->percent : change->percent;
        if (!change->has_percent || percent >= threshold) changes->changes[kept++] = *change;
    }
    changes->count = kept;
}

static int run_diff(cli *c)
{
    static const char *const orders[] = {"delta", "pct", "name"};
    const char *sort = cli_value(c, "sort", "delta"), *threshold = cli_value(c, "threshold", NULL), *first = "";
    double least = 0;
    const size_t order = cli_find_name(sort, orders, 3);
    if (order == 3) return cli_fail("cannot sort by '%s': delta, pct or name", sort);
    if (threshold && !cli_parse_percentage(threshold, &least)) return cli_fail("'%s' is not a percentage of 0 or more", threshold);
    pair p;
    int code = load_pair(c, &p);
    if (code == 0) {
        sp_text out = {0};
        const size_t missing = count_unmeasured(&p.changes, &first);
        const size_t rule = c->width && c->width < 78 ? c->width : 78;
        if (threshold) keep_above(&p.changes, least);
        sp_changes_sort(&p.changes, (sp_change_order)order);
        sp_text_repeat(&out, "=", rule);
        add_name(&out, "\na: ", p.a, c->operands[0]);
        add_name(&out, "b: ", p.b, c->operands[1]);
        sp_text_repeat(&out, "=", rule);
        sp_text_format(&out, "\n\nRegions (%zu)\n", p.changes.count);
        sp_report_changes(&p.changes, p.metric, c->width, &out);
        if (missing) {
            sp_text_format(&out, "  Without %s in one of the profiles: %zu region(s), first '", sp_metric_names[p.metric], missing);
            sp_text_printable(&out, first);
            sp_text_add(&out, "'\n");
        }
        code = cli_print(c, &out);
    }
    free_pair(&p);
    return code;
}

/* Why nothing can be judged; 0: something can. */
static int refuse(const cli *c, const pair *p, bool fail_on_new)
{
    bool common = fail_on_new && p->changes.count > 0;
    const char *first = "";
    for (size_t i = 0; i < p->changes.count; i++) common |= p->changes.changes[i].in_a && p->changes.changes[i].in_b;
    if (!common) return cli_fail("nothing to check: %s and %s have no such region in common", c->operands[0], c->operands[1]);
    const size_t missing = count_unmeasured(&p->changes, &first);
    if (missing == 0) return 0;
    return cli_fail("cannot check %s: %zu region(s) have none in %s or %s, first '%s'", sp_metric_names[p->metric], missing,
                    c->operands[0], c->operands[1], first);
}

static bool add_violations(const sp_changes *changes, double budget, bool fail_on_new, sp_text *out)
{
    bool any = false;
    for (size_t i = 0; i < changes->count; i++) {
        if (!sp_change_breaks(&changes->changes[i], budget, fail_on_new)) continue;
        sp_text_add(out, any ? ", " : "Budget violations: ");
        sp_text_name(out, changes->changes[i].name);
        any = true;
    }
    if (any) sp_text_add(out, "\n");
    return any;
}

static int run_check(cli *c)
{
    const char *allowed = cli_value(c, "max-regression", "0");
    const bool fail_on_new = cli_flag(c, "fail-on-new");
    double budget;
    if (!cli_parse_percentage(allowed, &budget)) return cli_fail("'%s' is not a percentage of 0 or more", allowed);
    pair p;
    int code = load_pair(c, &p);
    if (code == 0) code = refuse(c, &p, fail_on_new);
    if (code == 0) {
        sp_text out = {0}, violations = {0};
        const bool broken = add_violations(&p.changes, budget, fail_on_new, &violations);
        sp_changes_sort(&p.changes, SP_CHANGES_BY_PERCENT);
        add_name(&out, "Baseline: ", p.a, c->operands[0]);
        add_name(&out, "Candidate: ", p.b, c->operands[1]);
        sp_text_format(&out, "Regression budget: +%g%% (%s)\n", budget, sp_metric_names[p.metric]);
        sp_text_format(&out, "Regression check: %s\n", broken ? "FAIL" : "PASS");
        sp_report_changes(&p.changes, p.metric, c->width, &out);
        if (broken) sp_text_add(&out, violations.data);
        out.failed |= violations.failed;
        sp_text_free(&violations);
        code = cli_print(c, &out);
        if (code == 0 && broken) code = CLI_NO;
    }
    free_pair(&p);
    return code;
}

const cli_command cli_diff = {
    .name = "diff",
    .summary = "compare the regions of two profiles",
    .description = "Compare the regions of two profiles: A is the baseline, B what it is compared with",
    .operands = "A B",
    .least = 2,
    .most = 2,
    .options = diff_options,
    .option_count = sizeof diff_options / sizeof *diff_options,
    .run = run_diff,
};

const cli_command cli_check = {
    .name = "check",
    .summary = "fail when a profile is slower than a baseline allows",
    .description = "Exit with 1 when a region of B is more than --max-regression percent above the same region of A. What cannot be "
                   "judged, because no region matches or a profile lacks the metric, exits with 2: it never passes",
    .operands = "A B",
    .least = 2,
    .most = 2,
    .options = check_options,
    .option_count = sizeof check_options / sizeof *check_options,
    .run = run_check,
};
