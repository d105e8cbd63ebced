/* wrap.h - arithmetic with numbers that a damaged file may hold: they wrap around instead of being undefined. */
#ifndef SP_ANALYSIS_WRAP_H
#define SP_ANALYSIS_WRAP_H

#include <stdint.h>

static inline int64_t sp_plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t sp_minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* The key of a thread's lane; of such a key, its thread. */
static inline int64_t sp_thread_lane(int64_t thread)
{
    return sp_minus(-2, thread);
}

#endif
