/*
 * spool_write.c - the store behind a recording run.
 *
 * Large chunks are mappings of their own. Small ones are cut from arenas of up to 1 MiB, and taken up again when they are dropped,
 * so that thousands of short threads neither need a mapping each nor let the file grow.
 */
#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "core/grow.h"
#include "core/task.h"
#include "core/totals.h"
#include "formats/file_bytes.h"
#include "formats/spool.h"
#include "formats/spool_layout.h"
#include "platform/page_guard.h"
#include "platform/platform.h"

#define HUGE ((size_t)2 << 20)
#define ARENA_BYTES ((size_t)1 << 20)
#define SMALL_LIMIT ((size_t)256 << 10) /* chunks up to here come from arenas */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef TMPFS_MAGIC
#define TMPFS_MAGIC 0x01021994
#endif
#define CHILD_WAIT_NS (200 * INT64_C(1000000))
#define PARK_NEWEST 4
#define PARK_IN_TURN 8
#define JOURNAL_BYTES ((size_t)64 << 10)
#define JOURNAL_RESERVE (2 * sizeof(sp_note_header)) /* to tell of the limit and of a full disk when nothing else fits */

typedef struct sp_extent {
    char *memory;   /* where it is mapped; the chunk's header comes first */
    uint64_t offset; /* in the file */
    size_t bytes;
    bool small;     /* cut from an arena */
    bool full;      /* parked: all of its calls have begun */
    bool spare;     /* dropped, waiting to be taken up again */
    bool shared;    /* a forked child may be reading it in the file */
    struct live_rows *live; /* that it holds; NULL: none */
    sp_page_guard *guard; /* of a large one */
    size_t given;   /* bytes of it that were given back to the file system */
} sp_extent;

typedef struct sp_arena {
    char *memory;
    size_t bytes;
    sp_page_guard *guard;
} sp_arena;

/* Rows in the spool that the process goes on with: what they need to be of use is made again if their page is gone. Never freed before the spool. */
typedef struct live_rows {
    struct live_rows *next;
    _Atomic(char *) rows; /* NULL: not in use any more */
    sp_chunk_kind kind;
    uint32_t owner;
} live_rows;

typedef struct sp_spool {
    sp_store store;
    int file;
    char *path;
    uint64_t limit;
    bool ends_with_name;
    bool in_memory; /* the file system is tmpfs */
    _Atomic(uint64_t) lost; /* pages that were found to be gone: from then on the spool is of no use */
    _Atomic(live_rows *) live;
    pthread_mutex_t lock; /* all below */
    sp_spool_header *header;
    sp_page_guard *header_guard;
    uint64_t used;     /* length of the file */
    uint64_t occupied; /* bytes of it that take room: what the limit is about */
    uint64_t sequence;
    sp_extent *extents;
    size_t extent_count, extent_size;
    size_t spare_count; /* of the extents */
    size_t park_turn;   /* which extent is parked again next */
    size_t hint;        /* below it the next extent is looked for first */
    sp_arena *arenas; /* the last one is being cut */
    size_t arena_count;
    uint64_t arena_offset;
    size_t arena_used;
    char *journal; /* the chunk being appended to */
    size_t journal_used, journal_bytes;
    bool full;      /* there was no room once, and that is noted */
    bool finished;  /* nothing is written any more */
    bool inherited; /* this process is a forked child: memory is private, the file is the parent's */
    _Atomic(uint32_t) *copied; /* shared with forked children: how many have made their copies; NULL: not known */
    uint32_t copied_before; /* the fork under way */
} sp_spool;

static size_t whole_pages(size_t bytes)
{
    return (bytes + SP_SPOOL_PAGE - 1) / SP_SPOOL_PAGE * SP_SPOOL_PAGE;
}

/* ---- file space ---- */

/* Past this limit the kernel does not only refuse: it sends SIGXFSZ, which ends a program that does not expect it. */
static bool within_process_limit(uint64_t size)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

/*
 * Write zeros to the file. A store to a hole on a full disk would kill the process with SIGBUS, so the space must be there
 * first; and it is written, not only allocated, because the page cache then takes it in large pieces, which are mapped as
 * such where offset and address are aligned: measured on ext4, a slot of 24 bytes costs 4 ns in such a page, 9 ns in an
 * unaligned one, 22 ns in one that is allocated when it is first touched.
 */
static bool write_zeros(int file, uint64_t offset, size_t bytes)
{
    static char zeros[64 << 10];
    struct iovec pieces[64];
    for (size_t done = 0; done < bytes;) {
        int count = 0;
        size_t wanted = bytes - done;
        for (; wanted && count < 64; count++) {
            pieces[count] = (struct iovec){zeros, wanted < sizeof zeros ? wanted : sizeof zeros};
            wanted -= pieces[count].iov_len;
        }
        const ssize_t written = pwritev(file, pieces, count, (off_t)(offset + done));
        if (written < 0 && errno == EINTR) continue;
        if (written == 0) errno = ENOSPC;
        if (written <= 0) return false;
        done += (size_t)written;
    }
    return true;
}

