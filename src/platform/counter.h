/* counter.h - the processor's counter. It needs nothing of the library: the benchmarks read the same one, and are built without it. */
#ifndef SP_PLATFORM_COUNTER_H
#define SP_PLATFORM_COUNTER_H

#include <stdint.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#if defined(__x86_64__) || defined(__aarch64__)
#define SP_HAS_COUNTER 1
#else
#define SP_HAS_COUNTER 0
#endif

/* One instruction. Stands still where we know of no counter. */
static inline uint64_t sp_processor_counter(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return 0;
#endif
}

#endif
