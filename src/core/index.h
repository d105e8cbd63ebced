/*
 * index.h - finds things of an array by what they are: a table with open addressing, of their numbers. The array belongs to its
 * owner, who tells the hash of a thing and whether it is the one that is looked for.
 */
#ifndef SP_CORE_INDEX_H
#define SP_CORE_INDEX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

typedef struct sp_index {
    uint32_t *slots; /* number + 1; 0: free */
    size_t size;     /* a power of two, of which at most half is taken; 0: none yet */
} sp_index;

typedef uint64_t (*sp_index_hash)(const void *owner, uint32_t number);
typedef bool (*sp_index_is)(const void *owner, uint32_t number, const void *key);

/* The slot of the thing with this key, or the free one where it belongs. The index has slots. */
static inline uint32_t *sp_index_find(const sp_index *index, uint64_t hash, const void *owner, sp_index_is is, const void *key)
{
    size_t at = (size_t)hash & (index->size - 1);
    while (index->slots[at] && !is(owner, index->slots[at] - 1, key)) at = (at + 1) & (index->size - 1);
    return &index->slots[at];
}

/* Make slots for `room` things, and put the `count` that there are into them. False: out of memory. */
static inline bool sp_index_resize(sp_index *index, size_t room, size_t count, const void *owner, sp_index_hash hash)
{
    sp_index made = {.size = 16};
    while (made.size < 2 * room) made.size *= 2;
    made.slots = room < UINT32_MAX / 2 ? calloc(made.size, sizeof *made.slots) : NULL;
    if (made.slots == NULL) return false;
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)hash(owner, i) & (made.size - 1);
        while (made.slots[at]) at = (at + 1) & (made.size - 1);
        made.slots[at] = i + 1;
    }
    free(index->slots);
    *index = made;
    return true;
}

/* Whether there is a slot for one more than `count` things, if need be in an index of twice the size. False: out of memory. */
static inline bool sp_index_reserve(sp_index *index, size_t count, const void *owner, sp_index_hash hash)
{
    return 2 * (count + 1) <= index->size || sp_index_resize(index, index->size ? index->size : 8, count, owner, hash);
}

#endif
