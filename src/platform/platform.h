/* platform.h - what differs by operating system. One .c file each; the build picks it. */
#ifndef SP_PLATFORM_H
#define SP_PLATFORM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The id the system gives the calling thread. */
int64_t sp_platform_thread_id(void);

/* CPU ns burned by a thread of this process, from outside it; -1 when it is gone. */
int64_t sp_platform_thread_cpu_ns(int64_t thread_id);

/* CPU ns burned by the calling thread. */
int64_t sp_platform_own_cpu_ns(void);

/* The calling thread's name as the system knows it, NUL-terminated into `name` (at least 16 bytes). */
void sp_platform_thread_name(char *name, size_t size);

/* ns of CLOCK_MONOTONIC. */
int64_t sp_platform_monotonic_ns(void);

/* ns of CLOCK_REALTIME. */
int64_t sp_platform_realtime_ns(void);

/* A number for the clock domain: processes with the same one read the same CLOCK_MONOTONIC (one boot of one host, one time
 * namespace). 0: not known. */
int64_t sp_platform_clock_domain(void);

/* Whether the processor's counter is invariant and the kernel's own clock is built on it. */
bool sp_platform_counter_usable(void);

/* How many processors this process may use; at least 1. */
unsigned sp_platform_processors(void);

/* A thread that no signal handler of the application runs on. */
bool sp_platform_start_thread(pthread_t *thread, void *(*work)(void *), void *argument);

/* Zeroed memory straight from the system, on huge pages where `bytes` allows; NULL when there is none. */
void *sp_platform_map(size_t bytes);
void sp_platform_unmap(void *memory, size_t bytes);

/* The lowest address that the calling thread's own stack may reach; 0 when it is not known or has no limit. */
uintptr_t sp_platform_stack_floor(void);

/*
 * A full memory barrier on every thread of the process that runs, from outside, so that what they do all the time needs none.
 * Without `sp_platform_barriers`, which is set by the first call of sp_platform_barriers_prepare where the system can do
 * that, there is one on the calling thread only.
 */
extern bool sp_platform_barriers;
void sp_platform_barriers_prepare(void);
void sp_platform_barrier(void);

/* Let malloc give back what it keeps for later. */
void sp_platform_trim(void);

/* Give the pages inside [begin, end) back; the range stays mapped and reads as zero. */
void sp_platform_empty(void *begin, void *end);

#endif
