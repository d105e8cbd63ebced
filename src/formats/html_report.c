#include "formats/html_report.h"

#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/lane_events.h"
#include "analysis/path_summary.h"
#include "analysis/wrap.h"
#include "formats/event_items.h"

#define BLOCK_VALUES ((size_t)1 << 16)
#define BLOCK_BYTES (BLOCK_VALUES * sizeof(uint64_t))

typedef struct writer {
    sp_output *out;
    const sp_export *what; /* the run that is being written */
    size_t run;
    int64_t origin;
    struct libdeflate_compressor *compressor;
    uint64_t *values;   /* [BLOCK_VALUES] */
    uint8_t *bytes;     /* [BLOCK_BYTES] the same, byte by byte */
    char *packed;       /* room for a compressed block */
    size_t packed_size;
    size_t filled;
} writer;

/* -- JSON inside HTML -------------------------------------------------------------------------------------------------- */

static void write_out_of_memory(writer *w)
{
    sp_output_fail(w->out, SP_ERR_NO_MEMORY, "out of memory");
}

/* JSON text with "<" escaped. It occurs in strings only, where the escape stands for the same character. */
static void write_piece(writer *w, const char *json, size_t size)
{
    const char *const end = json + size;
    while (json < end) {
        const char *open = memchr(json, '<', (size_t)(end - json));
        sp_output_bytes(w->out, json, (size_t)((open ? open : end) - json));
        if (open == NULL) return;
        SP_OUTPUT_LITERAL(w->out, "\\u003c");
        json = open + 1;
    }
}

static void write_string(writer *w, const char *text)
{
    if (text == NULL) {
        SP_OUTPUT_LITERAL(w->out, "null");
        return;
    }
    char *quoted = sp_json_quoted(text);
    if (quoted) write_piece(w, quoted, strlen(quoted));
    else write_out_of_memory(w);
    free(quoted);
}

static void write_integer(writer *w, const char *before, int64_t value)
{
    sp_output_text(w->out, before);
    sp_output_integer(w->out, value);
}

/* ",value", or null for what is not known. */
static void write_known(writer *w, int64_t value)
{
    if (value == SP_UNKNOWN) SP_OUTPUT_LITERAL(w->out, ",null");
    else write_integer(w, ",", value);
}

static void write_real(writer *w, double value)
{
    sp_output_char(w->out, ',');
    sp_output_double(w->out, value);
}

static void write_text(writer *w, const char *text)
{
    sp_output_char(w->out, ',');
    write_string(w, text);
}

static int64_t since(int64_t at, int64_t origin)
{
    return (int64_t)((uint64_t)at - (uint64_t)origin);
}

/* -- tables of a run --------------------------------------------------------------------------------------------------- */

static bool is_chosen(const sp_export *what, uint32_t rank)
{
    for (size_t i = 0; i < what->rank_count; i++) {
        if (what->ranks[i] == rank) return true;
    }
    return false;
}

static bool row_is_chosen(const sp_export *what, const sp_row *row)
{
    return is_chosen(what, row->rank) && (what->visible == NULL || what->visible[row->name]);
}

/* A number of ns can be larger than what the viewer's numbers hold: integers are texts. */
static void write_metadata_value(writer *w, const sp_metadata *entry)
{
    switch (entry->kind) {
    case SP_VALUE_INT:
        write_integer(w, "\"", entry->integer);
        sp_output_char(w->out, '"');
        return;
    case SP_VALUE_FLOAT: sp_output_double(w->out, entry->real); return;
    case SP_VALUE_BOOL: sp_output_text(w->out, entry->integer ? "true" : "false"); return;
    case SP_VALUE_STRING: write_string(w, entry->text); return;
    case SP_VALUE_STRINGS:
        sp_output_char(w->out, '[');
        for (size_t i = 0; i < entry->size; i++) {
            if (i > 0) sp_output_char(w->out, ',');
            write_string(w, entry->list[i]);
        }
        sp_output_char(w->out, ']');
        return;
    }
}

static void write_metadata(writer *w)
{
    const sp_profile *profile = w->what->profile;
    SP_OUTPUT_LITERAL(w->out, ",\n\"metadata\":[");
    for (size_t i = 0; i < profile->metadata_count; i++) {
        sp_output_text(w->out, i ? ",[" : "[");
        write_string(w, profile->metadata[i].key);
        sp_output_char(w->out, ',');
        write_metadata_value(w, &profile->metadata[i]);
        sp_output_char(w->out, ']');
    }
    sp_output_char(w->out, ']');
}

