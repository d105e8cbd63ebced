/*
 * chrome_trace.c - the trace event format, for chrome://tracing and ui.perfetto.dev: a process a rank, a thread a track, a
 * complete event ("X") a call. The category tells other events: "task" for a task's life, "await" for where it waited. Where
 * the place is known that made a task, a flow ("s", "f") leads from there to the task's first step.
 *
 * Viewers read times as doubles of microseconds, add the duration to the start, and drop slices that then do not lie
 * inside each other. So no such sum may be above the double of the end, where the next slice may start, nor above the sum
 * of the slice around it. A plain decimal does mostly; where it does not, some millionths of a ns are taken off, or, where that is
 * less than a double can tell, the next smaller duration is written with as many digits as it takes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/wrap.h"
#include "formats/export.h"
#include "formats/rank_view.h"

/* Of the events of a row's calls: what stands before the time, between the times and the number of the call, and behind the numbers. */
typedef struct row_texts {
    char *begin; /* NULL: not made yet */
    char *source;
    size_t begin_size, source_size, rank_size;
    char rank[64]; /* ,"args":{"rank":0,"call_index": */
} row_texts;

typedef struct writer {
    const sp_export *what;
    sp_output *out;
    int64_t origin;
    bool first_event;
    sp_rank_view view; /* of the rank that is being written */
    row_texts *texts; /* by row; made when first needed */
    char place[64];   /* of the lane: ,"pid":0,"tid":0 */
    size_t place_size;
    double *ends; /* by depth: the sums of the slices that are open */
    size_t depth_room;
} writer;

static void begin_event(writer *w)
{
    if (w->first_event) SP_OUTPUT_LITERAL(w->out, "\n");
    else SP_OUTPUT_LITERAL(w->out, ",\n");
    w->first_event = false;
}

/* The double that a reader makes of `ns` written as microseconds. */
static double micros(int64_t ns)
{
    return (double)ns / 1000.0;
}

/*
 * A duration whose sum with the slice's start is at most `to`, less by as little as it takes. `*sum` becomes that sum. The decimal is
 * read as the quotient of the two integers, which are exact.
 */
static char *put_shorter(char *to, int64_t ns, double from, double limit, double *sum)
{
    enum { MILLIONTHS_MOST = 256, NS_MOST = 1000000000 };
    for (int64_t less = 1; ns > 0 && ns < NS_MOST && less <= MILLIONTHS_MOST; less *= 2) {
        const int64_t picoseconds = ns * 1000 - less;
        *sum = from + (double)picoseconds / 1e6;
        if (*sum <= limit) return sp_put_millionths(to, picoseconds);
    }
    double duration = limit - from;
    while (from + duration > limit) duration = nextafter(duration, -INFINITY); /* below 0 where times are of a damaged file */
    *sum = from + duration;
    return sp_put_plain_double(to, duration);
}

/*
 * A slice's start and duration. `*sum` becomes its end as a viewer sees it, which is not above `limit`, the end of the slice around it
 * as a viewer sees that. A slice that begins at that very moment may by rounding begin after it: then it begins, and ends, there.
 */
static char *put_times(char *to, int64_t start, int64_t end, double limit, double *sum)
{
    const double from = micros(start), until = fmin(micros(end), limit);
    const int64_t duration = sp_minus(end, start);
    if (from > limit) {
        *sum = limit;
        return SP_PUT_LITERAL(sp_put_plain_double(to, limit), ",\"dur\":0");
    }
    to = SP_PUT_LITERAL(sp_put_micros(to, start), ",\"dur\":");
    *sum = from + micros(duration);
    return *sum <= until ? sp_put_micros(to, duration) : put_shorter(to, duration, from, until, sum);
}

static inline void write_number(sp_output *out, const char *key, int64_t value)
{
    sp_output_text(out, key);
    sp_output_integer(out, value);
}

static inline void write_seconds(sp_output *out, const char *key, int64_t ns)
{
    sp_output_text(out, key);
    sp_output_decimal(out, ns, 9);
}

