/* output.c - the runs of a profiler: how they begin, what is read of them, and how they become files. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "analysis/collect.h"
#include "core/note.h"
#include "core/registry.h"
#include "formats/finish.h"
#include "formats/hdf5.h"
#include "formats/native_trace.h"
#include "formats/output.h"
#include "formats/spool.h"
#include "native/profiler.h"
#include "native/ranks.h"
#include "native/sampling.h"

/* ---- names of files ---- */

static const char *suffix_of(sp_output_format format)
{
    return format == SP_OUTPUT_TRACE ? ".spt" : ".h5";
}

static bool set_path(sp_profiler *profiler)
{
    const char *suffix = suffix_of(profiler->format);
    char *path = malloc(strlen(profiler->output) + strlen(suffix) + 1);
    if (path == NULL) return false;
    strcpy(path, profiler->output);
    strcat(path, suffix);
    free(profiler->path);
    profiler->path = path;
    return true;
}

static bool set_output(sp_profiler *profiler, const char *prefix, int rank)
{
    const size_t size = strlen(prefix) + sizeof "_rank-2147483648";
    char *output = malloc(size);
    if (output == NULL) return false;
    snprintf(output, size, "%s_rank%05d", prefix, rank);
    free(profiler->output);
    profiler->output = output;
    profiler->rank = rank;
    return set_path(profiler);
}

int sp_native_set_output_format(sp_profiler *profiler, int format)
{
    if (profiler->shared) profiler = profiler->shared;
    if (format != SP_OUTPUT_HDF5 && format != SP_OUTPUT_TRACE) {
        return sp_native_fail(profiler, SP_ERR_UNSUPPORTED, NULL);
    }
    sp_native_lock(profiler);
    const sp_output_format before = profiler->format;
    profiler->format = (sp_output_format)format;
    int status = SP_OK;
    if (profiler->output && !set_path(profiler)) {
        profiler->format = before;
        status = sp_native_fail(profiler, SP_ERR_NO_MEMORY, NULL);
    }
    sp_native_unlock(profiler);
    return status;
}

/* ---- metadata ---- */

static void put_pair(sp_profile *profile, sp_status *status, const char *key, const char *value)
{
    if (*status == SP_OK) *status = sp_profile_set_string(profile, key, value);
}

static void put_number(sp_profile *profile, sp_status *status, const char *key, int64_t value)
{
    if (*status == SP_OK) *status = sp_profile_set_int(profile, key, value);
}

/* `team`: the ranks whose file it is; NULL for one of this rank alone. */
static sp_status describe(const sp_profiler *profiler, const sp_team *team, sp_profile *profile)
{
    sp_status status = SP_OK;
    struct utsname system = {0};
    char stamp[40] = "", platform[sizeof system.sysname + sizeof system.release + sizeof system.machine + 3], directory[PATH_MAX] = "";
    const time_t now = time(NULL);
    struct tm utc;
    uname(&system);
    if (gmtime_r(&now, &utc)) strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S+00:00", &utc);
    snprintf(platform, sizeof platform, "%s-%s-%s", system.sysname, system.release, system.machine);
    put_pair(profile, &status, "source", "native");
    put_pair(profile, &status, "source_language", "c");
    put_pair(profile, &status, "scope_profiler_version", SP_VERSION);
    put_pair(profile, &status, "timestamp", stamp);
    put_pair(profile, &status, "hostname", system.nodename);
    put_pair(profile, &status, "platform", platform);
    if (getcwd(directory, sizeof directory)) put_pair(profile, &status, "working_directory", directory);
    if (team) {
        put_number(profile, &status, "mpi_size", team->comm.size);
        put_number(profile, &status, "num_nodes", team->hosts);
    } else {
        put_number(profile, &status, "mpi_rank", profiler->rank);
    }
    put_number(profile, &status, "start_time_ns", profiler->run->start_ns);
    put_number(profile, &status, "finalize_time_ns", sp_clock_ns());
    const uint64_t unmatched = atomic_load_explicit(&profiler->run->unmatched, memory_order_relaxed);
    if (unmatched) put_number(profile, &status, "unmatched_ends", (int64_t)unmatched);
    for (size_t i = 0; i < profiler->metadata_count; i++) {
        put_pair(profile, &status, profiler->metadata[i].key, profiler->metadata[i].value);
    }
    return status;
}

