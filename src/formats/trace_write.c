/* trace_write.c - the files of native programs, as they are written here. */
#include <stdlib.h>
#include <string.h>

#include "analysis/row_sums.h"
#include "analysis/wrap.h"
#include "core/comm.h"
#include "formats/file_bytes.h"
#include "formats/native_trace.h"
#include "formats/output.h"

/* ---- calls ---- */

/* What the calls that are not written yet may take together, and how many of a row at least and at most wait for each other. */
#define HELD_BYTES ((uint64_t)16 << 20)
#define HELD_LEAST 16
#define HELD_MOST 4096

/* A row's calls on their way: its starts are in the file from `place` on, its ends behind them. */
typedef struct trace_row {
    int64_t *starts, *ends;
    uint64_t room, held, written;
    uint64_t place;
    sp_row_sums sums;
    sp_row_ends outer; /* of the calls so far */
} trace_row;

typedef struct trace {
    const char *path;
    const sp_profile *profile;
    int fd;
    trace_row *rows;
    int64_t *memory;
    sp_status status;
    sp_error *error;
} trace;

static void put_at(trace *t, const void *data, size_t size, uint64_t place)
{
    if (t->status != SP_OK || sp_file_write(t->fd, data, size, place) == 0) return;
    t->status = sp_fail_errno(t->error, SP_ERR_IO, "cannot write %s", t->path);
}

/* Ends become durations, once they are in the file, for the sums. */
static void put_held(trace *t, size_t index)
{
    trace_row *row = &t->rows[index];
    const uint64_t place = row->place + row->written * sizeof(int64_t);
    put_at(t, row->starts, row->held * sizeof(int64_t), place);
    put_at(t, row->ends, row->held * sizeof(int64_t), place + t->profile->rows[index].count * sizeof(int64_t));
    sp_row_ends *known = &row->outer;
    for (uint64_t i = 0; i < row->held; i++) {
        if (row->ends[i] > known->latest) known->latest = row->ends[i];
        row->ends[i] = sp_minus(row->ends[i], row->starts[i]);
    }
    if (row->held && row->written == 0) {
        known->first = row->ends[0];
        known->earliest = row->starts[0];
    }
    if (row->held) known->last = row->ends[row->held - 1];
    sp_row_sums_add(&row->sums, row->ends, row->held);
    row->written += row->held;
    row->held = 0;
}

static void take_calls(void *context, const sp_collected *calls, size_t count, uint32_t places)
{
    trace *t = context;
    for (const sp_collected *call = calls; call < calls + count; call++) {
        trace_row *row = &t->rows[call->row];
        row->starts[row->held] = call->start_ns;
        row->ends[row->held] = call->end_ns;
        if (++row->held == row->room) put_held(t, call->row);
    }
}

static bool make_room(trace *t)
{
    const size_t count = t->profile->row_count;
    uint64_t most = HELD_BYTES / (2 * sizeof(int64_t)) / (count ? count : 1), all = 0;
    if (most < HELD_LEAST) most = HELD_LEAST;
    if (most > HELD_MOST) most = HELD_MOST;
    t->rows = calloc(count + 1, sizeof *t->rows);
    for (size_t i = 0; t->rows && i < count; i++) {
        const uint64_t calls = t->profile->rows[i].count;
        t->rows[i].room = calls < most ? calls : most;
        t->rows[i].outer = SP_ROW_ENDS_NONE;
        all += 2 * t->rows[i].room;
    }
    t->memory = malloc((all + 1) * sizeof *t->memory);
    if (t->rows == NULL || t->memory == NULL) return false;
    int64_t *next = t->memory;
    for (size_t i = 0; i < count; i++) {
        t->rows[i].starts = next;
        t->rows[i].ends = next + t->rows[i].room;
        next += 2 * t->rows[i].room;
    }
    return true;
}

static bool add_number(sp_bytes *head, int64_t value, size_t size)
{
    return sp_bytes_add(head, &value, size);
}

static bool add_text(sp_bytes *head, const char *text)
{
    const size_t size = strlen(text);
    return add_number(head, (int64_t)size, 4) && sp_bytes_add(head, text, size);
}

