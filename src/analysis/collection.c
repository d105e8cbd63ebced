#include "analysis/collection.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/collect.h"
#include "analysis/wrap.h"
#include "core/grow.h"
#include "core/note.h"
#include "core/registry.h"
#include "core/sort.h"
#include "core/task.h"
#include "core/totals.h"
#include "platform/platform.h"

/* One log of the collection. */
typedef struct source {
    sp_log *log;
    int32_t thread;
    uint32_t stride;
    sp_block *first, *last; /* the blocks to read: first .. last, last only up to `end` */
    char *end;
    sp_slot **open; /* calls that had not ended when the others were chosen, in the log's order */
    size_t open_count, open_size;
    /* where a walk is */
    sp_block *block;
    char *at, *readable;
    size_t next_open;
    const sp_slot *open_slot; /* open[next_open], NULL behind the last */
    bool is_open;        /* the call at `at` */
    sp_ticks start, until; /* of that call: its end, `now` where it is open */
    sp_timeline_cursor cursor;
} source;

/* A call on the stack of its lane; its index is its place. */
typedef struct frame {
    uint32_t below; /* index of the enclosing frame, or SP_NO_PLACE */
    uint32_t row;
    int64_t call_id;
    sp_ticks end;
} frame;

/* Calls that are handed out at once: they stay in the first-level cache until the sink has seen them. */
#define BATCH 128

#define AHEAD 2048 /* bytes of a log that are fetched early: the processor's own look-ahead ends with each page of 4 kB */

typedef struct batch {
    sp_collected calls[BATCH];
    sp_ticks starts[BATCH], ends[BATCH];
    size_t count;
    sp_collected_sink sink;
    void *context;
} batch;

struct sp_collection {
    sp_run *run;
    sp_profile *profile;
    uint32_t number;
    uint64_t lost_pages, vanished; /* of the run's store when the calls had been chosen; calls that were found to be gone then */
    source *sources;
    size_t source_count;
    source **heap; /* by start, the earliest first */
    size_t heap_count;
    sp_anchor *anchors; /* the timeline as it was when the calls were chosen */
    sp_timeline timeline;
    uint64_t *counts; /* by region id */
    uint32_t *row_of; /* by region id */
    int64_t *own_ns;  /* by row: durations of its calls less those of the calls directly inside them */
    size_t region_count;
    frame *frames;
    size_t frame_count, frame_size;
    uint32_t free_frame;
    uint32_t *thread_top, *task_top; /* by index: the lane's innermost open frame */
    size_t thread_count, task_count;
    int64_t first_call_id, next_call_id;
    unsigned how; /* of the walk under way */
    bool nested;
    bool last;    /* calls that are open are in it, and end at `now` */
    sp_ticks now;
};

static sp_status no_memory(sp_error *error)
{
    return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to collect the run");
}

/* ---- blocks ---- */

static char *readable_of(const source *s, const sp_block *block)
{
    return block == s->last ? s->end : block->end;
}

static sp_block *following(const source *s, sp_block *block)
{
    return block == s->last ? NULL : atomic_load_explicit(&block->next, memory_order_acquire);
}

/* Whether a slot holds a call that may still be collected. Pages that a full store gave up read as zero. */
static inline bool is_waiting(const sp_slot *slot)
{
    _Static_assert(SP_REGION_DONE & SP_REGION_KEPT, "what is reported is kept");
    return !(atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_KEPT) &&
        atomic_load_explicit(&slot->start, memory_order_relaxed) != 0;
}

/* ---- choose and count ---- */

static sp_status add_sources(sp_collection *c, sp_error *error)
{
    sp_run *run = c->run;
    size_t count = 0;
    for (sp_log *log = run->logs; log; log = log->next_of_run) count++;
    c->sources = calloc(count ? count : 1, sizeof *c->sources);
    c->heap = calloc(count ? count : 1, sizeof *c->heap);
    if (!c->sources || !c->heap) return no_memory(error);
    for (sp_log *log = run->logs; log; log = log->next_of_run) {
        if (log->head == NULL) continue;
        source *s = &c->sources[c->source_count++];
        *s = (source){.log = log, .thread = log->row->index, .stride = log->stride, .first = log->head,
                      .last = log->scan_block, .end = log->scan_next};
    }
    return SP_OK;
}