/*
 * On tmpfs pages stay small, unless a range that has its first page is asked to become one huge page: this, which clears it as a
 * whole, costs a call 2 to 3 ns, and 512 pages of their own 16.
 */
static bool collapses(const sp_spool *spool, uint64_t offset, size_t bytes)
{
    return spool->in_memory && bytes % HUGE == 0 && offset % HUGE == 0;
}

static bool make_space(sp_spool *spool, uint64_t offset, size_t bytes)
{
    if (!collapses(spool, offset, bytes)) return write_zeros(spool->file, offset, bytes);
    for (size_t at = 0; at < bytes; at += HUGE) {
        if (!write_zeros(spool->file, offset + at, SP_SPOOL_PAGE)) return false;
    }
    return ftruncate(spool->file, (off_t)(offset + bytes)) == 0;
}

/* Once it is mapped. False with errno: there is no room after all. */
static bool make_huge(sp_spool *spool, char *memory, uint64_t offset, size_t bytes)
{
    if (!collapses(spool, offset, bytes) || madvise(memory, bytes, MADV_COLLAPSE) == 0) return true;
    return write_zeros(spool->file, offset, bytes);
}

static bool is_removed(const sp_spool *spool)
{
    struct stat facts;
    return fstat(spool->file, &facts) == 0 && facts.st_nlink == 0;
}

/* Room for `bytes` more at the end of the file: its offset, or 0 with errno. `beyond`: whatever the limit is. */
static uint64_t extend(sp_spool *spool, size_t bytes, bool beyond)
{
    const uint64_t offset = spool->used, end = offset + bytes;
    if ((spool->limit && !beyond && spool->occupied + bytes > spool->limit) || (spool->ends_with_name && is_removed(spool))) {
        errno = EDQUOT;
        return 0;
    }
    if (!within_process_limit(end)) {
        errno = EFBIG;
        return 0;
    }
    if (!make_space(spool, offset, bytes)) return 0;
    spool->used = end;
    spool->occupied += bytes;
    return offset;
}

static char *map_range(sp_spool *spool, uint64_t offset, size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, spool->file, (off_t)offset);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool is_lost(const sp_spool *spool)
{
    return atomic_load_explicit(&spool->lost, memory_order_relaxed) != 0;
}

/* What of the rows from the task with number `first` on is in the page. */
static void fill_tasks(const char *rows, uint32_t first, const char *at, char *fresh, size_t page)
{
    if (rows >= at + page || rows + SP_TASKS_PER_PAGE * sizeof(sp_task) <= at) return;
    for (uint32_t i = 0; i < SP_TASKS_PER_PAGE; i++) {
        const char *row = rows + i * sizeof(sp_task);
        const char *from = row > at ? row : at, *to = row + sizeof(sp_task) < at + page ? row + sizeof(sp_task) : at + page;
        sp_task blank = {0};
        if (from >= to) continue;
        sp_task_blank(&blank, (int32_t)(first + i));
        memcpy(fresh + (from - at), (const char *)&blank + (from - row), (size_t)(to - from));
    }
}

static void fill_totals(const char *rows, const char *at, char *fresh, size_t page)
{
    if (rows >= at && rows + sizeof(sp_total_page) <= at + page) sp_total_page_blank((sp_total_page *)(fresh + (rows - at)));
}

/* For sp_page_guard: a page of zeros takes the place of one that is gone. Calls there are gone too, but rows that are in use must stay usable. */
static void fill_page(void *context, char *at, char *fresh, size_t page)
{
    const sp_spool *spool = context;
    for (const live_rows *live = atomic_load(&spool->live); live; live = live->next) {
        const char *rows = atomic_load(&live->rows);
        if (rows == NULL) continue;
        if (live->kind == SP_CHUNK_TASKS) fill_tasks(rows, live->owner * SP_TASKS_PER_PAGE, at, fresh, page);
        else fill_totals(rows, at, fresh, page);
    }
}

static sp_page_guard *guard_new(sp_spool *spool, char *memory, size_t bytes)
{
    return sp_page_guard_new(memory, bytes, &spool->lost, fill_page, spool);
}

static sp_extent *extent_new(sp_spool *spool)
{
    if (!sp_grow(&spool->extents, &spool->extent_size, spool->extent_count, sizeof *spool->extents, 64)) return NULL;
    return &spool->extents[spool->extent_count];
}

/* Take up a small chunk that was dropped: of this size, or at least of this size. */
static sp_extent *reuse(sp_spool *spool, size_t bytes, bool larger)
{
    for (size_t i = 0; spool->spare_count && i < spool->extent_count; i++) {
        sp_extent *extent = &spool->extents[i];
        if (!extent->spare || extent->bytes < bytes || (extent->bytes > bytes && !larger)) continue;
        extent->spare = false;
        spool->spare_count--;
        return extent;
    }
    return NULL;
}

