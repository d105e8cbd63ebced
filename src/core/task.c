#include "core/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "core/note.h"

static uint64_t hash_of_string(const void *run, uint32_t id)
{
    return sp_hash(((const sp_run *)run)->strings[id]);
}

static bool is_string(const void *run, uint32_t id, const void *text)
{
    return strcmp(((const sp_run *)run)->strings[id], text) == 0;
}

/* With run->lock held; UINT32_MAX when out of memory. */
static uint32_t intern(sp_run *run, const char *text)
{
    if (!sp_index_reserve(&run->string_index, run->string_count, run, hash_of_string)) return UINT32_MAX;
    uint32_t *slot = sp_index_find(&run->string_index, sp_hash(text), run, is_string, text);
    if (*slot) return *slot - 1;
    if (!sp_grow(&run->strings, &run->string_size, run->string_count, sizeof *run->strings, 32)) return UINT32_MAX;
    char *copy = strdup(text);
    if (copy == NULL) return UINT32_MAX;
    run->strings[run->string_count] = copy;
    *slot = (uint32_t)run->string_count + 1;
    const uint32_t id = (uint32_t)run->string_count++;
    sp_note_string(run, id);
    return id;
}

static sp_task *page_new(sp_run *run, uint32_t page, bool *stored)
{
    size_t bytes = SP_TASKS_PER_PAGE * sizeof(sp_task);
    void *memory = run->store
        ? run->store->operations->map(run->store, SP_CHUNK_TASKS, page, sizeof(sp_task), &bytes) : NULL;
    *stored = memory != NULL;
    return memory ? memory : calloc(SP_TASKS_PER_PAGE, sizeof(sp_task));
}

static sp_task *task_slot(sp_run *run)
{
    const size_t page = run->task_count / SP_TASKS_PER_PAGE;
    if (page == run->task_page_count) {
        sp_task **pages = realloc(run->task_pages, (page + 1) * sizeof *pages);
        if (pages == NULL) return NULL;
        run->task_pages = pages;
        bool *stored = realloc(run->task_page_stored, (page + 1) * sizeof *stored);
        if (stored == NULL) return NULL;
        run->task_page_stored = stored;
        pages[page] = page_new(run, (uint32_t)page, &stored[page]);
        if (pages[page] == NULL) return NULL;
        run->task_page_count = page + 1;
    }
    return &run->task_pages[page][run->task_count % SP_TASKS_PER_PAGE];
}

/* The lane that the calling thread is on, if it is known to the run. Only the thread itself changes its list of logs. */
static void note_creator(const sp_run *run, sp_task *task)
{
    const sp_log *log = sp_this_thread ? sp_this_thread->logs : NULL;
    while (log && log->token != run->token) log = log->next_of_thread;
    task->creator_thread = log ? log->row->index : -1;
    task->creator_task = log ? log->lane_index : SP_NO_TASK;
}

/* With run->lock held. `text` is taken over; NULL: the name has this number. */
static void set_name(sp_run *run, sp_task *task, char *text, uint64_t number)
{
    if (task->name_kind == SP_NAME_TEXT) free(task->name.text);
    /* In a store, the row must make sense whenever the process dies. */
    task->name_kind = SP_NAME_NONE;
    atomic_thread_fence(memory_order_release);
    if (text) task->name.text = text;
    else task->name.number = number;
    atomic_thread_fence(memory_order_release);
    task->name_kind = text ? SP_NAME_TEXT : SP_NAME_NUMBERED;
    sp_note_task_name(run, task);
}

/* What it runs is `coro_name`, or, when that is NULL, the interned string `coro`. */
static sp_task *task_add(sp_run *run, sp_task_kind kind, const char *coro_name, uint32_t coro, uint64_t number)
{
    const sp_ticks now = sp_clock_read();
    pthread_mutex_lock(&run->lock);
    if (now >= run->timeline.due) sp_timeline_anchor(&run->timeline, 0);
    sp_task *task = run->task_count < INT32_MAX ? task_slot(run) : NULL;
    if (task) {
        task->index = (int32_t)run->task_count++;
        atomic_init(&task->thread_index, SP_NO_TASK);
        task->created = now;
        task->kind = (uint8_t)kind;
        note_creator(run, task);
        task->coro_name = coro_name ? intern(run, coro_name) : coro;
        if (number != SP_NO_NUMBER) set_name(run, task, NULL, number);
    }
    pthread_mutex_unlock(&run->lock);
    return task;
}

