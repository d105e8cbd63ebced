/*
 * support.h - what the tests of the recording core share: a clock that stands still until it is moved, allocations that
 * are counted and can be made to fail, threads that do one thing at a time on demand, and short forms of recording.
 */
#ifndef SP_TESTS_SUPPORT_H
#define SP_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above */
#include <cmocka.h>

#include "analysis/collect.h"
#include "core/run.h"
#include "core/task.h"

/* ---- clock: one tick a ns, moved by hand ---- */

void clock_at(sp_ticks now);
sp_ticks clock_read(void);

/* ---- allocations (the linker sends those of the library through here) ---- */

/* What malloc and mmap handed out since the last memory_reset and was not given back. */
int64_t memory_blocks(void);
int64_t memory_mapped(void); /* bytes */
void memory_reset(void);

/* Let the n-th allocation from now on fail (0: the next), and every one after it if `all`. Negative: none. */
void memory_fail(int64_t n, bool all);
int64_t memory_requests(void); /* allocations asked for since memory_fail or memory_reset */

/* ---- a thread that does one thing at a time ---- */

typedef struct puppet puppet;
puppet *puppet_new(void);
void puppet_do(puppet *thread, void (*what)(void *), void *with); /* returns when it is done */
void puppet_end(puppet *thread);                                  /* joins */

/* ---- recording ---- */

typedef struct recording {
    sp_switch gate;
    sp_run *run;
} recording;

typedef struct call {
    recording *of;
    sp_log *log;
    sp_slot *slot; /* NULL: not recorded */
} call;

recording *record(bool threads, bool tasks);
recording *record_with(const sp_run_options *options);
void record_end(recording *of); /* drops the run */

/* Enter and exit at a time on the calling thread, or on another. */
call enter(recording *of, const char *region, sp_ticks at);
void leave(call *open, sp_ticks at);
call enter_on(puppet *thread, recording *of, const char *region, sp_ticks at);
void leave_on(puppet *thread, call *open, sp_ticks at);
void calls(recording *of, const char *region, size_t count, sp_ticks first); /* of length 1, from `first`, every 2 */
void calls_on(puppet *thread, recording *of, const char *region, size_t count, sp_ticks first);

uint32_t region_id(recording *of, const char *name);

sp_profile *collect(recording *of);
const sp_row *row_of(const sp_profile *profile, const char *region); /* NULL: it has no call */

typedef struct seen {
    int64_t start, end, id, parent, thread, task, await; /* -1 where there is no such column */
} seen;
seen seen_call(const sp_profile *profile, const char *region, size_t index);

/* The call is there with these times; its id and parent too unless the profile has none. */
void assert_call(const sp_profile *profile, const char *region, size_t index, int64_t start, int64_t end, int64_t id,
                 int64_t parent);
void assert_calls(const sp_profile *profile, const char *region, size_t count);

#endif
