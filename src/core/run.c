#include "core/run.h"

#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "core/note.h"
#include "core/probe.h"
#include "core/registry.h"
#include "core/thread_rows.h"
#include "core/totals.h"
#include "core/values.h"
#include "platform/platform.h"

#define DEFAULT_FIRST_BLOCK 128

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static void region_free(sp_region_info *region)
{
    if (region == NULL) return;
    free(region->name);
    free(region->source_file);
    free(region->source_text);
    free(region->tags);
    free(region);
}

sp_status sp_run_open(const sp_run_options *options, sp_switch *gate, sp_run **out, sp_error *error)
{
    sp_clock_choose();
    sp_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        if (options->probe) options->probe->operations->release(options->probe);
        return sp_fail(error, SP_ERR_NO_MEMORY, "no memory for a run");
    }
    run->probe = options->probe;
    atomic_init(&run->references, 1);
    run->tracks_threads = options->tracks_threads;
    run->tracks_tasks = options->tracks_tasks;
    run->sums = options->sums;
    run->stride = run->sums ? sizeof(sp_frame) : options->tracks_tasks ? sizeof(sp_async_slot) : sizeof(sp_slot);
    if (run->sums) sp_platform_barriers_prepare();
    run->first_block = options->first_block ? options->first_block : DEFAULT_FIRST_BLOCK;
    pthread_mutex_init(&run->collecting, NULL);
    pthread_mutex_init(&run->lock, NULL);
    run->gate = gate;
    run->opener = sp_platform_thread_id();
    run->opener_cpu_ns = sp_platform_own_cpu_ns();
    sp_timeline_anchor(&run->timeline, 0);
    run->started = sp_clock_read();
    run->started_at = sp_sync_with_calendar();
    run->start_ns = run->timeline.count ? run->timeline.anchors[0].ns : sp_clock_ns();
    if (options->store) {
        run->store = sp_store_share(options->store);
        sp_note_anchors(run);
    }
    sp_registry_add_run(run);
    atomic_store_explicit(&gate->token, run->token, memory_order_release);
    *out = run;
    return SP_OK;
}

void sp_run_attach(sp_run *run, sp_switch *gate)
{
    pthread_mutex_lock(&run->lock);
    run->gate = gate;
    atomic_store_explicit(&gate->token, run->token, memory_order_release);
    pthread_mutex_unlock(&run->lock);
}

void sp_run_close(sp_run *run)
{
    sp_registry_remove_run(run);
}

void sp_run_set_paused(sp_run *run, bool paused)
{
    pthread_mutex_lock(&run->lock);
    if (run->gate) atomic_store_explicit(&run->gate->token, paused ? 0 : run->token, memory_order_release);
    pthread_mutex_unlock(&run->lock);
}

static void run_free(sp_run *run)
{
    for (size_t i = 0; i < run->region_count; i++) region_free(run->regions[i]);
    sp_thread_rows_free(run);
    for (size_t page = 0; page < run->task_page_count; page++) {
        const size_t first = page * SP_TASKS_PER_PAGE;
        for (size_t i = 0; i < SP_TASKS_PER_PAGE && first + i < run->task_count; i++) {
            sp_task *task = &run->task_pages[page][i];
            if (task->name_kind == SP_NAME_TEXT) free(task->name.text);
        }
        if (!run->task_page_stored[page]) free(run->task_pages[page]);
    }
    for (size_t i = 0; i < run->string_count; i++) free(run->strings[i]);
    free(run->regions);
    free(run->region_index.slots);
    free(run->task_pages);
    free(run->task_page_stored);
    free(run->strings);
    free(run->string_index.slots);
    free(run->loose);
    sp_values_free(run);
    sp_timeline_free(&run->timeline);
    sp_run_free_totals(run);
    if (run->store) run->store->operations->release(run->store);
    if (run->probe) run->probe->operations->release(run->probe);
    pthread_mutex_destroy(&run->lock);
    pthread_mutex_destroy(&run->collecting);
    free(run);
}

void sp_run_release(sp_run *run)
{
    if (atomic_fetch_sub_explicit(&run->references, 1, memory_order_acq_rel) == 1) run_free(run);
}

/* Memory of a log whose thread lives on: full blocks can go, the tail is only emptied, because its owner may be writing. */
static void log_shrink(sp_log *log)
{
    if (log->tally) return; /* small, and its frames hold on to each other */
    for (sp_block *block = log->head; block && atomic_load_explicit(&block->next, memory_order_acquire);) {
        sp_block *next = atomic_load_explicit(&block->next, memory_order_acquire);
        log->head = next;
        sp_registry_bury(log, block);
        block = next;
    }
    sp_block *tail = log->head;
    if (tail && tail->memory == SP_BLOCK_MAPPED) {
        char *next = atomic_load_explicit(&log->next, memory_order_acquire);
        if (sp_block_closed(tail, next, log->stride)) sp_platform_empty(tail->begin, next);
    }
}