/* Most of the call was spent awaiting: chrome://tracing shows it in the colour of a sleeping thread. */
static bool mostly_awaits(const writer *w, const sp_call *call)
{
    const int64_t *await = w->what->profile->columns[SP_COLUMN_AWAIT];
    return await && await[call->column] > 0 && await[call->column] >= sp_minus(call->end_ns, call->start_ns) / 2;
}

static char *put_numbers(const writer *w, char *to, const sp_call *call)
{
    int64_t *const *columns = w->what->profile->columns;
    const uint64_t at = call->column;
    to = sp_put_integer(to, (int64_t)call->own);
    to = sp_put_short_seconds(SP_PUT_LITERAL(to, ",\"duration_s\":"), sp_minus(call->end_ns, call->start_ns));
    if (columns[SP_COLUMN_CALL_ID]) {
        to = sp_put_integer(SP_PUT_LITERAL(to, ",\"call_id\":"), columns[SP_COLUMN_CALL_ID][at]);
    }
    if (columns[SP_COLUMN_PARENT_ID]) {
        to = sp_put_integer(SP_PUT_LITERAL(to, ",\"parent_id\":"), columns[SP_COLUMN_PARENT_ID][at]);
    }
    if (columns[SP_COLUMN_GPU]) {
        to = sp_put_short_seconds(SP_PUT_LITERAL(to, ",\"gpu_duration\":"), columns[SP_COLUMN_GPU][at]);
    }
    if (columns[SP_COLUMN_AWAIT]) {
        to = sp_put_short_seconds(SP_PUT_LITERAL(to, ",\"await_duration\":"), columns[SP_COLUMN_AWAIT][at]);
    }
    return to;
}

/* An event comes before it: what its process is called. */
static char *make_begin(const writer *w, const sp_row *row)
{
    char *name = sp_json_quoted(w->what->profile->names[row->name]), *begin = NULL;
    if (name && asprintf(&begin, ",\n{\"name\":%s,\"cat\":\"scope-profiler\",\"ph\":\"X\",\"ts\":", name) < 0) begin = NULL;
    free(name);
    return begin;
}

static char *make_source(const sp_row *row)
{
    if (row->source_file == NULL) return strdup("");
    char *file = sp_json_quoted(row->source_file), *source = NULL;
    int made = -1;
    if (file && row->source_line < 0) made = asprintf(&source, ",\"source_file\":%s", file);
    else if (file) made = asprintf(&source, ",\"source_file\":%s,\"source_line\":%lld", file, (long long)row->source_line);
    free(file);
    return made < 0 ? NULL : source;
}

/* NULL: out of memory. */
static const row_texts *texts_of(writer *w, const sp_row *row)
{
    row_texts *texts = &w->texts[row - w->what->profile->rows];
    if (texts->begin) return texts;
    texts->source = make_source(row);
    if (texts->source) texts->begin = make_begin(w, row);
    if (texts->begin == NULL) return NULL;
    texts->begin_size = strlen(texts->begin);
    texts->source_size = strlen(texts->source);
    texts->rank_size = (size_t)snprintf(texts->rank, sizeof texts->rank, ",\"args\":{\"rank\":%u,\"call_index\":", row->rank);
    return texts;
}

static bool make_room_for_depth(writer *w, size_t depth)
{
    if (depth < w->depth_room) return true;
    const size_t room = 2 * depth + 64;
    double *larger = realloc(w->ends, room * sizeof *larger);
    if (larger == NULL) return false;
    w->ends = larger;
    w->depth_room = room;
    return true;
}

static void enter_lane(writer *w, uint32_t rank, size_t tid)
{
    w->place_size = (size_t)snprintf(w->place, sizeof w->place, ",\"pid\":%u,\"tid\":%zu", rank, tid);
}

/* The middle of a slice's event: its times, which nest in those around it, and where it is. NULL: out of memory. */
static char *put_slice(writer *w, char *to, const sp_lane_event *event)
{
    if (!make_room_for_depth(w, event->depth)) return NULL;
    const int64_t start = sp_minus(event->at, w->origin), end = sp_minus(event->end, w->origin);
    const double limit = event->depth > 0 ? w->ends[event->depth - 1] : INFINITY;
    to = put_times(to, start, end, limit, &w->ends[event->depth]);
    memcpy(to, w->place, sizeof w->place); /* of a size that the compiler knows */
    return to + w->place_size;
}