/* Under a limit at which recording stops, arenas are parts of it, and the last one is what is left. */
static size_t arena_size(const sp_spool *spool, size_t wanted)
{
    if (spool->limit == 0 || spool->store.keeps_newest) return ARENA_BYTES;
    const uint64_t part = spool->limit / 4, left = spool->limit > spool->occupied ? spool->limit - spool->occupied : 0;
    size_t bytes = part < ARENA_BYTES ? (size_t)part : ARENA_BYTES;
    if (bytes > left) bytes = (size_t)left;
    bytes = bytes / SP_SPOOL_PAGE * SP_SPOOL_PAGE;
    return bytes > wanted ? bytes : wanted;
}

static bool arena_new(sp_spool *spool, size_t wanted, bool beyond)
{
    sp_arena *arenas = realloc(spool->arenas, (spool->arena_count + 1) * sizeof *arenas);
    if (arenas == NULL) return false;
    spool->arenas = arenas;
    const size_t bytes = arena_size(spool, wanted);
    const uint64_t offset = extend(spool, bytes, beyond);
    char *memory = offset ? map_range(spool, offset, bytes) : NULL;
    if (memory == NULL) return false;
    arenas[spool->arena_count++] = (sp_arena){memory, bytes, guard_new(spool, memory, bytes)};
    spool->arena_offset = offset;
    spool->arena_used = 0;
    return true;
}

/* What the arena that is being cut still has. */
static size_t arena_rest(const sp_spool *spool)
{
    return spool->arena_count ? spool->arenas[spool->arena_count - 1].bytes - spool->arena_used : 0;
}

static sp_extent *cut(sp_spool *spool, size_t bytes, bool beyond)
{
    sp_extent *extent = extent_new(spool);
    if (extent == NULL) return NULL;
    if (arena_rest(spool) < bytes && !arena_new(spool, bytes, beyond)) return NULL;
    *extent = (sp_extent){.memory = spool->arenas[spool->arena_count - 1].memory + spool->arena_used,
                          .offset = spool->arena_offset + spool->arena_used, .bytes = bytes, .small = true};
    spool->arena_used += bytes;
    spool->extent_count++;
    return extent;
}

/* Shared memory of the file at an address that is a multiple of HUGE, as the offset is. */
static char *map_huge(sp_spool *spool, uint64_t offset, size_t bytes)
{
    char *reserved = mmap(NULL, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return NULL;
    char *aligned = reserved + (HUGE - (uintptr_t)reserved % HUGE) % HUGE;
    char *memory = mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, spool->file, (off_t)offset);
    if (memory == MAP_FAILED) {
        munmap(reserved, bytes + HUGE);
        return NULL;
    }
    if (aligned > reserved) munmap(reserved, (size_t)(aligned - reserved));
    if (aligned < reserved + HUGE) munmap(aligned + bytes, (size_t)(reserved + HUGE - aligned));
    return memory;
}

static sp_extent *map_large(sp_spool *spool, size_t bytes, bool beyond)
{
    sp_extent *extent = extent_new(spool);
    if (extent == NULL) return NULL;
    const bool huge = bytes % HUGE == 0;
    const uint64_t before = spool->used;
    if (huge) spool->used = (before + HUGE - 1) / HUGE * HUGE;
    const uint64_t offset = extend(spool, bytes, beyond);
    if (offset == 0) {
        spool->used = before;
        return NULL;
    }
    char *memory = huge ? map_huge(spool, offset, bytes) : map_range(spool, offset, bytes);
    if (memory == NULL) return NULL;
    if (!make_huge(spool, memory, offset, bytes)) {
        const int why = errno;
        munmap(memory, bytes);
        errno = why;
        return NULL;
    }
#ifdef MADV_POPULATE_WRITE
    /* One call makes all pages writable; a fault for each would cost the recording thread more. */
    (void)madvise(memory, bytes, MADV_POPULATE_WRITE);
#endif
    *extent = (sp_extent){.memory = memory, .offset = offset, .bytes = bytes, .guard = guard_new(spool, memory, bytes)};
    spool->extent_count++;
    return extent;
}

