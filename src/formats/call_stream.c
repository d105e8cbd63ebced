#include "analysis/wrap.h"
#include "formats/call_stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/row_sums.h"
#include "analysis/spread.h"

#define SMALLEST_CHUNK 4096
#define NO_PATH (SP_PATH_NONE - 1) /* the node above calls that there are none of yet */

/* The same chunk of every column, some of whose calls are there. */
typedef struct open_chunk {
    int64_t *data[SP_COLUMN_COUNT];
    uint64_t first, missing;
} open_chunk;

struct stream;

/* Where a row is. */
typedef struct row_state {
    open_chunk *chunk; /* NULL: before its first call, or between two */
    uint64_t from, at, limit; /* in the chunk: its calls there begin at `from`, the next goes to `at` */
    uint64_t position; /* of its first call that is not in a chunk that it left, in the datasets */
    int64_t last_start;
    /* of the calls in the chunk that are not summed by path yet, from `path_from` on: under calls of the node `above`, after a start at `path_before` */
    uint32_t above, node;
    uint64_t path_from;
    int64_t path_before;
    sp_row_ends ends;
    sp_row_sums sums; /* under the stream's lock */
    struct stream *stream;
    sp_chunk_look look;
} row_state;

typedef struct stream {
    sp_collection *collection;
    sp_profile *profile;
    const sp_chunk_source *sources;
    const sp_stream_part *part; /* NULL: the datasets are these calls */
    uint64_t begin, end;        /* of the calls in the datasets */
    uint64_t piece; /* calls of a chunk */
    bool writes;    /* else only the summary is made */
    bool sums;      /* the summary is made */
    uint32_t own;   /* columns that calls have values for, as bits; others get their default */
    sp_chunk_writer *writer;
    row_state *rows;
    open_chunk **chunks; /* by place in the datasets, from that of the first call on */
    size_t first, last;  /* the rows of this walk */
    bool summing;        /* the first walk */
    sp_path_stream *paths;
    uint32_t *node_at; /* by place: the node of the call that is there */
    size_t place_count;
    sp_spread *spread;
    pthread_mutex_t lock; /* of `spread` and the rows' sums */
    sp_status status;
    sp_error *error;
} stream;

static void fail_memory(stream *s)
{
    if (s->status == SP_OK) s->status = sp_fail(s->error, SP_ERR_NO_MEMORY, "no memory to write the calls");
}

/* ---- how much at a time ---- */

static uint64_t calls_at_once(const sp_row *row, uint64_t piece)
{
    const uint64_t kept = piece > SP_SPREAD_KEPT ? piece : SP_SPREAD_KEPT; /* percentiles keep as many durations */
    return row->count < kept ? row->count : kept;
}

static uint64_t bytes_of(const sp_row *row, size_t columns, uint64_t piece)
{
    return calls_at_once(row, piece) * (columns + 1) * sizeof(int64_t);
}

uint32_t sp_stream_columns(const sp_profile *profile, bool tree)
{
    uint32_t columns = 1u << SP_COLUMN_START | 1u << SP_COLUMN_END;
    if (tree) columns |= 1u << SP_COLUMN_CALL_ID | 1u << SP_COLUMN_PARENT_ID;
    if (profile->has_threads) columns |= 1u << SP_COLUMN_THREAD;
    if (profile->tasks) columns |= 1u << SP_COLUMN_TASK | 1u << SP_COLUMN_AWAIT;
    return columns;
}

uint64_t sp_stream_chunk(const sp_profile *profile, size_t columns, uint64_t most)
{
    for (uint64_t piece = most; piece / 2 >= SMALLEST_CHUNK; piece /= 2) {
        uint64_t needed = 0;
        for (size_t i = 0; i < profile->row_count; i++) needed += bytes_of(&profile->rows[i], columns, piece);
        if (needed <= SP_STREAM_MEMORY) return piece;
    }
    return most < SMALLEST_CHUNK ? most : SMALLEST_CHUNK;
}