static void write_names(writer *w)
{
    const sp_profile *profile = w->what->profile;
    SP_OUTPUT_LITERAL(w->out, ",\n\"names\":[");
    for (size_t i = 0; i < profile->name_count; i++) {
        if (i > 0) sp_output_char(w->out, ',');
        write_string(w, profile->names[i]);
    }
    sp_output_char(w->out, ']');
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* The source is the same on all ranks as a rule: then only the first row of a name has it. */
static void write_source(writer *w, const sp_row *row, const sp_row *first)
{
    const bool repeats = first && same_text(row->source_file, first->source_file) &&
                         row->source_line == first->source_line && same_text(row->source_text, first->source_text) &&
                         same_text(row->tags, first->tags);
    if (repeats || (row->source_file == NULL && row->source_text == NULL && row->tags == NULL)) {
        sp_output_text(w->out, repeats ? ",0" : ",null");
        return;
    }
    SP_OUTPUT_LITERAL(w->out, ",[");
    write_string(w, row->source_file);
    write_known(w, row->source_line);
    write_text(w, row->source_text);
    sp_output_char(w->out, ',');
    if (row->tags) write_piece(w, row->tags, strlen(row->tags));
    else SP_OUTPUT_LITERAL(w->out, "[]");
    sp_output_char(w->out, ']');
}

static int64_t column_sum(const sp_profile *profile, sp_column column, const sp_row *row)
{
    const int64_t *values = profile->columns[column];
    int64_t sum = 0;
    for (uint64_t i = row->first; values && i < row->first + row->count; i++) sum = sp_plus(sum, values[i] > 0 ? values[i] : 0);
    return values ? sum : SP_UNKNOWN;
}

static sp_status write_percentiles(writer *w, const sp_row *row, bool has_calls)
{
    double percentiles[SP_PERCENTILE_COUNT];
    const double *known = row->has_percentiles ? row->percentiles : NULL;
    if (!known && has_calls) {
        const sp_status status =
            sp_row_percentiles_compute(w->what->profile, row, sp_percentile_ranks, SP_PERCENTILE_COUNT, percentiles);
        if (status != SP_OK) return status;
        known = percentiles;
    }
    for (int i = 0; i < SP_PERCENTILE_COUNT; i++) {
        if (known) write_real(w, known[i]);
        else SP_OUTPUT_LITERAL(w->out, ",null");
    }
    return SP_OK;
}

/* name, rank, calls, total, min, max, mean, m2, first, last, start, end, p50, p95, p99, exclusive, await, gpu, source */
static sp_status write_row(writer *w, const sp_row *row, const sp_row *first)
{
    const sp_profile *profile = w->what->profile;
    const bool has_calls = !profile->summary_only && !row->has_aggregate && row->count > 0;
    sp_row_statistics statistics = row->statistics;
    if (!row->has_statistics && has_calls) sp_row_statistics_compute(profile, row, &statistics);
    const bool full = row->has_statistics || has_calls;
    write_integer(w, "[", row->name);
    write_integer(w, ",", row->rank);
    write_integer(w, ",", (int64_t)sp_row_calls(row));
    write_integer(w, ",", row->has_aggregate ? row->aggregate_total : statistics.total);
    write_integer(w, ",", row->has_aggregate ? row->aggregate_minimum : statistics.minimum);
    write_integer(w, ",", row->has_aggregate ? row->aggregate_maximum : statistics.maximum);
    if (full) {
        write_real(w, statistics.mean);
        write_real(w, statistics.m2);
        write_integer(w, ",", statistics.first);
        write_integer(w, ",", statistics.last);
        write_integer(w, ",", since(statistics.start_minimum, w->origin));
        write_integer(w, ",", since(statistics.end_maximum, w->origin));
    } else {
        SP_OUTPUT_LITERAL(w->out, ",null,null,null,null,null,null");
    }
    const sp_status status = write_percentiles(w, row, has_calls);
    write_known(w, row->has_aggregate ? row->aggregate_exclusive : row->exclusive_total);
    write_known(w, has_calls ? column_sum(profile, SP_COLUMN_AWAIT, row) : SP_UNKNOWN);
    write_known(w, full && statistics.gpu_count > 0 ? statistics.gpu_total : SP_UNKNOWN);
    write_source(w, row, first);
    sp_output_char(w->out, ']');
    return status;
}

static sp_status write_rows(writer *w)
{
    const sp_profile *profile = w->what->profile;
    const sp_row **first = calloc(profile->name_count + 1, sizeof(const sp_row *));
    if (first == NULL) return SP_ERR_NO_MEMORY;
    sp_status status = SP_OK;
    const char *separator = "";
    SP_OUTPUT_LITERAL(w->out, ",\n\"regions\":[");
    for (size_t i = 0; i < profile->row_count && status == SP_OK; i++) {
        const sp_row *row = &profile->rows[i];
        if (!row_is_chosen(w->what, row)) continue;
        sp_output_text(w->out, separator);
        separator = ",\n";
        status = write_row(w, row, first[row->name]);
        if (first[row->name] == NULL) first[row->name] = row;
    }
    sp_output_char(w->out, ']');
    free(first);
    return status;
}

/* Times of the lane tables count from the start of the run. */
static void write_moment(writer *w, int64_t at, int64_t start)
{
    write_known(w, at == SP_UNKNOWN ? SP_UNKNOWN : start + at);
}

/* rank, index, name, ident, native id, daemon, start, end, CPU */
static void write_threads(writer *w, int64_t start)
{
    const sp_profile *profile = w->what->profile;
    const char *separator = "[";
    SP_OUTPUT_LITERAL(w->out, ",\n\"threads\":[");
    for (size_t i = 0; i < profile->thread_count; i++) {
        const sp_thread_info *thread = &profile->threads[i];
        if (!is_chosen(w->what, thread->rank)) continue;
        write_integer(w, separator, thread->rank);
        separator = ",\n[";
        write_integer(w, ",", thread->index);
        write_text(w, thread->name);
        write_integer(w, ",\"", thread->ident); /* larger than what a double holds */
        write_integer(w, "\",\"", thread->native_id);
        sp_output_text(w->out, thread->daemon ? "\",true" : "\",false");
        write_moment(w, thread->start_ns, start);
        write_moment(w, thread->end_ns, start);
        write_known(w, sp_thread_run_cpu_ns(thread));
        sp_output_char(w->out, ']');
    }
    sp_output_char(w->out, ']');
}

/* rank, number of the process in the system (0: not known), name */
static void write_processes(writer *w)
{
    const sp_profile *profile = w->what->profile;
    const char *separator = "[";
    SP_OUTPUT_LITERAL(w->out, ",\n\"processes\":[");
    for (size_t i = 0; i < profile->process_count; i++) {
        const sp_process_info *process = &profile->processes[i];
        if (!is_chosen(w->what, process->rank)) continue;
        write_integer(w, separator, process->rank);
        separator = ",\n[";
        write_integer(w, ",", process->pid);
        write_text(w, process->name);
        sp_output_char(w->out, ']');
    }
    sp_output_char(w->out, ']');
}

/* rank, index, kind, name, coroutine, thread, created, done, steps, running, suspended, thread and task that made it */
static void write_tasks(writer *w, int64_t start)
{
    const sp_profile *profile = w->what->profile;
    const char *separator = "[";
    SP_OUTPUT_LITERAL(w->out, ",\n\"tasks\":[");
    for (size_t i = 0; i < profile->task_count; i++) {
        const sp_task_info *task = &profile->tasks[i];
        if (!is_chosen(w->what, task->rank)) continue;
        write_integer(w, separator, task->rank);
        separator = ",\n[";
        write_integer(w, ",", task->index);
        write_text(w, task->kind);
        write_text(w, task->name);
        write_text(w, task->coro_name);
        write_integer(w, ",", task->thread_index);
        write_moment(w, task->created_ns, start);
        write_moment(w, task->done_ns, start);
        write_integer(w, ",", task->steps);
        write_integer(w, ",", task->running_ns);
        write_integer(w, ",", task->suspended_ns);
        write_integer(w, ",", task->creator_thread);
        write_integer(w, ",", task->creator_task);
        sp_output_char(w->out, ']');
    }
    sp_output_char(w->out, ']');
}

/* nodes: name, parent; paths: node, rank, calls, inclusive, exclusive, covered */
static void write_paths(writer *w, const sp_path_summary *summary)
{
    SP_OUTPUT_LITERAL(w->out, ",\n\"nodes\":[");
    for (size_t i = 0; i < summary->node_count; i++) {
        write_integer(w, i ? ",[" : "[", summary->nodes[i].name);
        write_integer(w, ",", summary->nodes[i].parent);
        sp_output_char(w->out, ']');
    }
    SP_OUTPUT_LITERAL(w->out, "],\n\"paths\":[");
    for (size_t i = 0; i < summary->row_count; i++) {
        const sp_path_row *row = &summary->rows[i];
        write_integer(w, i ? ",[" : "[", row->node);
        write_integer(w, ",", row->rank);
        write_integer(w, ",", (int64_t)row->count);
        write_integer(w, ",", row->inclusive);
        write_known(w, row->exclusive);
        write_known(w, row->covered);
        sp_output_char(w->out, ']');
    }
    sp_output_char(w->out, ']');
}

/* usage: rank, thread, calls, covered. With the calls at hand the viewer makes the paths itself, of any part of them. */
static void write_path_summary(writer *w, const sp_path_summary *summary, bool with_paths)
{
    if (with_paths) write_paths(w, summary);
    SP_OUTPUT_LITERAL(w->out, ",\n\"usage\":[");
    for (size_t i = 0; i < summary->thread_count; i++) {
        const sp_thread_usage *usage = &summary->threads[i];
        write_integer(w, i ? ",[" : "[", usage->rank);
        write_integer(w, ",", usage->thread);
        write_integer(w, ",", (int64_t)usage->count);
        write_known(w, usage->covered);
        sp_output_char(w->out, ']');
    }
    sp_output_text(w->out, summary->nested ? "],\n\"nested\":true" : "],\n\"nested\":false");
    sp_output_text(w->out, summary->clamped ? ",\"clamped\":true" : ",\"clamped\":false");
}

static sp_status write_sums(writer *w, bool with_paths, sp_error *error)
{
    const sp_path_options options = {
        .visible = w->what->visible, .ranks = w->what->ranks, .rank_count = w->what->rank_count};
    sp_path_summary *summary;
    const sp_status status = sp_path_summary_make(w->what->profile, &options, &summary, error);
    if (status != SP_OK) return status;
    write_path_summary(w, summary, with_paths);
    sp_path_summary_free(summary);
    return SP_OK;
}

static sp_status write_run(writer *w, bool with_calls, sp_error *error)
{
    const sp_profile *profile = w->what->profile;
    int64_t start, first, end;
    const int64_t run_start = sp_profile_get_int(profile, "start_time_ns", &start) ? since(start, w->origin) : 0;
    if (!sp_calls_range(profile, w->what->ranks, w->what->rank_count, w->what->visible, &first, &end)) end = w->origin;
    SP_OUTPUT_LITERAL(w->out, "{\"name\":");
    write_string(w, w->what->name);
    write_integer(w, ",\"origin\":\"", w->origin);
    write_integer(w, "\",\"start\":", run_start);
    write_integer(w, ",\"end\":", since(end, w->origin));
    sp_output_text(w->out, profile->aggregate || profile->summary_only ? ",\"calls\":false" : ",\"calls\":true");
    sp_output_text(w->out, profile->has_threads ? ",\"tracked\":true" : ",\"tracked\":false");
    write_metadata(w);
    write_names(w);
    sp_status status = write_rows(w);
    if (status != SP_OK) return sp_fail(error, status, "out of memory for %zu regions", profile->row_count);
    write_processes(w);
    write_threads(w, run_start);
    write_tasks(w, run_start);
    status = write_sums(w, !with_calls, error);
    sp_output_char(w->out, '}');
    return status;
}

/* -- calls ------------------------------------------------------------------------------------------------------------- */

/* The calls of a rank as they are drawn. */
typedef struct layout {
    sp_tracks tracks;
    uint32_t *order;  /* numbers of calls: track by track, depth by depth, by start */
    uint32_t *parent; /* by place in `order`: place of the parent in the row above, from that row's first */
    struct layout_row {
        uint32_t depth;
        uint64_t first, count; /* into `order` */
    } *rows;
    size_t row_count, row_size;
} layout;

static void layout_free(layout *lay)
{
    sp_tracks_free(&lay->tracks);
    free(lay->order);
    free(lay->parent);
    free(lay->rows);
}

static bool layout_add_row(layout *lay, uint32_t depth)
{
    if (lay->row_count == lay->row_size) {
        const size_t size = 2 * lay->row_size + 64;
        struct layout_row *larger = realloc(lay->rows, size * sizeof *larger);
        if (larger == NULL) return false;
        lay->rows = larger;
        lay->row_size = size;
    }
    lay->rows[lay->row_count++] = (struct layout_row){.depth = depth};
    return true;
}

/* One pass over a track's calls: without `place`, count them by depth; else put them in their places. */
static sp_status walk_track(layout *lay, const sp_track *track, size_t first_row, bool place)
{
    sp_walk walk;
    sp_walk_event event;
    sp_status status;
    sp_walk_begin(&walk, &lay->tracks, track);
    while ((status = sp_walk_next(&walk, &event)) == SP_OK) {
        if (!event.opens) continue;
        const size_t depth = event.depth;
        if (first_row + depth == lay->row_count && !layout_add_row(lay, (uint32_t)depth)) {
            status = SP_ERR_NO_MEMORY;
            break;
        }
        struct layout_row *row = &lay->rows[first_row + depth];
        if (place) {
            const uint64_t at = row->first + row->count;
            lay->order[at] = event.number;
            lay->parent[at] = depth > 0 ? (uint32_t)(row[-1].count - 1) : 0; /* the last one that opened there encloses it */
        }
        row->count++;
    }
    sp_walk_end(&walk);
    return status == SP_ERR_NOT_FOUND ? SP_OK : status;
}

static sp_status lay_out_track(layout *lay, const sp_track *track)
{
    const size_t first_row = lay->row_count;
    sp_status status = walk_track(lay, track, first_row, false);
    uint64_t at = track->first;
    for (size_t i = first_row; i < lay->row_count; i++) {
        lay->rows[i].first = at;
        at += lay->rows[i].count;
        lay->rows[i].count = 0;
    }
    if (status == SP_OK) status = walk_track(lay, track, first_row, true);
    return status;
}

static void pack_block(writer *w)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *at = (const uint8_t *)w->packed;
    char text[4096];
    size_t used = 0;
    for (size_t left = w->packed_size; left > 0; at += 3) {
        const size_t taken = left < 3 ? left : 3;
        const uint32_t bits =
            (uint32_t)at[0] << 16 | (taken > 1 ? (uint32_t)at[1] << 8 : 0) | (taken > 2 ? (uint32_t)at[2] : 0);
        text[used++] = digits[bits >> 18];
        text[used++] = digits[bits >> 12 & 63];
        text[used++] = taken > 1 ? digits[bits >> 6 & 63] : '=';
        text[used++] = taken > 2 ? digits[bits & 63] : '=';
        left -= taken;
        if (used == sizeof text || left == 0) {
            sp_output_bytes(w->out, text, used);
            used = 0;
        }
    }
}

