/*
 * spool_watch.c - where a look at a spool is, and what it has found.
 *
 * The mapping is shared: the process goes on writing under it. What is read is read once, checked, and copied.
 */
#include "formats/spool_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/profile.h"
#include "analysis/wrap.h"
#include "core/clock.h"
#include "core/run.h"
#include "core/sort.h"
#include "core/store.h"
#include "core/task.h"
#include "core/totals.h"
#include "formats/spool_layout.h"
#include "platform/page_guard.h"

#define LATEST (UINT64_C(1) << 61) /* of ticks and ns; what is later is damage */

/* A chunk that is being read. */
typedef struct part {
    uint64_t offset, bytes, sequence;
    uint64_t at; /* behind what was read of it, in bytes from its begin */
    uint32_t kind, owner;
    bool gone;
} part;

/* Space without a chunk so far. Chunks are cut from its begin. */
typedef struct gap {
    uint64_t begin, end;
} gap;

/* A call that had not ended. */
typedef struct open_call {
    size_t part;
    uint64_t at;
    uint32_t region;
    sp_ticks start;
} open_call;

/* What the last collection that is in a file has: calls before the first marks, but for those at the second ones. */
typedef struct written {
    sp_mark *marks;
    size_t logs, open;
    uint32_t number;
} written;

typedef struct sums {
    uint64_t calls, before; /* ended ones; entries at the last look */
    uint64_t ticks;
} sums;

struct sp_watch {
    char *path;
    int file;
    char *memory;
    sp_page_guard *guard;
    _Atomic(uint64_t) lost; /* pages that were gone when they were looked at */
    uint64_t size;
    uint64_t settled; /* of the file's length: behind it headers may have been under way at the last look */
    sp_spool_header header;
    part *parts;
    size_t part_count, part_size;
    gap *gaps;
    size_t gap_count, gap_size;
    open_call *open;
    size_t open_count, open_size;
    written collected, confirmed;
    uint64_t *pages; /* of tasks: where they are in the file; 0: not known */
    size_t page_count;
    char **strings;
    size_t string_count;
    size_t string_size;
    sums *regions, *threads;
    int64_t *cpu_before; /* by thread */
    size_t region_size, thread_size, task_size, region_sums_size, thread_sums_size, cpu_size; /* of the arrays, those of `seen` too */
    sp_anchor first, last;
    sp_ticks latest;
    int64_t looked_ns; /* 0: never */
    bool failed;       /* out of memory */
    sp_watched seen;
};

static bool grow(void **array, size_t *size, size_t wanted, size_t element)
{
    if (wanted <= *size) return true;
    size_t larger = *size ? *size * 2 : 16;
    if (larger < wanted) larger = wanted;
    char *grown = realloc(*array, larger * element);
    if (grown == NULL) return false;
    memset(grown + *size * element, 0, (larger - *size) * element);
    *array = grown;
    *size = larger;
    return true;
}

/* ---- the file ---- */

static void unmap_file(sp_watch *w)
{
    sp_page_guard_free(w->guard);
    if (w->memory) munmap(w->memory, w->size);
}

static sp_status map_more(sp_watch *w, sp_error *error)
{
    struct stat facts;
    if (fstat(w->file, &facts) != 0) return sp_fail_errno(error, SP_ERR_IO, "cannot read the spool %s", w->path);
    if ((uint64_t)facts.st_size < w->size) atomic_fetch_add(&w->lost, 1);
    const sp_status status = sp_spool_check_pages(&w->lost, w->path, error);
    if (status != SP_OK) return status;
    if (!S_ISREG(facts.st_mode) || facts.st_size < (off_t)SP_SPOOL_PAGE) {
        return sp_fail(error, SP_ERR_FOREIGN, "%s is not a spool", w->path);
    }
    const uint64_t size = (uint64_t)facts.st_size / SP_SPOOL_PAGE * SP_SPOOL_PAGE;
    if (size == w->size) return SP_OK;
    char *memory = mmap(NULL, size, PROT_READ, MAP_SHARED, w->file, 0);
    if (memory == MAP_FAILED) return sp_fail_errno(error, SP_ERR_IO, "cannot map the spool %s", w->path);
    unmap_file(w);
    w->memory = memory;
    w->size = size;
    w->guard = sp_page_guard_new(memory, size, &w->lost, NULL, NULL);
    return SP_OK;
}

