/*
 * perfetto.c - Perfetto's own trace format, for ui.perfetto.dev and its trace processor: a stream of packets, each a
 * protocol buffer (perfetto/trace/trace_packet.proto says which field has which number).
 *
 *   process "rank 0"
 *     thread MainThread      life ├─ call ├─ call ...          a track a lane; tasks are below the thread they ran on
 *       task Task-2 (fetch)  life ├─ call ├─ awaiting
 *
 * Names, places in the source and names of arguments are told once and referred to by number. Times are ns from the start of
 * the run: integers, which no viewer rounds. A flow leads from the instant at which a task was made to its first step.
 */
#include <stdio.h>
#include <stdlib.h>

#include "analysis/wrap.h"
#include "formats/export.h"
#include "formats/protobuf.h"
#include "formats/rank_view.h"

/* Field numbers, message by message. */
enum { TRACE_PACKET = 1 };
enum {
    PACKET_TIMESTAMP = 8, PACKET_SEQUENCE = 10, PACKET_EVENT = 11, PACKET_INTERNED = 12, PACKET_FLAGS = 13,
    PACKET_FIRST = 87, PACKET_TRACK = 60
};
enum { TRACK_UUID = 1, TRACK_NAME = 2, TRACK_PROCESS = 3, TRACK_THREAD = 4, TRACK_PARENT = 5, TRACK_ORDER = 11, TRACK_RANK = 12 };
enum { PROCESS_PID = 1, PROCESS_SORT = 3, PROCESS_NAME = 6, PROCESS_LABEL = 8 };
enum { THREAD_PID = 1, THREAD_TID = 2, THREAD_SORT = 3, THREAD_NAME = 5 };
enum { INTERNED_CATEGORY = 1, INTERNED_NAME = 2, INTERNED_ARGUMENT = 3, INTERNED_SOURCE = 4 };
enum { INTERNED_ID = 1, INTERNED_TEXT = 2 };
enum { SOURCE_ID = 1, SOURCE_FILE = 2, SOURCE_FUNCTION = 3, SOURCE_LINE = 4 };
enum {
    EVENT_CATEGORY = 3, EVENT_ARGUMENT = 4, EVENT_TYPE = 9, EVENT_NAME = 10, EVENT_TRACK = 11, EVENT_TEXT = 23,
    EVENT_SOURCE = 34, EVENT_FLOW = 47, EVENT_FLOW_END = 48
};
enum { ARGUMENT_NAME = 1, ARGUMENT_BOOL = 2, ARGUMENT_INT = 4, ARGUMENT_TEXT = 6 };

enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3 };
enum { STATE_CLEARED = 1, NEEDS_STATE = 2 };
enum { EXPLICIT_ORDER = 3 };
enum { SEQUENCE = 1 }; /* the only one: state that packets refer to belongs to a sequence */

typedef enum category { CATEGORY_CALL = 1, CATEGORY_AWAIT, CATEGORY_TASK, CATEGORY_THREAD, CATEGORY_COUNT } category;
static const char *const categories[CATEGORY_COUNT] = {NULL, "call", "await", "task", "thread"};

typedef enum known_argument {
    ARG_CALL_INDEX = 1, ARG_CALL_ID, ARG_PARENT_ID, ARG_AWAIT, ARG_GPU, ARG_METADATA, ARG_NATIVE_ID, ARG_IDENT, ARG_DAEMON,
    ARG_CPU, ARG_KIND, ARG_COROUTINE, ARG_STEPS, ARG_RUNNING, ARG_AWAITING, ARG_CREATED, ARG_COUNT
} known_argument;
static const char *const argument_names[ARG_COUNT] = {
    NULL, "call_index", "call_id", "parent_id", "await_ns", "gpu_ns", "metadata", "native_id", "ident", "daemon",
    "cpu_ns", "kind", "coroutine", "steps", "running_ns", "awaiting_ns", "created_ns",
};

enum { NAME_AWAITING = 1, NAME_REGIONS }; /* names of regions follow from here */

typedef struct writer {
    const sp_export *what;
    sp_output *out;
    sp_message packet;
    int64_t origin;
    uint64_t next_uuid;
    uint64_t next_number; /* of processes and threads */
    sp_rank_view view; /* of the rank that is being written */
    uint64_t first_uuid; /* of the rank's lanes, in their order */
    uint64_t process_uuid, process_number;
} writer;