/* A chunk with `payload` bytes behind its header, or a little less where that makes huge pages. With the lock held. */
static sp_chunk_header *chunk_new(sp_spool *spool, sp_chunk_kind kind, uint32_t owner, uint32_t stride, size_t payload)
{
    /* A block of huge pages stays one: its header takes the place of a few slots. */
    const bool huge = payload >= HUGE && payload % HUGE == 0;
    size_t bytes = huge ? payload : whole_pages(sizeof(sp_chunk_header) + payload);
    const bool small = bytes <= SMALL_LIMIT;
    /* Where old calls can go for new ones, what is not a call finds room: the next block of calls makes up for it. */
    const bool beyond = spool->store.keeps_newest && kind != SP_CHUNK_EVENTS && kind != SP_CHUNK_VALUES;
    sp_extent *extent = small ? reuse(spool, bytes, false) : NULL;
    bool used_before = extent != NULL;
    if (extent == NULL) extent = small ? cut(spool, bytes, beyond) : map_large(spool, bytes, beyond);
    if (extent == NULL && small && errno == EDQUOT) {
        extent = reuse(spool, bytes, true);
        used_before = extent != NULL;
        /* The last block of a limit is as large as what is left. */
        if (extent == NULL && kind == SP_CHUNK_EVENTS && arena_rest(spool) > 0) extent = cut(spool, arena_rest(spool), false);
        errno = EDQUOT;
    }
    if (extent == NULL) return NULL;
    bytes = extent->bytes;
    /* A header that is not whole yet must not make a reader take old contents for new ones. */
    if (used_before) memset(extent->memory, 0, bytes);
    sp_chunk_header *header = (sp_chunk_header *)extent->memory;
    header->kind = kind;
    header->bytes = bytes;
    header->owner = owner;
    header->stride = stride;
    header->sequence = ++spool->sequence;
    atomic_store_explicit(&header->dropped, 0, memory_order_relaxed);
    header->magic = SP_CHUNK_MAGIC;
    header->crc = libdeflate_crc32(0, header, offsetof(sp_chunk_header, crc));
    return header;
}

static sp_extent *extent_of(sp_spool *spool, const void *memory)
{
    const char *chunk = (const char *)memory - sizeof(sp_chunk_header);
    /* Runs let go of the logs of thousands of threads one after the other, forwards or backwards: the next one is near the last. */
    size_t below = spool->hint < spool->extent_count ? spool->hint : spool->extent_count, above = below;
    while (below > 0 || above < spool->extent_count) {
        if (below > 0 && spool->extents[--below].memory == chunk) return &spool->extents[spool->hint = below];
        if (above < spool->extent_count && spool->extents[above++].memory == chunk) return &spool->extents[spool->hint = above - 1];
    }
    return NULL;
}

/* With the lock. */
static bool live_add(sp_spool *spool, sp_chunk_kind kind, uint32_t owner, char *rows)
{
    live_rows *live = calloc(1, sizeof *live);
    sp_extent *extent = extent_of(spool, rows);
    if (live == NULL || extent == NULL) {
        free(live);
        return false;
    }
    extent->live = live;
    *live = (live_rows){.next = atomic_load(&spool->live), .rows = rows, .kind = kind, .owner = owner};
    atomic_store(&spool->live, live);
    return true;
}

/* ---- the store's operations ---- */

/* A shared mapping: the pages stay in the page cache, and on disk; only this process lets go of them. */
static void let_go(void *memory, size_t bytes)
{
    (void)madvise((char *)memory - sizeof(sp_chunk_header), bytes + sizeof(sp_chunk_header), MADV_DONTNEED);
}

/*
 * A call that was open when its block was parked brings all of it back when it ends, as one huge page. So whoever parks a block parks the
 * last ones again, and a few of all the others in turn: a system call for something that is not there costs half a microsecond.
 */
static void park_again(sp_spool *spool)
{
    size_t newest = spool->extent_count;
    for (int i = 0; i < PARK_NEWEST && newest > 0; i++) {
        const sp_extent *extent = &spool->extents[--newest];
        if (extent->full) (void)madvise(extent->memory, extent->bytes, MADV_DONTNEED);
    }
    for (int i = 0; i < PARK_IN_TURN && spool->extent_count > PARK_NEWEST; i++) {
        const sp_extent *extent = &spool->extents[spool->park_turn++ % spool->extent_count];
        if (extent->full) (void)madvise(extent->memory, extent->bytes, MADV_DONTNEED);
    }
}

static void spool_park(sp_store *store, void *memory, size_t bytes)
{
    sp_spool *spool = (sp_spool *)store;
    if (bytes < SMALL_LIMIT || spool->inherited || is_lost(spool)) return; /* pages in the place of lost ones are nowhere else */
    pthread_mutex_lock(&spool->lock);
    sp_extent *extent = extent_of(spool, memory);
    if (extent) extent->full = true;
    let_go(memory, bytes);
    park_again(spool);
    pthread_mutex_unlock(&spool->lock);
}

static bool is_ours_to_change(const sp_spool *spool)
{
    return !spool->inherited && !spool->finished && !is_lost(spool);
}

/* Pages of the extent become a hole of the file: they read as zero. */
static bool give_back(sp_spool *spool, sp_extent *extent, size_t from, size_t to)
{
    if (to <= from || !is_ours_to_change(spool) || extent->shared) return false;
    const off_t offset = (off_t)(extent->offset + from), bytes = (off_t)(to - from);
    if (fallocate(spool->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) != 0) return false;
    extent->given += to - from;
    spool->occupied -= to - from;
    return true;
}