static bool is_locked(const sp_watch *w)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(w->file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

sp_status sp_watch_open(const char *path, sp_watch **out, sp_error *error)
{
    sp_watch *w = calloc(1, sizeof *w);
    if (w == NULL || (w->path = strdup(path)) == NULL) {
        free(w);
        return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", path);
    }
    w->file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a FIFO must not be waited for */
    sp_status status = SP_OK;
    if (w->file < 0) {
        status = sp_fail_errno(error, errno == ENOENT ? SP_ERR_NOT_FOUND : SP_ERR_IO, "cannot open the spool %s", path);
    }
    if (status == SP_OK) status = map_more(w, error);
    if (status == SP_OK) {
        memcpy(&w->header, w->memory, sizeof w->header);
        status = sp_spool_check_pages(&w->lost, path, error);
    }
    if (status == SP_OK) {
        status = sp_spool_check_header(&w->header, path, error);
    }
    if (status != SP_OK) {
        sp_watch_close(w);
        return status;
    }
    w->settled = SP_SPOOL_PAGE;
    w->first = w->last = (sp_anchor){w->header.first_ticks, w->header.first_ns};
    w->latest = w->header.started;
    w->seen.pid = w->header.pid;
    memcpy(w->seen.output, w->header.output, sizeof w->seen.output);
    *out = w;
    return SP_OK;
}

static void free_regions(sp_watch *w)
{
    for (size_t i = 0; i < w->seen.region_count; i++) free(w->seen.regions[i].name);
    for (size_t i = 0; i < w->seen.thread_count; i++) free(w->seen.threads[i].name);
    for (size_t i = 0; i < w->seen.task_count; i++) free(w->seen.tasks[i].name);
    for (size_t i = 0; i < w->string_count; i++) free(w->strings[i]);
    free(w->seen.regions);
    free(w->seen.threads);
    free(w->seen.tasks);
}

void sp_watch_close(sp_watch *w)
{
    if (w == NULL) return;
    unmap_file(w);
    if (w->file >= 0) close(w->file);
    free_regions(w);
    free(w->strings);
    free(w->parts);
    free(w->gaps);
    free(w->open);
    free(w->collected.marks);
    if (w->confirmed.marks != w->collected.marks) free(w->confirmed.marks);
    free(w->pages);
    free(w->regions);
    free(w->threads);
    free(w->cpu_before);
    sp_recording_children_free(w->seen.children, w->seen.child_count);
    free(w->path);
    free(w);
}

/* ---- chunks ---- */

static const sp_chunk_header *header_of(const sp_watch *w, const part *p)
{
    return (const sp_chunk_header *)(w->memory + p->offset);
}

static uint64_t add_part(sp_watch *w, uint64_t offset)
{
    const sp_chunk_header h = *(const sp_chunk_header *)(w->memory + offset);
    if (h.bytes < SP_SPOOL_PAGE || h.bytes % SP_SPOOL_PAGE || h.bytes > w->size - offset) return SP_SPOOL_PAGE;
    if (!grow((void **)&w->parts, &w->part_size, w->part_count + 1, sizeof *w->parts)) {
        w->failed = true;
        return h.bytes;
    }
    w->parts[w->part_count++] = (part){.offset = offset, .bytes = h.bytes, .sequence = h.sequence, .at = sizeof h,
                                       .kind = h.kind, .owner = h.owner};
    return h.bytes;
}

static void add_gap(sp_watch *w, uint64_t begin, uint64_t end)
{
    if (begin == end) return;
    if (grow((void **)&w->gaps, &w->gap_size, w->gap_count + 1, sizeof *w->gaps)) w->gaps[w->gap_count++] = (gap){begin, end};
    else w->failed = true;
}

/* Every page of [begin, end); what no chunk takes becomes gaps. */
static void search(sp_watch *w, uint64_t begin, uint64_t end)
{
    uint64_t free_from = begin;
    for (uint64_t offset = begin; offset < end;) {
        if (!sp_spool_chunk_is_whole(w->memory, w->size, offset)) {
            offset += SP_SPOOL_PAGE;
            continue;
        }
        add_gap(w, free_from, offset);
        free_from = offset += add_part(w, offset);
    }
    add_gap(w, free_from, end > free_from ? end : free_from);
}

/* A chunk that is in the place of one that was dropped is a new one. */
static void look_again(sp_watch *w)
{
    for (size_t i = 0; i < w->part_count; i++) {
        part *p = &w->parts[i];
        const sp_chunk_header *h = header_of(w, p);
        const bool whole = sp_spool_chunk_is_whole(w->memory, w->size, p->offset);
        const sp_chunk_header now = *h;
        const bool same = whole && now.sequence == p->sequence && now.bytes == p->bytes;
        p->gone = !whole || atomic_load_explicit(&h->dropped, memory_order_acquire) == SP_CHUNK_GONE;
        if (same || p->gone || now.bytes != p->bytes) continue;
        *p = (part){.offset = p->offset, .bytes = p->bytes, .sequence = now.sequence, .at = sizeof now, .kind = now.kind,
                    .owner = now.owner};
    }
}

/* What the file has grown by is searched twice: a chunk's header comes a moment after its space. */
static void find_parts(sp_watch *w, uint64_t before)
{
    size_t kept = 0;
    look_again(w);
    const size_t gaps = w->gap_count;
    uint64_t *again = malloc((gaps ? gaps : 1) * 2 * sizeof *again);
    size_t again_count = 0;
    for (size_t i = 0; i < gaps; i++) {
        gap *g = &w->gaps[i];
        if (g->end > w->settled && again) {
            again[again_count++] = g->begin;
            again[again_count++] = g->end;
            continue;
        }
        while (g->begin < g->end && sp_spool_chunk_is_whole(w->memory, w->size, g->begin)) g->begin += add_part(w, g->begin);
        if (g->begin < g->end) w->gaps[kept++] = *g;
    }
    w->gap_count = kept;
    for (size_t i = 0; i < again_count; i += 2) search(w, again[i], again[i + 1]);
    free(again);
    if (w->size > before) search(w, before, w->size);
    w->settled = before;
}

/* ---- notes ---- */

static sp_watched_region *region_at(sp_watch *w, uint32_t id)
{
    return id < w->seen.region_count ? &w->seen.regions[id] : NULL;
}

static void take_region(sp_watch *w, uint32_t id, const char *payload, size_t size)
{
    const char *text = payload + sizeof(int64_t) + 1;
    if (size < sizeof(int64_t) + 2 || id != w->seen.region_count || payload[sizeof(int64_t)] != 1) return;
    if (memchr(text, 0, size - sizeof(int64_t) - 1) == NULL) return;
    char *name = strdup(text);
    if (name == NULL || !grow((void **)&w->seen.regions, &w->region_size, (size_t)id + 1, sizeof *w->seen.regions) ||
        !grow((void **)&w->regions, &w->region_sums_size, (size_t)id + 1, sizeof *w->regions)) {
        free(name);
        w->failed = true;
        return;
    }
    w->seen.regions[id].name = name;
    w->seen.region_count = (size_t)id + 1;
}

static void take_thread(sp_watch *w, uint32_t row, const char *payload, size_t size)
{
    int64_t numbers[4];
    if (size <= sizeof numbers || payload[size - 1] != '\0' || row > w->seen.thread_count) return;
    memcpy(numbers, payload, sizeof numbers);
    if (row == w->seen.thread_count) {
        const size_t rows = (size_t)row + 1;
        if (!grow((void **)&w->seen.threads, &w->thread_size, rows, sizeof *w->seen.threads) ||
            !grow((void **)&w->threads, &w->thread_sums_size, rows, sizeof *w->threads) ||
            !grow((void **)&w->cpu_before, &w->cpu_size, rows, sizeof *w->cpu_before)) {
            w->failed = true;
            return;
        }
        w->seen.threads[row] = (sp_watched_thread){.alive = true, .cpu_ns = -1, .cpu = -1};
        w->seen.thread_count = rows;
    }
    char *name = strdup(payload + sizeof numbers);
    if (name == NULL) {
        w->failed = true;
        return;
    }
    free(w->seen.threads[row].name);
    w->seen.threads[row].name = name;
    w->seen.threads[row].native_id = numbers[1];
}

static void take_thread_end(sp_watch *w, uint32_t row, const char *payload, size_t size)
{
    int64_t numbers[2];
    if (size < sizeof numbers || row >= w->seen.thread_count) return;
    memcpy(numbers, payload, sizeof numbers);
    w->seen.threads[row].alive = false;
    w->seen.threads[row].cpu_ns = numbers[1] < 0 ? -1 : numbers[1];
}

static void take_string(sp_watch *w, uint32_t id, const char *payload, size_t size)
{
    if (size == 0 || payload[size - 1] != '\0' || id != w->string_count) return;
    if (!grow((void **)&w->strings, &w->string_size, (size_t)id + 1, sizeof *w->strings) ||
        (w->strings[id] = strdup(payload)) == NULL) w->failed = true;
    else w->string_count = (size_t)id + 1;
}

static int by_index(const void *key, const void *task)
{
    const int32_t a = *(const int32_t *)key, b = ((const sp_watched_task *)task)->index;
    return (a > b) - (a < b);
}

static void take_task_name(sp_watch *w, uint32_t index, const char *payload, size_t size)
{
    const int32_t key = (int32_t)index;
    sp_watched_task *task = sp_find(&key, w->seen.tasks, w->seen.task_count, sizeof *task, by_index);
    if (task == NULL || size == 0 || payload[size - 1] != '\0') return;
    char *name = strdup(payload);
    if (name == NULL) w->failed = true;
    free(task->name);
    task->name = name;
}

static void take_anchor(sp_watch *w, const char *payload, size_t size)
{
    sp_anchor anchor;
    if (size < sizeof anchor) return;
    memcpy(&anchor, payload, sizeof anchor);
    if (anchor.ticks > LATEST || anchor.ns > (int64_t)LATEST) return;
    if (anchor.ticks > w->last.ticks && anchor.ns > w->last.ns) w->last = anchor;
    if (anchor.ticks > w->latest) w->latest = anchor.ticks;
}

static void take_choice(sp_watch *w, uint32_t number, const char *payload, size_t size)
{
    uint32_t counts[2];
    if (size < sizeof counts) return;
    memcpy(counts, payload, sizeof counts);
    const size_t marks = (size_t)counts[0] + counts[1];
    if ((size - sizeof counts) / sizeof(sp_mark) < marks) return;
    sp_mark *copy = malloc((marks ? marks : 1) * sizeof *copy);
    if (copy == NULL) {
        w->failed = true;
        return;
    }
    memcpy(copy, payload + sizeof counts, marks * sizeof *copy);
    if (w->confirmed.marks != w->collected.marks) free(w->collected.marks);
    w->collected = (written){copy, counts[0], counts[1], number};
}

static void take_confirm(sp_watch *w, uint32_t number)
{
    if (w->collected.number != number || w->confirmed.marks == w->collected.marks) return;
    free(w->confirmed.marks);
    w->confirmed = w->collected;
}

static void take_note(sp_watch *w, sp_note_kind kind, uint32_t index, const char *payload, size_t size)
{
    switch (kind) {
    case SP_NOTE_REGION: take_region(w, index, payload, size); break;
    case SP_NOTE_THREAD: take_thread(w, index, payload, size); break;
    case SP_NOTE_THREAD_END: take_thread_end(w, index, payload, size); break;
    case SP_NOTE_STRING: take_string(w, index, payload, size); break;
    case SP_NOTE_TASK_NAME: take_task_name(w, index, payload, size); break;
    case SP_NOTE_ANCHOR: take_anchor(w, payload, size); break;
    case SP_NOTE_COLLECT: take_choice(w, index, payload, size); break;
    case SP_NOTE_CONFIRM: take_confirm(w, index); break;
    default: break;
    }
}

static int by_sequence(const void *left, const void *right)
{
    const part *a = *(part *const *)left, *b = *(part *const *)right;
    return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

static void read_notes_of(sp_watch *w, part *p)
{
    uint64_t lost = 0, from = p->at;
    const sp_note_header *note;
    while (!w->failed && (note = sp_spool_next_note(header_of(w, p), p->bytes, &p->at, &lost))) {
        const size_t room = (size_t)(p->at - from) - sizeof *note;
        const sp_note_header head = *note;
        char *payload = malloc(room + 1);
        if (payload == NULL) {
            w->failed = true;
            return;
        }
        memcpy(payload, note + 1, room);
        take_note(w, (sp_note_kind)head.kind, head.index, payload, head.size < room ? head.size : room);
        free(payload);
        from = p->at;
        w->seen.looked_at++;
    }
}

/* Journal chunks in the order of their making; in the list they are in that of their finding. */
static void read_journal(sp_watch *w)
{
    part **journal = malloc((w->part_count ? w->part_count : 1) * sizeof *journal);
    size_t count = 0;
    if (journal == NULL) {
        w->failed = true;
        return;
    }
    for (size_t i = 0; i < w->part_count; i++) {
        if (w->parts[i].kind == SP_CHUNK_JOURNAL && !w->parts[i].gone) journal[count++] = &w->parts[i];
    }
    sp_sort(journal, count, sizeof *journal, by_sequence);
    for (size_t i = 0; i < count; i++) read_notes_of(w, journal[i]);
    free(journal);
}

/* ---- calls ---- */

/* How far the file has the log of a row; NULL: not at all. Only what was written before the first look: later calls have been seen. */
static const sp_mark *reached(const sp_watch *w, uint32_t owner)
{
    for (size_t i = 0; w->looked_ns == 0 && i < w->confirmed.logs; i++) {
        if (w->confirmed.marks[i].owner == owner) return &w->confirmed.marks[i];
    }
    return NULL;
}

static bool is_in_file(const sp_watch *w, const sp_mark *mark, const sp_mark *place)
{
    const written *file = &w->confirmed;
    return mark && sp_mark_compare(place, mark) < 0 &&
        sp_find(place, file->marks + file->logs, file->open, sizeof *place, sp_mark_compare) == NULL;
}

static void end_call(sp_watch *w, uint32_t region, sp_ticks start, sp_ticks end)
{
    w->regions[region].calls++;
    if (end > start) w->regions[region].ticks += end - start;
    if (end > w->latest && end <= LATEST) w->latest = end;
}

static void take_slot(sp_watch *w, size_t number, uint64_t at, sp_ticks start, const sp_mark *mark)
{
    const part *p = &w->parts[number];
    const sp_slot *slot = (const sp_slot *)(w->memory + p->offset + at);
    const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
    const uint32_t stored = atomic_load_explicit(&slot->region, memory_order_relaxed), region = stored & SP_REGION_ID;
    const sp_mark place = {.owner = p->owner, .index = (uint32_t)((at - sizeof(sp_chunk_header)) / w->header.slot_bytes),
                           .sequence = p->sequence};
    if (stored == SP_REGION_DONE || end == SP_SLOT_ABANDONED || region >= w->seen.region_count) return;
    if (start > LATEST || end > LATEST) return;
    if (is_in_file(w, mark, &place)) return;
    if (p->owner < w->seen.thread_count) w->threads[p->owner].calls++;
    if (start > w->latest) w->latest = start;
    if (end != SP_SLOT_OPEN) {
        end_call(w, region, start, end);
    } else if (grow((void **)&w->open, &w->open_size, w->open_count + 1, sizeof *w->open)) {
        w->open[w->open_count++] = (open_call){number, at, region, start};
    } else {
        w->failed = true;
    }
}

static void read_calls_of(sp_watch *w, size_t number)
{
    part *p = &w->parts[number];
    const uint32_t stride = w->header.slot_bytes;
    const bool thinned = atomic_load_explicit(&header_of(w, p)->dropped, memory_order_relaxed) == SP_CHUNK_THINNED;
    const sp_mark *mark = reached(w, p->owner);
    for (; p->bytes - p->at >= stride; p->at += stride) {
        const sp_slot *slot = (const sp_slot *)(w->memory + p->offset + p->at);
        const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_acquire);
        if (start == 0 && !thinned) break;
        w->seen.looked_at++;
        if (start) take_slot(w, number, p->at, start, mark);
    }
}

static void look_at_open(sp_watch *w)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->open_count; i++) {
        const open_call *call = &w->open[i];
        const part *p = &w->parts[call->part];
        const sp_slot *slot = (const sp_slot *)(w->memory + p->offset + call->at);
        w->seen.looked_at++;
        const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_acquire);
        const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
        /* Its slot went, or is another call's: it had ended, nobody knows when. */
        const bool lost = p->gone || start != call->start;
        if (!lost && end == SP_SLOT_OPEN) w->open[kept++] = *call;
        else if (!lost && end == SP_SLOT_ABANDONED) continue;
        else end_call(w, call->region, call->start, lost ? call->start : end);
    }
    w->open_count = kept;
}