/* Write the values that were put: only the bytes that some value needs. */
static void end_block(writer *w)
{
    if (w->filled == 0) return;
    uint64_t every = 0;
    for (size_t i = 0; i < w->filled; i++) every |= w->values[i];
    unsigned planes = 0;
    while (planes < 8 && every >> (8 * planes) != 0) planes++;
    for (unsigned plane = 0; plane < planes; plane++) {
        uint8_t *const bytes = w->bytes + plane * w->filled;
        for (size_t i = 0; i < w->filled; i++) bytes[i] = (uint8_t)(w->values[i] >> (8 * plane));
    }
    write_integer(w, "\n", (int64_t)w->filled);
    write_integer(w, " ", planes);
    sp_output_char(w->out, ' ');
    if (planes > 0) {
        w->packed_size = libdeflate_zlib_compress(w->compressor, w->bytes, planes * w->filled, w->packed,
                                                  libdeflate_zlib_compress_bound(w->compressor, BLOCK_BYTES));
        pack_block(w);
    }
    w->filled = 0;
}

static void put(writer *w, uint64_t value)
{
    w->values[w->filled++] = value;
    if (w->filled == BLOCK_VALUES) end_block(w);
}

static void begin_column(writer *w, uint32_t rank, const char *column)
{
    write_integer(w, "<script type=\"text/plain\" data-run=\"", (int64_t)w->run);
    write_integer(w, "\" data-rank=\"", rank);
    SP_OUTPUT_LITERAL(w->out, "\" data-column=\"");
    sp_output_text(w->out, column);
    SP_OUTPUT_LITERAL(w->out, "\">");
}