/* A spool that is finished and kept is kept for what is in it. */
static void mark_gone(const sp_spool *spool, sp_extent *extent)
{
    sp_chunk_header *header = (sp_chunk_header *)extent->memory;
    if (is_ours_to_change(spool)) atomic_store_explicit(&header->dropped, SP_CHUNK_GONE, memory_order_release);
}

/* A hole says by itself that the chunk is gone; to write so before takes a tenth of a millisecond, for the whole huge page becomes dirty. */
static void drop_large(sp_spool *spool, sp_extent *extent)
{
    /* What was given back before is a hole already, and not counted twice. */
    spool->occupied += extent->given;
    if (!give_back(spool, extent, 0, extent->bytes)) {
        spool->occupied -= extent->given;
        mark_gone(spool, extent);
    }
    sp_page_guard_free(extent->guard);
    munmap(extent->memory, extent->bytes);
    *extent = spool->extents[--spool->extent_count];
}

static void spool_drop(sp_store *store, void *memory, size_t bytes)
{
    sp_spool *spool = (sp_spool *)store;
    (void)bytes;
    pthread_mutex_lock(&spool->lock);
    sp_extent *extent = extent_of(spool, memory);
    if (extent) {
        if (extent->live) atomic_store(&extent->live->rows, NULL);
        extent->live = NULL;
        if (extent->small) {
            mark_gone(spool, extent);
            extent->spare = is_ours_to_change(spool) && !extent->shared;
            spool->spare_count += extent->spare;
            if (extent->spare) let_go(memory, extent->bytes - sizeof(sp_chunk_header));
        } else {
            drop_large(spool, extent);
        }
    }
    pthread_mutex_unlock(&spool->lock);
}

static bool spool_can_drop(sp_store *store, const void *memory)
{
    sp_spool *spool = (sp_spool *)store;
    pthread_mutex_lock(&spool->lock);
    const sp_extent *extent = extent_of(spool, memory);
    const bool can = extent && is_ours_to_change(spool) && !extent->shared;
    pthread_mutex_unlock(&spool->lock);
    return can;
}

static void spool_thin(sp_store *store, void *memory, char *from, char *to)
{
    sp_spool *spool = (sp_spool *)store;
    if (to <= from) return;
    pthread_mutex_lock(&spool->lock);
    sp_extent *extent = extent_of(spool, memory);
    if (extent) {
        sp_chunk_header *header = (sp_chunk_header *)extent->memory;
        atomic_store_explicit(&header->dropped, SP_CHUNK_THINNED, memory_order_release);
        const size_t first = whole_pages((size_t)(from - extent->memory));
        const size_t last = (size_t)(to - extent->memory) / SP_SPOOL_PAGE * SP_SPOOL_PAGE;
        if (!extent->small && first < last && give_back(spool, extent, first, last)) {
            memset(from, 0, (size_t)(extent->memory + first - from));
            memset(extent->memory + last, 0, (size_t)(to - extent->memory - (ptrdiff_t)last));
        } else {
            memset(from, 0, (size_t)(to - from));
        }
    }
    pthread_mutex_unlock(&spool->lock);
}

static bool journal_room(sp_spool *spool, sp_note_kind kind, size_t bytes)
{
    const size_t reserve = kind == SP_NOTE_LIMIT || kind == SP_NOTE_FULL ? 0 : JOURNAL_RESERVE;
    if (spool->journal && spool->journal_used + bytes + reserve <= spool->journal_bytes) return true;
    const size_t wanted = bytes > JOURNAL_BYTES / 4 ? bytes + JOURNAL_BYTES : JOURNAL_BYTES - sizeof(sp_chunk_header);
    sp_chunk_header *header = chunk_new(spool, SP_CHUNK_JOURNAL, 0, 0, wanted);
    if (header == NULL) return false;
    if (spool->journal && !is_lost(spool)) let_go(spool->journal, spool->journal_bytes);
    spool->journal = (char *)(header + 1);
    spool->journal_used = 0;
    spool->journal_bytes = header->bytes - sizeof *header;
    return true;
}

static void write_note(sp_note_header *note, size_t bytes, sp_note_kind kind, uint32_t index, const void *const *parts,
                       const size_t *sizes, size_t count)
{
    char *at = (char *)(note + 1);
    for (size_t i = 0; i < count; i++) {
        if (sizes[i]) memcpy(at, parts[i], sizes[i]);
        at += sizes[i];
    }
    note->size = (uint32_t)(at - (char *)(note + 1));
    note->kind = (uint16_t)kind;
    note->index = index;
    const uint32_t head = libdeflate_crc32(0, &note->size, offsetof(sp_note_header, crc) - offsetof(sp_note_header, size));
    note->crc = libdeflate_crc32(head, note + 1, note->size);
    atomic_store_explicit(&note->bytes, (uint32_t)bytes, memory_order_release);
}

