/* threads.h - what the native front end keeps of each thread: the stack of its open calls, and ends that others sent. */
#ifndef SP_NATIVE_THREADS_H
#define SP_NATIVE_THREADS_H

#include "native/profiler.h"

/* Make room for more calls; false when out of memory. */
SP_NOINLINE bool sp_native_stack_grow(sp_call_stack *stack);

/* Close the calls of this thread that others have ended. */
SP_NOINLINE void sp_native_take_mail(sp_thread *thread);

/* End the call of a scope that another thread has open, or had when it ended; false: nobody has it. */
bool sp_native_send_end(const sp_scope *scope);

/*
 * End, from here, the newest call of the region that another thread has open, or had when it ended. False: no thread has one.
 * Calls with a token of their own are not ended by their region; a thread that finds only such ones counts the end as unmatched.
 */
bool sp_native_send_named_end(sp_profiler *profiler, int handle);

/* Calls that are left open for good on this stack: their scopes can still be ended, by any thread. */
void sp_native_keep_orphans(const sp_call_stack *stack, uint64_t thread);

/* The lane that holds the calling thread, if any, lets go of it. */
void sp_native_lane_let_go(sp_thread *thread);

/* Once: see threads end. */
void sp_native_watch_threads(void);

#endif
