/* lanes.c - the tables of threads, of tasks, and of tasks by what they run. */
#include <stdlib.h>
#include <string.h>

#include "analysis/path_summary.h"
#include "analysis/wrap.h"
#include "core/sort.h"
#include "report/report.h"
#include "report/table.h"

#define THREAD_LIMIT 64
#define TASK_LIMIT 20

typedef struct entry {
    size_t place; /* in the profile's table, or of a group */
    uint32_t rank;
    double key; /* the largest are shown where there are too many */
} entry;

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

static int by_rank(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static int by_key(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->key != b->key) return a->key > b->key ? -1 : 1;
    return by_rank(left, right);
}

/* The rows to show, and the title above them. */
static size_t choose(entry *entries, size_t count, int64_t limit, const char *noun, const char *measure, sp_text *out)
{
    sp_sort(entries, count, sizeof *entries, by_rank);
    if (limit <= 0 || count <= (size_t)limit) {
        sp_text_format(out, "%s (%zu)\n", noun, count);
        return count;
    }
    sp_sort(entries, count, sizeof *entries, by_key);
    sp_text_format(out, "%s (%zu, here the %lld of the most %s)\n", noun, count, (long long)limit, measure);
    return (size_t)limit;
}

static void seconds_cell(sp_table *table, bool known, int64_t ns)
{
    if (known) sp_table_format(table, "%.6f", seconds(ns));
    else sp_table_cell(table, "-");
}

static void named_cell(sp_table *table, const char *name, bool marked, const char *mark)
{
    sp_table_format(table, marked ? "%s (%s)" : "%s", name ? name : "", mark);
}

static void add_columns(sp_table *table, bool ranked, const char *const *names, size_t flexible)
{
    if (ranked) sp_table_column_add(table, "rank", true, false);
    for (size_t i = 0; names[i]; i++) sp_table_column_add(table, names[i], i == 0 || i > flexible, i > 0 && i <= flexible);
}

/* -- processes -- */

static void add_process(sp_table *table, const sp_profile *profile, const sp_process_info *process)
{
    unsigned long long calls = 0, threads = 0, tasks = 0;
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (row->rank == process->rank) calls += sp_row_calls(row);
    }
    for (size_t i = 0; i < profile->thread_count; i++) threads += profile->threads[i].rank == process->rank;
    for (size_t i = 0; i < profile->task_count; i++) tasks += profile->tasks[i].rank == process->rank;
    sp_table_format(table, "%u", (unsigned)process->rank);
    sp_table_cell(table, process->name && *process->name ? process->name : "-");
    if (process->pid > 0) sp_table_format(table, "%lld", (long long)process->pid);
    else sp_table_cell(table, "-");
    sp_table_format(table, "%llu", calls);
    sp_table_format(table, "%llu", threads);
    sp_table_format(table, "%llu", tasks);
}

void sp_report_processes(const sp_profile *profile, const sp_selection *selection, size_t width, sp_text *out)
{
    static const char *const columns[] = {"rank", "process", "pid", "calls", "threads", "tasks", NULL};
    size_t count = 0;
    for (size_t i = 0; i < profile->process_count; i++) count += sp_selection_has_rank(selection, profile->processes[i].rank);
    if (profile->process_count < 2 || count == 0) return;
    sp_text_format(out, "Processes (%zu)\n", count);
    sp_table table = {0};
    add_columns(&table, false, columns, 1);
    for (size_t i = 0; i < profile->process_count; i++) {
        if (sp_selection_has_rank(selection, profile->processes[i].rank)) add_process(&table, profile, &profile->processes[i]);
    }
    sp_table_end(&table, out, width);
    sp_text_add(out, "\n");
}

/* -- threads -- */