/* -- packets ---------------------------------------------------------------------------------------------------------- */

static void begin_packet(writer *w, uint64_t flags)
{
    w->packet.used = 0;
    sp_message_varint(&w->packet, PACKET_SEQUENCE, SEQUENCE);
    sp_message_varint(&w->packet, PACKET_FLAGS, flags);
}

static void end_packet(writer *w)
{
    unsigned char head[11], *end = head;
    *end++ = TRACE_PACKET << 3 | 2;
    end = sp_varint_put(end, w->packet.used);
    sp_output_bytes(w->out, head, (size_t)(end - head));
    sp_output_bytes(w->out, w->packet.data, w->packet.used);
}

/* Begins the event inside a packet; end_event needs what it returns. */
static size_t begin_event(writer *w, int64_t at, uint64_t type, uint64_t track)
{
    begin_packet(w, NEEDS_STATE);
    sp_message_varint(&w->packet, PACKET_TIMESTAMP, (uint64_t)at - (uint64_t)w->origin);
    const size_t event = sp_message_begin(&w->packet, PACKET_EVENT);
    sp_message_varint(&w->packet, EVENT_TYPE, type);
    sp_message_varint(&w->packet, EVENT_TRACK, track);
    return event;
}

static void end_event(writer *w, size_t event)
{
    sp_message_end(&w->packet, event);
    end_packet(w);
}

static void end_slice(writer *w, int64_t at, uint64_t track)
{
    end_event(w, begin_event(w, at, SLICE_END, track));
}

static void add_number(writer *w, known_argument name, int64_t value)
{
    const size_t argument = sp_message_begin(&w->packet, EVENT_ARGUMENT);
    sp_message_varint(&w->packet, ARGUMENT_NAME, name);
    sp_message_varint(&w->packet, ARGUMENT_INT, (uint64_t)value);
    sp_message_end(&w->packet, argument);
}

static void add_flag(writer *w, known_argument name, bool value)
{
    const size_t argument = sp_message_begin(&w->packet, EVENT_ARGUMENT);
    sp_message_varint(&w->packet, ARGUMENT_NAME, name);
    sp_message_varint(&w->packet, ARGUMENT_BOOL, value);
    sp_message_end(&w->packet, argument);
}

static void add_text(writer *w, known_argument name, const char *value)
{
    const size_t argument = sp_message_begin(&w->packet, EVENT_ARGUMENT);
    sp_message_varint(&w->packet, ARGUMENT_NAME, name);
    sp_message_text(&w->packet, ARGUMENT_TEXT, value);
    sp_message_end(&w->packet, argument);
}

static void add_column(writer *w, known_argument name, sp_column column, uint64_t at)
{
    const int64_t *values = w->what->profile->columns[column];
    if (values) add_number(w, name, values[at]);
}

/* -- what is told once ------------------------------------------------------------------------------------------------ */

static void intern(writer *w, uint32_t list, uint64_t id, const char *text)
{
    const size_t entry = sp_message_begin(&w->packet, list);
    sp_message_varint(&w->packet, INTERNED_ID, id);
    sp_message_text(&w->packet, INTERNED_TEXT, text);
    sp_message_end(&w->packet, entry);
}

static void write_vocabulary(writer *w)
{
    begin_packet(w, STATE_CLEARED);
    sp_message_varint(&w->packet, PACKET_FIRST, 1);
    const size_t data = sp_message_begin(&w->packet, PACKET_INTERNED);
    for (uint64_t i = 1; i < CATEGORY_COUNT; i++) intern(w, INTERNED_CATEGORY, i, categories[i]);
    for (uint64_t i = 1; i < ARG_COUNT; i++) intern(w, INTERNED_ARGUMENT, i, argument_names[i]);
    intern(w, INTERNED_NAME, NAME_AWAITING, "awaiting");
    sp_message_end(&w->packet, data);
    end_packet(w);
}

static void write_region_name(writer *w, uint32_t name)
{
    begin_packet(w, NEEDS_STATE);
    const size_t data = sp_message_begin(&w->packet, PACKET_INTERNED);
    intern(w, INTERNED_NAME, NAME_REGIONS + (uint64_t)name, w->what->profile->names[name]);
    sp_message_end(&w->packet, data);
    end_packet(w);
}