/* What a note with these parts takes; 0: too much. */
static size_t note_bytes(const size_t *sizes, size_t count)
{
    size_t payload = 0;
    for (size_t i = 0; i < count; i++) payload += sizes[i];
    return payload > UINT32_MAX / 2 ? 0 : (sizeof(sp_note_header) + payload + 7) / 8 * 8;
}

/* With the lock held. */
static bool put_note(sp_spool *spool, sp_note_kind kind, uint32_t index, const void *const *parts, const size_t *sizes,
                     size_t count)
{
    const size_t bytes = note_bytes(sizes, count);
    if (kind == SP_NOTE_FULL && spool->full) return true;
    spool->full |= kind == SP_NOTE_FULL;
    const bool room = bytes && is_ours_to_change(spool) && journal_room(spool, kind, bytes);
    if (room) {
        write_note((sp_note_header *)(spool->journal + spool->journal_used), bytes, kind, index, parts, sizes, count);
        spool->journal_used += bytes;
    }
    return room;
}

static bool spool_note(sp_store *store, sp_note_kind kind, uint32_t index, const void *const *parts, const size_t *sizes,
                       size_t count)
{
    sp_spool *spool = (sp_spool *)store;
    pthread_mutex_lock(&spool->lock);
    const bool put = put_note(spool, kind, index, parts, sizes, count);
    pthread_mutex_unlock(&spool->lock);
    return put;
}

static size_t spool_note_at(sp_store *store, void *memory, size_t room, size_t used, sp_note_kind kind,
                            const void *const *parts, const size_t *sizes, size_t count)
{
    sp_spool *spool = (sp_spool *)store;
    const size_t bytes = note_bytes(sizes, count);
    pthread_mutex_lock(&spool->lock);
    const bool fits = bytes && bytes <= room - used && is_ours_to_change(spool);
    if (fits) write_note((sp_note_header *)((char *)memory + used), bytes, kind, 0, parts, sizes, count);
    pthread_mutex_unlock(&spool->lock);
    return fits ? used + bytes : 0;
}

static uint64_t spool_lost(const sp_store *store)
{
    return atomic_load(&((const sp_spool *)store)->lost);
}

static uint64_t spool_sequence(const sp_store *store, const void *memory)
{
    (void)store;
    return ((const sp_chunk_header *)memory - 1)->sequence;
}

static void *spool_map(sp_store *store, sp_chunk_kind kind, uint32_t owner, uint32_t stride, size_t *bytes)
{
    sp_spool *spool = (sp_spool *)store;
    void *memory = NULL;
    pthread_mutex_lock(&spool->lock);
    errno = EBADF;
    sp_chunk_header *header = is_ours_to_change(spool) ? chunk_new(spool, kind, owner, stride, *bytes) : NULL;
    const bool lives = kind == SP_CHUNK_TASKS || kind == SP_CHUNK_TOTALS;
    if (header && lives && !live_add(spool, kind, owner, (char *)(header + 1))) header = NULL;
    if (header) {
        memory = header + 1;
        *bytes = header->bytes - sizeof *header;
    }
    const int failure = errno;
    if (memory == NULL && failure != EDQUOT) put_note(spool, SP_NOTE_FULL, 0, NULL, NULL, 0);
    pthread_mutex_unlock(&spool->lock);
    errno = failure;
    return memory;
}

/*
 * Nothing is taken from the file any more: blocks and tasks stay mapped for as long as something refers to them, but neither the file's
 * descriptor nor what only a writer needs has to wait for that.
 */
static void close_file(sp_spool *spool)
{
    sp_page_guard_free(spool->header_guard);
    spool->header_guard = NULL;
    if (spool->header) munmap(spool->header, SP_SPOOL_PAGE);
    if (spool->copied) munmap(spool->copied, SP_SPOOL_PAGE);
    if (spool->file >= 0) close(spool->file);
    spool->header = NULL;
    spool->copied = NULL;
    spool->file = -1;
}

static void spool_free(sp_spool *spool)
{
    for (size_t i = 0; i < spool->extent_count; i++) {
        if (spool->extents[i].small) continue;
        sp_page_guard_free(spool->extents[i].guard);
        munmap(spool->extents[i].memory, spool->extents[i].bytes);
    }
    for (size_t i = 0; i < spool->arena_count; i++) {
        sp_page_guard_free(spool->arenas[i].guard);
        munmap(spool->arenas[i].memory, spool->arenas[i].bytes);
    }
    close_file(spool);
    pthread_mutex_destroy(&spool->lock);
    for (live_rows *live = atomic_load(&spool->live), *next; live; live = next) {
        next = live->next;
        free(live);
    }
    free(spool->extents);
    free(spool->arenas);
    free(spool->path);
    free(spool);
}

