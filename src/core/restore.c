#include "core/restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "core/registry.h"
#include "core/task.h"
#include "core/thread_rows.h"

#define SLOWEST_NS_A_TICK 200.0

sp_run *sp_run_restore(const sp_restore_options *options)
{
    sp_run *run = calloc(1, sizeof *run);
    if (run == NULL) return NULL;
    atomic_init(&run->references, 1);
    run->tracks_threads = options->tracks_threads;
    run->tracks_tasks = options->tracks_tasks;
    run->stride = options->tracks_tasks ? sizeof(sp_async_slot) : sizeof(sp_slot);
    run->started = options->started;
    run->start_ns = options->start_ns;
    run->started_at.error_ns = -1;
    pthread_mutex_init(&run->collecting, NULL);
    pthread_mutex_init(&run->lock, NULL);
    return run;
}

bool sp_run_restore_anchor(sp_run *run, sp_anchor anchor)
{
    sp_timeline *timeline = &run->timeline;
    const sp_anchor *last = timeline->count ? &timeline->anchors[timeline->count - 1] : NULL;
    if (last && (anchor.ticks <= last->ticks || anchor.ns <= last->ns)) return true;
    /* No clock ticks that slowly, and times far from such anchors would leave the range of numbers. */
    if (last && (double)(anchor.ns - last->ns) / (double)(anchor.ticks - last->ticks) > SLOWEST_NS_A_TICK) return true;
    if (!sp_grow(&timeline->anchors, &timeline->size, timeline->count, sizeof *timeline->anchors, 64)) return false;
    timeline->anchors[timeline->count++] = anchor;
    return true;
}

static sp_thread_row *row_add(sp_run *run)
{
    char name[32];
    snprintf(name, sizeof name, "thread %zu", run->row_count);
    sp_thread_row *row = sp_thread_row_new(run, name);
    if (row == NULL) return NULL;
    row->start = run->started;
    row->cpu_ns = -1;
    row->released = true; /* its thread is not of this process: nothing can be sampled */
    run->row_count++;
    return row;
}

sp_thread_row *sp_run_restore_row(sp_run *run, uint32_t index)
{
    while (run->row_count <= index) {
        if (row_add(run) == NULL) return NULL;
    }
    return run->rows[index];
}

bool sp_run_restore_string(sp_run *run, uint32_t id, const char *text)
{
    if (id != run->string_count) return true; /* told twice, or one before it is lost: names of tasks are then unknown */
    if (!sp_grow(&run->strings, &run->string_size, run->string_count, sizeof *run->strings, 32)) return false;
    char *copy = strdup(text);
    if (copy == NULL) return false;
    run->strings[run->string_count++] = copy;
    return true;
}

bool sp_run_restore_tasks(sp_run *run, uint32_t page, const sp_task *tasks, size_t count)
{
    if (page != run->task_page_count || count > SP_TASKS_PER_PAGE) return true;
    sp_task **pages = realloc(run->task_pages, (page + 1) * sizeof *pages);
    if (pages) run->task_pages = pages;
    bool *stored = pages ? realloc(run->task_page_stored, (page + 1) * sizeof *stored) : NULL;
    if (stored == NULL) return false;
    run->task_page_stored = stored;
    stored[page] = false;
    pages[page] = calloc(SP_TASKS_PER_PAGE, sizeof **pages);
    if (pages[page] == NULL) return false;
    memcpy(pages[page], tasks, count * sizeof *tasks);
    for (size_t i = 0; i < count; i++) {
        sp_task *task = &pages[page][i];
        task->index = (int32_t)((size_t)page * SP_TASKS_PER_PAGE + i);
        if (task->name_kind != SP_NAME_NUMBERED) task->name_kind = SP_NAME_NONE;
    }
    run->task_page_count = page + 1;
    run->task_count = (size_t)page * SP_TASKS_PER_PAGE + count;
    return true;
}

static sp_log *log_of_row(sp_run *run, uint32_t row)
{
    for (sp_log *log = run->logs; log; log = log->next_of_run) {
        if (log->row->index == (int32_t)row) return log;
    }
    sp_thread_row *described = sp_run_restore_row(run, row);
    sp_log *log = described ? calloc(1, sizeof *log) : NULL;
    if (log == NULL) return NULL;
    log->stride = run->stride;
    log->lane_index = SP_NO_TASK;
    log->run = run;
    log->row = described;
    log->orphaned = true;
    log->next_of_run = run->logs;
    run->logs = log;
    atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
    return log;
}

bool sp_run_restore_block(sp_run *run, uint32_t row, char *begin, char *end)
{
    sp_log *log = log_of_row(run, row);
    sp_block *block = log ? calloc(1, sizeof *block) : NULL;
    if (block == NULL) return false;
    block->memory = SP_BLOCK_BORROWED;
    block->begin = begin;
    block->end = end;
    block->bytes = (size_t)(end - begin);
    if (log->tail) {
        atomic_store_explicit(&log->tail->next, block, memory_order_relaxed);
    } else {
        log->head = block;
    }
    log->tail = block;
    /* Nothing is left to scan: entries are not counted in a restored run, and slots may be marked as reported already. */
    log->scan_block = block;
    log->scan_next = end;
    log->limit = end;
    atomic_store_explicit(&log->next, end, memory_order_relaxed);
    return true;
}
