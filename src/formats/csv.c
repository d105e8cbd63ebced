/*
 * csv.c - a line a call, for spreadsheets and data frames.
 *
 * Columns that no call has are left out. Times are ns from the start of the run, numbers that are not known are empty. Texts
 * are always in quotes, in which a quote is doubled. So that nothing in them is taken for anything else, a backslash is
 * doubled, a control character becomes \n, \r, \t or \xhh, and a text that a spreadsheet would take for a formula (it begins
 * with = + - or @) begins with an apostrophe. The metadata of a call is JSON, which needs no more than quotes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/lane_events.h"
#include "formats/event_items.h"
#include "formats/export.h"
#include "formats/utf8.h"

typedef struct writer {
    const sp_export *what;
    sp_output *out;
    int64_t origin;
    sp_lane_names names;
    sp_event_items items;
    bool sources, metadata; /* whether some row has them */
    char *head, *tail;      /* of the lines of a row */
    const char *lane_name;  /* the text that lane_cell was made of: calls of a lane often follow each other */
    char *lane_cell;
    bool failed;            /* out of memory */
} writer;

/* -- texts ------------------------------------------------------------------------------------------------------------ */

/* Length of a control character in UTF-8: C0, DEL and C1. 0: it is none. */
static size_t control(const char *at)
{
    const unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];
    if (c < 0x20 || c == 0x7f) return 1;
    return c == 0xc2 && next >= 0x80 && next < 0xa0 ? 2 : 0;
}

static char *put_control(char *to, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    *to++ = '\\';
    if (c == '\n' || c == '\r' || c == '\t') {
        *to++ = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        return to;
    }
    *to++ = 'x';
    *to++ = hex[c >> 4];
    *to++ = hex[c & 15];
    return to;
}

static char *put_quoted(char *to, char c)
{
    if (c == '"') *to++ = c;
    *to++ = c;
    return to;
}

/* The cell, in quotes, malloc'ed. NULL: out of memory. */
static char *cell_text(const char *text)
{
    char *valid = sp_utf8_repaired(text);
    char *cell = valid ? malloc(4 * strlen(valid) + 4) : NULL, *to = cell;
    if (cell == NULL) goto done;
    *to++ = '"';
    if (*valid && strchr("=+-@", *valid)) *to++ = '\'';
    for (const char *at = valid; *at; at++) {
        const size_t size = control(at);
        if (size > 0) {
            to = put_control(to, (unsigned char)at[size - 1]);
            at += size - 1;
            continue;
        }
        if (*at == '\\') *to++ = *at;
        to = put_quoted(to, *at);
    }
    memcpy(to, "\"", 2);
done:
    free(valid);
    return cell;
}

/* -- lines ------------------------------------------------------------------------------------------------------------ */

static const int64_t *column(const writer *w, sp_column column)
{
    return w->what->profile->columns[column];
}

static void write_head(writer *w)
{
    SP_OUTPUT_LITERAL(w->out, "region,rank,call_index,start_ns,end_ns,duration_ns");
    if (column(w, SP_COLUMN_CALL_ID)) SP_OUTPUT_LITERAL(w->out, ",call_id,parent_id");
    if (column(w, SP_COLUMN_THREAD)) SP_OUTPUT_LITERAL(w->out, ",thread,thread_name");
    if (column(w, SP_COLUMN_TASK)) SP_OUTPUT_LITERAL(w->out, ",task,task_name");
    if (column(w, SP_COLUMN_AWAIT)) SP_OUTPUT_LITERAL(w->out, ",await_ns");
    if (column(w, SP_COLUMN_GPU)) SP_OUTPUT_LITERAL(w->out, ",gpu_ns");
    if (w->sources) SP_OUTPUT_LITERAL(w->out, ",source_file,source_line");
    if (w->metadata) SP_OUTPUT_LITERAL(w->out, ",metadata");
    sp_output_char(w->out, '\n');
}

static void put_number(writer *w, int64_t value)
{
    sp_output_char(w->out, ',');
    sp_output_integer(w->out, value);
}

/* Nothing for a number that is not known. */
static void put_known(writer *w, const int64_t *values, uint64_t at)
{
    if (values && values[at] >= 0) put_number(w, values[at]);
    else if (values) sp_output_char(w->out, ',');
}

static void put_lane_name(writer *w, const char *name)
{
    sp_output_char(w->out, ',');
    if (name == NULL) return;
    if (name != w->lane_name) {
        free(w->lane_cell);
        w->lane_cell = cell_text(name);
        w->lane_name = w->lane_cell ? name : NULL;
    }
    if (w->lane_cell) sp_output_text(w->out, w->lane_cell);
    else w->failed = true;
}

static void put_thread(writer *w, uint64_t at)
{
    const int64_t *threads = column(w, SP_COLUMN_THREAD);
    if (threads == NULL) return;
    put_known(w, threads, at);
    const sp_thread_info *thread = threads[at] >= 0 ? sp_lane_names_thread(&w->names, threads[at]) : NULL;
    put_lane_name(w, thread ? thread->name : NULL);
}