static const sp_thread_usage *usage_of(const sp_path_summary *summary, const sp_thread_info *thread)
{
    for (size_t low = 0, high = summary->thread_count; low < high;) {
        const size_t middle = (low + high) / 2;
        const sp_thread_usage *usage = &summary->threads[middle];
        if (usage->rank == thread->rank && usage->thread == thread->index) return usage;
        if (usage->rank < thread->rank || (usage->rank == thread->rank && usage->thread < thread->index)) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static void add_thread(sp_table *table, const sp_thread_info *thread, const sp_thread_usage *usage, bool ranked)
{
    const bool ended = thread->end_ns != SP_UNKNOWN;
    if (ranked) sp_table_format(table, "%u", (unsigned)thread->rank);
    sp_table_format(table, "%lld", (long long)thread->index);
    named_cell(table, thread->name, thread->daemon, "daemon");
    sp_table_format(table, "%llu", usage ? (unsigned long long)usage->count : 0);
    seconds_cell(table, true, usage ? usage->covered : 0);
    const int64_t cpu = sp_thread_run_cpu_ns(thread);
    seconds_cell(table, cpu >= 0, cpu);
    seconds_cell(table, ended, sp_minus(thread->end_ns, thread->start_ns));
    seconds_cell(table, true, thread->start_ns);
    if (ended) seconds_cell(table, true, thread->end_ns);
    else sp_table_cell(table, "alive");
}

sp_status sp_report_threads(const sp_profile *profile, const sp_selection *selection, int64_t limit, size_t width, sp_text *out,
                            sp_error *error)
{
    static const char *const columns[] = {"#", "thread", "calls", "regions [s]", "cpu [s]", "wall [s]", "start [s]", "end [s]", NULL};
    entry *entries = malloc((profile->thread_count + 1) * sizeof *entries);
    sp_path_summary *summary = NULL;
    size_t count = 0;
    if (entries == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the table of threads");
    for (size_t i = 0; i < profile->thread_count; i++) {
        const sp_thread_info *thread = &profile->threads[i];
        if (sp_selection_has_rank(selection, thread->rank)) entries[count++] = (entry){i, thread->rank, seconds(sp_thread_run_cpu_ns(thread))};
    }
    sp_status status = count ? sp_path_summary_make(profile, NULL, &summary, error) : SP_OK;
    if (count && status == SP_OK) {
        const bool ranked = sp_profile_ranks(profile) > 1;
        const size_t shown = choose(entries, count, limit < 0 ? THREAD_LIMIT : limit, "Threads", "CPU time", out);
        sp_table table = {0};
        add_columns(&table, ranked, columns, 1);
        for (size_t i = 0; i < shown; i++) {
            const sp_thread_info *thread = &profile->threads[entries[i].place];
            add_thread(&table, thread, usage_of(summary, thread), ranked);
        }
        sp_table_end(&table, out, width);
        sp_text_add(out, "\n");
    }
    sp_path_summary_free(summary);
    free(entries);
    return status;
}

/* -- tasks -- */

typedef struct group {
    const sp_task_info *first; /* tells the coroutine and the kind */
    uint64_t tasks, done;
    int64_t steps, running, suspended;
} group;

static bool is_greenlet(const sp_task_info *task)
{
    return task->kind && strcmp(task->kind, "greenlet") == 0;
}

/* Tasks by coroutine and kind, in order of appearance. */
typedef struct by_coroutine {
    group *groups;
    size_t count;
} by_coroutine;

static int same_coroutine(const sp_task_info *a, const sp_task_info *b)
{
    const int order = strcmp(a->coro_name ? a->coro_name : "", b->coro_name ? b->coro_name : "");
    return order ? order : strcmp(a->kind ? a->kind : "", b->kind ? b->kind : "");
}

typedef struct ordered_task {
    const sp_task_info *task;
    size_t place;
} ordered_task;

static int by_name(const void *left, const void *right)
{
    const ordered_task *a = left, *b = right;
    const int order = same_coroutine(a->task, b->task);
    return order ? order : (a->place > b->place) - (a->place < b->place);
}

static int by_first(const void *left, const void *right)
{
    const sp_task_info *a = ((const group *)left)->first, *b = ((const group *)right)->first;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a > b) - (a < b);
}

static bool make_groups(const sp_profile *profile, const entry *entries, size_t count, by_coroutine *out)
{
    ordered_task *tasks = malloc((count + 1) * sizeof *tasks);
    out->groups = calloc(count + 1, sizeof *out->groups);
    out->count = 0;
    for (size_t i = 0; tasks && i < count; i++) tasks[i] = (ordered_task){&profile->tasks[entries[i].place], i};
    if (tasks && out->groups) {
        sp_sort(tasks, count, sizeof *tasks, by_name);
        for (size_t i = 0; i < count; i++) {
            const sp_task_info *task = tasks[i].task;
            if (i == 0 || same_coroutine(tasks[i - 1].task, task) != 0) out->groups[out->count++].first = task;
            group *g = &out->groups[out->count - 1];
            g->tasks++;
            g->done += task->done_ns != SP_UNKNOWN;
            g->steps = sp_plus(g->steps, task->steps);
            g->running = sp_plus(g->running, task->running_ns);
            g->suspended = sp_plus(g->suspended, task->suspended_ns);
        }
        sp_sort(out->groups, out->count, sizeof *out->groups, by_first);
    }
    const bool ok = tasks && out->groups;
    free(tasks);
    return ok;
}

static void report_coroutines(const by_coroutine *all, int64_t limit, size_t width, sp_text *out)
{
    static const char *const titles[] = {"tasks", "pending", "steps", "running [s]", "awaiting [s]"};
    entry *entries = malloc((all->count + 1) * sizeof *entries);
    if (entries == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < all->count; i++) entries[i] = (entry){i, 0, seconds(all->groups[i].running)};
    const size_t shown = choose(entries, all->count, limit, "Coroutines", "running time", out);
    sp_table table = {0};
    sp_table_column_add(&table, "coroutine", false, true);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) sp_table_column_add(&table, titles[i], true, false);
    for (size_t i = 0; i < shown; i++) {
        const group *g = &all->groups[entries[i].place];
        named_cell(&table, g->first->coro_name, is_greenlet(g->first), "greenlet");
        sp_table_format(&table, "%llu", (unsigned long long)g->tasks);
        sp_table_format(&table, "%llu", (unsigned long long)(g->tasks - g->done));
        sp_table_format(&table, "%lld", (long long)g->steps);
        seconds_cell(&table, true, g->running);
        seconds_cell(&table, true, g->suspended);
    }
    sp_table_end(&table, out, width);
    sp_text_add(out, "\n");
    free(entries);
}

static void add_task(sp_table *table, const sp_profile *profile, const sp_task_info *task, bool ranked)
{
    const char *thread = NULL;
    for (size_t i = 0; i < profile->thread_count; i++) {
        const sp_thread_info *candidate = &profile->threads[i];
        if (candidate->rank == task->rank && candidate->index == task->thread_index) thread = candidate->name;
    }
    const bool done = task->done_ns != SP_UNKNOWN;
    if (ranked) sp_table_format(table, "%u", (unsigned)task->rank);
    sp_table_format(table, "%lld", (long long)task->index);
    named_cell(table, task->name, is_greenlet(task), "greenlet");
    sp_table_cell(table, task->coro_name ? task->coro_name : "");
    if (thread) sp_table_cell(table, thread);
    else sp_table_format(table, "%lld", (long long)task->thread_index);
    sp_table_format(table, "%lld", (long long)task->steps);
    seconds_cell(table, true, task->running_ns);
    seconds_cell(table, true, task->suspended_ns);
    if (done) seconds_cell(table, true, sp_minus(task->done_ns, task->created_ns));
    else sp_table_cell(table, "pending");
}

void sp_report_tasks(const sp_profile *profile, const sp_selection *selection, int64_t limit, size_t width, sp_text *out)
{
    static const char *const columns[] = {"#", "task", "coroutine", "thread", "steps", "running [s]", "awaiting [s]", "wall [s]", NULL};
    entry *entries = malloc((profile->task_count + 1) * sizeof *entries);
    size_t count = 0;
    if (entries == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < profile->task_count; i++) {
        const sp_task_info *task = &profile->tasks[i];
        if (sp_selection_has_rank(selection, task->rank)) entries[count++] = (entry){i, task->rank, seconds(task->running_ns)};
    }
    if (limit < 0) limit = TASK_LIMIT;
    if (limit > 0 && count > (size_t)limit) {
        by_coroutine groups;
        if (make_groups(profile, entries, count, &groups)) report_coroutines(&groups, limit, width, out);
        else out->failed = true;
        free(groups.groups);
    }
    if (count) {
        const bool ranked = sp_profile_ranks(profile) > 1;
        const size_t shown = choose(entries, count, limit, "Tasks", "running time", out);
        sp_table table = {0};
        add_columns(&table, ranked, columns, 3);
        for (size_t i = 0; i < shown; i++) add_task(&table, profile, &profile->tasks[entries[i].place], ranked);
        sp_table_end(&table, out, width);
        sp_text_add(out, "\n");
    }
    free(entries);
}
