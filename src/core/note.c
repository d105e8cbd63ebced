#include "core/note.h"

#include <errno.h>
#include <string.h>

static bool put(sp_run *run, sp_note_kind kind, uint32_t index, const void *const *parts, const size_t *sizes, size_t count)
{
    const int saved = errno;
    const bool noted = run->store->operations->note(run->store, kind, index, parts, sizes, count);
    errno = saved;
    return noted;
}

/* A text as it is in a note: 1 and the bytes with their NUL, or 0 for none. */
typedef struct sp_text {
    char present;
    const char *bytes;
} sp_text;

static size_t add_text(const void **parts, size_t *sizes, size_t at, const sp_text *text)
{
    parts[at] = &text->present;
    sizes[at] = 1;
    parts[at + 1] = text->bytes;
    sizes[at + 1] = text->present ? strlen(text->bytes) + 1 : 0;
    return at + 2;
}

static bool note_region(sp_run *run, uint32_t id)
{
    const sp_region_info *region = run->regions[id];
    const char *const given[4] = {region->name, region->source_file, region->source_text, region->tags};
    sp_text texts[4];
    const void *parts[9] = {&region->source_line};
    size_t sizes[9] = {sizeof region->source_line}, count = 1;
    for (int i = 0; i < 4; i++) {
        texts[i] = (sp_text){given[i] != NULL, given[i]};
        count = add_text(parts, sizes, count, &texts[i]);
    }
    return put(run, SP_NOTE_REGION, id, parts, sizes, count);
}

/* Readers take regions in order only, so those for which there was no room come first. */
void sp_note_regions(sp_run *run)
{
    while (run->store && run->regions_noted < run->region_count && note_region(run, (uint32_t)run->regions_noted)) run->regions_noted++;
}

static bool note_row(sp_run *run, const sp_thread_row *row)
{
    const int64_t numbers[4] = {row->ident, row->native_id, (int64_t)row->start, row->daemon};
    const void *const parts[2] = {numbers, row->name};
    const size_t sizes[2] = {sizeof numbers, strlen(row->name) + 1};
    return put(run, SP_NOTE_THREAD, (uint32_t)row->index, parts, sizes, 2);
}

void sp_note_thread(sp_run *run, const sp_thread_row *row)
{
    if (run->sums) return; /* its threads are not told apart, and there may be any number of them */
    const size_t index = (size_t)row->index;
    while (run->store && run->rows_noted < index && note_row(run, run->rows[run->rows_noted])) run->rows_noted++;
    if (run->store && run->rows_noted >= index && note_row(run, row) && run->rows_noted == index) run->rows_noted++;
}

void sp_note_thread_end(sp_run *run, const sp_thread_row *row)
{
    if (run->store == NULL || run->sums) return;
    const int64_t numbers[2] = {(int64_t)row->end, row->cpu_ns};
    const void *const parts[1] = {numbers};
    const size_t sizes[1] = {sizeof numbers};
    put(run, SP_NOTE_THREAD_END, (uint32_t)row->index, parts, sizes, 1);
}

void sp_note(sp_run *run, sp_note_kind kind, uint32_t index, const char *text)
{
    if (run->store == NULL) return;
    const void *const parts[1] = {text};
    const size_t sizes[1] = {strlen(text) + 1};
    put(run, kind, index, parts, sizes, 1);
}

void sp_note_string(sp_run *run, uint32_t id)
{
    sp_note(run, SP_NOTE_STRING, id, run->strings[id]);
}

void sp_note_task_name(sp_run *run, const sp_task *task)
{
    /* A numbered name is in the task's row itself. */
    if (task->name_kind == SP_NAME_TEXT) sp_note(run, SP_NOTE_TASK_NAME, (uint32_t)task->index, task->name.text);
}

void sp_note_anchors(sp_run *run)
{
    for (; run->store && run->anchors_noted < run->timeline.count; run->anchors_noted++) {
        const void *const parts[1] = {&run->timeline.anchors[run->anchors_noted]};
        const size_t sizes[1] = {sizeof(sp_anchor)};
        put(run, SP_NOTE_ANCHOR, (uint32_t)run->anchors_noted, parts, sizes, 1);
    }
}

void sp_note_dropped(sp_run *run)
{
    const uint64_t numbers[2] = {run->dropped_calls, run->dropped_until};
    const void *const parts[1] = {numbers};
    const size_t sizes[1] = {sizeof numbers};
    put(run, SP_NOTE_DROPPED, 0, parts, sizes, 1);
}

sp_mark sp_note_place(const sp_run *run, const sp_block *block, const char *at, uint32_t row, uint32_t stride)
{
    return (sp_mark){.owner = row, .index = (uint32_t)((size_t)(at - block->begin) / stride),
                     .sequence = run->store->operations->sequence(run->store, block->begin)};
}

void sp_note_collect(sp_run *run, uint32_t number, const sp_mark *marks, size_t logs, size_t open)
{
    const uint32_t counts[2] = {(uint32_t)logs, (uint32_t)open};
    const void *const parts[2] = {counts, marks};
    const size_t sizes[2] = {sizeof counts, (logs + open) * sizeof *marks};
    put(run, SP_NOTE_COLLECT, number, parts, sizes, 2);
}

void sp_note_file(sp_run *run, uint32_t number, uint64_t device, uint64_t inode, int64_t changed_ns, const char *path)
{
    if (run->store == NULL) return;
    const uint64_t numbers[3] = {device, inode, (uint64_t)changed_ns};
    const void *const parts[2] = {numbers, path};
    const size_t sizes[2] = {sizeof numbers, strlen(path) + 1};
    pthread_mutex_lock(&run->lock);
    put(run, SP_NOTE_FILE, number, parts, sizes, 2);
    pthread_mutex_unlock(&run->lock);
}