/* The run's spool says where the calls came from, should the process end before it writes them. */
static void note_metadata(const sp_profiler *profiler)
{
    if (profiler->spool == NULL) return;
    char text[256];
    snprintf(text, sizeof text,
             "{\"source\": \"native\", \"source_language\": \"c\", \"scope_profiler_version\": \"" SP_VERSION
             "\", \"mpi_rank\": %d, \"start_time_ns\": %lld}", profiler->rank, (long long)profiler->run->start_ns);
    pthread_mutex_lock(&profiler->run->lock);
    sp_note(profiler->run, SP_NOTE_METADATA, 0, text);
    pthread_mutex_unlock(&profiler->run->lock);
}

/* ---- the begin of a run ---- */

static bool spool_wanted(const char *output)
{
    const char *word = getenv("SCOPE_PROFILER_SPOOL");
    if (word && (strcmp(word, "0") == 0 || strcmp(word, "off") == 0 || strcmp(word, "no") == 0 || strcmp(word, "false") == 0)) return false;
    if (word && *word && strcmp(word, "auto") != 0) return true;
    char *directory = strdup(output);
    if (directory == NULL) return false;
    char *slash = strrchr(directory, '/');
    if (slash) slash[slash == directory] = '\0';
    const bool local = sp_spool_is_local(slash ? directory : ".");
    free(directory);
    return local;
}

/* A spool beside the output; NULL where none is wanted or can be made: the run then lives and dies with the process. */
static sp_store *spool_new(const sp_profiler *profiler)
{
    static _Atomic(unsigned) number;
    char output[PATH_MAX], path[PATH_MAX + 64], directory[PATH_MAX];
    if (!spool_wanted(profiler->path)) return NULL;
    const bool absolute = profiler->path[0] == '/';
    if (!absolute && getcwd(directory, sizeof directory) == NULL) return NULL;
    const int size = absolute ? snprintf(output, sizeof output, "%s", profiler->path)
                              : snprintf(output, sizeof output, "%s/%s", directory, profiler->path);
    if (size < 0 || (size_t)size >= sizeof output) return NULL;
    const sp_spool_options options = {.path = path, .output = output, .tracks_threads = true, .tracks_tasks = true};
    for (;;) {
        sp_store *spool = NULL;
        sp_error error = {0};
        snprintf(path, sizeof path, "%s.%ld-%u.spool", output, (long)getpid(), atomic_fetch_add(&number, 1) + 1);
        if (sp_spool_create(&options, &spool, &error) == SP_OK) return spool;
        if (error.system != EEXIST) return NULL; /* else an earlier process with this number left it */
    }
}

static void set_gates(sp_profiler *profiler, uint64_t token)
{
    __atomic_store_n(&profiler->head.live, token, __ATOMIC_RELEASE);
    __atomic_store_n(&profiler->head.recording, token, __ATOMIC_RELEASE);
}

/* What the profiler remembers of its run when that goes. */
void sp_native_drop_run(sp_profiler *profiler)
{
    set_gates(profiler, 0);
    if (profiler->run == NULL) return;
    sp_native_drop_samples(profiler);
    if (profiler->joined) {
        sp_run_release(profiler->run);
    } else {
        if (profiler->spool) {
            if (!profiler->inherited) sp_spool_finish(profiler->spool, false);
            profiler->spool->operations->release(profiler->spool);
        }
        sp_run_drop(profiler->run);
    }
    profiler->run = NULL;
    profiler->spool = NULL;
    profiler->joined = profiler->inherited = false;
}

static sp_status open_run(sp_profiler *profiler, sp_error *error)
{
    profiler->spool = spool_new(profiler);
    const sp_run_options options = {.tracks_threads = true, .tracks_tasks = true, .store = profiler->spool};
    const sp_status status = sp_run_open(&options, &profiler->gate, &profiler->run, error);
    if (status != SP_OK) {
        if (profiler->spool) {
            sp_spool_finish(profiler->spool, false);
            profiler->spool->operations->release(profiler->spool);
            profiler->spool = NULL;
        }
        return status;
    }
    if (profiler->spool) sp_spool_begin(profiler->spool, profiler->run->started, profiler->run->start_ns);
    note_metadata(profiler);
    set_gates(profiler, profiler->run->token);
    return SP_OK;
}

