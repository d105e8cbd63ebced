/* log.c - the cold half of the recording path (hot.h has the hot one). */
#include <errno.h>
#include <stdlib.h>

#include "core/note.h"
#include "core/probe.h"
#include "core/run.h"
#include "core/task.h"
#include "core/totals.h"
#include "core/window.h"
#include "platform/platform.h"

#define MAPPED_BLOCK ((size_t)2 << 20) /* one huge page */
#define SMALL_BLOCK_LIMIT ((size_t)256 << 10)

/* More first slots than anybody can mean. */
#define FIRST_BLOCK_LIMIT ((size_t)1 << 24)

/*
 * Blocks grow eightfold, so that a thread with five calls costs 3 kB, and from 256 kB on they are huge pages: a fresh
 * 4 kB page costs 9 ns a call, a fresh huge one 2.
 */
static size_t next_block_bytes(const sp_log *log)
{
    if (log->tail == NULL) {
        const size_t slots = log->run->first_block;
        return (slots < FIRST_BLOCK_LIMIT ? slots : FIRST_BLOCK_LIMIT) * log->stride;
    }
    const size_t last = (size_t)(log->tail->end - log->tail->begin);
    const size_t next = last * 8 > SMALL_BLOCK_LIMIT ? MAPPED_BLOCK : last * 8;
    const size_t largest = log->run->store ? log->run->store->largest_block : 0;
    return largest && next > largest ? largest : next;
}

static void note_limit(sp_run *run)
{
    if (atomic_exchange_explicit(&run->limited, true, memory_order_relaxed)) return;
    pthread_mutex_lock(&run->lock);
    sp_note(run, SP_NOTE_LIMIT, 0, "");
    pthread_mutex_unlock(&run->lock);
}

/* False with errno: EDQUOT is the store's limit. */
static bool map_from_store(sp_block *block, const sp_log *log, size_t bytes)
{
    sp_store *store = log->run->store;
    block->bytes = bytes;
    block->begin = store->operations->map(store, SP_CHUNK_EVENTS, (uint32_t)log->row->index, log->stride, &block->bytes);
    return block->begin != NULL;
}

/*
 * The same with old calls going for it. One thread after the other, and each with a look of its own first: what the one before
 * gave back may be enough for both.
 */
static bool make_room(sp_block *block, const sp_log *log, size_t bytes)
{
    sp_run *run = log->run;
    sp_room room = SP_ROOM_MADE;
    bool made = false;
    pthread_mutex_lock(&run->lock);
    while (room == SP_ROOM_MADE && !(made = map_from_store(block, log, bytes)) && errno == EDQUOT) room = sp_run_drop_oldest(run, bytes);
    if (room != SP_ROOM_MADE) errno = room == SP_ROOM_NONE ? EDQUOT : ENOSPC; /* whether recording stops */
    pthread_mutex_unlock(&run->lock);
    return made;
}

/*
 * A run with a store that has no room left, or not now, goes on in anonymous memory: its calls are then lost only if the
 * process is killed. A store whose limit is reached ends the recording instead, and says so.
 */
static bool take_from_store(sp_block *block, const sp_log *log, size_t bytes)
{
    sp_store *store = log->run->store;
    if (store == NULL) return false;
    bool taken = map_from_store(block, log, bytes);
    if (!taken && errno == EDQUOT && store->keeps_newest) taken = make_room(block, log, bytes);
    if (!taken) return false;
    block->memory = SP_BLOCK_STORED;
    block->store = sp_store_share(store);
    return true;
}

static sp_block *block_new(const sp_log *log, size_t bytes)
{
    sp_block *block = calloc(1, sizeof *block);
    if (block == NULL) return NULL;
    const bool map = bytes >= MAPPED_BLOCK;
    if (!take_from_store(block, log, bytes)) {
        block->memory = map ? SP_BLOCK_MAPPED : SP_BLOCK_HEAP;
        block->bytes = map ? (bytes + MAPPED_BLOCK - 1) / MAPPED_BLOCK * MAPPED_BLOCK : bytes;
        const bool stop = log->run->store && errno == EDQUOT;
        if (stop) note_limit(log->run);
        block->begin = stop ? NULL : map ? sp_platform_map(block->bytes) : malloc(block->bytes);
    }
    if (block->begin == NULL) {
        free(block);
        return NULL;
    }
    const uint32_t stride = log->stride;
    block->end = block->begin + block->bytes / stride * stride;
    return block;
}

char *sp_log_grow(sp_log *log)
{
    const int saved = errno;
    sp_block *block = block_new(log, next_block_bytes(log));
    errno = saved;
    if (block == NULL) {
        atomic_fetch_add_explicit(&log->lost, 1, memory_order_relaxed);
        return NULL;
    }
    if (log->tail) {
        /* The old block's last slot is published; `next` leaves it when the first slot of the new one is. */
        sp_block *full = log->tail;
        atomic_store_explicit(&full->next, block, memory_order_release);
        log->tail = block;
        sp_block_park(full);
    } else {
        sp_run *run = log->run;
        pthread_mutex_lock(&run->lock);
        log->head = log->tail = log->scan_block = block;
        log->scan_next = block->begin;
        pthread_mutex_unlock(&run->lock);
    }
    log->limit = block->end;
    log->quiet_at = NULL; /* the block may be where one was before */
    return block->begin;
}

static void take_anchor(sp_log *log)
{
    sp_run *run = log->run;
    pthread_mutex_lock(&run->lock);
    log->anchor_due = sp_timeline_anchor(&run->timeline, SP_ANCHOR_INTERVAL_NS / 2);
    sp_note_anchors(run);
    pthread_mutex_unlock(&run->lock);
}

void sp_log_anchor(sp_log *log, sp_ticks now)
{
    const int saved = errno;
    if (log->probe) {
        log->anchor_due = log->probe->anchor_due;
        char *next = atomic_load_explicit(&log->next, memory_order_relaxed);
        sp_slot *newest = next ? (sp_slot *)(next - log->stride) : NULL;
        if (newest && atomic_load_explicit(&newest->start, memory_order_relaxed) == now) sp_log_probe_entered(log, newest);
    }
    if (now >= log->anchor_due) take_anchor(log);
    errno = saved;
}

void sp_log_exit_elsewhere(sp_log *log, sp_slot *slot, sp_ticks now)
{
    if (log->tally) {
        sp_frame_exit_elsewhere(log, slot, now);
        return;
    }
    const int saved = errno;
    sp_run *run = log->run;
    if (log->probe) now = sp_log_probe_left(log, slot, now);
    const bool own = sp_this_thread && atomic_load_explicit(&log->thread, memory_order_relaxed) == sp_this_thread;
    if (!own || now >= log->anchor_due) {
        pthread_mutex_lock(&run->lock);
        const sp_ticks due = sp_timeline_anchor(&run->timeline, SP_ANCHOR_INTERVAL_NS / 2);
        sp_note_anchors(run);
        pthread_mutex_unlock(&run->lock);
        if (own) log->anchor_due = due;
    }
    if (own && log->finished_at) log->left_at = now;
    if (log->stride == sizeof(sp_async_slot)) {
        sp_async_slot *call = (sp_async_slot *)slot;
        call->await = sp_run_awaited(run, call, now);
    }
    errno = saved;
    atomic_store_explicit(&slot->end, now, memory_order_release);
}