static bool remember_open(source *s, sp_slot *slot)
{
    if (!sp_grow(&s->open, &s->open_size, s->open_count, sizeof *s->open, 8)) return false;
    s->open[s->open_count++] = slot;
    return true;
}

#define PAGE 4096

/*
 * In a forked child full blocks of a store are those of the file, in which its parent goes on to mark what it reports. A page that is
 * written to is the child's own: from here on the walks see what was chosen.
 */
static void own_pages(const sp_block *block, const char *readable)
{
    for (char *at = block->begin; at < readable; at = (char *)(((uintptr_t)at / PAGE + 1) * PAGE)) {
        atomic_fetch_or_explicit((_Atomic(uint8_t) *)at, 0, memory_order_relaxed);
    }
}

/* Read every page once: of those that are gone the store knows then. */
static void look_at_pages(const sp_block *block, const char *readable)
{
    for (const char *at = block->begin; at < readable; at += PAGE) (void)*(const volatile char *)at;
    if (readable > block->begin) (void)*(const volatile char *)(readable - 1);
}

/*
 * Calls that went with pages of the store are slots of zeros that were published: each is counted once. What is left of a slot that the file
 * was cut off in, before one of these, is not to be believed either.
 */
static void count_vanished(sp_collection *c, const source *s, const sp_block *block, const char *readable)
{
    for (char *at = block->begin; at < readable; at += s->stride) {
        sp_slot *slot = (sp_slot *)at;
        const sp_slot *next = at + s->stride < readable ? (const sp_slot *)(at + s->stride) : NULL;
        if (atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_KEPT) continue;
        if (next && atomic_load_explicit(&next->start, memory_order_relaxed) == 0) atomic_store_explicit(&slot->start, 0, memory_order_relaxed);
        if (atomic_load_explicit(&slot->start, memory_order_relaxed) != 0) continue;
        atomic_store_explicit(&slot->region, SP_REGION_DONE, memory_order_relaxed);
        c->vanished++;
    }
}

static bool choose_in_block(sp_collection *c, source *s, sp_block *block)
{
    if (block->finished) return true; /* collected before, and not confirmed yet */
    const char *readable = readable_of(s, block);
    const bool stored = block->memory == SP_BLOCK_STORED;
    if (c->run->inherited && stored) own_pages(block, readable);
    if (stored && !c->run->store->keeps_newest) { /* where old calls are given up there are slots of zeros too */
        look_at_pages(block, readable);
        if (sp_run_lost_pages(c->run)) count_vanished(c, s, block, readable);
    }
    for (char *at = block->begin; at < readable; at += s->stride) {
        sp_slot *slot = (sp_slot *)at;
        if (!is_waiting(slot)) continue;
        const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
        if (end == SP_SLOT_OPEN) {
            if (!remember_open(s, slot)) return false;
            c->counts[atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID] += c->last;
        } else if (end != SP_SLOT_ABANDONED) {
            c->counts[atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID]++;
        }
    }
    if (block != s->last) sp_block_park(block);
    return true;
}

/* The marks of the collection, as the spool's reader needs them: how far each log was read, and which calls were open. */
static sp_status note_choice(sp_collection *c, sp_error *error)
{
    sp_run *run = c->run;
    size_t open_count = 0;
    for (size_t i = 0; i < c->source_count; i++) open_count += c->sources[i].open_count;
    sp_mark *marks = malloc((c->source_count + open_count + 1) * sizeof *marks);
    if (marks == NULL) return no_memory(error);
    size_t used = 0, logs = 0;
    for (size_t i = 0; i < c->source_count; i++) {
        const source *s = &c->sources[i];
        const sp_block *stored = NULL; /* the last one: where a store was full, blocks of other memory come between */
        for (sp_block *block = s->first; block; block = following(s, block)) {
            if (block->memory == SP_BLOCK_STORED) stored = block;
        }
        if (stored) marks[used++] = sp_note_place(run, stored, readable_of(s, stored), (uint32_t)s->thread, s->stride);
    }
    logs = used;
    for (size_t i = 0; i < c->source_count && !c->last; i++) {
        const source *s = &c->sources[i];
        sp_block *block = s->first;
        for (size_t k = 0; k < s->open_count; k++) {
            const char *at = (const char *)s->open[k];
            while (block && !(at >= block->begin && at < block->end)) block = following(s, block);
            if (block == NULL) break;
            if (block->memory == SP_BLOCK_STORED) {
                marks[used++] = sp_note_place(run, block, at, (uint32_t)s->thread, s->stride);
            }
        }
    }
    sp_sort(marks + logs, used - logs, sizeof *marks, sp_mark_compare);
    pthread_mutex_lock(&run->lock);
    sp_note_collect(run, c->number, marks, logs, used - logs);
    pthread_mutex_unlock(&run->lock);
    free(marks);
    return SP_OK;
}

