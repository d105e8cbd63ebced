/* FNV-1a over a NUL-terminated string: names are short, and the tables that use it are small. */
#ifndef SP_CORE_HASH_H
#define SP_CORE_HASH_H

#include <stdint.h>

static inline uint64_t sp_hash(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash ^ hash >> 32;
}

#endif
