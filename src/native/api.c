/*
 * api.c - the functions of include/scope_profiler.h: each hands what it is asked to the copy of the library that made the
 * profiler, which is this one unless a host was joined. The extension of Python has no need of this file, and its own
 * sp_host_v1.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "native/profiler.h"
#include "native/rendezvous.h"

sp_profiler *sp_current_profiler = &sp_native_default;

static sp_profiler *current(void)
{
    return __atomic_load_n(&sp_current_profiler, __ATOMIC_ACQUIRE);
}

static const sp_profiler_head *head_of(const sp_profiler *profiler)
{
    return (const sp_profiler_head *)(const void *)profiler;
}

#define CALL(profiler, function, ...) (head_of(profiler)->calls->function((profiler), ##__VA_ARGS__))

/* Every host takes its profilers as not const: asking changes what they remember. */
static sp_profiler *asked(const sp_profiler *profiler)
{
    return (sp_profiler *)(uintptr_t)profiler;
}

/* ---- profilers ---- */

sp_profiler *sp_create(const char *prefix, int rank)
{
    sp_profiler *profiler = sp_native_new();
    if (profiler) (void)sp_native_init(profiler, prefix, rank);
    return profiler;
}

void sp_destroy(sp_profiler *profiler)
{
    if (profiler) sp_native_free(profiler);
}

int sp_profiler_finalize(sp_profiler *profiler)
{
    return profiler ? CALL(profiler, finalize) : SP_OK;
}

int sp_profiler_finalize_ranks(sp_profiler *profiler, sp_link *link)
{
    if (profiler == NULL) return SP_OK;
    if (link == NULL) return SP_ERR_INVALID;
    /* The host may be of a version that knows nothing of ranks. */
    const bool knows = head_of(profiler)->calls->size > offsetof(sp_host_calls, finalize_ranks);
    return knows ? CALL(profiler, finalize_ranks, link) : sp_profiler_finalize(profiler);
}

int sp_profiler_flush(sp_profiler *profiler)
{
    return profiler ? CALL(profiler, flush) : SP_ERR_INACTIVE;
}

int sp_profiler_reset(sp_profiler *profiler)
{
    return profiler ? CALL(profiler, reset) : SP_ERR_INACTIVE;
}

int sp_profiler_region(sp_profiler *profiler, const char *name)
{
    return sp_profiler_region_at(profiler, name, NULL, -1);
}

int sp_profiler_region_at(sp_profiler *profiler, const char *name, const char *source_file, int source_line)
{
    return profiler ? CALL(profiler, region, name, source_file, source_line) : SP_INVALID_REGION;
}

void (sp_profiler_begin)(sp_profiler *profiler, int region)
{
    sp_profiler_begin_(profiler, region);
}

void (sp_profiler_end)(sp_profiler *profiler, int region)
{
    sp_profiler_end_(profiler, region);
}

int sp_profiler_end_last(sp_profiler *profiler)
{
    return profiler ? CALL(profiler, end_last) : SP_ERR_INACTIVE;
}

sp_scope sp_profiler_scope_begin(sp_profiler *profiler, int region)
{
    sp_scope scope = {profiler, region, -1, 0};
    if (profiler) CALL(profiler, scope_begin, region, &scope);
    return scope;
}

sp_scope sp_scope_begin(int region)
{
    return sp_profiler_scope_begin(current(), region);
}

int sp_scope_end(sp_scope *scope)
{
    if (scope == NULL || scope->profiler == NULL) return SP_ERR_INACTIVE;
    return head_of(scope->profiler)->calls->scope_end(scope);
}

int sp_profiler_is_active(const sp_profiler *profiler)
{
    return profiler && __atomic_load_n(&head_of(profiler)->recording, __ATOMIC_ACQUIRE) != 0;
}

const char *sp_profiler_output_path(const sp_profiler *profiler)
{
    return profiler ? CALL(asked(profiler), output_path) : NULL;
}

int sp_profiler_set_output_format(sp_profiler *profiler, sp_output_format format)
{
    return profiler ? CALL(profiler, set_output_format, (int)format) : SP_ERR_INACTIVE;
}

sp_output_format sp_profiler_output_format(const sp_profiler *profiler)
{
    return profiler ? (sp_output_format)CALL(asked(profiler), output_format) : sp_default_output_format();
}

sp_status sp_profiler_last_error(const sp_profiler *profiler)
{
    return profiler ? (sp_status)CALL(asked(profiler), last_error) : SP_OK;
}