static sp_status choose(sp_collection *c, sp_error *error)
{
    sp_run *run = c->run;
    pthread_mutex_lock(&run->lock);
    run->chosen = true;
    sp_run_scan(run);
    c->number = ++run->collection;
    sp_status status = add_sources(c, error);
    c->region_count = run->region_count;
    pthread_mutex_unlock(&run->lock);
    if (status != SP_OK) return status;
    c->counts = calloc(c->region_count + 1, sizeof *c->counts);
    if (c->counts == NULL) return no_memory(error);
    for (size_t i = 0; i < c->source_count; i++) {
        source *s = &c->sources[i];
        for (sp_block *block = s->first; block; block = following(s, block)) {
            if (!choose_in_block(c, s, block)) return no_memory(error);
        }
    }
    c->now = sp_clock_read(); /* behind every end that was chosen */
    pthread_mutex_lock(&run->lock);
    /* Open calls that the scanner remembers must not point into blocks that are about to go. */
    for (size_t i = 0; i < c->source_count; i++) sp_log_forget_closed(c->sources[i].log);
    c->lost_pages = sp_run_lost_pages(run);
    atomic_fetch_add(&run->vanished, c->vanished);
    run->collected += c->vanished; /* no collection will have them any more */
    sp_timeline_anchor(&run->timeline, 0);
    const size_t anchors = run->timeline.count;
    c->anchors = malloc((anchors ? anchors : 1) * sizeof *c->anchors);
    if (c->anchors && anchors) memcpy(c->anchors, run->timeline.anchors, anchors * sizeof *c->anchors);
    c->timeline = (sp_timeline){.anchors = c->anchors, .count = anchors, .size = anchors,
                                .restored = run->timeline.restored, .source = run->timeline.source};
    c->thread_count = run->row_count;
    c->task_count = run->task_count;
    pthread_mutex_unlock(&run->lock);
    if (c->anchors == NULL) return no_memory(error);
    return run->store ? note_choice(c, error) : SP_OK;
}

/* ---- the profile's shape ---- */

static bool row_new(sp_collection *c, size_t id, uint32_t rank, uint64_t first)
{
    sp_profile *profile = c->profile;
    const sp_region_info *region = c->run->regions[id];
    sp_row *row = &profile->rows[profile->row_count];
    c->row_of[id] = (uint32_t)profile->row_count++;
    row->name = (uint32_t)profile->name_count;
    row->rank = rank;
    row->first = first;
    row->count = c->counts[id];
    row->source_line = region->source_line;
    row->source_file = sp_text_copy(region->source_file);
    row->source_text = sp_text_copy(region->source_text);
    row->tags = sp_text_copy(region->tags);
    profile->names[profile->name_count] = sp_text_copy(region->name);
    if (profile->names[profile->name_count] == NULL) return false;
    profile->name_count++;
    return (!region->source_file || row->source_file) && (!region->source_text || row->source_text) &&
        (!region->tags || row->tags);
}

static sp_status shape(sp_collection *c, uint32_t rank, sp_error *error)
{
    sp_profile *profile = c->profile = sp_profile_new();
    if (profile == NULL) return no_memory(error);
    size_t rows = 0;
    for (size_t id = 0; id < c->region_count; id++) rows += c->counts[id] > 0;
    profile->rows = calloc(rows ? rows : 1, sizeof *profile->rows);
    profile->names = calloc(rows ? rows : 1, sizeof *profile->names);
    c->row_of = calloc(c->region_count + 1, sizeof *c->row_of); /* a slot that goes while it is read is one of region 0 */
    if (!profile->rows || !profile->names || !c->row_of) return no_memory(error);
    pthread_mutex_lock(&c->run->lock);
    bool made = true;
    for (size_t id = 0; id < c->region_count && made; id++) {
        if (c->counts[id] == 0) continue;
        made = row_new(c, id, rank, profile->call_count);
        profile->call_count += c->counts[id];
    }
    pthread_mutex_unlock(&c->run->lock);
    return made ? SP_OK : no_memory(error);
}