static void end_element(writer *w)
{
    SP_OUTPUT_LITERAL(w->out, "\n</script>\n");
}

typedef enum drawn_column { GAP, DURATION, NAME, PARENT, AWAIT, GPU, DRAWN_COLUMN_COUNT } drawn_column;

static const char *const column_names[] = {"gap", "duration", "name", "parent", "await", "gpu"};

static void write_column_of_row(writer *w, const layout *lay, const struct layout_row *row, drawn_column column)
{
    const int64_t *awaits = w->what->profile->columns[SP_COLUMN_AWAIT], *gpu = w->what->profile->columns[SP_COLUMN_GPU];
    int64_t end = w->origin;
    uint32_t parent = 0;
    for (uint64_t i = row->first; i < row->first + row->count; i++) {
        if (column == PARENT) {
            put(w, lay->parent[i] - parent);
            parent = lay->parent[i];
            continue;
        }
        const sp_call call = sp_tracks_call(&lay->tracks, lay->order[i]);
        switch (column) {
        case GAP: put(w, (uint64_t)call.start_ns - (uint64_t)end); break;
        case DURATION: put(w, (uint64_t)call.end_ns - (uint64_t)call.start_ns); break;
        case NAME: put(w, call.row->name); break;
        case AWAIT: put(w, awaits[call.column] > 0 ? (uint64_t)awaits[call.column] : 0); break;
        default: put(w, gpu[call.column] >= 0 ? (uint64_t)gpu[call.column] + 1 : 0);
        }
        end = call.end_ns;
    }
}

