/* wrap.h - sums of times that a damaged file may hold: they wrap around instead of being undefined. */
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

#endif