/* ---- walk ---- */

/* The block's memory is not needed for this walk any more. */
static void leave_block(const sp_collection *c, const source *s, sp_block *block)
{
    sp_block_park(block);
    if (!(c->how & SP_WALK_EMPTY) || s->log->run->store || block->memory != SP_BLOCK_MAPPED || block == s->last) return;
    const bool open = s->next_open && (char *)s->open[s->next_open - 1] >= block->begin &&
        (char *)s->open[s->next_open - 1] < block->end;
    if (!open) sp_platform_empty(block->begin, block->begin + block->bytes);
}

static void next_open(source *s)
{
    s->open_slot = s->next_open < s->open_count ? s->open[s->next_open] : NULL;
}

static void leave_open(source *s)
{
    s->next_open++;
    next_open(s);
}

/* Go on with the next block that has calls; false: there is none. */
static bool next_block(const sp_collection *c, source *s)
{
    sp_block *done = s->block;
    do s->block = following(s, s->block);
    while (s->block && s->block->finished);
    leave_block(c, s, done);
    if (s->block == NULL) return false;
    s->at = s->block->begin;
    s->readable = readable_of(s, s->block);
    return true;
}

/* Move to the first chosen slot from `at` on; false at the end. */
static inline bool source_seek(const sp_collection *c, source *s, char *at)
{
    for (;; at = s->at) {
        for (; at < s->readable; at += s->stride) {
            const sp_slot *slot = (const sp_slot *)at;
            if (!is_waiting(slot)) {
                if (__builtin_expect(slot == s->open_slot, 0)) leave_open(s); /* its page has gone meanwhile */
                continue;
            }
            s->until = atomic_load_explicit(&slot->end, memory_order_relaxed);
            s->is_open = slot == s->open_slot;
            if (__builtin_expect(s->is_open, 0)) {
                leave_open(s);
                if (!c->last) continue;
                s->until = c->now;
            } else if (s->until == SP_SLOT_ABANDONED) {
                continue;
            }
            s->at = at;
            s->start = atomic_load_explicit(&slot->start, memory_order_relaxed);
            return true;
        }
        if (!next_block(c, s)) return false;
    }
}

static inline bool source_next(const sp_collection *c, source *s)
{
    return source_seek(c, s, s->at + s->stride);
}

static bool source_first(const sp_collection *c, source *s)
{
    s->cursor = (sp_timeline_cursor){.timeline = &c->timeline};
    s->next_open = 0;
    next_open(s);
    s->block = s->first;
    s->at = s->block->begin;
    s->readable = s->block->finished ? s->at : readable_of(s, s->block);
    return source_seek(c, s, s->at);
}

static bool earlier(const source *a, const source *b)
{
    return a->start != b->start ? a->start < b->start : a->thread < b->thread;
}