static void read_calls(sp_watch *w)
{
    look_at_open(w);
    for (size_t i = 0; i < w->part_count && !w->failed; i++) {
        if (w->parts[i].kind == SP_CHUNK_EVENTS && !w->parts[i].gone) read_calls_of(w, i);
    }
}

/* ---- sums ---- */

/* The sums of one region as they are at a moment: a thread may be adding to them. */
static void take_total(sp_watch *w, uint64_t region, const sp_total *total)
{
    uint64_t version, count, ticks;
    do {
        version = atomic_load_explicit(&total->version, memory_order_acquire);
        const sp_sums *valid = &total->sums[version / SP_VERSION_STEP % 2];
        count = atomic_load_explicit(&valid->count, memory_order_relaxed);
        ticks = *(const volatile uint64_t *)&valid->total;
        atomic_thread_fence(memory_order_acquire);
    } while (atomic_load_explicit(&total->version, memory_order_relaxed) != version);
    const sp_ticks last = *(const volatile uint64_t *)&total->last_end;
    w->seen.looked_at++;
    if (count == 0 || region >= w->seen.region_count) return;
    w->regions[region].calls += count;
    w->regions[region].ticks += ticks;
    if (last > w->latest) w->latest = last;
}

/* All that is in no file: a page that went into one is empty, or says so. */
static void read_sums(sp_watch *w)
{
    for (size_t i = 0; i < w->seen.region_count; i++) w->regions[i].calls = w->regions[i].ticks = 0;
    for (size_t i = 0; i < w->part_count; i++) {
        const part *p = &w->parts[i];
        if (p->kind != SP_CHUNK_TOTALS || p->gone || p->bytes < sizeof(sp_chunk_header) + sizeof(sp_total_page)) continue;
        const sp_total_page *page = (const sp_total_page *)(w->memory + p->offset + sizeof(sp_chunk_header));
        const uint32_t collection = atomic_load_explicit(&page->collection, memory_order_acquire);
        const uint64_t first = (uint64_t)atomic_load_explicit(&page->index, memory_order_relaxed) * SP_TOTALS_PER_PAGE;
        if (collection && collection <= w->confirmed.number) continue;
        for (size_t k = 0; k < SP_TOTALS_PER_PAGE; k++) take_total(w, first + k, &page->totals[k]);
    }
}

