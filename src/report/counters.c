/* counters.c - counts of perf events by region. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "core/sort.h"
#include "report/report.h"
#include "report/table.h"

#define SHOWN 20                            /* regions */
#define EVENTS_MOST (SP_TABLE_COLUMNS - 3) /* beside rank, region and calls */

/* One region of a rank: what was counted. The texts and arrays are the profile's. */
typedef struct counted {
    uint32_t rank;
    char *name; /* owned */
    int64_t calls;
    const sp_array *names;
    const uint64_t *values;
    uint64_t count;   /* of values that have a name */
    uint64_t largest; /* of them */
    size_t order;
} counted;

typedef struct counts {
    counted *regions;
    size_t count, size;
    bool failed; /* out of memory */
} counts;

static const sp_array *array_named(const sp_array *arrays, size_t count, const char *name, sp_array_kind kind)
{
    for (size_t i = 0; i < count; i++) {
        if (arrays[i].kind == kind && strcmp(arrays[i].name, name) == 0) return &arrays[i];
    }
    return NULL;
}

static void add_region(counts *c, uint32_t rank, const sp_group *group, const char *name)
{
    const sp_array *values = array_named(group->datasets, group->dataset_count, "values", SP_ARRAY_UINT64);
    const sp_array *names = array_named(group->attributes, group->attribute_count, "event_names", SP_ARRAY_STRING);
    const sp_array *calls = array_named(group->attributes, group->attribute_count, "calls", SP_ARRAY_INT64);
    if (values == NULL) return;
    if (!sp_grow(&c->regions, &c->size, c->count, sizeof *c->regions, 16)) {
        c->failed = true;
        return;
    }
    counted one = {.rank = rank, .name = strdup(name), .names = names, .values = values->data, .order = c->count};
    const uint64_t named = names ? sp_array_size(names) : 0, there = sp_array_size(values);
    one.count = named < there ? named : there;
    one.calls = calls && sp_array_size(calls) ? ((const int64_t *)calls->data)[0] : 0;
    for (uint64_t i = 0; i < one.count; i++) {
        if (one.values[i] > one.largest) one.largest = one.values[i];
    }
    c->failed = c->failed || one.name == NULL;
    if (one.name) c->regions[c->count++] = one;
}

/* A region with a slash in its name may be a group inside a group. */
static void add_group(counts *c, uint32_t rank, const sp_group *group, const char *prefix)
{
    for (size_t i = 0; i < group->group_count && !c->failed; i++) {
        sp_text name = {0};
        sp_text_add(&name, prefix);
        sp_text_add(&name, group->groups[i].name);
        if (!name.failed) add_region(c, rank, &group->groups[i], name.data ? name.data : "");
        sp_text_add(&name, "/");
        if (!name.failed) add_group(c, rank, &group->groups[i], name.data);
        c->failed = c->failed || name.failed;
        sp_text_free(&name);
    }
}

static void find_counts(const sp_profile *profile, const sp_selection *selection, counts *c)
{
    for (size_t i = 0; i < profile->aux_count; i++) {
        const sp_rank_aux *aux = &profile->aux[i];
        if (!sp_selection_has_rank(selection, aux->rank)) continue;
        for (size_t k = 0; k < aux->root.group_count; k++) {
            if (strcmp(aux->root.groups[k].name, "perf_events") == 0) add_group(c, aux->rank, &aux->root.groups[k], "");
        }
    }
}

static bool is_shown(const sp_profile *profile, const bool *chosen, const char *name)
{
    for (size_t i = 0; i < profile->name_count; i++) {
        if (chosen[i] && strcmp(profile->names[i], name) == 0) return true;
    }
    return false;
}

static void keep_shown(const sp_profile *profile, const sp_selection *selection, counts *c)
{
    bool *chosen = calloc(profile->name_count + 1, sizeof *chosen);
    size_t kept = 0;
    c->failed = c->failed || chosen == NULL;
    for (size_t i = 0; chosen && i < profile->row_count; i++) {
        if (sp_selection_has_row(selection, &profile->rows[i])) chosen[profile->rows[i].name] = true;
    }
    for (size_t i = 0; chosen && i < c->count; i++) {
        if (is_shown(profile, chosen, c->regions[i].name)) c->regions[kept++] = c->regions[i];
        else free(c->regions[i].name);
    }
    if (chosen) c->count = kept;
    free(chosen);
}