static void heap_sink(sp_collection *c, size_t at)
{
    source *moved = c->heap[at];
    for (;;) {
        size_t child = at * 2 + 1;
        if (child >= c->heap_count) break;
        if (child + 1 < c->heap_count && earlier(c->heap[child + 1], c->heap[child])) child++;
        if (!earlier(c->heap[child], moved)) break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = moved;
}

static void heap_fill(sp_collection *c)
{
    c->heap_count = 0;
    for (size_t i = 0; i < c->source_count; i++) {
        if (source_first(c, &c->sources[i])) c->heap[c->heap_count++] = &c->sources[i];
    }
    for (size_t i = c->heap_count; i-- > 0;) heap_sink(c, i);
}

/* The source whose turn it is after the earliest one; NULL: there is only one. */
static const source *second_earliest(const sp_collection *c)
{
    if (c->heap_count < 2) return NULL;
    return c->heap_count > 2 && earlier(c->heap[2], c->heap[1]) ? c->heap[2] : c->heap[1];
}

/* Read the call that the source is at. */
static inline void read_call(const sp_collection *c, source *s, batch *b, size_t at)
{
    const sp_slot *slot = (const sp_slot *)s->at;
    __builtin_prefetch(s->at + AHEAD);
    sp_collected *call = &b->calls[at];
    call->row = c->row_of[atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID];
    call->open = s->is_open;
    call->thread = s->thread;
    call->task = slot->task;
    b->starts[at] = s->start;
    b->ends[at] = s->until;
    const int64_t start_ns = sp_timeline_to_ns(&s->cursor, s->start);
    const int64_t end_ns = s->until == s->start ? start_ns : sp_timeline_to_ns(&s->cursor, s->until);
    call->start_ns = start_ns;
    call->end_ns = end_ns;
    call->await_ns = 0;
    if (s->stride != sizeof(sp_async_slot)) return;
    const sp_async_slot *stepped = (const sp_async_slot *)slot;
    const uint64_t await = s->is_open ? sp_run_awaited(c->run, stepped, s->until) : stepped->await;
    if (await == 0) return;
    const int64_t duration = sp_minus(end_ns, start_ns), await_ns = sp_timeline_duration(&c->timeline, await);
    call->await_ns = await_ns < duration ? await_ns : duration;
}

/* Read calls of a source, as many as the batch has room for, up to the first of another one; false: it has no more. */
static bool read_calls(sp_collection *c, source *s, const source *other, batch *b)
{
    size_t at = b->count;
    bool more;
    do {
        read_call(c, s, b, at++);
        more = source_next(c, s);
    } while (more && at < BATCH && !(other && earlier(other, s)));
    b->count = at;
    return more;
}

static bool need_frames(sp_collection *c, size_t count)
{
    if (c->frame_size - c->frame_count >= count) return true;
    const size_t size = (c->frame_count + count) * 2;
    frame *frames = realloc(c->frames, size * sizeof *frames);
    if (frames == NULL) return false;
    c->frames = frames;
    c->frame_size = size;
    return true;
}

static inline uint32_t frame_new(sp_collection *c)
{
    const uint32_t at = c->free_frame;
    if (at == SP_NO_PLACE) return (uint32_t)c->frame_count++;
    c->free_frame = c->frames[at].below;
    return at;
}

static inline void frame_free(sp_collection *c, uint32_t at)
{
    c->frames[at].below = c->free_frame;
    c->free_frame = at;
}

/* Take what ended before the call off its lane's stack, and put the call there. */
static inline void nest(sp_collection *c, uint32_t *top, sp_collected *call, sp_ticks start, sp_ticks end)
{
    frame *const frames = c->frames;
    const int64_t duration = sp_minus(call->end_ns, call->start_ns);
    uint32_t enclosing = *top, place = SP_NO_PLACE;
    while (enclosing != SP_NO_PLACE && frames[enclosing].end <= start) {
        if (place != SP_NO_PLACE) frame_free(c, place);
        place = enclosing;
        enclosing = frames[enclosing].below;
    }
    if (place == SP_NO_PLACE) place = frame_new(c);
    call->parent_id = SP_UNKNOWN;
    if (enclosing != SP_NO_PLACE) {
        const frame *around = &frames[enclosing];
        if (around->end < end) c->nested = false;
        c->own_ns[around->row] = sp_minus(c->own_ns[around->row], duration);
        call->parent_id = around->call_id;
    }
    c->own_ns[call->row] = sp_plus(c->own_ns[call->row], duration);
    frames[place].below = enclosing;
    frames[place].row = call->row;
    frames[place].call_id = call->call_id;
    frames[place].end = end;
    call->place = place;
    call->above = enclosing;
    *top = place;
}

static void nest_calls(sp_collection *c, batch *b)
{
    const bool lanes = c->run->tracks_threads;
    for (size_t i = 0; i < b->count; i++) {
        sp_collected *call = &b->calls[i];
        call->call_id = c->next_call_id + (int64_t)i;
        uint32_t *top = !lanes ? &c->thread_top[0] : call->task >= 0 ? &c->task_top[call->task] : &c->thread_top[call->thread];
        nest(c, top, call, b->starts[i], b->ends[i]);
    }
    c->next_call_id += (int64_t)b->count;
}

/* Calls without a place in a tree. */
static void scatter_calls(batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        sp_collected *call = &b->calls[i];
        call->place = call->above = SP_NO_PLACE;
        call->call_id = call->parent_id = SP_UNKNOWN;
    }
}