void sp_run_drop(sp_run *run)
{
    sp_run_close(run);
    sp_run_probe_end(run);
    sp_registry_drop_run(run, log_shrink);
    sp_run_release(run);
}

/* ---- regions ---- */

static uint64_t hash_of_region(const void *run, uint32_t id)
{
    return sp_hash(((const sp_run *)run)->regions[id]->name);
}

static bool is_region(const void *run, uint32_t id, const void *name)
{
    return strcmp(((const sp_run *)run)->regions[id]->name, name) == 0;
}

static sp_status region_add(sp_run *run, uint32_t *slot, sp_region_info *region, uint32_t *id, sp_error *error)
{
    if (run->region_count >= SP_REGION_ID) return sp_fail(error, SP_ERR_INVALID, "too many regions");
    if (!sp_grow(&run->regions, &run->region_size, run->region_count, sizeof *run->regions, 32)) return SP_ERR_NO_MEMORY;
    *id = (uint32_t)run->region_count;
    run->regions[run->region_count++] = region;
    *slot = *id + 1;
    sp_note_regions(run);
    return SP_OK;
}

static sp_region_info *region_new(const char *name, const char *source_file, int64_t source_line,
                                  const char *source_text, const char *tags)
{
    sp_region_info *region = calloc(1, sizeof *region);
    if (region == NULL) return NULL;
    region->name = copy(name);
    region->source_file = copy(source_file);
    region->source_line = source_line;
    region->source_text = copy(source_text);
    region->tags = copy(tags);
    if (!region->name || (source_file && !region->source_file) || (source_text && !region->source_text) ||
        (tags && !region->tags)) {
        region_free(region);
        return NULL;
    }
    return region;
}

static uint32_t *region_slot(const sp_run *run, const char *name)
{
    return sp_index_find(&run->region_index, sp_hash(name), run, is_region, name);
}

bool sp_run_find_region(sp_run *run, const char *name, uint32_t *id)
{
    pthread_mutex_lock(&run->lock);
    const uint32_t entry = run->region_index.size ? *region_slot(run, name) : 0;
    pthread_mutex_unlock(&run->lock);
    *id = entry - 1;
    return entry != 0;
}

sp_status sp_run_region(sp_run *run, const char *name, const char *source_file, int64_t source_line,
                        const char *source_text, const char *tags, uint32_t *id, sp_error *error)
{
    sp_status status = SP_OK;
    sp_region_info *region = NULL;
    pthread_mutex_lock(&run->lock);
    if (!sp_index_reserve(&run->region_index, run->region_count, run, hash_of_region)) goto no_memory;
    uint32_t *slot = region_slot(run, name);
    if (*slot) {
        *id = *slot - 1;
        goto done;
    }
    region = region_new(name, source_file, source_line, source_text, tags);
    if (region == NULL) goto no_memory;
    status = region_add(run, slot, region, id, error);
    if (status == SP_OK) goto done;
    region_free(region);
    if (status != SP_ERR_NO_MEMORY) goto done;
no_memory:
    status = sp_fail(error, SP_ERR_NO_MEMORY, "no memory for region '%.200s'", name);
done:
    pthread_mutex_unlock(&run->lock);
    return status;
}

void sp_run_mark_function(sp_run *run, uint32_t id)
{
    pthread_mutex_lock(&run->lock);
    run->regions[id]->function = true;
    pthread_mutex_unlock(&run->lock);
}

/* ---- calls without a handle ---- */

void sp_run_add_loose(sp_log *log, sp_slot *slot)
{
    sp_run *run = log->run;
    pthread_mutex_lock(&run->lock);
    if (run->loose_count == run->loose_size) {
        const size_t size = run->loose_size ? run->loose_size * 2 : 16;
        sp_loose_call *loose = realloc(run->loose, size * sizeof *loose);
        if (loose == NULL) {
            pthread_mutex_unlock(&run->lock);
            return;
        }
        run->loose = loose;
        run->loose_size = size;
    }
    const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed);
    run->loose[run->loose_count++] = (sp_loose_call){log, slot, region, slot->task};
    pthread_mutex_unlock(&run->lock);
}