const char *sp_profiler_error_message(const sp_profiler *profiler)
{
    return profiler ? CALL(asked(profiler), error_message) : "";
}

int sp_profiler_get_region_stats(const sp_profiler *profiler, int region, sp_region_stats *stats)
{
    if (profiler && stats) return CALL(asked(profiler), region_stats, region, stats);
    return profiler ? SP_ERR_INVALID : SP_ERR_INACTIVE;
}

int sp_profiler_num_regions(const sp_profiler *profiler)
{
    return profiler ? CALL(asked(profiler), num_regions) : 0;
}

const char *sp_profiler_region_name(const sp_profiler *profiler, int region)
{
    return profiler ? CALL(asked(profiler), region_name, region) : NULL;
}

int sp_hdf5_available(void)
{
    return 1;
}

sp_output_format sp_default_output_format(void)
{
    return SP_OUTPUT_HDF5;
}

sp_lane *sp_profiler_lane_create(sp_profiler *profiler, const char *name)
{
    return profiler ? CALL(profiler, lane_create, name) : NULL;
}

int sp_profiler_set_thread_name(sp_profiler *profiler, const char *name)
{
    return profiler ? CALL(profiler, set_thread_name, name) : SP_ERR_INACTIVE;
}

int sp_profiler_set_metadata(sp_profiler *profiler, const char *key, const char *value)
{
    return profiler ? CALL(profiler, set_metadata, key, value) : SP_ERR_INACTIVE;
}

int sp_profiler_start_sampling(sp_profiler *profiler, int hz)
{
    return profiler ? CALL(profiler, start_sampling, hz) : SP_ERR_INACTIVE;
}

int sp_profiler_stop_sampling(sp_profiler *profiler)
{
    return profiler ? CALL(profiler, stop_sampling) : SP_OK;
}

/* ---- the default profiler ---- */

/* Whether there was ever something to record into: until then nothing has a handle. */
static bool started(void)
{
    return current() != &sp_native_default || sp_native_default.path || sp_native_default.run;
}

sp_profiler *sp_default_profiler(void)
{
    return started() ? current() : NULL;
}

int sp_init(const char *prefix, int rank)
{
    (void)sp_attach(NULL);
    const int status = CALL(current(), init, prefix, rank);
    const char *rate = status == SP_OK ? getenv("SCOPE_PROFILER_SAMPLE_HZ") : NULL;
    if (rate && *rate) (void)sp_start_sampling((int)strtol(rate, NULL, 10));
    return status;
}

int sp_finalize(void)
{
    return sp_profiler_finalize(sp_default_profiler());
}

int sp_finalize_ranks(sp_link *link)
{
    return sp_profiler_finalize_ranks(sp_default_profiler(), link);
}

int sp_region(const char *name)
{
    return sp_region_at(name, NULL, -1);
}

int sp_region_at(const char *name, const char *source_file, int source_line)
{
    if (!started()) (void)sp_attach(NULL);
    return sp_profiler_region_at(sp_default_profiler(), name, source_file, source_line);
}

void (sp_begin)(int region)
{
    sp_begin_(region);
}

void (sp_end)(int region)
{
    sp_end_(region);
}

int sp_end_status(int region)
{
    sp_profiler *profiler = current();
    if (__atomic_load_n(&head_of(profiler)->live, __ATOMIC_RELAXED) == 0) return SP_ERR_INACTIVE;
    return CALL(profiler, end_status, region);
}

int sp_open_calls(void)
{
    return CALL(current(), open_calls);
}

int64_t sp_num_calls(int region)
{
    sp_profiler *profiler = sp_default_profiler();
    return profiler ? CALL(profiler, num_calls, region) : 0;
}

int sp_flush(void)
{
    return sp_profiler_flush(sp_default_profiler());
}

int sp_reset(void)
{
    return sp_profiler_reset(sp_default_profiler());
}

int sp_is_active(void)
{
    return sp_profiler_is_active(current());
}

const char *sp_output_path(void)
{
    return sp_profiler_output_path(sp_default_profiler());
}

int sp_set_output_format(sp_output_format format)
{
    return sp_profiler_set_output_format(sp_default_profiler(), format);
}

sp_output_format sp_current_output_format(void)
{
    return sp_profiler_output_format(current());
}

sp_lane *sp_lane_create(const char *name)
{
    return sp_profiler_lane_create(current(), name);
}