static void clear_statistics(sp_profiler *profiler)
{
    const uint32_t count = atomic_load(&profiler->region_count);
    for (uint32_t i = 0; i < count; i++) {
        sp_native_region *region = sp_native_region_at(profiler, i);
        region->entries = 0;
        region->stats = (sp_region_stats){0, 0, 0, 0};
    }
}

int sp_native_init(sp_profiler *profiler, const char *prefix, int rank)
{
    if (profiler->shared) profiler = profiler->shared;
    if (rank < 0) return sp_native_fail(profiler, SP_ERR_INVALID, NULL);
    if (sp_now_ns() < 0) return sp_native_fail(profiler, SP_ERR_NO_CLOCK, NULL);
    sp_error error = {0};
    sp_status status = SP_OK;
    sp_native_lock(profiler);
    if (!(profiler->joined && !profiler->run->inherited)) {
        sp_native_drop_run(profiler);
        clear_statistics(profiler);
        sp_native_clear_metadata(profiler);
        profiler->format = SP_OUTPUT_HDF5;
        status = set_output(profiler, prefix ? prefix : "scope_profile", rank) ? open_run(profiler, &error) : SP_ERR_NO_MEMORY;
        sp_native_rejoin(profiler);
    }
    status = (sp_status)sp_native_fail(profiler, status, &error);
    sp_native_unlock(profiler);
    return status;
}

/* ---- reading ---- */

/* Whether the run has the region, and its id there. (Another front end may have put it there.) */
static bool id_in_run(const sp_profiler *profiler, int handle, uint32_t *id)
{
    return profiler->run && sp_run_find_region(profiler->run, sp_native_region_at(profiler, (uint32_t)handle)->name, id);
}

static bool is_handle(const sp_profiler *profiler, int handle)
{
    return (uint32_t)handle < atomic_load_explicit(&profiler->region_count, memory_order_acquire);
}

/* Regions of a profiler that shares a run are counted where the run is. */
static bool to_shared(sp_profiler **profiler, int *handle)
{
    if (!is_handle(*profiler, *handle)) return false;
    if ((*profiler)->shared == NULL) return true;
    const char *name = sp_native_region_at(*profiler, (uint32_t)*handle)->name;
    *profiler = (*profiler)->shared;
    *handle = sp_native_region_of(*profiler, name, NULL, -1);
    return *handle >= 0;
}

int64_t sp_native_num_calls(sp_profiler *profiler, int handle)
{
    if (!to_shared(&profiler, &handle)) return 0;
    uint32_t id;
    sp_native_lock(profiler);
    int64_t entries = sp_native_region_at(profiler, (uint32_t)handle)->entries;
    if (id_in_run(profiler, handle, &id)) entries += (int64_t)sp_run_entries(profiler->run, id);
    sp_native_unlock(profiler);
    return entries;
}

static void add_call(sp_region_stats *stats, int64_t ns)
{
    if (stats->calls == 0 || ns < stats->min_ns) stats->min_ns = ns;
    if (stats->calls == 0 || ns > stats->max_ns) stats->max_ns = ns;
    stats->total_ns += ns;
    stats->calls++;
}

static bool add_times(void *stats, int64_t start, int64_t end)
{
    add_call(stats, end - start);
    return true;
}

/* The same for the calls of a row that is in a file. */
static void add_sums(sp_region_stats *stats, const sp_row *row)
{
    const sp_row_statistics *s = &row->statistics;
    if (row->count == 0) return;
    if (stats->calls == 0 || s->minimum < stats->min_ns) stats->min_ns = s->minimum;
    if (stats->calls == 0 || s->maximum > stats->max_ns) stats->max_ns = s->maximum;
    stats->total_ns += s->total;
    stats->calls += (int64_t)row->count;
}

