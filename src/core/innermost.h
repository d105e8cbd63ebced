/* innermost.h - where the threads of a run are, looked at from another one. */
#ifndef SP_CORE_INNERMOST_H
#define SP_CORE_INNERMOST_H

#include "core/run.h"

#define SP_NO_REGION (-1)

typedef struct sp_thread_now {
    uint64_t handle;   /* its pthread_t */
    int64_t native_id;
    int32_t row;       /* index in the run's thread table */
    int32_t region;    /* of the call that was opened last and is open, on the lane that holds the thread or on its own; SP_NO_REGION */
} sp_thread_now;

/*
 * The living threads that have a log in the run, the first `size` of them into `out`; how many there are. Threads that record meanwhile
 * may be a call further; those that the caller keeps from it (by the interpreter's lock) are as told.
 */
size_t sp_run_threads_now(sp_run *run, sp_thread_now *out, size_t size);

#endif
