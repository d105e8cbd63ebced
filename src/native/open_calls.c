#include "native/open_calls.h"

#include <stdlib.h>
#include <string.h>

#include "core/sort.h"

typedef struct left_call {
    uint32_t region;
    int32_t thread, task;
    sp_ticks start, end;
    bool open;
} left_call;

typedef struct left_calls {
    left_call *calls;
    size_t count, size;
} left_calls;

static bool take(left_calls *left, const left_call *call)
{
    if (left->count == left->size) {
        const size_t size = left->size ? left->size * 2 : 64;
        left_call *calls = realloc(left->calls, size * sizeof *calls);
        if (calls == NULL) return false;
        left->calls = calls;
        left->size = size;
    }
    left->calls[left->count++] = *call;
    return true;
}

/* With run->lock held. */
static bool take_of_log(left_calls *left, const sp_log *log, sp_ticks now)
{
    const char *next = atomic_load_explicit(&log->next, memory_order_acquire);
    for (const sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
        const char *readable = sp_block_readable(block, next);
        /* A finished block was collected as a whole. */
        for (const char *at = block->begin; at < readable && !block->finished; at += log->stride) {
            const sp_slot *slot = (const sp_slot *)at;
            const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed);
            const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_acquire);
            const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_relaxed);
            if (region == SP_REGION_DONE || region & SP_REGION_KEPT || end == SP_SLOT_ABANDONED || start == 0) continue;
            const bool open = end == SP_SLOT_OPEN;
            if (!take(left, &(left_call){region & SP_REGION_ID, log->row->index, slot->task, start, open ? now : end, open})) {
                return false;
            }
        }
        if (readable == next) break;
    }
    return true;
}

static int by_region_then_start(const void *left, const void *right)
{
    const left_call *a = left, *b = right;
    if (a->region != b->region) return a->region < b->region ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

static char *marks_of(const left_call *calls, size_t count)
{
    static const char plain[] = "{}", marked[] = "{\"open\":true}";
    char *text = malloc(2 + count * sizeof marked), *at = text;
    if (text == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
        const char *mark = calls[i].open ? marked : plain;
        *at++ = i ? ',' : '[';
        memcpy(at, mark, strlen(mark));
        at += strlen(mark);
    }
    memcpy(at, "]", 2);
    return text;
}

/* One row, of calls of one region. With run->lock held. */
static bool add_row(sp_profile *profile, const sp_run *run, uint32_t rank, const left_call *calls, size_t count)
{
    const sp_region_info *region = run->regions[calls->region];
    sp_row *row = &profile->rows[profile->row_count++];
    *row = (sp_row){.name = (uint32_t)profile->name_count, .rank = rank, .first = profile->call_count, .count = count,
                    .source_line = region->source_line, .exclusive_total = SP_UNKNOWN};
    row->source_file = sp_text_copy(region->source_file);
    row->event_metadata = marks_of(calls, count);
    profile->names[profile->name_count] = sp_text_copy(region->name);
    if (profile->names[profile->name_count]) profile->name_count++;
    profile->call_count += count;
    return row->event_metadata && profile->name_count == profile->row_count && (!region->source_file || row->source_file);
}

static bool add_columns(sp_profile *profile, const sp_run *run, const left_calls *left)
{
    static const sp_column wanted[] = {SP_COLUMN_START, SP_COLUMN_END, SP_COLUMN_THREAD, SP_COLUMN_TASK, SP_COLUMN_AWAIT};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!(profile->columns[wanted[i]] = sp_column_alloc(left->count))) return false;
    }
    sp_timeline_cursor cursor = {.timeline = &run->timeline};
    for (size_t i = 0; i < left->count; i++) {
        const left_call *call = &left->calls[i];
        profile->columns[SP_COLUMN_START][i] = sp_timeline_to_ns(&cursor, call->start);
        profile->columns[SP_COLUMN_END][i] = sp_timeline_to_ns(&cursor, call->end);
        profile->columns[SP_COLUMN_THREAD][i] = call->thread;
        profile->columns[SP_COLUMN_TASK][i] = call->task;
        profile->columns[SP_COLUMN_AWAIT][i] = 0; /* not known before the end */
    }
    return true;
}

/* With run->lock held. */
static sp_profile *profile_of(left_calls *left, const sp_run *run, uint32_t rank)
{
    sp_profile *profile = sp_profile_new();
    if (profile == NULL) return NULL;
    sp_sort(left->calls, left->count, sizeof *left->calls, by_region_then_start);
    profile->rows = calloc(left->count, sizeof *profile->rows);
    profile->names = calloc(left->count, sizeof *profile->names);
    bool made = profile->rows && profile->names;
    for (size_t first = 0, end; made && first < left->count; first = end) {
        for (end = first + 1; end < left->count && left->calls[end].region == left->calls[first].region;) end++;
        made = add_row(profile, run, rank, &left->calls[first], end - first);
    }
    if (made && add_columns(profile, run, left)) return profile;
    sp_profile_release(profile);
    return NULL;
}

sp_status sp_native_open_calls(sp_run *run, uint32_t rank, sp_profile **out, sp_error *error)
{
    left_calls left = {0};
    bool enough = true;
    *out = NULL;
    pthread_mutex_lock(&run->collecting);
    pthread_mutex_lock(&run->lock);
    const sp_ticks now = sp_clock_read();
    for (sp_log *log = run->logs; log && enough; log = log->next_of_run) enough = take_of_log(&left, log, now);
    sp_timeline_anchor(&run->timeline, 0);
    if (enough && left.count) {
        *out = profile_of(&left, run, rank);
        enough = *out != NULL;
    }
    pthread_mutex_unlock(&run->lock);
    pthread_mutex_unlock(&run->collecting);
    free(left.calls);
    return enough ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the calls that are open");
}