static sp_status write_call(writer *w, const sp_lane_event *event)
{
    const sp_call *call = &event->call;
    sp_output *const out = w->out;
    const row_texts *texts = texts_of(w, call->row);
    if (texts == NULL) return SP_ERR_NO_MEMORY;
    sp_output_bytes(out, texts->begin, texts->begin_size);
    char *to = put_slice(w, sp_output_room(out), event);
    if (to == NULL) return SP_ERR_NO_MEMORY;
    if (mostly_awaits(w, call)) to = SP_PUT_LITERAL(to, ",\"cname\":\"thread_state_sleeping\"");
    memcpy(to, texts->rank, sizeof texts->rank);
    sp_output_took(out, put_numbers(w, to + texts->rank_size, call));
    sp_output_bytes(out, texts->source, texts->source_size);
    size_t size;
    const char *metadata = sp_event_items_get(&w->view.items, call->row, call->own, &size);
    if (metadata) {
        SP_OUTPUT_LITERAL(out, ",\"metadata\":");
        sp_output_json_piece(out, metadata, size);
    }
    SP_OUTPUT_LITERAL(out, "}}");
    return SP_OK;
}

/* A slice that is no call, behind its "ts". */
static sp_status write_slice(writer *w, const sp_lane_event *event)
{
    char *to = put_slice(w, sp_output_room(w->out), event);
    if (to == NULL) return SP_ERR_NO_MEMORY;
    sp_output_took(w->out, to);
    return SP_OK;
}

static sp_status write_awaiting(writer *w, const sp_lane_event *event)
{
    begin_event(w);
    SP_OUTPUT_LITERAL(w->out, "{\"name\":\"awaiting\",\"cat\":\"await\",\"ph\":\"X\",\"ts\":");
    const sp_status status = write_slice(w, event);
    SP_OUTPUT_LITERAL(w->out, ",\"cname\":\"thread_state_sleeping\",\"args\":{}}");
    return status;
}

/* A task from its first step to its end. */
static sp_status write_life(writer *w, const sp_lane_event *event, const sp_lane_entry *lane)
{
    begin_event(w);
    SP_OUTPUT_LITERAL(w->out, "{\"name\":");
    sp_output_json_text(w->out, lane->task->name ? lane->task->name : "");
    SP_OUTPUT_LITERAL(w->out, ",\"cat\":\"task\",\"ph\":\"X\",\"ts\":");
    const sp_status status = write_slice(w, event);
    SP_OUTPUT_LITERAL(w->out, ",\"args\":{}}");
    return status;
}

static void write_flow_end(writer *w, const char *end, const sp_task_info *task, int64_t at, size_t tid)
{
    sp_output *const out = w->out;
    begin_event(w);
    SP_OUTPUT_LITERAL(out, "{\"name\":\"create\",\"cat\":\"task\",");
    sp_output_text(out, end);
    write_number(out, ",\"id\":\"", task->rank);
    write_number(out, ".", task->index);
    SP_OUTPUT_LITERAL(out, "\",\"ts\":");
    sp_output_decimal(out, sp_minus(at, w->origin), 3);
    write_number(out, ",\"pid\":", task->rank);
    write_number(out, ",\"tid\":", (int64_t)tid);
    sp_output_char(out, '}');
}

/* Viewers bind each end of a flow to the slice around it, so there is none from where nothing is open. */
static void write_flow(writer *w, const sp_lane_event *event, const sp_rank_lanes *lanes, size_t tid)
{
    const sp_lane_entry *made = event->made;
    if (event->depth == 0) return;
    write_flow_end(w, "\"ph\":\"s\"", made->task, event->at, tid);
    write_flow_end(w, "\"ph\":\"f\",\"bp\":\"e\"", made->task, made->life_start, (size_t)(made - lanes->lanes));
}