static int by_rank(const void *left, const void *right)
{
    const counted *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static int by_largest(const void *left, const void *right)
{
    const counted *a = left, *b = right;
    if (a->largest != b->largest) return a->largest > b->largest ? -1 : 1;
    return by_rank(a, b);
}

static const char *event_of(const counted *one, uint64_t at)
{
    return ((char *const *)one->names->data)[at];
}

/* The events of all, in the order in which they come. */
static size_t find_events(const counts *c, const char *events[EVENTS_MOST])
{
    size_t count = 0;
    for (size_t i = 0; i < c->count; i++) {
        for (uint64_t k = 0; k < c->regions[i].count && count < EVENTS_MOST; k++) {
            const char *event = event_of(&c->regions[i], k);
            size_t at = 0;
            while (at < count && strcmp(events[at], event) != 0) at++;
            if (at == count) events[count++] = event;
        }
    }
    return count;
}

/* With a comma before each three digits. */
static void grouped_cell(sp_table *table, uint64_t value)
{
    char digits[24], text[32], *to = text;
    const int size = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    for (int i = 0; i < size; i++) {
        if (i && (size - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    sp_table_cell(table, text);
}

/* Of an event that is named twice the last count is shown. */
static void event_cell(sp_table *table, const counted *one, const char *event)
{
    for (uint64_t i = one->count; i-- > 0;) {
        if (strcmp(event_of(one, i), event) != 0) continue;
        grouped_cell(table, one->values[i]);
        return;
    }
    sp_table_cell(table, "-");
}

static void text_cell(sp_table *table, sp_text *text)
{
    table->failed |= text->failed;
    sp_table_cell(table, text->data ? text->data : "");
    sp_text_free(text);
}

static void write_counts(counts *c, sp_text *out)
{
    const char *events[EVENTS_MOST];
    sp_text titles[EVENTS_MOST] = {{0}};
    sp_table table = {0};
    sp_sort(c->regions, c->count, sizeof *c->regions, by_rank);
    const size_t event_count = find_events(c, events);
    const bool ranked = c->regions[0].rank != c->regions[c->count - 1].rank;
    sp_sort(c->regions, c->count, sizeof *c->regions, by_largest);
    if (ranked) sp_table_column_add(&table, "rank", true, false);
    sp_table_column_add(&table, "region", false, false);
    sp_table_column_add(&table, "calls", true, false);
    for (size_t i = 0; i < event_count; i++) {
        sp_text_printable(&titles[i], events[i]);
        table.failed |= titles[i].failed;
        sp_table_column_add(&table, titles[i].data ? titles[i].data : "", true, false);
    }
    for (size_t i = 0; i < c->count && i < SHOWN; i++) {
        const counted *one = &c->regions[i];
        sp_text calls = {0};
        if (ranked) sp_table_format(&table, "%u", one->rank);
        sp_table_name(&table, one->name);
        sp_text_count(&calls, (unsigned long long)one->calls);
        text_cell(&table, &calls);
        for (size_t k = 0; k < event_count; k++) event_cell(&table, one, events[k]);
    }
    sp_text_add(out, "  Events, those of the calls inside included (clocks in ns)\n");
    sp_table_end(&table, out, 0);
    for (size_t i = 0; i < event_count; i++) sp_text_free(&titles[i]);
    if (c->count > SHOWN) sp_text_format(out, "  and %zu more with smaller counts\n", c->count - SHOWN);
    sp_text_add(out, "\n");
}

void sp_report_counters(const sp_profile *profile, const sp_selection *selection, sp_text *out)
{
    counts c = {0};
    find_counts(profile, selection, &c);
    if (c.count) keep_shown(profile, selection, &c);
    if (c.failed) out->failed = true;
    else if (c.count) write_counts(&c, out);
    for (size_t i = 0; i < c.count; i++) free(c.regions[i].name);
    free(c.regions);
}
