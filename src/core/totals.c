#include "core/totals.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/note.h"
#include "platform/platform.h"

#define FRAMES_PER_BLOCK 64

#define RELAXED memory_order_relaxed

static inline uint64_t get(const _Atomic(uint64_t) *word)
{
    return atomic_load_explicit(word, RELAXED);
}

static inline void put(_Atomic(uint64_t) *word, uint64_t value)
{
    atomic_store_explicit(word, value, RELAXED);
}

/* ---- adding ---- */

static void page_init(sp_total_page *page)
{
    for (size_t i = 0; i < SP_TOTALS_PER_PAGE; i++) {
        page->totals[i].minimum = page->totals[i].first_start = UINT64_MAX;
    }
}

void sp_total_page_blank(sp_total_page *page)
{
    page_init(page);
    page->stored = 1;
}

static sp_total_page *page_new(sp_run *run, uint32_t row)
{
    sp_total_page *page = run->spare_pages;
    if (page) {
        run->spare_pages = page->next;
        return page;
    }
    size_t bytes = sizeof *page;
    page = run->store ? run->store->operations->map(run->store, SP_CHUNK_TOTALS, row, sizeof(sp_total), &bytes) : NULL;
    const bool stored = page != NULL;
    if (page == NULL) page = calloc(1, sizeof *page);
    if (page == NULL) return NULL;
    page->stored = stored;
    page_init(page);
    return page;
}

static bool regions_grow(sp_totals *totals, uint32_t region)
{
    size_t limit = totals->limit ? totals->limit : (size_t)4 * SP_TOTALS_PER_PAGE;
    while (limit <= region) limit *= 2;
    sp_total **regions = realloc(totals->regions, limit * sizeof *regions);
    if (regions == NULL) return false;
    memset(regions + totals->limit, 0, (limit - totals->limit) * sizeof *regions);
    totals->regions = regions;
    totals->limit = limit;
    return true;
}

/* The page that begins with the region of this id, if there is one. */
static inline sp_total_page *page_at(const sp_totals *totals, size_t region)
{
    sp_total *first = totals->regions[region];
    return first ? (sp_total_page *)((char *)first - offsetof(sp_total_page, totals)) : NULL;
}

/* A region that its thread has not called since the last collection; NULL: there is no memory. */
static SP_NOINLINE sp_total *total_add(sp_log *log, sp_totals *totals, uint32_t region)
{
    const int saved = errno;
    const uint32_t index = region / SP_TOTALS_PER_PAGE;
    sp_run *run = log->run;
    sp_total_page *page = NULL;
    pthread_mutex_lock(&run->lock);
    if (region < totals->limit || regions_grow(totals, region)) page = page_new(run, (uint32_t)log->row->index);
    if (page) {
        atomic_store_explicit(&page->index, index, RELAXED);
        for (size_t i = 0; i < SP_TOTALS_PER_PAGE; i++) totals->regions[(size_t)index * SP_TOTALS_PER_PAGE + i] = &page->totals[i];
    }
    pthread_mutex_unlock(&run->lock);
    errno = saved;
    return page ? &page->totals[region % SP_TOTALS_PER_PAGE] : NULL;
}

static inline void add_to(sp_total *total, sp_ticks start, sp_ticks end, uint64_t own)
{
    const uint64_t duration = end - start;
    if (SP_UNLIKELY(duration < total->minimum)) total->minimum = duration;
    if (SP_UNLIKELY(duration > total->maximum)) total->maximum = duration;
    if (SP_LIKELY(start >= total->last_start)) {
        total->last_start = start;
        total->last = duration;
    }
    if (SP_UNLIKELY(start < total->first_start)) {
        total->first_start = start;
        total->first = duration;
    }
    total->last_end = end; /* a thread adds in order of the ends */
    const uint64_t version = get(&total->version);
    const sp_sums *from = (const sp_sums *)((const char *)total->sums + version % (2 * SP_VERSION_STEP));
    sp_sums *to = (sp_sums *)((char *)total->sums + (version + SP_VERSION_STEP) % (2 * SP_VERSION_STEP));
    put(&to->count, get(&from->count) + 1);
    to->total = from->total + duration;
    to->own = from->own + own;
    to->squares = from->squares + (unsigned __int128)duration * duration;
    atomic_store_explicit(&total->version, version + SP_VERSION_STEP, memory_order_release);
}

