/* speedscope.c - the file format of speedscope.app: one evented profile a track, times in seconds from the first call. */
#include <stdio.h>
#include <stdlib.h>

#include "analysis/wrap.h"
#include "formats/export.h"

#define SCHEMA "https://www.speedscope.app/file-format-schema.json"

/* An event of a frame up to its time. */
typedef struct event_text {
    uint32_t size; /* 0: the frame is not used yet */
    char text[44];
} event_text;

typedef struct writer {
    const sp_export *what;
    sp_output *out;
    int64_t origin;
    event_text *events; /* by name */
    uint32_t *frames;   /* names in order of their first use */
    uint32_t frame_count;
    uint32_t profile_count;
    uint32_t busiest;      /* the profile with the most time in calls: what the viewer shows first */
    int64_t most;
} writer;

#define TYPE_AT 10 /* where the text has the letter that tells an open from a close */

static const event_text *event_of(writer *w, uint32_t name)
{
    event_text *event = &w->events[name];
    if (event->size == 0) {
        const int size = snprintf(event->text, sizeof event->text, ",{\"type\":\"O\",\"frame\":%u,\"at\":", w->frame_count);
        event->size = (uint32_t)size;
        w->frames[w->frame_count++] = name;
    }
    return event;
}

static void write_time(writer *w, int64_t at)
{
    sp_output_decimal(w->out, sp_minus(at, w->origin), 9);
}

static sp_status write_events(writer *w, const sp_tracks *tracks, const sp_track *track)
{
    int64_t busy = 0;
    sp_output *const out = w->out;
    sp_walk walk;
    sp_walk_event event;
    sp_status status;
    bool first = true;
    sp_walk_begin(&walk, tracks, track);
    while ((status = sp_walk_next(&walk, &event)) == SP_OK) {
        const event_text *text = event_of(w, event.row->name);
        if (event.opens && event.depth == 0) busy = sp_plus(busy, sp_minus(event.call.end_ns, event.call.start_ns));
        char *to = sp_output_room(out);
        memcpy(to, text->text + first, sizeof text->text - 1); /* of a size that the compiler knows; the first without the comma */
        if (!event.opens) to[TYPE_AT - first] = 'C';
        to = sp_decimal_seconds(to + text->size - first, sp_minus(event.at, w->origin));
        *to++ = '}';
        sp_output_took(out, to);
        first = false;
    }
    sp_walk_end(&walk);
    if (busy > w->most) {
        w->most = busy;
        w->busiest = w->profile_count;
    }
    return status == SP_ERR_NOT_FOUND ? SP_OK : status;
}

/* "rank 0", or "rank 0 - MainThread" where calls have lanes. */
static sp_status write_title(writer *w, const sp_tracks *tracks, sp_lane_names *names, const sp_track *track)
{
    char *process = sp_profile_rank_label(w->what->profile, tracks->rank);
    char *lane = tracks->has_lanes ? sp_lane_names_label(names, track) : NULL;
    char *title = NULL;
    int made = -1;
    if (process && lane) made = asprintf(&title, "%s - %s", process, lane);
    else if (process && !tracks->has_lanes && track->extra > 0) made = asprintf(&title, "%s (overlap %u)", process, track->extra);
    else if (process && !tracks->has_lanes) made = asprintf(&title, "%s", process);
    if (made >= 0) {
        sp_output_json_text(w->out, title);
        free(title);
    }
    free(process);
    free(lane);
    return made >= 0 ? SP_OK : SP_ERR_NO_MEMORY;
}

static sp_status write_profile(writer *w, const sp_tracks *tracks, sp_lane_names *names, const sp_track *track)
{
    sp_output *const out = w->out;
    if (w->profile_count > 0) sp_output_char(out, ',');
    SP_OUTPUT_LITERAL(out, "\n{\"type\":\"evented\",\"name\":");
    sp_status status = write_title(w, tracks, names, track);
    if (status != SP_OK) return status;
    SP_OUTPUT_LITERAL(out, ",\"unit\":\"seconds\",\"startValue\":");
    write_time(w, sp_tracks_call(tracks, tracks->calls[track->first]).start_ns);
    SP_OUTPUT_LITERAL(out, ",\"endValue\":");
    write_time(w, track->end_ns);
    SP_OUTPUT_LITERAL(out, ",\"events\":[");
    status = write_events(w, tracks, track);
    w->profile_count++;
    SP_OUTPUT_LITERAL(out, "]}");
    return status;
}

static sp_status write_rank(writer *w, uint32_t rank, sp_error *error)
{
    sp_tracks tracks;
    sp_lane_names names;
    sp_status status = sp_tracks_make(&tracks, w->what->profile, rank, w->what->visible, error);
    if (status != SP_OK) return status;
    status = sp_lane_names_make(&names, w->what->profile, rank, error);
    if (status == SP_OK) {
        for (size_t i = 0; status == SP_OK && i < tracks.track_count; i++) {
            status = write_profile(w, &tracks, &names, &tracks.tracks[i]);
        }
        if (status != SP_OK) sp_fail(error, status, "out of memory for the tracks of rank %u", rank);
        sp_lane_names_free(&names);
    }
    sp_tracks_free(&tracks);
    return status;
}

static sp_status write_document(writer *w, sp_error *error)
{
    sp_output *const out = w->out;
    SP_OUTPUT_LITERAL(out, "{\"$schema\":\"" SCHEMA "\",\"exporter\":\"" SP_EXPORTER "\",\"name\":");
    sp_output_json_text(out, w->what->name);
    SP_OUTPUT_LITERAL(out, ",\"profiles\":[");
    for (size_t i = 0; i < w->what->rank_count; i++) {
        const sp_status status = write_rank(w, w->what->ranks[i], error);
        if (status != SP_OK) return status;
    }
    /* Last, since only now is known which regions occur, and in which order, and which profile to begin with. */
    SP_OUTPUT_LITERAL(out, "],\n\"shared\":{\"frames\":[");
    for (uint32_t i = 0; i < w->frame_count; i++) {
        if (i > 0) sp_output_char(out, ',');
        SP_OUTPUT_LITERAL(out, "{\"name\":");
        sp_output_json_text(out, w->what->profile->names[w->frames[i]]);
        sp_output_char(out, '}');
    }
    SP_OUTPUT_LITERAL(out, "]},\n\"activeProfileIndex\":");
    sp_output_integer(out, w->busiest);
    SP_OUTPUT_LITERAL(out, "}\n");
    return SP_OK;
}

sp_status sp_export_speedscope(const sp_export *what, const char *path, sp_error *error)
{
    sp_output out = {0};
    writer w = {.what = what, .out = &out};
    int64_t end;
    if (!sp_calls_range(what->profile, what->ranks, what->rank_count, what->visible, &w.origin, &end)) w.origin = 0;
    const size_t names = what->profile->name_count + 1;
    w.events = calloc(names, sizeof *w.events);
    w.frames = calloc(names, sizeof *w.frames);
    sp_status status = w.events && w.frames ? sp_output_begin(&out, path, error)
                                              : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu regions", names);
    if (status == SP_OK) {
        status = write_document(&w, error);
        if (status == SP_OK) status = sp_output_commit(&out, error);
        else sp_output_abort(&out);
    }
    free(w.events);
    free(w.frames);
    return status;
}
