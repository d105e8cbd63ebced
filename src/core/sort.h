/* sort.h - qsort and bsearch of arrays that may be empty: with none of the elements there may be no array, which both forbid. */
#ifndef SP_CORE_SORT_H
#define SP_CORE_SORT_H

#include <stdlib.h>

static inline void sp_sort(void *array, size_t count, size_t size, int (*compare)(const void *, const void *))
{
    if (count > 1) qsort(array, count, size, compare);
}

static inline void *sp_find(const void *key, const void *array, size_t count, size_t size,
                            int (*compare)(const void *, const void *))
{
    return count ? bsearch(key, array, count, size, compare) : NULL;
}

#endif