/* ---- tasks ---- */

static const sp_task *task_at(const sp_watch *w, uint64_t index)
{
    const uint64_t page = index / SP_TASKS_PER_PAGE;
    if (page >= w->page_count || w->pages[page] == 0) return NULL;
    return (const sp_task *)(w->memory + w->pages[page] + sizeof(sp_chunk_header)) + index % SP_TASKS_PER_PAGE;
}

static void find_pages(sp_watch *w)
{
    for (size_t i = 0; i < w->part_count; i++) {
        part *p = &w->parts[i];
        if (p->kind != SP_CHUNK_TASKS || p->at != sizeof(sp_chunk_header)) continue;
        if (p->bytes - sizeof(sp_chunk_header) < SP_TASKS_PER_PAGE * sizeof(sp_task)) continue;
        /* A page of tasks is full before the next is made: none is far ahead. */
        if (p->owner > w->page_count + w->part_count) continue;
        if (!grow((void **)&w->pages, &w->page_count, p->owner + 1, sizeof *w->pages)) w->failed = true;
        else w->pages[p->owner] = p->offset;
        p->at = p->bytes;
    }
}

static void read_tasks(sp_watch *w)
{
    size_t kept = 0;
    const sp_task *task;
    find_pages(w);
    for (size_t i = 0; i < w->seen.task_count; i++) {
        sp_watched_task *known = &w->seen.tasks[i];
        task = task_at(w, (uint64_t)known->index);
        w->seen.looked_at++;
        if (task && atomic_load_explicit(&task->done, memory_order_relaxed) == 0) w->seen.tasks[kept++] = *known;
        else free(known->name);
    }
    w->seen.task_count = kept;
    while (w->seen.all_tasks < INT32_MAX && (task = task_at(w, w->seen.all_tasks)) && task->created) {
        const int32_t index = (int32_t)w->seen.all_tasks++;
        w->seen.looked_at++;
        if (atomic_load_explicit(&task->done, memory_order_relaxed)) continue;
        if (!grow((void **)&w->seen.tasks, &w->task_size, kept + 1, sizeof *w->seen.tasks)) {
            w->failed = true;
            return;
        }
        w->seen.tasks[kept] = (sp_watched_task){.index = index, .coroutine = ""};
        w->seen.task_count = ++kept;
    }
}