static void spool_release(sp_store *store)
{
    if (atomic_fetch_sub_explicit(&store->references, 1, memory_order_acq_rel) == 1) spool_free((sp_spool *)store);
}

static void spool_hold(sp_store *store)
{
    sp_spool *spool = (sp_spool *)store;
    pthread_mutex_lock(&spool->lock);
    if (spool->copied) spool->copied_before = atomic_load(spool->copied);
}

/* Wait until the child has its copies. It may have been killed, or the fork have failed: not for long. */
static bool child_has_copied(const sp_spool *spool)
{
    if (spool->copied == NULL) return false;
    const int64_t end = sp_platform_monotonic_ns() + CHILD_WAIT_NS;
    while (atomic_load(spool->copied) == spool->copied_before) {
        const int64_t left = end - sp_platform_monotonic_ns();
        if (left <= 0) return false;
        const struct timespec most = {.tv_nsec = left};
        (void)syscall(SYS_futex, spool->copied, FUTEX_WAIT, spool->copied_before, &most, NULL, 0);
    }
    return true;
}

static void tell_copied(const sp_spool *spool)
{
    if (spool->copied == NULL) return;
    atomic_fetch_add(spool->copied, 1);
    (void)syscall(SYS_futex, spool->copied, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/*
 * Marks of a collection and chunks that are taken up again would get into what the child copies. So this process goes on when that is
 * done: a millisecond for each thread that records, at most.
 */
static void spool_unhold(sp_store *store)
{
    sp_spool *spool = (sp_spool *)store;
    const bool copied = spool->inherited || child_has_copied(spool);
    for (size_t i = 0; i < spool->extent_count; i++) {
        if (spool->extents[i].full || !copied) spool->extents[i].shared = true;
    }
    pthread_mutex_unlock(&spool->lock);
}

static void spool_inherit(sp_store *store);

static const sp_store_operations operations = {
    .map = spool_map, .park = spool_park, .drop = spool_drop, .can_drop = spool_can_drop, .thin = spool_thin,
    .note = spool_note, .note_at = spool_note_at, .sequence = spool_sequence, .hold = spool_hold,
    .unhold = spool_unhold, .inherit = spool_inherit, .lost = spool_lost, .release = spool_release};

/* ---- making and ending a spool ---- */

static void read_boot_id(char *text, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL) return;
    if (fgets(text, (int)size, file)) text[strcspn(text, "\n")] = '\0';
    fclose(file);
}

/* Field 22 of /proc/PID/stat, in clock ticks since boot; the name in field 2 may hold anything, spaces and brackets too. */
uint64_t sp_process_start(int64_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    const size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

void sp_boot_id(char text[40])
{
    memset(text, 0, 40);
    read_boot_id(text, 40);
}

static void fill_header(sp_spool_header *header, const sp_spool_options *options)
{
    header->version = SP_SPOOL_VERSION;
    header->endian = SP_SPOOL_ENDIAN;
    header->slot_bytes = options->tracks_tasks ? sizeof(sp_async_slot) : sizeof(sp_slot);
    header->task_bytes = sizeof(sp_task);
    header->clock = sp_clock_current;
    header->tracks = (options->tracks_threads ? 1 : 0) | (options->tracks_tasks ? 2 : 0) | (options->sums ? 4 : 0);
    const sp_anchor first = sp_clock_first_anchor();
    header->first_ticks = first.ticks;
    header->first_ns = first.ns;
    header->pid = getpid();
    header->process_start = sp_process_start(header->pid);
    sp_boot_id(header->boot_id);
    snprintf(header->output, sizeof header->output, "%s", options->output ? options->output : "");
}

static void seal_header(sp_spool_header *header)
{
    memcpy(header->magic, SP_SPOOL_MAGIC, sizeof header->magic);
    header->crc = libdeflate_crc32(0, header, offsetof(sp_spool_header, crc));
}

/* A limit is many blocks: there must be some to choose from when one has to go, and recording must not stop long before it. */
static size_t largest_block(uint64_t limit)
{
    return limit == 0 || limit >= 32 * (uint64_t)HUGE ? 0 : SMALL_LIMIT / 4 - sizeof(sp_chunk_header);
}

sp_status sp_spool_create(const sp_spool_options *options, sp_store **out, sp_error *error)
{
    sp_clock_choose();
    sp_spool *spool = calloc(1, sizeof *spool);
    if (spool == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory for a spool");
    sp_status status = SP_OK;
    spool->store.operations = &operations;
    atomic_init(&spool->store.references, 1);
    pthread_mutex_init(&spool->lock, NULL);
    spool->limit = options->limit;
    spool->store.keeps_newest = options->limit && options->keeps_newest;
    spool->store.largest_block = largest_block(options->limit);
    if (spool->store.keeps_newest) spool->store.most_values = options->limit / 2;
    spool->ends_with_name = options->ends_with_name;
    spool->path = strdup(options->path);
    /* Only the user may read it, and a name that is there already, a planted link too, is not taken. */
    const int made = open(options->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    spool->file = sp_file_not_standard(made);
    if (made >= 0 && spool->file < 0) unlink(options->path);
    if (spool->file < 0 || spool->path == NULL) {
        status = sp_fail_errno(error, SP_ERR_IO, "cannot create the spool %s", options->path);
        goto failed;
    }
    /* Held for as long as this process lives: a reader in a container of its own cannot look for the process. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)fcntl(spool->file, F_OFD_SETLK, &lock);
    extend(spool, SP_SPOOL_PAGE, true); /* at offset 0, which is no failure for the first page */
    if (spool->used == 0 || (spool->header = (sp_spool_header *)map_range(spool, 0, SP_SPOOL_PAGE)) == NULL) {
        status = sp_fail_errno(error, SP_ERR_IO, "cannot make room for the spool %s", options->path);
        unlink(options->path);
        goto failed;
    }
    spool->header_guard = guard_new(spool, (char *)spool->header, SP_SPOOL_PAGE);
    void *shared = mmap(NULL, SP_SPOOL_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED) spool->copied = shared;
    struct statfs system;
    spool->in_memory = fstatfs(spool->file, &system) == 0 && system.f_type == TMPFS_MAGIC;
    fill_header(spool->header, options);
    *out = &spool->store;
    return SP_OK;
failed:
    spool_free(spool);
    return status;
}

void sp_spool_begin(sp_store *store, sp_ticks started, int64_t start_ns)
{
    sp_spool *spool = (sp_spool *)store;
    spool->header->started = started;
    spool->header->start_ns = start_ns;
    seal_header(spool->header);
}

/* Whether the name still stands for our file: directories are moved, and names taken again. */
static bool is_ours(const sp_spool *spool)
{
    struct stat named, open;
    return lstat(spool->path, &named) == 0 && fstat(spool->file, &open) == 0 && named.st_ino == open.st_ino &&
        named.st_dev == open.st_dev;
}

void sp_spool_finish(sp_store *store, bool keep)
{
    sp_spool *spool = (sp_spool *)store;
    pthread_mutex_lock(&spool->lock);
    if (!spool->finished && !spool->inherited && !keep && is_ours(spool)) unlink(spool->path);
    spool->finished = true;
    close_file(spool);
    pthread_mutex_unlock(&spool->lock);
}

static bool is_zero(const char *page)
{
    return page[0] == 0 && memcmp(page, page + 1, SP_SPOOL_PAGE - 1) == 0;
}

/* Put a private copy in the place of a shared mapping; on failure the range becomes unreadable to writes of this process. */
static void make_private(char *memory, size_t bytes)
{
    char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return;
#ifdef MADV_POPULATE_READ
    (void)madvise(memory, bytes, MADV_POPULATE_READ); /* a fault for each page would take longer than the copying */
#endif
    for (size_t at = 0; at < bytes; at += SP_SPOOL_PAGE) {
        if (!is_zero(memory + at)) memcpy(copy + at, memory + at, SP_SPOOL_PAGE);
    }
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == MAP_FAILED) munmap(copy, bytes);
}

static void spool_inherit(sp_store *store)
{
    sp_spool *spool = (sp_spool *)store;
    pthread_mutex_unlock(&spool->lock); /* this thread took it before the fork */
    if (spool->inherited) return;
    spool->inherited = true;
    for (size_t i = 0; i < spool->extent_count; i++) {
        const sp_extent *extent = &spool->extents[i];
        if (extent->small) continue;
        /* A full block is not written to any more, but for the ends of calls that are open: it need not be copied. */
        char *memory = MAP_FAILED;
        if (extent->full && !is_lost(spool)) {
            memory = mmap(extent->memory, extent->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                          spool->file, (off_t)extent->offset);
        }
        if (memory == MAP_FAILED) make_private(extent->memory, extent->bytes);
    }
    for (size_t i = 0; i < spool->arena_count; i++) make_private(spool->arenas[i].memory, spool->arenas[i].bytes);
    tell_copied(spool);
    if (spool->file >= 0) close(spool->file);
    spool->file = -1;
}

bool sp_spool_is_local(const char *directory)
{
    /* Magic numbers of statfs(2): NFS, SMB, SMB2, CIFS, Lustre, GPFS, CEPH, AFS, FUSE (sshfs and its like), 9P, BeeGFS, CODA. */
    static const uint32_t remote[] = {0x6969, 0x517b, 0xfe534d42, 0xff534d42, 0x0bd00bd0, 0x47504653, 0x00c36400,
                                      0x5346414f, 0x65735546, 0x01021997, 0x19830326, 0x73757245};
    struct statfs system;
    if (statfs(directory, &system) != 0) return false;
    for (size_t i = 0; i < sizeof remote / sizeof *remote; i++) {
        if ((uint32_t)system.f_type == remote[i]) return false;
    }
    return true;
}