/* The end of the group of rows from `first` on that fit. */
static size_t group_end(const stream *s, size_t first, size_t columns)
{
    uint64_t needed = 0;
    size_t last = first;
    do needed += bytes_of(&s->profile->rows[last++], columns, s->piece);
    while (last < s->profile->row_count &&
           needed + bytes_of(&s->profile->rows[last], columns, s->piece) <= SP_STREAM_MEMORY);
    return last;
}

/* ---- chunks ---- */

/* Where the chunk with this element is kept. */
static open_chunk **place_of(const stream *s, uint64_t element)
{
    return &s->chunks[element / s->piece - s->begin / s->piece];
}

/* The first of the chunk's elements that these calls have, and how many. */
static uint64_t first_in(const stream *s, const open_chunk *chunk)
{
    return chunk->first > s->begin ? chunk->first : s->begin;
}

static uint64_t count_in(const stream *s, const open_chunk *chunk)
{
    const uint64_t end = chunk->first + s->piece;
    return (end < s->end ? end : s->end) - first_in(s, chunk);
}

static open_chunk *chunk_new(stream *s, uint64_t element)
{
    open_chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL) return NULL;
    chunk->first = element / s->piece * s->piece;
    chunk->missing = count_in(s, chunk);
    bool whole = true;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (s->sources[c].name == NULL) continue;
        chunk->data[c] = sp_chunk_writer_buffer(s->writer);
        whole = whole && chunk->data[c];
        const bool only_others = !(s->own >> c & 1);
        for (uint64_t i = 0; only_others && chunk->data[c] && i < s->piece; i++) chunk->data[c][i] = sp_column_default((sp_column)c);
    }
    *place_of(s, element) = chunk;
    return whole ? chunk : NULL;
}

static void chunk_free(stream *s, open_chunk *chunk)
{
    if (chunk == NULL) return;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (chunk->data[c]) sp_chunk_writer_drop(s->writer, chunk->data[c]);
    }
    *place_of(s, chunk->first) = NULL;
    free(chunk);
}

/* Whether others have calls in the chunk too: then these are given away. */
static bool give_edge(stream *s, const open_chunk *chunk)
{
    const uint64_t first = first_in(s, chunk), count = count_in(s, chunk);
    const bool whole = first == chunk->first && (count == s->piece || s->end == s->sources[SP_COLUMN_START].count);
    if (s->part == NULL || whole) return false;
    for (int c = 0; c < SP_COLUMN_COUNT && s->status == SP_OK; c++) {
        if (chunk->data[c] == NULL) continue;
        s->status = s->part->edge(s->part->context, (sp_column)c, first, count, chunk->data[c] + (first - chunk->first), s->error);
    }
    return true;
}

static void write_chunk(stream *s, open_chunk *chunk, const sp_chunk_look *look)
{
    const bool done = !s->writes || give_edge(s, chunk);
    sp_chunk_piece pieces[SP_COLUMN_COUNT];
    size_t count = 0;
    for (int c = 0; c < SP_COLUMN_COUNT && s->status == SP_OK && !done; c++) {
        if (chunk->data[c] == NULL) continue;
        pieces[count++] = (sp_chunk_piece){&s->sources[c], chunk->data[c], c == SP_COLUMN_END ? look : NULL};
        chunk->data[c] = NULL;
    }
    if (count) s->status = sp_chunk_writer_put(s->writer, pieces, count, chunk->first, s->error);
    chunk_free(s, chunk);
}

/* Durations of the row. */
static void sum_up(void *context, const void *durations, uint64_t count)
{
    row_state *state = context;
    stream *s = state->stream;
    pthread_mutex_lock(&s->lock);
    sp_row_sums_add(&state->sums, durations, count);
    if (s->spread) sp_spread_add(s->spread, (size_t)(state - s->rows), durations, count);
    pthread_mutex_unlock(&s->lock);
}