/* The totals of the calling thread, whose tally this is, which a collector does not take from now until end_adding. */
static inline sp_totals *begin_adding(sp_tally *tally)
{
    atomic_store_explicit(&tally->adding, 1, RELAXED);
    atomic_signal_fence(memory_order_seq_cst); /* the collector puts a real one here: sp_platform_barrier */
    return atomic_load_explicit(&tally->totals, memory_order_acquire);
}

static inline void end_adding(sp_tally *tally)
{
    atomic_store_explicit(&tally->adding, 0, memory_order_release);
}

static inline sp_total *total_of(const sp_totals *totals, uint32_t region)
{
    return SP_LIKELY(region < totals->limit) ? totals->regions[region] : NULL;
}

/* Add a call to the totals of the calling thread, whose log this is. It may be one that took less than no time: two threads read the clock. */
static SP_NOINLINE void add(sp_log *log, const sp_frame *frame, sp_ticks now)
{
    sp_tally *tally = log->tally;
    const uint32_t region = atomic_load_explicit(&frame->call.region, RELAXED);
    const sp_ticks start = atomic_load_explicit(&frame->call.start, RELAXED);
    const sp_ticks end = now > start ? now : start;
    const uint64_t inner = get(&frame->inner);
    sp_totals *totals = begin_adding(tally);
    if (!sp_platform_barriers) {
        atomic_thread_fence(memory_order_seq_cst);
        totals = atomic_load_explicit(&tally->totals, memory_order_acquire);
    }
    sp_total *total = total_of(totals, region);
    if (total == NULL) total = total_add(log, totals, region);
    if (total) add_to(total, start, end, end - start > inner ? end - start - inner : 0);
    else atomic_fetch_add_explicit(&log->lost, 1, RELAXED);
    end_adding(tally);
}

/* ---- stacks ---- */