static void put_task(writer *w, uint64_t at)
{
    const int64_t *tasks = column(w, SP_COLUMN_TASK);
    if (tasks == NULL) return;
    put_known(w, tasks, at);
    const sp_task_info *task = tasks[at] >= 0 ? sp_lane_names_task(&w->names, tasks[at]) : NULL;
    put_lane_name(w, task ? task->name : NULL);
}

static void put_metadata(writer *w, const sp_row *row, uint64_t own)
{
    size_t size;
    if (!w->metadata) return;
    sp_output_char(w->out, ',');
    const char *text = sp_event_items_get(&w->items, row, own, &size);
    if (text == NULL) return;
    char *strict = sp_json_strict(text, size), *cell = strict ? malloc(2 * strlen(strict) + 3) : NULL, *to = cell;
    if (cell) {
        *to++ = '"';
        for (const char *at = strict; *at; at++) to = put_quoted(to, *at);
        memcpy(to, "\"", 2);
        sp_output_text(w->out, cell);
    } else {
        w->failed = true;
    }
    free(strict);
    free(cell);
}

static int64_t since(int64_t time, int64_t origin)
{
    return (int64_t)((uint64_t)time - (uint64_t)origin);
}

static void write_call(writer *w, const sp_row *row, uint64_t own)
{
    const uint64_t at = row->first + own;
    const int64_t start = column(w, SP_COLUMN_START)[at], end = column(w, SP_COLUMN_END)[at];
    sp_output_text(w->out, w->head);
    put_number(w, (int64_t)own);
    put_number(w, since(start, w->origin));
    put_number(w, since(end, w->origin));
    put_number(w, since(end, start));
    put_known(w, column(w, SP_COLUMN_CALL_ID), at);
    put_known(w, column(w, SP_COLUMN_PARENT_ID), at);
    put_thread(w, at);
    put_task(w, at);
    put_known(w, column(w, SP_COLUMN_AWAIT), at);
    put_known(w, column(w, SP_COLUMN_GPU), at);
    sp_output_text(w->out, w->tail);
    put_metadata(w, row, own);
    sp_output_char(w->out, '\n');
}

/* What is the same on every line of a row. */
static bool make_row_texts(writer *w, const sp_row *row)
{
    char *name = cell_text(w->what->profile->names[row->name]);
    char *file = row->source_file ? cell_text(row->source_file) : NULL;
    int head = -1, tail = -1;
    if (name) head = asprintf(&w->head, "%s,%u", name, row->rank);
    if (!w->sources) tail = asprintf(&w->tail, "%s", "");
    else if (row->source_file == NULL) tail = asprintf(&w->tail, ",,");
    else if (file && row->source_line < 0) tail = asprintf(&w->tail, ",%s,", file);
    else if (file) tail = asprintf(&w->tail, ",%s,%lld", file, (long long)row->source_line);
    if (head < 0) w->head = NULL;
    if (tail < 0) w->tail = NULL;
    free(name);
    free(file);
    return w->head && w->tail;
}

static void write_row(writer *w, const sp_row *row)
{
    if (make_row_texts(w, row)) {
        for (uint64_t i = 0; i < row->count; i++) write_call(w, row, i);
    } else {
        w->failed = true;
    }
    free(w->head);
    free(w->tail);
    w->head = w->tail = NULL;
}

static bool is_shown(const writer *w, const sp_row *row)
{
    return w->what->visible == NULL || w->what->visible[row->name];
}

static sp_status write_rank(writer *w, uint32_t rank, sp_error *error)
{
    const sp_profile *profile = w->what->profile;
    sp_status status = sp_lane_names_make(&w->names, profile, rank, error);
    if (status != SP_OK) return status;
    status = sp_event_items_make(&w->items, profile, rank, error);
    for (size_t r = 0; status == SP_OK && r < profile->row_count; r++) {
        if (profile->rows[r].rank == rank && is_shown(w, &profile->rows[r])) write_row(w, &profile->rows[r]);
    }
    if (status == SP_OK) sp_event_items_free(&w->items);
    sp_lane_names_free(&w->names);
    return w->failed && status == SP_OK ? sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the calls of rank %u", rank) : status;
}

sp_status sp_export_csv(const sp_export *what, const char *path, sp_error *error)
{
    if (what->profile->summary_only || what->profile->aggregate) {
        return sp_fail(error, SP_ERR_INVALID, "this profile has no calls, only their totals");
    }
    sp_output out = {0};
    writer w = {.what = what, .out = &out};
    w.origin = sp_trace_origin(what->profile, what->ranks, what->rank_count, what->visible);
    for (size_t r = 0; r < what->profile->row_count; r++) {
        const sp_row *row = &what->profile->rows[r];
        w.sources |= is_shown(&w, row) && row->source_file;
        w.metadata |= is_shown(&w, row) && row->event_metadata;
    }
    sp_status status = sp_output_begin(&out, path, error);
    if (status != SP_OK) return status;
    write_head(&w);
    for (size_t i = 0; status == SP_OK && i < what->rank_count; i++) status = write_rank(&w, what->ranks[i], error);
    free(w.lane_cell);
    if (status == SP_OK) return sp_output_commit(&out, error);
    sp_output_abort(&out);
    return status;
}
