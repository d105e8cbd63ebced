#include "core/values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/window.h"

#define CHUNK_BYTES (((size_t)64 << 10) - 64) /* with a store's header whole pages */
#define NOTE_HEAD 64                          /* more than what a store puts before a note and behind it */

struct sp_values_chunk {
    sp_values_chunk *next;
    char *memory;
    size_t bytes, used;
    size_t open;     /* scopes whose begin is in it, and that have not ended */
    sp_ticks first, latest; /* when it was written to */
    uint32_t number;
};

static bool is_enough(const sp_run *run, size_t more)
{
    return run->store->most_values && run->values_bytes + more > run->store->most_values;
}

static sp_values_chunk *chunk_new(sp_run *run, size_t wanted)
{
    sp_values_chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL) return NULL;
    chunk->bytes = wanted > CHUNK_BYTES ? wanted : CHUNK_BYTES;
    if (is_enough(run, chunk->bytes)) errno = EDQUOT;
    else chunk->memory = run->store->operations->map(run->store, SP_CHUNK_VALUES, 0, 0, &chunk->bytes);
    if (chunk->memory == NULL) {
        const int why = errno;
        free(chunk);
        errno = why;
        return NULL;
    }
    if (run->last_values) {
        run->store->operations->park(run->store, run->last_values->memory, run->last_values->bytes);
        run->last_values->next = chunk;
    } else {
        run->values = chunk;
    }
    chunk->number = ++run->values_chunks;
    chunk->first = sp_clock_read();
    run->values_bytes += chunk->bytes;
    run->values_marked = false;
    return run->last_values = chunk;
}

/* Take the chunk behind `before` (NULL: the first) off, and give it back. */
static void drop(sp_run *run, sp_values_chunk *before)
{
    sp_values_chunk *chunk = before ? before->next : run->values;
    if (before) before->next = chunk->next;
    else run->values = chunk->next;
    if (chunk == run->last_values) run->last_values = before;
    run->values_bytes -= chunk->bytes;
    run->store->operations->drop(run->store, chunk->memory, chunk->bytes);
    free(chunk);
}

static bool is_over(const sp_run *run, const sp_values_chunk *chunk)
{
    return chunk->open == 0 && (chunk != run->last_values || run->values_marked);
}

bool sp_values_drop_oldest(sp_run *run, size_t bytes)
{
    for (sp_values_chunk *before = NULL, *chunk = run->values; chunk; before = chunk, chunk = chunk->next) {
        if (!is_over(run, chunk) || chunk->bytes < bytes) continue;
        drop(run, before);
        return true;
    }
    return false;
}

/* The chunk that the note is in; NULL: there is no room, and errno tells why. */
static sp_values_chunk *try_note(sp_run *run, sp_note_kind kind, const void *const parts[3], const size_t sizes[3])
{
    sp_values_chunk *chunk = run->values_marked ? NULL : run->last_values;
    for (size_t used = 0; used == 0;) {
        const bool fresh = chunk == NULL;
        if (fresh && (chunk = chunk_new(run, sizes[0] + sizes[1] + sizes[2] + NOTE_HEAD)) == NULL) break;
        used = run->store->operations->note_at(run->store, chunk->memory, chunk->bytes, chunk->used, kind, parts, sizes, 3);
        if (used) {
            chunk->used = used;
            chunk->latest = sp_clock_read();
        } else {
            chunk = NULL;
            if (fresh) break;
        }
    }
    return chunk;
}

static sp_values_chunk *note(sp_run *run, sp_note_kind kind, const sp_value *value, const char *region, const char *text)
{
    const void *const parts[3] = {value, region, text};
    const size_t sizes[3] = {sizeof *value, region ? strlen(region) + 1 : 0, strlen(text) + 1};
    const int saved = errno;
    const size_t wanted = sizes[0] + sizes[1] + sizes[2] + NOTE_HEAD, bytes = wanted > CHUNK_BYTES ? wanted : CHUNK_BYTES;
    sp_values_chunk *chunk;
    sp_room room = SP_ROOM_MADE;
    while ((chunk = try_note(run, kind, parts, sizes)) == NULL && errno == EDQUOT && run->store->keeps_newest && room == SP_ROOM_MADE) {
        if (is_enough(run, bytes)) room = sp_values_drop_oldest(run, 0) ? SP_ROOM_MADE : SP_ROOM_NONE;
        else room = sp_run_drop_oldest(run, bytes);
    }
    errno = saved;
    return chunk;
}

uint64_t sp_values_open(sp_run *run, int64_t lane, sp_ticks start, const char *text)
{
    if (run->store == NULL) return 0;
    uint64_t scope = 0;
    pthread_mutex_lock(&run->lock);
    const uint32_t number = ++run->values_scopes;
    sp_values_chunk *chunk = note(run, SP_NOTE_SCOPE, &(sp_value){number, lane, start, 0}, NULL, text);
    if (chunk) {
        chunk->open++;
        scope = (uint64_t)chunk->number << 32 | number;
    }
    pthread_mutex_unlock(&run->lock);
    return scope;
}

static void ended(sp_run *run, uint32_t number)
{
    sp_values_chunk *chunk = run->values;
    while (chunk && chunk->number < number) chunk = chunk->next;
    if (chunk && chunk->open) chunk->open--;
}

void sp_values_close(sp_run *run, uint64_t scope, int64_t lane, sp_ticks start, sp_ticks end, const char *text)
{
    if (run->store == NULL) return;
    pthread_mutex_lock(&run->lock);
    note(run, SP_NOTE_SCOPE, &(sp_value){(uint32_t)scope, lane, start, end}, NULL, text);
    if (scope) ended(run, (uint32_t)(scope >> 32));
    pthread_mutex_unlock(&run->lock);
}

void sp_values_outcome(sp_run *run, int64_t lane, sp_ticks start, const char *region, const char *text)
{
    if (run->store == NULL) return;
    pthread_mutex_lock(&run->lock);
    note(run, SP_NOTE_OUTCOME, &(sp_value){0, lane, start, 0}, region, text);
    pthread_mutex_unlock(&run->lock);
}

uint32_t sp_values_mark(sp_run *run)
{
    pthread_mutex_lock(&run->lock);
    run->values_marked = true;
    const uint32_t mark = run->values_chunks;
    pthread_mutex_unlock(&run->lock);
    return mark;
}

void sp_values_drop(sp_run *run, uint32_t mark)
{
    pthread_mutex_lock(&run->lock);
    sp_values_chunk *before = NULL, *chunk;
    while ((chunk = before ? before->next : run->values) && chunk->number <= mark) {
        if (is_over(run, chunk)) drop(run, before);
        else before = chunk;
    }
    pthread_mutex_unlock(&run->lock);
}

void sp_values_drop_before(sp_run *run, sp_ticks ticks, bool (*needed)(const sp_run *run, sp_ticks from, sp_ticks until))
{
    sp_values_chunk *before = NULL, *chunk;
    while ((chunk = before ? before->next : run->values) && chunk->latest < ticks) {
        if (is_over(run, chunk) && !needed(run, chunk->first, chunk->latest)) drop(run, before);
        else before = chunk;
    }
}

void sp_values_free(sp_run *run)
{
    while (run->values) {
        sp_values_chunk *next = run->values->next;
        free(run->values);
        run->values = next;
    }
    run->last_values = NULL;
}