/* What stands before the calls of each row, and so where they are. */
static void put_heads(trace *t, uint32_t rank)
{
    sp_bytes head = {0};
    uint64_t place = 0;
    bool enough = sp_bytes_add(&head, SP_SPT_MAGIC, sizeof SP_SPT_MAGIC - 1) && add_number(&head, SP_SPT_VERSION, 4) &&
        add_number(&head, rank, 4) && add_number(&head, (int64_t)t->profile->row_count, 8);
    for (size_t i = 0; enough && i < t->profile->row_count; i++) {
        const sp_row *row = &t->profile->rows[i];
        enough = add_text(&head, t->profile->names[row->name]) && add_text(&head, row->source_file ? row->source_file : "") &&
            add_number(&head, row->source_file && row->source_line >= 0 ? row->source_line : -1, 4) &&
            add_number(&head, (int64_t)row->count, 8);
        if (!enough) break;
        put_at(t, head.data, head.size, place);
        t->rows[i].place = place + head.size;
        place = t->rows[i].place + 2 * row->count * sizeof(int64_t);
        head.size = 0;
    }
    if (enough && head.size) put_at(t, head.data, head.size, place); /* there is no row */
    if (!enough && t->status == SP_OK) t->status = sp_fail(t->error, SP_ERR_NO_MEMORY, "out of memory writing %s", t->path);
    sp_bytes_free(&head);
}

static void keep_statistics(const trace *t, sp_profile *profile)
{
    for (size_t i = 0; i < profile->row_count; i++) {
        profile->rows[i].statistics = sp_row_sums_statistics(&t->rows[i].sums, &t->rows[i].outer);
        profile->rows[i].has_statistics = true;
    }
}

sp_status sp_spt_write(sp_collection *collection, uint32_t rank, const char *path,
                       void (*ready)(void *context, int fd, const char *target), void *ready_context, sp_error *error)
{
    sp_profile *profile = sp_collection_profile(collection);
    sp_replacement file;
    const sp_status begun = sp_replace_begin(&file, path, error);
    if (begun != SP_OK) return begun;
    trace *t = calloc(1, sizeof *t);
    sp_status status = SP_ERR_NO_MEMORY;
    if (t) {
        *t = (trace){.path = path, .profile = profile, .fd = file.fd, .error = error};
        if (make_room(t)) put_heads(t, rank);
        else t->status = SP_ERR_NO_MEMORY;
        if (t->status == SP_OK) sp_collection_walk(collection, 0, take_calls, t);
        for (size_t i = 0; t->status == SP_OK && i < profile->row_count; i++) put_held(t, i);
        status = t->status;
    }
    if (status == SP_ERR_NO_MEMORY) sp_fail(error, status, "out of memory writing %s", path);
    if (status == SP_OK && ready) ready(ready_context, file.fd, file.target);
    if (status == SP_OK) status = sp_replace_commit(&file, error);
    else sp_replace_abort(&file);
    if (status == SP_OK) keep_statistics(t, profile);
    if (t) free(t->rows);
    if (t) free(t->memory);
    free(t);
    return status;
}

/* ---- samples ---- */

static void put_int32(sp_output *out, int32_t value)
{
    sp_output_bytes(out, &value, sizeof value);
}

static void put_int64(sp_output *out, int64_t value)
{
    sp_output_bytes(out, &value, sizeof value);
}

static void put_text(sp_output *out, const char *text)
{
    const size_t size = strlen(text);
    put_int32(out, (int32_t)size);
    sp_output_bytes(out, text, size);
}

sp_status sp_sps_write(const sp_samples *samples, const char *path, sp_error *error)
{
    sp_output out;
    const sp_status status = sp_output_begin(&out, path, error);
    if (status != SP_OK) return status;
    SP_OUTPUT_LITERAL(&out, SP_SPS_MAGIC);
    put_int32(&out, SP_SPS_VERSION);
    put_int32(&out, samples->rank);
    put_int32(&out, samples->hz);
    put_int64(&out, samples->ticks);
    put_int32(&out, (int32_t)samples->region_count);
    for (size_t i = 0; i < samples->region_count; i++) put_text(&out, samples->regions[i]);
    put_int32(&out, (int32_t)samples->module_count);
    for (size_t i = 0; i < samples->module_count; i++) {
        put_text(&out, samples->modules[i]);
        put_int64(&out, (int64_t)samples->bases[i]);
    }
    put_int64(&out, (int64_t)samples->sample_count);
    for (size_t i = 0; i < samples->sample_count; i++) {
        put_int32(&out, samples->samples[i].region);
        put_int32(&out, samples->samples[i].module);
        put_int64(&out, (int64_t)samples->samples[i].address);
    }
    return sp_output_commit(&out, error);
}