static void write_columns(writer *w, const layout *lay, uint32_t rank)
{
    for (drawn_column column = GAP; column < DRAWN_COLUMN_COUNT; column++) {
        if (column == AWAIT && w->what->profile->columns[SP_COLUMN_AWAIT] == NULL) continue;
        if (column == GPU && w->what->profile->columns[SP_COLUMN_GPU] == NULL) continue;
        begin_column(w, rank, column_names[column]);
        for (size_t i = 0; i < lay->row_count; i++) write_column_of_row(w, lay, &lay->rows[i], column);
        end_block(w);
        end_element(w);
    }
}

static bool any_metadata(const sp_profile *profile, uint32_t rank)
{
    for (size_t i = 0; i < profile->row_count; i++) {
        if (profile->rows[i].rank == rank && profile->rows[i].event_metadata) return true;
    }
    return false;
}

static sp_status write_call_metadata(writer *w, const layout *lay, uint32_t rank, sp_error *error)
{
    if (!any_metadata(w->what->profile, rank)) return SP_OK;
    sp_event_items items;
    const sp_status status = sp_event_items_make(&items, w->what->profile, rank, error);
    if (status != SP_OK) return status;
    begin_column(w, rank, "metadata");
    for (uint64_t i = 0; i < lay->tracks.rank_calls.call_count; i++) {
        const sp_call call = sp_tracks_call(&lay->tracks, lay->order[i]);
        size_t size;
        const char *json = sp_event_items_get(&items, call.row, call.own, &size);
        if (json == NULL) continue;
        write_integer(w, "\n", (int64_t)i);
        sp_output_char(w->out, ' ');
        write_piece(w, json, size);
    }
    end_element(w);
    sp_event_items_free(&items);
    return SP_OK;
}