bool sp_run_close_loose(sp_run *run, uint32_t region)
{
    sp_log *mine = NULL;
    for (sp_log *log = sp_this_thread ? sp_this_thread->logs : NULL; log; log = log->next_of_thread) {
        if (log->run == run) mine = log;
    }
    pthread_mutex_lock(&run->lock);
    size_t found = SIZE_MAX, on_lane = SIZE_MAX;
    for (size_t i = run->loose_count; i-- > 0;) {
        const sp_loose_call *call = &run->loose[i];
        if (call->region != region) continue;
        if (found == SIZE_MAX) found = i;
        if (call->log == mine && (call->task == mine->lane_index || run->sums)) {
            on_lane = i;
            break;
        }
    }
    if (on_lane != SIZE_MAX) found = on_lane;
    if (found == SIZE_MAX) {
        pthread_mutex_unlock(&run->lock);
        return false;
    }
    const sp_loose_call call = run->loose[found];
    memmove(&run->loose[found], &run->loose[found + 1], (run->loose_count - found - 1) * sizeof call);
    run->loose_count--;
    pthread_mutex_unlock(&run->lock);
    sp_log_exit(call.log, call.slot);
    return true;
}

/* ---- reading ---- */

static void remember_open(sp_log *log, sp_slot *slot)
{
    if (!sp_grow(&log->scan_open, &log->scan_open_size, log->scan_open_count, sizeof *log->scan_open, 8)) return;
    log->scan_open[log->scan_open_count++] = slot;
}

void sp_log_forget_closed(sp_log *log)
{
    size_t kept = 0;
    for (size_t i = 0; i < log->scan_open_count; i++) {
        if (sp_slot_is_open(log->scan_open[i])) {
            log->scan_open[kept++] = log->scan_open[i];
        }
    }
    log->scan_open_count = kept;
}

static void scan_slots(sp_log *log, char *from, char *to)
{
    sp_run *run = log->run;
    sp_region_info *const *const regions = run->regions;
    const size_t region_count = run->region_count;
    const uint32_t stride = log->stride;
    uint64_t scanned = 0;
    for (char *at = from; at < to; at += stride, scanned++) {
        sp_slot *slot = (sp_slot *)at;
        /* A forked child sees in full blocks what its parent has marked since. */
        const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID;
        if (region < region_count) regions[region]->entries++;
        if (sp_slot_is_open(slot)) remember_open(log, slot);
    }
    run->scanned += scanned;
}

void sp_log_scan(sp_log *log)
{
    sp_log_forget_closed(log);

    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    while (log->scan_block) {
        char *readable = sp_block_readable(log->scan_block, next);
        scan_slots(log, log->scan_next, readable);
        if (log->scan_next < readable) log->scan_next = readable;
        sp_block *following = atomic_load_explicit(&log->scan_block->next, memory_order_acquire);
        if (readable == next || following == NULL) return;
        sp_block_park(log->scan_block);
        log->scan_block = following;
        log->scan_next = following->begin;
    }
}

void sp_run_scan(sp_run *run)
{
    if (run->sums) {
        sp_run_count_totals(run);
        return;
    }
    for (sp_log *log = run->logs; log; log = log->next_of_run) sp_log_scan(log);
}

void sp_log_rename(sp_log *log, sp_slot *slot, uint32_t region)
{
    sp_run *run = log->run;
    pthread_mutex_lock(&run->lock);
    const uint32_t before = atomic_load_explicit(&slot->region, memory_order_relaxed);
    for (size_t i = log->scan_open_count; i-- > 0;) {
        if (log->scan_open[i] != slot) continue;
        run->regions[before]->entries--;
        run->regions[region]->entries++;
        break;
    }
    atomic_store_explicit(&slot->region, region, memory_order_relaxed);
    pthread_mutex_unlock(&run->lock);
}

bool sp_log_has_inner(sp_log *log, const sp_slot *slot)
{
    sp_run *run = log->run;
    if (!run->tracks_tasks) return false;
    bool found = false;
    pthread_mutex_lock(&run->lock);
    sp_log_scan(log);
    /* In the order of their entry: this one, and behind it what began later. */
    for (size_t i = log->scan_open_count; i-- > 0 && log->scan_open[i] != slot && !found;) {
        found = log->scan_open[i]->task == slot->task;
    }
    pthread_mutex_unlock(&run->lock);
    return found;
}