/* ---- what it comes to ---- */

static double ns_a_tick(const sp_watch *w)
{
    if (w->header.clock != SP_CLOCK_COUNTER) return 1;
    if (w->last.ticks > w->first.ticks) return (double)(w->last.ns - w->first.ns) / (double)(w->last.ticks - w->first.ticks);
    if (w->header.started > w->header.first_ticks) {
        return (double)(w->header.start_ns - w->header.first_ns) / (double)(w->header.started - w->header.first_ticks);
    }
    return 1;
}

/* What no int64 holds is damage. */
static int64_t whole(double ns)
{
    return ns >= 0x1p62 ? INT64_C(1) << 62 : ns > -0x1p62 ? (int64_t)ns : -(INT64_C(1) << 62);
}

static int64_t to_ns(const sp_watch *w, sp_ticks ticks)
{
    return w->last.ns + whole((double)(int64_t)(ticks - w->last.ticks) * ns_a_tick(w));
}

static void sum_up_regions(sp_watch *w, int64_t now, double seconds)
{
    const double rate = ns_a_tick(w);
    for (size_t i = 0; i < w->seen.region_count; i++) {
        w->seen.regions[i].open = 0;
        w->seen.regions[i].calls = w->regions[i].calls;
        w->seen.regions[i].total_ns = whole((double)w->regions[i].ticks * rate);
    }
    for (size_t i = 0; i < w->open_count; i++) {
        sp_watched_region *region = region_at(w, w->open[i].region);
        const int64_t length = now - to_ns(w, w->open[i].start);
        region->open++;
        region->calls++;
        if (length > 0) region->total_ns = sp_plus(region->total_ns, length);
    }
    for (size_t i = 0; i < w->seen.region_count; i++) {
        sp_watched_region *region = &w->seen.regions[i];
        const uint64_t counted = region->calls >= w->regions[i].before ? w->regions[i].before : 0; /* a checkpoint took sums away */
        region->rate = (double)(region->calls - counted) / seconds;
        w->regions[i].before = region->calls;
    }
}

