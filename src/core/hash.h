/* FNV-1a: names are short, and the tables that use it are small. */
#ifndef SP_CORE_HASH_H
#define SP_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define SP_HASH_BEGIN UINT64_C(14695981039346656037)

static inline uint64_t sp_hash_step(uint64_t hash, char next)
{
    return (hash ^ (unsigned char)next) * UINT64_C(1099511628211);
}

static inline uint64_t sp_hash(const char *text)
{
    uint64_t hash = SP_HASH_BEGIN;
    for (; *text; text++) hash = sp_hash_step(hash, *text);
    return hash ^ hash >> 32;
}

static inline uint64_t sp_hash_bytes(const char *bytes, size_t size)
{
    uint64_t hash = SP_HASH_BEGIN;
    for (size_t i = 0; i < size; i++) hash = sp_hash_step(hash, bytes[i]);
    return hash ^ hash >> 32;
}

#endif
