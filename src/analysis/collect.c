#include "analysis/collect.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/note.h"
#include "core/registry.h"
#include "core/task.h"
#include "platform/platform.h"

/* One log in the merge. */
typedef struct source {
    sp_log *log;
    int32_t thread;
    uint32_t stride;
    sp_block *first, *last; /* the blocks to read: first .. last, last only up to `end` */
    char *end;
    sp_block *block; /* where the merge is */
    char *at, *readable;
    sp_ticks start; /* of the slot at `at` */
    sp_timeline_cursor cursor;
} source;

/* A call on the stack of its lane. */
typedef struct frame {
    uint32_t below; /* index of the enclosing frame, or NO_FRAME */
    uint32_t row;
    int64_t call_id;
    sp_ticks end;
    int64_t own_ns; /* its duration less that of its direct children */
} frame;

#define NO_FRAME UINT32_MAX

typedef struct collection {
    sp_run *run;
    sp_profile *profile;
    source *sources;
    size_t source_count;
    source **heap; /* by start, the earliest first */
    size_t heap_count;
    sp_anchor *anchors; /* the timeline as it was when the calls were chosen */
    sp_timeline timeline;
    uint64_t *counts; /* by region id */
    uint32_t *row_of; /* by region id */
    uint64_t *fill;   /* by row: the next column position */
    size_t region_count;
    int64_t *lane_keys;
    frame *frames;
    size_t frame_count, frame_size;
    uint32_t free_frame;
    uint32_t *thread_top, *task_top; /* by index: the lane's innermost open frame */
    size_t thread_count, task_count;
    int64_t next_call_id;
    bool nested;
} collection;

/* ---- pass 1: choose and count ---- */

static sp_status add_sources(collection *c, sp_error *error)
{
    sp_run *run = c->run;
    size_t count = 0;
    for (sp_log *log = run->logs; log; log = log->next_of_run) count++;
    c->sources = calloc(count ? count : 1, sizeof *c->sources);
    c->heap = calloc(count ? count : 1, sizeof *c->heap);
    if (!c->sources || !c->heap) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to collect the run");
    for (sp_log *log = run->logs; log; log = log->next_of_run) {
        if (log->head == NULL) continue;
        source *s = &c->sources[c->source_count++];
        *s = (source){.log = log, .thread = log->row->index, .stride = log->stride, .first = log->head,
                      .last = log->scan_block, .end = log->scan_next};
    }
    return SP_OK;
}

static char *readable_of(const source *s, const sp_block *block)
{
    return block == s->last ? s->end : block->end;
}

static sp_block *following(const source *s, sp_block *block)
{
    return block == s->last ? NULL : atomic_load_explicit(&block->next, memory_order_acquire);
}

/* Mark the closed calls of one block. A block is finished when it is full and nothing in it is open. */
static void choose_in_block(collection *c, const source *s, sp_block *block)
{
    const char *readable = readable_of(s, block);
    bool open = false;
    for (char *at = block->begin; at < readable; at += s->stride) {
        sp_slot *slot = (sp_slot *)at;
        const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed);
        if (region == SP_REGION_DONE || region & SP_REGION_KEPT) continue;
        const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
        if (end == SP_SLOT_OPEN) {
            open = true;
        } else if (end == SP_SLOT_ABANDONED) {
            atomic_store_explicit(&slot->region, SP_REGION_DONE, memory_order_relaxed);
        } else {
            /* A mark may be left from a collection that failed: chosen again. */
            c->counts[region & SP_REGION_ID]++;
            atomic_store_explicit(&slot->region, region | SP_REGION_TAKEN, memory_order_relaxed);
        }
    }
    block->finished = !open && block != s->last;
}