sp_status sp_run_open_calls(sp_run *run, uint32_t **ids, size_t *count, sp_error *error)
{
    pthread_mutex_lock(&run->lock);
    sp_run_scan(run);
    size_t total = 0;
    for (const sp_log *log = run->logs; log; log = log->next_of_run) {
        total += run->sums ? sp_tally_open_calls(log, NULL, SIZE_MAX) : log->scan_open_count;
    }
    uint32_t *list = malloc((total ? total : 1) * sizeof *list);
    size_t used = 0;
    for (const sp_log *log = run->logs; list && log; log = log->next_of_run) {
        if (run->sums) used += sp_tally_open_calls(log, list + used, total - used);
        for (size_t i = 0; i < log->scan_open_count; i++) {
            list[used++] = atomic_load_explicit(&log->scan_open[i]->region, memory_order_relaxed) & SP_REGION_ID;
        }
    }
    pthread_mutex_unlock(&run->lock);
    if (list == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the list of open calls");
    *ids = list;
    *count = used;
    return SP_OK;
}

uint64_t sp_run_uncollected(sp_run *run)
{
    pthread_mutex_lock(&run->lock);
    sp_run_scan(run);
    const uint64_t uncollected = run->scanned - run->collected;
    pthread_mutex_unlock(&run->lock);
    return uncollected;
}

uint64_t sp_run_entries(sp_run *run, uint32_t region)
{
    pthread_mutex_lock(&run->lock);
    sp_run_scan(run);
    const uint64_t entries = region < run->region_count ? run->regions[region]->entries : 0;
    pthread_mutex_unlock(&run->lock);
    return entries;
}

uint64_t *sp_run_all_entries(sp_run *run, size_t *count)
{
    pthread_mutex_lock(&run->lock);
    sp_run_scan(run);
    *count = run->region_count;
    uint64_t *entries = malloc((*count ? *count : 1) * sizeof *entries);
    for (size_t i = 0; entries && i < *count; i++) entries[i] = run->regions[i]->entries;
    pthread_mutex_unlock(&run->lock);
    return entries;
}

static bool each_of_log(const sp_log *log, uint32_t region, sp_ticks now, sp_timeline_cursor *cursor, sp_call_sink sink, void *context)
{
    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    for (const sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
        const char *readable = sp_block_readable(block, next);
        for (const char *at = block->begin; at < readable && !block->finished; at += log->stride) {
            const sp_slot *slot = (const sp_slot *)at;
            const uint32_t id = atomic_load_explicit(&slot->region, memory_order_relaxed);
            const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
            const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_relaxed);
            if (id != region || end == SP_SLOT_OPEN || end > now || start == 0) continue;
            if (!sink(context, sp_timeline_to_ns(cursor, start), sp_timeline_to_ns(cursor, end))) return false;
        }
        if (readable == next) break;
        sp_block_park(block);
    }
    return true;
}

bool sp_run_each_call(sp_run *run, uint32_t region, sp_call_sink sink, void *context)
{
    bool more = true;
    /* A collection under way empties blocks that this would read. */
    pthread_mutex_lock(&run->collecting);
    pthread_mutex_lock(&run->lock);
    const sp_ticks now = sp_clock_read();
    sp_timeline_anchor(&run->timeline, 0);
    for (sp_log *log = run->sums ? NULL : run->logs; log && more; log = log->next_of_run) {
        sp_timeline_cursor cursor = {.timeline = &run->timeline};
        more = each_of_log(log, region, now, &cursor, sink, context);
    }
    pthread_mutex_unlock(&run->lock);
    pthread_mutex_unlock(&run->collecting);
    return more;
}

typedef struct peeked {
    int64_t *starts, *ends;
    size_t count, size;
} peeked;

static bool peek_at(void *context, int64_t start, int64_t end)
{
    peeked *p = context;
    if (p->count == p->size) {
        const size_t size = p->size ? p->size * 2 : 64;
        int64_t *starts = realloc(p->starts, size * sizeof *starts);
        if (starts) p->starts = starts;
        int64_t *ends = starts ? realloc(p->ends, size * sizeof *ends) : NULL;
        if (ends == NULL) return false;
        p->ends = ends;
        p->size = size;
    }
    p->starts[p->count] = start;
    p->ends[p->count++] = end;
    return true;
}

sp_status sp_run_peek(sp_run *run, uint32_t region, int64_t **starts, int64_t **ends, size_t *count, sp_error *error)
{
    peeked p = {0};
    if (!sp_run_each_call(run, region, peek_at, &p)) {
        free(p.starts);
        free(p.ends);
        return sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the times of the region");
    }
    *starts = p.starts;
    *ends = p.ends;
    *count = p.count;
    return SP_OK;
}

