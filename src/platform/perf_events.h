/* perf_events.h - counters of the kernel (perf_event_open) for one thread. */
#ifndef SP_PLATFORM_PERF_EVENTS_H
#define SP_PLATFORM_PERF_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_PERF_EVENTS 10 /* that there are names for */

/* Names as `perf stat -e` has them; index is the number of the event everywhere below. */
extern const char *const sp_perf_event_names[SP_PERF_EVENTS];

/* Why an event could not be opened. */
typedef enum sp_perf_problem {
    SP_PERF_OK,
    SP_PERF_NO_KERNEL,     /* the kernel was built without, or a sandbox hides it */
    SP_PERF_NO_PERMISSION, /* perf_event_paranoid, or a sandbox */
    SP_PERF_NO_COUNTER,    /* the processor, or the virtual machine, has none */
    SP_PERF_NO_FILES,      /* too many open files */
    SP_PERF_OTHER,         /* errno says */
} sp_perf_problem;

/* Counters that are read with one system call. The kernel counts all of a group, or none of it for a while. */
typedef struct sp_perf_group {
    int leader;                 /* file descriptor; -1: none */
    int files[SP_PERF_EVENTS];  /* of the members, the leader's first */
    uint8_t events[SP_PERF_EVENTS];
    size_t count;
} sp_perf_group;

typedef struct sp_perf_counters {
    sp_perf_group groups[SP_PERF_EVENTS];
    size_t group_count;
} sp_perf_counters;

/* What was counted since the counters were opened: by event; enabled and running are ns. */
typedef struct sp_perf_reading {
    uint64_t value, enabled, running;
} sp_perf_reading;

/*
 * Open counters of these events for the calling thread, and let them count. Hardware events count what happens outside the
 * kernel, software events all if that is permitted. On a problem nothing stays open, and *event says for which event (errno is kept).
 */
sp_perf_problem sp_perf_open(sp_perf_counters *counters, const uint8_t *events, size_t count, uint8_t *event);
void sp_perf_close(sp_perf_counters *counters);

/* Read all counters, `readings` indexed by event number (of those that were opened). False: errno says why not. Any thread. */
bool sp_perf_read(const sp_perf_counters *counters, sp_perf_reading readings[SP_PERF_EVENTS]);

/* The kernel's perf_event_paranoid; -100 when it has none. */
int sp_perf_paranoid(void);

#endif
