/*
 * The spool's reader. The first byte of an input chooses: a spool as it is, the same with its checksums put right, or
 * (third kind) a spool built from the rest, whose checksums are right and whose numbers are likely to be at an edge.
 */
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/store.h"
#include "core/types.h"
#include "formats/json_text.h"
#include "formats/spool.h"
#include "formats/spool_layout.h"
#include "formats/spool_watch.h"
#include "report/watch.h"
#include "fuzz.h"

#define MOST (1 << 20)

static void seal_header(sp_spool_header *header)
{
    header->crc = libdeflate_crc32(0, header, offsetof(sp_spool_header, crc));
}

static void seal_chunk(sp_chunk_header *header)
{
    header->crc = libdeflate_crc32(0, header, offsetof(sp_chunk_header, crc));
}

static void seal_note(sp_note_header *note)
{
    const uint32_t head = libdeflate_crc32(0, &note->size, offsetof(sp_note_header, crc) - offsetof(sp_note_header, size));
    note->crc = libdeflate_crc32(head, note + 1, note->size);
}

/* -- checksums put right -- */

static void repair_notes(char *begin, char *end)
{
    while (end - begin >= (ptrdiff_t)sizeof(sp_note_header)) {
        sp_note_header *note = (sp_note_header *)begin;
        const uint32_t bytes = note->bytes;
        if (bytes < sizeof *note || bytes > (size_t)(end - begin) || bytes % 8 || note->size > bytes - sizeof *note) return;
        seal_note(note);
        begin += bytes;
    }
}

static void repair(char *data, size_t size)
{
    if (size < SP_SPOOL_PAGE) return;
    seal_header((sp_spool_header *)data);
    for (size_t at = SP_SPOOL_PAGE; at + SP_SPOOL_PAGE <= size; at += SP_SPOOL_PAGE) {
        sp_chunk_header *chunk = (sp_chunk_header *)(data + at);
        if (chunk->magic != SP_CHUNK_MAGIC) continue;
        seal_chunk(chunk);
        const uint64_t bytes = chunk->bytes < size - at ? chunk->bytes : size - at;
        if (chunk->kind == SP_CHUNK_JOURNAL && bytes > sizeof *chunk) repair_notes((char *)(chunk + 1), data + at + bytes);
    }
}

/* -- built -- */

static const uint64_t base = 1000000; /* ticks, which are ns, of what is right */

/* A time near the others, or anything. */
static uint64_t take_time(fuzz_input *input)
{
    const uint64_t choice = fuzz_take(input, 1);
    return choice < 240 ? base + choice + fuzz_take(input, 1) : fuzz_take_edge(input);
}

/* Mostly a small number. */
static uint32_t take_index(fuzz_input *input)
{
    const uint64_t choice = fuzz_take(input, 1);
    return choice < 240 ? (uint32_t)(choice % 8) : (uint32_t)fuzz_take_edge(input);
}

static void build_header(sp_spool_header *header, fuzz_input *input)
{
    const unsigned flags = (unsigned)fuzz_take(input, 1);
    memcpy(header->magic, SP_SPOOL_MAGIC, sizeof header->magic);
    header->version = SP_SPOOL_VERSION;
    header->endian = SP_SPOOL_ENDIAN;
    header->tracks = flags & 3;
    header->slot_bytes = flags & 2 ? sizeof(sp_async_slot) : sizeof(sp_slot);
    header->task_bytes = sizeof(sp_task);
    header->clock = flags & 4 ? SP_CLOCK_INJECTED : (uint32_t)(1 + fuzz_take(input, 1) % 3);
    header->first_ticks = flags & 8 ? take_time(input) : base - 1000;
    header->first_ns = flags & 8 ? (int64_t)take_time(input) : (int64_t)base - 1000;
    header->started = flags & 16 ? take_time(input) : base;
    header->start_ns = flags & 16 ? (int64_t)take_time(input) : (int64_t)base;
    if (flags & 32) header->version = (uint32_t)fuzz_take_edge(input);
    if (flags & 64) header->task_bytes = (uint32_t)fuzz_take_edge(input);
    memcpy(header->output, "p.h5", 5);
    seal_header(header);
}

static char *put_text(char *at, fuzz_input *input)
{
    static const char *const texts[] = {"a", "b", "region \xc3\xa9", "[\"t\"]", "", "\xff\xfe", "{\"k\": 1}"};
    const size_t choice = (size_t)fuzz_take(input, 1);
    if (choice % 16 == 15) {
        *at++ = 0;
        return at;
    }
    *at++ = 1;
    const size_t count = sizeof texts / sizeof *texts;
    if (choice % 16 < count) return stpcpy(at, texts[choice % 16]) + 1;
    const size_t size = fuzz_take_bytes(input, at, (size_t)fuzz_take(input, 1) % 32);
    at[size] = '\0';
    return at + size + 1;
}

