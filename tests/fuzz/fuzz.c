#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "analysis/path_summary.h"
#include "analysis/tracks.h"
#include "formats/export.h"
#include "formats/hdf5.h"
#include "formats/utf8.h"
#include "report/report.h"

void fuzz_fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
    abort();
}

/* -- files and inputs -- */

fuzz_file fuzz_file_make(const void *data, size_t size)
{
    fuzz_file file = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    const char *at = data;
    FUZZ_CHECK(file.fd >= 0);
    while (size) {
        const ssize_t put = write(file.fd, at, size);
        FUZZ_CHECK(put > 0);
        at += put;
        size -= (size_t)put;
    }
    snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
    return file;
}

void fuzz_file_close(fuzz_file *file)
{
    close(file->fd);
}

uint64_t fuzz_take(fuzz_input *input, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && input->at < input->end; i++) value |= (uint64_t)*input->at++ << (8 * i);
    return value;
}

uint64_t fuzz_take_edge(fuzz_input *input)
{
    static const uint64_t edges[] = {0, 1, 2, 3, 7, 63, 64, 255, 4095, 4096, 65535, INT32_MAX, UINT32_MAX, UINT64_C(1) << 32,
                                     UINT64_C(1) << 52, UINT64_C(1) << 60, UINT64_C(1) << 61, UINT64_C(1) << 62, INT64_MAX,
                                     UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX};
    const size_t count = sizeof edges / sizeof *edges, choice = (size_t)fuzz_take(input, 1);
    if (choice < 3 * count) return edges[choice / 3] + choice % 3 - 1;
    return choice < 160 ? fuzz_take(input, 2) : fuzz_take(input, 8);
}

size_t fuzz_take_bytes(fuzz_input *input, void *out, size_t most)
{
    const size_t left = (size_t)(input->end - input->at), size = most < left ? most : left;
    if (size) memcpy(out, input->at, size);
    input->at += size;
    return size;
}

/* -- profiles -- */

static void set_column(sp_profile *profile, sp_column column, const int64_t *values)
{
    profile->columns[column] = sp_column_alloc(profile->call_count);
    memcpy(profile->columns[column], values, profile->call_count * sizeof *values);
}

static void add_group(sp_profile *profile)
{
    profile->aux = calloc(1, sizeof *profile->aux);
    profile->aux_count = 1;
    sp_group *root = &profile->aux[0].root;
    root->groups = calloc(1, sizeof *root->groups);
    root->group_count = 1;
    sp_group *group = root->groups;
    group->name = strdup("line_profile");
    group->datasets = calloc(2, sizeof *group->datasets);
    group->dataset_count = 2;
    int64_t *numbers = calloc(2, sizeof *numbers);
    numbers[1] = 7;
    char **texts = calloc(1, sizeof *texts);
    texts[0] = strdup("text");
    group->datasets[0] = (sp_array){strdup("hits"), SP_ARRAY_INT64, 1, {2}, numbers};
    group->datasets[1] = (sp_array){strdup("names"), SP_ARRAY_STRING, 2, {1, 1}, texts};
}

sp_profile *fuzz_small_profile(void)
{
    sp_profile *profile = sp_profile_new();
    profile->names = calloc(2, sizeof *profile->names);
    profile->names[0] = strdup("main");
    profile->names[1] = strdup("w\xc3\xb6rk/x");
    profile->name_count = 2;
    profile->call_count = 5;
    set_column(profile, SP_COLUMN_START, (int64_t[]){100, 110, 130, 140, 165});
    set_column(profile, SP_COLUMN_END, (int64_t[]){200, 120, 160, 150, 170});
    set_column(profile, SP_COLUMN_CALL_ID, (int64_t[]){0, 1, 2, 3, 4});
    set_column(profile, SP_COLUMN_PARENT_ID, (int64_t[]){-1, 0, 0, 2, -1});
    set_column(profile, SP_COLUMN_THREAD, (int64_t[]){0, 0, 0, 0, 0});
    set_column(profile, SP_COLUMN_TASK, (int64_t[]){-1, -1, -1, -1, 0});
    set_column(profile, SP_COLUMN_AWAIT, (int64_t[]){0, 0, 0, 0, 2});
    profile->rows = calloc(2, sizeof *profile->rows);
    profile->row_count = 2;
    profile->rows[0] = (sp_row){.name = 0, .count = 1, .source_line = SP_UNKNOWN, .exclusive_total = 60};
    profile->rows[1] = (sp_row){.name = 1, .first = 1, .count = 4, .source_line = 7, .exclusive_total = 45,
                                .source_file = strdup("a.c"), .source_text = strdup("x();"), .tags = strdup("[\"t\"]"),
                                .event_metadata = strdup("[{},{\"k\":[1,NaN]},{},{}]")};
    profile->has_threads = true;
    profile->threads = calloc(1, sizeof *profile->threads);
    profile->thread_count = 1;
    profile->threads[0] = (sp_thread_info){.ident = 5, .native_id = 6, .end_ns = -1, .name = strdup("main")};
    profile->tasks = calloc(1, sizeof *profile->tasks);
    profile->task_count = 1;
    profile->tasks[0] = (sp_task_info){.kind = strdup("task"), .name = strdup("Task-1"), .coro_name = strdup("f"), .done_ns = 9};
    profile->nested = true;
    sp_profile_set_string(profile, "label", "C");
    sp_profile_set_strings(profile, "modules", (const char *const[]){"a", ""}, 2);
    sp_profile_set_float(profile, "ratio", 0.5);
    sp_profile_set_int(profile, "mpi_size", 1);
    add_group(profile);
    return profile;
}