static void hand_out(sp_collection *c, batch *b)
{
    const bool tree = c->how & SP_WALK_TREE;
    if (tree && need_frames(c, b->count)) {
        nest_calls(c, b);
    } else {
        scatter_calls(b);
        if (tree) c->nested = false; /* no memory for the tree: the calls themselves are still reported */
    }
    if (b->count) b->sink(b->context, b->calls, b->count, (uint32_t)c->frame_count);
    b->count = 0;
}

static void walk_begin(sp_collection *c, unsigned how)
{
    c->how = how;
    c->nested = true;
    c->next_call_id = c->first_call_id;
    c->frame_count = 0;
    c->free_frame = SP_NO_PLACE;
    memset(c->thread_top, 0xff, (c->thread_count + 1) * sizeof *c->thread_top);
    memset(c->task_top, 0xff, (c->task_count + 1) * sizeof *c->task_top);
    memset(c->own_ns, 0, (c->profile->row_count + 1) * sizeof *c->own_ns);
    heap_fill(c);
}

bool sp_collection_walk(sp_collection *c, unsigned how, sp_collected_sink sink, void *context)
{
    batch b = {.sink = sink, .context = context};
    walk_begin(c, how);
    while (c->heap_count) {
        source *s = c->heap[0];
        const bool more = read_calls(c, s, second_earliest(c), &b);
        if (b.count == BATCH) hand_out(c, &b);
        if (!more) c->heap[0] = c->heap[--c->heap_count];
        if (c->heap_count > 1) heap_sink(c, 0);
    }
    hand_out(c, &b);
    const bool known = how & SP_WALK_TREE && c->nested;
    for (size_t i = 0; i < c->profile->row_count; i++) c->profile->rows[i].exclusive_total = known ? c->own_ns[i] : SP_UNKNOWN;
    if (how & SP_WALK_TREE) c->profile->nested = c->nested;
    return c->nested;
}

void sp_collection_durations(sp_collection *c, const bool *wanted, sp_duration_sink sink, void *context)
{
    c->how = 0;
    for (size_t i = 0; i < c->source_count; i++) {
        source *s = &c->sources[i];
        for (bool more = source_first(c, s); more; more = source_next(c, s)) {
            const sp_slot *slot = (const sp_slot *)s->at;
            const uint32_t row = c->row_of[atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID];
            if (!wanted[row]) continue;
            const int64_t start_ns = sp_timeline_to_ns(&s->cursor, s->start);
            sink(context, row, s->until == s->start ? 0 : sp_timeline_to_ns(&s->cursor, s->until) - start_ns);
        }
    }
}

/* ---- begin and end ---- */

static bool tops_new(sp_collection *c)
{
    c->thread_top = malloc((c->thread_count + 1) * sizeof *c->thread_top);
    c->task_top = malloc((c->task_count + 1) * sizeof *c->task_top);
    c->own_ns = malloc((c->profile->row_count + 1) * sizeof *c->own_ns);
    return c->thread_top && c->task_top && c->own_ns;
}

static void collection_free(sp_collection *c)
{
    pthread_mutex_lock(&c->run->lock);
    c->run->chosen = false;
    pthread_mutex_unlock(&c->run->lock);
    pthread_mutex_unlock(&c->run->collecting);
    for (size_t i = 0; i < c->source_count; i++) free(c->sources[i].open);
    sp_profile_release(c->profile);
    free(c->sources);
    free(c->heap);
    free(c->anchors);
    free(c->counts);
    free(c->row_of);
    free(c->own_ns);
    free(c->frames);
    free(c->thread_top);
    free(c->task_top);
    free(c);
}

static sp_status begin(sp_run *run, uint32_t rank, int64_t first_call_id, bool last, sp_collection **out, sp_error *error)
{
    sp_collection *c = calloc(1, sizeof *c);
    if (c == NULL) return no_memory(error);
    c->run = run;
    c->last = last;
    c->first_call_id = first_call_id;
    pthread_mutex_lock(&run->collecting);
    sp_fork_hold_first();
    sp_status status = choose(c, error);
    if (status == SP_OK) status = shape(c, rank, error);
    if (status == SP_OK) status = sp_run_tables(run, rank, c->profile, error);
    if (status == SP_OK && !tops_new(c)) status = no_memory(error);
    sp_fork_release();
    if (status == SP_OK) *out = c;
    else collection_free(c);
    return status;
}

