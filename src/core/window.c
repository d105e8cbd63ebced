#include "core/window.h"

#include <stdlib.h>
#include <string.h>

#include "core/note.h"
#include "core/values.h"

/*
 *   head                 victim             tail
 *    [o.........] [....o] [xxxxxxxoxoo] [slot slot slot ...
 *     thinned before       full          ^ cut: the first call that is kept whole
 *
 * What is open (its handle has the address of its slot) or ends behind the cut (it encloses calls that are kept) stays
 * where it is; everything else in and before the victim goes. Calls that lose their caller become roots.
 */

/* A smaller block than this is cut from larger memory: only a smaller one can have its place. */
#define ALONE ((size_t)256 << 10)

static bool helps(const sp_block *block, size_t bytes)
{
    return block->bytes >= ALONE || block->bytes >= bytes;
}

static bool may_go(const sp_log *log, const sp_block *block, size_t bytes)
{
    return block->memory == SP_BLOCK_STORED && block->kept == NULL && !block->finished && block != log->scan_block &&
        helps(block, bytes) && block->store->operations->can_drop(block->store, block->begin);
}

static sp_block *oldest(sp_run *run, size_t bytes, sp_log **of)
{
    sp_block *found = NULL;
    uint64_t first = UINT64_MAX;
    for (sp_log *log = run->logs; log; log = log->next_of_run) {
        for (sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
            if (atomic_load_explicit(&block->next, memory_order_acquire) == NULL) break;
            if (!may_go(log, block, bytes)) continue;
            const uint64_t sequence = run->store->operations->sequence(run->store, block->begin);
            if (sequence < first) {
                first = sequence;
                found = block;
                *of = log;
            }
            break; /* those behind it are newer */
        }
    }
    return found;
}

static bool stays(sp_run *run, const sp_slot *slot, sp_ticks cut)
{
    const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
    const bool done = atomic_load_explicit(&slot->region, memory_order_relaxed) == SP_REGION_DONE;
    if (atomic_load_explicit(&slot->start, memory_order_relaxed) == 0) return false;
    if (end == SP_SLOT_OPEN) return true;
    if (end == SP_SLOT_ABANDONED || done) return false;
    if (end > cut) return true;
    run->dropped_calls++;
    run->collected++; /* no collection will have it any more */
    if (end > run->dropped_until) run->dropped_until = end;
    return false;
}

/* Every slot of the block that stays, in order and with a NULL behind. False without memory: nothing happened. */
static bool choose(sp_run *run, sp_block *block, uint32_t stride, sp_ticks cut, size_t *count)
{
    const uint64_t dropped = run->dropped_calls, collected = run->collected;
    const sp_ticks until = run->dropped_until;
    sp_slot **kept = NULL;
    size_t size = 0;
    *count = 0;
    for (char *at = block->begin; at < block->end; at += stride) {
        sp_slot *slot = (sp_slot *)at;
        if (*count + 1 >= size) {
            size = size ? size * 2 : 8;
            sp_slot **more = realloc(kept, size * sizeof *kept);
            if (more == NULL) {
                free(kept);
                run->dropped_calls = dropped;
                run->collected = collected;
                run->dropped_until = until;
                return false;
            }
            kept = more;
        }
        if (stays(run, slot, cut)) kept[(*count)++] = slot;
    }
    kept[*count] = NULL;
    block->kept = kept;
    return true;
}

static void choose_again(sp_run *run, sp_block *block, sp_ticks cut, size_t *count)
{
    *count = 0;
    for (sp_slot **slot = block->kept; *slot; slot++) {
        if (stays(run, *slot, cut)) block->kept[(*count)++] = *slot;
        else memset(*slot, 0, sizeof **slot);
    }
    block->kept[*count] = NULL;
}

static void thin(sp_block *block, uint32_t stride)
{
    char *from = block->begin;
    for (sp_slot **slot = block->kept; *slot; slot++) {
        block->store->operations->thin(block->store, block->begin, from, (char *)*slot);
        from = (char *)*slot + stride;
    }
    block->store->operations->thin(block->store, block->begin, from, block->begin + block->bytes);
}

static void take_off(sp_log *log, sp_block *block)
{
    sp_block *next = atomic_load_explicit(&block->next, memory_order_acquire), *before = log->head;
    if (before == block) {
        log->head = next;
    } else {
        while (atomic_load_explicit(&before->next, memory_order_relaxed) != block) before = atomic_load_explicit(&before->next, memory_order_relaxed);
        atomic_store_explicit(&before->next, next, memory_order_release);
    }
    sp_block_free(block);
}

static bool drop_up_to(sp_log *log, sp_block *victim, sp_ticks *cut_at)
{
    sp_run *run = log->run;
    sp_block *behind = atomic_load_explicit(&victim->next, memory_order_acquire), *whole = behind;
    /* The scanner is behind the victim, so the first slot of what follows is published. */
    while (whole->kept) whole = atomic_load_explicit(&whole->next, memory_order_acquire);
    const sp_ticks cut = atomic_load_explicit(&((const sp_slot *)whole->begin)->start, memory_order_relaxed);
    *cut_at = cut;
    for (sp_block *block = log->head; block != behind;) {
        sp_block *next = atomic_load_explicit(&block->next, memory_order_acquire);
        size_t count = 0;
        const bool again = block->kept != NULL;
        if (again) choose_again(run, block, cut, &count);
        else if (block != victim) count = 1; /* not one that may go */
        else if (!choose(run, block, log->stride, cut, &count)) return false;
        /* What was found to be over is over: the scanner must not look there any more. */
        sp_log_forget_closed(log);
        if (count == 0) take_off(log, block);
        else if (block == victim) thin(block, log->stride);
        block = next;
    }
    return true;
}

/* Whether calls of whole blocks were under way then. Of a block that older ones went before, only the first and last call are looked at. */
static bool has_calls(const sp_run *run, sp_ticks from, sp_ticks until)
{
    for (const sp_log *log = run->logs; log; log = log->next_of_run) {
        for (const sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
            if (block->kept) continue;
            const sp_ticks first = atomic_load_explicit(&((const sp_slot *)block->begin)->start, memory_order_acquire);
            const sp_slot *last = (const sp_slot *)(block->end - log->stride);
            sp_ticks end = atomic_load_explicit(&last->end, memory_order_acquire);
            if (atomic_load_explicit(&last->start, memory_order_acquire) == 0 || end == SP_SLOT_OPEN) end = UINT64_MAX;
            if (first && first <= until && end >= from) return true;
        }
    }
    return false;
}

sp_room sp_run_drop_oldest(sp_run *run, size_t bytes)
{
    if (run->chosen || run->kept) {
        sp_note(run, SP_NOTE_FULL, 0, "");
        return SP_ROOM_BUSY;
    }
    if (run->dropped) return SP_ROOM_NONE;
    sp_run_scan(run); /* what goes must have been counted */
    sp_log *log = NULL;
    sp_block *victim = oldest(run, bytes, &log);
    if (victim == NULL) return sp_values_drop_oldest(run, bytes) ? SP_ROOM_MADE : SP_ROOM_NONE;
    sp_ticks cut;
    if (!drop_up_to(log, victim, &cut)) return SP_ROOM_NONE;
    sp_values_drop_before(run, cut, has_calls);
    sp_note_dropped(run);
    return SP_ROOM_MADE;
}