static char *put_number(char *at, uint64_t number)
{
    memcpy(at, &number, sizeof number);
    return at + sizeof number;
}

static char *put_payload(char *at, sp_note_kind kind, fuzz_input *input)
{
    switch (kind) {
    case SP_NOTE_REGION:
        at = put_number(at, fuzz_take_edge(input));
        for (int i = 0; i < 4; i++) at = put_text(at, input);
        return at;
    case SP_NOTE_THREAD:
        at = put_number(put_number(at, fuzz_take(input, 1)), fuzz_take(input, 1));
        at = put_number(put_number(at, take_time(input)), fuzz_take(input, 1));
        return put_text(at, input);
    case SP_NOTE_THREAD_END: return put_number(put_number(at, take_time(input)), fuzz_take_edge(input));
    case SP_NOTE_ANCHOR: return put_number(put_number(at, take_time(input)), take_time(input));
    case SP_NOTE_STRING:
    case SP_NOTE_TASK_NAME:
    case SP_NOTE_METADATA: return put_text(at, input);
    default: return at;
    }
}

static void build_journal(char *at, const char *end, fuzz_input *input)
{
    while (end - at > 512 && input->at < input->end) {
        sp_note_header *note = (sp_note_header *)at;
        const unsigned what = (unsigned)fuzz_take(input, 1);
        note->kind = (uint16_t)(what % 12);
        note->index = take_index(input);
        char *begin = (char *)(note + 1), *stop = put_payload(begin, (sp_note_kind)note->kind, input);
        note->size = (uint32_t)(stop - begin);
        const uint32_t bytes = (uint32_t)((sizeof *note + note->size + 7) / 8 * 8);
        note->bytes = bytes;
        if (what >= 250) note->size = (uint32_t)fuzz_take_edge(input);
        else seal_note(note);
        at += bytes;
        if (what >= 240 && what < 250) return;
    }
}

static void build_slots(char *at, const char *end, uint32_t stride, fuzz_input *input)
{
    for (; end - at >= stride && input->at < input->end; at += stride) {
        sp_slot *slot = (sp_slot *)at;
        const uint64_t start = take_time(input), length = fuzz_take(input, 1);
        slot->start = start;
        if (length >= 250) slot->end = fuzz_take_edge(input);
        else if (length >= 10) slot->end = start + length;
        slot->region = take_index(input) ^ (uint32_t)(fuzz_take(input, 1) & 7) << 29;
        slot->task = (int32_t)(take_index(input) - 1);
        if (stride == sizeof(sp_async_slot)) ((sp_async_slot *)slot)->await = fuzz_take_edge(input);
        if (fuzz_take(input, 1) >= 240) return;
    }
}

static void build_tasks(char *at, const char *end, fuzz_input *input)
{
    for (; end - at >= (ptrdiff_t)sizeof(sp_task) && input->at < input->end; at += sizeof(sp_task)) {
        sp_task *task = (sp_task *)at;
        task->index = (int32_t)take_index(input);
        task->thread_index = (int32_t)take_index(input);
        task->created = take_time(input);
        task->done = fuzz_take(input, 1) & 1 ? take_time(input) : 0;
        task->steps = fuzz_take(input, 1);
        task->running = fuzz_take_edge(input);
        task->suspended = fuzz_take_edge(input);
        task->step_started = fuzz_take(input, 1) & 1 ? take_time(input) : 0;
        task->last_step_end = take_time(input);
        task->coro_name = take_index(input);
        task->kind = (uint8_t)fuzz_take(input, 1);
        task->name_kind = (uint8_t)(fuzz_take(input, 1) % 4);
        task->name.number = fuzz_take_edge(input);
        if (fuzz_take(input, 1) >= 240) return;
    }
}