static uint64_t sum; /* so that nothing that is looked at is optimised away */

static void see_text(const char *text, bool wanted)
{
    FUZZ_CHECK(text || !wanted);
    if (text == NULL) return;
    FUZZ_CHECK(sp_utf8_valid(text, strlen(text)));
    sum += strlen(text);
}

static void see_array(const sp_array *array)
{
    FUZZ_CHECK(array->dimensions >= 0 && array->dimensions <= 4);
    see_text(array->name, true);
    const uint64_t size = sp_array_size(array);
    for (uint64_t i = 0; i < size; i++) {
        if (array->kind == SP_ARRAY_STRING) see_text(((char *const *)array->data)[i], true);
        else sum += ((const uint64_t *)array->data)[i];
    }
}

static void see_group(const sp_group *group)
{
    for (size_t i = 0; i < group->attribute_count; i++) see_array(&group->attributes[i]);
    for (size_t i = 0; i < group->dataset_count; i++) see_array(&group->datasets[i]);
    for (size_t i = 0; i < group->group_count; i++) {
        see_text(group->groups[i].name, true);
        see_group(&group->groups[i]);
    }
}

static void see_metadata(const sp_profile *profile)
{
    for (size_t i = 0; i < profile->metadata_count; i++) {
        const sp_metadata *entry = &profile->metadata[i];
        see_text(entry->key, true);
        FUZZ_CHECK((unsigned)entry->kind <= SP_VALUE_STRINGS);
        if (entry->kind == SP_VALUE_STRING) see_text(entry->text, true);
        for (size_t k = 0; entry->kind == SP_VALUE_STRINGS && k < entry->size; k++) see_text(entry->list[k], true);
    }
}

static void see_lanes(const sp_profile *profile)
{
    for (size_t i = 0; i < profile->thread_count; i++) see_text(profile->threads[i].name, true);
    for (size_t i = 0; i < profile->task_count; i++) {
        see_text(profile->tasks[i].kind, true);
        see_text(profile->tasks[i].name, true);
        see_text(profile->tasks[i].coro_name, true);
    }
}

static void see_rows(const sp_profile *profile)
{
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        FUZZ_CHECK(row->name < profile->name_count);
        see_text(row->source_file, false);
        see_text(row->source_text, false);
        see_text(row->tags, false);
        see_text(row->event_metadata, false);
        if (profile->summary_only || row->count == 0) continue;
        FUZZ_CHECK(row->first <= profile->call_count && row->count <= profile->call_count - row->first);
        sp_row_statistics statistics;
        double percentiles[SP_PERCENTILE_COUNT];
        sp_row_statistics_compute(profile, row, &statistics);
        (void)sp_row_percentiles_compute(profile, row, sp_percentile_ranks, SP_PERCENTILE_COUNT, percentiles);
    }
}

static void see_paths(const sp_profile *profile)
{
    sp_path_summary *paths = NULL;
    sp_error error = {0};
    if (sp_path_summary_make(profile, NULL, &paths, &error) != SP_OK) return;
    for (size_t i = 0; i < paths->node_count; i++) FUZZ_CHECK(paths->nodes[i].parent < (int64_t)i);
    for (size_t i = 0; i < paths->row_count; i++) FUZZ_CHECK(paths->rows[i].node < paths->node_count);
    sp_path_summary_free(paths);
}

static void see_track(const sp_tracks *tracks, const sp_track *track)
{
    sp_walk walk;
    sp_walk_event event;
    int64_t at = INT64_MIN;
    uint64_t depth = 0, calls = 0;
    sp_walk_begin(&walk, tracks, track);
    while (sp_walk_next(&walk, &event) == SP_OK) {
        FUZZ_CHECK(event.at >= at);
        at = event.at;
        depth += event.opens ? 1 : UINT64_MAX;
        calls += event.opens;
    }
    FUZZ_CHECK(depth == 0 && calls == track->count);
    sp_walk_end(&walk);
}