static size_t bucket_of(const sp_tally *tally, const void *key)
{
    return (size_t)(((uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (tally->waiting_size - 1);
}

static void stack_spare(sp_tally *tally, sp_stack *stack)
{
    stack->next = tally->spare;
    tally->spare = stack;
}

static sp_stack *stack_new(sp_tally *tally, const void *key)
{
    sp_stack *stack = tally->spare;
    if (stack) tally->spare = stack->next;
    else stack = malloc(sizeof *stack);
    if (stack) *stack = (sp_stack){.key = key};
    return stack;
}

static bool waiting_grow(sp_tally *tally)
{
    const size_t old = tally->waiting_size, size = old ? old * 2 : 16;
    sp_stack **before = tally->waiting, **buckets = calloc(size, sizeof *buckets);
    if (buckets == NULL) return false;
    tally->waiting = buckets;
    tally->waiting_size = size;
    for (size_t i = 0; i < old; i++) {
        for (sp_stack *stack = before[i], *next; stack; stack = next) {
            next = stack->next;
            sp_stack **bucket = &buckets[bucket_of(tally, stack->key)];
            stack->next = *bucket;
            *bucket = stack;
        }
    }
    free(before);
    return true;
}

static bool stack_wait(sp_tally *tally, sp_stack *stack)
{
    if (tally->waiting_count >= tally->waiting_size && !waiting_grow(tally)) return false;
    sp_stack **bucket = &tally->waiting[bucket_of(tally, stack->key)];
    stack->next = *bucket;
    *bucket = stack;
    tally->waiting_count++;
    return true;
}

static bool stack_unlink(sp_tally *tally, const sp_stack *stack)
{
    if (tally->waiting_count == 0) return false;
    for (sp_stack **link = &tally->waiting[bucket_of(tally, stack->key)]; *link; link = &(*link)->next) {
        if (*link != stack) continue;
        *link = stack->next;
        tally->waiting_count--;
        return true;
    }
    return false;
}

static sp_stack *stack_find(const sp_tally *tally, const void *key)
{
    if (tally->waiting_count == 0) return NULL;
    sp_stack *stack = tally->waiting[bucket_of(tally, key)];
    while (stack && stack->key != key) stack = stack->next;
    return stack;
}

void sp_tally_set_lane(sp_log *log, const void *key)
{
    sp_tally *tally = log->tally;
    sp_stack *current = tally->stack;
    if (current->key == key) return;
    sp_stack *found = stack_find(tally, key);
    if (found == NULL && current->top == NULL) {
        current->key = key;
        return;
    }
    sp_stack *next = found ? found : stack_new(tally, key);
    if (next == NULL) return; /* calls of both lanes are then nested by time alone */
    if (found) stack_unlink(tally, found);
    if (current->top == NULL) {
        stack_spare(tally, current);
    } else if (!stack_wait(tally, current)) {
        if (found) stack_wait(tally, found);
        else stack_spare(tally, next);
        return;
    }
    tally->stack = next;
}

/* A lane that waits has no open call left. */
static void stack_emptied(sp_tally *tally, sp_stack *stack)
{
    if (stack != tally->stack && stack_unlink(tally, stack)) stack_spare(tally, stack);
}

/* ---- frames ---- */

static inline bool has_ended(const sp_frame *frame)
{
    return atomic_load_explicit(&frame->call.end, memory_order_acquire) != SP_SLOT_OPEN;
}

static inline void charge(sp_frame *outer, const sp_frame *frame, sp_ticks until)
{
    if (outer && until > frame->since) put(&outer->inner, get(&outer->inner) + (until - frame->since));
}

/* A call that ended on another thread; one that was given up never was, and what was inside it is inside what was around. */
static void settle(sp_frame *outer, sp_frame *frame, sp_ticks end)
{
    if (end != SP_SLOT_ABANDONED) charge(outer, frame, end);
    else if (outer) put(&outer->inner, get(&outer->inner) + get(&frame->inner));
    put(&frame->inner, 0);
}

/* `start` is stored last: after that the block may go, if the log is one of a dropped run. */
static inline void frame_free(sp_tally *tally, sp_frame *frame)
{
    frame->outer = tally->free;
    tally->free = frame;
    atomic_store_explicit(&frame->call.start, 0, memory_order_release);
}

/* Free first: a reader may not take it for an open call. */
static void frame_free_ended(sp_tally *tally, sp_frame *frame)
{
    atomic_store_explicit(&frame->call.start, 0, RELAXED);
    atomic_store_explicit(&frame->call.end, SP_SLOT_OPEN, memory_order_release);
    frame_free(tally, frame);
}

/* Frames of calls that ended on other threads, or were given up, on top of a stack. */
static SP_NOINLINE void take_off_ended(sp_tally *tally, sp_stack *stack)
{
    sp_frame *frame = stack->top;
    while (frame && has_ended(frame)) {
        sp_frame *outer = frame->outer;
        const sp_ticks end = atomic_load_explicit(&frame->call.end, RELAXED);
        settle(outer, frame, end);
        frame_free_ended(tally, frame);
        frame = outer;
    }
    stack->top = frame;
}

static SP_NOINLINE bool frames_add(sp_log *log)
{
    const int saved = errno;
    sp_block *block = calloc(1, sizeof *block);
    sp_frame *frames = block ? calloc(FRAMES_PER_BLOCK, sizeof *frames) : NULL;
    errno = saved;
    if (frames == NULL) {
        free(block);
        atomic_fetch_add_explicit(&log->lost, 1, RELAXED);
        return false;
    }
    block->memory = SP_BLOCK_HEAP;
    block->bytes = FRAMES_PER_BLOCK * sizeof *frames;
    block->begin = (char *)frames;
    block->end = (char *)(frames + FRAMES_PER_BLOCK);
    for (size_t i = FRAMES_PER_BLOCK; i-- > 0;) {
        frames[i].call.task = SP_SUMMED_TASK;
        frames[i].outer = log->tally->free;
        log->tally->free = &frames[i];
    }
    pthread_mutex_lock(&log->run->lock);
    atomic_store_explicit(&block->next, log->head, RELAXED);
    log->head = block;
    pthread_mutex_unlock(&log->run->lock);
    return true;
}

sp_slot *sp_frame_push_otherwise(sp_log *log, uint32_t region)
{
    sp_tally *tally = log->tally;
    if (tally->free == NULL && !frames_add(log)) return NULL;
    const sp_frame *outer = tally->stack->top;
    if (outer && has_ended(outer)) take_off_ended(tally, tally->stack);
    return sp_frame_put(tally, region, false);
}

sp_slot *sp_frame_enter(sp_log *log, uint32_t region)
{
    return sp_frame_push(log, region);
}

/*
 * The frame is not on top: calls that began in this one, such as a generator's, outlive it. They were inside up to now, and
 * from now on are inside what was around.
 */
static SP_NOINLINE void take_from_middle(sp_tally *tally, sp_frame *frame, sp_ticks now)
{
    sp_frame *above = frame->above;
    while (above != frame->stack->top && has_ended(above)) {
        sp_frame *next = above->above;
        const sp_ticks end = atomic_load_explicit(&above->call.end, RELAXED);
        settle(frame, above, end);
        next->outer = frame;
        frame_free_ended(tally, above);
        above = next;
    }
    const sp_ticks end = atomic_load_explicit(&above->call.end, memory_order_acquire);
    if (end == SP_SLOT_ABANDONED) settle(frame, above, end);
    else charge(frame, above, end == SP_SLOT_OPEN || end > now ? now : end);
    if (now > above->since) above->since = now;
    above->outer = frame->outer;
    if (frame->outer) frame->outer->above = above;
}

/* The clock's anchors, which turn ticks into ns, are few here: memory must not grow with time either. */
#define ANCHORS_LEFT_OUT 50

static SP_NOINLINE void anchor(sp_log *log, sp_ticks now)
{
    if (!sp_platform_barriers && log->run->timeline.count && now < log->run->timeline.due) return;
    const int saved = errno;
    sp_run *run = log->run;
    pthread_mutex_lock(&run->lock);
    const sp_ticks due = sp_timeline_anchor(&run->timeline, SP_ANCHOR_INTERVAL_NS * ANCHORS_LEFT_OUT);
    sp_note_anchors(run);
    pthread_mutex_unlock(&run->lock);
    /* Never in the future where no barrier comes from outside: then every exit comes here, and has one. */
    log->anchor_due = !sp_platform_barriers ? 0 : due > now ? now + (due - now) * ANCHORS_LEFT_OUT : now + 1;
    errno = saved;
}

/* Any exit on the thread that has the frame's stack. */
static SP_NOINLINE void exit_here(sp_log *log, sp_frame *frame, sp_ticks now)
{
    sp_tally *tally = log->tally;
    sp_stack *stack = frame->stack;
    if (now >= log->anchor_due) anchor(log, now);
    if (stack->top == frame) stack->top = frame->outer;
    else take_from_middle(tally, frame, now);
    charge(frame->outer, frame, now);
    add(log, frame, now);
    if (stack->top == NULL) stack_emptied(tally, stack);
    frame_free(tally, frame);
}

/* The same in a straight line, for almost all calls: nothing else is called that would come back. */
void sp_frame_exit(sp_log *log, sp_slot *slot, sp_ticks now)
{
    sp_frame *frame = (sp_frame *)slot;
    sp_tally *tally = log->tally;
    sp_stack *stack = tally->stack;
    const uint32_t region = atomic_load_explicit(&frame->call.region, RELAXED);
    const sp_ticks start = atomic_load_explicit(&frame->call.start, RELAXED);
    const uint64_t inner = get(&frame->inner);
    if (SP_UNLIKELY(stack->top != frame || now >= log->anchor_due || now < start + inner)) {
        exit_here(log, frame, now);
        return;
    }
    const sp_totals *totals = begin_adding(tally);
    sp_total *total = total_of(totals, region);
    if (SP_UNLIKELY(total == NULL)) {
        end_adding(tally);
        exit_here(log, frame, now);
        return;
    }
    add_to(total, start, now, now - start - inner);
    end_adding(tally);
    sp_frame *outer = frame->outer;
    stack->top = outer;
    if (outer) put(&outer->inner, get(&outer->inner) + (now - frame->since));
    frame_free(tally, frame);
}

void sp_frame_exit_elsewhere(sp_log *log, sp_slot *slot, sp_ticks now)
{
    sp_frame *frame = (sp_frame *)slot;
    if (sp_this_thread && atomic_load_explicit(&log->thread, RELAXED) == sp_this_thread) {
        exit_here(log, frame, now);
        return;
    }
    /* The call is added here, and its frame left to the thread that has its stack. */
    const int saved = errno;
    sp_log *mine = sp_log_current(log->token);
    if (mine) add(mine, frame, now);
    else atomic_fetch_add_explicit(&log->run->lost, 1, RELAXED);
    errno = saved;
    atomic_store_explicit(&frame->call.end, now, memory_order_release);
}

/* ---- tallies ---- */

static sp_totals *totals_new(void)
{
    return calloc(1, sizeof(sp_totals));
}

bool sp_tally_new(sp_log *log)
{
    sp_tally *tally = calloc(1, sizeof *tally);
    if (tally == NULL) return false;
    tally->stack = stack_new(tally, NULL);
    atomic_init(&tally->totals, totals_new());
    if (tally->stack == NULL || atomic_load_explicit(&tally->totals, RELAXED) == NULL) {
        free(tally->stack);
        free(atomic_load_explicit(&tally->totals, RELAXED));
        free(tally);
        return false;
    }
    log->tally = tally;
    log->limit = SP_NO_BLOCK;
    atomic_store_explicit(&log->next, SP_NO_BLOCK, RELAXED);
    return true;
}

static void page_free(const sp_run *run, sp_total_page *page)
{
    if (page == NULL) return;
    if (page->stored) run->store->operations->drop(run->store, page, sizeof *page);
    else free(page);
}

static void totals_free(const sp_run *run, sp_totals *totals)
{
    for (size_t id = 0; id < totals->limit; id += SP_TOTALS_PER_PAGE) page_free(run, page_at(totals, id));
    free(totals->regions);
    free(totals);
}

void sp_tally_free(sp_log *log)
{
    sp_tally *tally = log->tally;
    if (tally == NULL) return;
    log->tally = NULL;
    totals_free(log->run, atomic_load_explicit(&tally->totals, RELAXED));
    for (size_t i = 0; i < tally->waiting_size; i++) {
        for (sp_stack *stack = tally->waiting[i], *next; stack; stack = next) {
            next = stack->next;
            free(stack);
        }
    }
    for (sp_stack *stack = tally->spare, *next; stack; stack = next) {
        next = stack->next;
        free(stack);
    }
    free(tally->waiting);
    free(tally->stack);
    free(tally);
}

bool sp_tally_hand_over(sp_log *log)
{
    sp_tally *tally = log->tally;
    tally->context = NULL;
    take_off_ended(tally, tally->stack);
    if (tally->stack->top == NULL) {
        tally->stack->key = NULL;
        return true;
    }
    /* What the thread before left open encloses no call of another: its stack waits, under a key that is nobody's. */
    sp_stack *stack = stack_new(tally, NULL);
    if (stack == NULL) return false;
    tally->stack->key = tally->stack;
    if (!stack_wait(tally, tally->stack)) {
        stack_spare(tally, stack);
        return false;
    }
    tally->stack = stack;
    return true;
}

void sp_tally_orphan(sp_log *log)
{
    if (log->tally) atomic_store_explicit(&log->tally->adding, 0, RELAXED);
}

/* ---- reading ---- */

static void merge(sp_summed *into, const sp_summed *from)
{
    const bool none = into->count == 0;
    if (from->count == 0) return;
    if (none || from->minimum < into->minimum) into->minimum = from->minimum;
    if (none || from->maximum > into->maximum) into->maximum = from->maximum;
    if (none || from->first_start < into->first_start) {
        into->first_start = from->first_start;
        into->first = from->first;
    }
    if (none || from->last_start >= into->last_start) {
        into->last_start = from->last_start;
        into->last = from->last;
    }
    if (none || from->last_end > into->last_end) into->last_end = from->last_end;
    into->count += from->count;
    into->total += from->total;
    into->own += from->own;
    into->squares += from->squares;
}

static const sp_sums *sums_of(const sp_total *total)
{
    return &total->sums[atomic_load_explicit(&total->version, memory_order_acquire) / SP_VERSION_STEP % 2];
}

void sp_summed_add(sp_summed *sum, const sp_total *total)
{
    const sp_sums *sums = sums_of(total);
    const sp_summed one = {.count = get(&sums->count), .total = sums->total, .own = sums->own, .squares = sums->squares,
                           .minimum = total->minimum, .maximum = total->maximum, .first = total->first,
                           .last = total->last, .first_start = total->first_start, .last_start = total->last_start,
                           .last_end = total->last_end};
    merge(sum, &one);
}

static uint64_t count_of(const sp_total *total)
{
    return get(&sums_of(total)->count);
}

size_t sp_tally_open_calls(const sp_log *log, uint32_t *ids, size_t room)
{
    size_t count = 0;
    for (const sp_block *block = log->head; block && count < room; block = atomic_load_explicit(&block->next, RELAXED)) {
        for (const sp_frame *frame = (const sp_frame *)block->begin; (const char *)frame < block->end && count < room; frame++) {
            if (!sp_slot_is_open(&frame->call)) continue;
            if (ids) ids[count] = atomic_load_explicit(&frame->call.region, RELAXED);
            count++;
        }
    }
    return count;
}

/* Calls that are open now have entered too. */
static void count_open(sp_run *run, const sp_log *log)
{
    for (const sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, RELAXED)) {
        for (const sp_frame *frame = (const sp_frame *)block->begin; (const char *)frame < block->end; frame++) {
            if (!sp_slot_is_open(&frame->call)) continue;
            run->regions[atomic_load_explicit(&frame->call.region, RELAXED)]->entries++;
            run->scanned++;
        }
    }
}

void sp_run_count_totals(sp_run *run)
{
    run->scanned = 0;
    for (size_t i = 0; i < run->region_count; i++) {
        run->regions[i]->entries = run->regions[i]->taken;
        run->scanned += run->regions[i]->taken;
    }
    for (const sp_log *log = run->logs; log; log = log->next_of_run) {
        const sp_totals *totals = atomic_load_explicit(&log->tally->totals, memory_order_acquire);
        for (size_t id = 0; id < run->region_count && id < totals->limit; id++) {
            const uint64_t count = totals->regions[id] ? count_of(totals->regions[id]) : 0;
            run->regions[id]->entries += count;
            run->scanned += count;
        }
        count_open(run, log);
    }
}

static uint64_t totals_left(const sp_totals *totals, bool unstored_only)
{
    uint64_t left = 0;
    for (size_t id = 0; id < totals->limit; id += SP_TOTALS_PER_PAGE) {
        const sp_total_page *page = page_at(totals, id);
        if (page == NULL || (unstored_only && page->stored)) continue;
        for (size_t k = 0; k < SP_TOTALS_PER_PAGE; k++) left += count_of(&page->totals[k]);
    }
    return left;
}

uint64_t sp_run_totals_left(const sp_run *run, bool unstored_only)
{
    uint64_t left = 0;
    for (const sp_log *log = run->logs; log; log = log->next_of_run) {
        left += totals_left(atomic_load_explicit(&log->tally->totals, memory_order_acquire), unstored_only);
    }
    for (const sp_totals *totals = run->taken_totals; totals; totals = totals->next) left += totals_left(totals, unstored_only);
    for (size_t id = 0; id < run->given_back_count && run->store == NULL; id++) left += run->given_back[id].count;
    return left;
}

/* ---- collections ---- */

/* The totals that go out, in the order of the run's logs, and what comes in for them. */
typedef struct exchange {
    sp_log **logs;
    sp_totals **out, **in;
    size_t count;
    sp_summed *sums;
    size_t regions;
} exchange;

static void exchange_free(exchange *e)
{
    for (size_t i = 0; e->in && i < e->count; i++) free(e->in[i]);
    free(e->logs);
    free(e->out);
    free(e->in);
}

/* All memory that it takes. With run->lock. */
static bool exchange_prepare(exchange *e, const sp_run *run)
{
    size_t count = 0;
    for (const sp_log *log = run->logs; log; log = log->next_of_run) count++;
    e->regions = run->region_count;
    e->sums = calloc(e->regions + 1, sizeof *e->sums);
    e->logs = calloc(count + 1, sizeof *e->logs);
    e->out = calloc(count + 1, sizeof *e->out);
    e->in = calloc(count + 1, sizeof *e->in);
    if (!e->sums || !e->logs || !e->out || !e->in) return false;
    for (sp_log *log = run->logs; log; log = log->next_of_run, e->count++) {
        e->logs[e->count] = log;
        e->in[e->count] = totals_new();
        if (e->in[e->count] == NULL) return false;
    }
    return true;
}

static void wait_for_writers(const exchange *e)
{
    sp_platform_barrier();
    for (size_t i = 0; i < e->count; i++) {
        while (atomic_load_explicit(&e->logs[i]->tally->adding, memory_order_acquire)) sched_yield();
    }
}

static void sum_up(const exchange *e, sp_totals *totals, uint32_t number)
{
    totals->collection = number;
    for (size_t id = 0; id < totals->limit; id += SP_TOTALS_PER_PAGE) {
        sp_total_page *page = page_at(totals, id);
        if (page == NULL) continue;
        for (size_t k = 0; k < SP_TOTALS_PER_PAGE && id + k < e->regions; k++) sp_summed_add(&e->sums[id + k], &page->totals[k]);
        atomic_store_explicit(&page->collection, number, memory_order_release);
    }
}

static void list_taken(sp_run *run, sp_totals *totals)
{
    totals->next = run->taken_totals;
    run->taken_totals = totals;
}

/* Empty a page for another use. In a store it must not be taken for new totals while old ones are in it. */
static void page_empty(sp_run *run, sp_total_page *page)
{
    memset(page->totals, 0, sizeof page->totals);
    page_init(page);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&page->collection, 0, memory_order_release);
    page->next = run->spare_pages;
    run->spare_pages = page;
}

void sp_run_forget_totals(sp_run *run)
{
    while (run->taken_totals) {
        sp_totals *totals = run->taken_totals;
        run->taken_totals = totals->next;
        for (size_t id = 0; id < totals->limit; id += SP_TOTALS_PER_PAGE) {
            sp_total_page *page = page_at(totals, id);
            if (page) page_empty(run, page);
        }
        free(totals->regions);
        free(totals);
    }
}

/* What a collection before gave back. With run->lock. */
static void add_given_back(sp_run *run, const exchange *e)
{
    for (size_t id = 0; id < run->given_back_count; id++) {
        merge(&e->sums[id], &run->given_back[id]);
        run->regions[id]->taken -= run->given_back[id].count;
        run->collected -= run->given_back[id].count;
    }
    free(run->given_back);
    run->given_back = NULL;
    run->given_back_count = 0;
}

sp_status sp_run_take_totals(sp_run *run, sp_summed **sums, size_t *count, sp_error *error)
{
    exchange e = {0};
    pthread_mutex_lock(&run->lock);
    const uint32_t number = ++run->collection;
    const bool ready = exchange_prepare(&e, run);
    for (size_t i = 0; ready && i < e.count; i++) {
        e.out[i] = atomic_exchange_explicit(&e.logs[i]->tally->totals, e.in[i], memory_order_acq_rel);
        e.in[i] = NULL;
    }
    pthread_mutex_unlock(&run->lock);
    if (!ready) {
        exchange_free(&e);
        free(e.sums);
        return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to collect the totals");
    }
    wait_for_writers(&e);
    for (size_t i = 0; i < e.count; i++) sum_up(&e, e.out[i], number);
    pthread_mutex_lock(&run->lock);
    for (size_t i = 0; i < e.count; i++) list_taken(run, e.out[i]);
    add_given_back(run, &e);
    sp_timeline_anchor(&run->timeline, 0);
    sp_note_anchors(run);
    if (run->store) sp_note_collect(run, number, NULL, 0, 0);
    for (size_t id = 0; id < e.regions; id++) {
        run->regions[id]->taken += e.sums[id].count;
        run->collected += e.sums[id].count;
    }
    if (run->store == NULL) sp_run_forget_totals(run);
    else run->kept = true;
    pthread_mutex_unlock(&run->lock);
    exchange_free(&e);
    *sums = e.sums;
    *count = e.regions;
    return SP_OK;
}

void sp_run_give_back(sp_run *run, sp_summed *sums, size_t count)
{
    pthread_mutex_lock(&run->lock);
    free(run->given_back);
    run->given_back = sums;
    run->given_back_count = count;
    pthread_mutex_unlock(&run->lock);
}

void sp_run_free_totals(sp_run *run)
{
    free(run->given_back);
    while (run->taken_totals) {
        sp_totals *totals = run->taken_totals;
        run->taken_totals = totals->next;
        totals_free(run, totals);
    }
    while (run->spare_pages) {
        sp_total_page *page = run->spare_pages;
        run->spare_pages = page->next;
        page_free(run, page);
    }
}
