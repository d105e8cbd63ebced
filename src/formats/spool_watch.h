/*
 * spool_watch.h - the spool of a running process, looked at again and again without stopping it.
 *
 * A look reads what is new since the last one: chunks that the file has grown by, calls behind those that were read, calls that
 * were open, tasks that had not ended. So it costs as much as the process did meanwhile, however long it has been running.
 */
#ifndef SP_FORMATS_SPOOL_WATCH_H
#define SP_FORMATS_SPOOL_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "formats/spool_find.h"

typedef struct sp_watched_region {
    char *name;
    uint64_t calls, open; /* entries, and those of them that have not ended */
    int64_t total_ns;     /* those that are open count up to now */
    double rate;          /* calls a second since the last look; at the first one since the run began */
} sp_watched_region;

typedef struct sp_watched_thread {
    char *name;
    int64_t native_id;
    bool alive;
    int64_t cpu_ns; /* -1: not known */
    double cpu;     /* processors that it took since the last look; -1: not known */
    uint64_t calls;
    double rate;
} sp_watched_thread;

typedef struct sp_watched_task {
    int32_t index;
    char *name;            /* owned */
    const char *coroutine; /* "" where not known */
    uint64_t steps;
    int64_t running_ns, suspended_ns;
    double running; /* share of the time since the last look */
    uint64_t before; /* the watch's own: ticks running at the last look */
} sp_watched_task;

typedef struct sp_watched {
    int64_t pid;
    bool alive;
    char output[2048];
    int64_t running_ns; /* since the run began; of one that is over, until the last that is known of it */
    sp_watched_region *regions; /* in the order of their creation */
    sp_watched_thread *threads; /* in the order of theirs */
    sp_watched_task *tasks;     /* those that have not ended, in the order of their creation */
    size_t region_count, thread_count, task_count;
    uint64_t all_tasks;   /* with those that have ended */
    sp_recording_child *children; /* processes that it has started and that record too */
    size_t child_count;
    uint64_t looked_at;   /* slots and notes that this look has read */
} sp_watched;

typedef struct sp_watch sp_watch;

/* Calls that are in a file already are not counted. Errors as of sp_spool_inspect. */
sp_status sp_watch_open(const char *path, sp_watch **out, sp_error *error);

/* Read what is new. The result is the watch's, until the next look. */
sp_status sp_watch_look(sp_watch *watch, const sp_watched **out, sp_error *error);

void sp_watch_close(sp_watch *watch); /* NULL is allowed */

#endif
