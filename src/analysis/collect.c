#include "analysis/collect.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/collection.h"
#include "analysis/summed.h"
#include "analysis/wrap.h"
#include "core/task.h"
#include "platform/platform.h"

/* ---- columns ---- */

/* Where the columns are filled: by row, the next position. */
typedef struct filling {
    sp_profile *profile;
    uint64_t *next;
    int64_t *lane_keys;
} filling;

static sp_status columns_new(filling *f, const sp_run *run, bool want_lanes, sp_error *error)
{
    sp_profile *profile = f->profile;
    bool wanted[SP_COLUMN_COUNT] = {[SP_COLUMN_START] = true, [SP_COLUMN_END] = true, [SP_COLUMN_CALL_ID] = true,
                                    [SP_COLUMN_PARENT_ID] = true};
    wanted[SP_COLUMN_THREAD] = run->tracks_threads;
    wanted[SP_COLUMN_TASK] = wanted[SP_COLUMN_AWAIT] = run->tracks_tasks;
    bool made = true;
    for (int i = 0; i < SP_COLUMN_COUNT; i++) {
        sp_column_free(profile->columns[i], profile->call_count);
        profile->columns[i] = NULL;
        if (wanted[i]) made = (profile->columns[i] = sp_column_alloc(profile->call_count)) != NULL && made;
    }
    if (want_lanes) made = (f->lane_keys = sp_column_alloc(profile->call_count)) != NULL && made;
    f->next = malloc((profile->row_count + 1) * sizeof *f->next);
    if (!made || f->next == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the columns of the run");
    for (size_t i = 0; i < profile->row_count; i++) f->next[i] = profile->rows[i].first;
    return SP_OK;
}

static void put_calls(void *context, const sp_collected *calls, size_t count, uint32_t places)
{
    filling *f = context;
    int64_t *const *columns = f->profile->columns;
    for (const sp_collected *call = calls; call < calls + count; call++) {
        const uint64_t at = f->next[call->row]++;
        columns[SP_COLUMN_START][at] = call->start_ns;
        columns[SP_COLUMN_END][at] = call->end_ns;
        columns[SP_COLUMN_CALL_ID][at] = call->call_id;
        columns[SP_COLUMN_PARENT_ID][at] = call->parent_id;
        if (columns[SP_COLUMN_THREAD]) columns[SP_COLUMN_THREAD][at] = call->thread;
        if (columns[SP_COLUMN_TASK]) {
            columns[SP_COLUMN_TASK][at] = call->task;
            columns[SP_COLUMN_AWAIT][at] = call->await_ns;
        }
        if (f->lane_keys) f->lane_keys[at] = call->task >= 0 ? call->task : sp_thread_lane(call->thread);
    }
}

static void drop_ids(sp_profile *profile)
{
    for (int i = SP_COLUMN_CALL_ID; i <= SP_COLUMN_PARENT_ID; i++) {
        sp_column_free(profile->columns[i], profile->call_count);
        profile->columns[i] = NULL;
    }
}

sp_status sp_collection_columns(sp_collection *collection, unsigned how, int64_t **lane_keys, sp_error *error)
{
    filling f = {.profile = sp_collection_profile(collection)};
    sp_status status = columns_new(&f, sp_collection_run(collection), lane_keys != NULL, error);
    if (status == SP_OK) {
        if (!sp_collection_walk(collection, how | SP_WALK_TREE, put_calls, &f)) drop_ids(f.profile);
        status = sp_collection_check(collection, error);
    }
    if (status == SP_OK) {
        for (size_t i = 0; i < f.profile->row_count; i++) {
            sp_row *row = &f.profile->rows[i];
            sp_row_statistics_compute(f.profile, row, &row->statistics);
            row->has_statistics = true;
        }
        if (lane_keys) *lane_keys = f.lane_keys;
    } else {
        sp_column_free(f.lane_keys, f.profile->call_count);
    }
    free(f.next);
    return status;
}

sp_status sp_run_collect(sp_run *run, uint32_t rank, int64_t first_call_id, sp_profile **out, int64_t **lane_keys,
                         sp_error *error)
{
    if (run->sums) return sp_run_collect_totals(run, rank, out, error);
    sp_collection *collection;
    sp_status status = sp_collection_begin(run, rank, first_call_id, &collection, error);
    if (status != SP_OK) return status;
    sp_profile *profile = sp_profile_share(sp_collection_profile(collection));
    status = sp_collection_columns(collection, SP_WALK_EMPTY, lane_keys, error);
    if (status == SP_OK) {
        sp_collection_keep(collection);
        *out = profile;
    } else {
        sp_collection_abandon(collection);
        sp_profile_release(profile);
    }
    return status;
}

/* ---- the lane tables ---- */

static int64_t relative(const sp_run *run, sp_timeline_cursor *cursor, sp_ticks ticks)
{
    return ticks ? sp_timeline_to_ns(cursor, ticks) - run->start_ns : SP_UNKNOWN;
}

/* With run->lock held. */
static bool thread_table(sp_run *run, sp_profile *profile, uint32_t rank, sp_timeline_cursor *cursor)
{
    profile->has_threads = true;
    profile->threads = calloc(run->row_count + 1, sizeof *profile->threads);
    if (profile->threads == NULL) return false;
    sp_run_sample_threads(run);
    for (size_t i = run->hidden_rows; i < run->row_count; i++) {
        const sp_thread_row *row = run->rows[i];
        sp_thread_info *info = &profile->threads[profile->thread_count];
        *info = (sp_thread_info){.rank = rank, .index = row->index, .ident = row->ident, .native_id = row->native_id,
                                 .daemon = row->daemon, .start_ns = relative(run, cursor, row->start),
                                 .end_ns = relative(run, cursor, row->end), .cpu_ns = row->cpu_ns, .cpu_before_ns = row->cpu_before_ns,
                                 .name = strdup(row->name)};
        if (info->name == NULL) return false;
        profile->thread_count++;
    }
    return true;
}

/* What a task does at the time of collection counts too: the ticks since `begin`, 0 if it does not do it. */
static uint64_t under_way(const sp_run *run, sp_ticks begin)
{
    if (begin == 0) return 0; /* most tasks have ended: no clock is read for them */
    const sp_ticks now = run->ended ? run->ended : sp_clock_read();
    return now > begin ? now - begin : 0;
}

static bool task_row(const sp_run *run, const sp_task *task, sp_task_info *info, uint32_t rank, sp_timeline_cursor *cursor)
{
    char buffer[32];
    const uint32_t coro = task->coro_name;
    const sp_timeline *timeline = &run->timeline;
    uint64_t running = atomic_load_explicit(&task->running, memory_order_relaxed);
    uint64_t suspended = atomic_load_explicit(&task->suspended, memory_order_relaxed);
    if (atomic_load_explicit(&task->done, memory_order_relaxed) == 0) {
        const sp_ticks step = atomic_load_explicit(&task->step_started, memory_order_relaxed);
        const sp_ticks waiting = atomic_load_explicit(&task->last_step_end, memory_order_relaxed);
        running += under_way(run, step);
        if (step == 0) suspended += under_way(run, waiting);
    }
    *info = (sp_task_info){.rank = rank, .index = task->index, .created_ns = relative(run, cursor, task->created),
                           .thread_index = atomic_load_explicit(&task->thread_index, memory_order_relaxed),
                           .done_ns = relative(run, cursor, atomic_load_explicit(&task->done, memory_order_relaxed)),
                           .steps = (int64_t)atomic_load_explicit(&task->steps, memory_order_relaxed),
                           .running_ns = sp_timeline_duration(timeline, running),
                           .suspended_ns = sp_timeline_duration(timeline, suspended),
                           .creator_thread = task->creator_thread, .creator_task = task->creator_task};
    info->kind = strdup(task->kind == SP_TASK_GREENLET ? "greenlet" : "task");
    info->name = strdup(sp_task_name(task, buffer));
    info->coro_name = strdup(coro < run->string_count ? run->strings[coro] : "");
    return info->kind && info->name && info->coro_name;
}

/* With run->lock held. */
static bool task_table(sp_run *run, sp_profile *profile, uint32_t rank, sp_timeline_cursor *cursor)
{
    profile->tasks = calloc(run->task_count + 1, sizeof *profile->tasks);
    if (profile->tasks == NULL) return false;
    for (size_t i = run->hidden_tasks; i < run->task_count; i++) {
        const sp_task *task = &run->task_pages[i / SP_TASKS_PER_PAGE][i % SP_TASKS_PER_PAGE];
        if (!task_row(run, task, &profile->tasks[profile->task_count++], rank, cursor)) return false;
    }
    return true;
}

/* This process, and its clock against the calendar's at the start and now. A restored run was another process. */
static bool process_table(const sp_run *run, sp_profile *profile, uint32_t rank)
{
    profile->processes = calloc(1, sizeof *profile->processes);
    if (profile->processes == NULL) return false;
    sp_process_info *info = profile->processes;
    *info = (sp_process_info){.rank = rank, .error_ns = SP_UNKNOWN};
    profile->process_count = 1;
    if (run->started_at.error_ns >= 0) {
        const sp_sync_point now = sp_sync_with_calendar();
        const sp_sync_point *worse = now.error_ns > run->started_at.error_ns ? &now : &run->started_at;
        *info = (sp_process_info){.rank = rank, .pid = getpid(), .clock_domain = sp_platform_clock_domain(),
                                  .start_ns = run->started_at.local_ns, .start_reference_ns = run->started_at.reference_ns,
                                  .end_ns = now.local_ns, .end_reference_ns = now.reference_ns, .error_ns = worse->error_ns};
    }
    info->name = strdup("");
    if (run->against_rank_0) { /* the second moment comes when the ranks meet again */
        info->end_ns = info->start_ns;
        info->end_reference_ns = info->start_reference_ns;
        info->error_ns = run->started_at.error_ns;
    }
    info->reference = strdup(info->error_ns < 0 ? "" : run->against_rank_0 ? "rank 0" : "realtime");
    return info->name && info->reference;
}

sp_status sp_run_tables(sp_run *run, uint32_t rank, sp_profile *profile, sp_error *error)
{
    pthread_mutex_lock(&run->lock);
    sp_timeline_anchor(&run->timeline, 0);
    sp_timeline_cursor cursor = {.timeline = &run->timeline};
    const bool made = (!run->tracks_threads || thread_table(run, profile, rank, &cursor)) &&
        (!run->tracks_tasks || task_table(run, profile, rank, &cursor));
    pthread_mutex_unlock(&run->lock);
    return made && process_table(run, profile, rank) ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the tables of threads and tasks");
}