int sp_native_region_stats(sp_profiler *profiler, int handle, sp_region_stats *stats)
{
    *stats = (sp_region_stats){0, 0, 0, 0};
    if (!to_shared(&profiler, &handle)) return sp_native_fail(profiler, SP_ERR_INVALID, NULL);
    uint32_t id;
    sp_native_lock(profiler);
    *stats = sp_native_region_at(profiler, (uint32_t)handle)->stats;
    if (id_in_run(profiler, handle, &id)) {
        sp_run_each_call(profiler->run, id, add_times, stats);
    }
    sp_native_unlock(profiler);
    return SP_OK;
}

/* ---- writing ---- */

static sp_status write_trace(void *context, sp_collection *collection, const sp_hdf5_options *hdf5, sp_error *error)
{
    const sp_profiler *profiler = context;
    return sp_spt_write(collection, (uint32_t)profiler->rank, profiler->path, hdf5->ready, hdf5->ready_context, error);
}

/*
 * The calls go from where they were recorded into the file, and stay there until the run is dropped: memory is bounded, and a later
 * file has them again. `last`: with the calls that are open. `written` (may be NULL): the profile in the file, without its calls.
 */
static sp_status write_file(sp_profiler *profiler, bool last, sp_profile **written, sp_error *error)
{
    const bool trace = profiler->format == SP_OUTPUT_TRACE;
    sp_profile *description = sp_profile_new();
    sp_status status = description ? describe(profiler, NULL, description) : SP_ERR_NO_MEMORY;
    const sp_finish_options options = {.path = profiler->path, .rank = (uint32_t)profiler->rank, .description = description,
                                       .last = last, .keeps = true, .write = trace ? write_trace : NULL, .context = profiler};
    if (status == SP_OK) status = sp_run_finish(profiler->run, &options, written, error);
    else sp_fail(error, status, "no memory to write %s", profiler->path);
    sp_profile_release(description);
    return status;
}

/* The last file with the calls of all ranks in it: what its writing needs and finds out. */
typedef struct together {
    sp_profiler *profiler;
    sp_link *link;
    sp_team team;
    char *path;
    bool met, written;
    sp_profile *whole;
} together;

static sp_status write_with_others(void *context, sp_collection *collection, const sp_hdf5_options *hdf5, sp_error *error)
{
    together *t = context;
    t->whole = sp_profile_share(sp_collection_profile(collection));
    t->met = true;
    sp_status status = sp_native_meet(t->link, SP_OK, &t->team, error);
    if (status == SP_OK) {
        /* Without memory for the description the calls are worth more: the others wait for them. */
        (void)describe(t->profiler, &t->team, t->whole);
        status = sp_native_write_ranks(&t->team, collection, t->path, hdf5, &t->written, error);
    }
    if (!t->written && t->team.comm.cut_off) { /* rank 0 is lost: a file of its own */
        (void)describe(t->profiler, NULL, t->whole);
        t->written = sp_hdf5_write_collection(collection, t->profiler->path, hdf5, NULL) == SP_OK;
    }
    return status;
}

/* The last file, of all ranks. *written: this rank's calls are in one, whatever the status; *whole: without its calls, to be released. */
static sp_status write_together(sp_profiler *profiler, sp_link *link, bool *written, sp_profile **whole, sp_error *error)
{
    together t = {.profiler = profiler, .link = link, .path = sp_native_shared_path(profiler->output)};
    const sp_finish_options options = {.path = t.path, .rank = (uint32_t)profiler->rank, .last = true, .keeps = true,
                                       .write = write_with_others, .context = &t};
    sp_status status = t.path ? sp_run_finish(profiler->run, &options, NULL, error) : sp_fail(error, SP_ERR_NO_MEMORY, "no memory for a path");
    if (!t.met) status = sp_native_meet(link, status, &t.team, error);
    *written = t.written;
    *whole = t.whole;
    if (t.written && !t.team.comm.cut_off) {
        free(profiler->path);
        profiler->path = t.path;
        t.path = NULL;
    }
    free(t.path);
    return status;
}