static sp_status choose(collection *c, sp_error *error)
{
    sp_run *run = c->run;
    pthread_mutex_lock(&run->lock);
    sp_run_scan(run);
    sp_note(run, SP_NOTE_COLLECT, ++run->collection, "");
    sp_status status = add_sources(c, error);
    c->region_count = run->region_count;
    pthread_mutex_unlock(&run->lock);
    if (status != SP_OK) return status;
    c->counts = calloc(c->region_count + 1, sizeof *c->counts);
    if (c->counts == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to collect the run");
    for (size_t i = 0; i < c->source_count; i++) {
        source *s = &c->sources[i];
        for (sp_block *block = s->first; block; block = following(s, block)) choose_in_block(c, s, block);
    }
    pthread_mutex_lock(&run->lock);
    /* Open calls that the scanner remembers must not point into blocks that are about to go. */
    for (size_t i = 0; i < c->source_count; i++) sp_log_forget_closed(c->sources[i].log);
    /* An anchor after every chosen end, so that no time is extrapolated. */
    sp_timeline_anchor(&run->timeline, 0);
    const size_t anchors = run->timeline.count;
    c->anchors = malloc((anchors ? anchors : 1) * sizeof *c->anchors);
    if (c->anchors) memcpy(c->anchors, run->timeline.anchors, anchors * sizeof *c->anchors);
    c->timeline = (sp_timeline){.anchors = c->anchors, .count = anchors, .size = anchors};
    c->thread_count = run->row_count;
    c->task_count = run->task_count;
    pthread_mutex_unlock(&run->lock);
    return c->anchors ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "no memory to collect the run");
}

/* ---- the profile's shape ---- */

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static bool row_new(collection *c, size_t id, uint32_t rank, uint64_t first)
{
    sp_profile *profile = c->profile;
    const sp_region_info *region = c->run->regions[id];
    sp_row *row = &profile->rows[profile->row_count];
    c->row_of[id] = (uint32_t)profile->row_count++;
    row->name = (uint32_t)profile->name_count;
    row->rank = rank;
    row->first = first;
    row->count = c->counts[id];
    row->source_line = region->source_line;
    row->source_file = copy(region->source_file);
    row->source_text = copy(region->source_text);
    row->tags = copy(region->tags);
    profile->names[profile->name_count] = copy(region->name);
    if (profile->names[profile->name_count] == NULL) return false;
    profile->name_count++;
    return (!region->source_file || row->source_file) && (!region->source_text || row->source_text) &&
        (!region->tags || row->tags);
}

static bool columns_new(collection *c, bool want_lanes)
{
    sp_profile *profile = c->profile;
    bool wanted[SP_COLUMN_COUNT] = {[SP_COLUMN_START] = true, [SP_COLUMN_END] = true, [SP_COLUMN_CALL_ID] = true,
                                    [SP_COLUMN_PARENT_ID] = true};
    wanted[SP_COLUMN_THREAD] = c->run->tracks_threads;
    wanted[SP_COLUMN_TASK] = wanted[SP_COLUMN_AWAIT] = c->run->tracks_tasks;
    for (int i = 0; i < SP_COLUMN_COUNT; i++) {
        if (wanted[i] && !(profile->columns[i] = sp_column_alloc(profile->call_count))) return false;
    }
    if (want_lanes) c->lane_keys = sp_column_alloc(profile->call_count);
    return !want_lanes || c->lane_keys;
}

static sp_status shape(collection *c, uint32_t rank, bool want_lanes, sp_error *error)
{
    sp_profile *profile = c->profile = sp_profile_new();
    if (profile == NULL) goto no_memory;
    size_t rows = 0;
    for (size_t id = 0; id < c->region_count; id++) rows += c->counts[id] > 0;
    profile->rows = calloc(rows ? rows : 1, sizeof *profile->rows);
    profile->names = calloc(rows ? rows : 1, sizeof *profile->names);
    c->row_of = malloc((c->region_count + 1) * sizeof *c->row_of);
    c->fill = malloc((rows ? rows : 1) * sizeof *c->fill);
    if (!profile->rows || !profile->names || !c->row_of || !c->fill) goto no_memory;
    pthread_mutex_lock(&c->run->lock);
    bool made = true;
    for (size_t id = 0; id < c->region_count && made; id++) {
        if (c->counts[id] == 0) continue;
        c->fill[profile->row_count] = profile->call_count;
        made = row_new(c, id, rank, profile->call_count);
        profile->call_count += c->counts[id];
    }
    pthread_mutex_unlock(&c->run->lock);
    if (!made || !columns_new(c, want_lanes)) goto no_memory;
    return SP_OK;
no_memory:
    return sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the columns of the run");
}

/* ---- pass 2: merge the logs in start order, build the tree, fill the columns ---- */

/* The block's memory is not needed for this collection any more. */
static void leave_block(const source *s, sp_block *block)
{
    if (block->memory == SP_BLOCK_STORED) block->store->operations->park(block->store, block->begin, block->bytes);
    else if (s->log->run->store) return; /* kept until it is confirmed */
    else if (block->finished && block->memory == SP_BLOCK_MAPPED) sp_platform_empty(block->begin, block->begin + block->bytes);
}