static void build_chunk(sp_chunk_header *chunk, uint64_t room, uint32_t slot, uint64_t number, fuzz_input *input)
{
    const unsigned what = (unsigned)fuzz_take(input, 1);
    const uint64_t bytes = (1 + what / 3 % 3) * (uint64_t)SP_SPOOL_PAGE;
    chunk->magic = SP_CHUNK_MAGIC;
    chunk->kind = 1 + what % 3;
    chunk->bytes = bytes < room ? bytes : room;
    chunk->owner = take_index(input);
    chunk->stride = chunk->kind == SP_CHUNK_EVENTS ? slot : 0;
    chunk->sequence = what >= 200 ? fuzz_take_edge(input) : number;
    char *begin = (char *)(chunk + 1), *end = (char *)chunk + chunk->bytes;
    if (chunk->kind == SP_CHUNK_EVENTS) build_slots(begin, end, slot, input);
    else if (chunk->kind == SP_CHUNK_TASKS) build_tasks(begin, end, input);
    else build_journal(begin, end, input);
    if (what >= 240) chunk->bytes = fuzz_take_edge(input);
    if (what >= 248) chunk->stride = (uint32_t)fuzz_take_edge(input);
    chunk->dropped = what == 239;
    seal_chunk(chunk);
}

static char *build(fuzz_input *input, size_t *size)
{
    char *data = calloc(1, MOST);
    sp_spool_header *header = (sp_spool_header *)data;
    build_header(header, input);
    *size = SP_SPOOL_PAGE;
    for (uint64_t number = 1; input->at < input->end && *size + SP_SPOOL_PAGE <= MOST; number++) {
        sp_chunk_header *chunk = (sp_chunk_header *)(data + *size);
        build_chunk(chunk, MOST - *size, header->slot_bytes, number, input);
        const uint64_t bytes = chunk->bytes % SP_SPOOL_PAGE == 0 ? chunk->bytes : SP_SPOOL_PAGE;
        *size += bytes && bytes <= MOST - *size ? bytes : SP_SPOOL_PAGE;
    }
    return data;
}

/* As `top` does, twice. */
static void watch_spool(const char *path, sp_status inspected)
{
    sp_watch *watch = NULL;
    const sp_watched *seen = NULL;
    sp_error error = {0};
    FUZZ_CHECK((sp_watch_open(path, &watch, &error) == SP_OK) == (inspected == SP_OK));
    for (int i = 0; watch && i < 2; i++) {
        const sp_watch_view view = {.sort = SP_WATCH_SORTS[i], .rows = 10};
        sp_text text = {0};
        FUZZ_CHECK(sp_watch_look(watch, &seen, &error) == SP_OK);
        sp_report_watch(seen, path, &view, &text);
        sp_text_free(&text);
    }
    sp_watch_close(watch);
}

static void read_spool(const void *data, size_t size, bool deep)
{
    fuzz_file file = fuzz_file_make(data, size);
    sp_profile *profile = NULL;
    sp_salvage salvage = {0};
    sp_spool_values values;
    sp_spool_info info;
    sp_error error = {0};
    const sp_status inspected = sp_spool_inspect(file.path, &info, &error);
    const sp_status status = sp_spool_read(file.path, 0, &profile, &salvage, &values, &error);
    fuzz_check_outcome(status, &error, profile);
    watch_spool(file.path, inspected);
    if (status == SP_OK) {
        FUZZ_CHECK(inspected == SP_OK && salvage.damaged_bytes <= 2 * size);
        for (uint64_t i = 0; i < profile->call_count; i++) {
            FUZZ_CHECK(profile->columns[SP_COLUMN_START][i] <= profile->columns[SP_COLUMN_END][i]);
        }
        FUZZ_CHECK(values.count <= salvage.values && (values.count == 0 || values.calls == profile->call_count));
        FUZZ_CHECK(sp_spool_values_tell(&values, profile) == SP_OK);
        for (size_t i = 0; i < profile->row_count; i++) {
            uint64_t count = profile->rows[i].count;
            if (profile->rows[i].event_metadata) FUZZ_CHECK(sp_json_list(profile->rows[i].event_metadata, '{', &count));
            FUZZ_CHECK(count == profile->rows[i].count);
        }
        fuzz_use_profile(profile, deep);
    }
    sp_spool_values_free(&values);
    sp_profile_release(profile);
    fuzz_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, data + size};
    const unsigned mode = (unsigned)fuzz_take(&input, 1);
    const bool deep = mode / 3 % 8 == 7;
    if (mode % 3 == 2) {
        size_t built;
        char *spool = build(&input, &built);
        read_spool(spool, built, deep);
        free(spool);
        return 0;
    }
    const size_t left = (size_t)(input.end - input.at);
    char *copy = malloc(left ? left : 1);
    fuzz_take_bytes(&input, copy, left);
    if (mode % 3 == 1) repair(copy, left);
    read_spool(copy, left, deep);
    free(copy);
    return 0;
}
