/* grow.h - arrays that grow to twice their size. */
#ifndef SP_CORE_GROW_H
#define SP_CORE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/*
 * Room for one more than `count` items of `size` bytes. `items` is where the pointer to the first one is, of whatever type; `*room` is how many
 * there is memory for, the first time it becomes `least`. False: out of memory, and all is as it was.
 */
static inline bool sp_grow(void *items, size_t *room, size_t count, size_t size, size_t least)
{
    if (count < *room) return true;
    const size_t larger = *room ? 2 * *room : least;
    void *grown;
    memcpy(&grown, items, sizeof grown);
    grown = realloc(grown, larger * size);
    if (grown == NULL) return false;
    memcpy(items, &grown, sizeof grown);
    *room = larger;
    return true;
}

#endif
