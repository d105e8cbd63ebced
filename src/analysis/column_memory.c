#include "analysis/column_memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "platform/platform.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define MAP_FROM (2 * HUGE_PAGE)

static size_t column_bytes(uint64_t count)
{
    const size_t bytes = (size_t)count * sizeof(int64_t);
    return bytes < MAP_FROM ? bytes : (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
}

/* -- what is kept ----------------------------------------------------------------------------------------------------- */

#define KEPT_BYTES ((size_t)128 << 20)
#define KEPT_RANGES 32

typedef struct range {
    char *begin;
    size_t bytes; /* a multiple of HUGE_PAGE */
} range;

/* `busy` is only ever tried: whoever finds it taken, if only by a thread that was gone when this process was forked, does without. */
static struct {
    atomic_flag busy;
    size_t count, bytes;
    range ranges[KEPT_RANGES]; /* the oldest first */
} kept = {.busy = ATOMIC_FLAG_INIT};

static bool kept_lock(void)
{
    return !atomic_flag_test_and_set_explicit(&kept.busy, memory_order_acquire);
}

static void kept_unlock(void)
{
    atomic_flag_clear_explicit(&kept.busy, memory_order_release);
}

static void kept_remove(size_t i)
{
    kept.bytes -= kept.ranges[i].bytes;
    memmove(&kept.ranges[i], &kept.ranges[i + 1], (--kept.count - i) * sizeof *kept.ranges);
}

/* `bytes` cut off from the smallest range that has them; NULL: there is none. */
static char *kept_take(size_t bytes)
{
    if (!kept_lock()) return NULL;
    range *best = NULL;
    for (range *r = kept.ranges; r < kept.ranges + kept.count; r++) {
        if (r->bytes >= bytes && (best == NULL || r->bytes < best->bytes)) best = r;
    }
    char *taken = NULL;
    if (best) {
        kept.bytes -= bytes;
        best->bytes -= bytes;
        taken = best->begin + best->bytes;
        if (best->bytes == 0) kept_remove((size_t)(best - kept.ranges));
    }
    kept_unlock();
    return taken;
}

/* False: it does not fit, or is not memory that can be lent. */
static bool kept_put(char *begin, size_t bytes)
{
#ifdef MADV_FREE
    if (bytes > KEPT_BYTES || !kept_lock()) return false;
    const bool lent = madvise(begin, bytes, MADV_FREE) == 0;
    if (lent) {
        while (kept.count == KEPT_RANGES || kept.bytes + bytes > KEPT_BYTES) {
            munmap(kept.ranges[0].begin, kept.ranges[0].bytes);
            kept_remove(0);
        }
        kept.ranges[kept.count++] = (range){begin, bytes};
        kept.bytes += bytes;
    }
    kept_unlock();
    return lent;
#else
    return false;
#endif
}

/* -- columns ---------------------------------------------------------------------------------------------------------- */

int64_t *sp_column_alloc(uint64_t count)
{
    if (count > (SIZE_MAX >> 4) - HUGE_PAGE) return NULL;
    const size_t bytes = column_bytes(count);
    if (bytes < MAP_FROM) return malloc(bytes ? bytes : 1);
    char *recycled = kept_take(bytes);
    return recycled ? (int64_t *)recycled : sp_platform_map(bytes);
}

int64_t *sp_column_zeros(uint64_t count)
{
    if (count > (SIZE_MAX >> 4) - HUGE_PAGE) return NULL;
    const size_t bytes = column_bytes(count);
    if (bytes < MAP_FROM) return calloc(1, bytes ? bytes : 1);
    char *recycled = kept_take(bytes);
    return recycled ? memset(recycled, 0, bytes) : sp_platform_map(bytes);
}

int64_t *sp_column_map(int fd, uint64_t offset, uint64_t count)
{
    const size_t bytes = column_bytes(count);
    if (bytes < MAP_FROM) return NULL;
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)offset);
    return pages == MAP_FAILED ? NULL : pages;
}

void sp_column_free(int64_t *column, uint64_t count)
{
    if (column == NULL) return;
    const size_t bytes = column_bytes(count);
    if (bytes < MAP_FROM) free(column);
    else munmap(column, bytes);
}

void sp_column_recycle(int64_t *column, uint64_t count)
{
    const size_t bytes = column_bytes(count);
    if (column == NULL || bytes < MAP_FROM || !kept_put((char *)column, bytes)) sp_column_free(column, count);
}