/* Move to the next chosen slot; false at the end. Blocks left behind are emptied when nothing in them is needed again. */
static bool source_next(source *s, bool first)
{
    if (!first) s->at += s->stride;
    for (;;) {
        for (; s->at < s->readable; s->at += s->stride) {
            const uint32_t region = atomic_load_explicit(&((sp_slot *)s->at)->region, memory_order_relaxed);
            if (region == SP_REGION_DONE || !(region & SP_REGION_TAKEN)) continue;
            s->start = atomic_load_explicit(&((sp_slot *)s->at)->start, memory_order_relaxed);
            return true;
        }
        sp_block *done = s->block;
        s->block = following(s, done);
        leave_block(s, done);
        if (s->block == NULL) return false;
        s->at = s->block->begin;
        s->readable = readable_of(s, s->block);
    }
}

static bool earlier(const source *a, const source *b)
{
    return a->start != b->start ? a->start < b->start : a->thread < b->thread;
}

static void heap_sink(collection *c, size_t at)
{
    source *moved = c->heap[at];
    for (;;) {
        size_t child = at * 2 + 1;
        if (child >= c->heap_count) break;
        if (child + 1 < c->heap_count && earlier(c->heap[child + 1], c->heap[child])) child++;
        if (!earlier(c->heap[child], moved)) break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = moved;
}

static void heap_fill(collection *c)
{
    for (size_t i = 0; i < c->source_count; i++) {
        source *s = &c->sources[i];
        s->block = s->first;
        s->at = s->first->begin;
        s->readable = readable_of(s, s->first);
        s->cursor.timeline = &c->timeline;
        if (source_next(s, true)) c->heap[c->heap_count++] = s;
    }
    for (size_t i = c->heap_count; i-- > 0;) heap_sink(c, i);
}

static uint32_t frame_new(collection *c)
{
    if (c->free_frame != NO_FRAME) {
        const uint32_t at = c->free_frame;
        c->free_frame = c->frames[at].below;
        return at;
    }
    if (c->frame_count == c->frame_size) {
        const size_t size = c->frame_size ? c->frame_size * 2 : 256;
        frame *frames = realloc(c->frames, size * sizeof *frames);
        if (frames == NULL) return NO_FRAME;
        c->frames = frames;
        c->frame_size = size;
    }
    return (uint32_t)c->frame_count++;
}

static void frame_pop(collection *c, uint32_t *top)
{
    const uint32_t at = *top;
    frame *f = &c->frames[at];
    c->profile->rows[f->row].exclusive_total += f->own_ns;
    *top = f->below;
    f->below = c->free_frame;
    c->free_frame = at;
}

static uint32_t *lane_of(collection *c, const source *s, const sp_slot *slot)
{
    if (!c->run->tracks_threads) return &c->thread_top[0];
    return slot->task >= 0 ? &c->task_top[slot->task] : &c->thread_top[s->thread];
}

/* Put the call on its lane's stack and return its parent's id, or SP_UNKNOWN. */
static int64_t nest(collection *c, uint32_t *top, const frame *call, sp_ticks start)
{
    while (*top != NO_FRAME && c->frames[*top].end <= start) frame_pop(c, top);
    int64_t parent = SP_UNKNOWN;
    if (*top != NO_FRAME) {
        frame *enclosing = &c->frames[*top];
        if (enclosing->end < call->end) c->nested = false;
        enclosing->own_ns -= call->own_ns;
        parent = enclosing->call_id;
    }
    const uint32_t at = frame_new(c);
    if (at == NO_FRAME) {
        c->nested = false; /* no memory for the tree: the calls themselves are still reported */
        return parent;
    }
    c->frames[at] = *call;
    c->frames[at].below = *top;
    *top = at;
    return parent;
}

static void put_call(collection *c, source *s)
{
    sp_slot *slot = (sp_slot *)s->at;
    const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID;
    const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_relaxed);
    const uint32_t row = c->row_of[region];
    const uint64_t at = c->fill[row]++;
    int64_t *const *columns = c->profile->columns;
    const int64_t start_ns = sp_timeline_to_ns(&s->cursor, s->start);
    const int64_t end_ns = end == s->start ? start_ns : sp_timeline_to_ns(&s->cursor, end);
    columns[SP_COLUMN_START][at] = start_ns;
    columns[SP_COLUMN_END][at] = end_ns;
    if (columns[SP_COLUMN_THREAD]) columns[SP_COLUMN_THREAD][at] = s->thread;
    if (columns[SP_COLUMN_TASK]) {
        columns[SP_COLUMN_TASK][at] = slot->task;
        const int64_t await = sp_timeline_duration(&c->timeline, ((const sp_async_slot *)slot)->await);
        columns[SP_COLUMN_AWAIT][at] = await < end_ns - start_ns ? await : end_ns - start_ns;
    }
    if (c->lane_keys) c->lane_keys[at] = slot->task >= 0 ? slot->task : -2 - (int64_t)s->thread;
    const frame call = {.row = row, .call_id = c->next_call_id++, .end = end, .own_ns = end_ns - start_ns};
    columns[SP_COLUMN_CALL_ID][at] = call.call_id;
    columns[SP_COLUMN_PARENT_ID][at] = nest(c, lane_of(c, s, slot), &call, s->start);
    if (c->run->store) atomic_store_explicit(&slot->region, region | SP_REGION_KEPT, memory_order_relaxed);
    else if (!s->block->finished) atomic_store_explicit(&slot->region, SP_REGION_DONE, memory_order_relaxed);
}

