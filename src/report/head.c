/* head.c - what a profile says about itself: the banner and the metadata. */
#include <stdlib.h>
#include <string.h>

#include "analysis/wrap.h"
#include "core/sort.h"
#include "report/report.h"

#define RULE 78
#define VALUE_COLUMNS 72

bool sp_selection_has_rank(const sp_selection *selection, uint32_t rank)
{
    for (size_t i = 0; i < selection->rank_count; i++) {
        if (selection->ranks[i] == rank) return true;
    }
    return selection->rank_count == 0;
}

bool sp_selection_has_row(const sp_selection *selection, const sp_row *row)
{
    return (selection->visible == NULL || selection->visible[row->name]) && sp_selection_has_rank(selection, row->rank);
}

static bool metadata_int(const sp_profile *profile, const char *key, int64_t *value)
{
    const sp_metadata *found = sp_profile_find_metadata(profile, key);
    if (found == NULL || (found->kind != SP_VALUE_INT && found->kind != SP_VALUE_BOOL)) return false;
    *value = found->integer;
    return true;
}

int64_t sp_profile_ranks(const sp_profile *profile)
{
    int64_t ranks = 0;
    metadata_int(profile, "mpi_size", &ranks);
    for (size_t i = 0; i < profile->row_count; i++) {
        if ((int64_t)profile->rows[i].rank >= ranks) ranks = (int64_t)profile->rows[i].rank + 1;
    }
    return ranks;
}

const char *sp_profile_label(const sp_profile *profile)
{
    const sp_metadata *found = sp_profile_find_metadata(profile, "label");
    return found && found->kind == SP_VALUE_STRING && found->text && *found->text ? found->text : NULL;
}

/* -- banner -- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static size_t count_regions(const sp_profile *profile)
{
    bool *seen = calloc(profile->name_count + 1, sizeof *seen);
    size_t count = 0;
    for (size_t i = 0; seen && i < profile->row_count; i++) {
        count += !seen[profile->rows[i].name];
        seen[profile->rows[i].name] = true;
    }
    free(seen);
    return count;
}

static void add_fact(sp_text *out, unsigned long long count, const char *noun)
{
    if (out->size) sp_text_add(out, ", ");
    sp_text_format(out, "%llu %s%s", count, noun, count == 1 ? "" : "s");
}

static void add_size(sp_text *out, int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB"};
    double size = (double)bytes;
    for (int i = 0; i < 3; i++, size /= 1024) {
        if (size >= 1024) continue;
        sp_text_format(out, i == 0 ? ", %.0f %s" : ", %.1f %s", size, units[i]);
        return;
    }
    sp_text_format(out, ", %.1f GiB", size);
}

/* From the first start to the last end. */
static int64_t span_of(const sp_profile *profile)
{
    const int64_t *starts = profile->columns[SP_COLUMN_START], *ends = profile->columns[SP_COLUMN_END];
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (uint64_t i = 0; starts && ends && i < profile->call_count; i++) {
        if (starts[i] < first) first = starts[i];
        if (ends[i] > last) last = ends[i];
    }
    for (size_t i = 0; i < profile->row_count; i++) { /* rows that are sums, or were read without their calls */
        const sp_row *row = &profile->rows[i];
        if ((starts && !row->has_aggregate) || !row->has_statistics || sp_row_calls(row) == 0) continue;
        if (row->statistics.start_minimum < first) first = row->statistics.start_minimum;
        if (row->statistics.end_maximum > last) last = row->statistics.end_maximum;
    }
    return first == INT64_MAX ? 0 : sp_minus(last, first);
}

static void write_rule(size_t width, sp_text *out)
{
    sp_text_repeat(out, "=", width && width < RULE ? width : RULE);
    sp_text_add(out, "\n");
}