sp_lane *sp_lane_switch(sp_lane *lane)
{
    const sp_host_calls *calls = lane ? *(const sp_host_calls *const *)(const void *)lane : head_of(current())->calls;
    return calls->lane_switch(lane);
}

void sp_lane_end(sp_lane *lane)
{
    if (lane) (*(const sp_host_calls *const *)(const void *)lane)->lane_end(lane);
}

int sp_set_thread_name(const char *name)
{
    return sp_profiler_set_thread_name(current(), name);
}

int sp_set_metadata(const char *key, const char *value)
{
    return sp_profiler_set_metadata(sp_default_profiler(), key, value);
}

int sp_start_sampling(int hz)
{
    return sp_profiler_start_sampling(sp_default_profiler(), hz);
}

int sp_stop_sampling(void)
{
    return sp_profiler_stop_sampling(sp_default_profiler());
}

/* ---- hosts ---- */

static int told(const sp_host *host)
{
    return sp_attach(host);
}

const sp_host sp_host_v1 = {.version = SP_HOST_VERSION, .size = sizeof(sp_host), .rank = 1, .calls = &sp_native_calls, .attach = told};

/* Regions by handle, as the host that is joined now has them. */
static sp_profiler *join(const sp_host *host, sp_profiler *from)
{
    const int count = CALL(from, num_regions);
    const size_t room = (size_t)count + 1;
    const char **names = calloc(room, sizeof *names), **files = calloc(room, sizeof *files);
    int *lines = calloc(room, sizeof *lines);
    sp_profiler *joined = NULL;
    if (names && files && lines) {
        for (int i = 0; i < count; i++) names[i] = CALL(from, region_name, i);
        for (int i = 0; i < count; i++) lines[i] = CALL(from, region_place, i, &files[i]);
        joined = host->calls->join(names, files, lines, count);
    }
    free(names);
    free(files);
    free(lines);
    return joined;
}

static bool is_usable(const sp_host *host)
{
    return host->version == SP_HOST_VERSION && host->size >= sizeof(sp_host) && host->calls &&
        host->calls->version == SP_HOST_VERSION && host->calls->size >= sizeof(sp_host_calls);
}

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
static const sp_host *joined_host = &sp_host_v1;

/* Where others have the address of the default profiler (with `attaching` held). */
static sp_profiler ***followers;
static size_t follower_count, follower_size;

static int follow(sp_profiler **place)
{
    if (!sp_grow(&followers, &follower_size, follower_count, sizeof *followers, 8)) return SP_ERR_NO_MEMORY;
    followers[follower_count++] = place;
    __atomic_store_n(place, current(), __ATOMIC_RELEASE);
    return SP_OK;
}

int sp_follow(sp_profiler **place)
{
    if (place == NULL) return SP_ERR_INVALID;
    pthread_mutex_lock(&attaching);
    const int status = follow(place);
    pthread_mutex_unlock(&attaching);
    return status;
}

void sp_unfollow(sp_profiler **place)
{
    pthread_mutex_lock(&attaching);
    for (size_t i = 0; i < follower_count; i++) {
        if (followers[i] != place) continue;
        followers[i] = followers[--follower_count];
        break;
    }
    pthread_mutex_unlock(&attaching);
}

static int attach(const sp_host *host)
{
    if (host->calls == joined_host->calls) return SP_OK;
    if (!is_usable(host)) return SP_ERR_UNSUPPORTED;
    if (host->rank < joined_host->rank) return SP_ERR_BUSY;
    sp_profiler *before = current();
    if (before == &sp_native_default && __atomic_load_n(&sp_native_default.head.live, __ATOMIC_ACQUIRE)) return SP_ERR_BUSY;
    sp_profiler *joined = join(host, before);
    if (joined == NULL) return SP_ERR_NO_MEMORY;
    joined_host = host;
    /* The one before stays: threads may be in it. */
    __atomic_store_n(&sp_current_profiler, joined, __ATOMIC_RELEASE);
    for (size_t i = 0; i < follower_count; i++) __atomic_store_n(followers[i], joined, __ATOMIC_RELEASE);
    return SP_OK;
}

int sp_attach(const sp_host *host)
{
    if (host == NULL) host = sp_native_find_host(&sp_host_v1);
    pthread_mutex_lock(&attaching);
    const int status = attach(host);
    pthread_mutex_unlock(&attaching);
    return status;
}

__attribute__((constructor)) static void look_for_host(void)
{
    (void)sp_attach(NULL);
}