static bool tops_new(collection *c)
{
    c->free_frame = NO_FRAME;
    c->thread_top = malloc((c->thread_count + 1) * sizeof *c->thread_top);
    c->task_top = malloc((c->task_count + 1) * sizeof *c->task_top);
    if (!c->thread_top || !c->task_top) return false;
    memset(c->thread_top, 0xff, (c->thread_count + 1) * sizeof *c->thread_top);
    memset(c->task_top, 0xff, (c->task_count + 1) * sizeof *c->task_top);
    return true;
}

static void drop_ids(collection *c)
{
    sp_profile *profile = c->profile;
    for (int i = SP_COLUMN_CALL_ID; i <= SP_COLUMN_PARENT_ID; i++) {
        sp_column_free(profile->columns[i], profile->call_count);
        profile->columns[i] = NULL;
    }
    for (size_t i = 0; i < profile->row_count; i++) profile->rows[i].exclusive_total = SP_UNKNOWN;
}

/* From here on nothing fails: blocks are emptied on the way. */
static void fill(collection *c)
{
    c->nested = true;
    heap_fill(c);
    while (c->heap_count) {
        source *s = c->heap[0];
        put_call(c, s);
        if (!source_next(s, false)) c->heap[0] = c->heap[--c->heap_count];
        if (c->heap_count > 1) heap_sink(c, 0);
    }
    for (size_t i = 0; i <= c->thread_count; i++) {
        while (c->thread_top[i] != NO_FRAME) frame_pop(c, &c->thread_top[i]);
    }
    for (size_t i = 0; i <= c->task_count; i++) {
        while (c->task_top[i] != NO_FRAME) frame_pop(c, &c->task_top[i]);
    }
    c->profile->nested = c->nested;
    if (!c->nested) drop_ids(c);
    for (size_t i = 0; i < c->profile->row_count; i++) {
        sp_row *row = &c->profile->rows[i];
        sp_row_statistics_compute(c->profile, row, &row->statistics);
        row->has_statistics = true;
    }
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
                                 .end_ns = relative(run, cursor, row->end), .cpu_ns = row->cpu_ns,
                                 .name = strdup(row->name)};
        if (info->name == NULL) return false;
        profile->thread_count++;
    }
    return true;
}