static void see_tracks(const sp_profile *profile, uint32_t rank)
{
    sp_tracks tracks;
    sp_lane_names names;
    sp_error error = {0};
    if (sp_tracks_make(&tracks, profile, rank, NULL, &error) != SP_OK) return;
    const bool named = sp_lane_names_make(&names, profile, rank, &error) == SP_OK;
    for (size_t i = 0; i < tracks.track_count; i++) {
        char *label = named ? sp_lane_names_label(&names, &tracks.tracks[i]) : NULL;
        see_text(label, named);
        free(label);
        see_track(&tracks, &tracks.tracks[i]);
    }
    if (named) sp_lane_names_free(&names);
    sp_tracks_free(&tracks);
}

static void write_exports(const sp_profile *profile, const char *path)
{
    static sp_exporter *const writers[] = {sp_export_speedscope, sp_export_chrome_trace, sp_export_perfetto,
                                           sp_export_pstats,     sp_export_folded,       sp_export_csv};
    sp_error error = {0};
    const uint32_t rank = profile->row_count ? profile->rows[0].rank : 0;
    const sp_export what = {.profile = profile, .name = "fuzz", .ranks = &rank, .rank_count = 1};
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) (void)writers[i](&what, path, &error);
}

static void see_call_tree(const sp_profile *profile, const sp_selection *selection, sp_text *out)
{
    sp_error error = {0};
    bool complete;
    uint32_t *names = malloc((profile->name_count + 1) * sizeof *names);
    FUZZ_CHECK(names);
    for (uint32_t i = 0; i < profile->name_count; i++) names[i] = i;
    (void)sp_report_tree(profile, names, profile->name_count, selection, 10, -1, 80, out, &complete, &error);
    free(names);
}

/* What the native command prints of it. */
static void see_reports(const sp_profile *profile)
{
    sp_text out = {0};
    sp_error error = {0};
    const sp_selection all = {0};
    const sp_region_table table = {.sort = SP_SORT_TOTAL};
    sp_report_banner(profile, "fuzz", -1, 80, &out);
    sp_report_metadata(profile, false, &out);
    (void)sp_report_regions(profile, &table, &out, &error);
    (void)sp_report_threads(profile, &all, -1, 80, &out, &error);
    sp_report_tasks(profile, &all, -1, 80, &out);
    see_call_tree(profile, &all, &out);
    for (const char *at = out.data; at && *at; at++) FUZZ_CHECK((unsigned char)*at >= 0x20 || *at == '\n');
    see_text(out.data, out.data != NULL);
    sp_text_free(&out);
}

/* Written, it must come back. */
static void use_files(const sp_profile *profile)
{
    char path[64];
    sp_error error = {0};
    sp_profile *back = NULL;
    snprintf(path, sizeof path, "/dev/shm/scope-profiler-fuzz-%d", (int)getpid());
    const sp_status written = sp_hdf5_write(profile, path, NULL, &error);
    if (written == SP_OK) {
        const sp_status status = sp_hdf5_read(path, NULL, &back, &error);
        fuzz_check_outcome(status, &error, back);
        if (status != SP_OK) fuzz_fail(error.message, __FILE__, __LINE__);
        FUZZ_CHECK(back->call_count == profile->call_count && back->row_count == profile->row_count);
        sp_profile_release(back);
    }
    write_exports(profile, path);
    unlink(path);
}

void fuzz_use_profile(const sp_profile *profile, bool deep)
{
    for (size_t i = 0; i < profile->name_count; i++) see_text(profile->names[i], true);
    see_rows(profile);
    see_lanes(profile);
    see_metadata(profile);
    for (size_t i = 0; i < profile->aux_count; i++) see_group(&profile->aux[i].root);
    see_paths(profile);
    see_reports(profile);
    if (profile->summary_only) return;
    if (profile->row_count) see_tracks(profile, profile->rows[0].rank);
    if (deep) use_files(profile);
}

void fuzz_check_outcome(sp_status status, const sp_error *error, const sp_profile *profile)
{
    FUZZ_CHECK((status == SP_OK) == (profile != NULL));
    if (status == SP_OK) return;
    const size_t size = strnlen(error->message, sizeof error->message);
    FUZZ_CHECK(size > 0 && size < sizeof error->message);
    FUZZ_CHECK(sp_utf8_valid(error->message, size));
    for (size_t i = 0; i < size; i++) FUZZ_CHECK((unsigned char)error->message[i] >= 0x20);
}