/* ns on a processor of a thread of another process; -1: not known. */
static int64_t cpu_of(int64_t pid, int64_t thread)
{
    char path[80];
    long long ns = -1;
    snprintf(path, sizeof path, "/proc/%lld/task/%lld/schedstat", (long long)pid, (long long)thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) return -1;
    if (fscanf(file, "%lld", &ns) != 1) ns = -1;
    fclose(file);
    return ns;
}

static void sum_up_threads(sp_watch *w, double seconds, bool first)
{
    for (size_t i = 0; i < w->seen.thread_count; i++) {
        sp_watched_thread *thread = &w->seen.threads[i];
        sums *known = &w->threads[i];
        if (thread->alive && w->seen.alive) thread->cpu_ns = cpu_of(w->seen.pid, thread->native_id);
        thread->calls = known->calls;
        thread->rate = (double)(known->calls - known->before) / seconds;
        const int64_t spent = thread->cpu_ns - w->cpu_before[i];
        thread->cpu = thread->cpu_ns < 0 || (first && !thread->alive) ? -1 : spent > 0 ? (double)spent / 1e9 / seconds : 0;
        if (thread->cpu_ns >= 0) w->cpu_before[i] = thread->cpu_ns;
        known->before = known->calls;
    }
}

static void sum_up_tasks(sp_watch *w, double seconds)
{
    const double rate = ns_a_tick(w);
    for (size_t i = 0; i < w->seen.task_count; i++) {
        sp_watched_task *seen = &w->seen.tasks[i];
        const sp_task *task = task_at(w, (uint64_t)seen->index);
        if (task == NULL) continue;
        const uint64_t running = atomic_load_explicit(&task->running, memory_order_relaxed);
        const uint32_t coroutine = task->coro_name;
        char text[32];
        seen->steps = atomic_load_explicit(&task->steps, memory_order_relaxed);
        seen->running_ns = whole((double)running * rate);
        seen->suspended_ns = whole((double)atomic_load_explicit(&task->suspended, memory_order_relaxed) * rate);
        seen->running = running > seen->before ? (double)(running - seen->before) * rate / 1e9 / seconds : 0;
        seen->before = running;
        seen->coroutine = coroutine < w->string_count ? w->strings[coroutine] : "";
        if (seen->name == NULL && task->name_kind == SP_NAME_NUMBERED) {
            snprintf(text, sizeof text, "Task-%llu", (unsigned long long)task->name.number);
            seen->name = strdup(text);
        }
    }
}