void sp_report_banner(const sp_profile *profile, const char *path, int64_t size, size_t width, sp_text *out)
{
    const char *label = sp_profile_label(profile);
    sp_text facts = {0};
    const uint64_t calls = sp_profile_calls(profile);
    add_fact(&facts, (unsigned long long)sp_profile_ranks(profile), "rank");
    add_fact(&facts, count_regions(profile), "region");
    add_fact(&facts, calls, "call");
    if (profile->thread_count) add_fact(&facts, profile->thread_count, "thread");
    if (profile->task_count) add_fact(&facts, profile->task_count, "task");
    if (size >= 0) add_size(&facts, size);
    if (calls) sp_text_format(&facts, ", %.6g s from first call to last", (double)span_of(profile) / 1e9);
    int64_t start, end;
    if (metadata_int(profile, "start_time_ns", &start) && metadata_int(profile, "finalize_time_ns", &end)) {
        sp_text_format(&facts, ", %.6g s in all", (double)sp_minus(end, start) / 1e9);
    }
    write_rule(width, out);
    if (label) {
        sp_text_printable(out, label);
        sp_text_add(out, " - ");
    }
    sp_text_printable(out, base_name(path));
    sp_text_add(out, "\n");
    sp_text_add(out, facts.data ? facts.data : "");
    sp_text_add(out, "\n");
    write_rule(width, out);
    sp_text_add(out, "\n");
    out->failed |= facts.failed;
    sp_text_free(&facts);
}

/* -- metadata -- */

typedef struct section {
    const char *title;
    const char *keys[8];
} section;

static const section sections[] = {
    {"Run", {"label", "timestamp", "start_time_ns", "finalize_time_ns", "scope_profiler_version", "python_version", "source"}},
    {"System", {"hostname", "user", "platform", "uname", "chip_information", "working_directory"}},
    {"Parallelism", {"mpi_size", "num_nodes", "omp_num_threads", "total_cores"}},
};
#define SECTIONS (sizeof sections / sizeof *sections)

static bool is_known(const char *key)
{
    for (size_t s = 0; s < SECTIONS; s++) {
        for (const char *const *known = sections[s].keys; *known; known++) {
            if (strcmp(*known, key) == 0) return true;
        }
    }
    return false;
}

static void write_value(const sp_metadata *entry, sp_text *out)
{
    switch (entry->kind) {
    case SP_VALUE_INT: sp_text_format(out, "%lld", (long long)entry->integer); return;
    case SP_VALUE_BOOL: sp_text_add(out, entry->integer ? "True" : "False"); return;
    case SP_VALUE_FLOAT:
        if (entry->real - entry->real == 0.0) sp_text_double(out, entry->real);
        else sp_text_add(out, "None");
        return;
    case SP_VALUE_STRING: sp_text_printable(out, entry->text ? entry->text : ""); return;
    case SP_VALUE_STRINGS:
        for (size_t i = 0; i < entry->size; i++) {
            if (i) sp_text_add(out, ", ");
            sp_text_printable(out, entry->list[i]);
        }
    }
}

static void write_entry(const sp_metadata *entry, size_t width, bool full, sp_text *out)
{
    sp_text key = {0}, value = {0};
    sp_text_printable(&key, entry->key);
    write_value(entry, &value);
    const char *text = value.data ? value.data : "", *name = key.data ? key.data : "";
    const size_t columns = sp_columns(name, key.size);
    sp_text_format(out, "    %s", name);
    sp_text_repeat(out, " ", width > columns ? width - columns : 0);
    sp_text_add(out, " : ");
    if (full) sp_text_add(out, text);
    else sp_text_cut(out, text, VALUE_COLUMNS, false);
    sp_text_add(out, "\n");
    out->failed |= key.failed || value.failed;
    sp_text_free(&key);
    sp_text_free(&value);
}

static int by_key(const void *left, const void *right)
{
    return strcmp((*(const sp_metadata *const *)left)->key, (*(const sp_metadata *const *)right)->key);
}