/* Its number is the row's place + 1. */
static void write_source(writer *w, size_t place)
{
    const sp_row *row = &w->what->profile->rows[place];
    begin_packet(w, NEEDS_STATE);
    const size_t data = sp_message_begin(&w->packet, PACKET_INTERNED);
    const size_t source = sp_message_begin(&w->packet, INTERNED_SOURCE);
    sp_message_varint(&w->packet, SOURCE_ID, place + 1);
    sp_message_text(&w->packet, SOURCE_FILE, row->source_file);
    sp_message_text(&w->packet, SOURCE_FUNCTION, w->what->profile->names[row->name]);
    if (row->source_line >= 0) sp_message_varint(&w->packet, SOURCE_LINE, (uint64_t)row->source_line);
    sp_message_end(&w->packet, source);
    sp_message_end(&w->packet, data);
    end_packet(w);
}

static void write_names(writer *w)
{
    const sp_profile *profile = w->what->profile;
    write_vocabulary(w);
    for (uint32_t i = 0; i < profile->name_count; i++) {
        if (w->what->visible == NULL || w->what->visible[i]) write_region_name(w, i);
    }
    for (size_t i = 0; i < profile->row_count; i++) {
        const bool shown = w->what->visible == NULL || w->what->visible[profile->rows[i].name];
        if (shown && profile->rows[i].source_file) write_source(w, i);
    }
}

/* -- tracks ----------------------------------------------------------------------------------------------------------- */

static size_t begin_track(writer *w, uint64_t uuid)
{
    begin_packet(w, NEEDS_STATE);
    const size_t track = sp_message_begin(&w->packet, PACKET_TRACK);
    sp_message_varint(&w->packet, TRACK_UUID, uuid);
    return track;
}

static void end_track(writer *w, size_t track)
{
    sp_message_end(&w->packet, track);
    end_packet(w);
}

/* Numbers of our own: 0 is the kernel's, and those of the system may come again within a run. */
static bool write_process(writer *w, uint32_t rank, size_t place)
{
    char *name = sp_profile_rank_label(w->what->profile, rank);
    if (name == NULL) return false;
    w->process_uuid = w->next_uuid++;
    w->process_number = w->next_number++;
    const size_t track = begin_track(w, w->process_uuid);
    const size_t process = sp_message_begin(&w->packet, TRACK_PROCESS);
    sp_message_varint(&w->packet, PROCESS_PID, w->process_number);
    sp_message_varint(&w->packet, PROCESS_SORT, place);
    sp_message_text(&w->packet, PROCESS_NAME, name);
    if (*w->what->name) sp_message_text(&w->packet, PROCESS_LABEL, w->what->name);
    sp_message_end(&w->packet, process);
    end_track(w, track);
    free(name);
    return true;
}

/* Of a lane's own track; the process when the lane is not among them. */
static uint64_t uuid_of(const writer *w, const sp_rank_lanes *lanes, int64_t lane)
{
    const sp_lane_entry *found = sp_rank_lanes_find(lanes, lane);
    return found ? w->first_uuid + (uint64_t)(found - lanes->lanes) : w->process_uuid;
}

static uint64_t parent_of(const writer *w, const sp_rank_lanes *lanes, const sp_lane_entry *lane)
{
    if (lane->key.extra > 0) return uuid_of(w, lanes, lane->key.lane);
    if (lane->task && lane->task->thread_index >= 0) return uuid_of(w, lanes, sp_thread_lane(lane->task->thread_index));
    return w->process_uuid;
}

static void write_thread(writer *w, const sp_lane_entry *lane, const char *label)
{
    const size_t thread = sp_message_begin(&w->packet, TRACK_THREAD);
    sp_message_varint(&w->packet, THREAD_PID, w->process_number);
    sp_message_varint(&w->packet, THREAD_TID, w->next_number++);
    sp_message_varint(&w->packet, THREAD_SORT, (uint64_t)sp_thread_lane(lane->key.lane));
    sp_message_text(&w->packet, THREAD_NAME, label);
    sp_message_end(&w->packet, thread);
    sp_message_varint(&w->packet, TRACK_ORDER, EXPLICIT_ORDER);
}