/* Only where the id is that of the writer, not one of another machine or container. */
static void find_children(sp_watch *w)
{
    const sp_spool_header *h = &w->header;
    sp_recording_children_free(w->seen.children, w->seen.child_count);
    w->seen.children = NULL;
    w->seen.child_count = 0;
    if (!w->seen.alive || h->process_start == 0 || sp_process_start(h->pid) != h->process_start) return;
    w->seen.child_count = sp_recording_children(h->pid, &w->seen.children);
}

sp_status sp_watch_look(sp_watch *w, const sp_watched **out, sp_error *error)
{
    const uint64_t before = w->looked_ns ? w->size : SP_SPOOL_PAGE;
    sp_status status = map_more(w, error);
    if (status != SP_OK) return status;
    w->seen.looked_at = 0;
    w->seen.alive = sp_spool_writer_lives(&w->header, is_locked(w));
    find_parts(w, before);
    read_tasks(w);
    read_journal(w);
    if (w->header.tracks & 4) read_sums(w);
    else read_calls(w);
    status = sp_spool_check_pages(&w->lost, w->path, error);
    if (status != SP_OK) return status;
    if (w->failed) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", w->path);
    const int64_t clock = sp_clock_ns();
    const int64_t now = w->seen.alive ? clock : to_ns(w, w->latest);
    const int64_t since = w->looked_ns ? w->looked_ns : w->seen.alive ? w->header.start_ns : clock - (now - w->header.start_ns);
    const double seconds = clock > since ? (double)(clock - since) / 1e9 : 1e-9;
    sum_up_regions(w, now, seconds);
    sum_up_threads(w, seconds, w->looked_ns == 0);
    sum_up_tasks(w, seconds);
    find_children(w);
    w->seen.running_ns = now > w->header.start_ns ? now - w->header.start_ns : 0;
    w->looked_ns = clock;
    *out = &w->seen;
    return SP_OK;
}