/* lane, number of the extra track, calls by depth */
static sp_status write_tracks(writer *w, layout *lay, uint32_t rank)
{
    sp_status status = SP_OK;
    write_integer(w, "<script type=\"application/json\" data-run=\"", (int64_t)w->run);
    write_integer(w, "\" data-rank=\"", rank);
    SP_OUTPUT_LITERAL(w->out, "\">\n{\"tracks\":[");
    for (size_t t = 0; t < lay->tracks.track_count && status == SP_OK; t++) {
        const sp_track *track = &lay->tracks.tracks[t];
        size_t row = lay->row_count;
        status = lay_out_track(lay, track);
        write_integer(w, t ? ",\n[" : "[", track->lane);
        write_integer(w, ",", track->extra);
        SP_OUTPUT_LITERAL(w->out, ",[");
        for (const char *separator = ""; row < lay->row_count; row++, separator = ",") {
            write_integer(w, separator, (int64_t)lay->rows[row].count);
        }
        SP_OUTPUT_LITERAL(w->out, "]]");
    }
    SP_OUTPUT_LITERAL(w->out, "]}");
    end_element(w);
    return status;
}

static sp_status write_rank_calls(writer *w, uint32_t rank, sp_error *error)
{
    layout lay = {0};
    sp_status status = sp_tracks_make(&lay.tracks, w->what->profile, rank, w->what->visible, error);
    if (status != SP_OK) return status;
    const size_t size = lay.tracks.rank_calls.call_count + 1;
    lay.order = malloc(size * sizeof *lay.order);
    lay.parent = malloc(size * sizeof *lay.parent);
    status = lay.order && lay.parent ? write_tracks(w, &lay, rank) : SP_ERR_NO_MEMORY;
    if (status != SP_OK) sp_fail(error, status, "out of memory for the calls of rank %u", rank);
    if (status == SP_OK) write_columns(w, &lay, rank);
    if (status == SP_OK) status = write_call_metadata(w, &lay, rank, error);
    layout_free(&lay);
    return status;
}