static bool log_has_unreported(const sp_log *log, bool *open)
{
    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    for (const sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
        const char *readable = sp_block_readable(block, next);
        for (const char *at = block->begin; at < readable; at += log->stride) {
            const sp_slot *slot = (const sp_slot *)at;
            if (atomic_load_explicit(&slot->region, memory_order_relaxed) == SP_REGION_DONE) continue;
            if (atomic_load_explicit(&slot->start, memory_order_relaxed) == 0) continue;
            const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
            if (end != SP_SLOT_OPEN && end != SP_SLOT_ABANDONED) return true;
            if (end == SP_SLOT_OPEN) *open = true;
        }
        if (readable == next) break;
    }
    return false;
}

static bool sums_left(const sp_run *run, bool *open)
{
    for (const sp_log *log = run->logs; log; log = log->next_of_run) *open |= sp_tally_open_calls(log, NULL, SIZE_MAX) > 0;
    return sp_run_totals_left(run, false) > 0;
}

bool sp_run_has_unreported(sp_run *run)
{
    bool open = false, ended = false;
    pthread_mutex_lock(&run->collecting);
    pthread_mutex_lock(&run->lock);
    for (const sp_log *log = run->sums ? NULL : run->logs; log && !ended; log = log->next_of_run) ended = log_has_unreported(log, &open);
    if (run->sums) ended = sums_left(run, &open);
    const bool unreported = ended || (open && !run->reported);
    pthread_mutex_unlock(&run->lock);
    pthread_mutex_unlock(&run->collecting);
    return unreported;
}

static bool is_saved(const sp_run *run, const sp_block *block, const sp_slot *slot, int64_t tasks)
{
    const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID;
    return block->memory == SP_BLOCK_STORED && region < run->regions_noted && slot->task < tasks;
}

uint64_t sp_run_lost_pages(const sp_run *run)
{
    return run->store ? run->store->operations->lost(run->store) : 0;
}

static uint64_t log_unsaved(const sp_log *log, int64_t tasks)
{
    const sp_run *run = log->run;
    const bool known = sp_run_lost_pages(run) == 0 && (size_t)log->row->index <= run->rows_noted;
    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    uint64_t unsaved = 0;
    for (const sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
        const char *readable = sp_block_readable(block, next);
        for (const char *at = block->begin; at < readable; at += log->stride) {
            const sp_slot *slot = (const sp_slot *)at;
            const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
            if (end == SP_SLOT_OPEN || end == SP_SLOT_ABANDONED || atomic_load_explicit(&slot->start, memory_order_relaxed) == 0) continue;
            if (atomic_load_explicit(&slot->region, memory_order_relaxed) == SP_REGION_DONE) continue;
            unsaved += !known || !is_saved(run, block, slot, tasks);
        }
        if (readable == next) break;
    }
    return unsaved;
}

uint64_t sp_run_unsaved(sp_run *run)
{
    if (run->store == NULL) return 0;
    uint64_t unsaved = 0;
    pthread_mutex_lock(&run->collecting);
    pthread_mutex_lock(&run->lock);
    size_t pages = 0;
    while (pages < run->task_page_count && run->task_page_stored[pages]) pages++;
    if (run->sums) unsaved = sp_run_totals_left(run, sp_run_lost_pages(run) == 0);
    for (const sp_log *log = run->sums ? NULL : run->logs; log; log = log->next_of_run) unsaved += log_unsaved(log, (int64_t)(pages * SP_TASKS_PER_PAGE));
    pthread_mutex_unlock(&run->lock);
    pthread_mutex_unlock(&run->collecting);
    return unsaved;
}

uint64_t sp_run_lost(const sp_run *run)
{
    uint64_t lost = atomic_load_explicit(&run->lost, memory_order_relaxed) + atomic_load_explicit(&run->vanished, memory_order_relaxed);
    for (const sp_log *log = run->logs; log; log = log->next_of_run) {
        lost += atomic_load_explicit(&log->lost, memory_order_relaxed);
    }
    return lost;
}

void sp_run_sample_threads(sp_run *run)
{
    for (size_t i = 0; i < run->row_count; i++) {
        sp_thread_row_cpu_ns(run->rows[i]);
    }
}

int64_t sp_run_to_ns(sp_run *run, sp_ticks ticks)
{
    pthread_mutex_lock(&run->lock);
    const size_t count = run->timeline.count;
    if (count < 2 || ticks > run->timeline.anchors[count - 1].ticks) sp_timeline_anchor(&run->timeline, 0);
    sp_timeline_cursor cursor = {.timeline = &run->timeline, .segment = run->timeline.count > 1 ? run->timeline.count - 2 : 0};
    const int64_t ns = sp_timeline_to_ns(&cursor, ticks);
    pthread_mutex_unlock(&run->lock);
    return ns;
}