static sp_status write_event(writer *w, const sp_lane_event *event, const sp_rank_lanes *lanes, size_t tid)
{
    switch (event->kind) {
    case SP_LANE_LIFE_BEGIN: return write_life(w, event, &lanes->lanes[tid]);
    case SP_LANE_CALL_BEGIN: return write_call(w, event);
    case SP_LANE_AWAIT: return write_awaiting(w, event);
    case SP_LANE_CREATION: write_flow(w, event, lanes, tid); return SP_OK;
    case SP_LANE_LIFE_END:
    case SP_LANE_CALL_END: break;
    }
    return SP_OK;
}

/* -- what processes and threads are called ---------------------------------------------------------------------------- */

static void begin_note(writer *w, const char *kind, uint32_t rank, size_t tid)
{
    begin_event(w);
    SP_OUTPUT_LITERAL(w->out, "{\"name\":\"");
    sp_output_text(w->out, kind);
    write_number(w->out, "\",\"ph\":\"M\",\"pid\":", rank);
    write_number(w->out, ",\"tid\":", (int64_t)tid);
    SP_OUTPUT_LITERAL(w->out, ",\"args\":{");
}

static void end_note(writer *w)
{
    SP_OUTPUT_LITERAL(w->out, "}}");
}

static void write_sort_index(writer *w, const char *kind, uint32_t rank, size_t tid, int64_t index)
{
    begin_note(w, kind, rank, tid);
    write_number(w->out, "\"sort_index\":", index);
    end_note(w);
}

static void describe_thread(writer *w, int64_t index)
{
    sp_output *const out = w->out;
    SP_OUTPUT_LITERAL(out, ",\"lane\":\"thread\"");
    write_number(out, ",\"thread_index\":", index);
    const sp_thread_info *thread = sp_lane_names_thread(&w->view.names, index);
    if (thread == NULL) return;
    write_number(out, ",\"native_id\":", thread->native_id);
    write_number(out, ",\"ident\":", thread->ident);
    if (thread->cpu_ns >= 0) write_seconds(out, ",\"cpu_time_s\":", thread->cpu_ns);
}

static void describe_task(writer *w, int64_t index)
{
    sp_output *const out = w->out;
    const sp_task_info *task = sp_lane_names_task(&w->view.names, index);
    const bool greenlet = task && task->kind && strcmp(task->kind, "greenlet") == 0;
    sp_output_text(out, greenlet ? ",\"lane\":\"greenlet\"" : ",\"lane\":\"async task\"");
    write_number(out, ",\"task_index\":", index);
    if (task == NULL) return;
    write_number(out, ",\"thread_index\":", task->thread_index);
    write_number(out, ",\"steps\":", task->steps);
    write_seconds(out, ",\"running_s\":", task->running_ns);
    write_seconds(out, ",\"awaiting_s\":", task->suspended_ns);
}

static sp_status write_track_name(writer *w, const sp_tracks *tracks, const sp_track *track, size_t tid)
{
    char overlap[48] = "";
    const bool has_lane = tracks->has_lanes && track->lane != SP_LANE_UNKNOWN;
    char *label = has_lane ? sp_lane_names_label(&w->view.names, track) : sp_profile_rank_label(w->what->profile, tracks->rank);
    if (label == NULL) return SP_ERR_NO_MEMORY;
    if (!has_lane && track->extra) snprintf(overlap, sizeof overlap, " (overlap %u)", track->extra);
    begin_note(w, "thread_name", tracks->rank, tid);
    SP_OUTPUT_LITERAL(w->out, "\"name\":");
    char *whole = NULL;
    const bool made = asprintf(&whole, "%s%s", label, overlap) >= 0;
    if (made) sp_output_json_text(w->out, whole);
    free(label);
    if (!made) return SP_ERR_NO_MEMORY;
    free(whole);
    if (track->lane == SP_LANE_UNKNOWN) SP_OUTPUT_LITERAL(w->out, ",\"lane\":\"rank\"");
    else if (track->lane < 0) describe_thread(w, sp_thread_lane(track->lane));
    else describe_task(w, track->lane);
    end_note(w);
    return SP_OK;
}

/* -- counters --------------------------------------------------------------------------------------------------------- */

static const sp_group *child_group(const sp_group *group, const char *name)
{
    for (size_t i = 0; i < group->group_count; i++) {
        if (strcmp(group->groups[i].name, name) == 0) return &group->groups[i];
    }
    return NULL;
}