static char *label_of(writer *w, const sp_tracks *tracks, const sp_lane_entry *lane)
{
    char *label;
    if (lane->key.lane != SP_LANE_UNKNOWN || tracks->has_lanes) return sp_lane_names_label(&w->view.names, &lane->key);
    char *process = sp_profile_rank_label(w->what->profile, tracks->rank);
    if (process == NULL || !lane->key.extra) return process;
    const int made = asprintf(&label, "%s (overlap %u)", process, lane->key.extra);
    free(process);
    return made < 0 ? NULL : label;
}

static bool write_track(writer *w, const sp_tracks *tracks, const sp_rank_lanes *lanes, size_t place)
{
    const sp_lane_entry *lane = &lanes->lanes[place];
    char *label = label_of(w, tracks, lane);
    if (label == NULL) return false;
    const size_t track = begin_track(w, w->first_uuid + place);
    if (lane->key.lane < SP_LANE_UNKNOWN && lane->key.extra == 0) {
        write_thread(w, lane, label);
    } else {
        sp_message_varint(&w->packet, TRACK_PARENT, parent_of(w, lanes, lane));
        sp_message_text(&w->packet, TRACK_NAME, label);
        sp_message_varint(&w->packet, TRACK_RANK, place);
    }
    end_track(w, track);
    free(label);
    return true;
}

/* -- events ----------------------------------------------------------------------------------------------------------- */

static uint64_t flow_of(const sp_task_info *task)
{
    return (uint64_t)task->rank << 32 | ((uint64_t)task->index + 1);
}

static void describe_task(writer *w, const sp_task_info *task)
{
    if (task->kind) add_text(w, ARG_KIND, task->kind);
    if (task->coro_name) add_text(w, ARG_COROUTINE, task->coro_name);
    add_number(w, ARG_CREATED, task->created_ns);
    add_number(w, ARG_STEPS, task->steps);
    add_number(w, ARG_RUNNING, task->running_ns);
    add_number(w, ARG_AWAITING, task->suspended_ns);
}

static void describe_thread(writer *w, const sp_thread_info *thread)
{
    add_number(w, ARG_NATIVE_ID, thread->native_id);
    add_number(w, ARG_IDENT, thread->ident);
    add_flag(w, ARG_DAEMON, thread->daemon);
    if (thread->cpu_ns >= 0) add_number(w, ARG_CPU, thread->cpu_ns);
}

static void begin_life(writer *w, const sp_lane_entry *lane, int64_t at, uint64_t track, const char *label)
{
    const size_t event = begin_event(w, at, SLICE_BEGIN, track);
    sp_message_varint(&w->packet, EVENT_CATEGORY, lane->task ? CATEGORY_TASK : CATEGORY_THREAD);
    sp_message_text(&w->packet, EVENT_TEXT, label);
    if (lane->created) sp_message_fixed64(&w->packet, EVENT_FLOW_END, flow_of(lane->task));
    if (lane->task) describe_task(w, lane->task);
    else describe_thread(w, lane->thread);
    end_event(w, event);
}

static void add_metadata(writer *w, const sp_call *call)
{
    size_t size;
    const char *metadata = sp_event_items_get(&w->view.items, call->row, call->own, &size);
    if (metadata == NULL) return;
    char *strict = sp_json_strict(metadata, size);
    if (strict) add_text(w, ARG_METADATA, strict);
    else w->packet.failed = true;
    free(strict);
}

static void begin_call(writer *w, const sp_call *call, uint64_t track)
{
    const size_t event = begin_event(w, call->start_ns, SLICE_BEGIN, track);
    sp_message_varint(&w->packet, EVENT_CATEGORY, CATEGORY_CALL);
    sp_message_varint(&w->packet, EVENT_NAME, NAME_REGIONS + (uint64_t)call->row->name);
    if (call->row->source_file) {
        sp_message_varint(&w->packet, EVENT_SOURCE, (uint64_t)(call->row - w->what->profile->rows) + 1);
    }
    add_number(w, ARG_CALL_INDEX, (int64_t)call->own);
    add_column(w, ARG_CALL_ID, SP_COLUMN_CALL_ID, call->column);
    add_column(w, ARG_PARENT_ID, SP_COLUMN_PARENT_ID, call->column);
    add_column(w, ARG_AWAIT, SP_COLUMN_AWAIT, call->column);
    add_column(w, ARG_GPU, SP_COLUMN_GPU, call->column);
    add_metadata(w, call);
    end_event(w, event);
}