sp_status sp_collection_begin(sp_run *run, uint32_t rank, int64_t first_call_id, sp_collection **out, sp_error *error)
{
    return begin(run, rank, first_call_id, false, out, error);
}

sp_status sp_collection_begin_last(sp_run *run, uint32_t rank, int64_t first_call_id, sp_collection **out, sp_error *error)
{
    return begin(run, rank, first_call_id, true, out, error);
}

/* ---- marks of open calls ---- */

static const char closed_mark[] = "{},", open_mark[] = "{\"open\":true},";

/* Where the next mark of each row goes; NULL: no call of it is open. */
static void put_marks(void *context, const sp_collected *calls, size_t count, uint32_t places)
{
    for (size_t i = 0; i < count; i++) {
        char **at = (char **)context + calls[i].row;
        if (*at == NULL) continue;
        const size_t size = calls[i].open ? sizeof open_mark - 1 : sizeof closed_mark - 1;
        memcpy(*at, calls[i].open ? open_mark : closed_mark, size);
        *at += size;
    }
}

sp_status sp_collection_mark_open(sp_collection *c, sp_error *error)
{
    const size_t rows = c->profile->row_count;
    uint64_t *open = calloc(rows + 1, sizeof *open), all = 0;
    char **at = calloc(rows + 1, sizeof *at);
    bool enough = open && at;
    for (size_t i = 0; enough && i < c->source_count; i++) {
        for (size_t k = 0; k < c->sources[i].open_count; k++, all++) {
            open[c->row_of[atomic_load_explicit(&c->sources[i].open[k]->region, memory_order_relaxed) & SP_REGION_ID]]++;
        }
    }
    for (size_t i = 0; enough && i < rows; i++) {
        sp_row *row = &c->profile->rows[i];
        if (open[i] == 0) continue;
        row->event_metadata = malloc(2 + row->count * (sizeof closed_mark - 1) + open[i] * (sizeof open_mark - sizeof closed_mark));
        enough = row->event_metadata != NULL;
        if (enough) row->event_metadata[0] = '[';
        if (enough) at[i] = row->event_metadata + 1;
    }
    if (enough && all) sp_collection_walk(c, 0, put_marks, at);
    for (size_t i = 0; enough && i < rows; i++) {
        if (at[i]) memcpy(at[i] - 1, "]", 2); /* in the place of the last comma */
    }
    free(open);
    free(at);
    return enough ? SP_OK : no_memory(error);
}

sp_profile *sp_collection_profile(const sp_collection *c)
{
    return c->profile;
}

sp_run *sp_collection_run(const sp_collection *c)
{
    return c->run;
}

sp_status sp_collection_check(const sp_collection *c, sp_error *error)
{
    if (sp_run_lost_pages(c->run) == c->lost_pages) return SP_OK;
    return sp_fail(error, SP_ERR_IO, "the spool was cut off, or its disk failed, while calls were taken from it");
}

uint32_t sp_collection_number(const sp_collection *c)
{
    return c->number;
}

/*
 * Mark what was chosen. A full block of which nothing was open is marked as a whole: its pages are not touched, which of a
 * store's would have to be written to the disk again.
 */
static void mark_source(source *s, bool reported)
{
    size_t next = 0;
    for (sp_block *block = s->first; block; block = following(s, block)) {
        if (block->finished) continue;
        const bool open = next < s->open_count && (char *)s->open[next] >= block->begin && (char *)s->open[next] < block->end;
        block->finished = !open && block != s->last;
        if (block->finished) continue;
        const char *readable = readable_of(s, block);
        for (char *at = block->begin; at < readable; at += s->stride) {
            sp_slot *slot = (sp_slot *)at;
            const bool was_open = next < s->open_count && s->open[next] == slot;
            next += was_open;
            if (was_open || !is_waiting(slot)) continue;
            const bool abandoned = atomic_load_explicit(&slot->end, memory_order_relaxed) == SP_SLOT_ABANDONED;
            const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed);
            atomic_store_explicit(&slot->region, reported || abandoned ? SP_REGION_DONE : region | SP_REGION_KEPT,
                                  memory_order_relaxed);
        }
    }
}