static size_t key_columns(const sp_profile *profile)
{
    size_t widest = 0;
    for (size_t i = 0; i < profile->metadata_count; i++) {
        sp_text key = {0};
        sp_text_printable(&key, profile->metadata[i].key);
        const size_t columns = sp_columns(key.data ? key.data : "", key.size);
        if (columns > widest) widest = columns;
        sp_text_free(&key);
    }
    return widest;
}

void sp_report_metadata(const sp_profile *profile, bool full, sp_text *out)
{
    if (profile->metadata_count == 0) {
        sp_text_add(out, "Metadata: none\n\n");
        return;
    }
    const sp_metadata **others = malloc((profile->metadata_count + 1) * sizeof *others);
    if (others == NULL) {
        out->failed = true;
        return;
    }
    const size_t width = key_columns(profile);
    sp_text_add(out, "Metadata\n");
    for (size_t s = 0; s < SECTIONS; s++) {
        bool titled = false;
        for (const char *const *key = sections[s].keys; *key; key++) {
            const sp_metadata *entry = sp_profile_find_metadata(profile, *key);
            if (entry == NULL) continue;
            if (!titled) sp_text_format(out, "  %s\n", sections[s].title);
            titled = true;
            write_entry(entry, width, full, out);
        }
    }
    size_t count = 0;
    for (size_t i = 0; i < profile->metadata_count; i++) {
        if (!is_known(profile->metadata[i].key)) others[count++] = &profile->metadata[i];
    }
    sp_sort(others, count, sizeof *others, by_key);
    if (count) sp_text_add(out, "  Other\n");
    for (size_t i = 0; i < count; i++) write_entry(others[i], width, full, out);
    sp_text_add(out, "\n");
    free(others);
}

/* -- source -- */

/* Text as it stands in a file: a line each, tabs to every eighth column. */
static void write_lines(const char *text, sp_text *out)
{
    while (*text) {
        const size_t size = strcspn(text, "\n");
        size_t column = 0;
        sp_text line = {0};
        for (size_t i = 0; i < size; i++) {
            if (text[i] == '\r' && i + 1 == size) continue;
            const size_t blanks = text[i] == '\t' ? 8 - column % 8 : 0;
            if (blanks) sp_text_repeat(&line, " ", blanks);
            else sp_text_bytes(&line, text + i, 1);
            column += blanks ? blanks : ((unsigned char)text[i] & 0xc0) != 0x80;
        }
        sp_text_add(out, "    ");
        sp_text_printable(out, line.data ? line.data : "");
        sp_text_add(out, "\n");
        sp_text_free(&line);
        text += size + (text[size] == '\n');
    }
}

static bool write_source(const sp_profile *profile, const char *name, sp_text *out)
{
    const char *file = NULL, *text = NULL;
    int64_t line = SP_UNKNOWN;
    bool found = false;
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (strcmp(profile->names[row->name], name) != 0) continue;
        found = true;
        if (file == NULL && row->source_file && *row->source_file) file = row->source_file;
        if (line <= 0 && row->source_line > 0) line = row->source_line;
        if (text == NULL && row->source_text && *row->source_text) text = row->source_text;
    }
    sp_text_add(out, "  ");
    sp_text_printable(out, name);
    if (!found) {
        sp_text_add(out, ": no such region\n");
        return false;
    }
    sp_text_add(out, "  ");
    if (file) sp_text_printable(out, file);
    if (file && line > 0) sp_text_format(out, ":%lld", (long long)line);
    else sp_text_add(out, file ? ":None" : "place unknown");
    sp_text_add(out, "\n");
    if (text) write_lines(text, out);
    else sp_text_add(out, "    source not captured\n");
    return true;
}

bool sp_report_source(const sp_profile *profile, const char *const *names, size_t count, sp_text *out)
{
    bool complete = true;
    sp_text_format(out, "Source (%zu)\n", count);
    for (size_t i = 0; i < count; i++) complete = write_source(profile, names[i], out) && complete;
    sp_text_add(out, "\n");
    return complete;
}
