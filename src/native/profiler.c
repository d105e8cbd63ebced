#include "native/profiler.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/registry.h"
#include "native/threads.h"

sp_profiler sp_native_default = {.head = {.calls = &sp_native_calls, .serial = 1}, .lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* of the two below */
static sp_profiler *profilers = &sp_native_default;
static uint32_t last_serial = 1;
static sp_run *outer; /* of another front end; the default profiler's lock; a reference */
static bool outer_paused;

void sp_native_lock(sp_profiler *profiler)
{
    sp_fork_hold();
    pthread_mutex_lock(&profiler->lock);
}

void sp_native_unlock(sp_profiler *profiler)
{
    pthread_mutex_unlock(&profiler->lock);
    sp_fork_release();
}

int sp_native_fail(sp_profiler *profiler, sp_status status, const sp_error *error)
{
    /* No buffer of each thread's own: thread-local memory of libraries that are loaded late is scarce. */
    if (status != SP_OK && error) snprintf(profiler->message, sizeof profiler->message, "%s", error->message);
    profiler->message_status = error ? (int)status : SP_OK;
    atomic_store_explicit(&profiler->last_error, status, memory_order_relaxed);
    return status;
}

/* ---- forks: the run is the parent's, and the child starts without one ---- */

static void stand_down(void)
{
    for (sp_profiler *profiler = profilers; profiler; profiler = profiler->next) {
        if (profiler->joined || profiler->run == NULL) continue;
        __atomic_store_n(&profiler->head.recording, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&profiler->head.live, 0, __ATOMIC_RELEASE);
        profiler->inherited = true;
    }
}

__attribute__((constructor)) static void prepare(void)
{
    sp_native_watch_threads();
    /* The list changes with forks held off, so that its lock is free in a child. */
    pthread_atfork(NULL, NULL, stand_down);
}

/* ---- making and ending ---- */

sp_profiler *sp_native_new(void)
{
    sp_profiler *profiler = calloc(1, sizeof *profiler);
    if (profiler == NULL) return NULL;
    profiler->head.calls = &sp_native_calls;
    pthread_mutex_init(&profiler->lock, NULL);
    sp_fork_hold();
    pthread_mutex_lock(&list_lock);
    profiler->head.serial = ++last_serial;
    profiler->next = profilers;
    profilers = profiler;
    pthread_mutex_unlock(&list_lock);
    sp_fork_release();
    return profiler;
}

static void unlist(const sp_profiler *profiler)
{
    sp_fork_hold();
    pthread_mutex_lock(&list_lock);
    for (sp_profiler **link = &profilers; *link; link = &(*link)->next) {
        if (*link != profiler) continue;
        *link = profiler->next;
        break;
    }
    pthread_mutex_unlock(&list_lock);
    sp_fork_release();
}

void sp_native_clear_metadata(sp_profiler *profiler)
{
    for (size_t i = 0; i < profiler->metadata_count; i++) {
        free(profiler->metadata[i].key);
        free(profiler->metadata[i].value);
    }
    free(profiler->metadata);
    profiler->metadata = NULL;
    profiler->metadata_count = 0;
}

static void free_regions(sp_profiler *profiler)
{
    const uint32_t count = atomic_load(&profiler->region_count);
    for (uint32_t i = 0; i < count; i++) {
        free(sp_native_region_at(profiler, i)->name);
        free(sp_native_region_at(profiler, i)->file);
    }
    for (uint32_t at = 0; at < count; at += SP_PAGE_REGIONS) free(atomic_load(&profiler->pages[at / SP_PAGE_REGIONS]));
    free(profiler->pages);
    free(profiler->index.slots);
}

void sp_native_free(sp_profiler *profiler)
{
    unlist(profiler);
    sp_native_lock(profiler);
    sp_native_drop_run(profiler);
    sp_native_unlock(profiler);
    free_regions(profiler);
    sp_native_clear_metadata(profiler);
    free(profiler->output);
    free(profiler->path);
    pthread_mutex_destroy(&profiler->lock);
    free(profiler);
}

/* ---- regions ---- */

sp_native_region *sp_native_region_at(const sp_profiler *profiler, uint32_t handle)
{
    return &atomic_load_explicit(&profiler->pages[handle / SP_PAGE_REGIONS], memory_order_relaxed)
                ->regions[handle % SP_PAGE_REGIONS];
}

static uint64_t hash_of_region(const void *profiler, uint32_t handle)
{
    return sp_hash(sp_native_region_at(profiler, handle)->name);
}

static bool is_region(const void *profiler, uint32_t handle, const void *name)
{
    return strcmp(sp_native_region_at(profiler, handle)->name, name) == 0;
}

static uint32_t *region_slot(const sp_profiler *profiler, const char *name)
{
    return sp_index_find(&profiler->index, sp_hash(name), profiler, is_region, name);
}

int sp_native_find_region(const sp_profiler *profiler, const char *name)
{
    return profiler->index.size ? (int)*region_slot(profiler, name) - 1 : SP_INVALID_REGION;
}

/* Room for one more region; false when out of memory or past what there can be. */
static bool page_for(sp_profiler *profiler, uint32_t handle)
{
    if (handle >= SP_PAGES * SP_PAGE_REGIONS) return false;
    if (profiler->pages == NULL && !(profiler->pages = calloc(SP_PAGES, sizeof *profiler->pages))) return false;
    _Atomic(sp_region_page *) *page = &profiler->pages[handle / SP_PAGE_REGIONS];
    if (atomic_load_explicit(page, memory_order_relaxed) == NULL) {
        atomic_store_explicit(page, calloc(1, sizeof(sp_region_page)), memory_order_release);
    }
    return atomic_load_explicit(page, memory_order_relaxed) != NULL;
}

static int region_add(sp_profiler *profiler, uint32_t *slot, const char *name, const char *file, int line)
{
    const uint32_t handle = atomic_load_explicit(&profiler->region_count, memory_order_relaxed);
    if (!page_for(profiler, handle)) return SP_INVALID_REGION;
    sp_native_region *region = sp_native_region_at(profiler, handle);
    region->name = strdup(name);
    region->file = file ? strdup(file) : NULL;
    region->line = file ? line : -1;
    if (region->name == NULL || (file && region->file == NULL)) {
        free(region->name);
        free(region->file);
        return SP_INVALID_REGION;
    }
    *slot = handle + 1;
    atomic_store_explicit(&profiler->region_count, handle + 1, memory_order_release);
    return (int)handle;
}

int sp_native_region_of(sp_profiler *profiler, const char *name, const char *file, int line)
{
    if (name == NULL) return SP_INVALID_REGION;
    const int saved = errno;
    int handle = SP_INVALID_REGION;
    sp_native_lock(profiler);
    const uint32_t count = atomic_load_explicit(&profiler->region_count, memory_order_relaxed);
    if (sp_index_reserve(&profiler->index, count, profiler, hash_of_region)) {
        uint32_t *slot = region_slot(profiler, name);
        if (*slot == 0) {
            handle = region_add(profiler, slot, name, file, line);
        } else {
            handle = (int)*slot - 1;
            sp_native_region *region = sp_native_region_at(profiler, (uint32_t)handle);
            if (file && region->file == NULL && (region->file = strdup(file))) region->line = line;
        }
    }
    if (handle == SP_INVALID_REGION) sp_native_fail(profiler, SP_ERR_NO_MEMORY, NULL);
    sp_native_unlock(profiler);
    errno = saved;
    return handle;
}

uint32_t sp_native_bind(sp_profiler *profiler, int handle, uint64_t token)
{
    const int saved = errno;
    uint32_t id = SP_NATIVE_OFF;
    sp_native_lock(profiler);
    if (profiler->run && profiler->run->token == token) {
        const sp_native_region *region = sp_native_region_at(profiler, (uint32_t)handle);
        sp_error error;
        const sp_status status = sp_run_region(profiler->run, region->name, region->file, region->line, NULL, NULL, &id, &error);
        if (status != SP_OK) {
            sp_native_fail(profiler, status, &error);
            id = SP_NATIVE_OFF;
        } else {
            sp_region_page *page = atomic_load(&profiler->pages[(uint32_t)handle / SP_PAGE_REGIONS]);
            atomic_store_explicit(&page->bindings[(uint32_t)handle % SP_PAGE_REGIONS], token << 32 | id, memory_order_release);
        }
    }
    sp_native_unlock(profiler);
    errno = saved;
    return id;
}

/* ---- sharing a run ---- */

static void set_gates(sp_profiler *profiler, uint64_t recording, uint64_t live)
{
    __atomic_store_n(&profiler->head.live, live, __ATOMIC_RELEASE);
    __atomic_store_n(&profiler->head.recording, recording, __ATOMIC_RELEASE);
}

/* With its lock held. `run` may be NULL. */
static void join_run(sp_profiler *profiler, sp_run *run, uint64_t recording, uint64_t live)
{
    if (profiler->run == run) {
        set_gates(profiler, recording, live);
        return;
    }
    sp_native_drop_run(profiler);
    if (run == NULL) return;
    atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
    profiler->run = run;
    profiler->joined = true;
    set_gates(profiler, recording, live);
}

void sp_native_share(const sp_profiler *profiler)
{
    if (profiler != &sp_native_default) return;
    pthread_mutex_lock(&list_lock);
    for (sp_profiler *other = profilers; other; other = other->next) {
        if (other->shared == NULL) continue;
        pthread_mutex_lock(&other->lock);
        join_run(other, profiler->run, profiler->head.recording, profiler->head.live);
        pthread_mutex_unlock(&other->lock);
    }
    pthread_mutex_unlock(&list_lock);
}

void sp_native_rejoin(sp_profiler *profiler)
{
    if (profiler == &sp_native_default && outer && profiler->run == NULL) {
        join_run(profiler, outer, outer_paused ? 0 : outer->token, outer->token);
    }
    sp_native_share(profiler);
}

void sp_native_outer_begin(sp_run *run)
{
    sp_native_lock(&sp_native_default);
    if (outer) sp_run_release(outer);
    atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
    outer = run;
    outer_paused = false;
    if (sp_native_default.run == NULL || sp_native_default.joined) sp_native_clear_metadata(&sp_native_default);
    if (sp_native_default.joined || sp_native_default.inherited) sp_native_drop_run(&sp_native_default);
    sp_native_rejoin(&sp_native_default);
    sp_native_unlock(&sp_native_default);
}

void sp_native_outer_pause(const sp_run *run, bool paused)
{
    sp_native_lock(&sp_native_default);
    if (outer == run) {
        outer_paused = paused;
        if (sp_native_default.joined) join_run(&sp_native_default, outer, paused ? 0 : outer->token, outer->token);
        sp_native_share(&sp_native_default);
    }
    sp_native_unlock(&sp_native_default);
}

void sp_native_outer_end(const sp_run *run)
{
    sp_native_lock(&sp_native_default);
    if (outer == run) {
        if (sp_native_default.joined) sp_native_drop_run(&sp_native_default);
        sp_native_share(&sp_native_default);
        sp_run_release(outer);
        outer = NULL;
    }
    sp_native_unlock(&sp_native_default);
}

sp_profiler *sp_native_join(const char *const *names, const char *const *files, const int *lines, int count)
{
    sp_profiler *profiler = sp_native_new();
    if (profiler == NULL) return NULL;
    for (int i = 0; i < count; i++) {
        if (sp_native_region_of(profiler, names[i], files[i], lines[i]) != i) {
            sp_native_free(profiler);
            return NULL;
        }
    }
    sp_native_lock(&sp_native_default);
    profiler->shared = &sp_native_default;
    sp_native_share(&sp_native_default);
    sp_native_unlock(&sp_native_default);
    return profiler;
}

/* ---- metadata ---- */

static int put_metadata(sp_profiler *profiler, size_t at, const char *key, const char *value)
{
    if (at == profiler->metadata_count) {
        sp_text_pair *list = realloc(profiler->metadata, (at + 1) * sizeof *list);
        if (list == NULL) return SP_ERR_NO_MEMORY;
        profiler->metadata = list;
        list[at] = (sp_text_pair){strdup(key), NULL};
        if (list[at].key == NULL) return SP_ERR_NO_MEMORY;
        profiler->metadata_count++;
    }
    char *kept = strdup(value);
    if (kept == NULL) return SP_ERR_NO_MEMORY;
    free(profiler->metadata[at].value);
    profiler->metadata[at].value = kept;
    return SP_OK;
}

bool sp_native_copy_metadata(sp_profiler *profiler, size_t at, char **key, char **value)
{
    *key = *value = NULL;
    sp_native_lock(profiler);
    if (at < profiler->metadata_count) {
        *key = strdup(profiler->metadata[at].key);
        *value = strdup(profiler->metadata[at].value);
    }
    sp_native_unlock(profiler);
    if (*key && *value) return true;
    free(*key);
    free(*value);
    return false;
}

int sp_native_set_metadata(sp_profiler *profiler, const char *key, const char *value)
{
    if (profiler->shared) profiler = profiler->shared;
    if (key == NULL || *key == '\0') return SP_ERR_INVALID;
    sp_native_lock(profiler);
    size_t at = 0;
    while (at < profiler->metadata_count && strcmp(profiler->metadata[at].key, key) != 0) at++;
    int status = SP_OK;
    if (value) {
        status = put_metadata(profiler, at, key, value);
    } else if (at < profiler->metadata_count) {
        free(profiler->metadata[at].key);
        free(profiler->metadata[at].value);
        profiler->metadata[at] = profiler->metadata[--profiler->metadata_count];
    }
    if (status != SP_OK) sp_native_fail(profiler, (sp_status)status, NULL);
    sp_native_unlock(profiler);
    return status;
}