sp_task *sp_run_task_add(sp_run *run, sp_task_kind kind, const char *coro_name)
{
    return task_add(run, kind, coro_name ? coro_name : "", 0, SP_NO_NUMBER);
}

sp_task *sp_run_task_add_again(sp_run *run, sp_task_kind kind, uint32_t coro_name, uint64_t number)
{
    return task_add(run, kind, NULL, coro_name, number);
}

void sp_run_task_coro(sp_run *run, sp_task *task, const char *coro_name)
{
    pthread_mutex_lock(&run->lock);
    task->coro_name = intern(run, coro_name);
    pthread_mutex_unlock(&run->lock);
}

sp_task *sp_run_task(sp_run *run, int32_t index)
{
    if (index < 0) return NULL;
    pthread_mutex_lock(&run->lock);
    sp_task *task = (size_t)index < run->task_count
        ? &run->task_pages[index / SP_TASKS_PER_PAGE][index % SP_TASKS_PER_PAGE] : NULL;
    pthread_mutex_unlock(&run->lock);
    return task;
}

uint64_t sp_run_awaited(sp_run *run, const sp_async_slot *call, sp_ticks now)
{
    const sp_task *task = sp_run_task(run, call->call.task);
    if (task == NULL) return 0;
    uint64_t suspended = atomic_load_explicit(&task->suspended, memory_order_relaxed);
    const sp_ticks since = atomic_load_explicit(&task->last_step_end, memory_order_relaxed);
    const sp_ticks start = atomic_load_explicit(&call->call.start, memory_order_relaxed);
    const bool waiting = atomic_load_explicit(&task->step_started, memory_order_relaxed) == 0 &&
        atomic_load_explicit(&task->done, memory_order_relaxed) == 0;
    /* A call begins while its lane holds a thread: a suspension from before that is of a row which is older than the call. */
    if (waiting && since && since >= start && now > since) suspended += now - since;
    const uint64_t awaited = suspended > call->await ? suspended - call->await : 0;
    return now > start && awaited > now - start ? now - start : awaited;
}

bool sp_task_name_is_numbered(const char *name, uint64_t *number)
{
    enum { MOST_DIGITS = 18 };
    if (strncmp(name, "Task-", 5) != 0) return false;
    const char *first = name + 5, *at = first;
    uint64_t value = 0;
    for (unsigned digit; (digit = (unsigned char)*at - (unsigned)'0') <= 9; at++) {
        if (at - first == MOST_DIGITS) return false;
        value = value * 10 + digit;
    }
    if (*at != '\0' || at == first || (*first == '0' && at - first > 1)) return false;
    *number = value;
    return true;
}

void sp_run_task_number(sp_run *run, sp_task *task, uint64_t number)
{
    pthread_mutex_lock(&run->lock);
    set_name(run, task, NULL, number);
    pthread_mutex_unlock(&run->lock);
}

void sp_run_task_name(sp_run *run, sp_task *task, const char *name)
{
    uint64_t number = 0;
    if (sp_task_name_is_numbered(name, &number)) {
        sp_run_task_number(run, task, number);
        return;
    }
    char *text = strdup(name);
    if (text == NULL) return;
    pthread_mutex_lock(&run->lock);
    if (task->name_kind == SP_NAME_TEXT && strcmp(task->name.text, text) == 0) free(text);
    else set_name(run, task, text, 0);
    pthread_mutex_unlock(&run->lock);
}

const char *sp_task_name(const sp_task *task, char buffer[32])
{
    if (task->name_kind == SP_NAME_TEXT) return task->name.text;
    if (task->name_kind == SP_NAME_NONE) return "";
    snprintf(buffer, 32, "Task-%llu", (unsigned long long)task->name.number);
    return buffer;
}

void sp_task_finish(sp_task *task, sp_ticks now)
{
    if (atomic_load_explicit(&task->done, memory_order_relaxed) == 0) {
        atomic_store_explicit(&task->done, now, memory_order_relaxed);
    }
}