static void write_awaiting(writer *w, const sp_lane_event *event, uint64_t track)
{
    const size_t begin = begin_event(w, event->at, SLICE_BEGIN, track);
    sp_message_varint(&w->packet, EVENT_CATEGORY, CATEGORY_AWAIT);
    sp_message_varint(&w->packet, EVENT_NAME, NAME_AWAITING);
    end_event(w, begin);
    end_slice(w, event->end, track);
}

static bool write_creation(writer *w, const sp_lane_event *event, uint64_t track)
{
    char *name = NULL;
    const sp_task_info *task = event->made->task;
    if (asprintf(&name, "create %s", task->name && *task->name ? task->name : "task") < 0) return false;
    const size_t begin = begin_event(w, event->at, INSTANT, track);
    sp_message_varint(&w->packet, EVENT_CATEGORY, CATEGORY_TASK);
    sp_message_text(&w->packet, EVENT_TEXT, name);
    sp_message_fixed64(&w->packet, EVENT_FLOW, flow_of(task));
    end_event(w, begin);
    free(name);
    return true;
}

static bool write_event(writer *w, const sp_lane_entry *lane, const sp_lane_event *event, uint64_t track, const char *label)
{
    switch (event->kind) {
    case SP_LANE_LIFE_BEGIN: begin_life(w, lane, event->at, track, label); break;
    case SP_LANE_CALL_BEGIN: begin_call(w, &event->call, track); break;
    case SP_LANE_AWAIT: write_awaiting(w, event, track); break;
    case SP_LANE_CREATION: return write_creation(w, event, track);
    case SP_LANE_LIFE_END:
    case SP_LANE_CALL_END: end_slice(w, event->at, track); break;
    }
    return !w->packet.failed;
}

static sp_status write_lane(writer *w, const sp_tracks *tracks, const sp_rank_lanes *lanes, size_t place)
{
    const sp_lane_entry *lane = &lanes->lanes[place];
    char *label = label_of(w, tracks, lane);
    if (label == NULL) return SP_ERR_NO_MEMORY;
    sp_lane_walk walk;
    sp_lane_event event;
    sp_status status = sp_lane_walk_begin(&walk, lanes, tracks, lane);
    if (status == SP_OK) {
        while ((status = sp_lane_walk_next(&walk, &event)) == SP_OK) {
            if (!write_event(w, lane, &event, w->first_uuid + place, label)) status = SP_ERR_NO_MEMORY;
            if (status != SP_OK) break;
        }
        sp_lane_walk_end(&walk);
    }
    free(label);
    return status == SP_ERR_NOT_FOUND ? SP_OK : status;
}

static sp_status write_lanes(writer *w, const sp_tracks *tracks, const sp_rank_lanes *lanes)
{
    w->first_uuid = w->next_uuid;
    w->next_uuid += lanes->count;
    for (size_t i = 0; i < lanes->count; i++) {
        if (!write_track(w, tracks, lanes, i)) return SP_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < lanes->count; i++) {
        const sp_status status = write_lane(w, tracks, lanes, i);
        if (status != SP_OK) return status;
    }
    return SP_OK;
}

static sp_status write_rank(writer *w, uint32_t rank, size_t place, sp_error *error)
{
    if (!write_process(w, rank, place)) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the name of rank %u", rank);
    sp_status status = sp_rank_view_make(&w->view, w->what, rank, w->origin, error);
    if (status != SP_OK) return status;
    status = write_lanes(w, &w->view.tracks, &w->view.lanes);
    if (status != SP_OK) sp_fail(error, status, "out of memory for the tracks of rank %u", rank);
    sp_rank_view_free(&w->view);
    return status;
}

sp_status sp_export_perfetto(const sp_export *what, const char *path, sp_error *error)
{
    sp_output out = {0};
    writer w = {.what = what, .out = &out, .next_uuid = 1, .next_number = 1};
    w.origin = sp_trace_origin(what->profile, what->ranks, what->rank_count, what->visible);
    sp_status status = sp_output_begin(&out, path, error);
    if (status != SP_OK) return status;
    write_names(&w);
    for (size_t i = 0; status == SP_OK && i < what->rank_count; i++) status = write_rank(&w, what->ranks[i], i, error);
    if (status == SP_OK && w.packet.failed) {
        status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory to write %s", path);
    }
    sp_message_free(&w.packet);
    if (status == SP_OK) return sp_output_commit(&out, error);
    sp_output_abort(&out);
    return status;
}
