/*
 * folded.c - folded stacks: a line a call path with its regions from the outermost in, joined by semicolons, and the ns spent in
 * it without the calls inside. flamegraph.pl, inferno and speedscope read it.
 *
 *   request;parse 182000
 *
 * The format has no escapes. In names, a semicolon becomes a colon and a control character a space; no name at all is "-".
 * Paths in which no time was spent are left out. With lanes, a frame for the thread or task is the outermost; with several
 * ranks, one for the rank is outside of that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/call_paths.h"
#include "formats/export.h"
#include "formats/utf8.h"

typedef struct writer {
    const sp_export *what;
    sp_output *out;
    char **frames;    /* by name: as it is written; made when first needed */
    uint32_t *chain;  /* nodes of a path from the innermost out */
    size_t chain_room;
    bool failed;      /* out of memory */
} writer;

/* malloc'ed; NULL: out of memory. */
static char *frame_text(const char *name)
{
    char *text = sp_utf8_repaired(*name ? name : "-");
    for (char *at = text; text && *at; at++) {
        if (*at == ';') *at = ':';
        else if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = ' ';
    }
    return text;
}

static void put_frame(writer *w, uint32_t name)
{
    char **frame = &w->frames[name];
    if (*frame == NULL) *frame = frame_text(w->what->profile->names[name]);
    if (*frame) sp_output_text(w->out, *frame);
    else w->failed = true;
}

static bool make_room(writer *w, size_t count)
{
    if (count <= w->chain_room) return true;
    uint32_t *larger = realloc(w->chain, count * sizeof *larger);
    if (larger == NULL) return false;
    w->chain = larger;
    w->chain_room = count;
    return true;
}

/* `prefix`: the frames around every path. */
static bool write_paths(writer *w, const sp_call_paths *paths, const char *prefix)
{
    if (!make_room(w, paths->count)) return false;
    for (uint32_t i = 0; i < paths->count; i++) {
        if (paths->nodes[i].exclusive_ns <= 0) continue;
        size_t depth = 0;
        for (uint32_t node = i; node != SP_NO_CALL; node = paths->nodes[node].parent) w->chain[depth++] = node;
        sp_output_text(w->out, prefix);
        while (depth-- > 0) {
            put_frame(w, w->what->profile->rows[paths->nodes[w->chain[depth]].row].name);
            sp_output_char(w->out, depth > 0 ? ';' : ' ');
        }
        sp_output_integer(w->out, paths->nodes[i].exclusive_ns);
        sp_output_char(w->out, '\n');
    }
    return !w->failed;
}

/* "rank 3;" when there are several ranks. */
static void rank_frame(const writer *w, uint32_t rank, char text[32])
{
    text[0] = '\0';
    if (w->what->rank_count > 1) snprintf(text, 32, "rank %u;", rank);
}

static sp_status write_whole_rank(writer *w, uint32_t rank, sp_error *error)
{
    char prefix[32];
    sp_call_paths paths;
    const sp_status status = sp_call_paths_make(&paths, w->what->profile, rank, w->what->visible, error);
    if (status != SP_OK) return status;
    rank_frame(w, rank, prefix);
    const bool ok = write_paths(w, &paths, prefix);
    sp_call_paths_free(&paths);
    return ok ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the call paths of rank %u", rank);
}

static sp_status write_track(writer *w, const sp_tracks *tracks, const sp_track *track, sp_lane_names *names, sp_error *error)
{
    char rank[32], *frame = NULL, *prefix = NULL;
    sp_call_paths paths;
    sp_status status = sp_call_paths_of_track(&paths, tracks, track, error);
    if (status != SP_OK) return status;
    rank_frame(w, tracks->rank, rank);
    char *label = tracks->has_lanes ? sp_lane_names_label(names, track) : NULL;
    if (label) frame = frame_text(label);
    const int made = frame ? asprintf(&prefix, "%s%s;", rank, frame) : asprintf(&prefix, "%s", rank);
    const bool ok = (frame || !tracks->has_lanes) && made >= 0 && write_paths(w, &paths, prefix);
    if (!ok) status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the lanes of rank %u", tracks->rank);
    if (made >= 0) free(prefix);
    free(frame);
    free(label);
    sp_call_paths_free(&paths);
    return status;
}

static sp_status write_lanes(writer *w, uint32_t rank, sp_error *error)
{
    sp_tracks tracks;
    sp_lane_names names;
    sp_status status = sp_tracks_make(&tracks, w->what->profile, rank, w->what->visible, error);
    if (status != SP_OK) return status;
    status = sp_lane_names_make(&names, w->what->profile, rank, error);
    if (status == SP_OK) {
        for (size_t t = 0; status == SP_OK && t < tracks.track_count; t++) {
            status = write_track(w, &tracks, &tracks.tracks[t], &names, error);
        }
        sp_lane_names_free(&names);
    }
    sp_tracks_free(&tracks);
    return status;
}

sp_status sp_export_folded(const sp_export *what, const char *path, sp_error *error)
{
    sp_output out = {0};
    writer w = {.what = what, .out = &out};
    sp_status status = sp_output_begin(&out, path, error);
    if (status != SP_OK) return status;
    w.frames = calloc(what->profile->name_count + 1, sizeof *w.frames);
    if (w.frames == NULL) status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the names of regions");
    for (size_t i = 0; status == SP_OK && i < what->rank_count; i++) {
        status = what->by_lane ? write_lanes(&w, what->ranks[i], error) : write_whole_rank(&w, what->ranks[i], error);
    }
    for (size_t i = 0; w.frames && i < what->profile->name_count; i++) free(w.frames[i]);
    free(w.frames);
    free(w.chain);
    if (status == SP_OK) return sp_output_commit(&out, error);
    sp_output_abort(&out);
    return status;
}
