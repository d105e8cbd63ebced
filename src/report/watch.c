#include "report/watch.h"

#include <stdlib.h>
#include <string.h>

#include "core/sort.h"

/* -- order: pointers, with the key of the view -- */

static int by_number(double left, double right)
{
    return left == right ? 0 : left > right ? -1 : 1;
}

static int by_total(const void *left, const void *right)
{
    const sp_watched_region *a = *(sp_watched_region *const *)left, *b = *(sp_watched_region *const *)right;
    const int order = by_number((double)a->total_ns, (double)b->total_ns);
    return order ? order : strcmp(a->name, b->name);
}

static int by_calls(const void *left, const void *right)
{
    const sp_watched_region *a = *(sp_watched_region *const *)left, *b = *(sp_watched_region *const *)right;
    const int order = by_number((double)a->calls, (double)b->calls);
    return order ? order : by_total(left, right);
}

static int by_rate(const void *left, const void *right)
{
    const sp_watched_region *a = *(sp_watched_region *const *)left, *b = *(sp_watched_region *const *)right;
    const int order = by_number(a->rate, b->rate);
    return order ? order : by_total(left, right);
}

static int by_open(const void *left, const void *right)
{
    const sp_watched_region *a = *(sp_watched_region *const *)left, *b = *(sp_watched_region *const *)right;
    const int order = by_number((double)a->open, (double)b->open);
    return order ? order : by_total(left, right);
}

static int by_name(const void *left, const void *right)
{
    const sp_watched_region *a = *(sp_watched_region *const *)left, *b = *(sp_watched_region *const *)right;
    return strcmp(a->name, b->name);
}

static int by_cpu(const void *left, const void *right)
{
    const sp_watched_thread *a = *(sp_watched_thread *const *)left, *b = *(sp_watched_thread *const *)right;
    const int order = by_number(a->cpu, b->cpu);
    return order ? order : by_number((double)a->cpu_ns, (double)b->cpu_ns);
}

static int by_running(const void *left, const void *right)
{
    const sp_watched_task *a = *(sp_watched_task *const *)left, *b = *(sp_watched_task *const *)right;
    const int order = by_number(a->running, b->running);
    return order ? order : a->index < b->index ? -1 : 1;
}

typedef int (*order)(const void *left, const void *right);

/* Pointers to those of `count` elements for which `shown`, in order; *used of them. */
static void **sorted(void *array, size_t count, size_t size, bool (*shown)(const void *), order compare, size_t *used, sp_text *out)
{
    void **list = malloc((count ? count : 1) * sizeof *list);
    *used = 0;
    if (list == NULL) {
        out->failed = true;
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        void *element = (char *)array + i * size;
        if (shown(element)) list[(*used)++] = element;
    }
    sp_sort(list, *used, sizeof *list, compare);
    return list;
}

/* -- tables -- */

static void add_more(size_t count, size_t rows, sp_text *out)
{
    if (count > rows) sp_text_format(out, "  ... and %zu more\n", count - rows);
    sp_text_add(out, "\n");
}

static bool was_called(const void *region)
{
    return ((const sp_watched_region *)region)->calls > 0;
}

static bool lives(const void *thread)
{
    return ((const sp_watched_thread *)thread)->alive;
}

static bool any(const void *task)
{
    (void)task;
    return true;
}

static void add_regions(const sp_watched *seen, const sp_watch_view *view, sp_text *out)
{
    static const order orders[] = {by_total, by_calls, by_rate, by_open, by_name};
    const char *key = view->sort ? strchr(SP_WATCH_SORTS, view->sort) : NULL;
    size_t count;
    void **list = sorted(seen->regions, seen->region_count, sizeof *seen->regions, was_called,
                         orders[key ? key - SP_WATCH_SORTS : 0], &count, out);
    sp_text_add(out, "   total [s]        calls   open      calls/s  region\n");
    for (size_t i = 0; list && i < count && i < view->rows; i++) {
        const sp_watched_region *region = list[i];
        sp_text_format(out, "%12.6f %12llu %6llu %12.1f  ", (double)region->total_ns / 1e9, (unsigned long long)region->calls,
                       (unsigned long long)region->open, region->rate);
        sp_text_printable(out, region->name);
        sp_text_add(out, "\n");
    }
    add_more(count, view->rows, out);
    free(list);
}