/* Statistics outlive the run: those of calls that had ended. */
static void keep_statistics(sp_profiler *profiler, const sp_profile *written)
{
    const uint32_t count = atomic_load(&profiler->region_count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id;
        if (id_in_run(profiler, (int)i, &id)) {
            sp_native_region_at(profiler, i)->entries += (int64_t)sp_run_entries(profiler->run, id);
        }
    }
    for (size_t i = 0; i < written->row_count; i++) {
        const sp_row *row = &written->rows[i];
        const int handle = sp_native_find_region(profiler, written->names[row->name]);
        uint32_t id;
        /* A region of another copy that nobody has asked for here is not kept. */
        if (handle < 0) continue;
        sp_region_stats *stats = &sp_native_region_at(profiler, (uint32_t)handle)->stats;
        if (row->event_metadata == NULL && row->has_statistics) add_sums(stats, row);
        else if (id_in_run(profiler, handle, &id)) sp_run_each_call(profiler->run, id, add_times, stats);
    }
}

static bool has_own_run(const sp_profiler *profiler)
{
    return profiler->run && !profiler->joined && !profiler->inherited;
}

int sp_native_flush(sp_profiler *profiler)
{
    if (profiler->shared) profiler = profiler->shared;
    sp_error error = {0};
    sp_native_lock(profiler);
    sp_status status = SP_OK;
    if (has_own_run(profiler)) status = write_file(profiler, false, NULL, &error);
    else if (profiler->run == NULL) status = SP_ERR_INACTIVE;
    sp_native_fail(profiler, status, &error);
    sp_native_unlock(profiler);
    return status;
}

/* `link`: the other ranks, or NULL. */
static int finalize(sp_profiler *profiler, sp_link *link)
{
    if (profiler->shared) profiler = profiler->shared;
    sp_error error = {0};
    sp_status status = SP_OK;
    sp_native_stop_sampling(profiler);
    sp_native_lock(profiler);
    if (has_own_run(profiler)) {
        /* No call begins meanwhile; those that end are in the file as ended, or as open. */
        __atomic_store_n(&profiler->head.recording, 0, __ATOMIC_RELEASE);
        bool written = false;
        sp_profile *whole = NULL;
        if (link && link->size > 1 && profiler->format == SP_OUTPUT_HDF5) status = write_together(profiler, link, &written, &whole, &error);
        else status = write_file(profiler, true, &whole, &error);
        written = written || status == SP_OK;
        if (status == SP_OK) status = sp_native_write_samples(profiler, &error);
        if (!written || (status != SP_OK && link == NULL)) {
            set_gates(profiler, profiler->run->token);
        } else {
            keep_statistics(profiler, whole);
            sp_native_drop_run(profiler);
            sp_native_rejoin(profiler);
        }
        sp_profile_release(whole);
    }
    sp_native_fail(profiler, status, &error);
    sp_native_unlock(profiler);
    return status;
}

int sp_native_finalize(sp_profiler *profiler)
{
    return finalize(profiler, NULL);
}

int sp_native_finalize_ranks(sp_profiler *profiler, sp_link *link)
{
    if (link->size < 1 || link->rank < 0 || link->rank >= link->size || !(link->patience > 0)) {
        return sp_native_fail(profiler, SP_ERR_INVALID, NULL);
    }
    return finalize(profiler, link);
}

int sp_native_reset(sp_profiler *profiler)
{
    if (profiler->shared) profiler = profiler->shared;
    sp_error error = {0};
    sp_status status = SP_OK;
    sp_native_lock(profiler);
    if (!has_own_run(profiler)) {
        status = profiler->run ? SP_ERR_UNSUPPORTED : SP_ERR_INACTIVE;
    } else {
        uint32_t *ids = NULL;
        size_t open = 0;
        status = sp_run_open_calls(profiler->run, &ids, &open, &error);
        free(ids);
        if (status == SP_OK && open) status = SP_ERR_OPEN_SCOPES;
        if (status == SP_OK) {
            sp_native_drop_run(profiler);
            clear_statistics(profiler);
            status = open_run(profiler, &error);
            sp_native_share(profiler);
        }
    }
    sp_native_fail(profiler, status, &error);
    sp_native_unlock(profiler);
    return status;
}