/* Sum up the calls that are in the chunk since the last time: they are all of one path. */
static void sum_path(stream *s, row_state *state)
{
    const open_chunk *chunk = state->chunk;
    if (chunk && s->summing && s->paths) {
        sp_path_stream_sum(s->paths, state->node, state->above, state->path_before, chunk->data[SP_COLUMN_START] + state->path_from,
                           chunk->data[SP_COLUMN_END] + state->path_from, state->at - state->path_from);
    }
    state->path_from = state->at;
    state->path_before = state->last_start;
}

/* The row's calls in its chunk are there. A chunk that has no others is summed up by who compresses it. */
static void leave_chunk(stream *s, size_t row)
{
    row_state *state = &s->rows[row];
    open_chunk *chunk = state->chunk;
    const uint64_t count = state->at - state->from;
    sum_path(s, state);
    state->chunk = NULL;
    state->at = state->limit = 0;
    if (chunk == NULL) return;
    const int64_t *durations = chunk->data[SP_COLUMN_END] + state->from;
    if (state->position == s->begin + s->profile->rows[row].first) {
        state->ends.first = durations[0];
        state->ends.earliest = chunk->data[SP_COLUMN_START][state->from]; /* what comes later is a step */
    }
    state->ends.last = durations[count - 1];
    state->position += count;
    const bool later = count == s->piece && s->writes;
    if (s->sums && !later) sum_up(state, durations, count);
    chunk->missing -= count;
    if (chunk->missing == 0) write_chunk(s, chunk, s->sums && later ? &state->look : NULL);
}

static bool next_chunk(stream *s, size_t row)
{
    row_state *state = &s->rows[row];
    leave_chunk(s, row);
    open_chunk *chunk = *place_of(s, state->position);
    if (chunk == NULL) chunk = chunk_new(s, state->position);
    if (chunk == NULL) {
        fail_memory(s);
        return false;
    }
    const uint64_t end = s->begin + s->profile->rows[row].first + s->profile->rows[row].count;
    state->chunk = chunk;
    state->from = state->at = state->path_from = state->position - chunk->first;
    state->limit = end - chunk->first < s->piece ? end - chunk->first : s->piece;
    return true;
}

/* ---- calls ---- */

static void put_call(stream *s, row_state *state, const sp_collected *call, uint32_t columns)
{
    if (state->at == state->limit && !next_chunk(s, call->row)) return;
    int64_t *const *data = state->chunk->data;
    const uint64_t at = state->at++;
    data[SP_COLUMN_START][at] = sp_minus(call->start_ns, state->last_start); /* 0 before the row's first */
    data[SP_COLUMN_END][at] = sp_minus(call->end_ns, call->start_ns);
    state->last_start = call->start_ns;
    if (call->end_ns > state->ends.latest) state->ends.latest = call->end_ns;
    if (columns & 1u << SP_COLUMN_CALL_ID) {
        data[SP_COLUMN_CALL_ID][at] = call->call_id;
        data[SP_COLUMN_PARENT_ID][at] = call->parent_id;
    }
    if (columns & 1u << SP_COLUMN_THREAD) data[SP_COLUMN_THREAD][at] = call->thread;
    if (columns & 1u << SP_COLUMN_TASK) {
        data[SP_COLUMN_TASK][at] = call->task;
        data[SP_COLUMN_AWAIT][at] = call->await_ns;
    }
}

static bool need_places(stream *s, uint32_t places)
{
    if (places <= s->place_count) return true;
    uint32_t *larger = realloc(s->node_at, (size_t)places * 2 * sizeof *larger);
    if (larger == NULL) return false;
    s->node_at = larger;
    s->place_count = (size_t)places * 2;
    return true;
}