static const sp_array *find_array(const sp_array *arrays, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(arrays[i].name, name) == 0) return &arrays[i];
    }
    return NULL;
}

static void write_counter(writer *w, const sp_group *group, const char *region, uint32_t rank, int64_t at)
{
    sp_output *const out = w->out;
    const sp_array *values = find_array(group->datasets, group->dataset_count, "values");
    const sp_array *names = find_array(group->attributes, group->attribute_count, "event_names");
    const sp_array *calls = find_array(group->attributes, group->attribute_count, "calls");
    if (!values || !names || names->kind != SP_ARRAY_STRING || values->kind == SP_ARRAY_STRING) return;
    begin_event(w);
    SP_OUTPUT_LITERAL(out, "{\"name\":");
    char *title = NULL;
    if (asprintf(&title, "perf events: %s", region) < 0) {
        sp_output_fail(out, SP_ERR_NO_MEMORY, "out of memory");
        return;
    }
    sp_output_json_text(out, title);
    free(title);
    SP_OUTPUT_LITERAL(out, ",\"cat\":\"perf_events\",\"ph\":\"C\",\"ts\":");
    sp_output_decimal(out, at, 3);
    write_number(out, ",\"pid\":", rank);
    SP_OUTPUT_LITERAL(out, ",\"tid\":0,\"args\":{");
    for (uint64_t i = 0; i < sp_array_size(names) && i < sp_array_size(values); i++) {
        sp_output_json_text(out, ((char *const *)names->data)[i]);
        sp_output_char(out, ':');
        if (values->kind == SP_ARRAY_FLOAT64) sp_output_double(out, ((const double *)values->data)[i]);
        else sp_output_integer(out, ((const int64_t *)values->data)[i]);
        sp_output_char(out, ',');
    }
    const bool counted = calls && calls->kind == SP_ARRAY_INT64 && sp_array_size(calls) > 0;
    write_number(out, "\"calls\":", counted ? *(const int64_t *)calls->data : 0);
    SP_OUTPUT_LITERAL(out, "}}");
}

static bool is_shown(const writer *w, const char *region)
{
    const sp_profile *profile = w->what->profile;
    for (size_t i = 0; w->what->visible && i < profile->name_count; i++) {
        if (strcmp(profile->names[i], region) == 0) return w->what->visible[i];
    }
    return true;
}

/* A region with a slash in its name is a group inside a group. */
static void write_counters(writer *w, const sp_group *group, const char *prefix, uint32_t rank, int64_t at)
{
    for (size_t i = 0; i < group->group_count; i++) {
        const sp_group *child = &group->groups[i];
        char *region = NULL;
        if (asprintf(&region, "%s%s", prefix, child->name) < 0) {
            sp_output_fail(w->out, SP_ERR_NO_MEMORY, "out of memory");
            return;
        }
        if (is_shown(w, region)) write_counter(w, child, region, rank, at);
        char *below = NULL;
        if (child->group_count > 0 && asprintf(&below, "%s/", region) >= 0) write_counters(w, child, below, rank, at);
        free(below);
        free(region);
    }
}

static void write_rank_counters(writer *w, uint32_t rank)
{
    const sp_profile *profile = w->what->profile;
    int64_t start = 0, end = 0;
    for (size_t i = 0; i < profile->aux_count; i++) {
        const sp_group *counters = profile->aux[i].rank == rank ? child_group(&profile->aux[i].root, "perf_events") : NULL;
        if (counters == NULL) continue;
        if (!sp_calls_range(profile, &rank, 1, w->what->visible, &start, &end)) return;
        write_counters(w, counters, "", rank, sp_minus(end, w->origin));
    }
}

/* -- document --------------------------------------------------------------------------------------------------------- */

/* Viewers show threads by number, the tasks of a thread below it. */
static int64_t sort_index(writer *w, const sp_track *track)
{
    if (track->lane == SP_LANE_UNKNOWN) return 0;
    const sp_task_info *task = track->lane >= 0 ? sp_lane_names_task(&w->view.names, track->lane) : NULL;
    const int64_t thread = track->lane < 0 ? sp_thread_lane(track->lane) : task ? task->thread_index : -1;
    return (int64_t)(2 * ((uint64_t)thread + 1) + (track->lane >= 0));
}