/* -- the page ---------------------------------------------------------------------------------------------------------- */

static void choose_run(writer *w, const sp_html_report *report, size_t run)
{
    w->what = &report->runs[run];
    w->run = run;
    w->origin = sp_trace_origin(w->what->profile, w->what->ranks, w->what->rank_count, w->what->visible);
}

static bool has_calls(const writer *w, const sp_html_report *report)
{
    return !report->without_calls && !w->what->profile->aggregate && !w->what->profile->summary_only;
}

static sp_status write_data(writer *w, const sp_html_report *report, sp_error *error)
{
    sp_status status = SP_OK;
    SP_OUTPUT_LITERAL(w->out, "<script type=\"application/json\" id=\"sp-report\">\n{\"exporter\":\"" SP_EXPORTER "\",\"options\":");
    const char *options = report->options ? report->options : "{}";
    write_piece(w, options, strlen(options));
    SP_OUTPUT_LITERAL(w->out, ",\n\"runs\":[");
    for (size_t i = 0; i < report->run_count && status == SP_OK; i++) {
        if (i > 0) SP_OUTPUT_LITERAL(w->out, ",\n");
        choose_run(w, report, i);
        status = write_run(w, has_calls(w, report), error);
    }
    SP_OUTPUT_LITERAL(w->out, "]}");
    end_element(w);
    for (size_t i = 0; i < report->run_count && status == SP_OK; i++) {
        choose_run(w, report, i);
        if (!has_calls(w, report)) continue;
        for (size_t r = 0; r < w->what->rank_count && status == SP_OK; r++) {
            status = write_rank_calls(w, w->what->ranks[r], error);
        }
    }
    return status;
}

static sp_status write_page(writer *w, const sp_html_report *report, const char *path, sp_error *error)
{
    const char *page = (const char *)sp_viewer_page;
    const char *mark = memmem(page, sp_viewer_page_size, SP_VIEWER_MARK, sizeof SP_VIEWER_MARK - 1);
    if (mark == NULL) {
        return sp_fail(error, SP_ERR_UNSUPPORTED,
                       "this build of scope-profiler has no viewer: it was built where there was no Node.js, or no npm");
    }
    w->compressor = libdeflate_alloc_compressor(6);
    w->values = malloc(BLOCK_BYTES);
    w->bytes = malloc(BLOCK_BYTES);
    w->packed = w->compressor ? malloc(libdeflate_zlib_compress_bound(w->compressor, BLOCK_BYTES)) : NULL;
    if (!w->values || !w->bytes || !w->packed) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for a block of calls");
    sp_status status = sp_output_begin(w->out, path, error);
    if (status != SP_OK) return status;
    sp_output_bytes(w->out, page, (size_t)(mark - page));
    status = write_data(w, report, error);
    sp_output_bytes(w->out, mark, sp_viewer_page_size - (size_t)(mark - page));
    if (status == SP_OK) return sp_output_commit(w->out, error);
    sp_output_abort(w->out);
    return status;
}

sp_status sp_export_html(const sp_html_report *report, const char *path, sp_error *error)
{
    sp_output out = {0};
    writer w = {.out = &out};
    const sp_status status = write_page(&w, report, path, error);
    if (w.compressor) libdeflate_free_compressor(w.compressor);
    free(w.values);
    free(w.bytes);
    free(w.packed);
    return status;
}