/* Find the calls' nodes. Calls of other groups are summed up at once, since no chunk has them. */
static void find_path(stream *s, row_state *state, const sp_collected *call, bool kept)
{
    const uint32_t above = call->above == SP_NO_PLACE ? SP_PATH_NONE : s->node_at[call->above];
    if (__builtin_expect(above != state->above, 0)) {
        sum_path(s, state);
        state->above = above;
        state->node = sp_path_stream_find(s->paths, above, call->row);
    }
    if (call->place != SP_NO_PLACE) s->node_at[call->place] = state->node;
    if (kept) return;
    const int64_t step = 0, duration = sp_minus(call->end_ns, call->start_ns);
    sp_path_stream_sum(s->paths, state->node, above, call->start_ns, &step, &duration, 1);
}

static void take_calls(void *context, const sp_collected *calls, size_t count, uint32_t places)
{
    stream *s = context;
    const uint32_t columns = s->own;
    const size_t first = s->first, rows = s->last - s->first;
    const bool paths = s->summing && s->paths;
    if (paths && !need_places(s, places)) fail_memory(s);
    for (const sp_collected *call = calls; call < calls + count && s->status == SP_OK; call++) {
        row_state *state = &s->rows[call->row];
        const bool kept = call->row - first < rows;
        if (paths) find_path(s, state, call, kept);
        if (kept) put_call(s, state, call, columns);
    }
    if (paths && s->status == SP_OK) sp_path_stream_threads(s->paths, calls, count);
}

static void add_again(void *context, uint32_t row, int64_t duration)
{
    sp_spread_add_again(((stream *)context)->spread, row, duration);
}

/* ---- percentiles of a group ---- */

static void solve_percentiles(stream *s)
{
    const size_t count = s->profile->row_count;
    bool again = true, *wanted = calloc(count + 1, sizeof *wanted);
    if (wanted == NULL) fail_memory(s);
    while (s->status == SP_OK && again) {
        if (sp_spread_close(s->spread, &again) != SP_OK) {
            fail_memory(s);
        } else if (again) {
            for (size_t i = 0; i < count; i++) wanted[i] = sp_spread_wants(s->spread, i);
            sp_collection_durations(s->collection, wanted, add_again, s);
        }
    }
    free(wanted);
}

/* ---- all of it ---- */

static void write_group(stream *s, bool tree, sp_summary_job *summary)
{
    if (s->sums && (s->spread = sp_spread_new(s->profile, s->first, s->last, summary->percentiles)) == NULL) {
        fail_memory(s);
        return;
    }
    const bool nested = sp_collection_walk(s->collection, tree ? SP_WALK_TREE : 0, take_calls, s);
    for (size_t i = s->first; s->status == SP_OK && i < s->last; i++) leave_chunk(s, i);
    if (s->status == SP_OK) s->status = sp_chunk_writer_drain(s->writer, s->error); /* now all durations are summed up */
    if (s->status == SP_OK && !nested) s->status = sp_fail(s->error, SP_ERR_NESTING, "calls overlap without nesting");
    if (s->status == SP_OK && s->sums) solve_percentiles(s);
    pthread_mutex_lock(&s->lock); /* after a failure there may be durations under way */
    sp_spread_free(s->spread);
    s->spread = NULL;
    pthread_mutex_unlock(&s->lock);
}

static uint64_t chunks_touched(const stream *s)
{
    return s->end / s->piece - s->begin / s->piece + 1;
}

static bool summary_open(stream *s, bool tree, sp_summary_job *summary)
{
    const sp_profile *profile = s->profile;
    summary->statistics = calloc(profile->row_count + 1, sizeof *summary->statistics);
    summary->percentiles = calloc(profile->row_count + 1, SP_PERCENTILE_COUNT * sizeof *summary->percentiles);
    if (!summary->statistics || !summary->percentiles) return false;
    if (!tree || !sp_summary_is_worth_paths(profile)) return true;
    int64_t threads = 0;
    for (size_t i = 0; i < profile->thread_count; i++) {
        if (profile->threads[i].index >= threads) threads = profile->threads[i].index + 1;
    }
    s->paths = sp_path_stream_new(profile, threads);
    return s->paths != NULL;
}