static sp_status write_lane(writer *w, const sp_tracks *tracks, const sp_rank_lanes *lanes, size_t tid)
{
    sp_lane_walk walk;
    sp_lane_event event;
    enter_lane(w, tracks->rank, tid);
    sp_status status = sp_lane_walk_begin(&walk, lanes, tracks, &lanes->lanes[tid]);
    if (status != SP_OK) return status;
    while ((status = sp_lane_walk_next(&walk, &event)) == SP_OK) {
        status = write_event(w, &event, lanes, tid);
        if (status != SP_OK) break;
    }
    sp_lane_walk_end(&walk);
    return status == SP_ERR_NOT_FOUND ? SP_OK : status;
}

static sp_status write_lanes(writer *w, const sp_tracks *tracks, sp_rank_lanes *lanes)
{
    for (size_t i = 0; i < lanes->count; i++) {
        /* A thread's life is told by its name's arguments; as a slice it would be around everything. */
        if (lanes->lanes[i].task == NULL) lanes->lanes[i].lives = false;
        const sp_status status = write_track_name(w, tracks, &lanes->lanes[i].key, i);
        if (status != SP_OK) return status;
        write_sort_index(w, "thread_sort_index", tracks->rank, i, sort_index(w, &lanes->lanes[i].key));
    }
    for (size_t i = 0; i < lanes->count; i++) {
        const sp_status status = write_lane(w, tracks, lanes, i);
        if (status != SP_OK) return status;
    }
    return SP_OK;
}

static sp_status write_rank(writer *w, uint32_t rank, size_t place, sp_error *error)
{
    char *label = sp_profile_rank_label(w->what->profile, rank);
    if (label == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the name of rank %u", rank);
    begin_note(w, "process_name", rank, 0);
    SP_OUTPUT_LITERAL(w->out, "\"name\":");
    sp_output_json_text(w->out, label);
    free(label);
    end_note(w);
    write_sort_index(w, "process_sort_index", rank, 0, (int64_t)place);
    sp_status status = sp_rank_view_make(&w->view, w->what, rank, w->origin, error);
    if (status != SP_OK) return status;
    status = write_lanes(w, &w->view.tracks, &w->view.lanes);
    if (status != SP_OK) sp_fail(error, status, "out of memory for the tracks of rank %u", rank);
    write_rank_counters(w, rank);
    sp_rank_view_free(&w->view);
    return status;
}

static sp_status write_document(writer *w, sp_error *error)
{
    SP_OUTPUT_LITERAL(w->out, "{\"displayTimeUnit\":\"ms\",\"metadata\":{\"name\":");
    sp_output_json_text(w->out, w->what->name);
    SP_OUTPUT_LITERAL(w->out, ",\"exporter\":\"" SP_EXPORTER "\"},\"traceEvents\":[");
    for (size_t i = 0; i < w->what->rank_count; i++) {
        const sp_status status = write_rank(w, w->what->ranks[i], i, error);
        if (status != SP_OK) return status;
    }
    SP_OUTPUT_LITERAL(w->out, "\n]}\n");
    return SP_OK;
}

static void free_texts(row_texts *texts, size_t count)
{
    for (size_t i = 0; texts && i < count; i++) {
        free(texts[i].begin);
        free(texts[i].source);
    }
    free(texts);
}

sp_status sp_export_chrome_trace(const sp_export *what, const char *path, sp_error *error)
{
    sp_output out = {0};
    const size_t rows = what->profile->row_count;
    writer w = {.what = what, .out = &out, .first_event = true};
    w.origin = sp_trace_origin(what->profile, what->ranks, what->rank_count, what->visible);
    w.texts = calloc(rows + 1, sizeof *w.texts);
    sp_status status = w.texts ? sp_output_begin(&out, path, error)
                               : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu regions", rows);
    if (status == SP_OK) {
        status = write_document(&w, error);
        if (status == SP_OK) status = sp_output_commit(&out, error);
        else sp_output_abort(&out);
    }
    free(w.ends);
    free_texts(w.texts, rows);
    return status;
}
