/* choose.c - --include, --exclude and --ranks: patterns are regular expressions as Perl and Python have them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/grow.h"
#include "core/sort.h"

#define RANKS_MOST 10000000

typedef struct patterns {
    pcre2_code **codes;
    size_t count;
    pcre2_match_data *match;
} patterns;

static void free_patterns(patterns *p)
{
    for (size_t i = 0; i < p->count; i++) pcre2_code_free(p->codes[i]);
    free(p->codes);
    pcre2_match_data_free(p->match);
}

static int compile(const cli_values *values, patterns *out)
{
    *out = (patterns){.codes = calloc(values->count + 1, sizeof *out->codes), .match = pcre2_match_data_create(1, NULL)};
    if (out->codes == NULL || out->match == NULL) return cli_no_memory();
    for (size_t i = 0; i < values->count; i++) {
        int number;
        PCRE2_SIZE place;
        PCRE2_UCHAR why[200] = "";
        out->codes[i] = pcre2_compile((PCRE2_SPTR)values->items[i], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                                      &number, &place, NULL);
        if (out->codes[i] == NULL) {
            pcre2_get_error_message(number, why, sizeof why);
            return cli_fail("'%s' is not a regular expression: %s at position %zu", values->items[i], (const char *)why, (size_t)place);
        }
        out->count++;
    }
    return 0;
}

static bool matches(const patterns *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++) {
        if (pcre2_match(p->codes[i], (PCRE2_SPTR)name, strlen(name), 0, 0, p->match, NULL) >= 0) return true;
    }
    return false;
}

static int choose_names(const cli *c, const sp_profile *profile, cli_chosen *out)
{
    const cli_values *include = cli_option_of(c, "include"), *exclude = cli_option_of(c, "exclude");
    if (include->count == 0 && exclude->count == 0) return 0;
    patterns wanted, unwanted = {0};
    int code = compile(include, &wanted);
    if (code == 0) code = compile(exclude, &unwanted);
    out->visible = code == 0 ? malloc((profile->name_count + 1) * sizeof *out->visible) : NULL;
    if (code == 0 && out->visible == NULL) code = cli_no_memory();
    for (size_t i = 0; code == 0 && i < profile->name_count; i++) {
        const char *name = profile->names[i];
        out->visible[i] = (include->count == 0 || matches(&wanted, name)) && !matches(&unwanted, name);
    }
    free_patterns(&wanted);
    free_patterns(&unwanted);
    return code;
}

/* -- ranks -- */

/* "2", "0-3" or "1,3": calls `add` for each. False: it is something else. */
static bool read_ranks(const char *text, uint32_t **ranks, size_t *count, size_t *room)
{
    for (;;) {
        char *end;
        text += strspn(text, " ");
        if (*text < '0' || *text > '9') return false;
        const unsigned long low = strtoul(text, &end, 10);
        unsigned long high = low;
        if (*end == '-') {
            text = end + 1;
            if (*text < '0' || *text > '9') return false;
            high = strtoul(text, &end, 10);
        }
        if (high < low || high - low > RANKS_MOST || high > UINT32_MAX) return false;
        for (unsigned long rank = low; rank <= high; rank++) {
            if (!sp_grow(ranks, room, *count, sizeof **ranks, 16)) return false;
            (*ranks)[(*count)++] = (uint32_t)rank;
        }
        end += strspn(end, " ");
        if (*end == '\0') return true;
        if (*end != ',') return false;
        text = end + 1;
    }
}

static int by_number(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static int choose_ranks(const cli *c, const sp_profile *profile, const char *path, cli_chosen *out)
{
    const cli_values *given = cli_option_of(c, "ranks");
    size_t count = 0, room = 0, kept = 0;
    for (size_t i = 0; i < given->count; i++) {
        if (!read_ranks(given->items[i], &out->ranks, &count, &room)) {
            return cli_fail("'%s' is not a list of ranks (as in 0 2, 0-3 or 1,3)", given->items[i]);
        }
    }
    if (count == 0) return 0;
    sp_sort(out->ranks, count, sizeof *out->ranks, by_number);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || out->ranks[i] != out->ranks[i - 1]) out->ranks[kept++] = out->ranks[i];
    }
    const int64_t ranks = sp_profile_ranks(profile);
    if ((int64_t)out->ranks[0] >= ranks) return cli_fail("%s: no such rank (it has %lld)", path, (long long)ranks);
    out->selection.ranks = out->ranks;
    out->selection.rank_count = kept;
    return 0;
}

int cli_choose(const cli *c, const sp_profile *profile, const char *path, cli_chosen *out)
{
    *out = (cli_chosen){0};
    int code = choose_names(c, profile, out);
    if (code == 0) code = choose_ranks(c, profile, path, out);
    out->selection.visible = out->visible;
    for (size_t i = 0; code == 0 && i < profile->row_count; i++) {
        out->any |= sp_selection_has_row(&out->selection, &profile->rows[i]);
    }
    return code;
}

void cli_chosen_free(cli_chosen *chosen)
{
    free(chosen->visible);
    free(chosen->ranks);
    *chosen = (cli_chosen){0};
}