static void add_share(double share, sp_text *out)
{
    if (share < 0) sp_text_add(out, "      - ");
    else sp_text_format(out, "%6.1f%% ", share * 100);
}

static void add_threads(const sp_watched *seen, const sp_watch_view *view, sp_text *out)
{
    size_t count;
    if (seen->thread_count == 0) return;
    void **list = sorted(seen->threads, seen->thread_count, sizeof *seen->threads, lives, by_cpu, &count, out);
    sp_text_format(out, "%zu thread%s, %zu alive\n", seen->thread_count, seen->thread_count == 1 ? "" : "s", count);
    if (count) sp_text_add(out, "     cpu [s]    cpu      calls/s  thread\n");
    for (size_t i = 0; list && i < count && i < view->rows; i++) {
        const sp_watched_thread *thread = list[i];
        if (thread->cpu_ns < 0) sp_text_add(out, "           - ");
        else sp_text_format(out, "%12.6f ", (double)thread->cpu_ns / 1e9);
        add_share(thread->cpu, out);
        sp_text_format(out, "%11.1f  ", thread->rate);
        sp_text_printable(out, thread->name);
        sp_text_add(out, "\n");
    }
    add_more(count, view->rows, out);
    free(list);
}

static void add_tasks(const sp_watched *seen, const sp_watch_view *view, sp_text *out)
{
    size_t count;
    if (seen->all_tasks == 0) return;
    void **list = sorted(seen->tasks, seen->task_count, sizeof *seen->tasks, any, by_running, &count, out);
    sp_text_format(out, "%llu tasks, %zu pending\n", (unsigned long long)seen->all_tasks, count);
    if (count) sp_text_add(out, " running [s]    run        steps  task  coroutine\n");
    for (size_t i = 0; list && i < count && i < view->rows; i++) {
        const sp_watched_task *task = list[i];
        sp_text_format(out, "%12.6f ", (double)task->running_ns / 1e9);
        add_share(task->running, out);
        sp_text_format(out, "%11llu  ", (unsigned long long)task->steps);
        sp_text_printable(out, task->name ? task->name : "");
        sp_text_add(out, "  ");
        sp_text_printable(out, task->coroutine);
        sp_text_add(out, "\n");
    }
    add_more(count, view->rows, out);
    free(list);
}

static void add_children(const sp_watched *seen, const sp_watch_view *view, sp_text *out)
{
    if (seen->child_count == 0) return;
    sp_text_format(out, "%zu process%s that it started record%s too\n", seen->child_count, seen->child_count == 1 ? "" : "es",
                   seen->child_count == 1 ? "s" : "");
    sp_text_add(out, "   process  spool\n");
    for (size_t i = 0; i < seen->child_count && i < view->rows; i++) {
        sp_text_format(out, "%10lld  ", (long long)seen->children[i].pid);
        sp_text_printable(out, seen->children[i].spool);
        sp_text_add(out, "\n");
    }
    add_more(seen->child_count, view->rows, out);
}

void sp_report_watch(const sp_watched *seen, const char *path, const sp_watch_view *view, sp_text *out)
{
    sp_text_printable(out, seen->output[0] ? seen->output : path);
    sp_text_format(out, ": process %lld, ", (long long)seen->pid);
    if (seen->alive) sp_text_format(out, "running for %.1f s", (double)seen->running_ns / 1e9);
    else sp_text_add(out, "not running");
    sp_text_add(out, "\n");
    if (view->keys) {
        sp_text_format(out, "keys: q quit, p %s, sort by t total, c calls, r calls/s, o open, n name\n", view->paused ? "go on" : "pause");
    }
    sp_text_add(out, "\n");
    add_regions(seen, view, out);
    add_threads(seen, view, out);
    add_tasks(seen, view, out);
    add_children(seen, view, out);
}