/* What a task does at the time of collection counts too: the ticks since `begin`, 0 if it does not do it. */
static uint64_t under_way(const sp_run *run, sp_ticks begin)
{
    const sp_timeline *timeline = &run->timeline;
    const sp_ticks now = timeline->count ? timeline->anchors[timeline->count - 1].ticks : 0;
    return begin && now > begin ? now - begin : 0;
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
    info->reference = strdup(info->error_ns >= 0 ? "realtime" : "");
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

/* ---- after: take finished blocks, and logs of threads that ended, off the run ---- */

static bool log_is_spent(const sp_log *log)
{
    if (!log->orphaned) return false;
    if (log->head == NULL) return true;
    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    if (log->head != log->scan_block || log->scan_next != next) return false;
    for (const char *at = log->head->begin; at < next; at += log->stride) {
        if (atomic_load_explicit(&((const sp_slot *)at)->region, memory_order_relaxed) != SP_REGION_DONE) return false;
    }
    return true;
}

static void take_blocks(sp_log *log, const sp_block *end)
{
    sp_block *kept = NULL;
    for (sp_block *block = log->head; block != end;) {
        sp_block *next = atomic_load_explicit(&block->next, memory_order_acquire);
        if (!block->finished) {
            kept = block;
        } else {
            if (kept) atomic_store_explicit(&kept->next, next, memory_order_release);
            else log->head = next;
            sp_block_free(block);
        }
        block = next;
    }
}

/* With the locks of the registry and the run. */
static sp_log *take_spent_logs(sp_run *run)
{
    sp_log *spent = NULL;
    for (sp_log **link = &run->logs; *link;) {
        sp_log *log = *link;
        if (!log_is_spent(log)) {
            link = &log->next_of_run;
            continue;
        }
        *link = log->next_of_run;
        log->next_of_run = spent;
        spent = log;
    }
    return spent;
}

static void free_logs(sp_log *spent)
{
    while (spent) {
        sp_log *log = spent;
        spent = log->next_of_run;
        sp_log_free(log);
    }
}

static void clean_up(collection *c)
{
    sp_run *run = c->run;
    if (run->store) return; /* what a store keeps is needed until it is in a file */
    sp_registry_lock();
    pthread_mutex_lock(&run->lock);
    for (size_t i = 0; i < c->source_count; i++) take_blocks(c->sources[i].log, c->sources[i].last);
    sp_log *spent = take_spent_logs(run);
    pthread_mutex_unlock(&run->lock);
    free_logs(spent);
    sp_registry_unlock();
}

static void confirm_log(sp_log *log)
{
    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    for (sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
        if (block->finished) continue;
        const char *readable = sp_block_readable(block, next);
        for (char *at = block->begin; at < readable; at += log->stride) {
            sp_slot *slot = (sp_slot *)at;
            const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed);
            if (region == SP_REGION_DONE || !(region & SP_REGION_KEPT)) continue;
            atomic_store_explicit(&slot->region, SP_REGION_DONE, memory_order_relaxed);
        }
        if (readable == next) break;
    }
    take_blocks(log, NULL);
}

void sp_run_confirm(sp_run *run)
{
    if (run->store == NULL) return;
    pthread_mutex_lock(&run->collecting);
    sp_registry_lock();
    pthread_mutex_lock(&run->lock);
    run->reported = true;
    sp_note(run, SP_NOTE_CONFIRM, run->collection, "");
    for (sp_log *log = run->logs; log; log = log->next_of_run) confirm_log(log);
    sp_log *spent = take_spent_logs(run);
    pthread_mutex_unlock(&run->lock);
    free_logs(spent);
    sp_registry_unlock();
    pthread_mutex_unlock(&run->collecting);
}

/* After a failure no block counts as collected to its end: a run with a store would drop it with the next confirmation. */
static void forget_choice(collection *c)
{
    for (size_t i = 0; i < c->source_count; i++) {
        const source *s = &c->sources[i];
        for (sp_block *block = s->first; block; block = following(s, block)) block->finished = false;
    }
}

static void collection_free(collection *c)
{
    sp_column_free(c->lane_keys, c->profile ? c->profile->call_count : 0);
    sp_profile_release(c->profile);
    free(c->sources);
    free(c->heap);
    free(c->anchors);
    free(c->counts);
    free(c->row_of);
    free(c->fill);
    free(c->frames);
    free(c->thread_top);
    free(c->task_top);
}

sp_status sp_run_collect(sp_run *run, uint32_t rank, int64_t first_call_id, sp_profile **out, int64_t **lane_keys,
                         sp_error *error)
{
    collection c = {.run = run, .next_call_id = first_call_id};
    sp_fork_hold();
    pthread_mutex_lock(&run->collecting);
    sp_status status = choose(&c, error);
    if (status == SP_OK) status = shape(&c, rank, lane_keys != NULL, error);
    if (status == SP_OK) status = sp_run_tables(run, rank, c.profile, error);
    if (status == SP_OK && !tops_new(&c)) status = sp_fail(error, SP_ERR_NO_MEMORY, "no memory to collect the run");
    if (status == SP_OK) {
        fill(&c);
        clean_up(&c);
        pthread_mutex_lock(&run->lock);
        run->collected += c.profile->call_count;
        pthread_mutex_unlock(&run->lock);
        *out = c.profile;
        c.profile = NULL;
        if (lane_keys) {
            *lane_keys = c.lane_keys;
            c.lane_keys = NULL;
        }
    } else {
        forget_choice(&c);
    }
    pthread_mutex_unlock(&run->collecting);
    sp_fork_release();
    collection_free(&c);
    return status;
}