static bool stream_open(stream *s, const sp_pipeline *filters)
{
    const sp_profile *profile = s->profile;
    const uint64_t pieces = chunks_touched(s);
    s->writer = sp_chunk_writer_new(filters, (size_t)s->piece * sizeof(int64_t), s->writes ? 2 * pieces : 0);
    s->rows = calloc(profile->row_count + 1, sizeof *s->rows);
    s->chunks = calloc(pieces, sizeof(open_chunk *));
    if (!s->writer || !s->rows || !s->chunks) return false;
    for (size_t i = 0; i < profile->row_count; i++) {
        row_state *state = &s->rows[i];
        *state = (row_state){.position = s->begin + profile->rows[i].first, .above = NO_PATH, .node = SP_PATH_NONE,
                             .ends = SP_ROW_ENDS_NONE, .stream = s,
                             .look = {sum_up, state}};
    }
    return true;
}

/* `s` has everything that does not follow from the collection. */
static sp_status stream_all(stream *s, const sp_pipeline *filters, bool tree, sp_summary_job *summary)
{
    size_t columns = 0;
    s->profile = sp_collection_profile(s->collection);
    s->begin = s->part ? s->part->first : 0;
    s->end = s->begin + s->profile->call_count;
    s->piece = s->sources[SP_COLUMN_START].chunk;
    s->summing = s->sums = summary != NULL;
    s->own = sp_stream_columns(s->profile, tree);
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (s->sources[c].name) columns++;
        else s->own &= ~(1u << c);
    }
    pthread_mutex_init(&s->lock, NULL);
    if (!stream_open(s, filters) || (s->sums && !summary_open(s, tree, summary))) fail_memory(s);
    while (s->status == SP_OK && s->last < s->profile->row_count) {
        s->first = s->last;
        s->last = group_end(s, s->first, columns);
        write_group(s, tree, summary);
        s->summing = false;
    }
    for (size_t i = 0; s->sums && s->status == SP_OK && i < s->profile->row_count; i++) {
        summary->statistics[i] = sp_row_sums_statistics(&s->rows[i].sums, &s->rows[i].ends);
    }
    if (s->sums) summary->paths = sp_path_stream_finish(s->paths);
    for (uint64_t i = 0; s->chunks && s->writer && i < chunks_touched(s); i++) chunk_free(s, s->chunks[i]);
    if (s->writer) s->status = sp_chunk_writer_finish(s->writer, s->status, s->error);
    pthread_mutex_destroy(&s->lock);
    free(s->rows);
    free(s->chunks);
    free(s->node_at);
    return s->status;
}

sp_status sp_stream_calls(sp_collection *collection, const sp_chunk_source sources[SP_COLUMN_COUNT],
                          const sp_pipeline *filters, bool tree, sp_summary_job *summary, const sp_stream_part *part,
                          sp_error *error)
{
    stream s = {.collection = collection, .sources = sources, .part = part, .writes = true, .error = error};
    const sp_status status = stream_all(&s, filters, tree, summary);
    return status == SP_OK ? sp_collection_check(collection, error) : status;
}

sp_status sp_stream_sums(sp_collection *collection, bool tree, sp_summary_job *summary, sp_error *error)
{
    const uint64_t piece = sp_stream_chunk(sp_collection_profile(collection), 2, SP_STREAM_CHUNK);
    sp_chunk_source sources[SP_COLUMN_COUNT] = {{0}};
    for (int c = SP_COLUMN_START; c <= SP_COLUMN_END; c++) sources[c] = (sp_chunk_source){.name = "", .chunk = piece};
    stream s = {.collection = collection, .sources = sources, .error = error};
    *summary = (sp_summary_job){.profile = sp_collection_profile(collection)};
    const sp_status status = stream_all(&s, &(sp_pipeline){0}, tree, summary);
    return status == SP_OK ? sp_collection_check(collection, error) : status;
}