static bool log_is_spent(const sp_log *log)
{
    if (!log->orphaned) return false;
    if (log->head == NULL) return true;
    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    if (log->head != log->scan_block || log->scan_next != next) return false;
    for (const char *at = log->head->begin; at < next; at += log->stride) {
        const sp_slot *slot = (const sp_slot *)at;
        if (atomic_load_explicit(&slot->start, memory_order_relaxed) == 0) continue;
        if (atomic_load_explicit(&slot->region, memory_order_relaxed) != SP_REGION_DONE) return false;
    }
    return true;
}

static void take_blocks(sp_log *log)
{
    sp_block *kept = NULL;
    for (sp_block *block = log->head; block;) {
        sp_block *next = atomic_load_explicit(&block->next, memory_order_acquire);
        if (!block->finished) {
            kept = block;
        } else {
            if (kept) atomic_store_explicit(&kept->next, next, memory_order_release);
            else log->head = next;
            sp_block_free(block);
        }
        block = next;
    }
}

/* With the locks of the registry and the run. */
static sp_log *take_spent_logs(sp_run *run)
{
    sp_log *spent = NULL;
    for (sp_log **link = &run->logs; *link;) {
        sp_log *log = *link;
        if (!log_is_spent(log)) {
            link = &log->next_of_run;
            continue;
        }
        *link = log->next_of_run;
        log->next_of_run = spent;
        spent = log;
    }
    return spent;
}

static void free_logs(sp_log *spent)
{
    while (spent) {
        sp_log *log = spent;
        spent = log->next_of_run;
        sp_log_free(log);
    }
}

/* Give back the blocks and logs of which everything is reported. With the locks of the registry and the run. */
static void clean_up(sp_run *run)
{
    for (sp_log *log = run->logs; log; log = log->next_of_run) take_blocks(log);
    free_logs(take_spent_logs(run));
}

static void lock_all(sp_run *run)
{
    sp_registry_lock();
    pthread_mutex_lock(&run->lock);
}

static void unlock_all(sp_run *run)
{
    pthread_mutex_unlock(&run->lock);
    sp_registry_unlock();
}

void sp_collection_keep(sp_collection *c)
{
    sp_run *run = c->run;
    sp_fork_hold_first();
    for (size_t i = 0; i < c->source_count; i++) mark_source(&c->sources[i], run->store == NULL);
    lock_all(run);
    run->collected += c->profile->call_count;
    run->kept = run->store != NULL;
    if (run->store == NULL) clean_up(run);
    unlock_all(run);
    sp_fork_release();
    collection_free(c);
}

void sp_collection_confirm(sp_collection *c)
{
    sp_run *run = c->run;
    sp_fork_hold_first();
    pthread_mutex_lock(&run->lock);
    run->reported = true;
    sp_note(run, SP_NOTE_CONFIRM, c->number, "");
    pthread_mutex_unlock(&run->lock);
    for (size_t i = 0; i < c->source_count; i++) mark_source(&c->sources[i], true);
    lock_all(run);
    run->collected += c->profile->call_count;
    clean_up(run);
    unlock_all(run);
    sp_fork_release();
    collection_free(c);
}

void sp_collection_abandon(sp_collection *c)
{
    if (c) collection_free(c);
}

/* ---- what was kept is in a file now ---- */

static void confirm_log(sp_log *log)
{
    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    for (sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
        if (block->finished) continue;
        const char *readable = sp_block_readable(block, next);
        for (char *at = block->begin; at < readable; at += log->stride) {
            sp_slot *slot = (sp_slot *)at;
            const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed);
            if (region == SP_REGION_DONE || !(region & SP_REGION_KEPT)) continue;
            atomic_store_explicit(&slot->region, SP_REGION_DONE, memory_order_relaxed);
        }
        if (readable == next) break;
        sp_block_park(block);
    }
}

void sp_run_confirm(sp_run *run)
{
    if (run->store == NULL) return;
    pthread_mutex_lock(&run->collecting);
    lock_all(run);
    run->reported = true;
    run->kept = false;
    sp_note(run, SP_NOTE_CONFIRM, run->collection, "");
    if (run->sums) {
        sp_run_forget_totals(run);
    } else {
        for (sp_log *log = run->logs; log; log = log->next_of_run) confirm_log(log);
        clean_up(run);
    }
    unlock_all(run);
    pthread_mutex_unlock(&run->collecting);
}
